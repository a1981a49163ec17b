//! `cargo xtask config`: what is wrong in a configuration, before Envoy runs with it.

mod document;
mod excerpt;
mod finding;
mod migrate;
mod model;
mod parts;
mod place;
mod plugin;
mod route;
mod rules;
mod schema;
mod show;
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
    /// Show the configuration in effect, with every default filled in
    #[command(after_help = SHOW_HELP)]
    Show(ShowArguments),
    /// Replace what is out of date in a configuration of the reference picker
    #[command(after_help = MIGRATE_HELP)]
    Migrate(MigrateArguments),
    /// Print the JSON Schema of the picker's configuration, for editors and other tools
    #[command(after_help = SCHEMA_HELP)]
    Schema(SchemaArguments),
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

/// The arguments of `cargo xtask config show`.
#[derive(Clone, Debug, Args)]
pub struct ShowArguments {
    /// JSON in place of YAML
    #[arg(long)]
    json: bool,
    /// YAML or JSON; - reads what is piped in
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// The arguments of `cargo xtask config schema`.
#[derive(Clone, Debug, Args)]
pub struct SchemaArguments {
    /// The schema of an EndpointPickerConfig by itself
    #[arg(long)]
    picker: bool,
}

/// The arguments of `cargo xtask config migrate`.
#[derive(Clone, Debug, Args)]
pub struct MigrateArguments {
    /// Rewrite the files, or print what is piped in anew, in place of a diff
    #[arg(long)]
    write: bool,
    /// YAML or JSON; - reads what is piped in
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Does what is asked; the code says whether there is something left to do.
pub fn config(arguments: &ConfigArguments) -> ExitCode {
    ExitCode::from(code(arguments))
}

fn code(arguments: &ConfigArguments) -> u8 {
    let is_good = match arguments {
        ConfigArguments::Check(arguments) if arguments.envoy => check_envoy(&arguments.files),
        ConfigArguments::Check(arguments) => check_documents(&arguments.files),
        ConfigArguments::Show(arguments) => show_documents(arguments),
        ConfigArguments::Migrate(arguments) => migrate_documents(arguments),
        ConfigArguments::Schema(arguments) => {
            print!("{}", schema::text(arguments.picker));
            Ok(true)
        }
    };
    match is_good {
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
            println!("{told}");
        }
        are_good &= checked.mistakes() == 0;
        for summary in &checked.summaries {
            println!("{summary}");
        }
        let migrated = migrate::migrate(&name, &text);
        let changes = migrated.map_or(0, |it| it.changes.len());
        if changes > 0 {
            println!("{name}: out of date: {changes}; `config migrate` writes what is used now");
        }
    }
    Ok(are_good)
}

/// Shows what documents of the picker say; whether none has a mistake.
fn show_documents(arguments: &ShowArguments) -> Result<bool> {
    let (name, text) = read(&arguments.file)?;
    refuse_envoy(&name, &text)?;
    let checked = document::check(&name, &text);
    let checked = checked.with_context(|| format!("{name} {NOT_OURS}"))?;
    for told in &checked.findings {
        eprintln!("{told}");
    }
    let parts = parts::parts(&name, &text);
    let is_alone = parts.len() == 1;
    for part in &parts {
        let Some(effective) = show::effective(part) else {
            continue;
        };
        if arguments.json {
            println!("{}", show::to_json(&effective));
            continue;
        }
        if !is_alone {
            println!("---\n# {}", part.text.name);
        }
        print!("{}", show::to_yaml(&effective));
    }
    Ok(checked.mistakes() == 0)
}

/// Migrates documents of the picker; whether nothing is left for a person to do.
fn migrate_documents(arguments: &MigrateArguments) -> Result<bool> {
    let mut is_done = true;
    for file in &arguments.files {
        let (name, text) = read(file)?;
        refuse_envoy(&name, &text)?;
        let migrated = migrate::migrate(&name, &text);
        let migrated = migrated.with_context(|| format!("{name} {NOT_OURS}"))?;
        match (arguments.write, file == Path::new(STDIN)) {
            (false, _) => print!("{}", migrate::diff(&name, &text, &migrated.text)),
            (true, true) => print!("{}", migrated.text),
            (true, false) if migrated.text == text => {}
            (true, false) => {
                let written = fs::write(file, &migrated.text);
                written.with_context(|| format!("cannot write {name}"))?;
            }
        }
        for change in &migrated.changes {
            eprintln!("{change}");
        }
        for left in &migrated.left {
            eprintln!("left to do: {left}");
        }
        let checked = document::check(&name, &migrated.text);
        let mistakes = checked.map_or(0, |it| it.mistakes());
        if mistakes > 0 {
            eprintln!("left to do: {name}: mistakes: {mistakes}; `config check` names them");
        }
        is_done &= migrated.left.is_empty() && mistakes == 0;
    }
    Ok(is_done)
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
    if file == Path::new(STDIN) {
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

const SHOW_HELP: &str = "\
What is shown reads back as the same configuration. What is added: defaults of parameters, a
profile of all plugins where none is given, and the plugins that the reference picker would add.

Examples:
  cargo xtask config show picker.yaml
  cargo xtask config show --json picker.yaml | jq '.pools[0].picker.plugins'
  diff <(cargo xtask config show old.yaml) <(cargo xtask config show new.yaml)

Exit codes: 0 shown, 1 a document has mistakes, 2 a file could not be read or is something else.";

const SCHEMA_HELP: &str = "\
JSON Schema, draft 2020-12; docs/schema has both. An editor checks a YAML file that begins with
  # yaml-language-server: $schema=docs/schema/picker.json
or, for an EndpointPickerConfig by itself,
  # yaml-language-server: $schema=docs/schema/endpoint-picker-config.json
A schema knows no references between plugins; `config check` does.";

const MIGRATE_HELP: &str = "\
Changes documents of all versions that the reference picker had: names of the apiVersion and of
plugins, parameters that belong to other plugins now, top-level keys that have another place,
feature gates that are gone. The files may be those that `config check` takes, also with the
document as a text inside. Only what is out of date is touched; comments, order and quotes stay.

Prints a diff, and on stderr each change with its reason and what only a person can do.

Examples:
  cargo xtask config migrate values.yaml
  cargo xtask config migrate --write values.yaml
  cargo xtask config migrate --write - < old.yaml > new.yaml

Exit codes: 0 nothing left to do, 1 something left for you, 2 a file could not be read or written.";

/// The name of a file that stands for what is piped in.
const STDIN: &str = "-";

/// The exit code when something is to be mended.
const FOUND: u8 = 1;

/// The exit code when nothing could be checked; clap's for wrong usage is the same.
const UNREADABLE: u8 = 2;

/// What is said of a file that the picker has nothing to do with.
const NOT_OURS: &str = "has no configuration of the picker: no object with `pools`, no `kind: \
                        EndpointPickerConfig`, and no text with one";

#[cfg(test)]
mod tests;
