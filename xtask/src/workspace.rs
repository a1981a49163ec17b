//! Where things are, and how a step's command is run and shown.

use std::env;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or_else(|| Path::new("."))
}

/// Where builds go: `CARGO_TARGET_DIR`, else `target`.
pub fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => root().join(directory),
        None => root().join("target"),
    }
}

/// A cargo command in the repository's root.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Runs a command to its end, its output on ours.
///
/// The error names the command line, so that it can be run again by hand.
pub fn run(command: &mut Command) -> Result<()> {
    let line = command_line(command);
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start: {line}"))?;
    if !status.success() {
        bail!("failed ({status}): {line}");
    }
    Ok(())
}

/// Runs a command to its end and returns what it printed.
pub fn command_output(command: &mut Command) -> Result<String> {
    let line = command_line(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start: {line}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("failed ({}): {line}\n{}", output.status, errors.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a step that may take long, saying on standard error that it began and how long it took.
pub fn step<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    eprintln!("==> {what}");
    let begun = Instant::now();
    let result = work().with_context(|| format!("{what} failed"))?;
    eprintln!("    {what}: done in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(result)
}

/// The first file of this name in the directories of `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|file| is_executable(file))
}

/// Whether a path leads to a file that may be executed.
pub fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// A command as a person would type it.
fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default();
    let words: Vec<String> = iter::once(program)
        .chain(command.get_args())
        .map(|word| match word.to_string_lossy() {
            word if word.contains(' ') => format!("'{word}'"),
            word => word.into_owned(),
        })
        .collect();
    words.join(" ")
}
