//! What roots tell one another: registrations, their names, the lease. The collector and the local
//! pages work with whatever is there, and what is affirmed is found.

use std::io;

use picker_core::{
    Affirmed, Answer, Collector, Eagerness, Lease, LocalData, Registration, SharedData, Span,
    affirm, lease_length, lease_state, page, registered,
};
use serde_json::Value;

use crate::input::{Input, records};
use crate::workers::{NOW, POOL, stored};

/// The names of pools, the registration of `llm`, the lease, an answer to a scrape, and a request
/// for discovery.
pub fn check(input: &[u8]) {
    let mut input = Input(input);
    let shared = LocalData::default();
    for key in KEYS {
        shared.set(key, input.record());
    }
    let (body, discovery) = (input.record(), input.record());
    let pools = registered(&shared, NOW);
    assert!(
        pools
            .iter()
            .all(|(name, _)| !name.is_empty() && !name.contains('\n'))
    );
    collects(&shared, body);
    for text in [
        page::state(&shared, NOW),
        page::endpoint_discovery(&shared, discovery, NOW),
    ] {
        assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
    }
    is_held_by_one(&shared);
    is_found_when_affirmed(&shared);
}

/// What two roots and a collector leave.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let shared = LocalData::default();
    affirm(&shared, "other", DOCUMENT, NOW, NOW);
    affirm(&shared, POOL, DOCUMENT, NOW, NOW);
    Lease::new(1, lease_length(Span::from_millis(100))).try_hold(&shared, Eagerness::Service, NOW);
    let stored = KEYS.map(|key| stored(&shared, key));
    let page: &[u8] = b"vllm:num_requests_running 1\nvllm:num_requests_waiting 2\n";
    let discovery: &[u8] = br#"{"resource_names":["llm"]}"#;
    let [names, registration, lease] = &stored;
    Ok(vec![
        records([names, registration, lease, page, discovery]),
        records([names.as_slice(), registration]),
        records([b"llm\nllm\n\na", registration.as_slice(), lease]),
    ])
}

fn collects(shared: &LocalData, body: &[u8]) {
    let mut collector = Collector::default();
    collector.tick(shared, NOW);
    let mut scrapes = Vec::new();
    while let Some(scrape) = collector.poll_scrape(shared, NOW) {
        scrapes.push(scrape);
        assert!(scrapes.len() <= SCRAPES_MAX, "a scrape comes due again");
    }
    for scrape in &scrapes {
        let answer = Answer::Response { status: 200, body };
        let of = (scrape.pool.as_str(), scrape.scrape);
        let _ = collector.handle_answer(shared, of, answer, NOW);
    }
    collector.tick(shared, NOW.after(collector.period()));
}

/// Of two roots that try in turn, one holds the lease.
fn is_held_by_one(shared: &LocalData) {
    let length = lease_length(Span::from_millis(100));
    let mut roots = [Lease::new(1, length), Lease::new(2, length)];
    for tick in 0..8 {
        let now = NOW.after(Span::from_millis(tick * 100));
        let mut holders = 0;
        for root in &mut roots {
            holders += u8::from(root.try_hold(shared, Eagerness::Idle, now));
        }
        assert!(holders <= 1, "both hold at tick {tick}");
        let state = lease_state(shared);
        assert!(holders == 0 || state.is_some_and(|state| state.expires > now));
    }
}

/// Unless a root that was configured later is right, or the name of the pool was not added because
/// a registration without a name was there, which no root leaves.
fn is_found_when_affirmed(shared: &LocalData) {
    let affirmed = affirm(shared, POOL, DOCUMENT, NOW, NOW);
    let names = String::from_utf8(stored(shared, NAMES_KEY)).unwrap_or_default();
    if affirmed == Affirmed::Superseded || !names.split('\n').any(|name| name == POOL) {
        return;
    }
    let found = registered(shared, NOW);
    let is_ours = |(name, it): &(String, Registration)| name == POOL && it.document == DOCUMENT;
    assert!(found.iter().any(is_ours), "{affirmed:?}");
}

const NAMES_KEY: &str = "picker/pools";

const KEYS: [&str; 3] = [NAMES_KEY, "picker/llm/config", "picker/lease"];

/// More scrapes than the endpoints of a document that fits in an input.
const SCRAPES_MAX: usize = 4096;

const DOCUMENT: &str = r#"{"pools":[{"name":"llm","endpoints":[{"address":"10.0.0.1:8000"},{"address":"[::1]:80"}]}]}"#;
