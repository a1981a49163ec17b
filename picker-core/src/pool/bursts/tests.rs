//! A worker that holds requests, and what it knows when it sends them.

use super::*;
use crate::burst::Burst;
use crate::plan::Plan;
use crate::pool::{Arrived, Asking, PoolOptions, Turn};
use crate::producers::Producers;
use crate::profile::Profile;
use crate::request::Prompt;
use crate::score::ScorerKind;
use crate::shape::Shape;
use crate::shared::LocalData;
use crate::snapshot::{Snapshot, publish};
use crate::{BLOCK_BYTES, BlockHash, Span};
use alloc::{format, vec};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const BURST: Burst = Burst {
    window: Span::from_millis(100),
    requests_max: 8,
    per_endpoint_max: usize::MAX,
    block: 1,
    blocks_max: 2048,
    lead: 0,
    by_bytes: false,
};

struct Worker<'a> {
    shared: &'a LocalData,
    pool: Pool,
    draws: Draws,
}

fn at(millis: u64) -> Timestamp {
    Timestamp(1_796_000_000_000_000).after(Span::from_millis(millis))
}

fn request(prompt: u64) -> Request {
    let block = |it: u64| BlockHash(prompt * 1_000_003 + it);
    let prompts = vec![Prompt {
        bytes: 10 * BLOCK_BYTES as u64,
        blocks: (1..=10).map(block).collect(),
    }];
    Request {
        shape: Some(Shape::Completions),
        prompts,
        ..Request::bodiless()
    }
}

impl<'a> Worker<'a> {
    fn new(shared: &'a LocalData, burst: Burst) -> Self {
        let address = |host| format!("10.0.0.{host}:8000").parse().unwrap();
        let mut snapshot = Snapshot::unknown((1..=3).map(address));
        for endpoint in &mut snapshot.endpoints {
            endpoint.scraped_at = Some(at(0));
            endpoint.metrics.waiting = Some(0.0);
            endpoint.metrics.kv_usage = Some(0.0);
        }
        publish(shared, "llm", &snapshot);
        // Nothing else spreads the prompts.
        let mut by_prefix = Profile::compatible();
        let scorers = &mut by_prefix.scorers;
        scorers.retain(|it| matches!(it.scorer, ScorerKind::Prefix(_)));
        let options = PoolOptions {
            name: "llm".into(),
            plan: Plan {
                producers: Producers {
                    burst: Some(burst),
                    ..Producers::default()
                },
                ..Plan::of(by_prefix)
            },
            staleness_threshold: Span::from_millis(10_000),
            ..PoolOptions::default()
        };
        Self {
            shared,
            pool: Pool::new(options, snapshot, 1),
            draws: Draws::new(1),
        }
    }

    fn arrive(&mut self, request: &Request, millis: u64) -> Arrived {
        let asking = Asking {
            bytes: 10,
            received_at: at(millis),
        };
        let asked = (request, asking);
        let arrived = self
            .pool
            .arrive(self.shared, asked, &mut self.draws, at(millis));
        arrived.unwrap()
    }

    #[track_caller]
    fn held(&mut self, request: &Request, millis: u64) -> WaitId {
        match self.arrive(request, millis) {
            Arrived::Waits(id) => id,
            Arrived::Sent(pick) => panic!("{pick:?}"),
        }
    }

    /// Sends all whose turn it is; `requests` are those that are held.
    fn send(&mut self, requests: &[(WaitId, Request)], millis: u64) -> Vec<(WaitId, Pick)> {
        let mut sent = Vec::new();
        while let Turn::Mine(id) = self.pool.turn(self.shared, at(millis)) {
            let (_, request) = requests.iter().find(|(it, _)| *it == id).unwrap();
            let (asked, draws) = ((id, request), &mut self.draws);
            let pick = self.pool.start(self.shared, asked, draws, at(millis));
            sent.push((id, pick.unwrap().unwrap()));
        }
        sent
    }
}

#[test]
fn each_prompt_of_a_burst_goes_to_one_endpoint_and_counts_there_for_what_it_is() {
    let shared = LocalData::default();
    let mut worker = Worker::new(&shared, BURST);
    let requests = (0..6).map(|it| request(it % 3));
    let held: Vec<_> = requests.map(|it| (worker.held(&it, 0), it)).collect();
    assert_eq!(worker.pool.waiting(), 6);
    assert_eq!(worker.send(&held, 99), []);
    let sent = worker.send(&held, 100);
    assert_eq!((sent.len(), worker.pool.waiting()), (6, 0));
    let mut homes = Vec::new();
    for (place, (id, _)) in held.iter().enumerate() {
        let (_, pick) = sent.iter().find(|(it, _)| it == id).unwrap();
        // The first of a prompt is computed, and nobody is told otherwise.
        assert_eq!(pick.matched, if place < 3 { 0 } else { 10 }, "{place}");
        homes.push(pick.endpoint.0);
    }
    assert_eq!(homes[..3], homes[3..]);
    homes.truncate(3);
    homes.sort_unstable();
    assert_eq!(homes, [1, 2, 3]);
}

#[test]
fn a_full_batch_does_not_wait_for_its_window() {
    let shared = LocalData::default();
    let mut worker = Worker::new(&shared, BURST);
    let requests = (0..8).map(request);
    let held: Vec<_> = requests.map(|it| (worker.held(&it, 0), it)).collect();
    assert_eq!(worker.send(&held, 0).len(), 8);
}

#[test]
fn the_endpoint_with_the_fewest_requests_comes_first() {
    let shared = LocalData::default();
    let mut worker = Worker::new(&shared, BURST);
    let mut homes = Vec::new();
    // One by one, so each is a batch of its own.
    for prompt in 0..3 {
        let held = [(worker.held(&request(prompt), 200 * prompt), request(prompt))];
        let sent = worker.send(&held, 200 * prompt + 100);
        homes.push(sent[0].1.endpoint.0);
    }
    assert_eq!(homes, [1, 2, 3]);
}

#[test]
fn what_an_earlier_batch_placed_is_known_where_beginnings_count() {
    for (lead, expected) in [(0, 2), (10, 1), (11, 2)] {
        let shared = LocalData::default();
        let mut worker = Worker::new(&shared, Burst { lead, ..BURST });
        for (millis, expected) in [(0, 1), (200, expected)] {
            let held = [(worker.held(&request(1), millis), request(1))];
            let sent = worker.send(&held, millis + 100);
            assert_eq!(sent[0].1.endpoint.0, expected, "{lead}");
        }
    }
}

#[test]
fn who_cannot_be_placed_with_others_is_sent_at_once() {
    let shared = LocalData::default();
    let mut worker = Worker::new(&shared, BURST);
    let begun = worker.held(&request(1), 0);
    let placed = worker.send(&[(begun, request(1))], 100);
    assert_eq!(placed.len(), 1);
    for request in [
        Request::bodiless(),
        Request {
            prompts: Vec::new(),
            ..request(1)
        },
        Request {
            only_cached: true,
            ..request(1)
        },
    ] {
        let arrived = worker.arrive(&request, 200);
        assert!(matches!(arrived, Arrived::Sent(_)), "{arrived:?}");
    }
    assert_eq!(worker.pool.waiting(), 0);
}

#[test]
fn who_leaves_is_not_sent_and_nobody_is_left_when_the_configuration_goes() {
    let shared = LocalData::default();
    let mut worker = Worker::new(&shared, BURST);
    let held: Vec<_> = (0..3)
        .map(|it| (worker.held(&request(it), 0), request(it)))
        .collect();
    worker.pool.leave(&shared, held[1].0, at(50));
    let Turn::Mine(first) = worker.pool.turn(&shared, at(100)) else {
        panic!("nobody is next")
    };
    worker.pool.leave(&shared, first, at(100));
    let sent = worker.send(&held, 100);
    assert_eq!(sent.len(), 1);
    assert!(sent[0].0 != first && sent[0].0 != held[1].0);
    let gone = request(1);
    let last = worker.held(&gone, 200);
    let closed = worker.pool.close(&shared, at(210));
    assert_eq!(closed, [(last, Refusal::ShuttingDown)]);
    assert_eq!(worker.send(&[], 400), []);
    let late = worker
        .pool
        .start(&shared, (last, &gone), &mut worker.draws, at(400));
    assert!(late.is_err());
}

#[test]
fn without_endpoints_each_is_told_so() {
    let shared = LocalData::default();
    let mut worker = Worker::new(&shared, BURST);
    publish(&shared, "llm", &Snapshot::unknown([]));
    let id = worker.held(&request(1), 0);
    let turn = worker.pool.turn(&shared, at(100));
    assert_eq!(turn, Turn::Mine(id));
    let asked = (id, &request(1));
    let started = worker
        .pool
        .start(&shared, asked, &mut worker.draws, at(100));
    assert_eq!(started.err(), Some(Refusal::NoEndpoint));
}
