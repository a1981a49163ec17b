//! A simulated model server.

pub mod engine;
