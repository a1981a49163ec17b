//! Which families of which engine mean which gauge: a table per engine.

use core::fmt;
use core::str::FromStr;

/// The software of a model server, which decides what its metrics page calls things.
///
/// The names are those the reference picker uses, in configuration and in the label
/// `llm-d.ai/engine-type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EngineKind {
    /// vLLM, its V0 engine included.
    #[default]
    Vllm,
    /// SGLang, started with `--enable-metrics`.
    Sglang,
    /// TensorRT-LLM's own server; its page is `/prometheus/metrics`, for `/metrics` is JSON that
    /// reading uses up.
    TrtllmServe,
    /// TensorRT-LLM behind Triton.
    TritonTensorrtLlm,
    /// Triton with other backends.
    Triton,
    /// Text Generation Inference.
    Tgi,
}

/// The text is no name of an [`EngineKind`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownEngine;

/// What the samples of one family say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// The value is each of these gauges.
    Value(&'static [Gauge]),
    /// The value is the gauge that the label's value selects; none of them: the sample says
    /// nothing.
    Selected {
        label: &'static [u8],
        gauges: &'static [(&'static [u8], Gauge)],
    },
    /// The values of these labels are gauges; the sample's own value is always 1.
    Labels(&'static [(&'static [u8], Gauge)]),
    /// vLLM's adapters: the labels are the lists, the value is the time of the last update.
    Lora,
}

/// One number that an engine reports about itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Gauge {
    Running,
    Waiting,
    /// Fraction of KV blocks in use.
    KvUsage,
    /// The same under a name that newer releases replaced, and show beside the new one for a while.
    KvUsageOld,
    /// Tokens in use, where the page has no fraction.
    UsedTokens,
    BlockSize,
    /// The block that hashes cover, where a hybrid model's memory blocks are larger.
    HashBlockSize,
    NumBlocks,
    CapacityTokens,
    OffloadBlocks,
    PrefixQueries,
    PrefixHits,
    /// Prefix queries counted in blocks.
    PrefixQueriesBlocks,
    /// Prefix hits counted in blocks.
    PrefixHitsBlocks,
    /// 1 when prefixes are kept.
    PrefixCaching,
    /// 1 when the engine is awake.
    Awake,
    /// 1 when the engine sleeps.
    Asleep,
    /// The process's start in seconds since the epoch; any Python server has it, so it tells no
    /// engine.
    ProcessStarted,
    /// What a user gives a name, which stands at this place among such names.
    Attribute(u8),
}

impl EngineKind {
    /// Every engine, in the order of the documentation.
    pub const ALL: [Self; 6] = [
        Self::Vllm,
        Self::Sglang,
        Self::TrtllmServe,
        Self::TritonTensorrtLlm,
        Self::Triton,
        Self::Tgi,
    ];

    /// The engine's name, as [`FromStr`] reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::TrtllmServe => "trtllm-serve",
            Self::TritonTensorrtLlm => "triton-tensorrt-llm",
            Self::Triton => "triton",
            Self::Tgi => "tgi",
        }
    }

    /// Where the engine serves its metrics page.
    pub const fn metrics_path(self) -> &'static str {
        match self {
            Self::TrtllmServe => "/prometheus/metrics",
            _ => "/metrics",
        }
    }

    /// What the names of all the engine's families begin with.
    pub(crate) const fn prefix(self) -> &'static [u8] {
        match self {
            Self::Vllm => b"vllm:",
            Self::Sglang => b"sglang:",
            Self::TrtllmServe => b"trtllm_",
            Self::TritonTensorrtLlm => b"nv_trt_llm_",
            Self::Triton => b"nv_inference_",
            Self::Tgi => b"tgi_",
        }
    }

    /// KV blocks of each engine that never hold a prompt: vLLM keeps block 0 as a placeholder.
    pub(crate) const fn reserved_blocks(self) -> u64 {
        match self {
            Self::Vllm => 1,
            _ => 0,
        }
    }

    /// What the family `name` says; `None` for the families nobody reads. Names match whole.
    pub(crate) fn family(self, name: &[u8]) -> Option<Family> {
        let Some(name) = name.strip_prefix(self.prefix()) else {
            return Family::of_any_engine(name);
        };
        match self {
            Self::Vllm => vllm(name),
            Self::Sglang => sglang(name),
            Self::TrtllmServe => trtllm_serve(name),
            Self::TritonTensorrtLlm => triton_tensorrt_llm(name),
            Self::Triton => triton(name),
            Self::Tgi => tgi(name),
        }
    }
}

impl Family {
    /// What the family `name` says whatever the engine is.
    pub(crate) fn of_any_engine(name: &[u8]) -> Option<Self> {
        (name == b"process_start_time_seconds").then_some(Self::Value(&[Gauge::ProcessStarted]))
    }
}

impl Gauge {
    /// Whether a user's mapping says where to read it.
    pub(crate) const fn is_mappable(self) -> bool {
        matches!(
            self,
            Self::Running
                | Self::Waiting
                | Self::KvUsage
                | Self::KvUsageOld
                | Self::UsedTokens
                | Self::BlockSize
                | Self::NumBlocks
        )
    }

    /// Whether ranks add up to what all of them have.
    pub(crate) const fn is_summed(self) -> bool {
        matches!(
            self,
            Self::Running
                | Self::Waiting
                | Self::UsedTokens
                | Self::NumBlocks
                | Self::CapacityTokens
                | Self::OffloadBlocks
                | Self::PrefixQueries
                | Self::PrefixHits
                | Self::PrefixQueriesBlocks
                | Self::PrefixHitsBlocks
        )
    }

    /// The key of the gauge in a printed reading, for those a warning can be about.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::KvUsage | Self::KvUsageOld | Self::UsedTokens => "kv_usage",
            Self::BlockSize | Self::HashBlockSize => "block_size",
            Self::NumBlocks => "num_blocks",
            Self::CapacityTokens => "capacity_tokens",
            Self::OffloadBlocks => "offload_blocks",
            Self::PrefixQueries | Self::PrefixQueriesBlocks => "prefix_queries",
            Self::PrefixHits | Self::PrefixHitsBlocks => "prefix_hits",
            Self::PrefixCaching => "prefix_caching",
            Self::Awake | Self::Asleep => "sleeping",
            Self::ProcessStarted => "process_started",
            Self::Attribute(_) => "attribute",
        }
    }
}

impl FromStr for EngineKind {
    type Err = UnknownEngine;

    fn from_str(text: &str) -> Result<Self, UnknownEngine> {
        Self::ALL
            .into_iter()
            .find(|engine| engine.name() == text)
            .ok_or(UnknownEngine)
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for UnknownEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no engine has this name")
    }
}

/// vLLM 0.5 to 0.33. The KV gauge was renamed in 0.9; the prefix counters of 0.8 counted blocks.
fn vllm(name: &[u8]) -> Option<Family> {
    Some(match name {
        b"num_requests_running" => Family::Value(&[Gauge::Running]),
        b"num_requests_waiting" => Family::Value(&[Gauge::Waiting]),
        b"kv_cache_usage_perc" => Family::Value(&[Gauge::KvUsage]),
        b"gpu_cache_usage_perc" => Family::Value(&[Gauge::KvUsageOld]),
        b"prefix_cache_queries_total" => Family::Value(&[Gauge::PrefixQueries]),
        b"prefix_cache_hits_total" => Family::Value(&[Gauge::PrefixHits]),
        b"gpu_prefix_cache_queries_total" => Family::Value(&[Gauge::PrefixQueriesBlocks]),
        b"gpu_prefix_cache_hits_total" => Family::Value(&[Gauge::PrefixHitsBlocks]),
        b"lora_requests_info" => Family::Lora,
        b"cache_config_info" => Family::Labels(&[
            (b"block_size", Gauge::BlockSize),
            (b"hash_block_size", Gauge::HashBlockSize),
            (b"num_gpu_blocks", Gauge::NumBlocks),
            (b"kv_cache_size_tokens", Gauge::CapacityTokens),
            (b"num_cpu_blocks", Gauge::OffloadBlocks),
            (b"enable_prefix_caching", Gauge::PrefixCaching),
        ]),
        b"engine_sleep_state" => Family::Selected {
            label: b"sleep_state",
            gauges: &[
                (b"awake", Gauge::Awake),
                (b"weights_offloaded", Gauge::Asleep),
                (b"discard_all", Gauge::Asleep),
            ],
        },
        _ => return None,
    })
}

/// SGLang 0.4.6 to 0.5.23. Where prefill and decode are apart, requests also queue for the
/// hand-over.
fn sglang(name: &[u8]) -> Option<Family> {
    Some(match name {
        b"num_running_reqs" => Family::Value(&[Gauge::Running]),
        b"num_queue_reqs" => Family::Value(&[Gauge::Waiting]),
        b"num_prefill_bootstrap_queue_reqs"
        | b"num_prefill_inflight_queue_reqs"
        | b"num_decode_prealloc_queue_reqs"
        | b"num_decode_transfer_queue_reqs" => Family::Selected {
            label: b"engine_type",
            gauges: &[(b"prefill", Gauge::Waiting), (b"decode", Gauge::Waiting)],
        },
        b"token_usage" => Family::Value(&[Gauge::KvUsage]),
        b"page_size" => Family::Value(&[Gauge::BlockSize]),
        b"num_pages" => Family::Value(&[Gauge::NumBlocks]),
        b"max_total_num_tokens" => Family::Value(&[Gauge::CapacityTokens]),
        b"cache_config_info" => Family::Labels(&[
            (b"page_size", Gauge::BlockSize),
            (b"num_pages", Gauge::NumBlocks),
        ]),
        b"prompt_tokens_total" => Family::Value(&[Gauge::PrefixQueries]),
        b"cached_tokens_total" => Family::Value(&[Gauge::PrefixHits]),
        _ => return None,
    })
}

/// trtllm-serve counts the blocks it found and those it did not.
fn trtllm_serve(name: &[u8]) -> Option<Family> {
    Some(match name {
        b"num_requests_running" => Family::Value(&[Gauge::Running]),
        b"num_requests_waiting" => Family::Value(&[Gauge::Waiting]),
        b"kv_cache_utilization" => Family::Value(&[Gauge::KvUsage]),
        b"kv_cache_tokens_per_block" => Family::Value(&[Gauge::BlockSize]),
        b"kv_cache_max_blocks" => Family::Value(&[Gauge::NumBlocks]),
        b"kv_cache_reused_blocks_total" => {
            Family::Value(&[Gauge::PrefixQueriesBlocks, Gauge::PrefixHitsBlocks])
        }
        b"kv_cache_missed_blocks_total" => Family::Value(&[Gauge::PrefixQueriesBlocks]),
        _ => return None,
    })
}

/// Triton reports one family per theme and tells the figures apart by a label.
fn triton_tensorrt_llm(name: &[u8]) -> Option<Family> {
    Some(match name {
        b"request_metrics" => Family::Selected {
            label: b"request_type",
            gauges: &[(b"scheduled", Gauge::Running), (b"waiting", Gauge::Waiting)],
        },
        b"kv_cache_block_metrics" => Family::Selected {
            label: b"kv_cache_block_type",
            gauges: &[
                (b"fraction", Gauge::KvUsage),
                (b"tokens_per", Gauge::BlockSize),
                (b"max", Gauge::NumBlocks),
            ],
        },
        _ => return None,
    })
}

/// Triton by itself reports a queue per model. Its `exec_count` counts all batches there ever were,
/// so nothing tells how many requests are executing.
fn triton(name: &[u8]) -> Option<Family> {
    (name == b"pending_request_count").then_some(Family::Value(&[Gauge::Waiting]))
}

/// Text Generation Inference has no KV gauge: tokens of the running batch over the most a batch may
/// have.
fn tgi(name: &[u8]) -> Option<Family> {
    Some(match name {
        b"batch_current_size" => Family::Value(&[Gauge::Running]),
        b"queue_size" => Family::Value(&[Gauge::Waiting]),
        b"batch_current_max_tokens" => Family::Value(&[Gauge::UsedTokens]),
        b"batch_total_tokens" => Family::Value(&[Gauge::CapacityTokens]),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn an_engine_has_the_reference_pickers_name() {
        for (engine, name) in EngineKind::ALL.into_iter().zip([
            "vllm",
            "sglang",
            "trtllm-serve",
            "triton-tensorrt-llm",
            "triton",
            "tgi",
        ]) {
            assert_eq!(engine.name(), name);
            assert_eq!(EngineKind::from_str(name), Ok(engine));
        }
        assert_eq!(EngineKind::from_str("vLLM"), Err(UnknownEngine));
    }
}
