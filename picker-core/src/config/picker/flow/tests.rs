use alloc::vec;

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::super::super::tests::{check_pool, config, with_pool};
use super::super::tests::{check, plan_of};
use super::*;
use crate::config::PoolConfig;
use crate::flow::{Fairness, LeastAttained, Ordering, UsageLimit};
use crate::saturation::{Concurrency, Utilization};

/// A document with `flowControl`, the gate on.
fn on(flow_control: Value) -> Value {
    json!({"featureGates": ["flowControl"], "flowControl": flow_control})
}

#[track_caller]
fn flow_of(picker: Value) -> FlowControl {
    plan_of(picker).flow.unwrap()
}

/// The pool with this `picker` and these priorities of objectives.
fn pool_of(picker: &Value, priorities: &[i32]) -> PoolConfig {
    let objectives = priorities.iter().enumerate();
    let objectives = objectives.map(|(name, it)| json!({"name": name.to_string(), "priority": it}));
    let objectives: Vec<Value> = objectives.collect();
    let mut config = config(&with_pool(
        json!({"objectives": objectives, "picker": picker}),
    ));
    config.pools.remove(0)
}

#[test]
fn nothing_waits_unless_the_gate_is_on() {
    let set = json!({"maxRequests": 7, "priorityBands": [{"priority": 3}]});
    for picker in [json!({}), json!({"flowControl": set})] {
        let pool = pool_of(&picker, &[-1]);
        assert_eq!(pool.plan.flow, None);
        assert_eq!(pool.plan.headers, Vec::<String>::new());
    }
    assert_eq!(plan_of(on(json!({}))).flow, Some(FlowControl::default()));
    let gate = json!({"featureGates": ["flowControl"]});
    assert_eq!(plan_of(gate).flow, Some(FlowControl::default()));
}

#[test]
fn the_document_in_effect_shows_every_default() {
    let band = json!({
        "maxBytes": 1_000_000_000,
        "maxRequests": 5000,
        "fairnessPolicyRef": "global-strict-fairness-policy",
        "orderingPolicyRef": "fcfs-ordering-policy",
    });
    let mut expected = json!({
        "maxBytes": 0,
        "maxRequests": 0,
        "defaultRequestTTL": "1m",
        "noEndpointRequestTTL": "1m",
        "enableEviction": false,
        "usageLimitPolicyPluginRef": "static-usage-limit-policy",
        "priorityBands": [],
        "defaultPriorityBand": band,
        "defaultNegativePriorityBand": band,
        "saturationDetector": {"pluginRef": "utilization-detector"},
    });
    let shown = |picker| plan_of(picker).document["flowControl"].clone();
    assert_eq!(shown(json!({})), expected);
    expected["priorityBands"] = json!([numbered(&band, 0)]);
    assert_eq!(shown(on(json!({}))), expected);
}

#[test]
fn times_to_wait_follow_each_other() {
    let span = |seconds: u64| Some(Span::from_millis(seconds * 1000));
    for (given, with, without) in [
        (json!({}), span(60), span(60)),
        (json!({"defaultRequestTTL": "5s"}), span(5), span(5)),
        (json!({"defaultRequestTTL": "0s"}), None, None),
        (json!({"noEndpointRequestTTL": "10m"}), span(60), span(600)),
        (json!({"noEndpointRequestTTL": "0s"}), span(60), None),
        (
            json!({"defaultRequestTTL": "0s", "noEndpointRequestTTL": "24h"}),
            None,
            span(86_400),
        ),
    ] {
        let flow = flow_of(on(given.clone()));
        assert_eq!(flow.request_ttl, with, "{given}");
        assert_eq!(flow.no_endpoint_ttl, without, "{given}");
    }
}

#[test]
fn a_limit_of_nothing_is_none_that_is_said() {
    for (given, requests, bytes) in [
        (json!({}), u64::MAX, u64::MAX),
        (
            json!({"maxRequests": 0, "maxBytes": "0"}),
            u64::MAX,
            u64::MAX,
        ),
        (
            json!({"maxRequests": "5k", "maxBytes": "1Gi"}),
            5000,
            1 << 30,
        ),
    ] {
        let capacity = Capacity { requests, bytes };
        assert_eq!(flow_of(on(given.clone())).capacity, capacity, "{given}");
    }
    for (given, requests, bytes) in [
        (json!({}), 5000, 1_000_000_000),
        (
            json!({"maxRequests": 0, "maxBytes": "0"}),
            5000,
            1_000_000_000,
        ),
        (
            json!({"maxRequests": 1, "maxBytes": "500M"}),
            1,
            500_000_000,
        ),
    ] {
        let mut band = given.clone();
        band["priority"] = json!(0);
        let flow = flow_of(on(json!({"priorityBands": [band]})));
        let capacity = Capacity { requests, bytes };
        assert_eq!(flow.bands[0].capacity, capacity, "{given}");
    }
}

#[test]
fn every_objective_has_a_band() {
    let limit = |requests: u64| json!({"maxRequests": requests});
    let bands = |flow_control: Value, priorities: &[i32]| -> Vec<(i32, u64)> {
        let flow = pool_of(&on(flow_control), priorities).plan.flow.unwrap();
        let bands = flow.bands.iter();
        bands
            .map(|it| (it.priority, it.capacity.requests))
            .collect()
    };
    let declared = |keys: &[(i32, u64)]| -> Value {
        let bands = keys.iter();
        bands
            .map(|(priority, requests)| json!({"priority": priority, "maxRequests": requests}))
            .collect()
    };
    assert_eq!(bands(json!({}), &[]), [(0, 5000)]);
    assert_eq!(
        bands(json!({}), &[-1, 7, 7, 0]),
        [(7, 5000), (0, 5000), (-1, 5000)]
    );
    let templates = json!({
        "defaultPriorityBand": limit(1),
        "defaultNegativePriorityBand": limit(2),
        "priorityBands": declared(&[(-5, 3), (9, 4)]),
    });
    let expected = [(9, 4), (7, 1), (0, 1), (-1, 2), (-5, 3), (i32::MIN, 2)];
    assert_eq!(bands(templates, &[-1, 7, i32::MIN, 9, -5]), expected);
    // Without a template of their own, those below 0 are as the others.
    let standard = json!({"defaultPriorityBand": limit(1)});
    assert_eq!(bands(standard, &[-1]), [(0, 1), (-1, 1)]);
    // What is said of a band holds, whatever the templates say.
    let own = json!({"defaultPriorityBand": limit(1), "priorityBands": declared(&[(0, 6)])});
    assert_eq!(bands(own, &[]), [(0, 6)]);
}

#[test]
fn the_document_in_effect_is_read_as_the_same_flow_control() {
    let picker = json!({
        "featureGates": ["flowControl"],
        "plugins": [
            {"type": "edf-ordering-policy", "name": "due"},
            {"type": "static-usage-limit-policy", "name": "most", "parameters": {"threshold": 0.9}},
        ],
        "flowControl": {
            "maxBytes": "2Gi",
            "defaultRequestTTL": "0s",
            "usageLimitPolicyPluginRef": "most",
            "defaultNegativePriorityBand": {"orderingPolicyRef": "due", "maxBytes": 1},
            "priorityBands": [{"priority": 1, "fairnessPolicyRef": "round-robin-fairness-policy"}],
            "enableEviction": true,
        },
    });
    let pool = pool_of(&picker, &[-3, 2]);
    let flow = pool.plan.flow.clone().unwrap();
    let again = pool_of(&pool.plan.document, &[-3, 2]);
    assert_eq!(again.plan, pool.plan);
    assert!(flow.evicts);
    assert_eq!(flow.usage_limit, UsageLimit::Static(0.9));
    let bands = flow.bands.iter();
    let bands: Vec<_> = bands
        .map(|it| (it.priority, it.fairness, it.ordering))
        .collect();
    let strict = Fairness::GlobalStrict;
    assert_eq!(
        bands,
        [
            (2, strict, Ordering::Fcfs),
            (1, Fairness::RoundRobin, Ordering::Fcfs),
            (0, strict, Ordering::Fcfs),
            (-3, strict, Ordering::Edf),
        ]
    );
}

#[test]
fn policies_have_the_parameters_of_the_reference_picker() {
    let limit = |kind: &str, parameters: Value| {
        let mut picker = on(json!({"usageLimitPolicyPluginRef": "p"}));
        picker["plugins"] = json!([{"type": kind, "name": "p", "parameters": parameters}]);
        flow_of(picker).usage_limit
    };
    assert_eq!(
        limit("static-usage-limit-policy", json!({})),
        UsageLimit::Static(1.0)
    );
    assert_eq!(
        limit("priority-holdback-policy", json!({"minCeiling": 0.5})),
        UsageLimit::Holdback {
            least: 0.5,
            most: 1.0,
            by_value: false
        }
    );
    assert_eq!(
        limit(
            "priority-holdback-policy",
            json!({"minCeiling": 0, "maxCeiling": 0.9, "shape": "linear", "domain": "value"})
        ),
        UsageLimit::Holdback {
            least: 0.0,
            most: 0.9,
            by_value: true
        }
    );
    assert_eq!(
        limit("soft-reflective-ceiling-policy", json!({})),
        UsageLimit::SoftReflective
    );

    let fairness = |parameters: Value| {
        let band = json!({"priority": 0, "fairnessPolicyRef": "p"});
        let mut picker = on(json!({"priorityBands": [band]}));
        picker["plugins"] =
            json!([{"type": "program-aware-fairness", "name": "p", "parameters": parameters}]);
        flow_of(picker).bands[0].fairness
    };
    let seconds = |it: u64| Span::from_millis(it * 1000);
    let aware = LeastAttained {
        weight_service: 0.8,
        weight_wait: 0.2,
        half_life: seconds(60),
        forgotten_after: seconds(3600),
    };
    assert_eq!(fairness(json!({})), Fairness::ProgramAware(aware));
    let given = json!({
        "strategy": "las",
        "lasWeightService": 0.25,
        "lasWeightHeadWait": 0.5,
        "lasHalfLifeSeconds": 7,
        "evictionTtlSeconds": 8,
        "evictionSweepSeconds": 9,
    });
    let aware = LeastAttained {
        weight_service: 0.25,
        weight_wait: 0.5,
        half_life: seconds(7),
        forgotten_after: seconds(8),
    };
    assert_eq!(fairness(given), Fairness::ProgramAware(aware));
}

#[test]
fn wishes_for_the_first_token_are_read_only_where_they_decide() {
    let wish = ["x-llm-d-slo-ttft-ms", "x-slo-ttft-ms"].map(String::from);
    let deadline = "slo-deadline-ordering-policy";
    let declared = json!([{"type": deadline}]);
    let band = json!({"priority": 0, "orderingPolicyRef": deadline});
    let mut unused = on(json!({}));
    unused["plugins"] = declared.clone();
    for (picker, priorities, is_read) in [
        (
            json!({"plugins": declared, "flowControl": {"priorityBands": [band]}}),
            &[][..],
            false,
        ),
        (unused, &[], false),
        (on(json!({"priorityBands": [band]})), &[], true),
        (
            on(json!({"defaultPriorityBand": {"orderingPolicyRef": deadline}})),
            &[],
            true,
        ),
        (
            on(json!({"defaultNegativePriorityBand": {"orderingPolicyRef": deadline}})),
            &[1],
            false,
        ),
        (
            on(json!({"defaultNegativePriorityBand": {"orderingPolicyRef": deadline}})),
            &[-1],
            true,
        ),
    ] {
        let headers = pool_of(&picker, priorities).plan.headers;
        assert_eq!(
            headers,
            if is_read { wish.to_vec() } else { vec![] },
            "{picker}"
        );
    }
}

#[test]
fn the_detector_is_the_one_of_flow_control_or_of_its_old_place() {
    let detector = |picker: Value| plan_of(picker).detector;
    assert_eq!(detector(json!({})), Detector::default());
    let many = Detector::Concurrency(Concurrency {
        requests: Some(100.0),
        tokens: None,
        headroom: 0.0,
    });
    let deep = Detector::Utilization(Utilization {
        queue: 9.0,
        kv_usage: 0.8,
        headroom: 0.0,
    });
    let named = |name: &str| json!({"pluginRef": name});
    let deep_plugin = json!([{
        "type": "utilization-detector",
        "name": "deep",
        "parameters": {"queueDepthThreshold": 9},
    }]);
    for (picker, expected) in [
        (
            json!({"flowControl": {"saturationDetector": named("concurrency-detector")}}),
            many,
        ),
        (
            json!({"saturationDetector": named("concurrency-detector")}),
            many,
        ),
        (
            json!({
                "plugins": deep_plugin,
                "saturationDetector": named("concurrency-detector"),
                "flowControl": {"saturationDetector": named("deep")},
            }),
            deep,
        ),
        // It is the one there is of its type, whatever its name.
        (json!({"plugins": deep_plugin}), deep),
    ] {
        assert_eq!(detector(picker.clone()), expected, "{picker}");
    }
}

#[test]
fn flow_control_without_its_gate_is_told_once() {
    let warnings = |picker: Value| -> Vec<String> {
        let warnings = config(&with_pool(json!({"picker": picker}))).warnings;
        warnings.iter().map(ToString::to_string).collect()
    };
    let set = json!({"maxRequests": 7});
    let off = "pools[0].picker.flowControl: this has no effect, for the feature gate flowControl \
               is off.";
    let detector = json!({"saturationDetector": {"pluginRef": "utilization-detector"}});
    let template = json!({"defaultNegativePriorityBand": {"maxRequests": 7}});
    for (picker, expected) in [
        (json!({"flowControl": set}), &[off][..]),
        (json!({"flowControl": template}), &[off]),
        (
            json!({"flowControl": {"priorityBands": [{"priority": 0}]}}),
            &[off],
        ),
        (
            json!({"flowControl": {"noEndpointRequestTTL": "5s"}}),
            &[off],
        ),
        (
            json!({"flowControl": set, "featureGates": ["flowControl=false"]}),
            &[off],
        ),
        (on(set.clone()), &[]),
        (json!({"flowControl": detector}), &[]),
        (json!({"flowControl": {}}), &[]),
    ] {
        assert_eq!(warnings(picker.clone()), expected, "{picker}");
    }
}

#[test]
fn mistakes_in_bands_say_where_they_are() {
    let least = "-2147483648";
    let range = format!("{least} and 2147483647. Fix: choose a value from {least} to 2147483647.");
    check(
        on(json!({
            "priorityBands": [
                {"priority": 1},
                {"priority": 1},
                {"priority": 2_147_483_648_u64},
                {"priority": 0, "orderingPolicyRef": "global-strict-fairness-policy"},
            ],
            "maxRequests": -1,
        })),
        &[
            ".flowControl.maxRequests: -1 is not between 0 and 8388608Gi. \
             Fix: choose a value from 0 to 8388608Gi.",
            ".flowControl.priorityBands[1].priority: duplicate priority level 1. \
             Fix: give it another priority, or remove one.",
            &format!(".flowControl.priorityBands[2].priority: 2147483648 is not between {range}"),
            ".flowControl.priorityBands[3].orderingPolicyRef: the plugin \
             \"global-strict-fairness-policy\" is not an ordering policy. \
             Fix: refer to an ordering policy.",
        ],
    );
    check_pool(
        json!({"picker": {"plugins": [{
            "type": "priority-holdback-policy",
            "parameters": {"minCeiling": 1},
        }]}}),
        &[
            "pools[0].picker.plugins[0].parameters.minCeiling: minCeiling is not below \
             maxCeiling. Fix: choose a lower minCeiling, or a higher maxCeiling.",
        ],
    );
}
