//! One of the shipped Envoy configurations, changed to serve given endpoints on given ports.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::bootstrap::{Bootstrap, TRAFFIC};
use crate::ports;
use crate::workspace::root;

/// How Envoy learns the destination of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Destination {
    /// One address in a header, `ORIGINAL_DST` connects to it.
    OriginalDst,
    /// A list in a header, walked by retries, among endpoints that the cluster knows.
    OverrideHost,
}

/// Where one Envoy listens.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// For clients.
    pub traffic: SocketAddr,
    /// For the picker's own pages.
    pub pages: SocketAddr,
    /// For Envoy's admin interface.
    pub admin: SocketAddr,
}

impl Destination {
    /// The shipped configuration, as it is in the repository.
    pub fn shipped(self) -> Result<Bootstrap> {
        Bootstrap::read(&root().join(match self {
            Self::OriginalDst => "envoy/envoy.yaml",
            Self::OverrideHost => "envoy/override-host.yaml",
        }))
    }
}

impl Addresses {
    /// Free ports of loopback.
    pub fn free() -> Result<Self> {
        Ok(Self {
            traffic: ports::free()?,
            pages: ports::free()?,
            admin: ports::free()?,
        })
    }

    /// Where a configuration listens.
    pub fn of(bootstrap: &mut Bootstrap) -> Result<Self> {
        Ok(Self {
            traffic: bootstrap.listener_address(TRAFFIC)?,
            pages: bootstrap.listener_address(crate::bootstrap::PAGES)?,
            admin: bootstrap.admin_address()?,
        })
    }
}

/// The shipped configuration of a destination, on other ports, with another module and `document`
/// as the picker's configuration.
pub fn compose(
    destination: Destination,
    addresses: Addresses,
    wasm: &Path,
    document: &Value,
) -> Result<Bootstrap> {
    let mut bootstrap = destination.shipped()?;
    bootstrap.set_wasm(wasm);
    bootstrap.set_traffic(addresses.traffic)?;
    bootstrap.set_pages(addresses.pages)?;
    bootstrap.set_admin(addresses.admin)?;
    bootstrap.set_picker(document)?;
    bootstrap.set_fallback(&endpoints(document)?)?;
    if destination == Destination::OverrideHost {
        name_pools(&mut bootstrap, document)?;
    }
    Ok(bootstrap)
}

/// Lets the cluster of an override host know the endpoints of all pools of `document`.
pub fn name_pools(bootstrap: &mut Bootstrap, document: &Value) -> Result<()> {
    let names = pools(document)?.iter().map(|pool| {
        let name = pool.get("name").and_then(Value::as_str);
        name.context("a pool has no `name`")
    });
    let names: Vec<&str> = names.collect::<Result<_>>()?;
    let cluster = bootstrap.cluster_mut("llm")?;
    cluster["eds_cluster_config"]["service_name"] = json!(names.join(","));
    Ok(())
}

/// The picker's configuration of a shipped file, with other endpoints.
pub fn document(destination: Destination, endpoints: &[SocketAddr]) -> Result<Value> {
    let mut document = destination.shipped()?.picker()?;
    set_endpoints(&mut document, endpoints)?;
    Ok(document)
}

/// Replaces the endpoints of the one pool of a document.
pub fn set_endpoints(document: &mut Value, endpoints: &[SocketAddr]) -> Result<()> {
    let pools = document.get_mut("pools").and_then(Value::as_array_mut);
    let Some([pool]) = pools.map(Vec::as_mut_slice) else {
        bail!("endpoints can be replaced only in a document with one pool");
    };
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|endpoint| json!({"address": endpoint.to_string()}))
        .collect();
    pool["endpoints"] = json!(endpoints);
    Ok(())
}

/// The endpoints of all pools of a document.
pub fn endpoints(document: &Value) -> Result<Vec<SocketAddr>> {
    let pools = pools(document)?.iter();
    let endpoints = pools
        .filter_map(|pool| pool.get("endpoints")?.as_array())
        .flatten();
    endpoints
        .map(|endpoint| {
            let address = endpoint.get("address").and_then(Value::as_str);
            let address = address.with_context(|| format!("no `address` in {endpoint}"))?;
            let parsed = address.parse();
            parsed.with_context(|| format!("the endpoint {address:?} is no IP address and port"))
        })
        .collect()
}

fn pools(document: &Value) -> Result<&[Value]> {
    let pools = document.get("pools").and_then(Value::as_array);
    let pools = pools.context("the document has no list `pools`")?;
    ensure!(!pools.is_empty(), "the list `pools` is empty");
    Ok(pools)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_the_document_are_the_endpoints_of_the_cluster() {
        let endpoint: SocketAddr = "127.0.0.1:4711".parse().unwrap();
        for destination in [Destination::OriginalDst, Destination::OverrideHost] {
            let mut document = document(destination, &[endpoint]).unwrap();
            document["pools"][0]["name"] = json!("mine");
            assert_eq!(endpoints(&document).unwrap(), [endpoint]);
            let addresses = Addresses::free().unwrap();
            let wasm = Path::new("picker.wasm");
            let mut bootstrap = compose(destination, addresses, wasm, &document).unwrap();
            let (cluster, wanted) = match destination {
                Destination::OriginalDst => ("llm_any", "4711"),
                Destination::OverrideHost => ("llm", "\"mine\""),
            };
            let cluster = bootstrap.cluster_mut(cluster).unwrap().to_string();
            assert!(cluster.contains(wanted), "{cluster}");
            assert_eq!(bootstrap.picker().unwrap(), document);
        }
    }

    #[test]
    fn a_document_without_usable_endpoints_says_which() {
        for (document, fault) in [
            (json!({}), "no list `pools`"),
            (json!({"pools": []}), "is empty"),
            (json!({"pools": [{"endpoints": [{}]}]}), "no `address`"),
            (
                json!({"pools": [{"endpoints": [{"address": "gpu1:80"}]}]}),
                "gpu1:80",
            ),
        ] {
            let error = endpoints(&document).unwrap_err().to_string();
            assert!(error.contains(fault), "{error}");
        }
    }
}
