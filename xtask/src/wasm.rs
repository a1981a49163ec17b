//! Builds `picker.wasm`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace::{cargo, command_output, root, run, step, target};

/// Which module to build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// What is shipped.
    Shipped,
    /// With the switches that tests need, such as a panic on request.
    Test,
}

impl Variant {
    /// Where the built module is.
    pub fn path(self) -> PathBuf {
        self.directory().join(TARGET).join("wasm/picker.wasm")
    }

    /// A variant has a directory of its own, so that building one does not replace the other.
    fn directory(self) -> PathBuf {
        match self {
            Self::Shipped => target(),
            Self::Test => target().join("test-build"),
        }
    }
}

/// Builds a variant, adding the compiler's target first when it is missing.
pub fn build(variant: Variant) -> Result<PathBuf> {
    add_target(TARGET)?;
    let what = match variant {
        Variant::Shipped => "build picker.wasm",
        Variant::Test => "build picker.wasm for tests",
    };
    step(what, || {
        let mut command = cargo(&["build", "--quiet", "--package", "picker-filter"]);
        command.args(["--profile", "wasm", "--target", TARGET, "--target-dir"]);
        command.arg(variant.directory());
        command.args(["--config", &without_our_paths()?]);
        if variant == Variant::Test {
            command.args(["--features", "test-build"]);
        }
        run(&mut command)
    })?;
    Ok(variant.path())
}

/// Compiler flags, beside those of `.cargo/config.toml`, that give places in the module without the
/// directories of this machine.
///
/// A panic names the file it happened in. With the same names everywhere, the same source gives the
/// same module everywhere.
fn without_our_paths() -> Result<String> {
    let told = command_output(Command::new("rustc").current_dir(root()).arg("-vV"))?;
    let lines = told.lines();
    let commit = lines
        .filter_map(|line| line.strip_prefix("commit-hash: "))
        .next();
    let sysroot = command_output(
        Command::new("rustc")
            .current_dir(root())
            .args(["--print", "sysroot"]),
    )?;
    let sources = Path::new(sysroot.trim()).join("lib/rustlib/src/rust");
    let registry = cargo_home()?.join("registry/src");
    // The standard library has this name already, unless its source is installed.
    let library = format!("/rustc/{}", commit.unwrap_or("unknown"));
    let flags = [(registry, "/registry".to_owned()), (sources, library)]
        .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
    Ok(format!("target.{TARGET}.rustflags={flags:?}"))
}

/// Where cargo keeps the sources of dependencies.
fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = env::var_os("CARGO_HOME") {
        return Ok(root().join(home));
    }
    let home = env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?;
    Ok(PathBuf::from(home).join(".cargo"))
}

/// Adds a target to the toolchain when it is missing.
pub fn add_target(target: &str) -> Result<()> {
    let mut rustc = Command::new("rustc");
    rustc.current_dir(root());
    let libraries = command_output(rustc.args(["--print", "target-libdir", "--target", target]));
    let libraries =
        libraries.with_context(|| format!("rustc does not know the target {target}"))?;
    if PathBuf::from(libraries.trim()).is_dir() {
        return Ok(());
    }
    step(&format!("rustup target add {target}"), || {
        let mut rustup = Command::new("rustup");
        rustup.current_dir(root());
        run(rustup.args(["target", "add", target]))
    })
    .with_context(|| {
        format!("the toolchain lacks {target}; install rustup, or the target by other means")
    })
}

/// The filter's target.
pub const TARGET: &str = "wasm32-wasip1";
