//! The L4 profile gives the figures that were published for one server in a closed loop.
//!
//! The load: 32 clients, 1,024 requests in random order, each one of N prefixes of 2,048 tokens
//! and 128 tokens of its own, 128 tokens of answer.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by a panic, its helpers too"
)]

use std::collections::HashMap;
use std::time::Duration;

use sim::engine::Request;
use sim::profile::Profile;
use sim::virtual_server::{OutcomeKind, VirtualServer};

/// What a run measures.
#[derive(Debug, Default)]
struct Run {
    hit_percent: f64,
    tokens_per_second: f64,
    first_token_ms: f64,
    inter_token_ms: f64,
}

#[test]
fn one_server_is_as_fast_as_the_measured_one() {
    // Prefixes; then the measured hit rate, tokens per second and milliseconds between tokens.
    check(8, [92.3, 24_396.0, 22.1]);
    check(16, [90.9, 20_564.0, 27.1]);
    check(64, [77.6, 15_078.0, 36.8]);
    check(128, [44.4, 12_929.0, 42.8]);
}

fn check(prefixes: u32, [hit_percent, tokens_per_second, inter_token_ms]: [f64; 3]) {
    let runs: Vec<Run> = (1..=SEEDS).map(|seed| run(prefixes, seed)).collect();
    let mean = |value: fn(&Run) -> f64| runs.iter().map(value).sum::<f64>() / f64::from(SEEDS);
    for (name, got, measured, tolerance) in [
        ("hit rate", mean(|it| it.hit_percent), hit_percent, 0.07),
        (
            "tokens/s",
            mean(|it| it.tokens_per_second),
            tokens_per_second,
            0.04,
        ),
        (
            "between tokens",
            mean(|it| it.inter_token_ms),
            inter_token_ms,
            0.04,
        ),
    ] {
        let off = (got / measured - 1.0).abs();
        assert!(
            off < tolerance,
            "{prefixes} prefixes, {name}: {got} for {measured}, {runs:?}"
        );
    }
    // Measured means go from 185 to 231 ms without an order that a model could follow.
    assert!(
        (120.0..340.0).contains(&mean(|it| it.first_token_ms)),
        "{prefixes} {runs:?}"
    );
}

fn run(prefixes: u32, seed: u32) -> Run {
    let mut order: Vec<u32> = (0..REQUESTS).map(|it| it % prefixes).collect();
    let mut state = u64::from(seed);
    for index in (1..order.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        order.swap(index, (state >> 33) as usize % (index + 1));
    }
    let mut waiting = order.into_iter().zip(0..);
    let mut server = VirtualServer::new(&Profile::l4());
    let mut clients: Vec<Duration> = (0..CLIENTS).map(|it| CLIENT_GAP * it).rev().collect();
    let (mut sent, mut first, mut done) = (HashMap::new(), HashMap::new(), HashMap::new());
    while done.len() < REQUESTS as usize {
        let at = [clients.last().copied(), server.next_event()]
            .into_iter()
            .flatten()
            .min();
        let at = at.unwrap();
        for outcome in server.advance(at) {
            match outcome.kind {
                OutcomeKind::FirstToken { .. } => first.insert(outcome.ticket, outcome.at),
                OutcomeKind::Finished => {
                    clients.push(outcome.at + REPLY);
                    done.insert(outcome.ticket, outcome.at + REPLY)
                }
            };
        }
        clients.sort_by(|a, b| b.cmp(a));
        while let Some(at) = clients.pop_if(|it| *it <= at) {
            let Some((prefix, number)) = waiting.next() else {
                continue;
            };
            sent.insert(server.push(at, request(prefix, number)).unwrap(), at);
        }
    }
    let count = f64::from(REQUESTS);
    let seconds = done.values().max().unwrap().as_secs_f64();
    let millis = |from: &HashMap<u64, Duration>, to: &HashMap<u64, Duration>| {
        from.iter()
            .map(|it| (to[it.0] - *it.1).as_secs_f64() * 1e3)
            .sum::<f64>()
            / count
    };
    Run {
        hit_percent: 100.0 * server.counters().hits as f64 / server.counters().queries as f64,
        tokens_per_second: count * f64::from(PREFIX + QUESTION + ANSWER) / seconds,
        first_token_ms: millis(&sent, &first),
        inter_token_ms: millis(&first, &done) / f64::from(ANSWER - 1),
    }
}

fn request(prefix: u32, number: u32) -> Request {
    let prefix = (0..PREFIX).map(|it| prefix << 16 | it);
    let question = (0..QUESTION).map(|it| 1 << 31 | number << 16 | it);
    let output = (0..ANSWER).map(|it| number << 16 | 0xf000 | it).collect();
    Request {
        prompt: prefix.chain(question).collect(),
        output,
        ..Request::default()
    }
}

const REQUESTS: u32 = 1024;
const CLIENTS: u32 = 32;
const PREFIX: u32 = 2048;
const QUESTION: u32 = 128;
const ANSWER: u32 = 128;

/// Orders tried; a figure is their mean.
const SEEDS: u32 = 2;

/// Between the first requests of two clients.
const CLIENT_GAP: Duration = Duration::from_millis(3);

/// From the last token to the client, which then sends its next request.
const REPLY: Duration = Duration::from_millis(2);
