use super::super::super::picker::tests::{check, plan_of};
use super::super::super::tests::{config, with_pool};
use super::*;
use crate::filter::{PrefixAffinity, TtftSource};
use crate::plan::Plan;
use alloc::string::String;
use alloc::vec::Vec;
use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn plan(kind: &str, parameters: Value) -> Plan {
    plan_of(json!({"plugins": [{"type": kind, "parameters": parameters}]}))
}

fn refused(kind: &str, parameters: Value, expected: &str) {
    let picker = json!({"plugins": [{"type": kind, "parameters": parameters}]});
    check(
        picker,
        &[&alloc::format!(".plugins[0].parameters.{expected}")],
    );
}

#[test]
fn a_producer_is_read_with_its_defaults() {
    for (parameters, buffer_factor, streaming, role_label) in [
        (json!({}), 1.0, false, ""),
        (json!({"sloBufferFactor": 0.9}), 0.9, false, ""),
        (
            json!({"streamingMode": true, "endpointRoleLabel": "llm-d.ai/role"}),
            1.0,
            true,
            "llm-d.ai/role",
        ),
    ] {
        let plan = plan(LATENCY_PRODUCER, parameters);
        let expected = Foretelling {
            headroom: HeadroomRule {
                buffer_factor,
                streaming,
            },
            role_label: role_label.into(),
        };
        assert_eq!(plan.foretelling, Some(expected));
        let mut headers = OBJECTIVE_HEADERS.map(String::from);
        headers.sort_unstable();
        assert_eq!(plan.headers, headers);
    }
    let without = plan(LATENCY_PRODUCER, json!({"predictInProduce": false}));
    assert_eq!((without.foretelling, without.headers), (None, Vec::new()));
    refused(
        LATENCY_PRODUCER,
        json!({"sloBufferFactor": 0}),
        "sloBufferFactor: 0 is not between 0.001 and 1000. Fix: choose a value from 0.001 to 1000.",
    );
}

#[test]
fn what_means_nothing_here_is_said() {
    let warnings = |parameters: Value| {
        let plugins = json!([
            {"type": "latency-scorer"},
            {"type": LATENCY_PRODUCER, "parameters": parameters},
        ]);
        let document = with_pool(json!({"picker": {"plugins": plugins}}));
        let warnings = config(&document).warnings.into_iter();
        let warnings: Vec<String> = warnings.map(|it| alloc::format!("{it}")).collect();
        warnings
    };
    assert_eq!(warnings(json!({"useEncoderCacheFeatures": false})), [""; 0]);
    for parameters in [
        json!({"samplingMean": 500}),
        json!({"maxDecodeTokenSamplesForPrediction": 3}),
        json!({"contextTTL": "5m"}),
        json!({"useEncoderCacheFeatures": true}),
    ] {
        let said = warnings(parameters.clone());
        let key = parameters.as_object().and_then(|it| it.keys().next());
        let path = alloc::format!(".parameters.{}", key.unwrap());
        assert!(said.len() == 1 && said[0].contains(&path), "{said:?}");
    }
}

#[test]
fn a_scorer_is_read_with_its_defaults() {
    let scorer = |parameters: Value| {
        let plan = plan("latency-scorer", parameters);
        assert_eq!(plan.foretelling, Some(Foretelling::default()), "is added");
        plan.profiles[0].scorers[0].scorer.clone()
    };
    let mut expected = LatencyScoring::default();
    assert_eq!(scorer(json!({})), ScorerKind::Latency(expected));
    expected.ttft_weight = 1.0;
    expected.tpot_weight = 0.0;
    expected.prefers_most = true;
    expected.composite = Composite {
        kv_weight: 2.0,
        queue_weight: 0.0,
        prefix_weight: 3.0,
    };
    let parameters = json!({
        "ttftWeight": 1, "tpotWeight": 0, "headroomSelectionStrategy": "most",
        "compositeKVWeight": 2, "compositeQueueWeight": 0, "compositePrefixWeight": 3,
    });
    assert_eq!(scorer(parameters), ScorerKind::Latency(expected));
    refused(
        "latency-scorer",
        json!({"ttftWeight": -1}),
        "ttftWeight: -1 is not between 0 and 1000000. Fix: choose a value from 0 to 1000000.",
    );
}

#[test]
fn who_goes_by_predictions_has_them() {
    let filtered = |kind: &str, parameters: Value| {
        let plugins = json!([{"type": kind, "parameters": parameters}, {"type": "queue-scorer"}]);
        let plan = plan_of(json!({"plugins": plugins}));
        let filters = plan.profiles[0].filters.clone();
        (filters, plan.foretelling.is_some())
    };
    let kind = "slo-headroom-tier-filter";
    let filters = alloc::vec![Filter::Headroom(0.01)];
    assert_eq!(filtered(kind, json!({})), (filters, true));
    let filters = alloc::vec![Filter::Headroom(0.5)];
    let parameters = json!({"epsilonExploreNeg": 0.5});
    assert_eq!(filtered(kind, parameters), (filters, true));
    refused(
        kind,
        json!({"epsilonExploreNeg": 1.5}),
        "epsilonExploreNeg: 1.5 is not between 0 and 1. Fix: choose a value from 0 to 1.",
    );
    for (source, is_predicted) in [("latencyPredictor", true), ("prefillThroughput", false)] {
        let parameters = json!({"ttftSource": source});
        let (filters, foretells) = filtered("prefix-cache-affinity-filter", parameters);
        assert_eq!(foretells, is_predicted, "{source}");
        let by_prediction = |filter: &Filter| {
            let prediction = TtftSource::Prediction;
            matches!(filter, Filter::PrefixAffinity(PrefixAffinity { source, .. })
                if *source == prediction)
        };
        assert_eq!(filters.iter().any(by_prediction), is_predicted, "{source}");
    }
    let plugins = json!([{"type": "latency-slo-admitter"}, {"type": "queue-scorer"}]);
    let plan = plan_of(json!({"plugins": plugins}));
    assert_eq!(plan.admitters, [Admitter::Objectives]);
    assert_eq!(plan.foretelling, Some(Foretelling::default()));
}
