//! `cargo xtask bench`: measurements, always of a release build.

pub mod routing;

use std::env;

use anyhow::Result;
use clap::Subcommand;

use crate::workspace;
use routing::RoutingArguments;

/// What to measure.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchArguments {
    /// Compare this picker with other routers, on simulated model servers in virtual time
    Routing(RoutingArguments),
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
        BenchArguments::Routing(arguments) => routing::routing(arguments),
    }
}
