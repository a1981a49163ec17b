//! What the generated Envoys have in common: an admin interface, one listener, one route.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use xtask::bootstrap::Bootstrap;
use xtask::proxy::{Proxy, ProxyOptions};
use xtask::workspace::root;

use crate::{directory, envoy};

/// Starts an Envoy of two workers with this configuration.
pub async fn start(bootstrap: &Value) -> Result<Proxy> {
    let directory = directory();
    std::fs::create_dir_all(&directory)?;
    let file = directory.join("composed.json");
    std::fs::write(&file, bootstrap.to_string())?;
    let options = ProxyOptions {
        concurrency: Some(2),
        directory,
        arguments: &[],
    };
    Proxy::start(envoy()?, &Bootstrap::read(&file)?, &options).await
}

/// A listener with a connection manager that has these filters, before the router, and these routes
/// for all hosts; `name` is that of the listener and of its route table.
pub fn bootstrap(name: &str, filters: &[Value], routes: &[Value], clusters: &[Value]) -> Value {
    let mut filters = filters.to_vec();
    filters.push(
        json!({"name": ROUTER, "typed_config": {"@type": type_url("http.router", "Router")}}),
    );
    let manager = json!({
        "@type": MANAGER,
        "stat_prefix": "gateway",
        "use_remote_address": true,
        "normalize_path": true,
        "merge_slashes": true,
        "route_config": {
            "name": name,
            "virtual_hosts": [{"name": "*:80", "domains": ["*"], "routes": routes}],
        },
        "http_filters": filters,
    });
    let address =
        |port: u16| json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    json!({
        "node": {"id": "gateway", "cluster": "gateway"},
        "admin": {"address": address(9901)},
        "static_resources": {
            "listeners": [{
                "name": name,
                "address": address(8080),
                "filter_chains": [{"filters": [{"name": MANAGER_NAME, "typed_config": manager}]}],
            }],
            "clusters": clusters,
        },
    })
}

/// A cluster of addresses that are known, as both control planes make one of pods.
pub fn cluster(name: &str, addresses: &[(String, u16)]) -> Value {
    let endpoints: Vec<Value> = addresses
        .iter()
        .map(|(address, port)| {
            let socket = json!({"address": address, "port_value": port});
            json!({"endpoint": {"address": {"socket_address": socket}}})
        })
        .collect();
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "10s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": endpoints}],
        },
    })
}

/// The listener of a bootstrap.
pub fn listener(bootstrap: &mut Value) -> Result<&mut Value> {
    let listener = bootstrap.pointer_mut("/static_resources/listeners/0");
    listener.context("no listener")
}

/// The connection manager of the listener.
pub fn manager(bootstrap: &mut Value) -> Result<&mut Value> {
    let manager = listener(bootstrap)?.pointer_mut("/filter_chains/0/filters/0/typed_config");
    manager.context("no connection manager")
}

/// The clusters of a bootstrap.
pub fn clusters(bootstrap: &mut Value) -> Result<&mut Vec<Value>> {
    let clusters = bootstrap.pointer_mut("/static_resources/clusters");
    let clusters = clusters.and_then(Value::as_array_mut);
    clusters.context("no clusters")
}

/// Puts files of this machine where a module would be fetched or mounted, and where files are that
/// kubelet mounts.
pub fn set_module(value: &mut Value, wasm: &Path) {
    match value {
        Value::String(text) => {
            let file = FILES.iter().find(|(mounted, _)| text == mounted);
            if let Some((_, file)) = file {
                *text = root().join(file).display().to_string();
            }
        }
        Value::Object(fields) => {
            if let Some(code) = fields.get_mut("code")
                && (code.get("remote").is_some() || code["local"]["filename"] == MOUNTED)
            {
                *code = json!({"local": {"filename": wasm}});
            }
            fields.values_mut().for_each(|it| set_module(it, wasm));
        }
        Value::Array(items) => items.iter_mut().for_each(|it| set_module(it, wasm)),
        _ => {}
    }
}

/// Lists these endpoints in configurations of the picker, given as texts, that discover theirs.
pub fn set_endpoints(value: &mut Value, addresses: &[SocketAddr]) {
    match value {
        Value::String(text) if text.contains("\"discovery\"") => {
            let Ok(mut document) = serde_json::from_str::<Value>(text) else {
                return;
            };
            let endpoints = addresses.iter();
            let endpoints: Value = endpoints
                .map(|it| json!({"address": it.to_string()}))
                .collect();
            let pool = document.pointer_mut("/pools/0");
            if let Some(pool) = pool.and_then(Value::as_object_mut) {
                pool.remove("discovery");
                pool.insert("endpoints".to_owned(), endpoints);
            }
            *text = document.to_string();
        }
        Value::Object(fields) => {
            let fields = fields.values_mut();
            fields.for_each(|it| set_endpoints(it, addresses));
        }
        Value::Array(items) => items.iter_mut().for_each(|it| set_endpoints(it, addresses)),
        _ => {}
    }
}

/// The type of a filter's or of another extension's configuration.
pub fn type_url(extension: &str, name: &str) -> String {
    format!("type.googleapis.com/envoy.extensions.filters.{extension}.v3.{name}")
}

/// The name of the router.
pub const ROUTER: &str = "envoy.filters.http.router";

/// The name of the connection manager.
pub const MANAGER_NAME: &str = "envoy.filters.network.http_connection_manager";

/// The type of the connection manager's configuration.
const MANAGER: &str = "type.googleapis.com/envoy.extensions.filters.network.\
                       http_connection_manager.v3.HttpConnectionManager";

/// Where the image is mounted in a pod.
const MOUNTED: &str = "/etc/picker/plugin.wasm";

/// What is mounted in a pod, and what stands for it here.
const FILES: [(&str, &str); 3] = [
    (
        "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
        "tests/fixtures/gateways/ca.crt",
    ),
    (
        "/etc/envoy/kubernetes-token.yaml",
        "examples/kubernetes/kubernetes-token.yaml",
    ),
    (
        "/etc/picker/kubernetes-token.yaml",
        "examples/kubernetes/kubernetes-token.yaml",
    ),
];
