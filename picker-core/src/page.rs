//! The local pages: what the picker knows, and its endpoints in the form in which Envoy asks for
//! them.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Map, Value, json};

use crate::config::{Role, parse};
use crate::endpoint::Address;
use crate::lease::lease_state;
use crate::ledger::{self, Ledger};
use crate::models::ServedModel;
use crate::registry::registered;
use crate::shared::SharedData;
use crate::snapshot::{EndpointState, Snapshot, generation, stored};
use crate::sorted::SortedMap;
use crate::{Span, Timestamp};

/// The state of all pools as JSON, for `/picker/state`.
pub fn state(shared: &impl SharedData, now: Timestamp) -> String {
    let pools: Vec<Value> = pools(shared, now)
        .into_iter()
        .map(|pool| {
            let mut bytes = Vec::new();
            shared.get(&ledger::key(&pool.name), &mut bytes);
            let ledger = Ledger::decode(&bytes);
            let endpoints = pool.snapshot.endpoints.iter();
            let endpoints: Vec<Value> = endpoints
                .map(|it| endpoint_state(it, &ledger, pool.threshold, now))
                .collect();
            json!({
                "name": pool.name,
                "generation": generation(shared, &pool.name),
                "endpoints": endpoints,
                "workers": workers(&ledger, now),
            })
        })
        .collect();
    let collector = lease_state(shared).map_or(Value::Null, |lease| {
        json!({
            "holder": format!("{:016x}", lease.holder),
            "held": now < lease.expires,
            "expires_ms": lease.expires.since(now).as_millis(),
        })
    });
    json!({ "pools": pools, "collector": collector }).to_string()
}

/// The answer to a discovery request for endpoints, `POST /v3/discovery:endpoints`.
///
/// A resource is named as its pool, or as several with commas between them, for a cluster that
/// serves them all. A name that is no pool's is left out, so Envoy keeps what it had. The version
/// is the endpoints themselves, hashed: it moves exactly when they do, and is the same from every
/// Envoy.
pub fn endpoint_discovery(shared: &impl SharedData, request: &[u8], now: Timestamp) -> String {
    let request: Value = serde_json::from_slice(request).unwrap_or_default();
    let wanted = request
        .get("resource_names")
        .or_else(|| request.get("resourceNames"));
    let pools = pools(shared, now);
    let names: Vec<&str> = match wanted.and_then(Value::as_array) {
        Some(names) => names.iter().filter_map(Value::as_str).collect(),
        None => pools.iter().map(|it| it.name.as_str()).collect(),
    };
    let resources = names.into_iter().filter_map(|name| {
        let named = |pool: &&PoolState| name.split(',').any(|it| it == pool.name);
        let mut named = pools.iter().filter(named).peekable();
        named.peek()?;
        Some(load_assignment(name, named.map(|it| &it.snapshot)))
    });
    let resources: Vec<Value> = resources.collect();
    let text = Value::Array(resources.clone()).to_string();
    json!({
        "version_info": format!("{:016x}", xxhash_rust::xxh3::xxh3_64(text.as_bytes())),
        "type_url": TYPE_URL,
        "resources": resources,
    })
    .to_string()
}

struct PoolState {
    name: String,
    threshold: Span,
    snapshot: Snapshot,
}

/// The registered pools, each with its last snapshot or, before the first, with its endpoints as
/// configured.
fn pools(shared: &impl SharedData, now: Timestamp) -> Vec<PoolState> {
    let mut pools = Vec::new();
    for (name, registration) in registered(shared, now) {
        let Ok(Role::Filter(config)) = parse(registration.document.as_bytes()) else {
            continue;
        };
        let Some(config) = config.pools.into_iter().next() else {
            continue;
        };
        let addresses = config.endpoints.iter().map(|endpoint| endpoint.address);
        let snapshot = stored(shared, &name).unwrap_or_else(|| Snapshot::unknown(addresses));
        pools.push(PoolState {
            name,
            threshold: config.scrape.staleness_threshold,
            snapshot,
        });
    }
    pools
}

fn endpoint_state(
    endpoint: &EndpointState,
    ledger: &Ledger,
    threshold: Span,
    now: Timestamp,
) -> Value {
    let load = ledger.total(endpoint.id, now);
    let metrics = &endpoint.metrics;
    let mut state = Map::new();
    for (key, value) in [
        ("id", json!(endpoint.id.0)),
        ("address", json!(endpoint.address.to_string())),
        ("reachable", json!(endpoint.reachable)),
        ("draining", json!(endpoint.draining)),
        ("fresh", json!(endpoint.is_fresh(now, threshold))),
        (
            "age_ms",
            json!(endpoint.scraped_at.map(|at| now.since(at).as_millis())),
        ),
        ("running", json!(metrics.running)),
        ("waiting", json!(metrics.waiting)),
        ("kv_usage", json!(metrics.kv_usage)),
        ("kv_usage_max", json!(metrics.kv_usage_max)),
        ("capacity_tokens", json!(metrics.capacity_tokens)),
        ("prefix_queries", json!(metrics.prefix_queries)),
        ("prefix_hits", json!(metrics.prefix_hits)),
        ("sleeping", json!(metrics.sleeping)),
        ("models", json!(endpoint.models.as_deref().map(models))),
        ("gpu_usage", json!(endpoint.gpus.map(|it| it.usage))),
        ("in_flight", json!(load.requests)),
        ("in_flight_prefill_tokens", json!(load.prefill_tokens)),
        ("sent", json!(load.sent)),
    ] {
        state.insert(key.to_string(), value);
    }
    Value::Object(state)
}

fn models(models: &[ServedModel]) -> Vec<&str> {
    models.iter().map(|model| model.id.as_str()).collect()
}

fn workers(ledger: &Ledger, now: Timestamp) -> Vec<Value> {
    let live = ledger.rows.iter().filter(|row| row.is_live(now));
    live.map(|row| {
        let sent = row
            .loads
            .iter()
            .fold(0_u32, |sum, (_, load)| sum.wrapping_add(load.sent));
        let in_flight: u64 = row
            .loads
            .iter()
            .map(|(_, load)| u64::from(load.requests))
            .sum();
        json!({
            "slot": row.slot,
            "sent": sent,
            "in_flight": in_flight,
            "heartbeat_age_ms": now.since(row.heartbeat).as_millis(),
        })
    })
    .collect()
}

fn load_assignment<'s>(name: &str, snapshots: impl Iterator<Item = &'s Snapshot>) -> Value {
    let mut known: SortedMap<Address, ()> = SortedMap::default();
    let mut endpoints = Vec::new();
    for endpoint in snapshots.flat_map(|it| &it.endpoints) {
        let address = endpoint.address;
        if known.get(&address).is_some() {
            continue;
        }
        known.insert(address, ());
        let socket = json!({"address": address.ip(), "port_value": address.port()});
        let mut listed = json!({"endpoint": {"address": {"socket_address": socket}}});
        if endpoint.draining {
            listed["health_status"] = "DRAINING".into();
        }
        endpoints.push(listed);
    }
    json!({
        "@type": TYPE_URL,
        "cluster_name": name,
        "endpoints": [{ "lb_endpoints": endpoints }],
    })
}

const TYPE_URL: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::affirm;
    use crate::shared::LocalData;
    use crate::snapshot::{GpuUsage, publish};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const DOCUMENT: &str = r#"{"pools":[{"name":"llm","endpoints":[{"address":"10.0.0.1:8000"},{"address":"[::1]:80"}]}]}"#;

    fn registered_pool() -> LocalData {
        let shared = LocalData::default();
        affirm(&shared, "llm", DOCUMENT, Timestamp(1), Timestamp(1));
        shared
    }

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn envoy_gets_the_endpoints_of_the_pools_it_asks_for() {
        let shared = registered_pool();
        let ask = |names: &str| {
            let request = format!(r#"{{"resource_names":[{names}]}}"#);
            parsed(&endpoint_discovery(
                &shared,
                request.as_bytes(),
                Timestamp(2),
            ))
        };
        let answer = ask(r#""llm""#);
        let assignment = &answer["resources"][0];
        assert_eq!(assignment["cluster_name"], "llm");
        let endpoints = assignment["endpoints"][0]["lb_endpoints"]
            .as_array()
            .unwrap();
        let sockets: Vec<&Value> = endpoints
            .iter()
            .map(|it| &it["endpoint"]["address"]["socket_address"])
            .collect();
        assert_eq!(
            sockets[0],
            &json!({"address": "10.0.0.1", "port_value": 8000})
        );
        assert_eq!(sockets[1], &json!({"address": "::1", "port_value": 80}));
        assert_eq!(ask(r#""other""#)["resources"], json!([]));
        assert_eq!(ask(r#""llm""#)["version_info"], answer["version_info"]);
        publish(
            &shared,
            "llm",
            &Snapshot::unknown(["10.0.0.9:1".parse().unwrap()]),
        );
        assert_ne!(ask(r#""llm""#)["version_info"], answer["version_info"]);
        let all = parsed(&endpoint_discovery(&shared, b"not json", Timestamp(2)));
        assert_eq!(all["resources"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_cluster_of_several_pools_has_the_endpoints_of_all_of_them_once() {
        let shared = registered_pool();
        let other = DOCUMENT.replace("llm", "b").replace("10.0.0.1", "10.0.0.2");
        affirm(&shared, "b", &other, Timestamp(1), Timestamp(1));
        for (name, expected) in [
            ("llm", &["10.0.0.1", "::1"][..]),
            ("llm,b", &["10.0.0.1", "::1", "10.0.0.2"]),
            ("b,none", &["10.0.0.2", "::1"]),
            ("none,other", &[]),
            ("ll", &[]),
        ] {
            let request = format!(r#"{{"resource_names":["{name}"]}}"#);
            let answer = endpoint_discovery(&shared, request.as_bytes(), Timestamp(2));
            let answer = parsed(&answer);
            let assignment = &answer["resources"][0];
            let endpoints = assignment["endpoints"][0]["lb_endpoints"].as_array();
            let address = "/endpoint/address/socket_address/address";
            let found = endpoints
                .into_iter()
                .flatten()
                .map(|it| it.pointer(address));
            let found: Vec<_> = found.map(|it| it.unwrap().as_str().unwrap()).collect();
            assert_eq!(found, expected, "{name}");
            let is_named = found.is_empty() || assignment["cluster_name"] == name;
            assert!(is_named, "{name}: {assignment}");
        }
    }

    #[test]
    fn the_state_says_null_for_what_is_unknown() {
        let state = parsed(&state(&registered_pool(), Timestamp(2)));
        let endpoint = &state["pools"][0]["endpoints"][0];
        assert_eq!(endpoint["address"], "10.0.0.1:8000");
        assert_eq!(
            (&endpoint["waiting"], &endpoint["age_ms"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(
            (&endpoint["fresh"], &endpoint["in_flight"]),
            (&json!(false), &json!(0))
        );
        assert_eq!(state["collector"], Value::Null);
        assert_eq!(
            (&endpoint["models"], &endpoint["gpu_usage"]),
            (&Value::Null, &Value::Null)
        );
    }

    #[test]
    fn the_state_says_what_endpoints_serve_and_how_busy_their_gpus_were() {
        let shared = registered_pool();
        let mut snapshot = Snapshot::unknown(["10.0.0.1:8000".parse().unwrap()]);
        let model = |id: &str, parent: Option<&str>| ServedModel {
            id: id.into(),
            parent: parent.map(String::from),
        };
        let endpoint = &mut snapshot.endpoints[0];
        endpoint.models = Some([model("base", None), model("tuned", Some("base"))].into());
        endpoint.gpus = Some(GpuUsage {
            usage: 0.25,
            read_at: Timestamp(1),
        });
        publish(&shared, "llm", &snapshot);
        let state = parsed(&state(&shared, Timestamp(2)));
        let endpoint = &state["pools"][0]["endpoints"][0];
        assert_eq!(endpoint["models"], json!(["base", "tuned"]));
        assert_eq!(endpoint["gpu_usage"], json!(0.25));
    }
}
