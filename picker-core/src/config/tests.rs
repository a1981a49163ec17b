use alloc::format;
use std::collections::BTreeSet;

use serde_json::{Map, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;
use crate::config_schema;

#[test]
fn the_role_follows_from_the_document() {
    for empty in ["", " \n"] {
        assert_eq!(parse(empty.as_bytes()), Ok(Role::Service));
    }
    let page = json!({"serve": "page"});
    assert_eq!(parse(page.to_string().as_bytes()), Ok(Role::Page));
    assert_eq!(parse(&encode(&page)), Ok(Role::Page));
    assert_eq!(config(&with_pool(json!({}))).pools.len(), 1);
    check(
        &json!({"serve": "pages", "pools": [], "strict": true}),
        &[
            r#"serve: "pages" is no known role. Fix: write "page"."#,
            "pools: serve: page picks nothing. Fix: remove it, or remove serve.",
            "strict: serve: page picks nothing. Fix: remove it, or remove serve.",
        ],
    );
}

#[test]
fn what_is_left_out_has_a_default() {
    let expected = json!({
        "pools": [{
            "name": "a",
            "match": {"clusters": [], "routes": [], "hosts": [], "pathPrefixes": []},
            "models": [],
            "modelRewrites": [],
            "publicNames": true,
            "engine": "vllm",
            "endpoints": [{"address": "10.0.0.1:8000", "labels": {}}],
            "scrape": {
                "cluster": "picker_endpoints",
                "interval": "100ms",
                "timeout": "1s",
                "path": "/metrics",
                "stalenessThreshold": "2s",
            },
            "cache": {"capacityTokens": "auto", "hashSeed": "a"},
            "objectives": [],
            "emitScores": false,
            "failureMode": "FailOpen",
            "limits": {"requestBodyBytes": "32Mi"},
        }],
        "destination": {"via": "header", "header": "x-gateway-destination-endpoint"},
        "paths": {"prefixes": [], "admin": admin::PATHS},
        "strict": false,
        "strictModels": false,
        "listModels": "whenEmpty",
        "trust": {
            "priority": {"header": [
                "x-llm-d-inference-objective",
                "x-gateway-inference-objective",
            ]},
            "fairness": {"header": [
                "x-llm-d-inference-fairness-id",
                "x-gateway-inference-fairness-id",
            ]},
        },
    });
    let without_picker = |document: &Value| {
        let mut effective = effective(document);
        effective["pools"][0]
            .as_object_mut()
            .unwrap()
            .remove("picker");
        effective
    };
    let document = with_pool(json!({}));
    assert_eq!(without_picker(&document), expected);
    // Null is as good as nothing.
    let document = with_pool(json!({"match": null, "engine": null, "scrape": {"interval": null}}));
    assert_eq!(without_picker(&document), expected);
}

/// Of each object a key and a value other than its default; of the picker, what changes the
/// profile.
fn changes() -> Vec<(&'static str, Value)> {
    let mut changes = changes_of_pools();
    changes.extend(changes_of_picker());
    changes.extend(changes_of_discovery());
    changes.extend([
        ("destination/via", json!("filterState")),
        ("destination/header", json!("x-endpoint")),
        ("destination/holdHeaders", json!(false)),
        ("paths/prefixes", json!(["/openai"])),
        ("paths/admin", json!([])),
        ("sessionKey", json!("0123456789abcdef")),
        ("strict", json!(true)),
        ("strictModels", json!(true)),
        ("listModels", json!("always")),
        ("modelHeaders/baseModels/baseModel", json!("llama")),
        ("modelHeaders/baseModels/adapters", json!(["a"])),
        ("trust/priority/header", json!("x-objective")),
        ("trust/priority/filterState", json!("objective")),
        ("trust/priority/none", json!(true)),
        ("trust/priority/metadata/namespace", json!("jwt")),
        ("trust/priority/metadata/path", json!(["claims"])),
        ("trust/fairness/header", json!("x-tenant")),
        ("trust/fairness/filterState", json!("tenant")),
        ("trust/fairness/none", json!(true)),
        ("trust/fairness/metadata/namespace", json!("jwt")),
        ("trust/fairness/metadata/path", json!(["claims"])),
    ]);
    changes
}

fn changes_of_discovery() -> Vec<(&'static str, Value)> {
    vec![
        ("pools/discovery/http/cluster", json!("c")),
        ("pools/discovery/http/path", json!("/p?a")),
        ("pools/discovery/http/host", json!("h:1")),
        ("pools/discovery/http/interval", json!("2s")),
        ("pools/discovery/http/timeout", json!("2s")),
        ("pools/discovery/http/hold", json!("2s")),
        ("pools/discovery/kubernetes/cluster", json!("c")),
        ("pools/discovery/kubernetes/host", json!("h")),
        ("pools/discovery/kubernetes/namespace", json!("n")),
        ("pools/discovery/kubernetes/inferencePool", json!("p")),
        ("pools/discovery/kubernetes/selector", json!({"a": "b"})),
        ("pools/discovery/kubernetes/targetPorts", json!([1])),
        ("pools/discovery/kubernetes/service", json!("s")),
        ("pools/discovery/kubernetes/interval", json!("2s")),
        ("pools/discovery/kubernetes/timeout", json!("2s")),
        ("pools/discovery/kubernetes/hold", json!("2s")),
    ]
}

fn changes_of_picker() -> Vec<(&'static str, Value)> {
    vec![
        (
            "pools/picker/apiVersion",
            json!("inference.networking.x-k8s.io/v1alpha1"),
        ),
        ("pools/picker/kind", json!("EndpointPickerConfig")),
        ("pools/picker/metadata", json!({"name": "x"})),
        ("pools/picker/featureGates", json!(["flowControl"])),
        ("pools/picker/parser/pluginRef", json!("openai-parser")),
        (
            "pools/picker/requestHandler/parsers/pluginRef",
            json!("openai-parser"),
        ),
        ("pools/picker/dataLayer/injectDefaults", json!(false)),
        (
            "pools/picker/saturationDetector/pluginRef",
            json!("utilization-detector"),
        ),
        ("pools/picker/flowControl/maxBytes", json!("1Gi")),
        ("pools/picker/flowControl/maxRequests", json!(7)),
        ("pools/picker/flowControl/defaultRequestTTL", json!("1s")),
        ("pools/picker/flowControl/noEndpointRequestTTL", json!("1s")),
        ("pools/picker/flowControl/enableEviction", json!(true)),
        (
            "pools/picker/flowControl/usageLimitPolicyPluginRef",
            json!("static-usage-limit-policy"),
        ),
        ("pools/picker/flowControl/priorityBands/priority", json!(3)),
        (
            "pools/picker/flowControl/defaultPriorityBand/maxBytes",
            json!("1Gi"),
        ),
        (
            "pools/picker/flowControl/defaultNegativePriorityBand/maxRequests",
            json!(9),
        ),
        ("pools/picker/plugins/type", json!("prefix-cache-scorer")),
        ("pools/picker/plugins/name", json!("q")),
        ("pools/picker/plugins/parameters", json!({})),
        ("pools/picker/schedulingProfiles/name", json!("p")),
        (
            "pools/picker/schedulingProfiles/plugins/pluginRef",
            json!("queue-scorer"),
        ),
        ("pools/picker/schedulingProfiles/plugins/weight", json!(7)),
    ]
}

fn changes_of_pools() -> Vec<(&'static str, Value)> {
    vec![
        ("pools/name", json!("b")),
        ("pools/match/clusters", json!(["c"])),
        ("pools/match/routes", json!(["r"])),
        ("pools/match/hosts", json!(["h"])),
        ("pools/match/pathPrefixes", json!(["/p"])),
        ("pools/models", json!(["m"])),
        ("pools/modelRewrites/matches/model/type", json!("Exact")),
        ("pools/modelRewrites/matches/model/value", json!("m")),
        ("pools/modelRewrites/targets/modelRewrite", json!("n")),
        ("pools/modelRewrites/targets/weight", json!(2)),
        ("pools/modelRewrites/stickyHeader", json!("x-id")),
        ("pools/publicNames", json!(false)),
        ("pools/fallback/pool", json!("b")),
        ("pools/fallback/model", json!("m")),
        ("pools/engine", json!("sglang")),
        ("pools/endpoints/address", json!("10.0.0.2:8000")),
        ("pools/endpoints/labels", json!({"a": "b"})),
        ("pools/scrape/cluster", json!("c")),
        ("pools/scrape/interval", json!("200ms")),
        ("pools/scrape/timeout", json!("2s")),
        ("pools/scrape/path", json!("/m")),
        ("pools/scrape/stalenessThreshold", json!("3s")),
        ("pools/cache/capacityTokens", json!(1000)),
        ("pools/cache/hashSeed", json!("seed")),
        ("pools/objectives/name", json!("o")),
        ("pools/objectives/priority", json!(1)),
        ("pools/emitScores", json!(true)),
        ("pools/failureMode", json!("FailClose")),
        ("pools/limits/requestBodyBytes", json!("1Mi")),
        ("pools/limits/requestsPerEndpoint", json!(7)),
    ]
}

#[test]
fn every_key_changes_something() {
    // They say which document this is, or are names that the effective configuration gives anew.
    let mute = [
        "apiVersion",
        "kind",
        "metadata",
        "name",
        "parameters",
        "pluginRef",
        "type",
    ];
    let plain = effective(&with_pool(json!({})));
    for (path, value) in changes() {
        let key = path.rsplit('/').next().unwrap();
        if path.starts_with("pools/discovery") {
            continue; // Tried where it is read: it stands in place of the endpoints.
        }
        // A secret is not shown.
        let is_mute = path.starts_with("pools/picker") && mute.contains(&key);
        if is_mute || key == "sessionKey" {
            continue;
        }
        let mut document = with_pool(json!({}));
        set(&mut document, path, &value);
        if path == "destination/holdHeaders" {
            set(&mut document, "destination/via", &json!("filterState"));
            let held = effective(&with_destination(json!({"via": "filterState"})));
            assert_ne!(effective(&document), held, "{path}");
            continue;
        }
        if path.starts_with("pools/modelRewrites") {
            let rule = "pools/modelRewrites";
            for (key, value) in [("targets/modelRewrite", "n"), ("matches/model/value", "m")] {
                set(&mut document, &format!("{rule}/{key}"), &json!(value));
            }
            assert_ne!(effective(&document), plain, "{path}");
            continue;
        }
        if path.starts_with("pools/fallback") {
            set(&mut document, "pools/fallback/pool", &json!("b"));
            let mut other = with_pool(json!({"name": "b", "match": {"hosts": ["b"]}}));
            let other = other["pools"][0].take();
            document["pools"].as_array_mut().unwrap().insert(0, other);
            assert_ne!(effective(&document), plain, "{path}");
            continue;
        }
        if path.starts_with("modelHeaders") {
            let base = "modelHeaders/baseModels/baseModel";
            set(&mut document, base, &json!("llama"));
        }
        if path.starts_with("pools/objectives") {
            set(&mut document, "pools/objectives/name", &json!("o"));
        }
        if let Some((metadata, _)) = path.split_once("/metadata/") {
            let whole = json!({"namespace": "jwt", "path": ["claims"]});
            set(&mut document, &format!("{metadata}/metadata"), &whole);
        }
        if path.starts_with("pools/picker/schedulingProfiles") {
            set(
                &mut document,
                "pools/picker/plugins/type",
                &json!("queue-scorer"),
            );
            let profile = "pools/picker/schedulingProfiles";
            set(&mut document, &format!("{profile}/name"), &json!("p"));
            set(
                &mut document,
                &format!("{profile}/plugins/pluginRef"),
                &json!("queue-scorer"),
            );
        }
        assert_ne!(effective(&document), plain, "{path}");
    }
}

#[test]
fn no_key_is_without_a_test() {
    let mut known: BTreeSet<String> = BTreeSet::new();
    let mut tested: BTreeSet<String> = BTreeSet::from(["serve".into()]);
    let mut objects: BTreeSet<&str> = BTreeSet::from([""]);
    for (path, _) in changes() {
        for (at, _) in path.match_indices('/') {
            objects.insert(&path[..at]);
            tested.insert(path[..at].into());
        }
        tested.insert(path.into());
    }
    objects.insert("pools/picker/plugins/parameters");
    let flow_control = "pools/picker/flowControl";
    let band = [
        "maxBytes",
        "maxRequests",
        "fairnessPolicyRef",
        "orderingPolicyRef",
    ];
    let bands = [
        "priorityBands",
        "defaultPriorityBand",
        "defaultNegativePriorityBand",
    ];
    let of_bands = bands
        .iter()
        .flat_map(|it| band.map(|key| format!("{flow_control}/{it}/{key}")));
    tested.extend(of_bands);
    // Those of a plugin, one that has the same meaning in another place, and those that cannot be
    // used here.
    tested.extend(
        [
            "plugins/parameters/maxNumOfEndpoints",
            "flowControl/saturationDetector",
            "dataLayer/sources",
        ]
        .map(|key| format!("pools/picker/{key}")),
    );
    tested.extend(REFUSED.map(String::from));
    for object in objects {
        let mut document = with_pool(json!({}));
        set(
            &mut document,
            "pools/picker/plugins/type",
            &json!("max-score-picker"),
        );
        set(
            &mut document,
            format!("{object}/no such key").trim_start_matches('/'),
            &json!(1),
        );
        for error in parse(document.to_string().as_bytes()).unwrap_err() {
            if let Cause::Unknown {
                what: "key",
                known: keys,
                ..
            } = error.cause
            {
                let paths = keys.iter().map(|key| format!("{object}/{key}"));
                known.extend(paths.map(|path| path.trim_start_matches('/').to_string()));
            }
        }
    }
    assert_eq!(known, tested);
    let schema = config_schema();
    let missing = known.iter().filter(|path| !is_in_schema(&schema, path));
    assert!(missing.eq(&REFUSED), "what the schema does not know");
}

/// Keys that are refused wherever they stand, so that editors need not know them.
const REFUSED: [&str; 4] = [
    "pools/picker/dataLayer/crossReplicaSyncInterval",
    "pools/picker/dataLayer/crossReplicaSyncerPluginRef",
    "pools/picker/dataLayer/discovery",
    "pools/picker/dataLayer/peerDiscovery",
];

/// Whether the schema has a key; those of lists are those of what is in them.
fn is_in_schema(schema: &Value, path: &str) -> bool {
    let (key, rest) = path.split_once('/').unwrap_or((path, ""));
    let items = schema.get("items").unwrap_or(schema);
    let of_types = items["allOf"].as_array().into_iter().flatten();
    let parts = of_types.map(|it| &it["then"]).chain([items]);
    let mut found = parts.filter_map(|part| part["properties"].get(key));
    found.any(|it| rest.is_empty() || is_in_schema(it, rest))
}

/// A document in which something stands under every key.
fn everything() -> Value {
    let mut everything = json!({
        "pools": [
            {
                "name": "a.b-1",
                "match": {
                    "clusters": ["c"],
                    "routes": ["r"],
                    "hosts": ["A.b"],
                    "pathPrefixes": ["/"],
                },
                "engine": "trtllm-serve",
                "endpoints": [
                    {
                        "address": "10.0.0.1:8000",
                        "labels": {"llm-d.ai/engine-type": "tgi", "": "x"},
                    },
                    {"address": "[2001:db8::1]:8000"},
                ],
                "scrape": {"interval": "1m30s", "stalenessThreshold": "1h"},
                "cache": {"capacityTokens": 5},
                "picker": {
                    "plugins": [
                        {"type": "queue-scorer"},
                        {"type": "least-cost-scorer", "name": "cheap", "parameters": {"baseTokens": 99}},
                        {"type": "queue-scorer", "name": "again"},
                        {"type": "max-score-picker", "parameters": {"maxNumOfEndpoints": 3}},
                    ],
                    "schedulingProfiles": [{"name": "p", "plugins": [
                        {"pluginRef": "queue-scorer", "weight": 0.1},
                        {"pluginRef": "again", "weight": 1},
                    ]}],
                },
                "objectives": [{"name": "batch", "priority": -2147483648}, {"name": "x"}],
                "failureMode": "FailClose",
                "limits": {"requestBodyBytes": 1025, "requestsPerEndpoint": 4_294_967_295_u32},
            },
            {"name": "z", "endpoints": [{"address": "10.0.0.1:8000"}], "picker": {}},
        ],
        "destination": {"via": "filterState"},
        "paths": {"prefixes": ["/openai", "/a/b"], "admin": ["/sleep"]},
        "strict": true,
        "strictModels": true,
        "listModels": "never",
        "modelHeaders": {"baseModels": [{"baseModel": "m", "adapters": ["a", "b"]}]},
        "trust": {
            "priority": {"metadata": {"namespace": "envoy.jwt", "path": ["claims", "priority"]}},
            "fairness": {"header": ["X-Tenant"]},
        },
    });
    let pool = everything["pools"][0].as_object_mut().unwrap();
    pool.extend(names().as_object().unwrap().clone());
    everything
}

fn names() -> Value {
    json!({
                "models": ["m", "reviews-*"],
                "modelRewrites": [
                    {
                        "matches": [{"model": {"value": "old"}}, {"model": {"value": "older"}}],
                        "targets": [
                            {"modelRewrite": "new", "weight": 0},
                            {"modelRewrite": "newer", "weight": 1_000_000},
                        ],
                        "stickyHeader": "X-Session",
                    },
                    {"targets": [{"modelRewrite": "m"}, {"modelRewrite": "n"}]},
                ],
                "publicNames": false,
                "fallback": {"pool": "z", "model": "big"},
    })
}

#[test]
fn the_effective_configuration_reads_back_as_the_same() {
    for document in [with_pool(json!({})), everything()] {
        let config = config(&document);
        for pool in &config.pools {
            let Ok(Role::Filter(alone)) = parse(pool.to_document().as_bytes()) else {
                panic!("{}", pool.to_document());
            };
            let fallback = None;
            let pool = PoolConfig {
                fallback,
                ..pool.clone()
            };
            assert_eq!(alone.pools, [pool]);
        }
        let again = parse(config.to_json().as_bytes());
        assert_eq!(again, Ok(Role::Filter(Box::new(config))));
        assert_eq!(
            parse(&encode(&document)),
            parse(document.to_string().as_bytes())
        );
    }
}

#[test]
fn a_wrong_name_of_a_model_is_told_with_its_place() {
    check_pool(
        json!({"models": ["a", "b*c", "*", "a"]}),
        &[
            "pools[0].models[1]: a * may only stand at the end. Fix: write bc*.",
            "pools[0].models[3]: the name \"a\" is already that of pools[0].models[0]. \
             Fix: choose another name or remove one.",
        ],
    );
}

fn rule(names: &[&str], targets: Value) -> Value {
    let name = |it: &&str| json!({"model": {"value": it}});
    json!({"matches": names.iter().map(name).collect::<Vec<_>>(), "targets": targets})
}

fn to(name: &str) -> Value {
    json!([{"modelRewrite": name}])
}

fn weighted(weights: &[Value]) -> Value {
    let target = |it: &Value| json!({"modelRewrite": "t", "weight": it});
    weights.iter().map(target).collect()
}

#[test]
fn a_rule_for_names_that_cannot_be_meant_is_a_mistake() {
    for (rules, expected) in [
        (
            json!([{"matches": []}]),
            "pools[0].modelRewrites[0].targets: a list of targets is missing. Fix: write a list of \
             targets, like [{\"modelRewrite\": \"llama-3.1-8b\"}].",
        ),
        (
            json!([rule(&["a"], json!([]))]),
            "pools[0].modelRewrites[0].targets: a list of targets is missing. Fix: write a list of \
             targets, like [{\"modelRewrite\": \"llama-3.1-8b\"}].",
        ),
        (
            json!([{"matches": [{"model": {"type": "Prefix", "value": "a"}}], "targets": to("b")}]),
            "pools[0].modelRewrites[0].matches[0].model.type: \"Prefix\" is no known type of match. \
             Fix: use one of Exact.",
        ),
        (
            json!([{"matches": [{}], "targets": to("b")}]),
            "pools[0].modelRewrites[0].matches[0].model.value: a name is missing. Fix: write a text \
             that is not empty.",
        ),
        (
            json!([rule(&["a"], weighted(&[json!(0), json!(0)]))]),
            "pools[0].modelRewrites[0].targets: all targets have weight 0. Fix: give one of them a \
             weight, or remove the rule.",
        ),
        (
            json!([rule(&["a"], weighted(&[json!(1), json!(null)]))]),
            "pools[0].modelRewrites[0].targets: some targets have a weight and others have none. \
             Fix: give all of them one, or none; 0 is for a target that gets nothing.",
        ),
        (
            json!([rule(&["a"], weighted(&[json!(1_000_001)]))]),
            "pools[0].modelRewrites[0].targets[0].weight: 1000001 is not between 0 and 1000000. \
             Fix: choose a value from 0 to 1000000.",
        ),
        (
            json!([rule(&["a", "b"], to("c")), rule(&["b"], to("d"))]),
            "pools[0].modelRewrites[1].matches[0]: the name \"b\" is already that of \
             pools[0].modelRewrites[0].matches[1]. Fix: choose another name or remove one.",
        ),
        (
            json!([rule(&[], to("c")), {"targets": to("d")}]),
            "pools[0].modelRewrites[1]: the name \"*\" is already that of \
             pools[0].modelRewrites[0]. Fix: choose another name or remove one.",
        ),
        (
            json!([
                rule(&["a"], to("b")),
                rule(&["b"], to("c")),
                rule(&["c", "d"], to("a"))
            ]),
            "pools[0].modelRewrites: the targets of \"a\" lead back to it. Fix: name the model at \
             the servers: a name is rewritten only once.",
        ),
        (
            json!([{"targets": to("b"), "stickyHeader": "host"}]),
            "pools[0].modelRewrites[0].stickyHeader: \"host\" is not a header name. Fix: write the \
             name of a header that is not Host, like x-endpoint.",
        ),
    ] {
        check_pool(json!({"modelRewrites": rules}), &[expected]);
    }
}

#[test]
fn rules_may_share_names_of_servers_and_keep_some() {
    for rules in [
        json!([rule(
            &["a"],
            json!([{"modelRewrite": "a"}, {"modelRewrite": "b"}])
        )]),
        json!([rule(&["a"], to("b")), rule(&["b"], to("c"))]),
        json!([rule(&["a"], to("b")), rule(&[], to("a"))]),
        json!([rule(&["a"], weighted(&[json!(0), json!(1)]))]),
    ] {
        config(&with_pool(json!({"modelRewrites": rules})));
    }
}

#[test]
fn a_fallback_leads_to_another_pool_and_not_back() {
    let errors = |fallbacks: &[(&str, &str)]| {
        let pool = |(name, fallback): &(&str, &str)| {
            json!({
                "name": name,
                "match": {"hosts": [name]},
                "endpoints": [{"address": "10.0.0.1:8000"}],
                "fallback": (!fallback.is_empty()).then(|| json!({"pool": fallback})),
            })
        };
        let pools: Vec<Value> = fallbacks.iter().map(pool).collect();
        let errors = parse(json!({"pools": pools}).to_string().as_bytes()).err();
        let errors = errors.into_iter().flatten();
        errors
            .map(|it| it.to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(errors(&[("a", "b"), ("b", "c"), ("c", "")]), "");
    assert_eq!(
        errors(&[("alpha", "bete"), ("beta", "")]),
        "pools[0].fallback.pool: \"bete\" is no known pool. Fix: write \"beta\"."
    );
    for (fallbacks, place, name) in [
        (&[("a", "a")][..], 0, "a"),
        (&[("a", "b"), ("b", "c"), ("c", "b")], 1, "b"),
    ] {
        let expected = format!(
            "pools[{place}].fallback.pool: the fallbacks of {name} lead back to it. \
             Fix: remove one of them."
        );
        assert_eq!(errors(fallbacks), expected);
    }
}

#[test]
fn pools_may_be_left_out_where_others_are_told_the_model() {
    let config = config(&json!({"modelHeaders": {}}));
    assert_eq!(config.pools, []);
    assert_eq!(config.model_headers, Some(Vec::new()));
    let bases =
        json!([{"baseModel": "a", "adapters": ["x"]}, {"baseModel": "b", "adapters": ["x"]}]);
    let errors = parse(
        json!({"modelHeaders": {"baseModels": bases}})
            .to_string()
            .as_bytes(),
    );
    assert_eq!(
        errors.unwrap_err()[0].to_string(),
        "modelHeaders.baseModels[1].adapters[0]: the name \"x\" is already that of \
         modelHeaders.baseModels[0].adapters[0]. Fix: choose another name or remove one."
    );
}

#[test]
fn an_engine_is_the_endpoints_or_the_pools() {
    let label = |engine| json!({"llm-d.ai/engine-type": engine});
    let config = config(&with_pool(json!({
        "engine": "trtllm-serve",
        "endpoints": [
            {"address": "1.1.1.1:1"},
            {"address": "1.1.1.1:2", "labels": label("sglang")},
        ],
    })));
    let engines = config.pools[0].endpoints.iter().map(|it| it.engine);
    assert!(engines.eq([EngineKind::TrtllmServe, EngineKind::Sglang]));
    assert_eq!(config.pools[0].scrape.path, "/prometheus/metrics");
    check_pool(
        json!({"endpoints": [{"address": "1.1.1.1:1", "labels": label("sglan")}], "engine": "x"}),
        &[
            "pools[0].engine: \"x\" is no known engine. Fix: use one of vllm, sglang, \
             trtllm-serve, \
             triton-tensorrt-llm, triton, tgi.",
            "pools[0].endpoints[0].labels[\"llm-d.ai/engine-type\"]: \"sglan\" is no known engine. \
             Fix: write \"sglang\".",
        ],
    );
}

#[test]
fn endpoints_are_those_whose_ports_are_active() {
    let (new, old) = (
        "llm-d.ai/active-ports",
        "inference.networking.k8s.io/active-ports",
    );
    for (labels, active) in [
        (json!({}), "8000 8001 8002"),
        (json!({new: "8000,8002"}), "8000 8002"),
        (json!({new: " 8001 ,x,,-1,80000,8001"}), "8001"),
        (json!({old: "8002"}), "8002"),
        (json!({new: "8000", old: "8002"}), "8000"),
        (json!({"other": "8000"}), "8000 8001 8002"),
        (json!({new: ""}), ""),
        (json!({new: "9000", old: "8000"}), ""),
    ] {
        let endpoint = |port| json!({"address": format!("1.1.1.1:{port}"), "labels": labels});
        let pool = json!({"endpoints": [endpoint(8000), endpoint(8001), endpoint(8002)]});
        if active.is_empty() {
            check_pool(
                pool,
                &["pools[0].endpoints: no endpoint has a port that its label \
                     llm-d.ai/active-ports names. Fix: name ports of endpoints, or remove the \
                     label."],
            );
            continue;
        }
        let config = config(&with_pool(pool));
        let ports = config.pools[0].endpoints.iter();
        let ports: Vec<String> = ports.map(|it| it.address.port().to_string()).collect();
        assert_eq!(ports.join(" "), active, "{labels}");
    }
}

#[test]
fn a_mistake_says_where_what_and_how_to_put_it_right() {
    check_pool(
        json!({"scrape": {"interval": "fast", "timeout": 5, "path": "metrics", "cluster": ""}}),
        &[
            "pools[0].scrape.cluster: \"\" is not a name. Fix: write a text that is not empty.",
            "pools[0].scrape.interval: \"fast\" is not a duration. \
             Fix: write a number with a unit, like 100ms or 2s.",
            "pools[0].scrape.timeout: 5 is not a duration. \
             Fix: write a number with a unit, like 100ms or 2s.",
            "pools[0].scrape.path: \"metrics\" is not a path. \
             Fix: write a path that begins with / and has no query, like /metrics.",
        ],
    );
    check_pool(
        json!({"scrap": {}, "scrape": {"intervall": "1s"}, "wieght": 2}),
        &[
            "pools[0].scrape.intervall: \"intervall\" is no known key. Fix: write \"interval\".",
            "pools[0].scrap: \"scrap\" is no known key. Fix: write \"scrape\".",
            "pools[0].wieght: \"wieght\" is no known key. Fix: use one of name, match, models, \
             engine, discovery, endpoints, scrape, cache, objectives, picker, modelRewrites, \
             publicNames, fallback, emitScores, failureMode, limits.",
        ],
    );
    check_pool(
        json!({"match": [], "limits": 5, "cache": {"capacityTokens": "lots", "hashSeed": 1}}),
        &[
            "pools[0].match: a list is not an object. Fix: write an object, like {\"key\": \
             \"value\"}.",
            "pools[0].cache.hashSeed: 1 is not a name. Fix: write a text that is not empty.",
            "pools[0].cache.capacityTokens: \"lots\" is not a capacity. \
             Fix: write a number of tokens, or auto.",
            "pools[0].limits: 5 is not an object. Fix: write an object, like {\"key\": \"value\"}.",
        ],
    );
    check_pool(
        json!({"match": {
            "hosts": ["*.example.com", "a:80"],
            "routes": "r",
            "pathPrefixes": ["v1", "/v1?a", "/v1#a", "/v 1"],
        }}),
        &[
            "pools[0].match.routes: \"r\" is not a list. Fix: write a list, like [\"one\", \
             \"two\"].",
            "pools[0].match.hosts[0]: \"*.example.com\" is not a host name. \
             Fix: write a whole host name without port, like api.example.com.",
            "pools[0].match.hosts[1]: \"a:80\" is not a host name. \
             Fix: write a whole host name without port, like api.example.com.",
            "pools[0].match.pathPrefixes[0]: \"v1\" is not a path. \
             Fix: write a path that begins with / and has no query, like /metrics.",
            "pools[0].match.pathPrefixes[1]: \"/v1?a\" is not a path. \
             Fix: write a path that begins with / and has no query, like /metrics.",
            "pools[0].match.pathPrefixes[2]: \"/v1#a\" is not a path. \
             Fix: write a path that begins with / and has no query, like /metrics.",
            "pools[0].match.pathPrefixes[3]: \"/v 1\" is not a path. \
             Fix: write a path that begins with / and has no query, like /metrics.",
        ],
    );
}

#[test]
fn a_session_key_is_long_enough_and_never_shown() {
    let document = |key: &str| {
        let mut document = with_pool(json!({}));
        document["sessionKey"] = key.into();
        document
    };
    let key = |key: &str| config(&document(key)).session_key;
    let longest = "k".repeat(TEXT_BYTES_MAX);
    assert_eq!(config(&with_pool(json!({}))).session_key, None);
    assert_eq!(key(&longest), Some(SessionKey::new(&longest)));
    assert_ne!(key("0123456789abcdef"), key("0123456789abcdeg"));
    assert!(
        !effective(&document("0123456789abcdef"))
            .to_string()
            .contains("0123")
    );
    for text in ["", "0123456789abcde", &format!("{longest}k")] {
        check(
            &document(text),
            &[
                "sessionKey: the key of session tokens is too short to be a secret, or too long. \
                 Fix: draw one of 16 to 1024 bytes.",
            ],
        );
    }
}

#[test]
fn a_mistake_in_one_place_does_not_hide_another() {
    check_pool(
        json!({"failureMode": "failopen", "limits": {"requestBodyBytes": "32MB"}}),
        &[
            "pools[0].failureMode: \"failopen\" is no known failure mode. Fix: write \"FailOpen\".",
            "pools[0].limits.requestBodyBytes: \"32MB\" is not a size. \
             Fix: write a number of bytes, like 33554432 or 32Mi.",
        ],
    );
    check(
        &json!({
            "pools": [],
            "destination": {"via": "metadata"},
            "paths": {"prefixes": ["a/"]},
            "strict": "yes",
        }),
        &[
            "pools: a list of pools is missing. \
             Fix: write a list of pools, like [{\"name\": \"llama3\", \"endpoints\": […]}].",
            "destination.via: \"metadata\" is no known way to tell the destination. \
             Fix: use one of header, filterState.",
            "paths.prefixes[0]: \"a/\" is not a path. \
             Fix: write a path that begins with / and has no query, like /metrics.",
            "strict: \"yes\" is not true or false. Fix: write true or false, without quotes.",
        ],
    );
    // As a Struct this is no bytes at all, hence the service's configuration.
    assert_eq!(mistakes(b"{}"), mistakes(b"{\"pools\": []}"));
    check(
        &json!({"pools": [5, {}, {"match": {"hosts": ["a"]}}]}),
        &[
            "pools[0]: 5 is not an object. Fix: write an object, like {\"key\": \"value\"}.",
            "pools[1].name: a pool name is missing. \
             Fix: write lower-case letters, digits, - and . only, like llama3.",
            "pools[1].endpoints: a list of endpoints is missing. \
             Fix: write a list of endpoints, like [{\"address\": \"10.0.0.1:8000\"}].",
            "pools[2].name: a pool name is missing. \
             Fix: write lower-case letters, digits, - and . only, like llama3.",
            "pools[2].endpoints: a list of endpoints is missing. \
             Fix: write a list of endpoints, like [{\"address\": \"10.0.0.1:8000\"}].",
        ],
    );
}

#[test]
fn a_document_that_is_none_is_refused() {
    let text = |bytes: &[u8]| mistakes(bytes).join("\n");
    let fix = "Fix: give a JSON object, or a google.protobuf.Struct.";
    for (bytes, cause) in [
        (&b"pools:\n\t- name: a"[..], "this is not JSON"),
        (b"[]", "this is not JSON"),
        (b"null", "this is not JSON"),
        (
            b"{\"pools\": [}",
            "not JSON: expected value, line 1 column 12",
        ),
        (
            b"\n{\n",
            "not JSON: EOF while parsing an object, line 3 column 0",
        ),
        (b"{} {}", "not JSON: trailing characters, line 1 column 4"),
        (
            b"{\"a\": \"\x01\"}",
            "not JSON: control character (\\u0000-\\u001F) found while parsing a string, line 1 \
             column 8",
        ),
        (
            b"\x0a\x05\x0a\x01a\x12",
            "neither JSON nor a protobuf Struct, from byte 2",
        ),
        (
            b"\x12\x00\x13",
            "neither JSON nor a protobuf Struct, from byte 2",
        ),
    ] {
        assert_eq!(
            text(bytes),
            format!("configuration: {cause}. {fix}"),
            "{bytes:?}"
        );
    }
    assert!(text(b"{\"\xff\": 1}").starts_with("configuration: not JSON"));
}

#[test]
fn an_address_is_that_of_one_server() {
    for (address, fault) in NO_ADDRESSES {
        check_pool(
            json!({"endpoints": [{"address": address}]}),
            &[&format!(
                "pools[0].endpoints[0].address: {address:?} {fault}."
            )],
        );
    }
    check_pool(
        json!({"endpoints": [{"address": ""}, {"address": 5}, {}]}),
        &[
            "pools[0].endpoints[0].address: \"\" is not an address. \
             Fix: write an IP address and a port, like 10.0.0.1:8000.",
            "pools[0].endpoints[1].address: 5 is not an address. \
             Fix: write an IP address and a port, like 10.0.0.1:8000.",
            "pools[0].endpoints[2].address: an address is missing. \
             Fix: write an IP address and a port, like 10.0.0.1:8000.",
        ],
    );
}

#[test]
fn names_and_addresses_are_unique() {
    check_pool(
        json!({"endpoints": [
            {"address": "1.1.1.1:1"},
            {"address": "[::1]:1"},
            {"address": "1.1.1.1:1"},
            {"address": "[0:0::1]:1"},
        ]}),
        &[
            "pools[0].endpoints[2]: the address \"1.1.1.1:1\" is already that of \
             pools[0].endpoints[0]. \
             Fix: choose another address or remove one.",
            "pools[0].endpoints[3]: the address \"[::1]:1\" is already that of \
             pools[0].endpoints[1]. \
             Fix: choose another address or remove one.",
        ],
    );
    let endpoints = json!([{"address": "1.1.1.1:1"}]);
    let pool = |host| json!({"name": "a", "match": {"hosts": [host]}, "endpoints": endpoints});
    check(
        &json!({"pools": [pool("a"), pool("b")]}),
        &[
            "pools[1]: the name \"a\" is already that of pools[0]. Fix: choose another name or \
             remove one.",
        ],
    );
    for name in ["", "A", "-a", "a-", "a.", "a_b", "a b", &"a".repeat(64)] {
        let errors = mistakes(with_pool(json!({"name": name})).to_string().as_bytes());
        assert!(errors[0].contains("is not a pool name"), "{errors:?}");
    }
    for name in ["a", "0", "llama-3.1-8b", &"a".repeat(63)] {
        assert_eq!(
            config(&with_pool(json!({"name": name}))).pools[0].name,
            name
        );
    }
}

#[test]
fn a_pool_must_be_reachable() {
    let endpoints = || json!([{"address": "1.1.1.1:1"}]);
    let shadowed = |first: Value, second: Value| {
        let pool = |name, it: &Value| json!({"name": name, "match": it, "endpoints": endpoints()});
        let pools = json!({"pools": [pool("a", &first), pool("b", &second)]});
        let mistakes = mistakes(pools.to_string().as_bytes());
        let expected = "pools[1]: pools[0] comes first and takes every request of this pool. \
                        Fix: narrow the match of pools[0], or put this pool first.";
        assert!(mistakes.iter().all(|it| it == expected), "{mistakes:?}");
        mistakes.len() == 1
    };
    let host = |hosts: &[&str]| json!({"hosts": hosts});
    let path = |paths: &[&str]| json!({"pathPrefixes": paths});
    assert!(shadowed(json!({}), json!({})));
    assert!(shadowed(json!({}), host(&["a"])));
    assert!(!shadowed(host(&["a"]), json!({})));
    assert!(shadowed(host(&["a", "b"]), host(&["B"])));
    assert!(!shadowed(host(&["a", "b"]), host(&["b", "c"])));
    assert!(shadowed(path(&["/a"]), path(&["/a/b", "/ab"])));
    assert!(!shadowed(path(&["/a/b"]), path(&["/a"])));
    assert!(!shadowed(host(&["a"]), path(&["/a"])));
    let shadowed = |first: &[&str], second: &[&str]| {
        let pool = |name, models| json!({"name": name, "models": models, "endpoints": endpoints()});
        let pools = json!({"pools": [pool("a", first), pool("b", second)]});
        !mistakes(pools.to_string().as_bytes()).is_empty()
    };
    assert!(shadowed(&["a", "b"], &["b"]));
    assert!(!shadowed(&["a"], &["a", "b"]));
    assert!(!shadowed(&["a*"], &["ab*"]));
    assert!(!shadowed(&[], &["a"]));
    assert!(!shadowed(&["a"], &[]));
}

#[test]
fn times_fit_together() {
    let raised = config(&with_pool(json!({"scrape": {"interval": "1ms"}})));
    assert_eq!(raised.pools[0].scrape.interval, SCRAPE_INTERVAL_MIN);
    let warnings: Vec<String> = raised.warnings.iter().map(ToString::to_string).collect();
    let expected = "pools[0].scrape.interval: 1ms is less than 50ms, which is used instead.";
    assert_eq!(warnings, [expected]);
    let good = config(&with_pool(json!({"scrape": {"interval": "50ms"}})));
    assert_eq!(good.warnings, []);
    check_pool(
        json!({"scrape": {"interval": "2s"}}),
        &[
            "pools[0].scrape.stalenessThreshold: metrics are stale before the next ones come, \
             after 2s. \
           Fix: make it longer than the interval.",
        ],
    );
    check_pool(
        json!({"scrape": {"interval": "2s", "stalenessThreshold": "2001ms"}}),
        &[],
    );
}

#[test]
fn numbers_have_limits() {
    let around = |key: &str, least: Value, most: Value, below: Value, above: Value| {
        for (value, is_good) in [(least, true), (most, true), (below, false), (above, false)] {
            let mut document = with_pool(json!({"scrape": {"stalenessThreshold": "1h"}}));
            set(&mut document, &format!("pools/{key}"), &value);
            let mistakes = mistakes(document.to_string().as_bytes());
            assert_eq!(mistakes.is_empty(), is_good, "{key} {value}: {mistakes:?}");
            let is_range = mistakes.iter().all(|it| it.contains("is not between"));
            assert!(is_range, "{key} {value}: {mistakes:?}");
        }
    };
    around(
        "cache/capacityTokens",
        json!(1),
        json!(100_000_000),
        json!(0),
        json!(100_000_001),
    );
    around(
        "limits/requestBodyBytes",
        json!(1),
        json!("1Gi"),
        json!(0),
        json!(1_073_741_825),
    );
    around(
        "limits/requestBodyBytes",
        json!("1"),
        json!("1048576Ki"),
        json!("0"),
        json!("2Gi"),
    );
    around(
        "scrape/timeout",
        json!("1ms"),
        json!("1h"),
        json!("999us"),
        json!("3601s"),
    );
    check_pool(
        json!({"limits": {"requestBodyBytes": -1}}),
        &[
            "pools[0].limits.requestBodyBytes: -1 is not between 1 and 1Gi. \
           Fix: choose a value from 1 to 1Gi.",
        ],
    );
    check_pool(
        json!({"cache": {"capacityTokens": 1.5}}),
        &[
            "pools[0].cache.capacityTokens: 1.5 is not a capacity. Fix: write a number of \
             tokens, or auto.",
        ],
    );
    for (number, too_large) in [
        (1_u64 << 53, false),
        ((1 << 53) + 1, true),
        (u64::MAX, true),
    ] {
        let document = with_pool(json!({"cache": {"capacityTokens": number}}));
        let mistakes = mistakes(document.to_string().as_bytes());
        let expected = "is above 2^53 and may be rounded. Fix: choose a smaller number.";
        assert_eq!(mistakes[0].ends_with(expected), too_large, "{mistakes:?}");
    }
}

#[test]
fn lists_have_limits() {
    let texts = |count: usize| -> Value { (0..count).map(|it| format!("/{it}")).collect() };
    let endpoints = |count: usize| -> Value {
        let address = |it| json!({"address": format!("10.0.{}.{}:1", it / 256, it % 256)});
        (0..count).map(address).collect()
    };
    let labels = |count: usize| -> Value {
        let labels: Map<String, Value> =
            (0..count).map(|it| (it.to_string(), json!("x"))).collect();
        json!(labels)
    };
    let plugins = |count: usize| -> Value {
        let plugin = |it| json!({"type": "queue-scorer", "name": format!("{it}")});
        (0..count).map(plugin).collect()
    };
    let pools = |count: usize| -> Value {
        let pool = |it| {
            let name = format!("{it}");
            let endpoints = json!([{"address": "1.1.1.1:1"}]);
            json!({"name": name, "match": {"hosts": [name]}, "endpoints": endpoints})
        };
        (0..count).map(pool).collect()
    };
    let objectives = |count: usize| {
        (0..count)
            .map(|it| json!({"name": it.to_string()}))
            .collect()
    };
    let headers = |count: usize| (0..count).map(|it| json!(format!("x-{it}"))).collect();
    let metadata = |count: usize| json!({"namespace": "a", "path": texts(count)});
    let check = |path: &str, most: usize, list: &dyn Fn(usize) -> Value| {
        for (count, expected) in [(most, vec![]), (most + 1, vec![most])] {
            let mut document = with_pool(json!({}));
            set(&mut document, path, &list(count));
            let errors = parse(document.to_string().as_bytes())
                .err()
                .unwrap_or_default();
            let limits: Vec<usize> = errors
                .iter()
                .map(|it| match it.cause {
                    Cause::TooMany { most, .. } => most,
                    _ => panic!("{it}"),
                })
                .collect();
            assert_eq!(limits, expected, "{path}");
        }
    };
    check("pools/endpoints", 2048, &endpoints);
    check("pools/endpoints/labels", 64, &labels);
    check("pools/match/clusters", 256, &texts);
    check("pools/match/routes", 256, &texts);
    check("pools/match/pathPrefixes", 256, &texts);
    check("paths/prefixes", 64, &texts);
    check("paths/admin", 128, &texts);
    check("pools/picker/plugins", 64, &plugins);
    check("pools/models", 1024, &texts);
    check("pools/objectives", 64, &objectives);
    check("trust/fairness/header", 16, &headers);
    check("trust/priority/metadata", 16, &metadata);
    check("pools", 64, &pools);
    for (bytes, is_good) in [(CONFIG_BYTES_MAX, true), (CONFIG_BYTES_MAX + 1, false)] {
        let mut text = with_pool(json!({})).to_string();
        text.extend(core::iter::repeat_n(' ', bytes - text.len()));
        assert_eq!(parse(text.as_bytes()).is_ok(), is_good);
    }
    for (bytes, is_good) in [(TEXT_BYTES_MAX, true), (TEXT_BYTES_MAX + 1, false)] {
        let document = with_pool(json!({"cache": {"hashSeed": "x".repeat(bytes)}}));
        assert_eq!(parse(document.to_string().as_bytes()).is_ok(), is_good);
    }
}

#[test]
fn the_list_of_mistakes_has_a_limit() {
    let document = |count: usize| {
        let keys: Map<String, Value> = (0..count)
            .map(|it| (format!("key{it}"), json!(1)))
            .collect();
        with_pool(json!({"scrape": keys}))
    };
    assert_eq!(
        mistakes(document(CONFIG_ERRORS_MAX).to_string().as_bytes()).len(),
        CONFIG_ERRORS_MAX
    );
    let mistakes = mistakes(document(CONFIG_ERRORS_MAX + 5).to_string().as_bytes());
    assert_eq!(mistakes.len(), CONFIG_ERRORS_MAX + 1);
    assert_eq!(
        mistakes[CONFIG_ERRORS_MAX],
        "configuration: 5 more mistakes."
    );
}

#[test]
fn models_are_listed_by_name() {
    let config = config(&with_pool(json!({"models": ["a/b", "reviews-*", "c"]})));
    assert!(config.pools[0].listed_models().eq(["a/b", "c"]));
    check_pool(
        json!({"models": ["a", "", "b", "a", 5]}),
        &[
            "pools[0].models[1]: \"\" is not a name. Fix: write a text that is not empty.",
            "pools[0].models[3]: the name \"a\" is already that of pools[0].models[0]. \
             Fix: choose another name or remove one.",
            "pools[0].models[4]: 5 is not a name. Fix: write a text that is not empty.",
        ],
    );
}

#[test]
fn what_is_in_flight_at_an_endpoint_may_be_limited() {
    for (limits, expected) in [
        (json!({}), None),
        (json!({"requestsPerEndpoint": null}), None),
        (json!({"requestsPerEndpoint": 1}), Some(1)),
        (
            json!({"requestsPerEndpoint": 4_294_967_295_u32}),
            Some(u32::MAX),
        ),
    ] {
        let config = config(&with_pool(json!({"limits": limits})));
        assert_eq!(
            config.pools[0].limits.requests_per_endpoint, expected,
            "{limits}"
        );
    }
    for (limit, shown) in [
        (json!(0), "0"),
        (json!(-1), "-1"),
        (json!(1_u64 << 32), "4294967296"),
    ] {
        check_pool(
            json!({"limits": {"requestsPerEndpoint": limit}}),
            &[&format!(
                "pools[0].limits.requestsPerEndpoint: {shown} is not between 1 and 4294967295. \
                 Fix: choose a value from 1 to 4294967295."
            )],
        );
    }
}

#[test]
fn an_objective_has_a_name_of_its_own_and_a_priority() {
    let config = config(&with_pool(json!({"objectives": [
        {"name": "chat", "priority": 100},
        {"name": "batch", "priority": -2_147_483_648},
        {"name": "other"},
    ]})));
    for (name, priority) in [
        (Some("chat"), 100),
        (Some("batch"), i32::MIN),
        (Some("other"), 0),
        (Some("Chat"), 0),
        (Some(""), 0),
        (None, 0),
    ] {
        assert_eq!(config.pools[0].priority_of(name), priority, "{name:?}");
    }
    check_pool(
        json!({"objectives": [
            {"name": "a", "priority": 1},
            {"name": "b", "priority": 2_147_483_648_u64},
            {"name": "c", "priority": -2_147_483_649_i64},
            {"name": "d", "priority": 1.5},
            {"name": "a", "priority": 1},
            {"priority": 1},
            {"name": ""},
        ]}),
        &[
            "pools[0].objectives[1].priority: 2147483648 is not between -2147483648 and \
             2147483647. Fix: choose a value from -2147483648 to 2147483647.",
            "pools[0].objectives[2].priority: -2147483649 is not between -2147483648 and \
             2147483647. Fix: choose a value from -2147483648 to 2147483647.",
            "pools[0].objectives[3].priority: 1.5 is not a whole number. \
             Fix: write a whole number without quotes.",
            "pools[0].objectives[4]: the name \"a\" is already that of pools[0].objectives[0]. \
             Fix: choose another name or remove one.",
            "pools[0].objectives[5].name: a name is missing. Fix: write a text that is not empty.",
            "pools[0].objectives[6].name: \"\" is not a name. \
             Fix: write a text that is not empty.",
        ],
    );
}

#[test]
fn a_long_value_is_repeated_in_part() {
    check_pool(
        json!({"scrape": {"interval": "x".repeat(100)}}),
        &[&format!(
            "pools[0].scrape.interval: \"{}\"… is not a duration. \
             Fix: write a number with a unit, like 100ms or 2s.",
            "x".repeat(60)
        )],
    );
}

fn with_destination(destination: Value) -> Value {
    let mut document = with_pool(json!({}));
    set(&mut document, "destination", &destination);
    document
}

#[test]
fn the_destination_is_a_header_or_the_filter_state() {
    let destination = with_destination;
    let header = |name: &str| Destination::Header(name.into());
    for (given, expected) in [
        (json!({}), header("x-gateway-destination-endpoint")),
        (
            json!({"via": "header"}),
            header("x-gateway-destination-endpoint"),
        ),
        (json!({"header": "X-Endpoint"}), header("x-endpoint")),
        (
            json!({"via": "filterState"}),
            Destination::FilterState {
                holds_headers: true,
            },
        ),
        (
            json!({"via": "filterState", "holdHeaders": false}),
            Destination::FilterState {
                holds_headers: false,
            },
        ),
    ] {
        assert_eq!(config(&destination(given)).destination, expected);
    }
    check(
        &destination(json!({"via": "filterState", "header": "x"})),
        &[
            "destination.header: no header is set with via: filterState. \
           Fix: remove it, or write via: header.",
        ],
    );
    check(
        &destination(json!({"holdHeaders": false})),
        &[
            "destination.holdHeaders: headers have to be held for a header to be set. \
           Fix: remove it, or write via: filterState.",
        ],
    );
    for name in ["", ":authority", "Host", "a b", "a:"] {
        check(
            &destination(json!({"header": name})),
            &[&format!(
                "destination.header: {name:?} is not a header name. \
                 Fix: write the name of a header that is not Host, like x-endpoint."
            )],
        );
    }
}

#[test]
fn a_struct_and_json_are_told_apart() {
    let document = with_pool(json!({}));
    let text = document.to_string();
    for before in ["", "\n", " ", "\r\n\t", "\n\n"] {
        assert!(
            parse(format!("{before}{text}").as_bytes()).is_ok(),
            "{before:?}"
        );
    }
    let bytes = encode(&document);
    assert_eq!(bytes[0], b'\n', "a Struct begins like a text");
    assert_eq!(parse(&bytes), parse(text.as_bytes()));
    // Of its 123 bytes the second is an opening brace.
    let mut document = with_pool(json!({}));
    while encode(&document)[1] != b'{' {
        let name = document["pools"][0]["name"].as_str().unwrap().to_string() + "a";
        document["pools"][0]["name"] = json!(name);
    }
    assert!(parse(&encode(&document)).is_ok());
}

#[test]
fn a_struct_holds_every_kind_of_value() {
    let document = json!({
        "": null,
        "number": [0, -5, 1.5, 1e300, 9_007_199_254_740_992_u64],
        "bool": [true, false],
        "text": ["", "\u{1f999}"],
        "object": {"object": {}, "list": []},
    });
    assert_eq!(protobuf::decode(&encode(&document)), Ok(document));
    // A list of one number that JSON does not have; a text that is not UTF-8 in its second byte.
    let list =
        |value: &[u8]| encode_field(1, &[encode_field(1, b"a"), encode_field(2, value)].concat());
    for bits in [f64::NAN, f64::INFINITY] {
        assert!(protobuf::decode(&list(&[&[0x11][..], &bits.to_le_bytes()].concat())).is_err());
    }
    let text = list(b"\x1a\x02a\xff");
    assert_eq!(protobuf::decode(&text), Err(text.len() - 1));
}

#[test]
fn a_number_with_many_digits_is_the_same_in_every_form() {
    let weight = 1.666_666_666_666_666_5;
    let document = |weight: &str| {
        format!(
            r#"{{"pools":[{{"name":"a","endpoints":[{{"address":"10.0.0.1:8000"}}],"picker":{{
            "plugins":[{{"type":"queue-scorer"}}],"schedulingProfiles":[{{"name":"default",
            "plugins":[{{"pluginRef":"queue-scorer","weight":{weight}}}]}}]}}}}]}}"#
        )
    };
    let mut tree: Value = serde_json::from_str(&document("0")).unwrap();
    tree["pools"][0]["picker"]["schedulingProfiles"][0]["plugins"][0]["weight"] = json!(weight);
    let forms = [
        document(&weight.to_string()).into_bytes(),
        document("1.66666666666666651864").into_bytes(),
        encode(&tree),
    ];
    for form in forms {
        let Ok(Role::Filter(config)) = parse(&form) else {
            panic!("{:?}", parse(&form));
        };
        let read = config.pools[0].plan.profiles[0].scorers[0].weight;
        assert_eq!(read, 1.666_666_666_666_67);
        assert_eq!(parse(config.to_json().as_bytes()), Ok(Role::Filter(config)));
    }
}

#[test]
fn a_struct_may_have_fields_we_do_not_know() {
    let bytes = [
        // Four unknown fields, one of each wire type; then `serve` with a value that has one too.
        &b"\x10\x05"[..],
        b"\x19\x01\x02\x03\x04\x05\x06\x07\x08",
        b"\x22\x01x",
        b"\x2d\x01\x02\x03\x04",
        b"\x0a\x12\x0a\x05serve\x18\x07\x12\x07\x38\x01\x1a\x03xyz",
    ];
    let mut bytes = bytes.concat();
    assert_eq!(protobuf::decode(&bytes), Ok(json!({"serve": "xyz"})));
    // The last of a key counts.
    bytes.extend(b"\x0a\x0f\x0a\x05serve\x12\x06\x1a\x04page");
    assert_eq!(parse(&bytes), Ok(Role::Page));
    assert_eq!(
        protobuf::decode(b"\x0a\x03\x0a\x01a"),
        Ok(json!({"a": null}))
    );
    assert_eq!(
        protobuf::decode(b"\x0a\x05\x0a\x01a\x12\x00"),
        Ok(json!({"a": null}))
    );
}

#[test]
fn nesting_has_a_limit_in_both_forms() {
    let nested = |depth: usize| {
        let list = (0..depth).fold(json!(1), |value, _| json!([value]));
        json!({"a": list})
    };
    assert!(protobuf::decode(&encode(&nested(64))).is_ok());
    assert!(protobuf::decode(&encode(&nested(65))).is_err());
    let deep = |depth: usize| format!("{{\"a\": {}{}}}", "[".repeat(depth), "]".repeat(depth));
    let is_syntax = |text: &str| mistakes(text.as_bytes())[0].contains("recursion limit");
    assert!(!is_syntax(&deep(126)));
    assert!(is_syntax(&deep(100_000)));
}

#[test]
fn no_bytes_panic_and_no_part_of_a_struct_is_taken_for_the_whole() {
    let document = with_pool(json!({"scrape": {"interval": "1s"}, "cache": {"capacityTokens": 7}}));
    let forms = [document.to_string().into_bytes(), encode(&document)];
    for whole in &forms {
        // The first byte of a Struct alone is white space, hence an empty document.
        for end in 2..whole.len() {
            assert!(parse(&whole[..end]).is_err(), "{end}");
        }
    }
    for seed in 1..=2000_u64 {
        let mut state = seed;
        let mut random = |limit: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % limit as u64) as usize
        };
        let mut bytes = forms[random(2)].clone();
        for _ in 0..=random(6) {
            let at = random(bytes.len());
            match random(3) {
                0 => bytes[at] = random(256) as u8,
                1 => bytes.insert(at, random(256) as u8),
                _ => _ = bytes.remove(at),
            }
        }
        if let Ok(Role::Filter(mut config)) = parse(&bytes) {
            config.warnings.clear();
            let again = parse(config.to_json().as_bytes());
            assert_eq!(again, Ok(Role::Filter(config)), "seed {seed}");
        }
    }
}

/// The texts of all mistakes.
fn mistakes(bytes: &[u8]) -> Vec<String> {
    let errors = parse(bytes).err().unwrap_or_default();
    errors.iter().map(ToString::to_string).collect()
}

/// The document has these mistakes, in either form.
#[track_caller]
pub(super) fn check(document: &Value, expected: &[&str]) {
    assert_eq!(
        mistakes(document.to_string().as_bytes()),
        expected,
        "{document}"
    );
    assert_eq!(
        mistakes(&encode(document)),
        expected,
        "{document} as a Struct"
    );
}

/// A document whose one pool has these keys has these mistakes.
#[track_caller]
pub(super) fn check_pool(keys: Value, expected: &[&str]) {
    check(&with_pool(keys), expected);
}

/// A document whose one pool has these keys beside the necessary ones.
pub(super) fn with_pool(keys: Value) -> Value {
    let mut pool = json!({"name": "a", "endpoints": [{"address": "10.0.0.1:8000"}]});
    if let (Value::Object(pool), Value::Object(keys)) = (&mut pool, keys) {
        pool.extend(keys);
    }
    json!({"pools": [pool]})
}

/// The configuration of a good document.
#[track_caller]
pub(super) fn config(document: &Value) -> Config {
    match parse(document.to_string().as_bytes()) {
        Ok(Role::Filter(config)) => *config,
        other => panic!("{document}: {other:?}"),
    }
}

/// The configuration in effect, as a tree.
#[track_caller]
fn effective(document: &Value) -> Value {
    serde_json::from_str(&config(document).to_json()).unwrap()
}

/// Sets the value at a path of keys; of a list, its first entry.
fn set(document: &mut Value, path: &str, value: &Value) {
    let lists = [
        "pools",
        "endpoints",
        "objectives",
        "plugins",
        "schedulingProfiles",
        "parsers",
        "priorityBands",
        "modelRewrites",
        "matches",
        "targets",
        "baseModels",
    ];
    let mut at = document;
    let mut keys = path.split('/').peekable();
    while let Some(key) = keys.next() {
        at = &mut at[key];
        if lists.contains(&key) && keys.peek().is_some() {
            if at.is_null() {
                *at = json!([{}]);
            }
            at = &mut at[0];
        }
    }
    *at = value.clone();
}

/// `document` as a serialized `google.protobuf.Struct`.
fn encode(document: &Value) -> Vec<u8> {
    encode_object(document.as_object().unwrap())
}

fn encode_object(map: &Map<String, Value>) -> Vec<u8> {
    let entry = |(key, value): (&String, &Value)| {
        let key = encode_field(1, key.as_bytes());
        let value = encode_field(2, &encode_value(value));
        encode_field(1, &[key, value].concat())
    };
    map.iter().flat_map(entry).collect()
}

fn encode_value(value: &Value) -> Vec<u8> {
    match value {
        Value::Null => vec![0x08, 0],
        Value::Number(it) => {
            let bits = it.as_f64().unwrap().to_le_bytes();
            [&[0x11][..], &bits].concat()
        }
        Value::String(it) => encode_field(3, it.as_bytes()),
        Value::Bool(it) => vec![0x20, u8::from(*it)],
        Value::Object(it) => encode_field(5, &encode_object(it)),
        Value::Array(values) => {
            let values = values
                .iter()
                .flat_map(|it| encode_field(1, &encode_value(it)));
            encode_field(6, &values.collect::<Vec<u8>>())
        }
    }
}

/// A field of bytes: tag, length, content.
fn encode_field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(content);
    bytes
}

/// Texts that are no address, with what is wrong and what to do about it.
const NO_ADDRESSES: &[(&str, &str)] = &[
    (
        "llama-0:8000",
        "has a host name. Fix: write the IP address; Envoy cannot send to a name it does not \
             know",
    ),
    (
        "llama-0",
        "has a host name. Fix: write the IP address; Envoy cannot send to a name it does not \
             know",
    ),
    (
        "http://10.0.0.1:8000",
        "has a scheme. Fix: leave the scheme out, like 10.0.0.1:8000",
    ),
    (
        "10.0.0.1:8000/metrics",
        "has a path. Fix: leave the path out; scrape.path is the path of the metrics",
    ),
    (
        "10.0.0.1:8000 ",
        "has white space. Fix: leave the white space out, like 10.0.0.1:8000",
    ),
    (
        "10.0.0.1",
        "has no port. Fix: add the port, like 10.0.0.1:8000",
    ),
    (
        "[2001:db8::1]",
        "has no port. Fix: add the port, like 10.0.0.1:8000",
    ),
    (
        "10.0.0.1:0",
        "has no usable port. Fix: write a port from 1 to 65535",
    ),
    (
        "10.0.0.1:65536",
        "has no usable port. Fix: write a port from 1 to 65535",
    ),
    (
        "10.0.0.1:http",
        "has no usable port. Fix: write a port from 1 to 65535",
    ),
    (
        "10.0.0.1:",
        "has no usable port. Fix: write a port from 1 to 65535",
    ),
    (
        "2001:db8::1",
        "is an IPv6 address without brackets. Fix: put the address in brackets, like \
             [2001:db8::1]:8000",
    ),
    (
        "2001:db8:0:0:0:0:0:1:8000",
        "is an IPv6 address without brackets. Fix: put the address in brackets, like \
             [2001:db8::1]:8000",
    ),
    (
        "0.0.0.0:8000",
        "is not the address of one host. Fix: write the address of one server",
    ),
    (
        "[::]:8000",
        "is not the address of one host. Fix: write the address of one server",
    ),
    (
        "[::ffff:0.0.0.0]:8000",
        "is not the address of one host. Fix: write the address of one server",
    ),
    (
        "224.0.0.1:8000",
        "is not the address of one host. Fix: write the address of one server",
    ),
    (
        "255.255.255.255:8000",
        "is not the address of one host. Fix: write the address of one server",
    ),
];
