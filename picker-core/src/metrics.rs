//! What one endpoint says about itself.

use alloc::string::String;
use alloc::vec::Vec;

/// The gauges of one metrics page, summed over the data-parallel engines behind the address.
///
/// `None` is *unknown*: the page did not say, or said something that cannot be true. Unknown is neither idle nor full.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct EndpointMetrics {
    /// Requests executing.
    pub running: Option<f64>,
    /// Requests queued.
    pub waiting: Option<f64>,
    /// Fraction of KV blocks in use, `0..=1`, the mean over engines.
    pub kv_usage: Option<f64>,
    /// The fullest engine's fraction of KV blocks in use, `0..=1`.
    pub kv_usage_max: Option<f64>,
    /// Tokens in a KV block.
    pub block_size: Option<u32>,
    /// KV blocks, summed over engines.
    pub num_blocks: Option<u64>,
    /// Tokens the KV cache holds, summed over engines.
    pub capacity_tokens: Option<u64>,
    /// Tokens looked up in the prefix cache since the start.
    pub prefix_queries: Option<u64>,
    /// Tokens found in the prefix cache since the start.
    pub prefix_hits: Option<u64>,
    /// LoRA adapters, when the engine serves any.
    pub lora: Option<Lora>,
    /// The engine is asleep: its queues are empty and it must not win by that.
    pub sleeping: Option<bool>,
    /// Whether the engine keeps prefixes at all.
    pub prefix_caching: Option<bool>,
    /// When the server's process started, in seconds since the epoch.
    pub process_started: Option<f64>,
}

/// The adapters of one endpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lora {
    /// Adapters with requests executing, sorted.
    pub running: Vec<String>,
    /// Adapters with requests queued, sorted.
    pub waiting: Vec<String>,
    /// Adapters that fit in one batch.
    pub max: Option<u32>,
}
