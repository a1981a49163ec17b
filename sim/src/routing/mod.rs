//! Routers compared on the same requests, in virtual time.
//!
//! A [`scenario`] gives pods and a [`workload`]; a [`policies::Policy`] chooses the pod for every
//! request; the [`driver`] lets time pass and gives the [`summary`]. A [`case`] is one of these runs,
//! and a [`report`] or a [`plot`] is made of many. The same seed gives the same
//! figures. Our own picker is not modelled: its code is what chooses.

pub mod case;
pub mod dice;
pub mod driver;
pub mod forecast;
pub mod job;
pub mod plot;
pub mod policies;
pub mod report;
pub mod scenario;
pub mod summary;
pub mod trace;
pub(crate) mod wire;
pub mod workload;
