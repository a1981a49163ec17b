//! All parts of the engine together, where something is wrong that none of them has done.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "all of this crate is tests, its helpers too"
)]

mod clock_steps;
mod foreign_state;
mod world;
