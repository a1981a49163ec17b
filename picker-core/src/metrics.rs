//! What one endpoint says about itself.

use alloc::string::String;
use alloc::vec::Vec;

/// The gauges of one metrics page, summed over the data-parallel engines behind the address.
///
/// `None` is *unknown*: the page did not say, or said something that cannot be true. Unknown is
/// neither idle nor full.
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
    /// Tokens that a tier beside the KV cache holds, from where prefixes come back without being
    /// computed.
    pub offload_tokens: Option<u64>,
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
    /// Numbers that the configuration gives names, sorted by name.
    pub attributes: Vec<(String, f64)>,
}

impl EndpointMetrics {
    /// The number that the configuration calls `name`.
    pub fn attribute(&self, name: &str) -> Option<f64> {
        let named = self.attributes.iter().find(|(known, _)| known == name);
        named.map(|(_, value)| *value)
    }

    /// Whether the server restarted between `earlier` and now, so that its cache is empty.
    ///
    /// The start of its process tells, and where either page lacks it, a prefix counter that fell.
    pub fn restarted_since(&self, earlier: &Self) -> bool {
        if let (Some(now), Some(then)) = (self.process_started, earlier.process_started) {
            return (now - then).abs() > PROCESS_START_NOISE_SECONDS;
        }
        let fell = |now: Option<u64>, then| now.zip(then).is_some_and(|(now, then)| now < then);
        fell(self.prefix_queries, earlier.prefix_queries)
            || fell(self.prefix_hits, earlier.prefix_hits)
    }
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

/// Some servers compute their start from the uptime at each scrape, which wobbles within a second.
const PROCESS_START_NOISE_SECONDS: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn metrics(started: Option<f64>, queries: Option<u64>, hits: Option<u64>) -> EndpointMetrics {
        EndpointMetrics {
            process_started: started,
            prefix_queries: queries,
            prefix_hits: hits,
            ..EndpointMetrics::default()
        }
    }

    #[test]
    fn a_restart_shows_in_the_process_start_or_else_in_counters_that_fell() {
        let before = metrics(Some(1000.0), Some(50), Some(20));
        for (started, queries, hits, expected) in [
            (Some(1000.0), Some(60), Some(20), false),
            (Some(1000.9), Some(60), Some(20), false),
            (Some(1002.0), Some(60), Some(20), true),
            (Some(1000.0), Some(1), Some(0), false),
            (None, Some(50), Some(20), false),
            (None, Some(49), Some(20), true),
            (None, Some(60), Some(19), true),
            (None, None, None, false),
        ] {
            let after = metrics(started, queries, hits);
            assert_eq!(after.restarted_since(&before), expected, "{after:?}");
        }
    }
}
