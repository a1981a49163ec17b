//! `cargo xtask test`: everything that continuous integration runs, word for word.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use picker_fuzz::TARGETS;

use crate::envoy::Envoy;
use crate::fuzz;
use crate::imports::check_filter;
use crate::oci;
use crate::wasm::{self, TARGET, Variant};
use crate::workspace::{cargo, command_output, find_program, root, run, step, target};

/// The arguments of `cargo xtask test`.
#[derive(Clone, Copy, Debug, Args)]
pub struct TestArguments {
    /// Leave out what takes minutes: the core's tests as wasm, and Envoy
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Everything there is: also half a minute of fuzzing for each parser
    #[arg(long)]
    full: bool,
}

/// What became of a step.
enum Outcome {
    Passed,
    /// Not run, with the reason.
    Skipped(&'static str),
}

type Work = fn() -> Result<Outcome>;

/// Runs the steps in order; the first that fails ends it.
pub fn test(arguments: TestArguments) -> Result<()> {
    let depth = match (arguments.quick, arguments.full) {
        (true, _) => Depth::Quick,
        (_, true) => Depth::Full,
        _ => Depth::Usual,
    };
    let steps = STEPS.iter().filter(|step| step.1 <= depth);
    let mut summary: Vec<(&str, Duration, Outcome)> = Vec::new();
    for (name, _, work) in steps {
        let begun = Instant::now();
        eprintln!("==> {name}");
        let outcome = work();
        let took = begun.elapsed();
        match outcome {
            Ok(outcome) => summary.push((name, took, outcome)),
            Err(error) => {
                print_summary(&summary);
                println!("  {:>7.1} s  {name}  FAILED", took.as_secs_f64());
                println!("{} passed, 1 failed", passed(&summary));
                bail!("{name}: {error:#}");
            }
        }
    }
    print_summary(&summary);
    println!("{} passed, 0 failed", passed(&summary));
    Ok(())
}

fn print_summary(summary: &[(&str, Duration, Outcome)]) {
    println!("\nSteps:");
    for (name, took, outcome) in summary {
        let note = match outcome {
            Outcome::Passed => String::new(),
            Outcome::Skipped(reason) => format!("  SKIPPED: {reason}"),
        };
        println!("  {:>7.1} s  {name}{note}", took.as_secs_f64());
    }
}

fn passed(summary: &[(&str, Duration, Outcome)]) -> usize {
    summary
        .iter()
        .filter(|step| matches!(step.2, Outcome::Passed))
        .count()
}

fn format() -> Result<Outcome> {
    add_component("fmt", "rustfmt")?;
    passes(&mut cargo(&["fmt", "--all", "--check"]))
}

fn clippy() -> Result<Outcome> {
    add_component("clippy", "clippy")?;
    let arguments = [
        "clippy",
        "--quiet",
        "--workspace",
        "--exclude",
        FILTER,
        "--all-targets",
    ];
    passes(cargo(&arguments).args(["--", "-D", "warnings"]))
}

fn clippy_filter() -> Result<Outcome> {
    wasm::add_target(TARGET)?;
    let arguments = ["clippy", "--quiet", "--package", FILTER, "--target", TARGET];
    passes(cargo(&arguments).args(["--", "-D", "warnings"]))
}

fn native_tests() -> Result<Outcome> {
    let arguments = ["test", "--quiet", "--workspace", "--exclude", FILTER];
    run(cargo(&arguments).args(["--exclude", "picker-tests"]))?;
    passes(&mut cargo(&[
        "test",
        "--quiet",
        "--package",
        "picker-tests",
        "--test",
        "tidy",
    ]))
}

fn module() -> Result<Outcome> {
    check_filter(&wasm::build(Variant::Shipped)?)?;
    Ok(Outcome::Passed)
}

fn image() -> Result<Outcome> {
    Ok(match oci::rehearse(&wasm::build(Variant::Shipped)?)? {
        true => Outcome::Passed,
        false => Outcome::Skipped("checked here, but not by skopeo, which is not installed"),
    })
}

fn wasm_tests() -> Result<Outcome> {
    if find_program("node").is_none() {
        return Ok(Outcome::Skipped("node is not installed"));
    }
    wasm::add_target(CORE_TARGET)?;
    let runner = test_runner()?;
    // Not quiet: the runner does not know that argument, and cargo hands it on.
    let mut tests = cargo(&["test", "--package", "picker-core", "--lib"]);
    tests.args(["--target", CORE_TARGET]);
    passes(tests.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER", runner))
}

fn end_to_end() -> Result<Outcome> {
    let shipped = wasm::build(Variant::Shipped)?;
    let test_build = wasm::build(Variant::Test)?;
    let envoy = Envoy::find(None)?;
    eprintln!("    {envoy}");
    remove_old_runs();
    let mut tests = cargo(&["test", "--quiet", "--package", "picker-tests"]);
    tests
        .env("PICKER_WASM", shipped)
        .env("PICKER_TEST_WASM", test_build);
    passes(tests.env("ENVOY_PATH", envoy.path))
}

/// Removes what the Envoys of earlier test runs left behind.
fn remove_old_runs() {
    let runs = fs::read_dir(target().join("run"))
        .into_iter()
        .flatten()
        .flatten();
    for run in runs.filter(|run| run.file_name().to_string_lossy().starts_with("test-")) {
        // What cannot be removed is in nobody's way.
        let _ = fs::remove_dir_all(run.path());
    }
}

fn docs() -> Result<Outcome> {
    let arguments = ["doc", "--quiet", "--no-deps", "--document-private-items"];
    let documented = |package: &[&str]| {
        let mut doc = cargo(&arguments);
        run(doc.args(package).env("RUSTDOCFLAGS", "-D warnings"))
    };
    documented(&["--workspace", "--exclude", FILTER])?;
    documented(&["--package", FILTER, "--target", TARGET])?;
    Ok(Outcome::Passed)
}

fn fuzzing() -> Result<Outcome> {
    fuzz::fuzz_each(TARGETS, FUZZED_FOR)?;
    Ok(Outcome::Passed)
}

fn passes(command: &mut Command) -> Result<Outcome> {
    run(command)?;
    Ok(Outcome::Passed)
}

/// Adds a component of the toolchain when its cargo command is missing.
fn add_component(subcommand: &str, component: &str) -> Result<()> {
    if command_output(&mut cargo(&[subcommand, "--version"])).is_ok() {
        return Ok(());
    }
    let mut rustup = Command::new("rustup");
    run(rustup
        .args(["component", "add", component])
        .current_dir(root()))
}

/// The runner of wasm-bindgen's tests, of the very version that the tests are compiled against.
fn test_runner() -> Result<PathBuf> {
    let lock = fs::read_to_string(root().join("Cargo.lock"))?;
    let version = locked_version(&lock, "wasm-bindgen").context("no wasm-bindgen in Cargo.lock")?;
    let tools = target().join("tools");
    let runner = tools.join("bin/wasm-bindgen-test-runner");
    let has = command_output(Command::new(tools.join("bin/wasm-bindgen")).arg("--version"));
    if has.is_ok_and(|said| said.split_whitespace().any(|word| word == version)) {
        return Ok(runner);
    }
    let what = format!("install wasm-bindgen-cli {version} (a few minutes, once)");
    step(&what, || {
        let install = |locked: &[&str]| {
            let mut install = cargo(&["install", "--quiet", "--force", "wasm-bindgen-cli"]);
            install.args(["--version", version]).args(locked);
            // With a directory of its own the build can go on where an interrupted one ended.
            install.env("CARGO_TARGET_DIR", tools.join("build"));
            run(install.arg("--root").arg(&tools))
        };
        // What it was locked to may have been withdrawn since.
        install(&["--locked"]).or_else(|error| {
            eprintln!("    {error:#}; trying with newer dependencies");
            install(&[])
        })
    })?;
    Ok(runner)
}

/// The version of a package in the text of a `Cargo.lock`.
fn locked_version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"\nversion = \"");
    let (_, rest) = lock.split_once(&name)?;
    rest.split('"').next()
}

/// Where the environment names a module, so that a test run builds it once.
pub fn module_from_environment(variant: Variant) -> Option<PathBuf> {
    let variable = match variant {
        Variant::Shipped => "PICKER_WASM",
        Variant::Test => "PICKER_TEST_WASM",
    };
    env::var_os(variable).map(PathBuf::from)
}

/// The run from which on a step belongs to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Depth {
    Quick,
    Usual,
    Full,
}

/// The steps, cheap ones first.
const STEPS: [(&str, Depth, Work); 10] = [
    ("format", Depth::Quick, format),
    ("clippy", Depth::Quick, clippy),
    ("clippy of the filter", Depth::Quick, clippy_filter),
    (
        "unit, golden and integration tests",
        Depth::Quick,
        native_tests,
    ),
    ("imports and size of picker.wasm", Depth::Quick, module),
    ("the image of picker.wasm", Depth::Quick, image),
    ("tests of picker-core as wasm", Depth::Usual, wasm_tests),
    ("end to end in Envoy", Depth::Usual, end_to_end),
    ("documentation", Depth::Quick, docs),
    ("fuzzing", Depth::Full, fuzzing),
];

/// How long each target is fuzzed in a full run.
const FUZZED_FOR: Duration = Duration::from_secs(30);

/// The package that links for wasm only.
const FILTER: &str = "picker-filter";

/// The target under which node runs the core's tests.
const CORE_TARGET: &str = "wasm32-unknown-unknown";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locked_version_is_that_of_the_package_and_not_of_its_namesakes() {
        let lock = "[[package]]\nname = \"wasm-bindgen-test\"\nversion = \"0.3.1\"\n\n\
                    [[package]]\nname = \"wasm-bindgen\"\nversion = \"0.2.9\"\nsource = \"x\"\n";
        assert_eq!(locked_version(lock, "wasm-bindgen"), Some("0.2.9"));
        assert_eq!(locked_version(lock, "wasm"), None);
    }
}
