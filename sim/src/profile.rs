//! The accelerators and models that can be simulated, by name.

use std::time::Duration;

use crate::engine::Config;
use crate::step_time::{Attention, Fitted, Roofline, StepTime};
use crate::virtual_server::FrontEnd;

/// A model on an accelerator: its speed and its room.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The name it is selected by.
    pub name: &'static str,
    /// How long steps take.
    pub step_time: StepTime,
    /// Time that a step takes longer for each LoRA adapter that is not in memory.
    pub adapter_load: Duration,
    /// What a request passes before the engine sees it.
    pub front_end: FrontEnd,
    /// The limits of the engine, with the blocks that can really be used.
    pub engine: Config,
    /// The number of blocks that the metrics page gives.
    pub blocks_reported: u32,
}

impl Profile {
    /// The profile called `name`; one of [`PROFILES`].
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "l4" => Some(Self::l4()),
            "h100-8b" => Some(Self::h100("h100-8b", H100_8B, 27_600)),
            "h100x4-70b" => Some(Self::h100("h100x4-70b", H100X4_70B, 29_400)),
            "h100x8-70b" => Some(Self::h100("h100x8-70b", H100X8_70B, 86_000)),
            _ => None,
        }
    }

    /// A small model on one L4: measured, with fewer blocks of use than it reports.
    pub fn l4() -> Self {
        let engine = Config {
            num_blocks: L4_BLOCKS_USABLE + 1,
            max_num_seqs: 256,
            max_num_batched_tokens: 2048,
            ..Config::default()
        };
        Self {
            name: "l4",
            step_time: StepTime::Fitted(L4),
            adapter_load: Duration::ZERO,
            front_end: FrontEnd {
                base_ms: 16.0,
                per_request_ms: 1.62,
            },
            engine,
            blocks_reported: L4_BLOCKS_REPORTED,
        }
    }

    fn h100(name: &'static str, roofline: Roofline, blocks: u32) -> Self {
        let engine = Config {
            num_blocks: blocks,
            max_num_seqs: 1024,
            max_num_batched_tokens: 8192,
            ..Config::default()
        };
        Self {
            name,
            step_time: StepTime::Roofline(roofline),
            adapter_load: Duration::ZERO,
            front_end: FrontEnd {
                base_ms: 1.0,
                per_request_ms: 0.0,
            },
            engine,
            blocks_reported: blocks,
        }
    }
}

/// The names that [`Profile::named`] knows.
pub const PROFILES: [&str; 4] = ["l4", "h100-8b", "h100x4-70b", "h100x8-70b"];

/// Fitted to eight measured runs on L4s: throughput and token latency within 2 %.
const L4: Fitted = Fitted {
    base: 5.19,
    sequence: 0.2766,
    prefill_token: 0.0203,
    context_factor: 1.9e-4,
    block: 0.00568,
};

/// Blocks that the measured servers reported.
const L4_BLOCKS_REPORTED: u32 = 10_217;

/// Blocks that explain the hit rates those servers reached.
const L4_BLOCKS_USABLE: u32 = 9_818;

/// 8 billion parameters in bf16 on one H100 SXM, from public peak numbers; good to about 30 %.
const H100_8B: Roofline = Roofline {
    base: 2.0,
    weight_bytes: 16.1e9,
    parameters: 7.5e9,
    attention: Attention {
        layers: 32.0,
        query_heads: 32.0,
        kv_heads: 8.0,
        head_size: 128.0,
    },
    bandwidth: 2.68e12,
    flops: 495e12,
};

/// The layers of a model of 70 billion parameters.
const ATTENTION_70B: Attention = Attention {
    layers: 80.0,
    query_heads: 64.0,
    kv_heads: 8.0,
    head_size: 128.0,
};

/// 70 billion parameters in bf16 over four H100 SXM; good to about 30 %.
const H100X4_70B: Roofline = Roofline {
    base: 4.0,
    weight_bytes: 141e9,
    parameters: 69.5e9,
    attention: ATTENTION_70B,
    bandwidth: 10.05e12,
    flops: 1660e12,
};

/// 70 billion parameters in bf16 over eight H100 SXM; good to about 30 %.
const H100X8_70B: Roofline = Roofline {
    base: 4.5,
    weight_bytes: 141e9,
    parameters: 69.5e9,
    attention: ATTENTION_70B,
    bandwidth: 18.8e12,
    flops: 2850e12,
};
