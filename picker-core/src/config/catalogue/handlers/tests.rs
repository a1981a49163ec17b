use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::super::super::tests::{check_pool, config, with_pool};
use super::*;
use crate::config::ConfigWarning;

/// A document with this handler, named `h`, all deciders and profiles of these names.
fn document(kind: &str, parameters: &Value, profiles: &[&str]) -> Value {
    let profiles = profiles.iter().map(|name| json!({"name": name}));
    json!({
        "plugins": [
            {"type": kind, "name": "h", "parameters": parameters},
            {"type": "always-disagg-pd-decider", "name": "always"},
            {"type": "always-disagg-multimodal-decider", "name": "media"},
            {
                "type": "prefix-based-pd-decider",
                "parameters": {"nonCachedTokens": 256, "promptTokens": 1024},
            },
        ],
        "schedulingProfiles": profiles.collect::<Vec<Value>>(),
    })
}

fn handler(kind: &str, parameters: &Value, profiles: &[&str]) -> Handler {
    let document = json!({"picker": document(kind, parameters, profiles)});
    let config = config(&with_pool(document));
    // What is in effect is read as the same.
    let effective: Value = serde_json::from_str(&config.to_json()).unwrap();
    let again = super::super::super::tests::config(&effective);
    assert_eq!(again.pools[0].plan, config.pools[0].plan);
    config.pools[0].plan.handler.clone()
}

fn check((kind, parameters, profiles): (&str, Value, &[&str]), expected: &[&str]) {
    let path = |it: &&str| format!("pools[0].picker.{it}");
    let expected: Vec<String> = expected.iter().map(path).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    let picker = document(kind, &parameters, profiles);
    check_pool(json!({"picker": picker}), &expected);
}

const UNCACHED: Decider = Decider::Uncached {
    uncached_tokens: 256,
    prompt_tokens: 1024,
};

#[test]
fn a_handler_of_stages_knows_its_profiles_and_deciders() {
    let none = Stages::default();
    let names = ["prefill", "d", "encode", "p", "decode"];
    for (kind, parameters, profiles, expected) in [
        ("disagg-profile-handler", json!({}), &["decode"][..], none),
        (
            "disagg-profile-handler",
            json!({"stageOrder": "prefill-first", "deciders": {"encode": "media"}}),
            &names,
            Stages {
                prefill_first: true,
                decode: 4,
                prefill: Some(0),
                encode: Some(2),
                encode_decider: Some(Decider::Multimodal),
                ..none
            },
        ),
        (
            "disagg-profile-handler",
            json!({
                "profiles": {"decode": "d", "prefill": "p"},
                "deciders": {"prefill": "prefix-based-pd-decider", "encode": ""},
            }),
            &names,
            Stages {
                decode: 1,
                prefill: Some(3),
                encode: Some(2),
                prefill_decider: Some(UNCACHED),
                ..none
            },
        ),
        (
            "disagg-profile-handler",
            json!({
                "decodeProfile": "d",
                "prefillProfile": "p",
                "encodeProfile": "prefill",
                "prefillDeciderPluginName": "always",
                "encodeDeciderPluginName": "media",
                "deciderPluginName": "prefix-based-pd-decider",
                "profiles": {"encode": "encode"},
            }),
            &names,
            Stages {
                decode: 1,
                prefill: Some(3),
                encode: Some(2),
                prefill_decider: Some(Decider::Always),
                encode_decider: Some(Decider::Multimodal),
                ..none
            },
        ),
    ] {
        let expected = Handler::Stages(Box::new(expected));
        assert_eq!(
            handler(kind, &parameters, profiles),
            expected,
            "{parameters}"
        );
    }
}

#[test]
fn the_older_handler_of_stages_has_two_and_a_port() {
    let none = Stages::default();
    let names = ["prefill", "d", "encode", "p", "decode"];
    for (kind, parameters, profiles, expected) in [
        (
            "pd-profile-handler",
            json!({"primaryPort": 9000, "prefillProfile": "p"}),
            &names[..],
            Stages {
                decode: 4,
                prefill: Some(3),
                prefill_decider: Some(UNCACHED),
                primary_port: Some(9000),
                ..none
            },
        ),
        (
            "pd-profile-handler",
            json!({"deciderPluginName": "always"}),
            &["decode"],
            Stages {
                prefill_decider: Some(Decider::Always),
                ..none
            },
        ),
    ] {
        let expected = Handler::Stages(Box::new(expected));
        assert_eq!(
            handler(kind, &parameters, profiles),
            expected,
            "{parameters}"
        );
    }
}

#[test]
fn other_handlers_know_their_header_and_their_port() {
    let by_header = |header: &str, default: &str| Handler::ByHeader {
        header: header.into(),
        default: default.into(),
    };
    for (kind, parameters, profiles, expected) in [
        (
            "header-profile-handler",
            json!({}),
            &["a", "b"][..],
            by_header("epp-profile", "decode"),
        ),
        (
            "header-profile-handler",
            json!({"headerName": "X-Profile", "defaultProfile": "b"}),
            &["a", "b"],
            by_header("x-profile", "b"),
        ),
        // The only profile is run whatever is asked for.
        (
            "header-profile-handler",
            json!({"defaultProfile": "b"}),
            &["a"],
            by_header("epp-profile", "b"),
        ),
        (
            "data-parallel-profile-handler",
            json!({}),
            &["a"],
            Handler::DataParallel(8000),
        ),
        (
            "data-parallel-profile-handler",
            json!({"primaryPort": 65535}),
            &["a"],
            Handler::DataParallel(65_535),
        ),
    ] {
        assert_eq!(handler(kind, &parameters, profiles), expected);
    }
    let picker = document("header-profile-handler", &json!({}), &["a"]);
    let plan = &config(&with_pool(json!({"picker": picker}))).pools[0].plan;
    assert_eq!(plan.headers, ["epp-profile"]);
}

#[test]
fn a_handler_that_leads_nowhere_is_a_mistake() {
    let disagg = "disagg-profile-handler";
    let both: &[&str] = &["decode", "prefill"];
    for (document, expected) in [
        (
            (disagg, json!({}), &["prefill"][..]),
            "plugins[0].parameters.profiles.decode: there is no scheduling profile 'decode'. Fix: \
             add one of this name, or use one of prefill.",
        ),
        (
            (disagg, json!({"profiles": {"prefill": "p"}}), both),
            "plugins[0].parameters.profiles.prefill: there is no scheduling profile 'p'. Fix: add \
             one of this name, or use one of decode, prefill.",
        ),
        (
            (disagg, json!({"encodeProfile": "e"}), both),
            "plugins[0].parameters.encodeProfile: there is no scheduling profile 'e'. Fix: add \
             one of this name, or use one of decode, prefill.",
        ),
        (
            (
                disagg,
                json!({"deciders": {"prefill": "prefix-based-pd-decidr"}}),
                both,
            ),
            "plugins[0].parameters.deciders.prefill: deciders.prefill references undefined plugin \
             'prefix-based-pd-decidr'. Fix: write \"prefix-based-pd-decider\".",
        ),
        (
            (disagg, json!({"deciders": {"encode": "h"}}), both),
            "plugins[0].parameters.deciders.encode: the plugin \"h\" is not a decider. Fix: refer \
             to a decider, like prefix-based-pd-decider.",
        ),
        (
            (
                disagg,
                json!({"stageOrder": "prefill-first", "deciders": {"prefill": "always"}}),
                both,
            ),
            "plugins[0].parameters.deciders.prefill: prefill decider is not supported in \
             prefill-first stage order. Fix: remove it, for the prompt is always computed apart \
             then; or write decode-first.",
        ),
        (
            (
                "header-profile-handler",
                json!({"defaultProfile": "x"}),
                both,
            ),
            "plugins[0].parameters.defaultProfile: there is no scheduling profile 'x'. Fix: add \
             one of this name, or use one of decode, prefill.",
        ),
        (
            ("data-parallel-profile-handler", json!({}), both),
            "schedulingProfiles: SingleProfileHandler cannot support multiple scheduling \
             profiles. Fix: keep one profile, or declare disagg-profile-handler.",
        ),
    ] {
        check(document, &[expected]);
    }
}

#[test]
fn a_port_is_one_that_there_is() {
    let both: &[&str] = &["decode", "prefill"];
    let wrong_port = "plugins[0].parameters.primaryPort: 65536 is not between";
    for (document, expected) in [
        (
            ("pd-profile-handler", json!({"primaryPort": 65_536}), both),
            &format!("{wrong_port} 0 and 65535. Fix: choose a value from 0 to 65535."),
        ),
        (
            (
                "data-parallel-profile-handler",
                json!({"primaryPort": 65_536}),
                &["a"],
            ),
            &format!("{wrong_port} 1 and 65535. Fix: choose a value from 1 to 65535."),
        ),
    ] {
        check(document, &[expected]);
    }
}

#[test]
fn old_names_are_read_with_a_warning() {
    let parameters = json!({"prefillDeciderPluginName": "always", "decodeProfile": "decode"});
    let picker = document("disagg-profile-handler", &parameters, &["decode"]);
    let warnings = config(&with_pool(json!({"picker": picker}))).warnings;
    let old = |name: &str, instead: &str| ConfigWarning::Deprecated {
        path: format!("pools[0].picker.plugins[0].parameters.{name}"),
        name: format!("{name} of disagg-profile-handler"),
        instead: instead.into(),
    };
    assert_eq!(
        warnings,
        [
            old("decodeProfile", "profiles.decode"),
            old("prefillDeciderPluginName", "deciders.prefill"),
        ]
    );
    let picker = json!({"plugins": [{
        "type": "disagg-headers-handler",
        "parameters": {"prefillProfile": "prefill", "encodeProfile": "encode"},
    }]});
    let warnings = config(&with_pool(json!({"picker": picker}))).warnings;
    assert_eq!(warnings.len(), 1);
}

#[test]
fn a_source_of_blocks_needs_the_id_of_the_request() {
    let plan = |parameters: Value| {
        let plugin = json!({"type": "p2p-source-producer", "parameters": parameters});
        let config = config(&with_pool(json!({"picker": {"plugins": [plugin]}})));
        config.pools[0].plan.clone()
    };
    for (parameters, gain_tokens, prefill_profile) in [
        (json!({}), 1, "prefill"),
        (
            json!({"minCachedTokenDelta": 2048, "prefillProfileName": "p"}),
            2048,
            "p",
        ),
    ] {
        let plan = plan(parameters);
        let expected = KvSource {
            gain_tokens,
            prefill_profile: prefill_profile.into(),
        };
        assert_eq!(plan.kv_source, Some(expected));
        assert_eq!(plan.headers, ["x-request-id"]);
    }
    check_pool(
        json!({"picker": {"plugins": [
            {"type": "p2p-source-producer", "parameters": {"minCachedTokenDelta": 0}},
        ]}}),
        &[
            "pools[0].picker.plugins[0].parameters.minCachedTokenDelta: 0 is not between 1 and \
             4294967296. Fix: choose a value from 1 to 4294967296.",
        ],
    );
}
