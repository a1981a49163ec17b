//! Every recorded request gets an endpoint, whoever ranks them.

#![cfg(test)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use picker_core::{
    Address, Answered, Draws, HashSeed, LocalData, Plan, Pool, PoolOptions, Request, RequestFault,
    RequestScanner, Role, Shape, Snapshot, Span, Timestamp, parse_config, publish,
};
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp(1_000_000_000);

/// A pool of eight idle endpoints.
fn pool(shared: &LocalData, plan: Plan) -> Pool {
    let addresses: Vec<Address> = (1..=8)
        .map(|host| format!("10.0.0.{host}:8000").parse().unwrap())
        .collect();
    let mut idle = Snapshot::unknown(addresses.clone());
    for endpoint in &mut idle.endpoints {
        endpoint.scraped_at = Some(NOW);
        endpoint.metrics.waiting = Some(0.0);
        endpoint.metrics.kv_usage = Some(0.0);
    }
    publish(shared, "llm", &idle);
    let options = PoolOptions {
        name: "llm".into(),
        plan,
        labels: Vec::new(),
        staleness_threshold: Span::from_millis(2_000),
        capacity_tokens: None,
        ..PoolOptions::default()
    };
    Pool::new(options, Snapshot::unknown(addresses), 1)
}

fn plan(scorer: &str) -> Plan {
    let document = json!({"pools": [{
        "name": "llm",
        "endpoints": [{"address": "10.0.0.1:8000"}],
        "picker": {"plugins": [{"type": scorer}]},
    }]});
    match parse_config(document.to_string().as_bytes()) {
        Ok(Role::Filter(config)) => config.pools[0].plan.clone(),
        other => panic!("{scorer}: {other:?}"),
    }
}

fn read(shape: Shape, body: &[u8]) -> Request {
    let mut scanner = RequestScanner::new(shape);
    scanner.push(body);
    scanner.finish(HashSeed::new("llm"))
}

/// What is recorded, a request without a body and one with a body of another coding.
fn recorded() -> Vec<(String, Request)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/requests");
    let index = fs::read(directory.join("index.json")).unwrap();
    let index: Value = serde_json::from_slice(&index).unwrap();
    let entries = index.as_array().unwrap().iter();
    let unread = Request::unread(Shape::Messages, RequestFault::Undecodable);
    let others = [("bodiless", Request::bodiless()), ("unread", unread)];
    entries
        .map(|entry| {
            let file = entry["file"].as_str().unwrap();
            let shape = Shape::of_path(entry["path"].as_str().unwrap(), &[]).unwrap();
            let body = fs::read(directory.join(file)).unwrap();
            (file.to_owned(), read(shape, &body))
        })
        .chain(others.map(|(name, request)| (name.to_owned(), request)))
        .collect()
}

#[test]
fn every_request_gets_an_endpoint_whichever_scorer_stands_alone() {
    for scorer in [
        "least-cost-scorer",
        "queue-scorer",
        "kv-cache-utilization-scorer",
        "prefix-cache-scorer",
    ] {
        let shared = LocalData::default();
        let mut pool = pool(&shared, plan(scorer));
        let mut draws = Draws::new(7);
        for (name, request) in recorded() {
            // Twice, so that the second finds what the first left.
            for _ in 0..2 {
                let pick = pool.pick(&shared, &request, &mut draws, NOW);
                let pick = pick.unwrap_or_else(|refusal| panic!("{scorer}, {name}: {refusal}"));
                assert_eq!(pick.destinations.len(), 1, "{scorer}, {name}");
                let mut ticket = pick.ticket;
                pool.on_done(&shared, &mut ticket, Answered::default(), NOW);
            }
        }
    }
}

#[test]
fn prompts_without_a_model_spread_like_prompts_with_one() {
    for model in ["", r#""model":"m","#] {
        let shared = LocalData::default();
        let mut pool = pool(&shared, Plan::default());
        let mut draws = Draws::new(7);
        let mut sent = BTreeMap::new();
        for number in 0..1000 {
            let prompt = format!("{number} of a thousand prompts. ").repeat(40);
            let body = format!(r#"{{{model}"prompt":"{prompt}"}}"#);
            let request = read(Shape::Completions, body.as_bytes());
            let pick = pool.pick(&shared, &request, &mut draws, NOW).unwrap();
            *sent.entry(pick.endpoint).or_insert(0) += 1;
            // Nothing stays in flight: only the prompts can spread these.
            let mut ticket = pick.ticket;
            pool.on_done(&shared, &mut ticket, Answered::default(), NOW);
        }
        let counts: Vec<i32> = sent.into_values().collect();
        assert_eq!(counts.len(), 8, "{model}");
        assert!(
            counts.iter().all(|it| (60..250).contains(it)),
            "{model}: {counts:?}"
        );
    }
}
