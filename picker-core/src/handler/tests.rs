use super::stages::{ENCODE_HEADER, PREFILL_HEADER};
use super::*;
use alloc::string::ToString;
use alloc::{format, vec};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use crate::OWNED_HEADERS;
use crate::candidate::Candidate;
use crate::filter::{Filter, LabelSelector, Requirement};
use crate::picker::Picker;
use crate::profile::WeightedScorer;
use crate::request::{Media, MediaKind, Request};
use crate::score::{PrefixShare, ScorerKind};
use crate::shape::Shape;
use crate::snapshot::Snapshot;
use crate::topology::Topology;
use crate::twin::Held;

/// A profile of the endpoints whose label `role` has this value, best first by prefix.
fn profile(name: &str, role: Option<&str>, most: usize) -> Profile {
    let selector = role.map(|role| LabelSelector {
        requirements: vec![Requirement {
            label: "role".into(),
            values: vec![role.into()],
            is_negated: false,
            fits_without: false,
        }],
    });
    Profile {
        name: name.into(),
        filters: selector.into_iter().map(Filter::Labels).collect(),
        scorers: vec![WeightedScorer {
            scorer: ScorerKind::Prefix(PrefixShare::DEFAULT),
            weight: 1.0,
        }],
        picker: Picker {
            destinations_max: most,
            ..Picker::default()
        },
    }
}

/// Runs `handler` over endpoints given by role, which may be followed by a zone, and blocks held of
/// ten blocks of 64 tokens.
fn run(
    handler: &Handler,
    profiles: &[Profile],
    endpoints: &[(&str, usize)],
    request: &Request,
) -> Result<Outcome, Refusal> {
    let address = |host: usize| format!("10.0.0.{}:8000", host + 1).parse().unwrap();
    let snapshot = Snapshot::unknown((0..endpoints.len()).map(address));
    let labels: Vec<_> = endpoints
        .iter()
        .map(|(role, _)| {
            let (role, zone) = role.split_once('@').unwrap_or((role, ""));
            let label = |name: &str, value: &str| (name.to_string(), value.to_string());
            vec![label("role", role), label("zone", zone)]
        })
        .collect();
    let known = snapshot.endpoints.iter().zip(&labels).zip(endpoints);
    let candidates: Vec<Candidate<'_>> = known
        .map(|((endpoint, labels), (_, matched))| Candidate {
            labels,
            held: Held {
                matched: *matched,
                pinned: 0,
            },
            ..Candidate::idle(endpoint)
        })
        .collect();
    let plan = Plan {
        profiles: profiles.to_vec(),
        ..Plan::default()
    };
    handler.run(
        &plan,
        &Context::of(&candidates, request),
        &mut Draws::new(1),
    )
}

fn chat() -> Request {
    Request {
        shape: Some(Shape::ChatCompletions),
        ..Request::default()
    }
}

fn with_image() -> Request {
    let media = Media {
        kind: MediaKind::Image,
        hash: 1,
    };
    Request {
        media: vec![media],
        ..chat()
    }
}

fn by_header(value: Option<&str>) -> Request {
    let header = value.map(|value| ("epp-profile".to_string(), value.to_string()));
    Request {
        headers: header.into_iter().collect(),
        ..chat()
    }
}

#[test]
fn a_header_names_the_profile() {
    let handler = Handler::ByHeader {
        header: "epp-profile".into(),
        default: "decode".into(),
    };
    let both = [
        profile("prefill", Some("p"), 1),
        profile("decode", Some("d"), 1),
    ];
    let endpoints = [("p", 0), ("d", 0)];
    for (value, expected) in [
        (None, Ok(1)),
        (Some("prefill"), Ok(0)),
        (Some(" prefill\t"), Ok(0)),
        (Some("decode"), Ok(1)),
        (Some(""), Ok(1)),
        (Some("encode"), Err(Refusal::NoProfile)),
        (Some("Prefill"), Err(Refusal::NoProfile)),
    ] {
        let outcome = run(&handler, &both, &endpoints, &by_header(value));
        assert_eq!(outcome.map(|it| it.ranked.places[0]), expected, "{value:?}");
        // A single profile is for every request.
        let outcome = run(&handler, &both[..1], &endpoints, &by_header(value));
        assert_eq!(outcome.unwrap().ranked.places, [0]);
    }
}

#[test]
fn the_one_profile_names_the_destination_and_a_port_of_its_host() {
    let only = [profile("default", Some("d"), 2)];
    let endpoints = [("p", 9), ("d", 1), ("d", 2)];
    for (handler, primary_port) in [
        (Handler::Single, None),
        (Handler::DataParallel(8000), Some(8000)),
    ] {
        let outcome = run(&handler, &only, &endpoints, &chat()).unwrap();
        assert_eq!(outcome.ranked.places, [2, 1]);
        assert_eq!(
            (outcome.primary_port, outcome.division),
            (primary_port, None)
        );
        let refused = |endpoints: &[(&str, usize)]| run(&handler, &only, endpoints, &chat()).err();
        assert_eq!(refused(&[("p", 0)]), Some(Refusal::Filtered));
        assert_eq!(refused(&[]), Some(Refusal::NoEndpoint));
    }
}

/// Places of decode, prefill and encode, and how that is called.
type Divided = (usize, Option<usize>, Option<usize>, &'static str);

fn stages(stages: Stages, endpoints: &[(&str, usize)], request: &Request) -> Divided {
    let profiles = [
        profile("decode", Some("d"), 1),
        profile("prefill", Some("p"), 2),
        profile("encode", Some("e"), 2),
    ];
    let handler = Handler::Stages(Box::new(stages));
    let outcome = run(&handler, &profiles, endpoints, request).unwrap();
    let at = |place: &usize| format!("10.0.0.{}:8000", place + 1);
    let mut headers = Vec::new();
    headers.extend(outcome.prefill.map(|it| (PREFILL_HEADER, at(&it))));
    let encode = (0..endpoints.len()).filter(|it| endpoints[*it].0 == "e");
    // The better of two is first.
    let encode: Vec<String> = encode.map(|it| at(&it)).rev().collect();
    headers.extend(outcome.encode.map(|_| (ENCODE_HEADER, encode.join(","))));
    assert_eq!(outcome.headers, headers);
    assert!(headers.iter().all(|(name, _)| OWNED_HEADERS.contains(name)));
    let division = outcome.division.unwrap();
    (
        outcome.ranked.places[0],
        outcome.prefill,
        outcome.encode,
        division,
    )
}

const ALL: Stages = Stages {
    prefill_first: false,
    decode: 0,
    prefill: Some(1),
    encode: Some(2),
    prefill_decider: Some(Decider::Always),
    encode_decider: Some(Decider::Multimodal),
    primary_port: None,
};

#[test]
fn stages_have_endpoints_of_their_own_where_their_deciders_say_so() {
    let none = Stages {
        prefill_decider: None,
        encode_decider: None,
        ..ALL
    };
    let prefill_first = Stages {
        prefill_first: true,
        prefill_decider: None,
        ..ALL
    };
    let endpoints = [("d", 1), ("d", 2), ("p", 3), ("p", 4), ("e", 5), ("e", 6)];
    let bodiless = Request::bodiless();
    for (plan, request, expected) in [
        (ALL, &chat(), (1, Some(3), None, "prefill-decode")),
        (
            ALL,
            &with_image(),
            (1, Some(3), Some(5), "encode-prefill-decode"),
        ),
        (none, &with_image(), (1, None, None, "decode-only")),
        (
            Stages {
                prefill: None,
                ..ALL
            },
            &with_image(),
            (1, None, Some(5), "encode-decode"),
        ),
        // Whoever decides, it takes a profile.
        (
            Stages {
                encode: None,
                encode_decider: Some(Decider::Always),
                ..ALL
            },
            &with_image(),
            (1, Some(3), None, "prefill-decode"),
        ),
        (prefill_first, &chat(), (1, Some(3), None, "prefill-decode")),
        (
            prefill_first,
            &with_image(),
            (1, Some(3), Some(5), "encode-prefill-decode"),
        ),
        // There is nothing to compute apart.
        (ALL, &bodiless, (1, None, None, "decode-only")),
        (prefill_first, &bodiless, (1, None, None, "decode-only")),
    ] {
        assert_eq!(stages(plan, &endpoints, request), expected, "{plan:?}");
    }
}

#[test]
fn what_is_missing_is_refused_or_done_without() {
    let without_prefill = [("d", 1), ("e", 1)];
    let decode_only = (0, None, None, "decode-only");
    assert_eq!(stages(ALL, &without_prefill, &chat()), decode_only);
    let without_encode = [("d", 1), ("p", 1)];
    let divided = (0, Some(1), None, "prefill-decode");
    assert_eq!(stages(ALL, &without_encode, &with_image()), divided);

    let profiles = [profile("decode", Some("d"), 1), profile("prefill", None, 1)];
    let with_two = Stages {
        encode: None,
        ..ALL
    };
    for prefill_first in [false, true] {
        let handler = Handler::Stages(Box::new(Stages {
            prefill_first,
            ..with_two
        }));
        let run =
            |endpoints: &[(&str, usize)]| run(&handler, &profiles, endpoints, &chat()).map(|_| ());
        assert_eq!(run(&[("p", 0)]), Err(Refusal::NoDecode));
        assert_eq!(run(&[]), Err(Refusal::NoEndpoint));
        // The one endpoint that there is for both need not be asked by itself.
        let outcome = super::tests::run(&handler, &profiles, &[("d", 3)], &chat()).unwrap();
        assert_eq!(outcome.prefill, None);
        assert_eq!(outcome.headers, []);
        assert_eq!(outcome.division, Some("decode-only"));
    }
}

#[test]
fn a_prompt_is_computed_apart_where_enough_of_it_is_not_cached() {
    // The prompt has 640 tokens in blocks of 64.
    for (uncached_tokens, prompt_tokens, held, expected) in [
        (0, 0, 0, false),
        (1, 0, 0, true),
        (640, 0, 0, true),
        (641, 0, 0, false),
        (257, 0, 6, false),
        (256, 0, 6, true),
        (256, 640, 6, true),
        (256, 641, 6, false),
        (1, 0, 10, false),
    ] {
        let plan = Stages {
            prefill_decider: Some(Decider::Uncached {
                uncached_tokens,
                prompt_tokens,
            }),
            ..ALL
        };
        // What counts is the cache of the endpoint that decodes, not that of another.
        let (decode, prefill, ..) = stages(plan, &[("d", held), ("p", 9), ("e", 9)], &chat());
        assert_eq!(decode, 0);
        assert_eq!(
            prefill.is_some(),
            expected,
            "{uncached_tokens} {prompt_tokens}"
        );
    }
    // Where nobody decodes yet there is nothing to ask about.
    let plan = Stages {
        prefill_first: true,
        encode_decider: Some(Decider::Uncached {
            uncached_tokens: 1,
            prompt_tokens: 0,
        }),
        ..ALL
    };
    let (_, _, encode, _) = stages(plan, &[("d", 0), ("p", 0), ("e", 0)], &with_image());
    assert_eq!(encode, None);
}

#[test]
fn the_second_of_decode_and_prefill_is_chosen_near_the_first() {
    let near = WeightedScorer {
        scorer: ScorerKind::Topology(Topology {
            labels: ["zone", "-", "-", "-"].map(String::from),
        }),
        weight: 10.0,
    };
    let mut profiles = [
        profile("decode", Some("d"), 1),
        profile("prefill", Some("p"), 1),
    ];
    for profile in &mut profiles {
        profile.scorers.push(near.clone());
    }
    let endpoints = [("d@a", 9), ("d@b", 8), ("p@b", 9), ("p@a", 8)];
    // The first has its best cache, in zone a or in zone b, and the second is in the same zone.
    for (prefill_first, expected) in [(false, (0, Some(3))), (true, (1, Some(2)))] {
        let handler = Handler::Stages(Box::new(Stages {
            prefill_first,
            encode: None,
            ..ALL
        }));
        let outcome = run(&handler, &profiles, &endpoints, &chat()).unwrap();
        assert_eq!((outcome.ranked.places[0], outcome.prefill), expected);
    }
}
