use alloc::string::String;

use super::*;
use crate::ledger::Load;
use crate::saturation::{Concurrency, TokenLoad, Utilization};
use crate::snapshot::EndpointState;
use crate::twin::Held;
use crate::{EndpointId, Measure, Prompt, Request};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// An endpoint: waiting and KV usage as scraped, requests and tokens in flight, blocks held of ten.
#[derive(Clone, Copy, Default)]
struct Row {
    waiting: Option<f64>,
    kv_usage: Option<f64>,
    requests: u32,
    tokens: u32,
    held: usize,
    labels: &'static [(&'static str, &'static str)],
}

/// What passes of `rows`, when the filter runs with draws of this seed; the peer is the last.
fn kept(filter: &Filter, rows: &[Row], seed: u64) -> Vec<usize> {
    let endpoint = |row: &Row| {
        let mut endpoint = EndpointState::unknown(EndpointId(1), "1.1.1.1:1".parse().unwrap());
        endpoint.metrics.waiting = row.waiting;
        endpoint.metrics.kv_usage = row.kv_usage;
        endpoint
    };
    let labels = |row: &Row| {
        let labels = row.labels.iter();
        labels
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect()
    };
    let endpoints: Vec<EndpointState> = rows.iter().map(endpoint).collect();
    let labels: Vec<Vec<(String, String)>> = rows.iter().map(labels).collect();
    let candidates: Vec<Candidate<'_>> = (0..rows.len())
        .map(|place| Candidate {
            labels: &labels[place],
            load: Load {
                requests: rows[place].requests,
                prefill_tokens: rows[place].tokens,
                ..Load::default()
            },
            held: Held {
                matched: rows[place].held,
                pinned: 0,
            },
            ..Candidate::idle(&endpoints[place])
        })
        .collect();
    let request = Request {
        prompts: [Prompt::default()].into(),
        ..Request::default()
    };
    let mut cx = Context::of(&candidates, &request);
    cx.peer = candidates.last().filter(|it| !it.labels.is_empty());
    let mut kept = (0..rows.len()).collect();
    filter.keep(&cx, &mut Draws::new(seed), &mut kept);
    kept
}

#[track_caller]
fn check(filter: Filter, rows: &[Row], expected: &[usize]) {
    assert_eq!(kept(&filter, rows, 1), expected);
}

fn holding(held: usize, tokens: u32) -> Row {
    Row {
        held,
        tokens,
        ..Row::default()
    }
}

fn telling(waiting: f64, kv_usage: f64) -> Row {
    Row {
        waiting: Some(waiting),
        kv_usage: Some(kv_usage),
        ..Row::default()
    }
}

const AFFINITY: PrefixAffinity = PrefixAffinity {
    threshold: 0.8,
    exploration: 0.0,
    penalty_max_ms: 500.0,
    source: TtftSource::PrefillThroughput(1000.0),
};

#[test]
fn a_request_stays_where_most_of_its_prompt_is() {
    let affinity = |rows: &[Row], expected: &[usize]| {
        check(Filter::PrefixAffinity(AFFINITY), rows, expected);
    };
    affinity(&[holding(7, 0), holding(8, 0), holding(10, 0)], &[1, 2]);
    affinity(&[holding(7, 0), holding(0, 0)], &[0, 1]);
    affinity(&[holding(9, 0), holding(9, 0)], &[0, 1]);
    affinity(&[holding(0, 0)], &[0]);
}

#[test]
fn it_leaves_when_the_first_token_takes_too_long_there() {
    let busy = |tokens| [holding(8, tokens), holding(9, 2000), holding(0, 100)];
    // 600 ms against 100 ms, then 601 ms.
    check(Filter::PrefixAffinity(AFFINITY), &busy(600), &[0, 1]);
    check(Filter::PrefixAffinity(AFFINITY), &busy(601), &[0, 1, 2]);
    let endless = PrefixAffinity {
        penalty_max_ms: 0.0,
        ..AFFINITY
    };
    check(Filter::PrefixAffinity(endless), &busy(9000), &[0, 1]);
    let nobody = [holding(0, 9000), holding(7, 0)];
    check(Filter::PrefixAffinity(endless), &nobody, &[0, 1]);
    // Nobody's time is known, so none is longer.
    let predicted = PrefixAffinity {
        source: TtftSource::Prediction,
        ..AFFINITY
    };
    check(Filter::PrefixAffinity(predicted), &busy(9000), &[0, 1]);
}

#[test]
fn a_share_of_requests_explores() {
    let filter = |exploration| {
        Filter::PrefixAffinity(PrefixAffinity {
            exploration,
            ..AFFINITY
        })
    };
    let rows = [holding(9, 0), holding(0, 0)];
    let explored = |exploration: f64| {
        let seeds = 0..1000;
        seeds
            .filter(|seed| kept(&filter(exploration), &rows, *seed).len() == 2)
            .count()
    };
    assert_eq!([explored(0.0), explored(1.0)], [0, 1000]);
    assert!((200..300).contains(&explored(0.25)), "{}", explored(0.25));
}

#[test]
fn a_load_within_all_limits_passes() {
    let filter = |falls_back| {
        let limits = [
            (Measure::WaitingQueue, 5.0),
            (Measure::KvCacheUtilization, 0.5),
        ];
        Filter::Usage(UsageLimits {
            limits: limits.into(),
            falls_back,
        })
    };
    let rows = [telling(5.0, 0.5), telling(6.0, 0.0), telling(0.0, 0.6)];
    check(filter(false), &rows, &[0]);
    check(filter(false), &rows[1..], &[]);
    check(filter(true), &rows[1..], &[0, 1]);
    let active = Filter::Usage(UsageLimits {
        limits: [(Measure::ActiveRequests, 2.0)].into(),
        falls_back: false,
    });
    let sending = |requests| Row {
        requests,
        ..Row::default()
    };
    check(active, &[sending(2), sending(3)], &[0]);
}

#[test]
fn a_load_that_is_not_known_is_average() {
    let filter = Filter::Usage(UsageLimits {
        limits: [(Measure::WaitingQueue, 5.0)].into(),
        falls_back: false,
    });
    let unknown = Row::default();
    check(filter.clone(), &[unknown, unknown], &[0, 1]);
    check(
        filter.clone(),
        &[telling(2.0, 0.0), telling(8.0, 0.0), unknown],
        &[0, 2],
    );
    check(
        filter,
        &[telling(2.0, 0.0), telling(9.0, 0.0), unknown],
        &[0],
    );
}

#[test]
fn a_detector_lets_pass_what_is_less_than_full() {
    let filter = |headroom| {
        Filter::HasRoom(Detector::Utilization(Utilization {
            queue: 4.0,
            kv_usage: 0.5,
            headroom,
        }))
    };
    let rows = [telling(3.0, 0.4), telling(4.0, 0.0), telling(0.0, 0.5)];
    check(filter(0.0), &rows, &[0]);
    let fuller = [rows[0], rows[1], rows[2], telling(5.0, 0.0)];
    check(filter(0.25), &fuller, &[0, 1, 2]);
    check(filter(0.0), &rows[1..], &[0, 1]);
    let concurrency = |requests, tokens| {
        Filter::HasRoom(Detector::Concurrency(Concurrency {
            requests,
            tokens,
            headroom: 0.0,
        }))
    };
    let busy = |requests, tokens| Row {
        requests,
        tokens,
        ..Row::default()
    };
    let rows = [busy(3, 300), busy(4, 0), busy(0, 400)];
    check(concurrency(Some(4.0), None), &rows, &[0, 2]);
    check(concurrency(None, Some(400.0)), &rows, &[0, 1]);
    check(concurrency(Some(4.0), Some(400.0)), &rows, &[0]);
    check(concurrency(Some(3.0), None), &rows[..2], &[]);
    let token_load = |headroom| {
        Filter::HasRoom(Detector::TokenLoad(TokenLoad {
            prefill_tokens: 300.0,
            kv_usage: 0.9,
            headroom,
        }))
    };
    check(token_load(0.0), &rows, &[1]);
    check(token_load(0.25), &rows, &[0, 1]);
    check(token_load(0.0), &[rows[0], rows[2]], &[0, 1]);
}

#[test]
fn an_attribute_that_nobody_tells_passes_or_not_as_is_said() {
    let filter = |passes_unknown, falls_back| {
        Filter::Attribute(AttributeLimit {
            producer: String::new(),
            name: "gpu".into(),
            operator: Operator::LessThan,
            value: 1.0,
            passes_unknown,
            falls_back,
        })
    };
    let rows = [Row::default(); 2];
    check(filter(true, false), &rows, &[0, 1]);
    check(filter(false, false), &rows, &[]);
    check(filter(false, true), &rows, &[0, 1]);
}

#[test]
fn endpoints_near_the_peer_pass_or_all_when_none_is() {
    let at = |labels| Row {
        labels,
        ..Row::default()
    };
    let rows = [
        at(&[("h", "1"), ("r", "1"), ("z", "1")]),
        at(&[("h", "2"), ("r", "1"), ("z", "1")]),
        at(&[("h", "3"), ("r", "2"), ("z", "1")]),
        at(&[("h", ""), ("z", "2")]),
        at(&[]),
        at(&[("h", "1"), ("r", "1"), ("z", "1")]),
    ];
    let near = |level| {
        let labels = ["h", "r", "z", "g"].map(Into::into);
        Filter::Near(Topology { labels }, level)
    };
    check(near(Level::Host), &rows, &[0, 5]);
    check(near(Level::Rack), &rows, &[0, 1, 5]);
    check(near(Level::Region), &rows, &[0, 1, 2, 5]);
    check(near(Level::Host), &rows[..5], &[0, 1, 2, 3, 4]);
    let nameless = at(&[("h", ""), ("z", "1")]);
    check(
        near(Level::Host),
        &[nameless, rows[0], nameless],
        &[0, 1, 2],
    );
    let own = Row {
        labels: &[("x", "1")],
        ..Row::default()
    };
    check(near(Level::Host), &[rows[0], own], &[0, 1]);
}

#[test]
fn filters_of_labels_and_the_prompts_length_come_first() {
    let rule = ContextLength { label: "l".into() };
    for (filter, expected) in [
        (Filter::ContextLength(rule), true),
        (Filter::Labels(LabelSelector::default()), true),
        (Filter::PrefixAffinity(AFFINITY), false),
    ] {
        assert_eq!(filter.is_of_labels(), expected);
    }
    let rule = ContextLength { label: "l".into() };
    let at = |labels| Row {
        labels,
        ..Row::default()
    };
    let rows = [at(&[("l", "0-640")]), at(&[("l", "641-900")]), at(&[])];
    check(Filter::ContextLength(rule), &rows, &[0, 2]);
}
