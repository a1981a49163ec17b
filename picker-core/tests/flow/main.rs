//! Requests that wait in several workers, compared with one list of all of them.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "all of this crate is tests, its helpers too"
)]

mod between;
mod house;
mod random;
mod rules;
mod twin;
