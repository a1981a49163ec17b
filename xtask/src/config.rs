//! `cargo xtask config`: what is wrong in a configuration, before Envoy runs with it.

mod document;
mod finding;
mod model;
mod place;
mod plugin;
mod route;
mod rules;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};

pub use finding::{Finding, Level};
use model::{Model, Source};
use tree::Node;

/// What to do with a configuration.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigArguments {
    /// Check the picker's configuration or, with --envoy, what Envoy is told around it
    #[command(after_help = HELP)]
    Check(CheckArguments),
}

/// The arguments of `cargo xtask config check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArguments {
    /// The files are an Envoy: its bootstrap, a dump of its admin interface, or resources
    ///
    /// Several files are read as parts of one Envoy.
    #[arg(long)]
    envoy: bool,
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
    let checked = if arguments.envoy {
        check_envoy(&arguments.files)
    } else {
        check_documents(&arguments.files)
    };
    match checked {
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
        refuse_envoy(&name, &text)?;
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

/// Checks the parts of one Envoy; whether there is nothing to mend.
fn check_envoy(files: &[PathBuf]) -> Result<bool> {
    let mut sources = Vec::with_capacity(files.len());
    for file in files {
        sources.push((file.display().to_string(), read(file)?));
    }
    let findings = check(&sources)?;
    for finding in &findings {
        println!("{finding}");
    }
    let count = |level| findings.iter().filter(|it| it.level == level).count();
    let (errors, warnings, notes) = (
        count(Level::Error),
        count(Level::Warning),
        count(Level::Note),
    );
    println!("errors: {errors}, warnings: {warnings}, notes: {notes}");
    Ok(errors + warnings == 0)
}

/// What there is to say about one Envoy, given its documents by name and text.
pub fn check(documents: &[(String, String)]) -> Result<Vec<Finding>> {
    let sources = documents.iter().map(|(name, text)| {
        let tree = Node::parse(text);
        let tree = tree.map_err(|error| anyhow!("{name} is neither YAML nor JSON: {error}"))?;
        let name = name.clone();
        Ok(Source { name, tree })
    });
    let sources: Vec<Source> = sources.collect::<Result<_>>()?;
    let model = Model::new(&sources).context(
        "no listener, cluster, route table or bootstrap of Envoy here; give a bootstrap, the \
         output of /config_dump, or a file of resources",
    )?;
    Ok(rules::findings(&model))
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Says so when a file is Envoy's and not the picker's.
fn refuse_envoy(name: &str, text: &str) -> Result<()> {
    let tree = Node::parse(text).ok();
    let keys = [
        "static_resources",
        "staticResources",
        "configs",
        "resources",
    ];
    if tree.is_some_and(|tree| keys.iter().any(|key| tree.get(key).is_some())) {
        bail!("{name} is Envoy's configuration: check it with --envoy");
    }
    Ok(())
}

/// The line that a finding is about, shortened.
fn excerpt(text: &str, finding: &Finding) -> Option<String> {
    let line = text
        .lines()
        .nth(usize::try_from(finding.line).ok()?.checked_sub(1)?)?;
    Some(line.trim().chars().take(EXCERPT_CHARS_MAX).collect())
}

const HELP: &str = "\
Examples:
  cargo xtask config check picker.yaml
  cargo xtask config check --envoy envoy/envoy.yaml
  curl -s localhost:9901/config_dump > dump.json
  cargo xtask config check --envoy dump.json
  cargo xtask config check --envoy bootstrap.yaml listeners.yaml clusters.yaml

Each line names the place, what stands there, why it hurts, and what to write.

Exit codes: 0 nothing to mend (notes do not count, nor warnings without --envoy), 1 something to
mend, 2 a file could not be read or is something else.";

/// The exit code when something is to be mended.
const FOUND: u8 = 1;

/// The exit code when nothing could be checked; clap's for wrong usage is the same.
const UNREADABLE: u8 = 2;

/// How much of a line is shown: what fits in a terminal.
const EXCERPT_CHARS_MAX: usize = 90;

#[cfg(test)]
mod tests;
