//! `cargo xtask bench`: what the picker costs.
//!
//! Every figure is a difference or a ratio within one run: two runs, or two machines, are not compared.

mod bodies;
mod cpu;
mod overhead;
mod report;
mod subject;
mod upstream;

use std::env;

use anyhow::Result;
use clap::Subcommand;

use crate::workspace::{cargo, run};
use overhead::OverheadArguments;

/// The arguments of `cargo xtask bench`.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchArguments {
    /// Measure what the picker adds to Envoy's CPU time and latency
    Overhead(OverheadArguments),
}

/// Measures, in a release build of this program.
pub fn bench(arguments: &BenchArguments) -> Result<()> {
    if cfg!(debug_assertions) {
        // What loads and serves shares the machine with what is measured, so it must be fast too.
        let mut release = cargo(&["run", "--quiet", "--release", "--package", "xtask", "--"]);
        return run(release.args(env::args_os().skip(1)));
    }
    match arguments {
        BenchArguments::Overhead(arguments) => overhead::overhead(arguments),
    }
}
