//! `cargo xtask`: the project's commands.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::bench::{self, BenchArguments};
use xtask::config::{self, ConfigArguments};
use xtask::fuzz::{self, FuzzArguments};
use xtask::oci::{self, OciArguments};
use xtask::read::{self, ReadArguments};
use xtask::run::{self, RunArguments};
use xtask::test::{self, TestArguments};

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure, in a release build
    #[command(subcommand)]
    Bench(BenchArguments),
    /// Check, show or migrate a configuration, of the picker or of an Envoy that runs it
    #[command(subcommand)]
    Config(ConfigArguments),
    /// Look for bytes that a parser does not take as it should
    Fuzz(FuzzArguments),
    /// Build the image that Istio and Envoy Gateway fetch, or check one
    #[command(subcommand)]
    Oci(OciArguments),
    /// Show a metrics page, a request or a response as the picker reads it
    #[command(subcommand)]
    Read(ReadArguments),
    /// Run Envoy with the picker in front of model servers, or of three simulated ones
    Run(RunArguments),
    /// Run every check and test that continuous integration runs
    Test(TestArguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Bench(arguments) => bench::bench(&arguments),
        // Its findings have an exit code of their own.
        Command::Config(arguments) => return config::config(&arguments),
        Command::Fuzz(arguments) => fuzz::fuzz(&arguments),
        Command::Oci(arguments) => oci::oci(&arguments),
        Command::Read(arguments) => read::read(&arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Test(arguments) => test::test(arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
