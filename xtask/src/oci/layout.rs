//! An OCI layout on disk: `oci-layout`, `index.json`, and blobs by their digests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::image::{Image, Label, digest};

/// A directory in the OCI layout.
#[derive(Clone, Debug)]
pub(super) struct Layout(PathBuf);

impl Layout {
    /// The layout in a directory that has one.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let layout = Self(directory.to_owned());
        let version = layout.json(MARKER)?;
        let is_known = version["imageLayoutVersion"] == VERSION;
        ensure!(is_known, "{MARKER} says {version}, not version {VERSION}");
        Ok(layout)
    }

    /// Writes a layout with one image in place of the one that was there.
    ///
    /// A directory with anything else in it is left alone.
    pub(super) fn write(directory: &Path, image: &Image, label: &Label) -> Result<Self> {
        if directory.join(MARKER).exists() {
            fs::remove_dir_all(directory)?;
        }
        let is_empty = fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none());
        if !is_empty {
            bail!("{} is not empty and no OCI layout", directory.display());
        }
        let blobs = directory.join(BLOBS);
        fs::create_dir_all(&blobs)?;
        for blob in [&image.manifest, &image.config, &image.layer] {
            let digest = blob.digest();
            fs::write(blobs.join(digest.trim_start_matches(PREFIX)), &blob.bytes)?;
        }
        let index = json!({"schemaVersion": 2, "manifests": [image.entry(label)]});
        let marker = json!({"imageLayoutVersion": VERSION});
        for (name, document) in [(INDEX, index), (MARKER, marker)] {
            fs::write(directory.join(name), format!("{document}\n"))?;
        }
        Ok(Self(directory.to_owned()))
    }

    /// The descriptors of what the layout holds.
    pub(super) fn entries(&self) -> Result<Vec<Value>> {
        let index = self.json(INDEX)?;
        let entries = index["manifests"].as_array();
        Ok(entries.context("index.json has no `manifests`")?.clone())
    }

    /// What a descriptor names, when it has the digest and length that the descriptor says.
    pub(super) fn blob(&self, descriptor: &Value) -> Result<Vec<u8>> {
        let named = descriptor["digest"].as_str().context("no `digest`")?;
        let hex = named.strip_prefix(PREFIX);
        let is_hex = |hex: &&str| hex.len() == 64 && hex.bytes().all(|it| it.is_ascii_hexdigit());
        let hex = hex.filter(is_hex);
        let hex = hex.with_context(|| format!("{named} is no SHA-256"))?;
        let file = self.0.join(BLOBS).join(hex);
        let bytes = fs::read(&file).with_context(|| format!("cannot read the blob {named}"))?;
        let found = digest(&bytes);
        ensure!(found == named, "the blob {named} has the digest {found}");
        let size = descriptor["size"].as_u64().context("no `size`")?;
        let length = bytes.len() as u64;
        ensure!(
            size == length,
            "the blob {named} has {length} bytes and not {size}"
        );
        Ok(bytes)
    }

    fn json(&self, name: &str) -> Result<Value> {
        let file = self.0.join(name);
        let text = fs::read_to_string(&file);
        let text = text.with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))
    }
}

/// The file that makes a directory an OCI layout.
pub(super) const MARKER: &str = "oci-layout";

/// The file that names what the layout holds.
const INDEX: &str = "index.json";

/// Where blobs are.
const BLOBS: &str = "blobs/sha256";

/// What a digest of SHA-256 begins with.
const PREFIX: &str = "sha256:";

/// The only version of the layout.
const VERSION: &str = "1.0.0";
