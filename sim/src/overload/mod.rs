//! More requests than a fleet can serve, in virtual time, before simulated servers.
//!
//! The [`traffic`] has priorities and tenants; each of the [`variant`]s is a configuration of our own
//! picker, which decides in the [`envoy`] who waits, who is sent where, and who is refused. The
//! [`driver`] lets time pass, and the [`figures`] say what came of it. A [`case`] is one such run.

pub mod case;
pub mod driver;
pub mod envoy;
pub mod fairness;
pub mod figures;
pub mod report;
pub mod traffic;
pub mod variant;
