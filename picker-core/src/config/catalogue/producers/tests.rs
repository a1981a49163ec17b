use super::super::super::picker::tests::{check, plan_of};
use super::super::super::tests::{config, with_pool};
use super::*;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn producers(kind: &str, parameters: Value) -> Producers {
    plan_of(json!({"plugins": [{"type": kind, "parameters": parameters}]})).producers
}

fn refused(kind: &str, parameters: Value, expected: &str) {
    let picker = json!({"plugins": [{"type": kind, "parameters": parameters}]});
    check(
        picker,
        &[&alloc::format!(".plugins[0].parameters.{expected}")],
    );
}

#[test]
fn a_prefix_cache_is_as_large_as_its_blocks_and_compares_as_many_as_fit() {
    for (parameters, capacity_tokens, believes, blocks_max) in [
        (json!({}), 500_000, true, 2048),
        (
            json!({"autoTune": false, "lruCapacityPerServer": 1000, "blockSizeTokens": 32}),
            32_000,
            false,
            2048,
        ),
        (json!({"blockSize": 64}), 2_000_000, true, 2048),
        (json!({"blockSizeTokens": 0}), 500_000, true, 2048),
        (json!({"lruCapacityPerServer": 0}), 500_000, true, 2048),
        (json!({"maxPrefixTokensToMatch": 6400}), 500_000, true, 100),
        (json!({"maxPrefixTokensToMatch": 63}), 500_000, true, 0),
        (
            json!({"maxPrefixTokensToMatch": 0, "maxPrefixBlocksToMatch": 7}),
            500_000,
            true,
            7,
        ),
        (
            json!({"maxPrefixTokensToMatch": 0, "maxPrefixBlocksToMatch": 0}),
            500_000,
            true,
            PROMPT_BLOCKS_MAX,
        ),
    ] {
        let expected = PrefixCache {
            capacity_tokens,
            believes,
            blocks_max,
        };
        let read = producers("approx-prefix-cache-producer", parameters.clone());
        assert_eq!(read.prefix_cache, Some(expected), "{parameters}");
    }
    let no_tokens = "blockSizeTokens: a block has no tokens, and autoTune is off. Fix: choose a \
                     value from 1 up, or switch autoTune on.";
    for size in [0, -16] {
        let parameters = json!({"autoTune": false, "blockSizeTokens": size});
        refused("approx-prefix-cache-producer", parameters, no_tokens);
    }
    refused(
        "approx-prefix-cache-producer",
        json!({"maxPrefixTokensToMatch": -1}),
        "maxPrefixTokensToMatch: -1 is not between 0 and 1073741824. Fix: choose a value from 0 to \
         1073741824.",
    );
}

#[test]
fn answers_count_in_flight_only_where_that_is_asked_for() {
    let estimate = |ratio, tokens_max| Some(OutputEstimate { ratio, tokens_max });
    for (parameters, expected) in [
        (json!({}), None),
        (
            json!({"outputRatio": 3, "syncCrossReplicaState": false}),
            None,
        ),
        (
            json!({"addEstimatedOutputTokens": true}),
            estimate(1.5, None),
        ),
        (
            json!({
                "addEstimatedOutputTokens": true,
                "outputRatio": 0.5,
                "maxEstimatedOutputTokens": 0,
            }),
            estimate(0.5, Some(0)),
        ),
    ] {
        let read = producers("inflight-load-producer", parameters.clone());
        assert_eq!(read.outputs, expected, "{parameters}");
    }
    refused(
        "inflight-load-producer",
        json!({"outputRatio": -0.1}),
        "outputRatio: -0.1 is not between 0 and 1000000. Fix: choose a value from 0 to 1000000.",
    );
}

#[test]
fn embeddings_are_two_megabytes_each() {
    for (parameters, media_max) in [
        (json!({}), 2048),
        (json!({"cacheSizeInMBPerServer": 1}), 1),
        (json!({"cacheSizeInMBPerServer": 7}), 3),
        (json!({"cacheSizeInMBPerServer": 16384}), 8192),
    ] {
        let read = producers("mm-embeddings-cache-producer", parameters.clone());
        assert_eq!(read.media_max, media_max, "{parameters}");
    }
    for size in [0, 16385] {
        refused(
            "mm-embeddings-cache-producer",
            json!({"cacheSizeInMBPerServer": size}),
            &alloc::format!(
                "cacheSizeInMBPerServer: {size} is not between 1 and 16384. Fix: choose a value from \
                 1 to 16384."
            ),
        );
    }
    let plan = plan_of(json!({"plugins": [{"type": "mm-embeddings-cache-scorer"}]}));
    assert_eq!(plan.producers.media_max, 2048, "the producer is added");
}

#[test]
fn an_admitter_is_read_with_its_defaults() {
    let of = |parameters: Value| {
        let plugin = json!({"type": "probabilistic-admitter", "parameters": parameters});
        plan_of(json!({"plugins": [plugin]})).admitters
    };
    let mut expected = Fullness {
        queue_max: 5.0,
        kv_usage_max: 0.8,
        power: 5,
        factor: 300.0,
    };
    assert_eq!(of(json!({})), [Admitter::Fullness(expected)]);
    expected.power = 2;
    expected.factor = 0.5;
    let expected = [Admitter::Fullness(expected)];
    assert_eq!(of(json!({"power": 2.0, "k": 0.5})), expected);
    refused(
        "probabilistic-admitter",
        json!({"kvCacheUtilThreshold": 0}),
        "kvCacheUtilThreshold: 0 is not between 0.001 and 1. Fix: choose a value from 0.001 to 1.",
    );
}

#[test]
fn tokens_are_estimated_and_no_server_is_asked() {
    let with = |kind: &str, parameters: Value| {
        let plugins = json!([{"type": kind, "parameters": parameters}]);
        with_pool(json!({"picker": {"plugins": plugins}}))
    };
    assert_eq!(config(&with("tokenizer", json!({}))).warnings, []);
    let given = json!({"modelName": "m", "estimate": {"image": {"mode": "static"}}});
    let warnings = config(&with("token-producer", given)).warnings;
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "pools[0].picker.plugins[0].parameters.modelName: this has no effect, for prompts are \
             compared by their bytes, whatever the model.",
            "pools[0].picker.plugins[0].parameters.estimate: this has no effect, for a picture counts \
             as 225 tokens, a film as 4500 and a sound as 250, whatever is in it.",
        ]
    );
    for key in ["vllm", "udsTokenizerConfig"] {
        refused(
            "token-producer",
            json!({"modelName": "m", key: {}}),
            &alloc::format!(
                "{key}: no server is asked for the tokens of a prompt. Fix: remove it; prompts are \
                 compared by their bytes and counted as answers tell."
            ),
        );
    }
}

#[test]
fn a_burst_is_held_and_compared_as_its_parameters_say() {
    let default = Burst {
        window: Span::from_millis(100),
        requests_max: 1000,
        per_endpoint_max: usize::MAX,
        block: 1,
        blocks_max: 2048,
        lead: 0,
        by_bytes: false,
    };
    for (parameters, expected) in [
        (json!({}), default),
        (
            json!({
                "windowDurationMs": 10_000, "maxPerReplica": 4, "blockSizeTokens": 64,
                "maxPrefixTokensToMatch": 6400, "minColocateBlocks": 3, "maxBatchSize": 50,
                "balanceBy": "tokens",
            }),
            Burst {
                window: Span::from_millis(10_000),
                requests_max: 50,
                per_endpoint_max: 4,
                blocks_max: 100,
                lead: 3,
                by_bytes: true,
                ..default
            },
        ),
        (
            json!({"maxPerReplica": 0, "maxBatchSize": -1, "balanceBy": "requests"}),
            Burst {
                requests_max: BATCH_MAX,
                ..default
            },
        ),
        (
            json!({"blockSizeTokens": 128, "minColocateBlocks": 3}),
            Burst {
                block: 2,
                blocks_max: 4096,
                lead: 6,
                ..default
            },
        ),
        (json!({"blockSizeTokens": 16}), default),
        (
            json!({"blockSizeTokens": COUNT_MAX}),
            Burst {
                block: 1 << 24,
                blocks_max: PROMPT_BLOCKS_MAX,
                ..default
            },
        ),
    ] {
        let read = producers("burst-prefix-cache-producer", parameters.clone());
        assert_eq!(read.burst, Some(expected), "{parameters}");
    }
}

#[test]
fn a_burst_has_no_window_without_end_and_is_balanced_in_one_of_two_ways() {
    for (parameters, expected) in [
        (
            json!({"windowDurationMs": 0}),
            "windowDurationMs: 0 is not between 1 and 10000. Fix: choose a value from 1 to 10000.",
        ),
        (
            json!({"minColocateBlocks": -1}),
            "minColocateBlocks: -1 is not between 0 and 1073741824. Fix: choose a value from 0 to \
             1073741824.",
        ),
        (
            json!({"balanceBy": "bytes"}),
            "balanceBy: \"bytes\" is no known value. Fix: use one of requests, tokens.",
        ),
    ] {
        refused("burst-prefix-cache-producer", parameters, expected);
    }
}

#[test]
fn requests_are_held_in_one_way_only() {
    let picker = |gate| {
        json!({
            "featureGates": [gate],
            "plugins": [{"type": "burst-prefix-cache-producer"}, {"type": "prefix-cache-scorer"}],
        })
    };
    check(
        picker("flowControl"),
        &[
            ".featureGates: the gate 'flowControl' and burst-prefix-cache-producer both hold \
             requests. Fix: keep one of them.",
        ],
    );
    let plan = plan_of(picker("flowControl=false"));
    assert!(plan.holds_requests() && plan.flow.is_none());
    assert!(!plan_of(json!({"plugins": [{"type": "prefix-cache-scorer"}]})).holds_requests());
}
