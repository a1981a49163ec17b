//! The endpoint picker's engine.
//!
//! Bytes go in, a destination comes out. This crate has no clock, no entropy, no I/O and no logging: time, random
//! draws and shared state are arguments, and effects are values that the adapter carries out.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod block;
mod bytes;
mod endpoint;
mod ledger;
mod metrics;
mod prefix;
mod ring;
mod shared;
mod time;

pub use block::{BLOCK_BYTES, BlockHash};
pub use endpoint::{Address, AddressError, EndpointId};
pub use ledger::{Ledger, Load, ROW_LIFETIME, Row};
pub use metrics::{EndpointMetrics, Lora};
pub use prefix::PrefixIndex;
pub use ring::{Placed, RING_ENTRIES, Ring};
pub use shared::{LocalData, SharedData, Version};
pub use time::{Span, Timestamp};
