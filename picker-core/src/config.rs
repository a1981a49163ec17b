//! Configuration.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::engine::EngineKind;
use crate::profile::Profile;
use crate::{Address, Span};

/// What this instance of the module is for.
#[derive(Clone, PartialEq, Debug)]
pub enum Role {
    /// Service.
    Service,
    /// Page.
    Page,
    /// Filter.
    Filter(Box<Config>),
}

/// Config.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Pools.
    pub pools: Vec<PoolConfig>,
    /// Destination.
    pub destination: Destination,
    /// Paths.
    pub paths: Paths,
}

/// Pool.
#[derive(Clone, PartialEq, Debug)]
pub struct PoolConfig {
    /// Name.
    pub name: String,
    /// Match.
    pub matches: Match,
    /// Engine.
    pub engine: EngineKind,
    /// Endpoints.
    pub endpoints: Vec<EndpointConfig>,
    /// Scrape.
    pub scrape: ScrapeConfig,
    /// Cache.
    pub cache: CacheConfig,
    /// Profile.
    pub profile: Profile,
    /// Failure.
    pub failure_mode: FailureMode,
    /// Limits.
    pub limits: Limits,
}

/// Match.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Match {
    /// Clusters.
    pub clusters: Vec<String>,
    /// Routes.
    pub routes: Vec<String>,
    /// Hosts.
    pub hosts: Vec<String>,
    /// Prefixes.
    pub path_prefixes: Vec<String>,
}

/// Endpoint.
#[derive(Clone, PartialEq, Debug)]
pub struct EndpointConfig {
    /// Address.
    pub address: Address,
    /// Engine.
    pub engine: EngineKind,
}

/// Scrape.
#[derive(Clone, PartialEq, Debug)]
pub struct ScrapeConfig {
    /// Cluster.
    pub cluster: String,
    /// Interval.
    pub interval: Span,
    /// Timeout.
    pub timeout: Span,
    /// Path.
    pub path: String,
    /// Staleness.
    pub staleness_threshold: Span,
}

/// Cache.
#[derive(Clone, PartialEq, Debug)]
pub struct CacheConfig {
    /// Capacity.
    pub capacity_tokens: Option<u64>,
    /// Seed.
    pub hash_seed: String,
}

/// Failure mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureMode {
    /// Open.
    Open,
    /// Closed.
    Closed,
}

/// Limits.
#[derive(Clone, PartialEq, Debug)]
pub struct Limits {
    /// Body.
    pub request_body_bytes: u64,
}

/// Destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Destination {
    /// Header.
    Header(String),
    /// Filter state.
    FilterState,
}

/// Paths.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Paths {
    /// Prefixes.
    pub prefixes: Vec<String>,
}

/// Error.
#[derive(Clone, PartialEq, Debug)]
pub struct ConfigError(String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Parses.
pub fn parse(bytes: &[u8]) -> Result<Role, Vec<ConfigError>> {
    if bytes.is_empty() {
        return Ok(Role::Service);
    }
    let error = |text: &str| alloc::vec![ConfigError(text.to_string())];
    let value: serde_json::Value = serde_json::from_slice(bytes)
        .map_err(|error| alloc::vec![ConfigError(error.to_string())])?;
    if value["serve"] == "page" {
        return Ok(Role::Page);
    }
    let mut pools = Vec::new();
    for pool in value["pools"].as_array().ok_or_else(|| error("pools"))? {
        let name = pool["name"].as_str().unwrap_or("llm").to_string();
        let mut endpoints = Vec::new();
        for endpoint in pool["endpoints"]
            .as_array()
            .ok_or_else(|| error("endpoints"))?
        {
            let address = endpoint["address"].as_str().unwrap_or_default().parse();
            endpoints.push(EndpointConfig {
                address: address.map_err(|_| error("address"))?,
                engine: EngineKind::Vllm,
            });
        }
        let limit = pool["limits"]["requestBodyBytes"]
            .as_u64()
            .unwrap_or(32 << 20);
        pools.push(PoolConfig {
            matches: Match::default(),
            engine: EngineKind::Vllm,
            endpoints,
            scrape: ScrapeConfig {
                cluster: "picker_endpoints".to_string(),
                interval: Span::from_millis(100),
                timeout: Span::from_millis(1000),
                path: "/metrics".to_string(),
                staleness_threshold: Span::from_millis(2000),
            },
            cache: CacheConfig {
                capacity_tokens: None,
                hash_seed: name.clone(),
            },
            profile: Profile::default(),
            failure_mode: FailureMode::Open,
            limits: Limits {
                request_body_bytes: limit,
            },
            name,
        });
    }
    let destination = if value["destination"]["via"] == "filterState" {
        Destination::FilterState
    } else {
        Destination::Header("x-gateway-destination-endpoint".to_string())
    };
    Ok(Role::Filter(Box::new(Config {
        pools,
        destination,
        paths: Paths::default(),
    })))
}

impl PoolConfig {
    /// The pool as a document.
    pub fn to_document(&self) -> String {
        let endpoints: Vec<String> = self
            .endpoints
            .iter()
            .map(|endpoint| alloc::format!(r#"{{"address":"{}"}}"#, endpoint.address))
            .collect();
        alloc::format!(
            r#"{{"pools":[{{"name":"{}","endpoints":[{}]}}]}}"#,
            self.name,
            endpoints.join(",")
        )
    }
}
