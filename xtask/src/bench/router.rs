//! Envoys that differ in how they choose an endpoint.

use std::fmt;
use std::net::SocketAddr;

use anyhow::{Result, bail};
use picker_core::{EngineKind, LeastCost};
use serde_json::{Value, json};
use sim::routing::policies::PolicyKind;

use super::subject::{Bench, remove_filter};
use crate::compose::{Addresses, Destination, compose, document};
use crate::http::fetch;
use crate::proxy::{Proxy, ProxyOptions};
use crate::ready::ready;
use crate::state::State;

/// How an Envoy chooses an endpoint.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Router {
    /// An ordinary cluster, without the filter.
    RoundRobin,
    /// The filter with the reference picker's weights: queue 2, KV cache 2, prefix 3.
    Compatible,
    /// The same and the scorer for adapters, 3.
    CompatibleLora,
    /// The filter with the scorers of load alone: queue 2, KV cache 2.
    QueueKv,
    /// The filter as it is by default, but for the parameters.
    LeastCost(LeastCost),
}

/// A running Envoy.
pub(super) struct Routing {
    router: Router,
    addresses: Addresses,
    proxy: Proxy,
}

impl Router {
    /// What a policy of the simulation is in an Envoy, once for each of the `rules`.
    pub(super) fn of_policy(policy: PolicyKind, rules: &[LeastCost]) -> Result<Vec<Self>> {
        Ok(match (policy, rules) {
            (PolicyKind::RoundRobin, _) => vec![Self::RoundRobin],
            (PolicyKind::Compatible, _) => vec![Self::Compatible],
            (PolicyKind::CompatibleLora, _) => vec![Self::CompatibleLora],
            (PolicyKind::QueueKv, _) => vec![Self::QueueKv],
            (PolicyKind::LeastCost, []) => vec![Self::LeastCost(LeastCost::DEFAULT)],
            (PolicyKind::LeastCost, rules) => rules.iter().copied().map(Self::LeastCost).collect(),
            (other, _) => bail!(
                "--policy {}: an Envoy has round-robin, queue-kv, compatible, compatible-lora and least-cost",
                other.name()
            ),
        })
    }

    /// Starts an Envoy with two workers in front of endpoints of one engine, and waits until it
    /// knows them.
    pub(super) async fn start(self, bench: &Bench<'_>, engine: EngineKind) -> Result<Routing> {
        let destination = Destination::OriginalDst;
        let addresses = Addresses::free()?;
        let mut document = document(destination, bench.endpoints)?;
        document["pools"][0]["engine"] = json!(engine.name());
        match self {
            Self::RoundRobin => {}
            Self::Compatible => document["pools"][0]["picker"] = weighted(&COMPATIBLE),
            Self::CompatibleLora => document["pools"][0]["picker"] = weighted(&COMPATIBLE_LORA),
            Self::QueueKv => document["pools"][0]["picker"] = weighted(&QUEUE_KV),
            Self::LeastCost(rule) => document["pools"][0]["picker"] = least_cost(rule),
        }
        let mut bootstrap = compose(destination, addresses, bench.wasm, &document)?;
        if self == Self::RoundRobin {
            remove_filter(&mut bootstrap)?;
            bootstrap.cluster_mut("llm_any")?["lb_policy"] = json!("ROUND_ROBIN");
        }
        let options = ProxyOptions {
            concurrency: Some(WORKERS),
            directory: bench.directory.join(addresses.traffic.port().to_string()),
            ..ProxyOptions::default()
        };
        let proxy = Proxy::start(bench.envoy, &bootstrap, &options).await?;
        if self != Self::RoundRobin {
            ready(addresses).await?;
        }
        Ok(Routing {
            router: self,
            addresses,
            proxy,
        })
    }
}

impl Routing {
    /// Where clients connect.
    pub(super) fn traffic(&self) -> SocketAddr {
        self.addresses.traffic
    }

    /// Requests that `endpoint` was sent.
    pub(super) async fn sent_to(&self, endpoint: SocketAddr) -> Result<u64> {
        if self.router != Router::RoundRobin {
            // Envoy's own count is short here: two workers may learn of an address at once, and
            // what one of them counts is then lost.
            let state = State::fetch(self.addresses.pages).await?;
            let address = endpoint.to_string();
            let mut endpoints = state.endpoints();
            let endpoint = endpoints.find(|it| it.address == address);
            return Ok(endpoint.map_or(0, |endpoint| endpoint.sent));
        }
        let clusters = fetch(self.addresses.admin, "/clusters").await?.text();
        let name = format!("llm_any::{endpoint}::rq_total::");
        let count = clusters.lines().find_map(|line| line.strip_prefix(&name));
        Ok(count.map_or(Ok(0), str::parse)?)
    }

    pub(super) async fn stop(self) -> Result<()> {
        self.proxy.stop().await
    }
}

impl fmt::Display for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RoundRobin => f.pad("round robin"),
            Self::Compatible => f.pad("compatible 2/2/3"),
            Self::CompatibleLora => f.pad("compatible 2/2/3, LoRA 3"),
            Self::QueueKv => f.pad("queue, KV cache 2/2"),
            Self::LeastCost(LeastCost::DEFAULT) => f.pad("least cost"),
            Self::LeastCost(rule) => {
                let LeastCost {
                    base_tokens: base,
                    overflow_weight: overflow,
                    backlog_weight: backlog,
                } = rule;
                f.pad(&format!("least cost {base}/{overflow}/{backlog}"))
            }
        }
    }
}

/// The reference picker's configuration with these scorers and weights.
fn weighted(scorers: &[(&str, u32)]) -> Value {
    let plugins = scorers.iter().map(|it| json!({"type": it.0}));
    let refs = scorers
        .iter()
        .map(|it| json!({"pluginRef": it.0, "weight": it.1}));
    json!({
        "plugins": plugins.collect::<Vec<_>>(),
        "schedulingProfiles": [{"name": "default", "plugins": refs.collect::<Vec<_>>()}],
    })
}

/// The default rule with these parameters.
fn least_cost(rule: LeastCost) -> Value {
    json!({
        "plugins": [{"type": "least-cost-scorer", "parameters": {
            "baseTokens": rule.base_tokens,
            "overflowWeight": rule.overflow_weight,
            "backlogWeight": rule.backlog_weight,
        }}],
    })
}

/// What the reference picker has for a pool that shares prefixes.
const COMPATIBLE: [(&str, u32); 3] = [
    ("queue-scorer", 2),
    ("kv-cache-utilization-scorer", 2),
    ("prefix-cache-scorer", 3),
];

/// What it has for adapters.
const COMPATIBLE_LORA: [(&str, u32); 4] = [
    ("queue-scorer", 2),
    ("kv-cache-utilization-scorer", 2),
    ("prefix-cache-scorer", 3),
    ("lora-affinity-scorer", 3),
];

/// What it has where only load counts.
const QUEUE_KV: [(&str, u32); 2] = [("queue-scorer", 2), ("kv-cache-utilization-scorer", 2)];

/// As many as a small proxy has; their state is shared, so that it makes no difference.
const WORKERS: u32 = 2;

#[cfg(test)]
mod tests {
    use picker_core::{Profile, Role, parse_config};

    use super::*;

    #[test]
    fn the_documents_are_the_profiles_they_are_named_after() {
        let endpoint = "127.0.0.1:4711".parse().unwrap();
        for (picker, profile) in [
            (weighted(&COMPATIBLE), Profile::compatible()),
            (least_cost(LeastCost::DEFAULT), Profile::default()),
        ] {
            let mut document = document(Destination::OriginalDst, &[endpoint]).unwrap();
            document["pools"][0]["picker"] = picker;
            let Ok(Role::Filter(config)) = parse_config(document.to_string().as_bytes()) else {
                panic!("{document} is no configuration of a filter");
            };
            assert_eq!(config.pools[0].plan.profiles, [profile]);
        }
    }
}
