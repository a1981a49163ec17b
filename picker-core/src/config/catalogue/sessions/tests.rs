use super::super::super::picker::tests::{check, plan_of};
use super::*;
use crate::plan::Plan;
use alloc::vec;
use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn plugin(kind: &str, parameters: Value) -> Value {
    json!({"type": kind, "parameters": parameters})
}

fn only_affinity(plan: &Plan) -> Affinity {
    let all: Vec<&Affinity> = plan.affinities().collect();
    assert_eq!(all.len(), 1);
    all[0].clone()
}

#[test]
fn an_affinity_is_read_with_its_defaults() {
    let ids = |sources: &[&str], lifetime, sweep| {
        let sources = sources.iter().map(|it| Source::Header((*it).into()));
        AffinityBy::Id(SessionIds {
            sources: sources.collect(),
            lifetime: Span::from_millis(lifetime),
            sweep: Span::from_millis(sweep),
        })
    };
    let token = |header: &str| AffinityBy::Token(header.into());
    for (parameters, by, headers) in [
        (
            json!({}),
            token("x-session-token"),
            &["x-session-token"][..],
        ),
        (
            json!({"encodedEndpointHeaderConfig": {"header": "X-Home"}}),
            token("x-home"),
            &["x-home"],
        ),
        (
            json!({"strategy": "session_id"}),
            ids(&["x-session-id"], 300_000, 10_000),
            &["x-session-id"],
        ),
        (
            json!({"strategy": "session_id", "sessionIdConfig": {
                "sources": [{"header": "X-B"}, {"header": "x-a"}],
                "evictionTtlSeconds": 1.5,
                "evictionSweepSeconds": 0.5,
            }}),
            ids(&["x-b", "x-a"], 1500, 500),
            &["x-a", "x-b"],
        ),
    ] {
        for kind in ["session-affinity-filter", "session-affinity-scorer"] {
            let plan = plan_of(json!({"plugins": [plugin(kind, parameters.clone())]}));
            let affinity = only_affinity(&plan);
            assert_eq!((affinity.by, affinity.of_prefill), (by.clone(), false));
            assert_eq!(plan.headers, headers, "{parameters}");
        }
    }
    let of_prefill = json!({"profileName": "prefill"});
    let plan = plan_of(json!({"plugins": [plugin("session-affinity-filter", of_prefill)]}));
    assert!(only_affinity(&plan).of_prefill);
}

#[test]
fn a_session_may_be_what_another_plugin_says() {
    let source = |attribute: &str| {
        let config = json!({"sources": [{"attribute": attribute}]});
        json!({"strategy": "session_id", "sessionIdConfig": config})
    };
    let plan = plan_of(json!({"plugins": [
        plugin("session-affinity-scorer", source("SessionID")),
        plugin("session-id-producer", json!({"cookieName": "sid"})),
        plugin("agent-identity", json!({"additionalSessionHeaders": ["X-Agent"]})),
    ]}));
    assert_eq!(
        plan.headers,
        [
            "cookie",
            "session-id",
            "session_id",
            "x-agent",
            "x-claude-code-session-id",
            "x-session-affinity",
        ]
    );
    let [session, agent] = plan.identities.as_slice() else {
        panic!("{:?}", plan.identities);
    };
    assert_eq!(session.sources, vec![Source::Cookie("sid".into())]);
    assert_eq!(agent.sources[0], Source::Header("x-agent".into()));
    assert_eq!(agent.sources.len(), 5);
    check(
        json!({"plugins": [plugin("session-affinity-scorer", source("SessionID"))]}),
        &[
            ".plugins: 'session-affinity-scorer' asks for SessionID, which no plugin says. Fix: \
             declare session-id-producer or agent-identity, or name a header.",
        ],
    );
}

#[test]
fn what_no_session_can_come_of_is_refused() {
    let sources =
        |sources: Value| json!({"strategy": "session_id", "sessionIdConfig": {"sources": sources}});
    let either = ".plugins[0].parameters.sessionIdConfig.sources: a source is either a header or an \
                  attribute. Fix: give it a header, or an attribute and its producer.";
    let one = ".plugins[0].parameters: exactly one of headerName and cookieName must be given. Fix: \
               name the header, or the cookie, that tells the session.";
    let no_header = |key: &str, name: &str| {
        alloc::format!(
            ".plugins[0].parameters.{key}: \"{name}\" is no header name. Fix: write the name of a \
             header that is not Host, like x-session-id."
        )
    };
    let affinity = "session-affinity-filter";
    for (kind, parameters, expected) in [
        (affinity, sources(json!([{}])), either.into()),
        (
            affinity,
            sources(json!([{"header": "a", "attribute": "b"}])),
            either.into(),
        ),
        (
            affinity,
            sources(json!([{"header": "a", "producer": "b"}])),
            either.into(),
        ),
        (
            affinity,
            sources(json!([{"header": "a b"}])),
            no_header("sessionIdConfig.sources", "a b"),
        ),
        (
            affinity,
            json!({"encodedEndpointHeaderConfig": {"header": "host"}}),
            no_header("encodedEndpointHeaderConfig.header", "host"),
        ),
        ("session-id-producer", json!({}), one.into()),
        (
            "session-id-producer",
            json!({"headerName": "a", "cookieName": "b"}),
            one.into(),
        ),
        (
            "agent-identity",
            json!({"additionalSessionHeaders": [""]}),
            no_header("additionalSessionHeaders", ""),
        ),
    ] {
        check(json!({"plugins": [plugin(kind, parameters)]}), &[&expected]);
    }
}
