//! A configuration as JSON with every default filled in; it reads back as the same configuration,
//! but for the key of session tokens, which is a secret.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Map, Value, json};

use super::filter::LIST_MODELS;
use super::pool::FAILURE_MODES;
use super::{Config, Destination, EndpointConfig, Limits, Match, PoolConfig, ScrapeConfig, units};
use crate::rewrite::RewriteRule;
use crate::time::Span;
use crate::trust::TrustSource;

impl Config {
    /// The configuration in effect as JSON, indented; without the key of session tokens, which is a
    /// secret.
    pub fn to_json(&self) -> String {
        let pools: Vec<Value> = self.pools.iter().map(pool).collect();
        let destination = match &self.destination {
            Destination::Header(header) => json!({"via": "header", "header": header}),
            Destination::FilterState { holds_headers } => {
                json!({"via": "filterState", "holdHeaders": holds_headers})
            }
        };
        let mut document = json!({
            "pools": pools,
            "destination": destination,
            "paths": {"prefixes": self.paths.prefixes, "admin": self.paths.admin},
            "strict": self.strict,
            "strictModels": self.strict_models,
            "listModels": name_of(&LIST_MODELS, self.list_models),
            "trust": {
                "priority": trusted(&self.trust.priority),
                "fairness": trusted(&self.trust.fairness),
            },
        });
        if let Some(bases) = &self.model_headers {
            let bases = bases.iter();
            let bases: Vec<Value> = bases
                .map(|it| json!({"baseModel": it.model, "adapters": it.adapters}))
                .collect();
            document["modelHeaders"] = json!({"baseModels": bases});
        }
        format!("{document:#}")
    }
}

impl PoolConfig {
    /// The pool in effect as a document of its own, in one line; equal pools give equal documents.
    pub fn to_document(&self) -> String {
        let mut pool = pool(self);
        // It names a pool that is not in the document.
        if let Some(pool) = pool.as_object_mut() {
            pool.remove("fallback");
        }
        json!({"pools": [pool]}).to_string()
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
    let rewrites: Vec<Value> = pool.rewrites.iter().map(rewrite).collect();
    let mut shown = json!({
        "name": pool.name,
        "match": matches(&pool.matches),
        "models": pool.models,
        "modelRewrites": rewrites,
        "publicNames": pool.public_names,
        "engine": pool.engine.name(),
        "endpoints": endpoints,
        "scrape": scrape(&pool.scrape),
        "cache": {"capacityTokens": capacity, "hashSeed": pool.cache.hash_seed},
        "objectives": objectives,
        "picker": pool.plan.document,
        "emitScores": pool.emit_scores,
        "failureMode": name_of(&FAILURE_MODES, pool.failure_mode),
        "limits": limits(pool.limits),
    });
    if let Some(fallback) = &pool.fallback {
        shown["fallback"] = json!({"pool": fallback.pool, "model": fallback.model});
    }
    // Whoever discovers lists nothing.
    if let (Some(discovery), Some(shown)) = (&pool.discovery, shown.as_object_mut()) {
        shown.remove("endpoints");
        shown.insert("discovery".to_string(), discovery.show());
    }
    shown
}

fn rewrite(rule: &RewriteRule) -> Value {
    let models = rule.models.iter();
    let matches: Vec<Value> = models
        .map(|it| json!({"model": {"type": "Exact", "value": it}}))
        .collect();
    let targets = rule.targets.iter();
    let targets: Vec<Value> = targets
        .map(|it| json!({"modelRewrite": it.model, "weight": it.weight}))
        .collect();
    json!({"matches": matches, "targets": targets, "stickyHeader": rule.sticky_header})
}

fn name_of<T: Copy + PartialEq>(names: &[(&'static str, T)], value: T) -> Option<&'static str> {
    let found = names.iter().find(|(_, it)| *it == value);
    found.map(|(name, _)| *name)
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
