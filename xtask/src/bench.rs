//! `cargo xtask bench`: measurements, always of a release build.
//!
//! What takes time on this machine is only ever compared within one run.

mod bodies;
mod completions;
pub mod cpu;
mod decision;
mod envoy_scenario;
mod memory;
mod overhead;
mod overload;
mod predict;
mod prefixes;
mod report;
mod router;
pub mod routing;
mod routing_endpoints;
mod routing_envoy;
mod runs;
mod scale;
mod scan;
mod scan_bodies;
mod soak;
mod subject;
mod updates;
mod upstream;

use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Subcommand;
use serde::Serialize;

use crate::workspace;
use decision::DecisionArguments;
use memory::MemoryArguments;
use overhead::OverheadArguments;
use overload::OverloadArguments;
use predict::PredictArguments;
use routing::RoutingArguments;
use scale::ScaleArguments;
use scan::ScanArguments;
use soak::SoakArguments;
use updates::UpdatesArguments;

/// What to measure.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchArguments {
    /// Measure how long choosing an endpoint takes, without Envoy
    Decision(DecisionArguments),
    /// Measure what full twins of the endpoints' caches take
    Memory(MemoryArguments),
    /// Measure what the picker adds to Envoy's CPU time and latency
    Overhead(OverheadArguments),
    /// Send simulated servers more than they can serve and see who is served
    Overload(OverloadArguments),
    /// Measure how well latencies are foretold, in simulated situations
    Predict(PredictArguments),
    /// Compare this picker with other routers: simulated, through Envoy or on real engines
    Routing(RoutingArguments),
    /// Measure what the collector costs with many endpoints
    Scale(ScaleArguments),
    /// Time the reading of bodies of every API and coding, native and as wasm
    Scan(ScanArguments),
    /// Send many mixed requests and see whether memory stays flat
    Soak(SoakArguments),
    /// Change the configuration many times and see whether memory stays flat
    Updates(UpdatesArguments),
}

/// Measures; a debug build builds itself again for release and hands over.
pub fn bench(arguments: &BenchArguments) -> Result<()> {
    if cfg!(debug_assertions) {
        let mut command = workspace::cargo(&["run", "--release", "--manifest-path"]);
        command.arg(workspace::root().join("Cargo.toml"));
        command.args(["--package", "xtask", "--"]);
        // Files are named from where the user stands.
        command
            .args(env::args_os().skip(1))
            .current_dir(env::current_dir()?);
        // In place of this process, so that a signal reaches the one that measures.
        let error = command.exec();
        return Err(error).context("cannot start cargo");
    }
    match arguments {
        BenchArguments::Decision(arguments) => decision::decision(arguments),
        BenchArguments::Memory(arguments) => memory::memory(*arguments),
        BenchArguments::Overhead(arguments) => overhead::overhead(arguments),
        BenchArguments::Overload(arguments) => overload::overload(arguments),
        BenchArguments::Predict(arguments) => predict::predict(arguments),
        BenchArguments::Routing(arguments) => routing::routing(arguments),
        BenchArguments::Scale(arguments) => scale::scale(arguments),
        BenchArguments::Scan(arguments) => scan::scan(*arguments),
        BenchArguments::Soak(arguments) => soak::soak(*arguments),
        BenchArguments::Updates(arguments) => updates::updates(*arguments),
    }
}

/// Writes rows as JSON to `file`, when there is one.
fn write_json(file: Option<&Path>, rows: &impl Serialize) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    let mut text = serde_json::to_string_pretty(rows)?;
    text.push('\n');
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
