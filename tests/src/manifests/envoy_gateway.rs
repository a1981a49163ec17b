//! The Envoy of a gateway as Envoy Gateway generates it from its policies, with their patches in it.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};

use super::Manifest;
use super::merge::{merge, patch};
use super::skeleton::{bootstrap, cluster, clusters, listener, manager, set_module, type_url};

/// What a gateway gets from its policies and a `Backend`, in any order.
pub fn compose(manifests: &[Manifest], wasm: &Path) -> Result<Value> {
    let of_kind = |kind: &str| {
        let found = manifests.iter().find(|it| it.value["kind"] == kind);
        found.with_context(|| format!("no {kind}"))
    };
    let backend = addresses(&of_kind("Backend")?.value)?;
    let mut upstream = cluster("httproute/default/llm/rule/0", &backend);
    traffic(&mut upstream, &of_kind("BackendTrafficPolicy")?.value)?;
    let extension = &of_kind("EnvoyExtensionPolicy")?.value;
    let filters = modules(extension)?;
    let enabled = filters.iter().map(|filter| {
        let name = filter["name"].as_str().unwrap_or_default().to_owned();
        let on = "type.googleapis.com/envoy.config.route.v3.FilterConfig";
        (name, json!({"@type": on, "config": {}}))
    });
    let enabled: serde_json::Map<String, Value> = enabled.collect();
    let route = json!({
        "name": "httproute/default/llm/rule/0/match/0",
        "match": {"prefix": "/"},
        "route": {"cluster": upstream["name"], "timeout": "0s"},
        "typed_per_filter_config": enabled,
    });
    let mut bootstrap = bootstrap(LISTENER, &filters, &[route], &[upstream]);
    // A connection holds no more than this unless a route says so.
    listener(&mut bootstrap)?["per_connection_buffer_limit_bytes"] = json!(32768);
    let proxy = &of_kind("EnvoyProxy")?.value["spec"]["bootstrap"];
    ensure!(
        proxy["type"] == "Merge",
        "another way to change the bootstrap"
    );
    let text = proxy["value"].as_str().context("no text")?;
    let changes: Value = serde_saphyr::from_str(text).map_err(|error| anyhow!("{error}"))?;
    merge(&mut bootstrap, &changes);
    client(
        manager(&mut bootstrap)?,
        &of_kind("ClientTrafficPolicy")?.value,
    )?;
    let policy = of_kind("EnvoyPatchPolicy")?;
    let patches = policy.value["spec"]["jsonPatches"].as_array();
    for it in patches.context("no jsonPatches")? {
        apply(&mut bootstrap, it)
            .with_context(|| format!("{}: {}", policy.name, it["operation"]))?;
    }
    set_module(&mut bootstrap, wasm);
    Ok(bootstrap)
}

fn addresses(backend: &Value) -> Result<Vec<(String, u16)>> {
    let endpoints = backend["spec"]["endpoints"].as_array();
    let endpoints = endpoints.context("no endpoints")?.iter();
    endpoints
        .map(|it| {
            let address = it["ip"]["address"].as_str().context("no address")?;
            let port = it["ip"]["port"].as_u64().context("no port")?;
            Ok((address.to_owned(), u16::try_from(port)?))
        })
        .collect()
}

/// A filter for each module, off where a route does not switch it on.
fn modules(policy: &Value) -> Result<Vec<Value>> {
    let metadata = &policy["metadata"];
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let prefix = format!(
        "envoy.filters.http.wasm/envoyextensionpolicy/{}/{}/wasm",
        text(&metadata["namespace"]),
        text(&metadata["name"]),
    );
    let modules = policy["spec"]["wasm"].as_array().context("no wasm")?;
    let modules = modules.iter().enumerate();
    Ok(modules
        .map(|(index, module)| {
            let name = format!("{prefix}/{index}");
            let string = "type.googleapis.com/google.protobuf.StringValue";
            json!({
                "name": name,
                "disabled": true,
                "typed_config": {
                    "@type": type_url("http.wasm", "Wasm"),
                    "config": {
                        "name": module["name"],
                        "root_id": module["rootID"],
                        "configuration": {"@type": string, "value": module["config"].to_string()},
                        "fail_open": false,
                        "vm_config": {
                            "vm_id": name,
                            "runtime": "envoy.wasm.runtime.v8",
                            "code": {"remote": {}},
                        },
                    },
                },
            })
        })
        .collect())
}

/// What a BackendTrafficPolicy does to a cluster, as far as examples use it.
fn traffic(cluster: &mut Value, policy: &Value) -> Result<()> {
    let spec = &policy["spec"];
    let sources = spec.pointer("/loadBalancer/endpointOverride/extractFrom");
    let lb = |name: &str, message: &str, mut config: Value| {
        let url = format!("envoy.extensions.load_balancing_policies.{name}.v3.{message}");
        config["@type"] = json!(format!("type.googleapis.com/{url}"));
        let name = format!("envoy.load_balancing_policies.{name}");
        json!({"policies": [{"typed_extension_config": {"name": name, "typed_config": config}}]})
    };
    let fallback = lb("least_request", "LeastRequest", json!({}));
    let config = json!({"override_host_sources": sources, "fallback_policy": fallback});
    cluster["load_balancing_policy"] = lb("override_host", "OverrideHost", config);
    let breaker = &spec["circuitBreaker"];
    cluster["circuit_breakers"] = json!({"thresholds": [{
        "max_connections": breaker["maxConnections"],
        "max_pending_requests": breaker["maxPendingRequests"],
        "max_requests": breaker["maxParallelRequests"],
        "max_retries": breaker["maxParallelRetries"],
    }]});
    let options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let idle = &spec["timeout"]["http"]["connectionIdleTimeout"];
    cluster["typed_extension_protocol_options"] = json!({options: {
        "@type": format!("type.googleapis.com/{options}"),
        "common_http_protocol_options": {"idle_timeout": idle},
        "explicit_http_config": {"http_protocol_options": {}},
    }});
    Ok(())
}

/// What a ClientTrafficPolicy does to a connection manager, as far as examples use it.
fn client(manager: &mut Value, policy: &Value) -> Result<()> {
    let spec = &policy["spec"];
    let removed = spec.pointer("/headers/earlyRequestHeaders/remove");
    let removed = removed.and_then(Value::as_array).context("no headers")?;
    let mutations: Vec<Value> = removed.iter().map(|it| json!({"remove": it})).collect();
    let url = "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation";
    manager["early_header_mutation_extensions"] = json!([{
        "name": "envoy.http.early_header_mutation.header_mutation",
        "typed_config": {"@type": format!("type.googleapis.com/{url}"), "mutations": mutations},
    }]);
    manager["stream_idle_timeout"] = spec["timeout"]["http"]["streamIdleTimeout"].clone();
    Ok(())
}

fn apply(bootstrap: &mut Value, it: &Value) -> Result<()> {
    let name = it["name"].as_str().unwrap_or_default();
    let kind = it["type"].as_str().unwrap_or_default();
    let kind = kind.rsplit('.').next().unwrap_or_default();
    let operation = &it["operation"];
    match (kind, name) {
        ("Listener", LISTENER) => patch(listener(bootstrap)?, operation),
        ("RouteConfiguration", LISTENER) => {
            patch(&mut manager(bootstrap)?["route_config"], operation)
        }
        ("Cluster", _) if operation["path"] == "" && operation["op"] == "add" => {
            clusters(bootstrap)?.push(operation["value"].clone());
            Ok(())
        }
        _ => bail!("there is no {kind} {name}"),
    }
}

/// What Envoy Gateway calls the listener `http` of the gateway `inference-gateway`, and its routes.
const LISTENER: &str = "default/inference-gateway/http";
