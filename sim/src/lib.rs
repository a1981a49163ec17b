//! A simulated model server, and a client that puts load on one.
//!
//! [`engine`] is the scheduler and block pool without a clock, [`virtual_server`] drives it in
//! virtual time and [`server`] in real time over HTTP; [`load`] is the client. [`routing`] puts
//! several servers in virtual time behind a router, ours or another, and measures what came of it.
//! One token is four bytes of prompt text, so what a prompt costs can be told from its length.

pub mod engine;
pub mod load;
pub mod overload;
pub mod profile;
pub mod routing;
pub mod server;
pub mod step_time;
pub mod tokens;
pub mod virtual_server;
