//! `cargo xtask config`: what is wrong in a configuration, before Envoy runs with it.

mod document;
mod excerpt;
mod finding;
mod model;
mod parts;
mod place;
mod plugin;
mod route;
mod rules;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

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
    /// YAML or JSON; - reads what is piped in
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
        let (name, text) = read(file)?;
        refuse_envoy(&name, &text)?;
        let checked = document::check(&name, &text);
        let checked = checked.with_context(|| format!("{name} {NOT_OURS}"))?;
        for told in &checked.findings {
            println!("{}", told.finding);
            if !told.excerpt.is_empty() {
                println!("{}", told.excerpt);
            }
            are_good &= told.finding.level < Level::Error;
        }
        for summary in &checked.summaries {
            println!("{summary}");
        }
    }
    Ok(are_good)
}

/// Checks the parts of one Envoy; whether there is nothing to mend.
fn check_envoy(files: &[PathBuf]) -> Result<bool> {
    let mut sources = Vec::with_capacity(files.len());
    for file in files {
        sources.push(read(file)?);
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

/// The name and the text of a file.
fn read(file: &Path) -> Result<(String, String)> {
    if file == Path::new("-") {
        let text = io::read_to_string(io::stdin()).context("cannot read what is piped in")?;
        return Ok(("<stdin>".to_owned(), text));
    }
    let text = fs::read_to_string(file);
    let text = text.with_context(|| format!("cannot read {}", file.display()))?;
    Ok((file.display().to_string(), text))
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

const HELP: &str = "\
Without --envoy, a file may hold the filter's configuration (`pools: …`), an EndpointPickerConfig as
the reference picker takes it, several of them with `---` between, or a ConfigMap, Helm values or
another resource that has one inside. Places in a text inside a file count from the text's first
line; the line of the file stands below.

Examples:
  cargo xtask config check picker.yaml
  cargo xtask config check values.yaml
  kubectl get configmap epp -o yaml | cargo xtask config check -
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

/// What is said of a file that the picker has nothing to do with.
const NOT_OURS: &str = "has no configuration of the picker: no object with `pools`, no `kind: \
                        EndpointPickerConfig`, and no text with one";

#[cfg(test)]
mod tests;
