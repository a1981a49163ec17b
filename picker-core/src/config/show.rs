//! A configuration as JSON with every default filled in; it reads back as the same configuration,
//! but for the key of session tokens, which is a secret.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Map, Value, json};

use super::pool::FAILURE_MODES;
use super::{Config, Destination, EndpointConfig, Limits, Match, PoolConfig, ScrapeConfig, units};
use crate::time::Span;
use crate::trust::TrustSource;

impl Config {
    /// The configuration in effect as JSON, indented; without the key of session tokens, which is a
    /// secret.
    pub fn to_json(&self) -> String {
        let pools: Vec<Value> = self.pools.iter().map(pool).collect();
        let destination = match &self.destination {
            Destination::Header(header) => json!({"via": "header", "header": header}),
            Destination::FilterState => json!({"via": "filterState"}),
        };
        let document = json!({
            "pools": pools,
            "destination": destination,
            "paths": {"prefixes": self.paths.prefixes, "admin": self.paths.admin},
            "strict": self.strict,
            "trust": {
                "priority": trusted(&self.trust.priority),
                "fairness": trusted(&self.trust.fairness),
            },
        });
        format!("{document:#}")
    }
}

impl PoolConfig {
    /// The pool in effect as a document of its own, in one line; equal pools give equal documents.
    pub fn to_document(&self) -> String {
        json!({"pools": [pool(self)]}).to_string()
    }
}

fn pool(pool: &PoolConfig) -> Value {
    let endpoints: Vec<Value> = pool.endpoints.iter().map(endpoint).collect();
    let objectives = pool.objectives.iter();
    let objectives: Vec<Value> = objectives
        .map(|it| json!({"name": it.name, "priority": it.priority}))
        .collect();
    let capacity = match pool.cache.capacity_tokens {
        Some(tokens) => json!(tokens),
        None => json!("auto"),
    };
    let failure_mode = FAILURE_MODES
        .iter()
        .find(|(_, it)| *it == pool.failure_mode);
    json!({
        "name": pool.name,
        "match": matches(&pool.matches),
        "models": pool.models,
        "engine": pool.engine.name(),
        "endpoints": endpoints,
        "scrape": scrape(&pool.scrape),
        "cache": {"capacityTokens": capacity, "hashSeed": pool.cache.hash_seed},
        "objectives": objectives,
        "picker": pool.plan.document,
        "emitScores": pool.emit_scores,
        "failureMode": failure_mode.map(|(name, _)| *name),
        "limits": limits(pool.limits),
    })
}

/// The limits; that without a default only where it is set.
fn limits(limits: Limits) -> Value {
    let mut shown = json!({"requestBodyBytes": units::show_size(limits.request_body_bytes)});
    if let Some(requests) = limits.requests_per_endpoint {
        shown["requestsPerEndpoint"] = requests.into();
    }
    shown
}

fn matches(matches: &Match) -> Value {
    json!({
        "clusters": matches.clusters,
        "routes": matches.routes,
        "hosts": matches.hosts,
        "pathPrefixes": matches.path_prefixes,
    })
}

fn endpoint(endpoint: &EndpointConfig) -> Value {
    let labels = endpoint.labels.iter();
    let labels: Map<String, Value> = labels
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    json!({"address": endpoint.address.to_string(), "labels": labels})
}

fn scrape(scrape: &ScrapeConfig) -> Value {
    let duration = |span: Span| units::show_duration(span);
    json!({
        "cluster": scrape.cluster,
        "interval": duration(scrape.interval),
        "timeout": duration(scrape.timeout),
        "path": scrape.path,
        "stalenessThreshold": duration(scrape.staleness_threshold),
    })
}

fn trusted(source: &TrustSource) -> Value {
    match source {
        TrustSource::Headers(names) => match names.as_slice() {
            [name] => json!({"header": name}),
            names => json!({"header": names}),
        },
        TrustSource::Metadata { namespace, path } => {
            json!({"metadata": {"namespace": namespace, "path": path}})
        }
        TrustSource::FilterState(name) => json!({"filterState": name}),
        TrustSource::Nobody => json!({"none": true}),
    }
}
