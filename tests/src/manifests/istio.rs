//! The Envoy of a gateway as Istio generates it, with the patches of `EnvoyFilter`s in it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::Manifest;
use super::merge::merge;
use super::skeleton::{MANAGER_NAME, bootstrap, cluster, clusters, manager, set_module, type_url};

/// What a gateway gets from the `EnvoyFilter`s and `DestinationRule`s, in their order.
pub fn compose(manifests: &[Manifest], gateway: &Gateway, wasm: &Path) -> Result<Value> {
    let mut gateway = gateway.clone();
    let of_kind = |kind: &'static str| manifests.iter().filter(move |it| it.value["kind"] == kind);
    for rule in of_kind("DestinationRule") {
        pool_connections(&mut gateway.cluster, &rule.value);
    }
    let plugins = of_kind("WasmPlugin").map(|it| plugin(&it.value));
    gateway.http_filters.extend(plugins);
    let route = json!({
        "name": "default.llm.0",
        "match": {"prefix": "/"},
        "route": {"cluster": gateway.cluster["name"], "timeout": "0s"},
    });
    let http_filters = &gateway.http_filters;
    let mut bootstrap = bootstrap(
        "http.80",
        http_filters,
        &[route],
        std::slice::from_ref(&gateway.cluster),
    );
    // A stream may be silent for ever.
    manager(&mut bootstrap)?["stream_idle_timeout"] = json!("0s");
    let mut extensions = BTreeMap::new();
    for filter in of_kind("EnvoyFilter") {
        let patches = filter.value["spec"]["configPatches"].as_array();
        for patch in patches.context("no configPatches")? {
            apply(&mut bootstrap, &mut extensions, patch)
                .with_context(|| format!("{}: {}", filter.name, patch["applyTo"]))?;
        }
    }
    deliver(&mut bootstrap, extensions)?;
    set_module(&mut bootstrap, wasm);
    Ok(bootstrap)
}

/// What Istio makes of the resources beside the filters.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// Filters that stand before the router.
    pub http_filters: Vec<Value>,
    /// The cluster that the route leads to.
    pub cluster: Value,
}

impl Gateway {
    /// A route to a service.
    pub fn service(addresses: &[(String, u16)]) -> Self {
        Self {
            http_filters: Vec::new(),
            cluster: cluster("outbound|8000||vllm.default.svc.cluster.local", addresses),
        }
    }

    /// A route to an `InferencePool`, whose endpoint picker is asked, and whose cluster goes where
    /// dynamic metadata says.
    pub fn pool(addresses: &[(String, u16)]) -> Self {
        let policy = |name: &str, message: &str, mut config: Value| {
            let url = format!("envoy.extensions.load_balancing_policies.{name}.v3.{message}");
            config["@type"] = json!(format!("type.googleapis.com/{url}"));
            let name = format!("envoy.load_balancing_policies.{name}");
            let config = json!({"name": name, "typed_config": config});
            json!({"policies": [{"typed_extension_config": config}]})
        };
        let key = |name: &str| json!({"key": "envoy.lb", "path": [{"key": name}]});
        let override_host = json!({
            "override_host_sources": [{"metadata": key("x-gateway-destination-endpoint")}],
            "selected_host_key": key("x-gateway-destination-endpoint-served"),
            "fallback_policy": policy("round_robin", "RoundRobin", json!({})),
        });
        let mut cluster = cluster(
            "outbound|54321||vllm-ip-1234.default.svc.cluster.local",
            addresses,
        );
        cluster["load_balancing_policy"] = policy("override_host", "OverrideHost", override_host);
        let picker = json!({"envoy_grpc": {"cluster_name": "endpoint-picker"}});
        Self {
            http_filters: vec![json!({
                "name": "envoy.filters.http.ext_proc",
                "typed_config": {
                    "@type": type_url("http.ext_proc", "ExternalProcessor"),
                    "grpc_service": picker,
                },
            })],
            cluster,
        }
    }
}

/// The filter of a WasmPlugin without a phase, as far as examples use it: no `vm_id`, no flags.
fn plugin(plugin: &Value) -> Value {
    let (metadata, spec) = (&plugin["metadata"], &plugin["spec"]);
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let name = format!(
        "{}.{}",
        text(&metadata["namespace"]),
        text(&metadata["name"])
    );
    let string = "type.googleapis.com/google.protobuf.StringValue";
    json!({
        "name": format!("extensions.istio.io/wasmplugin/{name}"),
        "typed_config": {
            "@type": type_url("http.wasm", "Wasm"),
            "config": {
                "name": name,
                "root_id": spec["pluginName"],
                "failure_policy": spec["failStrategy"],
                "configuration": {"@type": string, "value": spec["pluginConfig"].to_string()},
                "vm_config": {"runtime": "envoy.wasm.runtime.v8", "code": {"remote": {}}},
            },
        },
    })
}

/// What a DestinationRule does to a cluster, as far as examples use it.
fn pool_connections(cluster: &mut Value, rule: &Value) {
    let idle = rule.pointer("/spec/trafficPolicy/connectionPool/http/idleTimeout");
    let options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    cluster["typed_extension_protocol_options"] = json!({options: {
        "@type": format!("type.googleapis.com/{options}"),
        "common_http_protocol_options": {"idle_timeout": idle},
        "explicit_http_config": {"http_protocol_options": {}},
    }});
}

fn apply(
    bootstrap: &mut Value,
    extensions: &mut BTreeMap<String, Value>,
    patch: &Value,
) -> Result<()> {
    let context = patch["match"]["context"].as_str();
    ensure!(context == Some("GATEWAY"), "it is not for gateways alone");
    let what = patch["applyTo"].as_str().unwrap_or_default();
    let operation = patch["patch"]["operation"].as_str().unwrap_or_default();
    let value = &patch["patch"]["value"];
    match (what, operation) {
        ("EXTENSION_CONFIG", "ADD") => {
            let name = value["name"].as_str().context("no name")?;
            extensions.insert(name.to_owned(), value["typed_config"].clone());
        }
        ("HTTP_FILTER", _) => http_filter(bootstrap, patch, operation, value)?,
        ("NETWORK_FILTER", "MERGE") => {
            let filter = patch.pointer("/match/listener/filterChain/filter/name");
            ensure!(
                filter.is_some_and(|it| it == MANAGER_NAME),
                "no such filter"
            );
            merge(manager(bootstrap)?, &value["typed_config"]);
        }
        ("VIRTUAL_HOST", "MERGE") => merge(virtual_host(bootstrap)?, value),
        ("HTTP_ROUTE", "MERGE") => {
            let routes = routes(bootstrap)?.iter_mut();
            routes.for_each(|route| merge(route, value));
        }
        ("HTTP_ROUTE", "INSERT_FIRST") => routes(bootstrap)?.insert(0, value.clone()),
        ("BOOTSTRAP", "MERGE") => merge(bootstrap, value),
        ("CLUSTER", "ADD") => clusters(bootstrap)?.push(value.clone()),
        _ => bail!("{operation} is not known to this test"),
    }
    Ok(())
}

fn http_filter(bootstrap: &mut Value, patch: &Value, operation: &str, value: &Value) -> Result<()> {
    let named = patch.pointer("/match/listener/filterChain/filter/subFilter/name");
    let named = named.context("no filter is named")?;
    let filters = manager(bootstrap)?["http_filters"].as_array_mut();
    let filters = filters.context("no filters")?;
    let at = filters.iter().position(|it| it["name"] == *named);
    let at = at.with_context(|| format!("there is no {named}"))?;
    match operation {
        "INSERT_BEFORE" => filters.insert(at, value.clone()),
        "INSERT_AFTER" => filters.insert(at + 1, value.clone()),
        "REMOVE" => {
            filters.remove(at);
        }
        _ => bail!("{operation} is not known to this test"),
    }
    Ok(())
}

/// Gives each filter the configuration that it would ask for by name.
fn deliver(bootstrap: &mut Value, mut extensions: BTreeMap<String, Value>) -> Result<()> {
    let filters = manager(bootstrap)?["http_filters"].as_array_mut();
    for filter in filters.context("no filters")? {
        let Some(discovery) = filter.get("config_discovery").cloned() else {
            continue;
        };
        let name = filter["name"].as_str().unwrap_or_default();
        let found = extensions.remove(name);
        let found = found.with_context(|| format!("no EXTENSION_CONFIG is named {name}"))?;
        let types = discovery["type_urls"].as_array().context("no type_urls")?;
        ensure!(types.contains(&found["@type"]), "{name}: another type");
        *filter = json!({"name": name, "typed_config": found});
    }
    ensure!(
        extensions.is_empty(),
        "nobody asks for {:?}",
        extensions.keys()
    );
    Ok(())
}

fn virtual_host(bootstrap: &mut Value) -> Result<&mut Value> {
    let host = manager(bootstrap)?.pointer_mut("/route_config/virtual_hosts/0");
    host.context("no virtual host")
}

fn routes(bootstrap: &mut Value) -> Result<&mut Vec<Value>> {
    let routes = virtual_host(bootstrap)?["routes"].as_array_mut();
    routes.context("no routes")
}
