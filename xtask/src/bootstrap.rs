//! An Envoy configuration in memory: read as YAML, edited, handed to Envoy as JSON.
//!
//! Edits find their place by the names that the files in `envoy/` use, and fail when it is not
//! there.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// A whole Envoy configuration.
#[derive(Clone, Debug)]
pub struct Bootstrap(Value);

impl Bootstrap {
    /// Reads a file of YAML or JSON.
    pub fn read(path: &Path) -> Result<Self> {
        Ok(Self(read_document(path)?))
    }

    /// Writes the configuration as JSON.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(&self.0)?;
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Loads the module from `wasm` wherever a `picker.wasm` was loaded.
    pub fn set_wasm(&mut self, wasm: &Path) {
        let wasm = wasm.display().to_string();
        walk(&mut self.0, &mut |value| {
            let filename = value.pointer_mut("/code/local/filename");
            if let Some(filename) = filename
                && filename
                    .as_str()
                    .is_some_and(|name| name.ends_with("picker.wasm"))
            {
                *filename = json!(wasm);
            }
        });
    }

    /// Moves the admin interface.
    pub fn set_admin(&mut self, address: SocketAddr) -> Result<()> {
        let admin = self.0.get_mut("admin").context("no `admin`")?;
        set_socket(admin, address)
    }

    /// Moves the listener `traffic`.
    pub fn set_traffic(&mut self, address: SocketAddr) -> Result<()> {
        set_socket(self.listener_mut(TRAFFIC)?, address)
    }

    /// Moves the listener `pages`, and the cluster that leads to it.
    pub fn set_pages(&mut self, address: SocketAddr) -> Result<()> {
        set_socket(self.listener_mut(PAGES)?, address)?;
        if let Ok(cluster) = self.cluster_mut("picker_local") {
            set_members(cluster, &[address])?;
        }
        Ok(())
    }

    /// Names the servers of the cluster for requests that the picker left alone, where there is
    /// one.
    pub fn set_fallback(&mut self, endpoints: &[SocketAddr]) -> Result<()> {
        match self.cluster_mut("llm_any") {
            Ok(cluster) => set_members(cluster, endpoints),
            Err(_) => Ok(()),
        }
    }

    /// The picker's configuration on the listener `traffic`.
    pub fn picker(&mut self) -> Result<Value> {
        let text = self
            .picker_mut()?
            .as_str()
            .context("the picker's `value` is no text")?;
        serde_json::from_str(text).context("the picker's configuration is not JSON")
    }

    /// Replaces the picker's configuration on the listener `traffic`.
    pub fn set_picker(&mut self, picker: &Value) -> Result<()> {
        self.set_picker_text(&serde_json::to_string_pretty(picker)?)
    }

    /// Replaces the picker's configuration by any text, also by one that is no JSON.
    pub fn set_picker_text(&mut self, text: &str) -> Result<()> {
        *self.picker_mut()? = json!(text);
        Ok(())
    }

    /// The connection manager of a listener, by the listener's name.
    pub fn manager_mut(&mut self, listener: &str) -> Result<&mut Value> {
        self.listener_mut(listener)?
            .pointer_mut("/filter_chains/0/filters/0/typed_config")
            .with_context(|| format!("listener `{listener}` has no connection manager"))
    }

    /// A listener by name.
    pub fn listener_mut(&mut self, name: &str) -> Result<&mut Value> {
        self.named_mut("listeners", name)
    }

    /// A cluster by name.
    pub fn cluster_mut(&mut self, name: &str) -> Result<&mut Value> {
        self.named_mut("clusters", name)
    }

    /// The whole configuration, for edits that have no method.
    pub fn value_mut(&mut self) -> &mut Value {
        &mut self.0
    }

    /// Where a listener listens; an address that stands for every interface reads as loopback.
    pub fn listener_address(&mut self, name: &str) -> Result<SocketAddr> {
        let socket = self.listener_mut(name)?.pointer("/address/socket_address");
        socket_address(socket.context("no `socket_address`")?)
    }

    /// Where the admin interface listens.
    pub fn admin_address(&self) -> Result<SocketAddr> {
        let socket = self.0.pointer("/admin/address/socket_address");
        socket_address(socket.context("no `admin` with a `socket_address`")?)
    }

    fn picker_mut(&mut self) -> Result<&mut Value> {
        let filters = self.manager_mut(TRAFFIC)?.get_mut("http_filters");
        let filters = filters
            .and_then(Value::as_array_mut)
            .context("no `http_filters`")?;
        filters
            .iter_mut()
            .find(|filter| filter.get("name").is_some_and(|name| name == "picker"))
            .context("no filter named `picker`")?
            .pointer_mut("/typed_config/config/configuration/value")
            .context("the filter `picker` has no configuration with a `value`")
    }

    fn named_mut(&mut self, kind: &str, name: &str) -> Result<&mut Value> {
        let all = self.0.pointer_mut(&format!("/static_resources/{kind}"));
        let all = all
            .and_then(Value::as_array_mut)
            .with_context(|| format!("no `{kind}`"))?;
        all.iter_mut()
            .find(|each| each.get("name").is_some_and(|each| each == name))
            .with_context(|| format!("none of the {kind} is named `{name}`"))
    }
}

/// Reads a document of YAML, of which JSON is a part.
pub fn read_document(path: &Path) -> Result<Value> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_saphyr::from_str(&text)
        .map_err(|error| anyhow::anyhow!("{error}"))
        .with_context(|| format!("{} is neither YAML nor JSON", path.display()))
}

fn set_socket(owner: &mut Value, address: SocketAddr) -> Result<()> {
    let socket = owner
        .pointer_mut("/address/socket_address")
        .context("no `socket_address`")?;
    *socket = socket_value(address);
    Ok(())
}

fn set_members(cluster: &mut Value, members: &[SocketAddr]) -> Result<()> {
    let endpoints = cluster
        .pointer_mut("/load_assignment/endpoints")
        .context("the cluster has no `load_assignment` with `endpoints`")?;
    let members: Vec<Value> = members
        .iter()
        .map(|member| json!({"endpoint": {"address": {"socket_address": socket_value(*member)}}}))
        .collect();
    *endpoints = json!([{ "lb_endpoints": members }]);
    Ok(())
}

fn socket_value(address: SocketAddr) -> Value {
    json!({"address": address.ip().to_string(), "port_value": address.port()})
}

fn socket_address(socket: &Value) -> Result<SocketAddr> {
    let port = socket.get("port_value").and_then(Value::as_u64);
    let ip = match socket.get("address").and_then(Value::as_str) {
        Some("0.0.0.0" | "::") => Some("127.0.0.1"),
        ip => ip,
    };
    let (Some(ip), Some(port)) = (ip, port) else {
        bail!("no address and port in {socket}");
    };
    Ok(SocketAddr::new(ip.parse()?, u16::try_from(port)?))
}

fn walk(value: &mut Value, visit: &mut impl FnMut(&mut Value)) {
    visit(value);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, visit)),
        Value::Object(fields) => fields.values_mut().for_each(|field| walk(field, visit)),
        _ => {}
    }
}

/// The listener for clients.
pub const TRAFFIC: &str = "traffic";

/// The listener with the picker's own pages.
pub const PAGES: &str = "pages";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::root;

    fn shipped() -> [Bootstrap; 2] {
        ["envoy/envoy.yaml", "envoy/override-host.yaml"]
            .map(|file| Bootstrap::read(&root().join(file)).unwrap())
    }

    #[test]
    fn every_edit_finds_its_place_in_the_shipped_files() {
        let address = "127.0.0.1:1234".parse().unwrap();
        for mut bootstrap in shipped() {
            bootstrap.set_admin(address).unwrap();
            bootstrap.set_traffic(address).unwrap();
            bootstrap.set_pages(address).unwrap();
            bootstrap.set_fallback(&[address]).unwrap();
            bootstrap.set_wasm(Path::new("/elsewhere/picker.wasm"));
            let mut picker = bootstrap.picker().unwrap();
            picker["pools"][0]["endpoints"] = json!([]);
            bootstrap.set_picker(&picker).unwrap();

            let text = bootstrap.0.to_string();
            for gone in ["9901", "9902", "8080", "8001", "target/wasm32"] {
                assert!(!text.contains(gone), "{gone} is still in {text}");
            }
            assert_eq!(bootstrap.listener_address(PAGES).unwrap(), address);
            assert_eq!(bootstrap.admin_address().unwrap(), address);
        }
    }

    #[test]
    fn clients_headers_are_stripped_on_every_listener() {
        for mut bootstrap in shipped() {
            for listener in [TRAFFIC, PAGES] {
                let manager = bootstrap.manager_mut(listener).unwrap();
                let mutations = "/early_header_mutation_extensions/0/typed_config/mutations";
                let mutations = manager.pointer(mutations).unwrap().as_array().unwrap();
                assert_eq!(mutations.len(), 10, "{listener}");
            }
        }
    }

    #[test]
    fn the_body_limit_of_envoy_is_above_the_pickers() {
        for mut bootstrap in shipped() {
            let manager = bootstrap.manager_mut(TRAFFIC).unwrap();
            let limit = manager.pointer("/route_config/virtual_hosts/0/request_body_buffer_limit");
            assert!(limit.unwrap().as_u64().unwrap() > 32 << 20);
            let picker = bootstrap.picker().unwrap();
            assert_eq!(picker["pools"][0]["limits"]["requestBodyBytes"], "32Mi");
        }
    }

    #[test]
    fn envoy_closes_idle_connections_before_the_engines_do() {
        for bootstrap in shipped() {
            let clusters = bootstrap.0.pointer("/static_resources/clusters").unwrap();
            for cluster in clusters.as_array().unwrap() {
                let options = &cluster["typed_extension_protocol_options"];
                let options = &options["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"];
                let idle = &options["common_http_protocol_options"]["idle_timeout"];
                assert_eq!(idle, "4s", "{cluster}");
            }
        }
    }

    #[test]
    fn no_timer_cuts_a_long_generation_and_no_breaker_of_envoy_a_busy_pool() {
        for mut bootstrap in shipped() {
            for cluster in ["llm", "picker_endpoints"] {
                let cluster = bootstrap.cluster_mut(cluster).unwrap();
                let limits = &cluster["circuit_breakers"]["thresholds"][0];
                for limit in ["max_connections", "max_pending_requests", "max_requests"] {
                    assert_eq!(limits[limit], 40_000, "{limit}");
                }
            }
            let manager = bootstrap.manager_mut(TRAFFIC).unwrap();
            assert_eq!(manager["stream_idle_timeout"], "3600s");
            let host = &manager["route_config"]["virtual_hosts"][0];
            for route in host["routes"].as_array().unwrap() {
                assert_eq!(route["route"]["timeout"], "0s");
            }
            let retried = host["retry_policy"]["retry_on"].as_str().unwrap();
            assert!(retried.contains("reset-before-request"), "{retried}");
        }
    }
}
