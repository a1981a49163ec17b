//! What an engine is started with.

/// The limits and switches of one engine; the default is a small vLLM 0.33.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// KV blocks, the reserved one included: one less can be used.
    pub num_blocks: u32,
    /// Tokens in a block.
    pub block_size: usize,
    /// Most requests that run at once.
    pub max_num_seqs: usize,
    /// Most tokens computed in one step.
    pub max_num_batched_tokens: usize,
    /// Most tokens of a request, prompt and output together.
    pub max_model_len: usize,
    /// Whom a free place goes to, and who must give up blocks.
    pub policy: Policy,
    /// Whether a request is admitted only when its whole prompt fits.
    pub reserve_full_prompt: bool,
    /// Share of the blocks kept free at admission while something runs, `0..=1`.
    pub watermark: f64,
    /// Most prompt tokens per step of one request among several; 0 means no such limit.
    pub long_prefill_token_threshold: usize,
    /// Whether blocks are kept by their content and found again.
    pub prefix_caching: bool,
    /// LoRA adapters whose requests run at once, and that stay in memory; 0 for any number.
    pub max_adapters: usize,
    /// Whether a step tells which hashes it stored and removed.
    pub record_events: bool,
}

/// In which order requests are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// First come, first served; the newest running request is preempted.
    Fcfs,
    /// A lower priority number first; the highest number running is preempted.
    Priority,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            num_blocks: 1024,
            block_size: 16,
            max_num_seqs: 256,
            max_num_batched_tokens: 2048,
            max_model_len: 32_768,
            policy: Policy::Fcfs,
            reserve_full_prompt: true,
            watermark: 0.0,
            long_prefill_token_threshold: 0,
            prefix_caching: true,
            max_adapters: 0,
            record_events: false,
        }
    }
}
