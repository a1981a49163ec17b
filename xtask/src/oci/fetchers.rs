//! The rules by which Istio's agent and Envoy Gateway's controller take an image.
//!
//! Both have the same ones. They try the image first, then the artifact, and give both reasons.

use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::GzDecoder;
use serde_json::Value;
use tar::Archive;

use super::image::{LAYER, MANIFEST, PLUGIN, digest};
use super::layout::Layout;

/// An image as a fetcher sees it.
#[derive(Debug)]
pub(super) struct Fetched {
    /// The digest that users pin.
    pub(super) digest: String,
    /// Which of the three shapes it has.
    pub(super) shape: &'static str,
    /// Bytes of the layer.
    pub(super) fetched_bytes: usize,
    /// The module.
    pub(super) wasm: Vec<u8>,
}

/// Fetches the one image of a layout.
pub(super) fn fetch(layout: &Layout) -> Result<Fetched> {
    let entries = layout.entries()?;
    let [entry] = entries.as_slice() else {
        bail!(
            "index.json names {} manifests; lay out one image alone",
            entries.len()
        );
    };
    let bytes = layout.blob(entry)?;
    let manifest: Value = serde_json::from_slice(&bytes).context("the manifest is not JSON")?;
    let kind = manifest["mediaType"].as_str().unwrap_or(MANIFEST);
    if INDEXES.contains(&kind) || manifest.get("manifests").is_some() {
        bail!(
            "it is an index; a pinned digest is compared with that of the manifest, so publish the \
             manifest alone (buildx: --provenance=false and one platform)"
        );
    }
    let as_image = match kind {
        DOCKER_MANIFEST => image(layout, &manifest, DOCKER_LAYER),
        _ => image(layout, &manifest, LAYER),
    };
    let (shape, (fetched_bytes, wasm)) = match as_image {
        Ok(image) if kind == DOCKER_MANIFEST => ("a Docker image", image),
        Ok(image) => ("an OCI image", image),
        Err(as_image) => match artifact(layout, &manifest) {
            Ok(artifact) => ("an OCI artifact", artifact),
            Err(as_artifact) => bail!(
                "neither as an image ({as_image:#}) nor as an artifact ({as_artifact:#}) does it \
                 have a module"
            ),
        },
    };
    check_module(&wasm)?;
    Ok(Fetched {
        digest: digest(&bytes),
        shape,
        fetched_bytes,
        wasm,
    })
}

/// The module of an image: in the last layer, whatever is below.
fn image(layout: &Layout, manifest: &Value, layer_kind: &str) -> Result<(usize, Vec<u8>)> {
    let last = layers(manifest)?.last().context("there is no layer")?;
    let kind = last["mediaType"].as_str().unwrap_or_default();
    ensure!(
        kind == layer_kind,
        "the last layer is {kind:?}; it has to be {layer_kind}"
    );
    check_platform(layout, manifest)?;
    let layer = layout.blob(last)?;
    let mut tar = Archive::new(GzDecoder::new(layer.as_slice()));
    for entry in tar.entries()? {
        let entry = entry.context("the layer is no gzipped tar")?;
        let name = entry.path()?.into_owned();
        if name.file_name() == Path::new(PLUGIN).file_name() {
            return Ok((layer.len(), read(entry)?));
        }
    }
    bail!("the last layer has no file {PLUGIN}")
}

/// The module of an artifact: the one of two layers that has the type for it.
fn artifact(layout: &Layout, manifest: &Value) -> Result<(usize, Vec<u8>)> {
    let layers = layers(manifest)?;
    ensure!(
        layers.len() == 2,
        "it has {} layers; it has to have two",
        layers.len()
    );
    let is_module = |layer: &&Value| layer["mediaType"] == ARTIFACT_LAYER;
    let module = layers.iter().find(is_module);
    let module = module.with_context(|| format!("no layer is {ARTIFACT_LAYER}"))?;
    let wasm = layout.blob(module)?;
    Ok((wasm.len(), wasm))
}

/// Fetchers ask for linux/amd64, also on other nodes.
fn check_platform(layout: &Layout, manifest: &Value) -> Result<()> {
    let config = layout.blob(&manifest["config"]).context("configuration")?;
    let config: Value = serde_json::from_slice(&config).context("the configuration is not JSON")?;
    let platform = |key| config[key].as_str().unwrap_or_default();
    let (os, architecture) = (platform("os"), platform("architecture"));
    ensure!(
        (os, architecture) == ("linux", "amd64"),
        "the platform is {os:?}/{architecture:?}; it has to be linux/amd64, which fetchers ask for"
    );
    Ok(())
}

fn check_module(wasm: &[u8]) -> Result<()> {
    ensure!(wasm.starts_with(MAGIC), "{PLUGIN} is no wasm module");
    ensure!(
        wasm.len() as u64 <= MODULE_MAX,
        "{PLUGIN} has {} bytes, more than the {MODULE_MAX} that are taken",
        wasm.len()
    );
    Ok(())
}

/// Reads no more than fetchers take, and one byte to tell.
fn read(entry: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    entry.take(MODULE_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn layers(manifest: &Value) -> Result<&Vec<Value>> {
    let layers = manifest["layers"].as_array();
    layers.context("the manifest has no `layers`")
}

/// A manifest of Docker.
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// The only kind of layer that is read below a manifest of Docker.
const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";

/// The layer of an artifact that is the module.
const ARTIFACT_LAYER: &str = "application/vnd.module.wasm.content.layer.v1+wasm";

/// Lists of manifests.
const INDEXES: [&str; 2] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];

/// What every wasm module begins with.
const MAGIC: &[u8] = b"\0asm";

/// The largest module that is taken; the limit of both.
const MODULE_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::{env, fs, process};

    use serde_json::json;

    use super::*;
    use crate::oci::image::{Blob, Image, Label};

    /// A layout in a directory of its own, put together blob by blob.
    struct Bench(PathBuf);

    impl Bench {
        fn new(name: &str) -> Self {
            let directory = env::temp_dir().join(format!("picker-oci-{}-{name}", process::id()));
            fs::create_dir_all(directory.join("blobs/sha256")).unwrap();
            let marker = r#"{"imageLayoutVersion":"1.0.0"}"#;
            fs::write(directory.join("oci-layout"), marker).unwrap();
            Self(directory)
        }

        fn put(&self, kind: &str, bytes: &[u8]) -> Value {
            let digest = digest(bytes);
            let file = format!("blobs/{}", digest.replace(':', "/"));
            fs::write(self.0.join(file), bytes).unwrap();
            json!({"mediaType": kind, "digest": digest, "size": bytes.len()})
        }

        fn put_config(&self, architecture: &str) -> Value {
            let config = json!({"os": "linux", "architecture": architecture});
            self.put("a configuration", config.to_string().as_bytes())
        }

        /// A manifest of these layers.
        fn manifest(&self, kind: &str, layers: &[Value]) -> Value {
            let config = self.put_config("amd64");
            json!({"mediaType": kind, "config": config, "layers": layers})
        }

        fn fetch(&self, entries: &[Value]) -> Result<Fetched> {
            let index = json!({"manifests": entries}).to_string();
            fs::write(self.0.join("index.json"), index).unwrap();
            fetch(&Layout::open(&self.0).unwrap())
        }

        fn fetch_manifest(&self, manifest: &Value) -> Result<Fetched> {
            let entry = self.put("a manifest", manifest.to_string().as_bytes());
            self.fetch(&[entry])
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    const WASM: &[u8] = b"\0asm\x01\0\0\0";

    fn layer(module: &[u8]) -> Blob {
        let label = Label {
            version: "1.0.0".to_owned(),
            revision: None,
            created: "1970-01-01T00:00:00Z".to_owned(),
        };
        Image::new(module, &label).unwrap().layer
    }

    fn refused(name: &str, fetched: Result<Fetched>, reason: &str) {
        let error = format!(
            "{:#}",
            fetched.err().unwrap_or_else(|| panic!("{name}: taken"))
        );
        assert!(error.contains(reason), "{name}: {error}");
    }

    #[test]
    fn each_of_the_three_shapes_is_taken() {
        let layer = layer(WASM).bytes;
        for (manifest, kinds, shape) in [
            (MANIFEST, [LAYER].as_slice(), "an OCI image"),
            (MANIFEST, &["anything below", LAYER], "an OCI image"),
            (DOCKER_MANIFEST, &[DOCKER_LAYER], "a Docker image"),
            (
                MANIFEST,
                &["its configuration", ARTIFACT_LAYER],
                "an OCI artifact",
            ),
        ] {
            let bench = Bench::new(&shape.replace(' ', "-"));
            let layers: Vec<Value> = kinds
                .iter()
                .map(|kind| {
                    bench.put(
                        kind,
                        if *kind == ARTIFACT_LAYER {
                            WASM
                        } else {
                            &layer
                        },
                    )
                })
                .collect();
            let fetched = bench
                .fetch_manifest(&bench.manifest(manifest, &layers))
                .unwrap();
            assert_eq!((fetched.shape, fetched.wasm.as_slice()), (shape, WASM));
        }
    }

    #[test]
    fn what_a_fetcher_cannot_read_is_refused_with_the_reason() {
        let zstd = "application/vnd.oci.image.layer.v1.tar+zstd";
        let raw = "application/vnd.wasm.content.layer.v1+wasm";
        for (name, kinds, reason) in [
            ("zstd", [zstd].as_slice(), "tar+zstd"),
            ("cncf", &["application/wasm"], "\"application/wasm\""),
            ("wasm-to-oci", &[raw], "it has 1 layers"),
            ("three", &["a", "b", ARTIFACT_LAYER], "it has 3 layers"),
            (
                "other-two",
                &["a", "b"],
                "no layer is application/vnd.module.wasm",
            ),
            (
                "docker-layer",
                &[DOCKER_LAYER],
                "has to be application/vnd.oci",
            ),
            (
                "last",
                &[LAYER, "another above it"],
                "the last layer is \"another",
            ),
            ("none", &[], "there is no layer"),
        ] {
            let bench = Bench::new(name);
            let bytes = layer(WASM).bytes;
            let layers: Vec<Value> = kinds.iter().map(|kind| bench.put(kind, &bytes)).collect();
            let manifest = bench.manifest(MANIFEST, &layers);
            refused(name, bench.fetch_manifest(&manifest), reason);
        }
    }

    #[test]
    fn a_layer_without_a_module_and_one_that_is_no_tar_are_refused() {
        for (name, bytes, reason) in [
            (
                "text",
                layer(b"#!/bin/sh").bytes,
                "plugin.wasm is no wasm module",
            ),
            ("bare", WASM.to_vec(), "is no gzipped tar"),
        ] {
            let bench = Bench::new(name);
            let layer = bench.put(LAYER, &bytes);
            let manifest = bench.manifest(MANIFEST, &[layer]);
            refused(name, bench.fetch_manifest(&manifest), reason);
        }
    }

    #[test]
    fn one_manifest_for_the_usual_platform_is_taken_and_no_index() {
        let bench = Bench::new("index");
        let layer = bench.put(LAYER, &layer(WASM).bytes);
        let manifest = bench.manifest(MANIFEST, std::slice::from_ref(&layer));
        let entry = bench.put(MANIFEST, manifest.to_string().as_bytes());
        assert!(bench.fetch(std::slice::from_ref(&entry)).is_ok());
        refused(
            "two",
            bench.fetch(&[entry.clone(), entry.clone()]),
            "names 2 manifests",
        );
        refused("none", bench.fetch(&[]), "names 0 manifests");
        for kind in INDEXES {
            let index = json!({"mediaType": kind, "manifests": [entry]});
            refused(kind, bench.fetch_manifest(&index), "it is an index");
        }
        let mut other = bench.manifest(MANIFEST, &[layer]);
        other["config"] = bench.put_config("arm64");
        refused(
            "arm64",
            bench.fetch_manifest(&other),
            "has to be linux/amd64",
        );
    }

    #[test]
    fn every_digest_and_length_is_compared() {
        let bench = Bench::new("digest");
        let layer = bench.put(LAYER, &layer(WASM).bytes);
        let (mut short, mut other) = (layer.clone(), layer.clone());
        short["size"] = json!(1);
        other["digest"] = json!(digest(b"other"));
        let path = json!("sha256:../../../etc/passwd");
        let mut escaping = layer;
        escaping["digest"] = path;
        for (name, layer, reason) in [
            ("short", short, "bytes and not 1"),
            ("other", other, "cannot read the blob"),
            ("escaping", escaping, "is no SHA-256"),
        ] {
            let manifest = bench.manifest(MANIFEST, &[layer]);
            refused(name, bench.fetch_manifest(&manifest), reason);
        }
        let manifest = bench.manifest(MANIFEST, &[]);
        let entry = bench.put("a manifest", manifest.to_string().as_bytes());
        let digest = entry["digest"].as_str().unwrap().replace(':', "/");
        fs::write(bench.0.join("blobs").join(digest), "{}").unwrap();
        refused("changed", bench.fetch(&[entry]), "has the digest");
    }
}
