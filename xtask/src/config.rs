//! `cargo xtask config`: what is wrong in a configuration, before Envoy runs with it.

mod document;
mod finding;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

pub use finding::{Finding, Level};

/// What to do with a configuration.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigArguments {
    /// Check the picker's configuration
    #[command(after_help = HELP)]
    Check(CheckArguments),
}

/// The arguments of `cargo xtask config check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArguments {
    /// YAML or JSON; /dev/stdin reads what is piped in
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Prints what is wrong; the code says whether anything is.
pub fn config(arguments: &ConfigArguments) -> ExitCode {
    ExitCode::from(code(arguments))
}

fn code(arguments: &ConfigArguments) -> u8 {
    let ConfigArguments::Check(arguments) = arguments;
    match check_documents(&arguments.files) {
        Ok(true) => 0,
        Ok(false) => FOUND,
        Err(error) => {
            eprintln!("error: {error:#}");
            UNREADABLE
        }
    }
}

/// Checks documents of the picker; whether none has a mistake.
fn check_documents(files: &[PathBuf]) -> Result<bool> {
    let mut are_good = true;
    for file in files {
        let (name, text) = (file.display().to_string(), read(file)?);
        let checked = document::check(&name, &text);
        for finding in &checked.findings {
            println!("{finding}");
            if let Some(excerpt) = excerpt(&text, finding) {
                println!("    {excerpt}");
            }
            are_good &= finding.level < Level::Error;
        }
        if let Some(summary) = checked.summary {
            println!("{name}: accepted: {summary}");
        }
    }
    Ok(are_good)
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// The line that a finding is about, shortened.
fn excerpt(text: &str, finding: &Finding) -> Option<String> {
    let line = text
        .lines()
        .nth(usize::try_from(finding.line).ok()?.checked_sub(1)?)?;
    Some(line.trim().chars().take(EXCERPT_CHARS_MAX).collect())
}

const HELP: &str = "\
Example:
  cargo xtask config check picker.yaml

Each line names the place, what stands there, and what to write.

Exit codes: 0 nothing to mend (warnings do not count), 1 something to mend, 2 a file could not be
read.";

/// The exit code when something is to be mended.
const FOUND: u8 = 1;

/// The exit code when nothing could be checked; clap's for wrong usage is the same.
const UNREADABLE: u8 = 2;

/// How much of a line is shown: what fits in a terminal.
const EXCERPT_CHARS_MAX: usize = 90;
