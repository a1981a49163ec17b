//! Kubernetes' own kinds, checked by `kubernetes-validate` from PyPI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xtask::workspace::{command_output, find_program, run, step, target};

use super::Manifest;

/// Fails with what is wrong in any of the manifests.
pub fn check(manifests: &[&Manifest], directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)?;
    let mut files = Vec::with_capacity(manifests.len());
    for manifest in manifests {
        let name = manifest.name.replace(['/', ' '], "-");
        let file = directory.join(format!("{name}.json"));
        fs::write(&file, manifest.value.to_string())?;
        files.push(file);
    }
    ensure!(!files.is_empty(), "there is nothing to check");
    let mut validate = validator()?;
    validate.args(["--strict", "--quiet", "--kubernetes-version", KUBERNETES]);
    command_output(validate.args(files))?;
    Ok(())
}

/// The program, installed first where it is not.
fn validator() -> Result<Command> {
    let directory = target().join("kubernetes-validate");
    let (bin, plain) = (directory.join("bin/python"), directory.join("plain"));
    if !is_installed(&bin, &plain) {
        step(
            "install kubernetes-validate from PyPI (about 20 MB, once)",
            || install(&directory, &bin, &plain),
        )?;
    }
    Ok(command(&bin, &plain))
}

fn is_installed(bin: &Path, plain: &Path) -> bool {
    let said = command_output(command(bin, plain).arg("--version"));
    said.is_ok_and(|said| said.contains(VERSION))
}

fn command(bin: &Path, plain: &Path) -> Command {
    let mut command = Command::new(if bin.exists() {
        bin
    } else {
        Path::new("python3")
    });
    if plain.exists() {
        command.env("PYTHONPATH", plain);
    }
    command.args(["-m", "kubernetes_validate"]);
    command
}

/// Debian's Python may come without `venv`; then pip installs into a directory.
fn install(directory: &Path, bin: &Path, plain: &PathBuf) -> Result<()> {
    let python = find_program("python3").context("there is no python3")?;
    let package = format!("kubernetes-validate=={VERSION}");
    let quietly = ["-m", "pip", "install", "--quiet"];
    let made = command_output(Command::new(&python).args(["-m", "venv"]).arg(directory));
    if made.is_ok() {
        return run(Command::new(bin).args(quietly).arg(package));
    }
    fs::remove_dir_all(directory).ok();
    let mut pip = Command::new(&python);
    run(pip.args(quietly).arg("--target").arg(plain).arg(package))
}

/// The version of the package; it brings the schemas of all versions of Kubernetes up to its own.
const VERSION: &str = "1.37.0";

/// The version of Kubernetes to check against: the first in which volumes may be images without a
/// feature gate.
const KUBERNETES: &str = "1.35";
