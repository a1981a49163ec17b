//! What the picker's page `/picker/state` says.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::http::fetch;

/// The whole page.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct State {
    /// All pools.
    pub pools: Vec<PoolState>,
    /// Who scrapes; `None` while nobody has begun.
    pub collector: Option<CollectorState>,
}

/// One pool.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct PoolState {
    /// Its name.
    pub name: String,
    /// How often its endpoints or their metrics have been published.
    pub generation: Option<u64>,
    /// Its endpoints.
    pub endpoints: Vec<EndpointState>,
    /// The workers that have picked for it.
    pub workers: Vec<WorkerState>,
}

/// One endpoint; `None` is unknown.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct EndpointState {
    /// The number of its incarnation.
    pub id: u64,
    /// Where it listens.
    pub address: String,
    /// Whether something listens there, as far as it is known.
    pub reachable: bool,
    /// Whether it gets no new requests.
    #[serde(default)]
    pub draining: bool,
    /// Whether its metrics are within the age limit.
    pub fresh: bool,
    /// The age of its metrics, in milliseconds.
    pub age_ms: Option<f64>,
    /// Requests executing.
    pub running: Option<f64>,
    /// Requests queued.
    pub waiting: Option<f64>,
    /// Fraction of KV blocks in use.
    pub kv_usage: Option<f64>,
    /// Tokens looked up in the prefix cache.
    pub prefix_queries: Option<f64>,
    /// Tokens found in the prefix cache.
    pub prefix_hits: Option<f64>,
    /// Tokens that its cache holds.
    pub capacity_tokens: Option<f64>,
    /// What it serves, where that is asked for.
    pub models: Option<Vec<String>>,
    /// How busy its GPUs were, where that is asked for.
    pub gpu_usage: Option<f64>,
    /// Requests sent by all workers and not yet done.
    pub in_flight: i64,
    /// Requests sent by all workers.
    pub sent: u64,
}

/// One worker.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct WorkerState {
    /// Its slot.
    pub slot: u64,
    /// Requests it has sent.
    pub sent: u64,
    /// Requests it has sent and that are not done.
    pub in_flight: i64,
    /// The age of its last sign of life, in milliseconds.
    pub heartbeat_age_ms: Option<f64>,
}

/// The lease of the collector.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct CollectorState {
    /// Whether a root holds the lease now.
    pub held: bool,
}

impl State {
    /// Reads the page.
    pub async fn fetch(pages: SocketAddr) -> Result<Self> {
        let response = fetch(pages, PATH).await?;
        ensure!(
            response.status == 200,
            "{PATH} answered {}",
            response.status
        );
        serde_json::from_slice(&response.body)
            .with_context(|| format!("{PATH} is not as expected: {}", response.text()))
    }

    /// The endpoints of all pools.
    pub fn endpoints(&self) -> impl Iterator<Item = &EndpointState> {
        self.pools.iter().flat_map(|pool| &pool.endpoints)
    }

    /// The workers of all pools.
    pub fn workers(&self) -> impl Iterator<Item = &WorkerState> {
        self.pools.iter().flat_map(|pool| &pool.workers)
    }
}

/// The page's path.
const PATH: &str = "/picker/state";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_null_is_unknown() {
        let page = r#"{"pools":[{"name":"llm","generation":1,"endpoints":[{"id":1,
            "address":"127.0.0.1:8001","reachable":true,"fresh":false,"age_ms":null,"running":null,"waiting":null,
            "kv_usage":null,"prefix_queries":null,"prefix_hits":null,"capacity_tokens":null,
            "in_flight":2,"sent":17}],"workers":[]}],"collector":null}"#;
        let state: State = serde_json::from_str(page).unwrap();
        let endpoint = state.endpoints().next().unwrap();
        assert_eq!((endpoint.in_flight, endpoint.running), (2, None));
    }
}
