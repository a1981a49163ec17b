//! A request in stages is counted, placed and given back at every endpoint that has a part in it.

#![cfg(test)]

use picker_core::{
    Address, Answered, BLOCK_BYTES, BlockHash, Decider, Draws, EndpointId, Filter, Handler,
    LabelSelector, Ledger, Load, LocalData, Media, MediaKind, Pick, Picker, Plan, Pool,
    PoolOptions, PrefixShare, Profile, Prompt, Refusal, Request, Requirement, ScorerKind, Shape,
    SharedData, Snapshot, Span, Stages, Timestamp, Troubles, WeightedScorer, ledger_key,
};
use serde_json::Value;

const NOW: Timestamp = Timestamp(1_000_000_000);

/// Two endpoints that decode, one that computes prompts and one that encodes.
const ROLES: [&str; 4] = ["decode", "decode", "prefill", "encode"];

fn address(place: usize) -> Address {
    format!("10.0.0.{}:8001", place + 1).parse().unwrap()
}

fn profile(role: &str) -> Profile {
    let requirement = Requirement {
        label: "role".into(),
        values: vec![role.into()],
        is_negated: false,
        fits_without: false,
    };
    Profile {
        name: role.into(),
        filters: vec![Filter::Labels(LabelSelector {
            requirements: vec![requirement],
        })],
        scorers: vec![WeightedScorer {
            scorer: ScorerKind::Prefix(PrefixShare::DEFAULT),
            weight: 1.0,
        }],
        picker: Picker {
            destinations_max: 2,
            ..Picker::default()
        },
    }
}

fn options(stages: Stages) -> PoolOptions {
    let labels = ROLES.iter().enumerate();
    PoolOptions {
        name: "llm".into(),
        plan: Plan {
            handler: Handler::Stages(Box::new(stages)),
            profiles: ["decode", "prefill", "encode"].map(profile).into(),
            ..Plan::default()
        },
        labels: labels
            .map(|(place, role)| (address(place), vec![("role".into(), (*role).into())]))
            .collect(),
        staleness_threshold: Span::from_millis(2_000),
        ..PoolOptions::default()
    }
}

fn pool(options: PoolOptions) -> Pool {
    Pool::new(options, Snapshot::unknown((0..ROLES.len()).map(address)), 1)
}

const STAGES: Stages = Stages {
    prefill_first: false,
    decode: 0,
    prefill: Some(1),
    encode: Some(2),
    prefill_decider: Some(Decider::Always),
    encode_decider: Some(Decider::Multimodal),
    primary_port: None,
};

/// A chat whose prompt is so many blocks, with an image.
fn request(length: u64) -> Request {
    let blocks: Vec<BlockHash> = (0..length).map(|block| BlockHash(1 + block)).collect();
    Request {
        shape: Some(Shape::ChatCompletions),
        prompts: vec![Prompt {
            bytes: length * BLOCK_BYTES as u64,
            blocks,
        }],
        media: vec![Media {
            kind: MediaKind::Image,
            hash: 1,
        }],
        ..Request::default()
    }
}

fn pick(pool: &mut Pool, shared: &LocalData, request: &Request) -> Result<Pick, Refusal> {
    pool.pick(shared, request, &mut Draws::new(1), NOW)
}

/// What everybody reads of each endpoint: requests in flight, tokens to compute, requests sent.
fn loads(shared: &LocalData) -> Vec<(u32, u32, u32)> {
    let mut bytes = Vec::new();
    shared.get(&ledger_key("llm"), &mut bytes);
    let ledger = Ledger::decode(&bytes);
    let load = |place: usize| -> Load { ledger.total(EndpointId(place as u32 + 1), NOW) };
    let shown = |it: Load| (it.requests, it.prefill_tokens, it.sent);
    (0..ROLES.len()).map(|place| shown(load(place))).collect()
}

/// The blocks of a prompt that each endpoint holds.
fn held(pool: &Pool, request: &Request) -> Vec<usize> {
    let blocks = &request.prompts[0].blocks;
    let twins = pool.twins();
    let held = |place: usize| twins.held(EndpointId(place as u32 + 1), blocks).matched;
    (0..ROLES.len()).map(held).collect()
}

fn pinned(pool: &Pool) -> Vec<usize> {
    let of = |place: usize| pool.twins().pinned(EndpointId(place as u32 + 1));
    (0..ROLES.len()).map(of).collect()
}

#[test]
fn every_stage_is_counted_until_it_is_over() {
    for has_first_byte in [true, false] {
        let (mut pool, shared) = (pool(options(STAGES)), LocalData::default());
        let request = request(4);
        // The first of two equal ones or the other, by the draw.
        let mut sent = pick(&mut pool, &shared, &request).unwrap();
        let decode = sent.endpoint.0 as usize - 1;
        assert!(decode < 2, "{sent:?}");
        let tokens = sent.prompt_tokens;
        assert!(tokens > 0);
        let mut expected = vec![(0, 0, 0), (0, 0, 0), (1, tokens, 1), (1, 0, 1)];
        expected[decode] = (1, 0, 1);
        assert_eq!(loads(&shared), expected);
        let mut blocks = vec![0, 0, 4, 0];
        blocks[decode] = 4;
        assert_eq!(held(&pool, &request), blocks);
        assert_eq!(pinned(&pool), blocks);
        assert_eq!((sent.prefill, sent.matched), (Some(address(2)), 0));
        assert_eq!(
            sent.headers,
            [
                ("x-prefiller-host-port", "10.0.0.3:8001".into()),
                ("x-encoder-hosts-ports", "10.0.0.4:8001".into()),
            ]
        );
        assert_eq!(sent.division, Some("encode-prefill-decode"));
        if has_first_byte {
            // Only the first one counts.
            for _ in 0..2 {
                pool.on_first_byte(&shared, &mut sent.ticket, NOW);
                pool.tick(&shared, NOW);
                let mut expected = vec![(0, 0, 0), (0, 0, 0), (0, 0, 1), (0, 0, 1)];
                expected[decode] = (1, 0, 1);
                assert_eq!(loads(&shared), expected);
                let mut pins = vec![0; 4];
                pins[decode] = 4;
                assert_eq!(pinned(&pool), pins);
            }
        }
        let answered = Answered {
            output_tokens: Some(2),
            prompt_tokens: Some(tokens),
            // What came from the other endpoint counts as cached there.
            cached_tokens: Some(tokens - 1),
        };
        for _ in 0..2 {
            pool.on_done(&shared, &mut sent.ticket, answered, NOW);
            pool.tick(&shared, NOW);
            let mut expected = vec![(0, 0, 0), (0, 0, 0), (0, 0, 1), (0, 0, 1)];
            expected[decode] = (0, 0, 1);
            assert_eq!(loads(&shared), expected);
            assert_eq!(pinned(&pool), [0; 4]);
            assert_eq!(held(&pool, &request), blocks);
        }
        let mut bytes = Vec::new();
        shared.get(&ledger_key("llm"), &mut bytes);
        let load = Ledger::decode(&bytes).total(EndpointId(decode as u32 + 1), NOW);
        assert_eq!((load.checked_tokens, load.cached_tokens), (0, 0));
        assert_eq!(pool.troubles(), Troubles::default());
    }
}

#[test]
fn a_retry_elsewhere_leaves_the_prompt_where_it_is_computed() {
    let (mut pool, shared) = (pool(options(STAGES)), LocalData::default());
    let mut sent = pick(&mut pool, &shared, &request(4)).unwrap();
    let decode = sent.endpoint.0 as usize - 1;
    let other = 1 - decode;
    assert!(!pool.on_served_by(&shared, &mut sent.ticket, address(other), NOW));
    pool.tick(&shared, NOW);
    let mut expected = vec![(0, 0, 0), (0, 0, 0), (1, sent.prompt_tokens, 1), (1, 0, 1)];
    expected[decode] = (0, 0, 1);
    expected[other] = (1, 0, 0);
    assert_eq!(loads(&shared), expected);
    pool.on_done(&shared, &mut sent.ticket, Answered::default(), NOW);
    pool.tick(&shared, NOW);
    assert!(loads(&shared).iter().all(|load| (load.0, load.1) == (0, 0)));
}

#[test]
fn what_the_prefill_endpoint_holds_is_not_charged_to_it() {
    let uncached = Stages {
        prefill_decider: Some(Decider::Uncached {
            uncached_tokens: 1,
            prompt_tokens: 0,
        }),
        ..STAGES
    };
    let (mut pool, shared) = (pool(options(uncached)), LocalData::default());
    let mut first = pick(&mut pool, &shared, &request(4)).unwrap();
    pool.on_done(&shared, &mut first.ticket, Answered::default(), NOW);
    // The decode endpoint holds all of it now: nothing is left to compute apart.
    let mut again = pick(&mut pool, &shared, &request(4)).unwrap();
    assert_eq!((again.endpoint, again.matched), (first.endpoint, 4));
    assert_eq!(again.division, Some("encode-decode"));
    pool.on_done(&shared, &mut again.ticket, Answered::default(), NOW);
    // Of twice the prompt both hold the first half.
    let longer = pick(&mut pool, &shared, &request(8)).unwrap();
    assert_eq!(longer.division, Some("encode-prefill-decode"));
    let half = longer.prompt_tokens / 2;
    let (_, computed, _) = loads(&shared)[2];
    // An engine computes at least its last block of 16 tokens.
    assert!((half..=half + 16).contains(&computed), "{computed}");
}

#[test]
fn ranks_of_a_host_are_named_in_a_header_and_reached_by_its_primary_port() {
    for (handler, expected) in [
        (Handler::DataParallel(8000), None),
        (
            Handler::Stages(Box::new(Stages {
                primary_port: Some(8000),
                ..STAGES
            })),
            Some("x-prefiller-host-port"),
        ),
    ] {
        let mut options = options(STAGES);
        options.plan.handler = handler;
        let (mut pool, shared) = (pool(options), LocalData::default());
        let picked = pick(&mut pool, &shared, &request(4)).unwrap();
        let host = picked.endpoint.0;
        let destination: Address = format!("10.0.0.{host}:8000").parse().unwrap();
        // Two are named, and the header fits one of them.
        assert_eq!(picked.destinations, [destination]);
        let (name, value) = picked.headers.last().unwrap();
        assert_eq!(*name, "x-data-parallel-host-port");
        assert_eq!(*value, format!("10.0.0.{host}:8001"));
        let others = &picked.headers[..picked.headers.len() - 1];
        assert_eq!(others.first().map(|(name, _)| *name), expected);
    }
}

#[test]
fn a_request_only_for_caches_is_refused_where_nothing_is_cached() {
    let (mut pool, shared) = (pool(options(STAGES)), LocalData::default());
    let only_cached = |request: Request| Request {
        only_cached: true,
        ..request
    };
    let mut picked = |request: Request| pick(&mut pool, &shared, &request).map(|_| ());
    let refused = Err(Refusal::NotCached);
    assert_eq!(picked(only_cached(request(4))), refused);
    assert_eq!(picked(only_cached(Request::bodiless())), Ok(()));
    assert_eq!(picked(request(4)), Ok(()));
    assert_eq!(picked(only_cached(request(8))), Ok(()));
    let other = Request {
        prompts: vec![Prompt {
            bytes: 256,
            blocks: vec![BlockHash(99)],
        }],
        ..request(0)
    };
    assert_eq!(picked(only_cached(other)), refused);
    let counted: u32 = loads(&shared).iter().map(|load| load.2).sum();
    assert_eq!(counted, 1 + 3 + 3, "what is refused is not sent");
}

#[test]
fn totals_are_shown_where_they_are_asked_for() {
    let shown = |emit_scores| {
        let options = PoolOptions {
            emit_scores,
            ..options(STAGES)
        };
        let (mut pool, shared) = (pool(options), LocalData::default());
        let mut first = pick(&mut pool, &shared, &request(4)).unwrap();
        pool.on_done(&shared, &mut first.ticket, Answered::default(), NOW);
        let second = pick(&mut pool, &shared, &request(8)).unwrap();
        (first.endpoint.0, second.scores)
    };
    assert_eq!(shown(false).1, "");
    let (host, scores) = shown(true);
    let scores: Value = serde_json::from_str(&scores).unwrap();
    // Half of the prompt is held by one of the two, and nothing by the other.
    let expected = [(host, 0.5), (3 - host, 0.0)];
    let scores = scores.as_object().unwrap();
    assert_eq!(scores.len(), 2);
    for (host, total) in expected {
        assert_eq!(scores[&format!("10.0.0.{host}:8001")], total);
    }
}
