//! What is said of a run.

use std::time::Duration;

use picker_core::Features;

/// One finished request, as its client saw it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// When it was sent.
    pub arrival: Duration,
    /// When the first token was there.
    pub first_token: Duration,
    /// When the last token was there.
    pub done: Duration,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the answer.
    pub output_tokens: usize,
    /// Tokens of the prompt that the pod found in its cache.
    pub cached_tokens: usize,
    /// Who served it.
    pub pod: usize,
    /// What its router knew of it and of that pod when it chose it.
    pub known: Features,
}

/// The figures of one run; times are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Requests finished.
    pub requests: usize,
    /// Requests that no pod could ever hold.
    pub refused: usize,
    /// Share of prompt tokens found in a cache, `0..=1`.
    pub hit: f64,
    /// Tokens of prompts and answers per second, from the first request to the last answer.
    pub tokens_per_s: f64,
    /// Time to the first token, the mean.
    pub ttft_mean: f64,
    /// Time to the first token, the median.
    pub ttft_p50: f64,
    /// Time to the first token that 95 % stay below.
    pub ttft_p95: f64,
    /// Time to the first token that 99 % stay below.
    pub ttft_p99: f64,
    /// Time between tokens after the first, the mean over requests.
    pub itl_mean: f64,
    /// Time to the last token, the mean.
    pub e2e_mean: f64,
    /// Time to the last token that 99 % stay below.
    pub e2e_p99: f64,
    /// Places that requests lost for want of blocks.
    pub preemptions: u64,
    /// Requests that each pod served.
    pub by_pod: Vec<usize>,
}

impl Summary {
    /// The figures of `records`; all zero when there are none.
    pub fn of(records: &[Record], pods: usize) -> Self {
        let begin = records.iter().map(|it| it.arrival).min();
        let end = records.iter().map(|it| it.done).max();
        let (Some(begin), Some(end)) = (begin, end) else {
            return Self::default();
        };
        let sum = |of: fn(&Record) -> usize| records.iter().map(of).sum::<usize>() as f64;
        let prompt_tokens = sum(|it| it.prompt_tokens);
        let tokens = prompt_tokens + sum(|it| it.output_tokens);
        let ttft = sorted(records.iter().map(|it| it.first_token - it.arrival));
        let e2e = sorted(records.iter().map(|it| it.done - it.arrival));
        let streams = records.iter().filter(|it| it.output_tokens > 1);
        let itl: Vec<f64> = streams
            .map(|it| millis(it.done - it.first_token) / (it.output_tokens - 1) as f64)
            .collect();
        let mut by_pod = vec![0; pods];
        for record in records {
            by_pod[record.pod] += 1;
        }
        Self {
            requests: records.len(),
            refused: 0,
            hit: sum(|it| it.cached_tokens) / prompt_tokens.max(1.0),
            tokens_per_s: tokens / (end - begin).as_secs_f64().max(1e-9),
            ttft_mean: mean(&ttft),
            ttft_p50: percentile(&ttft, 50.0),
            ttft_p95: percentile(&ttft, 95.0),
            ttft_p99: percentile(&ttft, 99.0),
            itl_mean: mean(&itl),
            e2e_mean: mean(&e2e),
            e2e_p99: percentile(&e2e, 99.0),
            preemptions: 0,
            by_pod,
        }
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn sorted(durations: impl Iterator<Item = Duration>) -> Vec<f64> {
    let mut sorted: Vec<f64> = durations.map(millis).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// The mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The value below which `percent` of the `sorted` ones lie, between two of them if need be.
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let place = sorted.len().saturating_sub(1) as f64 * percent / 100.0;
    let at = |place: f64| sorted.get(place as usize).copied();
    let below = at(place).unwrap_or_default();
    let above = at(place + 1.0).unwrap_or(below);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_requests() {
        let record =
            |pod: usize, arrival: u64, first: u64, done: u64, cached_tokens: usize| Record {
                arrival: Duration::from_millis(arrival),
                first_token: Duration::from_millis(first),
                done: Duration::from_millis(done),
                prompt_tokens: 100,
                output_tokens: 11,
                cached_tokens,
                pod,
                known: Features::default(),
            };
        let records = [record(0, 100, 150, 250, 0), record(1, 200, 300, 600, 50)];
        let summary = Summary::of(&records, 3);
        assert_eq!(summary.hit, 0.25);
        assert_eq!(summary.tokens_per_s, 444.0);
        assert_eq!((summary.ttft_mean, summary.ttft_p50), (75.0, 75.0));
        assert_eq!((summary.itl_mean, summary.e2e_mean), (20.0, 275.0));
        assert_eq!(summary.by_pod, [1, 1, 0]);
        assert_eq!(Summary::of(&[], 2), Summary::default());
    }

    #[test]
    fn percentiles_lie_between_values() {
        let values = [1.0, 2.0, 3.0, 5.0];
        for (percent, expected) in [(0.0, 1.0), (50.0, 2.5), (75.0, 3.5), (100.0, 5.0)] {
            assert_eq!(percentile(&values, percent), expected, "{percent}");
        }
    }
}
