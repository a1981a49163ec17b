//! Every document in `examples/` is one that its reader takes.

use std::fs;

use anyhow::{Context, Result, ensure};
use picker_tests::manifests::{Manifest, Reader, below, envoy_gateway, istio, kinds::Kinds};
use picker_tests::manifests::{kubernetes, missing_files, read, skeleton};
use picker_tests::{directory, envoy, module};
use serde_json::Value;
use xtask::config::Level;
use xtask::wasm::Variant;
use xtask::workspace::{command_output, root};

#[test]
fn kubernetes_takes_every_manifest_of_its_own() -> Result<()> {
    let manifests = examples(Reader::Kubernetes)?;
    let manifests: Vec<&Manifest> = manifests.iter().collect();
    kubernetes::check(&manifests, &directory())
}

#[test]
fn every_other_kind_has_what_its_controller_needs_and_nothing_else() -> Result<()> {
    let kinds = Kinds::read()?;
    let mut faults = Vec::new();
    for manifest in examples(Reader::Controller)? {
        faults.extend(kinds.faults(&manifest)?);
    }
    for manifest in examples(Reader::Kustomize)? {
        faults.extend(missing_files(&manifest)?);
    }
    ensure!(faults.is_empty(), "\n{}", faults.join("\n"));
    Ok(())
}

#[test]
fn the_picker_takes_every_configuration_in_them() -> Result<()> {
    let (mut count, mut faults) = (0, Vec::new());
    for manifest in below("examples")? {
        let (found, wrong) = manifest.pickers();
        count += found;
        faults.extend(wrong);
    }
    ensure!(faults.is_empty(), "\n{}", faults.join("\n"));
    ensure!(count >= 10, "only {count} configurations were found");
    Ok(())
}

#[test]
fn envoy_takes_every_bootstrap() -> Result<()> {
    for manifest in examples(Reader::Envoy)? {
        let mut bootstrap = manifest.value.clone();
        skeleton::set_module(&mut bootstrap, &module(Variant::Shipped)?);
        accepted(&manifest.name, &bootstrap)?;
    }
    Ok(())
}

#[test]
fn envoy_takes_what_istio_makes_of_the_filters() -> Result<()> {
    let manifests = below("examples/istio")?;
    let gateway = istio::Gateway::service(&[("10.1.0.1".to_owned(), 8000)]);
    let bootstrap = istio::compose(&manifests, &gateway, &module(Variant::Shipped)?)?;
    accepted("examples/istio", &bootstrap)
}

#[test]
fn envoy_takes_what_istio_makes_of_a_pool_without_its_endpoint_picker() -> Result<()> {
    let mut manifests = below("examples/istio-inference-pool")?;
    manifests.extend(read(&root().join("examples/istio/stats.yaml"))?);
    let gateway = istio::Gateway::pool(&[("10.1.0.1".to_owned(), 8000)]);
    let bootstrap = istio::compose(&manifests, &gateway, &module(Variant::Shipped)?)?;
    accepted("examples/istio-inference-pool", &bootstrap)
}

#[test]
fn envoy_takes_what_envoy_gateway_makes_of_the_policies() -> Result<()> {
    let manifests = below("examples/envoy-gateway")?;
    let bootstrap = envoy_gateway::compose(&manifests, &module(Variant::Shipped)?)?;
    accepted("examples/envoy-gateway", &bootstrap)
}

/// The examples for a reader; there have to be some.
fn examples(reader: Reader) -> Result<Vec<Manifest>> {
    let mut found = Vec::new();
    for manifest in below("examples")? {
        if manifest.reader()? == reader {
            found.push(manifest);
        }
    }
    ensure!(!found.is_empty(), "no example is for {reader:?}");
    Ok(found)
}

/// Has Envoy read a bootstrap, which runs the picker's own check too, and then says what only the
/// whole shows: limits, timers, headers.
fn accepted(name: &str, bootstrap: &Value) -> Result<()> {
    let directory = directory();
    fs::create_dir_all(&directory)?;
    let file = directory.join("envoy.json");
    let text = serde_json::to_string_pretty(bootstrap)?;
    fs::write(&file, &text)?;
    let mut validate = std::process::Command::new(&envoy()?.path);
    validate.args([
        "--mode",
        "validate",
        "--log-level",
        "error",
        "--config-path",
    ]);
    command_output(validate.arg(&file)).with_context(|| name.to_owned())?;
    let findings = xtask::config::check(&[(name.to_owned(), text)])?;
    let told = findings.iter().filter(|it| it.level != Level::Note);
    let told: Vec<String> = told.map(ToString::to_string).collect();
    ensure!(told.is_empty(), "{name}:\n{}", told.join("\n"));
    Ok(())
}

#[test]
fn a_mistake_in_a_resource_of_a_controller_is_found() -> Result<()> {
    let kinds = Kinds::read()?;
    for (file, kind, place, value, fault) in MISTAKES {
        let mut manifest = find(file, kind)?;
        ensure!(kinds.faults(&manifest)?.is_empty(), "{file}");
        set(&mut manifest.value, place, value)?;
        let faults = kinds.faults(&manifest)?.join("\n");
        ensure!(faults.contains(fault), "{file} {place}: {faults:?}");
    }
    Ok(())
}

#[test]
fn a_mistake_in_a_resource_of_kubernetes_is_found() -> Result<()> {
    let container = "/spec/template/spec/containers/0";
    for (kind, place, value) in [
        ("Deployment", format!("{container}/readinesProbe"), "{}"),
        (
            "Deployment",
            format!("{container}/ports/0/containerPort"),
            "\"http\"",
        ),
        ("Deployment", "/spec/replicas".to_owned(), "\"two\""),
        (
            "PodDisruptionBudget",
            "/spec/maxUnavailabel".to_owned(),
            "1",
        ),
    ] {
        let mut manifest = find("kubernetes/deployment", kind)?;
        set(&mut manifest.value, &place, value)?;
        let checked = kubernetes::check(&[&manifest], &directory());
        ensure!(checked.is_err(), "{kind} {place} is accepted");
    }
    Ok(())
}

fn find(file: &str, kind: &str) -> Result<Manifest> {
    let manifests = read(&root().join(format!("examples/{file}.yaml")))?;
    let found = manifests.into_iter().find(|it| it.value["kind"] == kind);
    found.with_context(|| format!("no {kind} in {file}"))
}

/// Writes a value, given as JSON, to a place whose parent is there.
fn set(document: &mut Value, place: &str, value: &str) -> Result<()> {
    let (parent, key) = place.rsplit_once('/').context("no place")?;
    let parent = document
        .pointer_mut(parent)
        .with_context(|| place.to_owned())?;
    parent[key] = serde_json::from_str(value)?;
    Ok(())
}

/// A file, a kind in it, a place, what is wrong there, and what the complaint names.
const MISTAKES: [(&str, &str, &str, &str, &str); 12] = [
    (
        "istio/picker",
        "EnvoyFilter",
        "/spec/configPatches/0/aplyTo",
        "1",
        "aplyTo",
    ),
    (
        "istio/picker",
        "EnvoyFilter",
        "/spec/configPatches/0/applyTo",
        r#""CLUSTR""#,
        "CLUSTR",
    ),
    (
        "istio/picker",
        "EnvoyFilter",
        "/spec/configPatches/0/patch",
        "{}",
        "operation",
    ),
    (
        "istio/picker",
        "EnvoyFilter",
        "/spec/workloadSelector",
        r#"{"labels": {}}"#,
        "not",
    ),
    (
        "istio/gateway",
        "HTTPRoute",
        "/spec/rules/0/timeouts/request",
        r#""1d""#,
        "1d",
    ),
    (
        "istio/gateway",
        "Gateway",
        "/metadata/name",
        r#""Big""#,
        "Big",
    ),
    ("istio/gateway", "Gateway", "/status", "{}", "status"),
    (
        "envoy-gateway/picker",
        "EnvoyExtensionPolicy",
        "/spec/wasm/0/code",
        "{}",
        "type",
    ),
    (
        "envoy-gateway/picker",
        "BackendTrafficPolicy",
        "/spec/targetRefs/0/kind",
        r#""X""#,
        "X",
    ),
    (
        "envoy-gateway/gateway",
        "Backend",
        "/spec/endpoints/0/ip/address",
        r#""x""#,
        "anyOf",
    ),
    (
        "kubernetes/monitoring",
        "ServiceMonitor",
        "/spec/endpoints/0/interval",
        "15",
        "15",
    ),
    (
        "scale-from-zero/scaledobject",
        "ScaledObject",
        "/spec/triggers/0/metadata",
        "{}",
        "query",
    ),
];
