//! Measures of how well a candidate would serve a request.

mod active_requests;
mod attribute;
mod kv_cache;
mod latency;
mod least_cost;
mod lora_affinity;
mod no_hit_lru;
mod prefix;
mod queue;
mod session;

use alloc::string::String;

use crate::candidate::{Candidate, Context};
use crate::context_length::ContextLength;
use crate::latency::LatencyScoring;
use crate::measure::Measure;
use crate::session::Affinity;
use crate::topology::{Level, Topology};
pub use active_requests::ActiveRequests;
pub use attribute::AttributeRange;
pub use least_cost::LeastCost;
pub use prefix::PrefixShare;

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
    /// `active-request-scorer`: less in flight is better.
    ActiveRequests(ActiveRequests),
    /// `endpoint-attribute-scorer`: more, or less, of a number from its pages is better.
    Attribute(AttributeRange),
    /// `context-length-aware`: to be meant for prompts of this length is better.
    ContextLength(ContextLength),
    /// `header-label-affinity-scorer`: the label that a header of the request names is better.
    HeaderLabel(HeaderLabel),
    /// `kv-cache-utilization-scorer`: more room in the KV cache is better.
    KvCacheUtilization,
    /// `latency-scorer`: to be predicted to be fast enough, with the least or the most to spare, is
    /// better.
    Latency(LatencyScoring),
    /// `least-cost-scorer`: less work until the answer is done, for this request and the others, is
    /// better.
    LeastCost(LeastCost),
    /// `load-aware-scorer`: a queue further below this many requests is better.
    LoadAware(f64),
    /// `lora-affinity-scorer`: an adapter that is loaded, or can be at once, is better.
    LoraAffinity,
    /// `mm-embeddings-cache-scorer`: more of the request's pictures, films and sounds that are computed
    /// already is better.
    Media,
    /// `no-hit-lru-scorer`: for a request of which nobody holds anything, the endpoint is better that
    /// got the last one of those longest ago. So many of the endpoints count as having got one.
    NoHitLru(usize),
    /// `prefix-cache-scorer`: more of the prompt in the prefix cache is better.
    Prefix(PrefixShare),
    /// `queue-scorer`: a shorter queue is better.
    Queue,
    /// `session-affinity-scorer`: the endpoint of those who come back is better.
    Session(Affinity),
    /// `running-requests-size-scorer`: fewer requests that execute are better.
    RunningRequests,
    /// `token-load-scorer`: a prompt backlog, with this one, further below this many tokens is
    /// better.
    TokenLoad(f64),
    /// `topology-affinity-scorer`: to be near the endpoint that an earlier profile chose is better.
    Topology(Topology),
}

/// A header whose value says which endpoints are better.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeaderLabel {
    /// The header's name, in lower case.
    pub header: String,
    /// The label that has the same value at those endpoints.
    pub label: String,
}

impl ScorerKind {
    /// Puts the score of every candidate into `scores`, which has one place for each.
    pub fn score(&self, cx: &Context<'_>, scores: &mut [Score]) {
        match self {
            Self::ActiveRequests(rule) => rule.score(cx, scores),
            Self::Attribute(range) => range.score(cx, scores),
            Self::ContextLength(rule) => each(cx, scores, &|it| rule.suits(cx, it)),
            Self::HeaderLabel(HeaderLabel { header, label }) => {
                let wanted = cx.request.header(header);
                let is_wanted = |it: &Candidate<'_>| wanted.is_some() && it.label(label) == wanted;
                each(cx, scores, &|it| f64::from(is_wanted(it)));
            }
            Self::KvCacheUtilization => kv_cache::score(cx, scores),
            Self::Latency(rule) => latency::score(rule, cx, scores),
            Self::LeastCost(rule) => rule.score(cx, scores),
            Self::LoadAware(most) => {
                let queue = Measure::WaitingQueue.over(cx.candidates.iter());
                each(cx, scores, &|it| 0.5 * below(queue.or_in_flight(it), *most));
            }
            Self::LoraAffinity => lora_affinity::score(cx, scores),
            Self::Prefix(share) => each(cx, scores, &|it| share.of(cx, it)),
            Self::Queue => queue::score(cx, Measure::WaitingQueue, scores),
            Self::RunningRequests => queue::score(cx, Measure::RunningRequests, scores),
            Self::TokenLoad(most) => each(cx, scores, &|it| {
                let backlog = (it.load.tokens() + cx.missing_tokens(it)) as f64;
                below(backlog, *most)
            }),
            Self::Topology(topology) => each(cx, scores, &|it| {
                topology.shared(cx, it).map_or(0.0, nearness)
            }),
            Self::Media => each(cx, scores, &|it| {
                it.media_held as f64 / cx.media.max(1) as f64
            }),
            Self::NoHitLru(size) => no_hit_lru::score(*size, cx, scores),
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

/// Scores every candidate by itself.
fn each(cx: &Context<'_>, scores: &mut [Score], score: &dyn Fn(&Candidate<'_>) -> f64) {
    for (candidate, place) in cx.candidates.iter().zip(scores) {
        *place = Score::new(score(candidate));
    }
}

/// The share of `most` that is left.
fn below(count: f64, most: f64) -> f64 {
    1.0 - count.min(most) / most
}

/// What it is worth to share a level: each costs the transfer between two endpoints several times
/// that of the next nearer.
fn nearness(level: Level) -> f64 {
    match level {
        Level::Host => 1.0,
        Level::Rack => 0.2,
        Level::Zone => 0.05,
        Level::Region => 0.02,
    }
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
        let request = crate::Request::default();
        let cx = Context::of(&candidates, &request);
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
            ScorerKind::Prefix(PrefixShare::DEFAULT),
            &[matched(0), matched(5), matched(10)],
            &[0.0, 0.5, 1.0],
        );
    }

    #[test]
    fn fewer_running_requests_are_better() {
        let mut endpoints = [1, 2, 3].map(|id| {
            let address = "1.1.1.1:1".parse().unwrap();
            EndpointState::unknown(EndpointId(id), address)
        });
        endpoints[0].metrics.running = Some(2.0);
        endpoints[1].metrics.running = Some(10.0);
        endpoints[2].metrics.running = Some(8.0);
        let mut candidates = endpoints.each_ref().map(Candidate::idle);
        // Two of three were sent since and still run, so it is 4, 10 and 8.
        (candidates[0].load.sent, candidates[0].load.requests) = (3, 2);
        check_candidates(
            &ScorerKind::RunningRequests,
            &candidates,
            &[1.0, 0.0, 1.0 / 3.0],
        );
    }

    #[track_caller]
    fn check_candidates(scorer: &ScorerKind, candidates: &[Candidate<'_>], expected: &[f64]) {
        let request = crate::Request {
            headers: [("x-tier".into(), "gold".into())].into(),
            ..crate::Request::default()
        };
        let mut scores = vec![Score::new(0.0); candidates.len()];
        let mut cx = Context::of(candidates, &request);
        cx.peer = candidates.first();
        scorer.score(&cx, &mut scores);
        let scores: Vec<f64> = scores.iter().map(|it| it.value()).collect();
        assert_eq!(scores, expected);
    }

    #[test]
    fn fewer_requests_in_flight_are_better_and_few_are_none() {
        let rows = [0, 1, 2, 3, 4].map(|count| (None, None, count, 0, 0));
        let rule = |idle, busy_most| ScorerKind::ActiveRequests(ActiveRequests { idle, busy_most });
        check(rule(0, 1.0), &rows, &[1.0, 0.75, 0.5, 0.25, 0.0]);
        check(rule(1, 0.5), &rows, &[1.0, 1.0, 0.25, 0.125, 0.0]);
        check(rule(0, 1.0), &rows[..1], &[1.0]);
    }

    #[test]
    fn a_queue_scores_by_what_is_left_of_the_threshold() {
        let rows = [0.0, 16.0, 64.0, 900.0].map(|waiting| (Some(waiting), None, 0, 0, 0));
        check(ScorerKind::LoadAware(64.0), &rows, &[0.5, 0.375, 0.0, 0.0]);
        let unknown = [(Some(16.0), None, 0, 0, 0), (None, None, 0, 0, 0)];
        check(ScorerKind::LoadAware(64.0), &unknown, &[0.375, 0.375]);
        check(
            ScorerKind::LoadAware(64.0),
            &[(None, None, 32, 0, 0)],
            &[0.25],
        );
    }

    #[test]
    fn a_backlog_scores_by_what_is_left_of_the_threshold_with_this_prompt() {
        let endpoint = EndpointState::unknown(EndpointId(1), "1.1.1.1:1".parse().unwrap());
        let mut candidates = [Candidate::idle(&endpoint); 3];
        // Answers count beside prompts, where the plan wants that.
        candidates[0].load.prefill_tokens = 600;
        candidates[0].load.kept_tokens = 40;
        candidates[1].held.matched = 5;
        candidates[2].load.prefill_tokens = 9000;
        // Of 2560: 640 before and 640 of this prompt, then 320 that are not held, then too many.
        check_candidates(
            &ScorerKind::TokenLoad(2560.0),
            &candidates,
            &[0.5, 0.875, 0.0],
        );
    }

    #[test]
    fn a_long_match_is_better_than_a_short_one_of_the_same_share() {
        let rows = [0, 5, 10].map(|blocks| (None, None, 0, 0, blocks));
        let rule = |length_weight, length_scale| {
            ScorerKind::Prefix(PrefixShare {
                length_weight,
                length_scale,
            })
        };
        // A match of 320 tokens of 1280 is 1/16, one of 640 is 1/4.
        check(rule(1.0, 1280.0), &rows, &[0.0, 0.0625, 0.25]);
        check(rule(0.5, 1280.0), &rows, &[0.0, 0.28125, 0.625]);
        check(rule(0.5, 320.0), &rows, &[0.0, 0.75, 1.0]);
        check(rule(0.5, 160.0), &rows, &[0.0, 0.75, 1.0]);
    }

    #[test]
    fn labels_score_by_a_header_and_by_nearness_to_the_peer() {
        let endpoint = EndpointState::unknown(EndpointId(1), "1.1.1.1:1".parse().unwrap());
        let labels = [
            &[
                ("tier", "gold"),
                ("h", "1"),
                ("r", "1"),
                ("z", "1"),
                ("g", "1"),
            ][..],
            &[
                ("tier", "iron"),
                ("h", "2"),
                ("r", "1"),
                ("z", "1"),
                ("g", "1"),
            ],
            &[("h", "2"), ("r", "2"), ("z", "1"), ("g", "1")],
            &[("tier", "gold"), ("h", "2"), ("z", "2"), ("g", "1")],
            &[("h", "2"), ("g", "2")],
        ];
        let labels = labels.map(|labels| {
            let labels = labels.iter();
            labels
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect::<Vec<(String, String)>>()
        });
        let candidates = labels.each_ref().map(|labels| Candidate {
            labels,
            ..Candidate::idle(&endpoint)
        });
        let rule = |header: &str| {
            let (header, label) = (header.into(), "tier".into());
            ScorerKind::HeaderLabel(HeaderLabel { header, label })
        };
        check_candidates(&rule("x-tier"), &candidates, &[1.0, 0.0, 0.0, 1.0, 0.0]);
        check_candidates(&rule("x-other"), &candidates, &[0.0; 5]);
        let topology = Topology {
            labels: ["h", "r", "z", "g"].map(Into::into),
        };
        let rule = ScorerKind::Topology(topology);
        check_candidates(&rule, &candidates, &[1.0, 0.2, 0.05, 0.02, 0.0]);
        check_candidates(&rule, &[Candidate::idle(&endpoint); 2], &[0.0, 0.0]);
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
