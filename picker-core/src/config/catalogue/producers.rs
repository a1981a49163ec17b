//! Plugins that keep what others read.

use super::super::table::{Kind, Parameter, Unfit, Values};
use super::{Note, Noted, Part, PluginType, Roles, Stability};
use crate::admitter::{Admitter, Fullness};
use crate::block::PROMPT_BLOCKS_MAX;
use crate::burst::Burst;
use crate::producers::{OutputEstimate, PrefixCache, Producers};
use crate::time::Span;

pub(super) const TYPES: &[PluginType] = &[
    PluginType {
        parameters: PREFIX_CACHE,
        make: prefix_cache,
        ..PluginType::named("approx-prefix-cache-producer")
    },
    PluginType {
        stability: Stability::Alpha,
        parameters: BURST,
        make: |values| Ok(keeps(burst(values))),
        ..PluginType::named("burst-prefix-cache-producer")
    },
    PluginType {
        parameters: LOAD,
        make: |values| Ok(keeps(load(values))),
        ..PluginType::named("inflight-load-producer")
    },
    PluginType {
        parameters: &[Parameter {
            key: "cacheSizeInMBPerServer",
            kind: Kind::Integer(1, CACHE_MB_MAX, Some(4096)),
        }],
        make: |values| Ok(keeps(media(values))),
        ..PluginType::named("mm-embeddings-cache-producer")
    },
    PluginType {
        parameters: ADMITTER,
        make: |values| {
            Ok(Roles {
                admitter: Some(Admitter::Fullness(fullness(values))),
                ..Roles::part(Part::Hook)
            })
        },
        ..PluginType::named("probabilistic-admitter")
    },
    PluginType {
        old_names: &["tokenizer"],
        parameters: TOKENS,
        make: tokens,
        ..PluginType::named("token-producer")
    },
];

const PREFIX_CACHE: &[Parameter] = &[
    Parameter {
        key: "autoTune",
        kind: Kind::Boolean(true),
    },
    Parameter {
        key: "blockSizeTokens",
        kind: Kind::Integer(-COUNT_MAX, COUNT_MAX, Some(BLOCK_TOKENS)),
    },
    Parameter {
        key: "maxPrefixTokensToMatch",
        kind: Kind::Integer(0, COUNT_MAX, Some(131_072)),
    },
    Parameter {
        key: "maxPrefixBlocksToMatch",
        kind: Kind::Integer(-COUNT_MAX, COUNT_MAX, Some(2048)),
    },
    Parameter {
        key: "lruCapacityPerServer",
        kind: Kind::Integer(-COUNT_MAX, COUNT_MAX, Some(LRU_BLOCKS)),
    },
    Parameter {
        key: "blockSize",
        kind: Kind::Integer(-COUNT_MAX, COUNT_MAX, None),
    },
];

const BURST: &[Parameter] = &[
    Parameter {
        key: "windowDurationMs",
        kind: Kind::Integer(1, 10_000, Some(100)),
    },
    // Less than 1 is no limit, here and of the batch.
    Parameter {
        key: "maxPerReplica",
        kind: Kind::Integer(-COUNT_MAX, COUNT_MAX, Some(-1)),
    },
    Parameter {
        key: "blockSizeTokens",
        kind: Kind::Integer(1, COUNT_MAX, Some(HASH_BLOCK_TOKENS)),
    },
    Parameter {
        key: "maxPrefixTokensToMatch",
        kind: Kind::Integer(0, COUNT_MAX, Some(0)),
    },
    Parameter {
        key: "minColocateBlocks",
        kind: Kind::Integer(0, COUNT_MAX, Some(0)),
    },
    Parameter {
        key: "maxBatchSize",
        kind: Kind::Integer(-COUNT_MAX, COUNT_MAX, Some(1000)),
    },
    Parameter {
        key: "balanceBy",
        kind: Kind::Choice(&["requests", "tokens"], Some("requests")),
    },
];

const LOAD: &[Parameter] = &[
    Parameter {
        key: "addEstimatedOutputTokens",
        kind: Kind::Boolean(false),
    },
    Parameter {
        key: "outputRatio",
        kind: Kind::Number(0.0, RATIO_MAX, Some(1.5)),
    },
    Parameter {
        key: "maxEstimatedOutputTokens",
        kind: Kind::Integer(0, COUNT_MAX, None),
    },
    Parameter {
        key: "prefixMatchInfoProducerName",
        kind: Kind::Text(None),
    },
    // All workers of an Envoy share their counts, whatever is said here.
    Parameter {
        key: "syncCrossReplicaState",
        kind: Kind::Unused,
    },
];

fn burst(values: Values<'_>) -> Producers {
    let count = |key| usize::try_from(values.integer(key)).unwrap_or_default();
    let limit = |key, most| Some(count(key)).filter(|it| *it > 0).unwrap_or(most);
    // Hash blocks are 64 tokens, as of text; larger ones are several of them.
    let block = (count("blockSizeTokens") / HASH_BLOCK_TOKENS as usize).max(1);
    let of_tokens = count("maxPrefixTokensToMatch") / HASH_BLOCK_TOKENS as usize;
    let blocks_max = match count("maxPrefixTokensToMatch") {
        0 => BURST_BLOCKS.saturating_mul(block),
        _ => of_tokens,
    };
    let burst = Burst {
        window: Span::from_millis(values.integer("windowDurationMs").unsigned_abs()),
        requests_max: limit("maxBatchSize", BATCH_MAX).min(BATCH_MAX),
        per_endpoint_max: limit("maxPerReplica", usize::MAX),
        block,
        blocks_max: blocks_max.min(PROMPT_BLOCKS_MAX),
        lead: count("minColocateBlocks").saturating_mul(block),
        by_bytes: values.text("balanceBy") == "tokens",
    };
    Producers {
        burst: Some(burst),
        ..Producers::default()
    }
}

fn load(values: Values<'_>) -> Producers {
    let tokens_max = values.integer("maxEstimatedOutputTokens");
    let tokens_max = u32::try_from(tokens_max).ok();
    let estimate = OutputEstimate {
        ratio: values.number("outputRatio"),
        tokens_max: tokens_max.filter(|_| values.has("maxEstimatedOutputTokens")),
    };
    Producers {
        outputs: values.is("addEstimatedOutputTokens").then_some(estimate),
        ..Producers::default()
    }
}

fn media(values: Values<'_>) -> Producers {
    let media_max = values.integer("cacheSizeInMBPerServer") / MEDIUM_MB;
    Producers {
        media_max: usize::try_from(media_max).unwrap_or(1).max(1),
        ..Producers::default()
    }
}

const ADMITTER: &[Parameter] = &[
    Parameter {
        key: "queueDepthThreshold",
        kind: Kind::Number(THRESHOLD_MIN, NUMBER_MAX, Some(5.0)),
    },
    Parameter {
        key: "kvCacheUtilThreshold",
        kind: Kind::Number(THRESHOLD_MIN, 1.0, Some(0.8)),
    },
    Parameter {
        key: "power",
        kind: Kind::Integer(0, POWER_MAX, Some(5)),
    },
    Parameter {
        key: "k",
        kind: Kind::Number(0.0, NUMBER_MAX, Some(300.0)),
    },
];

fn fullness(values: Values<'_>) -> Fullness {
    Fullness {
        queue_max: values.number("queueDepthThreshold"),
        kv_usage_max: values.number("kvCacheUtilThreshold"),
        power: u32::try_from(values.integer("power")).unwrap_or(0),
        factor: values.number("k"),
    }
}

const TOKENS: &[Parameter] = &[
    Parameter {
        key: "modelName",
        kind: Kind::Text(None),
    },
    Parameter {
        key: "estimate",
        kind: Kind::Any,
    },
    Parameter {
        key: "vllm",
        kind: Kind::Any,
    },
    Parameter {
        key: "udsTokenizerConfig",
        kind: Kind::Any,
    },
];

/// Prompts are counted by their bytes, which answers correct; no server is asked for tokens.
fn tokens(values: Values<'_>) -> Result<Roles, Unfit> {
    for key in ["vllm", "udsTokenizerConfig"] {
        if values.has(key) {
            return Err(Unfit::because(
                key,
                "no server is asked for the tokens of a prompt",
                "remove it; prompts are compared by their bytes and counted as answers tell",
            ));
        }
    }
    let notes = [("modelName", NO_TOKENIZER), ("estimate", FIXED_ESTIMATE)];
    let notes = notes.iter().filter(|(key, _)| values.has(key));
    let note = |(key, why): &(&'static str, &'static str)| Note {
        key,
        what: Noted::NoEffect(why),
    };
    Ok(Roles {
        notes: notes.map(note).collect(),
        ..Roles::part(Part::Producer)
    })
}

fn keeps(producers: Producers) -> Roles {
    Roles {
        producers,
        ..Roles::part(Part::Producer)
    }
}

fn prefix_cache(values: Values<'_>) -> Result<Roles, Unfit> {
    let mut block_tokens = values.integer("blockSizeTokens");
    let mut notes = alloc::vec::Vec::new();
    if values.has("blockSize") {
        block_tokens = values.integer("blockSize");
        notes.push(Note {
            key: "blockSize",
            what: Noted::Deprecated("blockSizeTokens"),
        });
    }
    let believes = values.is("autoTune");
    if block_tokens <= 0 && !believes {
        return Err(Unfit::because(
            "blockSizeTokens",
            "a block has no tokens, and autoTune is off",
            "choose a value from 1 up, or switch autoTune on",
        ));
    }
    let positive = |count: i64, default: i64| if count > 0 { count } else { default };
    let block_tokens = positive(block_tokens, BLOCK_TOKENS);
    let capacity = positive(values.integer("lruCapacityPerServer"), LRU_BLOCKS);
    // Hash blocks are 64 tokens, as of text.
    let of_tokens = values.integer("maxPrefixTokensToMatch");
    let blocks_max = if of_tokens > 0 {
        of_tokens / HASH_BLOCK_TOKENS
    } else {
        positive(values.integer("maxPrefixBlocksToMatch"), COUNT_MAX)
    };
    let blocks_max = usize::try_from(blocks_max).unwrap_or(PROMPT_BLOCKS_MAX);
    let cache = PrefixCache {
        capacity_tokens: capacity.saturating_mul(block_tokens).unsigned_abs(),
        believes,
        blocks_max: blocks_max.min(PROMPT_BLOCKS_MAX),
    };
    Ok(Roles {
        notes,
        ..keeps(Producers {
            prefix_cache: Some(cache),
            ..Producers::default()
        })
    })
}

/// Tokens in an engine's block, unless something else is said: vLLM's default on GPUs.
const BLOCK_TOKENS: i64 = 16;

/// Blocks that a server holds, unless something else is said: half a million tokens.
const LRU_BLOCKS: i64 = 31_250;

/// Tokens in a hash block.
const HASH_BLOCK_TOKENS: i64 = 64;

/// Leading blocks of a prompt by which a burst is grouped, unless something else is said.
const BURST_BLOCKS: usize = 2048;

/// Requests that a worker holds for one burst at most: more than it can send in a tenth of a second.
const BATCH_MAX: usize = 4096;

/// Megabytes of the embeddings of one medium, as the reference picker takes it.
const MEDIUM_MB: i64 = 2;

/// The largest cache of embeddings: 8,192 media, some hundred KB for each endpoint on each worker.
const CACHE_MB_MAX: i64 = 16_384;

const NO_TOKENIZER: &str = "prompts are compared by their bytes, whatever the model";

const FIXED_ESTIMATE: &str =
    "a picture counts as 225 tokens, a film as 4500 and a sound as 250, whatever is in it";

/// The least threshold: what is full of nothing is always full.
const THRESHOLD_MIN: f64 = 0.001;

/// More than any threshold or factor that means anything.
const NUMBER_MAX: f64 = 1_000_000.0;

/// More would be a step.
const POWER_MAX: i64 = 64;

/// Tokens of answer for a token of prompt: no answer is longer.
const RATIO_MAX: f64 = 1_000_000.0;

/// The largest count that means anything: a product of two of them is still a number of tokens.
const COUNT_MAX: i64 = 1 << 30;

#[cfg(test)]
mod tests;
