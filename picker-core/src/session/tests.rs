//! Two workers of one Envoy, and a second Envoy.

use super::*;
use crate::filter::Filter;
use crate::pool::{Pool, PoolOptions};
use crate::profile::{Profile, WeightedScorer};
use crate::refusal::Refusal;
use crate::score::ScorerKind;
use crate::shared::LocalData;
use crate::snapshot::{Snapshot, publish};
use crate::ticket::{Answered, Pick};
use alloc::format;
use alloc::vec;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn token_header() -> Affinity {
    Affinity {
        by: AffinityBy::Token("x-session-token".into()),
        of_prefill: false,
    }
}

fn session_id() -> Affinity {
    let ids = SessionIds {
        sources: vec![Source::Header("x-session-id".into())],
        lifetime: Span::from_millis(300_000),
        sweep: Span::from_millis(10_000),
    };
    Affinity {
        by: AffinityBy::Id(ids),
        of_prefill: false,
    }
}

/// The shortest queue, among those that `affinity` leaves.
fn filtered(affinity: Affinity) -> Plan {
    Plan::of(Profile {
        filters: vec![Filter::Session(affinity)],
        scorers: vec![WeightedScorer {
            scorer: ScorerKind::Queue,
            weight: 1.0,
        }],
        ..Profile::default()
    })
}

/// The same with a say of `weight`, where the shortest queue has 1.
fn scored(affinity: Affinity, weight: f64) -> Plan {
    let mut plan = filtered(affinity.clone());
    let scorer = ScorerKind::Session(affinity);
    plan.profiles[0].filters.clear();
    plan.profiles[0]
        .scorers
        .push(WeightedScorer { scorer, weight });
    plan
}

/// A worker of a pool of three endpoints.
struct Worker(Pool, Draws);

impl Worker {
    fn new(plan: &Plan, owner: u64) -> Self {
        Self::with_key(plan, owner, None)
    }

    fn with_key(plan: &Plan, owner: u64, session_key: Option<SessionKey>) -> Self {
        let options = PoolOptions {
            name: "llm".into(),
            plan: plan.clone(),
            staleness_threshold: Span::from_millis(1 << 40),
            session_key,
            ..PoolOptions::default()
        };
        Self(Pool::new(options, snapshot(&[]), owner), Draws::new(owner))
    }

    fn pick(&mut self, shared: &LocalData, header: (&str, &str), millis: u64) -> Pick {
        self.try_pick(shared, header, millis).unwrap()
    }

    fn try_pick(
        &mut self,
        shared: &LocalData,
        (name, value): (&str, &str),
        millis: u64,
    ) -> Result<Pick, Refusal> {
        let request = Request {
            headers: vec![(name.into(), value.into())],
            ..Request::bodiless()
        };
        let now = at(millis);
        self.0.pick(shared, &request, &mut self.1, now)
    }

    /// A request that is answered at once; the endpoint, and the token that comes with the answer.
    fn ask(&mut self, shared: &LocalData, header: (&str, &str), millis: u64) -> (u32, String) {
        let mut pick = self.pick(shared, header, millis);
        let headers = self.0.answer_headers(&pick.ticket);
        let token = headers.first().map(|(_, token)| token.clone());
        let answered = Answered::default();
        self.0
            .on_done(shared, &mut pick.ticket, answered, at(millis));
        (pick.endpoint.0, token.unwrap_or_default())
    }

    /// Makes an endpoint look as if it had been sent much.
    fn load(&mut self, shared: &LocalData, endpoint: u32, requests: u32) {
        let mut snapshot = snapshot(&[]);
        for it in &mut snapshot.endpoints {
            let waiting = if it.id.0 == endpoint { requests } else { 0 };
            it.metrics.waiting = Some(waiting.into());
        }
        publish(shared, "llm", &snapshot);
    }
}

fn at(millis: u64) -> Timestamp {
    Timestamp(1_796_000_000_000_000).after(Span::from_millis(millis))
}

/// Three endpoints with empty queues, those that are named asleep.
fn snapshot(asleep: &[u32]) -> Snapshot {
    let addresses = (1..=3).map(|host| format!("10.0.0.{host}:80").parse().unwrap());
    let mut snapshot = Snapshot::unknown(addresses);
    for endpoint in &mut snapshot.endpoints {
        endpoint.scraped_at = Some(at(0));
        endpoint.metrics.waiting = Some(0.0);
        endpoint.metrics.sleeping = Some(asleep.contains(&endpoint.id.0));
    }
    snapshot
}

const NOBODY: (&str, &str) = ("x-other", "");

#[test]
fn a_token_leads_back_over_any_worker_and_says_nothing_else() {
    let plan = filtered(token_header());
    let shared = LocalData::default();
    let (mut one, mut other) = (Worker::new(&plan, 1), Worker::new(&plan, 2));
    let mut tokens: Vec<(u32, String)> = Vec::new();
    for round in 0..60 {
        let worker = if round % 2 == 0 { &mut one } else { &mut other };
        tokens.push(worker.ask(&shared, NOBODY, round));
    }
    tokens.sort_unstable();
    tokens.dedup();
    let endpoints: Vec<u32> = tokens.iter().map(|(endpoint, _)| *endpoint).collect();
    assert_eq!(endpoints, [1, 2, 3], "one token for each: {tokens:?}");
    for (endpoint, token) in &tokens {
        assert!(read_token(token).is_some(), "{token}");
        assert!(!token.contains("10.0.0"));
        for round in 0..10 {
            let header = ("x-session-token", token.as_str());
            let back = if round % 2 == 0 { &mut one } else { &mut other };
            assert_eq!(back.ask(&shared, header, 100).0, *endpoint);
        }
    }
}

#[test]
fn what_is_no_token_of_a_listed_endpoint_leads_nowhere() {
    let plan = filtered(token_header());
    let shared = LocalData::default();
    let mut worker = Worker::new(&plan, 1);
    let (home, token) = worker.ask(&shared, NOBODY, 0);
    let upper = token.to_uppercase();
    let mut forged = token.clone();
    let last = forged.pop().unwrap();
    forged.push(if last == '0' { '1' } else { '0' });
    for text in [
        "",
        "10.0.0.1:80",
        "ZGVmYXVsdC9wb2Q=",
        "+123456789abcdef",
        &token[1..],
        &format!("{token}0"),
        &forged,
    ] {
        worker.load(&shared, home, 0);
        let asked = (0..40).map(|round| worker.ask(&shared, ("x-session-token", text), 20 + round));
        let mut endpoints: Vec<u32> = asked.map(|(endpoint, _)| endpoint).collect();
        endpoints.sort_unstable();
        endpoints.dedup();
        assert_eq!(endpoints, [1, 2, 3], "{text:?}");
    }
    assert!(token == upper || read_token(&upper).is_none());
}

#[test]
fn a_configured_key_makes_tokens_for_all_envoys_and_a_drawn_one_for_this() {
    let plan = filtered(token_header());
    let token = |key: Option<&str>, seed| {
        let shared = LocalData::default();
        let key = key.map(SessionKey::new);
        let mut worker = Worker::with_key(&plan, seed, key);
        let mut asked = (0..60).map(|round| worker.ask(&shared, NOBODY, round));
        asked.find(|(endpoint, _)| *endpoint == 2).unwrap().1
    };
    assert_eq!(
        token(Some("a secret of all"), 1),
        token(Some("a secret of all"), 2)
    );
    assert_ne!(
        token(Some("a secret of all"), 1),
        token(Some("another secret"), 1)
    );
    assert_ne!(token(None, 1), token(None, 2));
}

#[test]
fn the_token_is_for_the_endpoint_that_answers() {
    let plan = filtered(token_header());
    let shared = LocalData::default();
    let mut worker = Worker::new(&plan, 1);
    let mut pick = worker.pick(&shared, NOBODY, 0);
    let other = 1 + pick.endpoint.0 % 3;
    let address = format!("10.0.0.{other}:80").parse().unwrap();
    let chosen = worker
        .0
        .on_served_by(&shared, &mut pick.ticket, address, at(1));
    assert!(!chosen);
    let headers = worker.0.answer_headers(&pick.ticket);
    let header = ("x-session-token", headers[0].1.as_str());
    assert_eq!(worker.ask(&shared, header, 2).0, other);
}

#[test]
fn a_session_stays_where_the_first_of_it_went_on_all_workers() {
    for plan in [filtered(session_id()), scored(session_id(), 2.0)] {
        let shared = LocalData::default();
        let (mut one, mut other) = (Worker::new(&plan, 1), Worker::new(&plan, 2));
        let mut homes: Vec<(String, u32)> = Vec::new();
        for round in 0..240 {
            let name = format!("session {}", round % 24);
            let worker = if round % 5 < 2 { &mut one } else { &mut other };
            let (endpoint, token) = worker.ask(&shared, ("x-session-id", &name), round);
            assert_eq!(token, "", "answers carry nothing");
            homes.push((name, endpoint));
        }
        homes.sort_unstable();
        homes.dedup();
        assert_eq!(homes.len(), 24, "{homes:?}");
        let mut endpoints: Vec<u32> = homes.iter().map(|(_, endpoint)| *endpoint).collect();
        endpoints.sort_unstable();
        endpoints.dedup();
        assert_eq!(endpoints, [1, 2, 3], "sessions are spread");
    }
}

/// Queue scores of 0 at home and 1 elsewhere: a say of 0.5 is too little, one of 2 is enough. What
/// outweighs the session does not move it.
#[test]
fn a_session_moves_only_when_its_endpoint_is_no_candidate() {
    let shared = LocalData::default();
    let (mut weak, mut strong) = (
        Worker::new(&scored(session_id(), 0.5), 1),
        Worker::new(&scored(session_id(), 2.0), 2),
    );
    let header = ("x-session-id", "a");
    let (home, _) = weak.ask(&shared, header, 0);
    weak.load(&shared, home, 9);
    assert_ne!(weak.ask(&shared, header, 100).0, home);
    assert_eq!(strong.ask(&shared, header, 101).0, home);
    publish(&shared, "llm", &snapshot(&[home]));
    let (moved, _) = strong.ask(&shared, header, 200);
    assert_ne!(moved, home, "it sleeps");
    publish(&shared, "llm", &snapshot(&[]));
    assert_eq!(strong.ask(&shared, header, 300).0, moved);
}

/// Used at 0 s, noted again at the first use after 10 s, kept for 300 s and up to 10 s more.
#[test]
fn a_session_is_remembered_for_a_time_after_its_last_use() {
    for (uses, kept) in [
        (&[0, 299_000][..], true),
        (&[0, 310_000], true),
        (&[0, 310_001], false),
        (&[0, 290_000, 590_000], true),
        (&[0, 9_000, 318_000], false),
    ] {
        let shared = LocalData::default();
        let mut worker = Worker::new(&filtered(session_id()), 1);
        let mut stayed = 0;
        for name in 0..20 {
            let name = format!("session {name}");
            let asked = uses.iter().map(|millis| {
                let header = ("x-session-id", name.as_str());
                worker.ask(&shared, header, *millis).0
            });
            let homes: Vec<u32> = asked.collect();
            stayed += u32::from(homes.first() == homes.last());
        }
        assert_eq!(stayed == 20, kept, "{uses:?}: {stayed} of 20");
    }
}

#[test]
fn a_use_is_noted_once_in_a_while() {
    let shared = LocalData::default();
    let mut worker = Worker::new(&filtered(session_id()), 1);
    let plain = LocalData::default();
    let mut other = Worker::new(&filtered(session_id()), 1);
    for millis in 0..50 {
        worker.ask(&shared, ("x-session-id", "a"), millis);
        other.ask(&plain, NOBODY, millis);
    }
    assert_eq!(shared.writes(), plain.writes() + 1);
}

#[test]
fn a_plan_without_sessions_keeps_none() {
    assert!(Sessions::new("llm", &Plan::default(), None).is_none());
    let shared = LocalData::default();
    let mut worker = Worker::new(&Plan::default(), 1);
    let (_, token) = worker.ask(&shared, ("x-session-token", "0123456789abcdef"), 0);
    assert_eq!(token, "");
    let mut value = Vec::new();
    shared.get("picker/llm/session-key", &mut value);
    assert_eq!(value, b"");
}
