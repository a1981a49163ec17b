use alloc::format;
use alloc::vec;

use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::super::tests::{check_pool, config, with_pool};
use super::*;
use crate::context_length::ContextLength;
use crate::filter::{
    AttributeLimit, LabelSelector, Operator, PrefixAffinity, Requirement, TtftSource, UsageLimits,
};
use crate::measure::Measure;
use crate::plan::Plan;
use crate::saturation::{Concurrency, TokenLoad, Utilization};
use crate::score::{ActiveRequests, AttributeRange, HeaderLabel, PrefixShare};
use crate::topology::Level;

/// The plan of a document of these plugins, and one profile of them all.
fn plan(plugins: Value) -> Plan {
    let document = with_pool(json!({"picker": {"plugins": plugins}}));
    config(&document).pools[0].plan.clone()
}

/// The one filter of a plugin of this type and these parameters.
#[track_caller]
fn filter(kind: &str, parameters: Value) -> Filter {
    let plan = plan(json!([{"type": kind, "parameters": parameters}]));
    let [filter] = plan.profiles[0].filters.as_slice() else {
        panic!("{plan:?}");
    };
    filter.clone()
}

/// The one scorer of a plugin of this type and these parameters.
#[track_caller]
fn scorer(kind: &str, parameters: Value) -> ScorerKind {
    let plan = plan(json!([{"type": kind, "parameters": parameters}]));
    let [weighted] = plan.profiles[0].scorers.as_slice() else {
        panic!("{plan:?}");
    };
    weighted.scorer.clone()
}

/// A plugin of this type and these parameters has this mistake.
#[track_caller]
fn check(kind: &str, parameters: Value, expected: &str) {
    let plugins = json!([{"type": kind, "parameters": parameters}]);
    let expected = format!("pools[0].picker.plugins[0].parameters{expected}");
    check_pool(json!({"picker": {"plugins": plugins}}), &[&expected]);
}

fn labels(requirements: &[(&str, &[&str], bool, bool)]) -> Filter {
    let requirement = |(label, values, is_negated, fits_without): &(&str, &[&str], bool, bool)| {
        let (is_negated, fits_without) = (*is_negated, *fits_without);
        Requirement {
            label: (*label).into(),
            values: values.iter().map(ToString::to_string).collect(),
            is_negated,
            fits_without,
        }
    };
    Filter::Labels(LabelSelector {
        requirements: requirements.iter().map(requirement).collect(),
    })
}

#[test]
fn label_selectors_are_read_as_kubernetes_reads_them() {
    let selector = json!({
        "matchLabels": {"tier": "gold"},
        "matchExpressions": [
            {"key": "gpu", "operator": "In", "values": ["h100", "h200"]},
            {"key": "zone", "operator": "NotIn", "values": ["c"]},
            {"key": "ready", "operator": "Exists"},
            {"key": "drains", "operator": "DoesNotExist", "values": []},
        ],
    });
    let expected = labels(&[
        ("tier", &["gold"], false, false),
        ("gpu", &["h100", "h200"], false, false),
        ("zone", &["c"], true, true),
        ("ready", &[], true, false),
        ("drains", &[], false, true),
    ]);
    for name in ["label-selector-filter", "by-label-selector"] {
        assert_eq!(filter(name, selector.clone()), expected);
        assert_eq!(filter(name, json!({})), labels(&[]));
    }
    for (expression, expected) in [
        (
            json!({"key": "gpu", "operator": "In"}),
            "matchExpressions: In of \"gpu\" needs values. Fix: write those that it compares with \
             in values.",
        ),
        (
            json!({"key": "gpu", "operator": "Exists", "values": ["h100"]}),
            "matchExpressions: Exists of \"gpu\" takes no values. Fix: remove values, or use In or \
             NotIn.",
        ),
        (
            json!({"key": "gpu", "operator": "in", "values": ["h100"]}),
            "matchExpressions[0].operator: \"in\" is no known value. Fix: write \"In\".",
        ),
    ] {
        let parameters = json!({"matchExpressions": [expression]});
        check("label-selector-filter", parameters, &format!(".{expected}"));
    }
}

#[test]
fn a_label_and_a_role_select_by_value() {
    let by_label = json!({"label": "gpu", "validValues": ["h100"]});
    assert_eq!(
        filter("by-label", by_label),
        labels(&[("gpu", &["h100"], false, false)])
    );
    let by_label = json!({"label": "gpu", "allowsNoLabel": true});
    assert_eq!(
        filter("by-label", by_label),
        labels(&[("gpu", &[], false, true)])
    );
    check(
        "by-label",
        json!({"label": "gpu"}),
        ".validValues: no endpoint passes without a valid value. Fix: list values, or set \
         allowsNoLabel: true.",
    );
    for (kind, roles, fits_without) in [
        (
            "decode-filter",
            &["decode", "prefill-decode", "both", "encode-prefill-decode"][..],
            true,
        ),
        (
            "prefill-filter",
            &[
                "prefill",
                "encode-prefill",
                "prefill-decode",
                "both",
                "encode-prefill-decode",
            ],
            false,
        ),
        (
            "encode-filter",
            &["encode", "encode-prefill", "encode-prefill-decode"],
            false,
        ),
    ] {
        let expected = labels(&[("llm-d.ai/role", roles, false, fits_without)]);
        assert_eq!(filter(kind, json!({})), expected, "{kind}");
    }
}

#[test]
fn filters_by_load_have_the_reference_pickers_defaults() {
    let affinity = PrefixAffinity {
        threshold: 0.8,
        exploration: 0.0,
        penalty_max_ms: 18_000.0,
        source: TtftSource::PrefillThroughput(15_928.0),
    };
    let kind = "prefix-cache-affinity-filter";
    assert_eq!(filter(kind, json!({})), Filter::PrefixAffinity(affinity));
    let predicted = json!({"ttftSource": "latencyPredictor", "peakPrefillThroughput": 0});
    let source = TtftSource::Prediction;
    assert_eq!(
        filter(kind, predicted),
        Filter::PrefixAffinity(PrefixAffinity { source, ..affinity })
    );
    check(
        kind,
        json!({"peakPrefillThroughput": 0}),
        ".peakPrefillThroughput: no time follows from a throughput of 0. Fix: write tokens per \
         second, or set maxTTFTPenaltyMs: 0 so that no time matters.",
    );
    let conditions = json!([
        {"metric": "active-requests", "maxValue": 1},
        {"metric": "running-requests", "maxValue": 2},
        {"metric": "waiting-queue", "maxValue": 3},
        {"metric": "kv-cache-utilization", "maxValue": 1},
    ]);
    let limits = [
        (Measure::ActiveRequests, 1.0),
        (Measure::RunningRequests, 2.0),
        (Measure::WaitingQueue, 3.0),
        (Measure::KvCacheUtilization, 1.0),
    ];
    let expected = UsageLimits {
        limits: limits.into(),
        falls_back: false,
    };
    assert_eq!(
        filter("utilization-filter", json!({"conditions": conditions})),
        Filter::Usage(expected)
    );
    let condition = json!({"metric": "kv-cache-utilization", "maxValue": 90});
    check(
        "utilization-filter",
        json!({"conditions": [condition]}),
        ".conditions: kv-cache-utilization is a fraction, and maxValue is 90. Fix: write a \
         maxValue between 0 and 1.",
    );
}

#[test]
fn detectors_are_filters_too() {
    let utilization = Utilization {
        queue: 5.0,
        kv_usage: 0.8,
        headroom: 0.0,
    };
    let concurrency = |requests, tokens| {
        Detector::Concurrency(Concurrency {
            requests,
            tokens,
            headroom: 0.0,
        })
    };
    let token_load = |prefill_tokens, kv_usage, headroom| {
        Detector::TokenLoad(TokenLoad {
            prefill_tokens,
            kv_usage,
            headroom,
        })
    };
    let (requests, tokens) = (Some(100.0), Some(1e6));
    for (kind, parameters, expected) in [
        (
            "utilization-detector",
            json!({}),
            Detector::Utilization(utilization),
        ),
        (
            "concurrency-detector",
            json!({}),
            concurrency(requests, None),
        ),
        (
            "concurrency-detector",
            json!({"concurrencyMode": "tokens"}),
            concurrency(None, tokens),
        ),
        (
            "concurrency-detector",
            json!({"concurrencyMode": "hybrid"}),
            concurrency(requests, tokens),
        ),
        (
            "token-load-detector",
            json!({}),
            token_load(2048.0, 0.9, 0.0),
        ),
        (
            "token-load-detector",
            json!({"maxPrefillTokens": 4096, "kvCacheThreshold": 0.5, "headroom": 0.25}),
            token_load(4096.0, 0.5, 0.25),
        ),
    ] {
        assert_eq!(filter(kind, parameters), Filter::HasRoom(expected));
    }
    // The one that is added is none: it was not declared.
    assert_eq!(plan(json!([])).profiles[0].filters, []);
    for parameters in [
        json!({"queueDepthThreshold": 0}),
        json!({"kvCacheUtilThreshold": 0}),
        json!({"kvCacheUtilThreshold": 1.5}),
        json!({"metricsStalenessThreshold": "0s"}),
        json!({"headroom": -1}),
    ] {
        let plugins = json!([{"type": "utilization-detector", "parameters": parameters}]);
        let document = with_pool(json!({"picker": {"plugins": plugins}}));
        let parsed = super::super::parse(document.to_string().as_bytes());
        assert_eq!(parsed.err().map(|it| it.len()), Some(1), "{parameters}");
    }
}

#[test]
fn numbers_from_pages_have_a_producer() {
    let threshold = json!({
        "type": "threshold",
        "threshold": {"operator": "GreaterThanOrEqual", "value": -0.5},
    });
    let expected = |producer: &str, name: &str| {
        Filter::Attribute(AttributeLimit {
            producer: producer.into(),
            name: name.into(),
            operator: Operator::GreaterThanOrEqual,
            value: -0.5,
            passes_unknown: true,
            falls_back: false,
        })
    };
    let kind = "endpoint-attribute-filter";
    for (producer, name, expected) in [
        (None, "gpu", expected("core-metrics-extractor", "gpu")),
        (
            Some("dcgm-extractor"),
            "gpu",
            expected("dcgm-extractor", "gpu"),
        ),
        (Some(""), "a/gpu", expected("", "a/gpu")),
    ] {
        let mut parameters = json!({"attribute": name, "algorithm": threshold});
        parameters["producer"] = producer.into();
        assert_eq!(filter(kind, parameters), expected);
    }
    check(
        kind,
        json!({"attribute": "a/gpu", "algorithm": threshold}),
        ".attribute: a name with a slash does not tell who makes the number. Fix: name its \
         producer in producer, or set producer: \"\" when it has none.",
    );
    let scored = |range| {
        ScorerKind::Attribute(AttributeRange {
            producer: "core-metrics-extractor".into(),
            name: "gpu".into(),
            lower_is_better: range == Some((0.0, 2.0)),
            range,
        })
    };
    let parameters = |kind: &str, normalization: Value| {
        let algorithm = json!({"type": kind, "normalization": normalization});
        json!({"attributeKey": "gpu", "algorithm": algorithm})
    };
    let (lower, higher) = ("linear_lower_is_better", "linear_higher_is_better");
    let kind = "endpoint-attribute-scorer";
    let fixed = json!({"fixedRange": {"max": 2}});
    assert_eq!(
        scorer(kind, parameters(lower, fixed)),
        scored(Some((0.0, 2.0)))
    );
    for adaptive in [json!({"adaptiveRange": {}}), Value::Null] {
        assert_eq!(scorer(kind, parameters(higher, adaptive)), scored(None));
    }
    check(
        kind,
        parameters(lower, json!({"fixedRange": {"min": 2, "max": 2}})),
        ".algorithm: normalization.fixedRange goes from 2 to 2. Fix: write a min that is less than \
         max.",
    );
    check(
        kind,
        parameters(
            lower,
            json!({"fixedRange": {"max": 2}, "adaptiveRange": {}}),
        ),
        ".algorithm: normalization has both fixedRange and adaptiveRange. Fix: keep one.",
    );
}

#[test]
fn scorers_have_the_reference_pickers_defaults() {
    let active = ActiveRequests {
        idle: 0,
        busy_most: 1.0,
    };
    for (kind, parameters, expected) in [
        (
            "running-requests-size-scorer",
            json!({}),
            ScorerKind::RunningRequests,
        ),
        ("lora-affinity-scorer", json!({}), ScorerKind::LoraAffinity),
        ("load-aware-scorer", json!({}), ScorerKind::LoadAware(128.0)),
        (
            "load-aware-scorer",
            json!({"threshold": -1}),
            ScorerKind::LoadAware(128.0),
        ),
        (
            "load-aware-scorer",
            json!({"threshold": 4}),
            ScorerKind::LoadAware(4.0),
        ),
        (
            "active-request-scorer",
            json!({"requestTimeout": "2m"}),
            ScorerKind::ActiveRequests(active),
        ),
        (
            "token-load-scorer",
            json!({"queueThresholdTokens": 0}),
            ScorerKind::TokenLoad(4_194_304.0),
        ),
        (
            "prefix-cache-scorer",
            json!({}),
            ScorerKind::Prefix(PrefixShare::DEFAULT),
        ),
        (
            "prefix-cache-scorer",
            json!({"matchLengthWeight": 0.5, "matchLengthScaleTokens": 1024}),
            ScorerKind::Prefix(PrefixShare {
                length_weight: 0.5,
                length_scale: 1024.0,
            }),
        ),
        (
            "prefix-cache-scorer",
            json!({"matchLengthScaleTokens": 0}),
            ScorerKind::Prefix(PrefixShare {
                length_weight: 0.0,
                length_scale: 0.0,
            }),
        ),
    ] {
        assert_eq!(scorer(kind, parameters), expected, "{kind}");
    }
    check(
        "prefix-cache-scorer",
        json!({"matchLengthWeight": 0.5, "matchLengthScaleTokens": 0}),
        ".matchLengthScaleTokens: it must be more than 0 where matchLengthWeight is. Fix: write \
         how many tokens are a long match, like 8192.",
    );
}

#[test]
fn context_length_scores_and_filters_when_told_to() {
    let rule = |label: &str| ContextLength {
        label: label.into(),
    };
    let kind = "context-length-aware";
    for (parameters, label, filters) in [
        (json!({}), "llm-d.ai/context-length-range", false),
        (json!({"label": "l", "enableFiltering": true}), "l", true),
    ] {
        let plan = plan(json!([{"type": kind, "parameters": parameters}]));
        let profile = &plan.profiles[0];
        let expected = filters.then(|| Filter::ContextLength(rule(label)));
        assert_eq!(profile.filters, Vec::from_iter(expected));
        assert_eq!(
            profile.scorers[0].scorer,
            ScorerKind::ContextLength(rule(label))
        );
    }
    check(
        kind,
        json!({"label": ""}),
        ".label: no label has an empty name. Fix: name the label with the range, or leave it out.",
    );
}

#[test]
fn a_header_that_a_scorer_reads_is_asked_for() {
    let parameters = json!({"headerName": "X-Tier", "labelKey": "tier"});
    let kind = "header-label-affinity-scorer";
    let plan = plan(json!([{"type": kind, "parameters": parameters}]));
    assert_eq!(plan.headers, ["x-tier"]);
    assert_eq!(
        plan.profiles[0].scorers[0].scorer,
        ScorerKind::HeaderLabel(HeaderLabel {
            header: "x-tier".into(),
            label: "tier".into(),
        })
    );
    check(
        kind,
        json!({"headerName": "x tier", "labelKey": "tier"}),
        ".headerName: \"x tier\" is no header name. Fix: write the name of a header that is not \
         Host, like x-session-id.",
    );
}

#[test]
fn places_are_told_by_the_labels_of_the_extractor() {
    let topology = |rack: &str| Topology {
        labels: [
            "kubernetes.io/hostname",
            rack,
            "topology.kubernetes.io/zone",
            "topology.kubernetes.io/region",
        ]
        .map(Into::into),
    };
    let (usual, own) = (
        topology("topology.kubernetes.io/rack"),
        topology("example.com/rack"),
    );
    let extractor = |name: &str| json!({"type": "topology-extractor", "name": name, "parameters": {"rack": "example.com/rack"}});
    let of = |producer: &str| json!({"topologyProducerName": producer, "minAffinity": "zone"});
    for (extractors, producer, expected) in [
        (vec![], "", &usual),
        (vec![extractor("racks")], "", &usual),
        (vec![extractor("racks")], "racks", &own),
        (vec![extractor("topology-extractor")], "", &own),
    ] {
        let mut plugins = extractors;
        plugins.push(json!({"type": "topology-affinity-filter", "parameters": of(producer)}));
        let scored = json!({"topologyProducerName": producer});
        plugins.push(json!({"type": "topology-affinity-scorer", "parameters": scored}));
        let profile = plan(plugins.into()).profiles[0].clone();
        assert_eq!(
            profile.filters,
            [Filter::Near(expected.clone(), Level::Zone)]
        );
        assert_eq!(
            profile.scorers[0].scorer,
            ScorerKind::Topology(expected.clone())
        );
    }
}

#[test]
fn a_producer_that_is_named_is_there() {
    let named = |name: &str| json!({"prefixMatchInfoProducerName": name});
    let kind = "prefix-cache-scorer";
    for good in ["", "approx-prefix-cache-producer"] {
        scorer(kind, named(good));
    }
    check(
        kind,
        named("approx-prefix-cache-produces"),
        ".prefixMatchInfoProducerName: prefix-cache-scorer references undefined plugin \
         'approx-prefix-cache-produces'. Fix: declare it in plugins, or use one of \
         prefix-cache-scorer.",
    );
    check(
        kind,
        named("prefix-cache-scorer"),
        ".prefixMatchInfoProducerName: the plugin \"prefix-cache-scorer\" is not a data producer. \
         Fix: refer to a data producer.",
    );
    let plugins = json!([
        {"type": kind, "parameters": named("mine")},
        {"type": "approx-prefix-cache-producer", "name": "mine"},
    ]);
    plan(plugins);
}
