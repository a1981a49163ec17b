//! The Envoys that are compared: one configuration, with and without something that picks.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::bodies::MODEL;
use super::cpu::{CpuTime, resident_bytes};
use crate::bootstrap::{Bootstrap, PAGES, TRAFFIC};
use crate::compose::{Addresses, Destination, compose, document};
use crate::envoy::Envoy;
use crate::proxy::{Proxy, ProxyOptions};
use crate::ready::stat;
use crate::wasm::{self, Variant};
use crate::workspace::target;

/// What picks inside an Envoy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Host {
    /// Nothing: an ordinary cluster of the same endpoints.
    None,
    /// The filter, as many times in a row as is said. Each copy does the whole work.
    Wasm { copies: u32 },
    /// The same with queues, and with room for all requests.
    Queues { copies: u32 },
    /// The same, and each copy gives the model another name, and answers the first one again if they
    /// are to be public.
    Rewrite { copies: u32, is_public: bool },
    /// An external processor at this address.
    ExtProc { server: SocketAddr },
}

/// What all subjects have in common.
pub(super) struct Bench<'a> {
    pub(super) envoy: &'a Envoy,
    pub(super) wasm: &'a Path,
    pub(super) endpoints: &'a [SocketAddr],
    /// Where each Envoy gets a directory.
    pub(super) directory: PathBuf,
}

impl<'a> Bench<'a> {
    /// Envoys with this module in front of these endpoints.
    pub(super) fn new(envoy: &'a Envoy, wasm: &'a Path, endpoints: &'a [SocketAddr]) -> Self {
        Self {
            envoy,
            wasm,
            endpoints,
            directory: directory(),
        }
    }
}

/// Where the Envoys of this run get their directories.
pub(super) fn directory() -> PathBuf {
    target().join("bench").join(std::process::id().to_string())
}

/// Builds the module that is shipped and finds an Envoy, which is named.
pub(super) fn tools() -> Result<(PathBuf, Envoy)> {
    let wasm = wasm::build(Variant::Shipped)?;
    let envoy = Envoy::find(None)?;
    println!("Using {envoy}");
    Ok((wasm, envoy))
}

/// A running Envoy with one worker.
pub(super) struct Subject {
    pub(super) host: Host,
    pub(super) addresses: Addresses,
    proxy: Proxy,
    pid: u32,
}

impl Host {
    /// Whether the picker's own counters and pages are there.
    pub(super) fn has_filter(self) -> bool {
        matches!(
            self,
            Self::Wasm { .. } | Self::Queues { .. } | Self::Rewrite { .. }
        )
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.pad("none"),
            Self::Wasm { copies: 1 } => f.pad("wasm"),
            Self::Wasm { copies } => f.pad(&format!("wasm x{copies}")),
            Self::Queues { copies } => f.pad(&format!("queues x{copies}")),
            Self::Rewrite { copies, is_public } => {
                let name = if *is_public { "public" } else { "rewrite" };
                f.pad(&format!("{name} x{copies}"))
            }
            Self::ExtProc { .. } => f.pad("ext_proc"),
        }
    }
}

impl Subject {
    /// Starts an Envoy with one worker.
    pub(super) async fn start(bench: &Bench<'_>, host: Host) -> Result<Self> {
        let destination = Destination::OriginalDst;
        let addresses = Addresses::free()?;
        let mut document = document(destination, bench.endpoints)?;
        match host {
            Host::Queues { .. } => document["pools"][0]["picker"] = queueing_picker(),
            Host::Rewrite { copies, is_public } => {
                document["pools"][0]["modelRewrites"] = rewrites(copies);
                document["pools"][0]["publicNames"] = json!(is_public);
            }
            Host::None | Host::Wasm { .. } | Host::ExtProc { .. } => {}
        }
        let mut bootstrap = compose(destination, addresses, bench.wasm, &document)?;
        match host {
            Host::None => remove_filter(&mut bootstrap)?,
            Host::Wasm { copies } | Host::Queues { copies } | Host::Rewrite { copies, .. } => {
                repeat_filter(&mut bootstrap, copies)?
            }
            Host::ExtProc { server } => {
                remove_filter(&mut bootstrap)?;
                add_processor(&mut bootstrap, server)?;
            }
        }
        let options = ProxyOptions {
            concurrency: Some(1),
            directory: bench.directory.join(host.to_string().replace(' ', "-")),
            ..ProxyOptions::default()
        };
        let proxy = Proxy::start(bench.envoy, &bootstrap, &options).await?;
        let pid = proxy.pid().context("Envoy has ended")?;
        Ok(Self {
            host,
            addresses,
            proxy,
            pid,
        })
    }

    /// CPU time used so far.
    pub(super) fn cpu(&self) -> Result<CpuTime> {
        CpuTime::of(self.pid)
    }

    /// Resident memory now.
    pub(super) fn rss_bytes(&self) -> Result<u64> {
        resident_bytes(self.pid)
    }

    /// Blocks of prompts so far, and those of them that were held; zeros without the filter.
    pub(super) async fn blocks(&self) -> Result<(u64, u64)> {
        if !self.host.has_filter() {
            return Ok((0, 0));
        }
        let count = |name: &str| format!("wasmcustom.picker_{name}_blocks_total;pool={POOL}");
        let all = stat(self.addresses, &count("prompt")).await?;
        Ok((all, stat(self.addresses, &count("matched")).await?))
    }

    pub(super) async fn stop(self) -> Result<()> {
        self.proxy.stop().await
    }
}

/// The default picker with queues, whose endpoints have room for more than is ever sent.
fn queueing_picker() -> Value {
    let detector = "concurrency-detector";
    json!({
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "featureGates": ["flowControl"],
        "plugins": [
            {"type": "least-cost-scorer"},
            {"type": detector, "parameters": {"maxConcurrency": 100_000}},
        ],
        "flowControl": {"saturationDetector": {"pluginRef": detector}},
    })
}

/// Rules by which each of the copies, which are configured alike, finds a name to rewrite.
fn rewrites(copies: u32) -> Value {
    let name = |copy| match copy {
        0 => MODEL.to_owned(),
        // Of another length each, as names usually are.
        _ => MODEL.to_owned() + &"-a".repeat(copy as usize),
    };
    let rule = |copy| {
        json!({"matches": [{"model": {"value": name(copy)}}],
               "targets": [{"modelRewrite": name(copy + 1)}]})
    };
    (0..copies).map(rule).collect()
}

/// Takes out all that is the picker's: the filter, its pages and its service.
pub(super) fn remove_filter(bootstrap: &mut Bootstrap) -> Result<()> {
    filters_mut(bootstrap)?.retain(|filter| !is_picker(filter));
    let all = bootstrap.value_mut();
    if let Some(all) = all.as_object_mut() {
        all.remove("bootstrap_extensions");
    }
    let listeners = all.pointer_mut("/static_resources/listeners");
    let listeners = listeners.and_then(Value::as_array_mut);
    let listeners = listeners.context("no `listeners`")?;
    listeners.retain(|listener| listener.get("name").is_none_or(|name| name != PAGES));
    Ok(())
}

fn repeat_filter(bootstrap: &mut Bootstrap, copies: u32) -> Result<()> {
    let filters = filters_mut(bootstrap)?;
    let picker = filters.iter().find(|filter| is_picker(filter));
    let picker = picker.context("no filter named `picker`")?.clone();
    for copy in 1..copies {
        let mut picker = picker.clone();
        picker["name"] = json!(format!("picker-{copy}"));
        filters.insert(0, picker);
    }
    Ok(())
}

/// Lets an external processor name the destination, by the mode that the reference picker needs.
fn add_processor(bootstrap: &mut Bootstrap, server: SocketAddr) -> Result<()> {
    let filter = json!({
        "name": "ext_proc",
        "typed_config": {
            "@type": format!("{TYPES}.filters.http.ext_proc.v3.ExternalProcessor"),
            "grpc_service": {"envoy_grpc": {"cluster_name": "ext_proc"}, "timeout": "10s"},
            "message_timeout": "10s",
            "processing_mode": {
                "request_header_mode": "SEND",
                "request_body_mode": "FULL_DUPLEX_STREAMED",
                "request_trailer_mode": "SEND",
                "response_header_mode": "SEND",
                "response_body_mode": "FULL_DUPLEX_STREAMED",
                "response_trailer_mode": "SEND",
            },
        },
    });
    filters_mut(bootstrap)?.insert(0, filter);
    let hosts = bootstrap
        .manager_mut(TRAFFIC)?
        .pointer_mut("/route_config/virtual_hosts/0/routes")
        .context("no routes")?;
    // The processor always answers, and whether it makes Envoy match again is up to it.
    *hosts = json!([{"match": {"prefix": "/"}, "route": {"cluster": "llm", "timeout": "0s"}}]);
    let clusters = bootstrap
        .value_mut()
        .pointer_mut("/static_resources/clusters")
        .and_then(Value::as_array_mut)
        .context("no `clusters`")?;
    clusters.push(json!({
        "name": "ext_proc",
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": format!("{TYPES}.upstreams.http.v3.HttpProtocolOptions"),
                "explicit_http_config": {"http2_protocol_options": {}},
            },
        },
        "load_assignment": {
            "cluster_name": "ext_proc",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {
                "address": server.ip().to_string(), "port_value": server.port(),
            }}}}]}],
        },
    }));
    Ok(())
}

fn filters_mut(bootstrap: &mut Bootstrap) -> Result<&mut Vec<Value>> {
    let manager = bootstrap.manager_mut(TRAFFIC)?;
    let filters = manager.get_mut("http_filters");
    filters
        .and_then(Value::as_array_mut)
        .context("no `http_filters`")
}

fn is_picker(filter: &Value) -> bool {
    filter.get("name").is_some_and(|name| name == "picker")
}

/// Where the types of Envoy's extensions are.
const TYPES: &str = "type.googleapis.com/envoy.extensions";

/// The pool of the shipped configuration.
const POOL: &str = "llm";
