//! The manifests of `examples/`: found, read, and told apart.

pub mod envoy_gateway;
pub mod istio;
pub mod kinds;
pub mod kubernetes;
pub mod merge;
pub mod skeleton;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use picker_core::{parse_config, parse_picker};
use serde_json::Value;
use xtask::workspace::root;

/// One document of a file.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The file and, where it has several documents, which: `examples/istio/gateway.yaml 2`.
    pub name: String,
    /// What it says.
    pub value: Value,
}

/// Who reads a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// Kubernetes without anything added to it.
    Kubernetes,
    /// A controller that brings the kind along.
    Controller,
    /// kustomize.
    Kustomize,
    /// Envoy, a whole bootstrap.
    Envoy,
    /// Envoy, resources that a bootstrap names by their file.
    Resources,
    /// The picker.
    Picker,
}

impl Manifest {
    /// Who reads it.
    pub fn reader(&self) -> Result<Reader> {
        let text = |key: &str| self.value[key].as_str();
        if self.value.get("static_resources").is_some() {
            return Ok(Reader::Envoy);
        }
        if self.value.pointer("/resources/0/@type").is_some() {
            return Ok(Reader::Resources);
        }
        if self.value.get("pools").is_some() || text("kind") == Some("EndpointPickerConfig") {
            return Ok(Reader::Picker);
        }
        let version = text("apiVersion");
        let version = version.with_context(|| format!("{}: nobody reads it", self.name))?;
        let group = version.split_once('/').map_or("", |(group, _)| group);
        Ok(match group {
            "kustomize.config.k8s.io" => Reader::Kustomize,
            _ if GROUPS.contains(&group) => Reader::Kubernetes,
            _ => Reader::Controller,
        })
    }

    /// Its kind with the group and version, as `apps/v1/Deployment`.
    pub fn kind(&self) -> String {
        let text = |key: &str| self.value[key].as_str().unwrap_or_default();
        format!("{}/{}", text("apiVersion"), text("kind"))
    }

    /// What is wrong in the picker's configurations in it, with how many there are.
    pub fn pickers(&self) -> (usize, Vec<String>) {
        let mut found = (0, Vec::new());
        self.collect(&self.value, &mut found);
        found
    }

    fn collect(&self, value: &Value, found: &mut (usize, Vec<String>)) {
        match value {
            Value::Object(fields) if fields.contains_key("pools") => {
                self.judge(parse_config(value.to_string().as_bytes()).err(), found);
            }
            Value::Object(_) if value["kind"] == "EndpointPickerConfig" => {
                self.judge(parse_picker(value.to_string().as_bytes()).err(), found);
            }
            Value::Object(fields) => fields.values().for_each(|it| self.collect(it, found)),
            Value::Array(items) => items.iter().for_each(|it| self.collect(it, found)),
            Value::String(text) if text.trim_start().starts_with('{') => {
                self.judge(parse_config(text.as_bytes()).err(), found);
            }
            _ => {}
        }
    }

    fn judge<E: std::fmt::Display>(
        &self,
        errors: Option<Vec<E>>,
        (count, faults): &mut (usize, Vec<String>),
    ) {
        *count += 1;
        let errors = errors.into_iter().flatten();
        faults.extend(errors.map(|error| format!("{}: {error}", self.name)));
    }
}

/// Every document below a directory of the repository, in the order of the files' names.
pub fn below(directory: &str) -> Result<Vec<Manifest>> {
    let mut files = Vec::new();
    collect_files(&root().join(directory), &mut files)?;
    files.sort();
    let mut manifests = Vec::new();
    for file in files {
        manifests.extend(read(&file)?);
    }
    Ok(manifests)
}

/// The documents of a file.
pub fn read(file: &Path) -> Result<Vec<Manifest>> {
    let text = fs::read_to_string(file)?;
    let name = file.strip_prefix(root()).unwrap_or(file);
    let name = name.display().to_string();
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).map_err(|error| anyhow!("{name}: {error}"))?;
    let is_alone = documents.len() == 1;
    let documents = documents.into_iter().enumerate();
    Ok(documents
        .map(|(index, value)| Manifest {
            name: match is_alone {
                true => name.clone(),
                false => format!("{name} {}", index + 1),
            },
            value,
        })
        .collect())
}

/// The file names that a kustomization names and that are not beside it.
pub fn missing_files(manifest: &Manifest) -> Result<Vec<String>> {
    let directory = root().join(&manifest.name);
    let directory = directory.parent().context("no directory")?;
    let value = &manifest.value;
    let resources = value["resources"].as_array().into_iter().flatten();
    let generators = value["configMapGenerator"].as_array().into_iter().flatten();
    let generated = generators.flat_map(|it| it["files"].as_array().into_iter().flatten());
    let mut missing = Vec::new();
    for name in resources.chain(generated) {
        let Some(name) = name.as_str() else {
            bail!("{}: {name} is no file name", manifest.name);
        };
        if !directory.join(name).exists() {
            missing.push(format!("{}: no {name}", manifest.name));
        }
    }
    Ok(missing)
}

fn collect_files(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_files(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|it| it == "yaml" || it == "yml")
        {
            files.push(path);
        }
    }
    Ok(())
}

/// The API groups of Kubernetes itself that examples use; the first one has no name.
const GROUPS: [&str; 6] = [
    "",
    "apps",
    "autoscaling",
    "batch",
    "policy",
    "rbac.authorization.k8s.io",
];
