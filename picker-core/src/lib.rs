//! The endpoint picker's engine.
//!
//! Bytes go in, a destination comes out. This crate has no clock, no entropy, no I/O and no logging: time, random
//! draws and shared state are arguments, and effects are values that the adapter carries out.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod block;
mod endpoint;
mod metrics;
mod time;

pub use block::{BLOCK_BYTES, BlockHash};
pub use endpoint::{Address, AddressError, EndpointId};
pub use metrics::{EndpointMetrics, Lora};
pub use time::{Span, Timestamp};
