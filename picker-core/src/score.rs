//! Measures of how well a candidate would serve a request.

mod kv_cache;
mod least_cost;
mod prefix;
mod queue;
mod session;

use crate::candidate::Context;
use crate::session::Affinity;
pub use least_cost::LeastCost;

/// A preference in `0.0..=1.0`; more is better. Never NaN, so scores are totally ordered.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct Score(f64);

impl Score {
    /// The nearest score to `value`; NaN is 0.
    pub fn new(value: f64) -> Self {
        Self(if value.is_nan() {
            0.0
        } else {
            value.clamp(0.0, 1.0)
        })
    }

    /// The number.
    pub fn value(self) -> f64 {
        self.0
    }
}

/// A measure, named as in the reference picker's configuration.
#[derive(Clone, PartialEq, Debug)]
pub enum ScorerKind {
    /// `kv-cache-utilization-scorer`: more room in the KV cache is better.
    KvCacheUtilization,
    /// `least-cost-scorer`: less work until the answer is done, for this request and the others, is
    /// better.
    LeastCost(LeastCost),
    /// `prefix-cache-scorer`: more of the prompt in the prefix cache is better.
    Prefix,
    /// `queue-scorer`: a shorter queue is better.
    Queue,
    /// `session-affinity-scorer`: the endpoint of those who come back is better.
    Session(Affinity),
}

impl ScorerKind {
    /// Puts the score of every candidate into `scores`, which has one place for each.
    pub fn score(&self, cx: &Context<'_>, scores: &mut [Score]) {
        match self {
            Self::KvCacheUtilization => kv_cache::score(cx, scores),
            Self::LeastCost(rule) => rule.score(cx, scores),
            Self::Prefix => prefix::score(cx, scores),
            Self::Queue => queue::score(cx, scores),
            Self::Session(affinity) => session::score(affinity, cx, scores),
        }
    }

    /// How it sends those who come back to their endpoint, if it does.
    pub(crate) fn affinity(&self) -> Option<&Affinity> {
        match self {
            Self::Session(affinity) => Some(affinity),
            _ => None,
        }
    }
}

/// The mean of the numbers given; `None` when there are none.
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0_u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::Candidate;
    use crate::ledger::Load;
    use crate::snapshot::EndpointState;
    use crate::twin::Held;
    use crate::{EndpointId, Timestamp};
    use alloc::vec;
    use alloc::vec::Vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// One candidate: waiting and kv usage as scraped, then what workers have in flight, sent
    /// since, and matched.
    type Row = (Option<f64>, Option<f64>, u32, u32, usize);

    #[track_caller]
    fn check(scorer: ScorerKind, rows: &[Row], expected: &[f64]) {
        let endpoints: Vec<EndpointState> = rows
            .iter()
            .map(|(waiting, kv_usage, ..)| {
                let mut endpoint =
                    EndpointState::unknown(EndpointId(1), "1.1.1.1:1".parse().unwrap());
                endpoint.scraped_at = waiting.or(*kv_usage).map(|_| Timestamp(1));
                endpoint.metrics.waiting = *waiting;
                endpoint.metrics.kv_usage = *kv_usage;
                endpoint
            })
            .collect();
        let candidates: Vec<Candidate<'_>> = rows
            .iter()
            .zip(&endpoints)
            .map(|((_, _, requests, sent, matched), endpoint)| Candidate {
                fresh: endpoint.scraped_at.is_some(),
                load: Load {
                    requests: *requests,
                    sent: *sent,
                    ..Load::default()
                },
                held: Held {
                    matched: *matched,
                    pinned: 0,
                },
                ..Candidate::idle(endpoint)
            })
            .collect();
        let mut scores = vec![Score::new(0.0); rows.len()];
        let cx = Context {
            candidates: &candidates,
            request: &crate::Request::default(),
            blocks: 10,
            prompt_tokens: 640,
            block_tokens: 64.0,
            output_tokens: 128.0,
            group: None,
            pinned: &[],
        };
        scorer.score(&cx, &mut scores);
        let scores: Vec<f64> = scores.iter().map(|score| score.value()).collect();
        assert_eq!(scores, expected);
    }

    #[test]
    fn the_shortest_queue_scores_one_and_the_longest_zero() {
        let waiting = |count: f64| (Some(count), None, 0, 0, 0);
        check(
            ScorerKind::Queue,
            &[waiting(0.0), waiting(5.0), waiting(10.0)],
            &[1.0, 0.5, 0.0],
        );
        check(
            ScorerKind::Queue,
            &[waiting(7.0), waiting(7.0)],
            &[1.0, 1.0],
        );
        check(ScorerKind::Queue, &[waiting(7.0)], &[1.0]);
    }

    #[test]
    fn a_queue_includes_what_was_sent_since_it_was_scraped() {
        check(
            ScorerKind::Queue,
            &[(Some(0.0), None, 4, 4, 0), (Some(2.0), None, 2, 0, 0)],
            &[0.0, 1.0],
        );
    }

    #[test]
    fn an_unknown_queue_is_an_average_one_plus_what_is_in_flight_above_average() {
        let rows = [
            (Some(0.0), None, 1, 0, 0),
            (Some(4.0), None, 1, 0, 0),
            (None, None, 1, 9, 0),
        ];
        check(ScorerKind::Queue, &rows, &[1.0, 0.0, 0.5]);
        let rows = [
            (Some(0.0), None, 1, 0, 0),
            (Some(4.0), None, 1, 0, 0),
            (None, None, 3, 9, 0),
        ];
        check(ScorerKind::Queue, &rows, &[1.0, 0.0, 0.0]);
        check(
            ScorerKind::Queue,
            &[(None, None, 2, 0, 0), (None, None, 1, 0, 0)],
            &[0.0, 1.0],
        );
    }

    #[test]
    fn an_emptier_kv_cache_is_better_and_an_unknown_one_is_average() {
        let usage = |usage: Option<f64>| (Some(0.0), usage, 0, 0, 0);
        check(
            ScorerKind::KvCacheUtilization,
            &[usage(Some(0.25)), usage(Some(1.0))],
            &[0.75, 0.0],
        );
        let rows = [usage(Some(0.5)), usage(None), usage(Some(1.0))];
        check(ScorerKind::KvCacheUtilization, &rows, &[0.5, 0.25, 0.0]);
        check(
            ScorerKind::KvCacheUtilization,
            &[usage(None), usage(None)],
            &[0.5, 0.5],
        );
    }

    #[test]
    fn a_prefix_scores_by_the_share_of_the_prompt_that_is_held() {
        let matched = |blocks: usize| (Some(0.0), None, 0, 0, blocks);
        check(
            ScorerKind::Prefix,
            &[matched(0), matched(5), matched(10)],
            &[0.0, 0.5, 1.0],
        );
    }

    #[test]
    fn a_number_out_of_range_becomes_the_nearest_score() {
        for (value, score) in [
            (f64::NAN, 0.0),
            (-1.0, 0.0),
            (2.0, 1.0),
            (f64::INFINITY, 1.0),
        ] {
            assert_eq!(Score::new(value).value(), score, "{value}");
        }
    }
}
