//! The image: one manifest, one configuration, one layer with the module.
//!
//! Nothing in it depends on when, where or by whom it is built.

use std::io::Write;

use anyhow::Result;
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// Bytes that are named by their digest.
#[derive(Clone, Debug)]
pub(super) struct Blob {
    /// What they are.
    pub(super) media_type: &'static str,
    /// The bytes.
    pub(super) bytes: Vec<u8>,
}

/// An image of one module.
#[derive(Clone, Debug)]
pub(super) struct Image {
    /// Names the other two.
    pub(super) manifest: Blob,
    /// What a container runtime would want to know.
    pub(super) config: Blob,
    /// The module, in a gzipped tar.
    pub(super) layer: Blob,
}

/// What the image says of itself.
#[derive(Clone, Debug)]
pub(super) struct Label {
    /// The version of the workspace.
    pub(super) version: String,
    /// The commit it is built from; none outside of a repository.
    pub(super) revision: Option<String>,
    /// When that was committed, in RFC 3339.
    pub(super) created: String,
}

impl Blob {
    /// The digest as registries write it.
    pub(super) fn digest(&self) -> String {
        digest(&self.bytes)
    }

    fn descriptor(&self) -> Value {
        json!({
            "mediaType": self.media_type,
            "digest": self.digest(),
            "size": self.bytes.len(),
        })
    }

    fn of(media_type: &'static str, document: &Value) -> Self {
        Self {
            media_type,
            bytes: document.to_string().into_bytes(),
        }
    }
}

impl Image {
    /// The image of a module.
    pub(super) fn new(wasm: &[u8], label: &Label) -> Result<Self> {
        let tar = tar(wasm)?;
        let layer = Blob {
            media_type: LAYER,
            bytes: gzip(&tar)?,
        };
        let config = Blob::of(CONFIG, &config(&digest(&tar), label));
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
            "annotations": annotations(label),
        });
        Ok(Self {
            manifest: Blob::of(MANIFEST, &manifest),
            config,
            layer,
        })
    }

    /// The one entry of an OCI layout's `index.json`.
    pub(super) fn entry(&self, label: &Label) -> Value {
        let mut entry = self.manifest.descriptor();
        entry["annotations"] = json!({"org.opencontainers.image.ref.name": label.version});
        entry
    }
}

/// The digest of bytes as registries write it.
pub(super) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(bytes))
}

/// SHA-256 in lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes);
    digits.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn tar(wasm: &[u8]) -> Result<Vec<u8>> {
    let mut header = Header::new_ustar();
    header.set_path(PLUGIN)?;
    header.set_entry_type(EntryType::Regular);
    header.set_size(wasm.len() as u64);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    let mut tar = Builder::new(Vec::new());
    tar.append(&header, wasm)?;
    Ok(tar.into_inner()?)
}

fn gzip(tar: &[u8]) -> Result<Vec<u8>> {
    // Without a file's name, a time and an operating system.
    let writer = GzBuilder::new().mtime(0).operating_system(UNKNOWN_SYSTEM);
    let mut gzip = writer.write(Vec::new(), Compression::best());
    gzip.write_all(tar)?;
    Ok(gzip.finish()?)
}

/// The platform is what fetchers look for by default, on every node; wasm runs on all.
fn config(diff: &str, label: &Label) -> Value {
    json!({
        "architecture": "amd64",
        "os": "linux",
        "created": label.created,
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [diff]},
        "history": [{"created": label.created, "created_by": "cargo xtask oci build"}],
    })
}

fn annotations(label: &Label) -> Value {
    let mut annotations = json!({
        "org.opencontainers.image.title": "picker",
        "org.opencontainers.image.description":
            "An endpoint picker for LLM servers that runs inside Envoy",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.version": label.version,
        "org.opencontainers.image.created": label.created,
        "module.wasm.image/variant": "compat",
    });
    if let Some(revision) = &label.revision {
        annotations["org.opencontainers.image.revision"] = json!(revision);
    }
    annotations
}

/// The name under which both fetchers look for the module.
pub(super) const PLUGIN: &str = "plugin.wasm";

/// The manifest of an OCI image.
pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The configuration of an OCI image.
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// The one kind of layer of an OCI image that both fetchers read.
pub(super) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// What RFC 1952 has for who does not tell.
const UNKNOWN_SYSTEM: u8 = 255;

#[cfg(test)]
mod tests {
    use super::*;

    fn label(revision: Option<&str>) -> Label {
        Label {
            version: "1.2.3".to_owned(),
            revision: revision.map(str::to_owned),
            created: "2026-01-02T03:04:05Z".to_owned(),
        }
    }

    #[test]
    fn the_same_module_and_label_give_the_same_digest_and_others_another() {
        let made = |wasm: &[u8], revision| {
            let image = Image::new(wasm, &label(revision)).unwrap();
            image.manifest.digest()
        };
        let first = made(b"\0asm", Some("a"));
        assert_eq!(first, made(b"\0asm", Some("a")));
        assert_ne!(first, made(b"\0asm", Some("b")));
        assert_ne!(first, made(b"\0asm", None));
        assert_ne!(first, made(b"\0asn", Some("a")));
    }

    #[test]
    fn nothing_in_the_layer_tells_when_or_by_whom_it_was_made() {
        let layer = Image::new(b"\0asm", &label(None)).unwrap().layer.bytes;
        // Magic, deflate, no flags, no time, best compression, no system.
        assert_eq!(layer[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255]);
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(layer.as_slice()));
        let entry = tar.entries().unwrap().next().unwrap().unwrap();
        let header = entry.header();
        assert_eq!(entry.path().unwrap().to_str(), Some("plugin.wasm"));
        assert_eq!(
            (header.mtime().unwrap(), header.mode().unwrap()),
            (0, 0o644)
        );
        assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
    }

    #[test]
    fn the_digest_is_that_of_sha256sum() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hex(b""), empty);
    }
}
