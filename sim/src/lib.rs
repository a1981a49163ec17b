//! A simulated model server.
