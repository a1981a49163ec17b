//! The project's commands, as a library that the end-to-end tests use too.
//!
//! One file per task; `main.rs` only reads the command line.

pub mod bench;
pub mod bootstrap;
pub mod check;
pub mod compose;
pub mod config;
pub mod draw;
pub mod envoy;
pub mod fuzz;
pub mod http;
pub mod imports;
pub mod live;
pub mod oci;
pub mod ports;
pub mod proxy;
pub mod pushed;
pub mod read;
pub mod ready;
pub mod run;
pub mod simulated;
pub mod state;
pub mod test;
pub mod wasm;
pub mod workspace;
