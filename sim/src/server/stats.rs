//! What a server counts since it started; a restart begins them again.

use std::time::{Duration, SystemTime};

use crate::engine::Counters;

/// The numbers behind the metrics page and `/sim/state`.
#[derive(Clone, Debug)]
pub(super) struct Stats {
    pub(super) started: SystemTime,
    /// Requests to any path but the metrics page and `/sim`.
    pub(super) requests: u64,
    /// Requests for the metrics page, answered or not.
    pub(super) scrapes: u64,
    /// Tokens of all prompts that were admitted.
    pub(super) prompt_tokens_admitted: u64,
    /// Those of them that were found in the cache.
    pub(super) cached_tokens: u64,
    /// As of the last step.
    pub(super) running: usize,
    /// As of the last step.
    pub(super) waiting: usize,
    /// As of the last step, `0..=1`.
    pub(super) kv_usage: f64,
    pub(super) engine: Counters,
    /// Tokens of all prompts that have been computed.
    pub(super) prompt_tokens: u64,
    pub(super) generation_tokens: u64,
    pub(super) finished: u64,
    pub(super) aborted: u64,
    pub(super) adapters: Adapters,
    /// How often an adapter was brought into memory.
    pub(super) adapter_loads: u64,
    pub(super) step_tokens: Histogram,
    pub(super) first_token: Histogram,
    pub(super) inter_token: Histogram,
    pub(super) queue: Histogram,
    pub(super) end_to_end: Histogram,
}

/// Which LoRA adapters have requests in the engine.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Adapters {
    pub(super) running: Vec<String>,
    pub(super) waiting: Vec<String>,
    /// When that was last so.
    pub(super) at: SystemTime,
}

/// Counts of values up to each bound.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    pub(super) bounds: &'static [f64],
    /// One for each bound and one for what is above the last.
    counts: Vec<u64>,
    pub(super) sum: f64,
}

impl Stats {
    pub(super) fn new(started: SystemTime) -> Self {
        Self {
            started,
            requests: 0,
            scrapes: 0,
            prompt_tokens_admitted: 0,
            cached_tokens: 0,
            running: 0,
            waiting: 0,
            kv_usage: 0.0,
            engine: Counters::default(),
            prompt_tokens: 0,
            generation_tokens: 0,
            finished: 0,
            aborted: 0,
            adapters: Adapters {
                running: Vec::new(),
                waiting: Vec::new(),
                at: started,
            },
            adapter_loads: 0,
            step_tokens: Histogram::new(STEP_TOKENS),
            first_token: Histogram::new(FIRST_TOKEN),
            inter_token: Histogram::new(INTER_TOKEN),
            queue: Histogram::new(REQUEST),
            end_to_end: Histogram::new(REQUEST),
        }
    }
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum: 0.0,
        }
    }

    pub(super) fn add(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum += value;
    }

    pub(super) fn add_duration(&mut self, duration: Duration) {
        self.add(duration.as_secs_f64());
    }

    /// For each bound, and then for all, how many values are not above it.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().scan(0, |total, count| {
            *total += count;
            Some(*total)
        })
    }
}

/// Bounds of vLLM's `iteration_tokens_total`.
const STEP_TOKENS: &[f64] = &[
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
];

/// Bounds of vLLM's `time_to_first_token_seconds`.
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];

/// Bounds of vLLM's `inter_token_latency_seconds`.
const INTER_TOKEN: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];

/// Bounds of vLLM's histograms of whole requests.
const REQUEST: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_includes_its_bound() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 2.0, 3.0] {
            histogram.add(value);
        }
        assert_eq!(histogram.cumulative().collect::<Vec<_>>(), [2, 4, 5]);
        assert_eq!(histogram.sum, 8.0);
    }
}
