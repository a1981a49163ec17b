//! What is published: the image, the module by itself, a bill of materials and checksums.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::fetchers::{Fetched, fetch};
use super::image::{Image, Label, hex};
use super::layout::{Layout, MARKER};
use super::sbom;
use crate::workspace::{command_output, root};

/// What `write` has written.
#[derive(Clone, Debug)]
pub struct Release {
    /// The version, which is also the tag to publish it under.
    pub version: String,
    /// The digest of the manifest.
    pub digest: String,
}

/// Writes everything that is published of a module.
pub fn write(wasm: &Path, out: &Path) -> Result<Release> {
    let module = fs::read(wasm).with_context(|| format!("cannot read {}", wasm.display()))?;
    let label = label();
    let image = Image::new(&module, &label)?;
    Layout::write(&out.join(IMAGE), &image, &label)?;
    fs::write(out.join(MODULE), &module)?;
    let materials = sbom::document(&label.version, &hex(&module))?;
    fs::write(out.join(MATERIALS), format!("{materials:#}\n"))?;
    let mut sums = String::new();
    for name in SUMMED {
        let bytes = fs::read(out.join(name))?;
        sums.push_str(&format!("{}  {name}\n", hex(&bytes)));
    }
    fs::write(out.join(SUMS), sums)?;
    Ok(Release {
        version: label.version,
        digest: image.manifest.digest(),
    })
}

/// What there is in a release or in a layout alone, and what a fetcher or a user would stumble over.
pub(super) fn examine(directory: &Path) -> Result<(String, Vec<String>)> {
    let is_layout = directory.join(MARKER).exists();
    let layout = match is_layout {
        true => Layout::open(directory)?,
        false => Layout::open(&directory.join(IMAGE)).with_context(|| {
            format!(
                "{} is neither an OCI layout nor a release",
                directory.display()
            )
        })?,
    };
    let fetched = match fetch(&layout) {
        Ok(fetched) => fetched,
        Err(error) => return Ok((String::new(), vec![format!("{error:#}")])),
    };
    let complaints = match is_layout {
        true => Vec::new(),
        false => beside(directory, &fetched)?,
    };
    Ok((summary(&fetched), complaints))
}

/// What does not fit in the files beside the image.
fn beside(directory: &Path, fetched: &Fetched) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    let sums = fs::read_to_string(directory.join(SUMS)).context("cannot read SHA256SUMS")?;
    for name in SUMMED {
        let bytes = fs::read(directory.join(name)).with_context(|| format!("no {name}"))?;
        if !sums
            .lines()
            .any(|line| line == format!("{}  {name}", hex(&bytes)))
        {
            complaints.push(format!("{name} is not what SHA256SUMS says"));
        }
        if name == MODULE && bytes != fetched.wasm {
            complaints.push(format!("{name} is not the module of the image"));
        }
    }
    Ok(complaints)
}

fn summary(fetched: &Fetched) -> String {
    let Fetched {
        digest,
        shape,
        fetched_bytes,
        wasm,
    } = fetched;
    let bytes = wasm.len();
    format!(
        "{digest}\n{shape}, as Istio and Envoy Gateway take it: {fetched_bytes} bytes to fetch, a \
         module of {bytes}"
    )
}

/// What git knows; without it the image says less, and the same everywhere.
fn label() -> Label {
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(root()).env("TZ", "UTC");
        let told = command_output(git.args(arguments)).ok()?;
        Some(told.trim().to_owned())
    };
    // A change that is not committed makes the commit a lie, and the mark says so.
    let revision = git(&[
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
        "--exclude=*",
    ]);
    let date = "--date=format-local:%Y-%m-%dT%H:%M:%SZ";
    let created = git(&["log", "-1", date, "--format=%cd"]);
    Label {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision,
        created: created.unwrap_or_else(|| EPOCH.to_owned()),
    }
}

/// The directory of the image.
pub(super) const IMAGE: &str = "image";

/// The module by itself.
const MODULE: &str = "picker.wasm";

/// The bill of materials.
const MATERIALS: &str = "picker.cdx.json";

/// The checksums.
const SUMS: &str = "SHA256SUMS";

/// What has a checksum; the index names everything else of the image by digest.
const SUMMED: [&str; 3] = [MODULE, MATERIALS, "image/index.json"];

/// The time of an image that nobody committed.
const EPOCH: &str = "1970-01-01T00:00:00Z";
