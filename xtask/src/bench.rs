//! `cargo xtask bench`: measurements, always of a release build.
//!
//! What takes time on this machine is only ever compared within one run.

mod bodies;
mod cpu;
mod overhead;
mod report;
pub mod routing;
mod scale;
mod scan;
mod soak;
mod subject;
mod upstream;

use std::env;

use anyhow::Result;
use clap::Subcommand;

use crate::workspace;
use overhead::OverheadArguments;
use routing::RoutingArguments;
use scale::ScaleArguments;
use scan::ScanArguments;
use soak::SoakArguments;

/// What to measure.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchArguments {
    /// Measure what the picker adds to Envoy's CPU time and latency
    Overhead(OverheadArguments),
    /// Compare this picker with other routers, on simulated model servers in virtual time
    Routing(RoutingArguments),
    /// Measure what the collector costs with many endpoints
    Scale(ScaleArguments),
    /// Time the request scanner and the block hash, native and as wasm
    Scan(ScanArguments),
    /// Send many mixed requests and see whether memory stays flat
    Soak(SoakArguments),
}

/// Measures; a debug build builds itself again for release and hands over.
pub fn bench(arguments: &BenchArguments) -> Result<()> {
    if cfg!(debug_assertions) {
        let mut command = workspace::cargo(&["run", "--quiet", "--release", "--manifest-path"]);
        command.arg(workspace::root().join("Cargo.toml"));
        command.args(["--package", "xtask", "--"]);
        // Files are named from where the user stands.
        command
            .args(env::args_os().skip(1))
            .current_dir(env::current_dir()?);
        return workspace::run(&mut command);
    }
    match arguments {
        BenchArguments::Overhead(arguments) => overhead::overhead(arguments),
        BenchArguments::Routing(arguments) => routing::routing(arguments),
        BenchArguments::Scale(arguments) => scale::scale(arguments),
        BenchArguments::Scan(arguments) => scan::scan(*arguments),
        BenchArguments::Soak(arguments) => soak::soak(*arguments),
    }
}
