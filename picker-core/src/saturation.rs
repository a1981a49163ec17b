//! How full the endpoints are, and which of them have room.

use crate::candidate::{Candidate, Context};
use crate::measure::Measure;

/// A saturation detector, named as in the configuration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Detector {
    /// `concurrency-detector`: by what is in flight.
    Concurrency(Concurrency),
    /// `token-load-detector`: by the prompts to compute and the caches that requests in flight need.
    TokenLoad(TokenLoad),
    /// `utilization-detector`: by what the endpoints say.
    Utilization(Utilization),
}

/// Limits of what may be in flight at one endpoint.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Concurrency {
    /// Requests; `None` when they are not limited.
    pub requests: Option<f64>,
    /// Tokens in flight, see [`crate::Load::tokens`]; `None` when they are not limited.
    pub tokens: Option<f64>,
    /// The share of the limits by which a filter lets them be exceeded.
    pub headroom: f64,
}

/// Limits of the work at one endpoint.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TokenLoad {
    /// Prompt tokens in flight that are not computed yet.
    pub prefill_tokens: f64,
    /// The fraction of the KV cache that requests in flight need.
    pub kv_usage: f64,
    /// The share of the limits by which a filter lets them be exceeded.
    pub headroom: f64,
}

/// Limits of what an endpoint says of itself.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Utilization {
    /// Requests in its queue.
    pub queue: f64,
    /// The fraction of KV blocks in use.
    pub kv_usage: f64,
    /// The share of the limits by which a filter lets them be exceeded.
    pub headroom: f64,
}

impl Default for Detector {
    /// `utilization-detector` with the reference picker's defaults.
    fn default() -> Self {
        Self::Utilization(Utilization {
            queue: 5.0,
            kv_usage: 0.8,
            headroom: 0.0,
        })
    }
}

impl Detector {
    /// How full `candidates` are, those of `cx` that can get requests: 1 is full, and more is
    /// possible. 1 when there are none.
    ///
    /// Where endpoints have roles, those that compute prompts and those that decode are two stages,
    /// and the fuller one counts. An endpoint of which nothing is known is taken for an average one;
    /// when none tells anything, nothing is known to be full.
    pub fn saturation<'a>(
        &self,
        cx: &Context<'_>,
        candidates: impl Iterator<Item = &'a Candidate<'a>>,
    ) -> f64 {
        let (mut all, mut prefill, mut decode) = (Mean::NONE, Mean::NONE, Mean::NONE);
        for candidate in candidates {
            let fullness = self.known(cx, candidate);
            all.add(fullness);
            if candidate.prefills() {
                prefill.add(fullness);
            }
            if candidate.decodes() {
                decode.add(fullness);
            }
        }
        let stages = [prefill, decode].into_iter().filter_map(Mean::fullness);
        let fullest = stages.reduce(f64::max);
        fullest.or_else(|| all.fullness()).unwrap_or(1.0)
    }

    /// How full `candidates` are, for a filter.
    pub(crate) fn over<'a>(
        &'a self,
        cx: &'a Context<'a>,
        candidates: impl Iterator<Item = &'a Candidate<'a>>,
    ) -> Fullness<'a> {
        let mut all = Mean::NONE;
        candidates.for_each(|it| all.add(self.known(cx, it)));
        Fullness {
            detector: self,
            cx,
            average: all.fullness().unwrap_or_default(),
        }
    }

    /// How full an endpoint may be that a filter lets pass; it must be less.
    pub(crate) fn filter_limit(&self) -> f64 {
        1.0 + match self {
            Self::Concurrency(limits) => limits.headroom,
            Self::TokenLoad(limits) => limits.headroom,
            Self::Utilization(limits) => limits.headroom,
        }
    }

    /// Whether a filter lets all pass when all are full.
    pub(crate) fn falls_back(&self) -> bool {
        !matches!(self, Self::Concurrency(_))
    }

    /// How full a candidate is, when anything is known of that.
    fn known(&self, cx: &Context<'_>, candidate: &Candidate<'_>) -> Option<f64> {
        let kv_usage = || Measure::KvCacheUtilization.known(candidate);
        let load = &candidate.load;
        let parts = match self {
            Self::Concurrency(limits) => [
                limits.requests.map(|it| f64::from(load.requests) / it),
                limits.tokens.map(|it| load.tokens() as f64 / it),
            ],
            Self::TokenLoad(limits) => {
                let capacity = candidate.capacity_tokens.filter(|it| *it > 0);
                let cache = capacity.map(|it| cx.tokens_in_use(candidate) / it as f64);
                [
                    Some(f64::from(load.prefill_tokens) / limits.prefill_tokens),
                    cache.or_else(kv_usage).map(|it| it / limits.kv_usage),
                ]
            }
            Self::Utilization(limits) => [
                queue(candidate).map(|it| it / limits.queue),
                kv_usage().map(|it| it / limits.kv_usage),
            ],
        };
        parts.into_iter().flatten().reduce(f64::max)
    }
}

/// How many requests are at an endpoint without being executed, as far as it told and we sent more
/// since; `None` while it tells nothing.
///
/// An engine does not tell of what it still reads and tokenizes, so those of ours that were neither
/// executed nor told of wait too. One that ends lets one that waits begin, so only how many there are
/// more since then counts.
fn queue(candidate: &Candidate<'_>) -> Option<f64> {
    let metrics = &candidate.endpoint.metrics;
    let waiting = metrics.waiting.filter(|_| candidate.fresh)?;
    let then = f64::from(candidate.endpoint.in_flight_at_scrape);
    let untold = metrics.running.map_or(0.0, |it| then - it - waiting);
    Some((waiting + untold.max(0.0) + candidate.more_since_scrape()).max(0.0))
}

/// The fullness of each of some candidates.
pub(crate) struct Fullness<'a> {
    detector: &'a Detector,
    cx: &'a Context<'a>,
    average: f64,
}

impl Fullness<'_> {
    /// How full a candidate is.
    pub(crate) fn of(&self, candidate: &Candidate<'_>) -> f64 {
        let known = self.detector.known(self.cx, candidate);
        known.unwrap_or(self.average)
    }
}

/// The mean of what is known.
#[derive(Clone, Copy)]
struct Mean {
    is_of_any: bool,
    known: f64,
    sum: f64,
}

impl Mean {
    const NONE: Self = Self {
        is_of_any: false,
        known: 0.0,
        sum: 0.0,
    };

    fn add(&mut self, fullness: Option<f64>) {
        self.is_of_any = true;
        if let Some(fullness) = fullness {
            self.known += 1.0;
            self.sum += fullness;
        }
    }

    /// The mean, 0 when nothing is known; `None` when there is nobody of whom anything could be.
    ///
    /// To a billionth, for a sum of rounded quotients can fall short of what is full.
    fn fullness(self) -> Option<f64> {
        self.is_of_any.then(|| {
            if self.known > 0.0 {
                let billionths = self.sum / self.known * BILLION + 0.5;
                billionths as u64 as f64 / BILLION
            } else {
                0.0
            }
        })
    }
}

/// Fullness is told in parts of this.
const BILLION: f64 = 1e9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Load;
    use crate::role::ROLE_LABEL;
    use crate::snapshot::EndpointState;
    use crate::{EndpointId, Request};
    use alloc::string::String;
    use alloc::vec::Vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// What is known of an endpoint.
    #[derive(Clone, Copy, Default)]
    struct Row {
        waiting: Option<f64>,
        running: Option<f64>,
        kv_usage: Option<f64>,
        is_stale: bool,
        is_down: bool,
        share: Option<f64>,
        role: Option<&'static str>,
        in_flight_then: u32,
        load: Load,
        pinned: usize,
        capacity_tokens: Option<u64>,
    }

    /// An endpoint with this queue and KV usage, its metrics just read.
    fn telling(waiting: f64, kv_usage: f64) -> Row {
        Row {
            waiting: Some(waiting),
            kv_usage: Some(kv_usage),
            ..Row::default()
        }
    }

    /// What `read` makes of a context of these endpoints; blocks have 64 tokens, answers 128.
    fn with<T>(rows: &[Row], read: impl Fn(&Context<'_>) -> T) -> T {
        let endpoint = |row: &Row| {
            let mut endpoint = EndpointState::unknown(EndpointId(1), "1.1.1.1:1".parse().unwrap());
            endpoint.metrics.waiting = row.waiting;
            endpoint.metrics.running = row.running;
            endpoint.metrics.kv_usage = row.kv_usage;
            endpoint.in_flight_at_scrape = row.in_flight_then;
            endpoint.reachable = !row.is_down;
            endpoint.share = row.share;
            endpoint
        };
        let label = |it: &Row| -> Vec<(String, String)> {
            let role = it.role.into_iter();
            role.map(|it| (ROLE_LABEL.into(), it.into())).collect()
        };
        let endpoints: Vec<EndpointState> = rows.iter().map(endpoint).collect();
        let labels: Vec<Vec<(String, String)>> = rows.iter().map(label).collect();
        let places = 0..rows.len();
        let candidate = |place: usize| Candidate {
            labels: &labels[place],
            fresh: !rows[place].is_stale,
            load: rows[place].load,
            pinned: rows[place].pinned,
            capacity_tokens: rows[place].capacity_tokens,
            ..Candidate::idle(&endpoints[place])
        };
        let candidates: Vec<Candidate<'_>> = places.map(candidate).collect();
        read(&Context::of(&candidates, &Request::default()))
    }

    /// How full those are that are ready.
    fn of_ready(detector: Detector, cx: &Context<'_>) -> f64 {
        let ready = cx.candidates.iter().filter(|it| it.is_ready());
        detector.saturation(cx, ready)
    }

    #[track_caller]
    fn check(detector: Detector, rows: &[Row], expected: f64) {
        assert_eq!(with(rows, |cx| of_ready(detector, cx)), expected);
    }

    const UTILIZATION: Detector = Detector::Utilization(Utilization {
        queue: 5.0,
        kv_usage: 0.8,
        headroom: 0.0,
    });

    #[test]
    fn utilization_is_the_mean_of_what_is_fullest_at_each_endpoint() {
        // (max(1, 0.5) + max(0, 1.25)) / 2
        check(UTILIZATION, &[telling(5.0, 0.4), telling(0.0, 1.0)], 1.125);
        check(UTILIZATION, &[telling(20.0, 0.0)], 4.0);
        check(UTILIZATION, &[], 1.0);
    }

    #[test]
    fn an_endpoint_that_tells_nothing_is_neither_full_nor_idle() {
        let unknown = Row::default();
        let stale = Row {
            is_stale: true,
            ..telling(50.0, 1.0)
        };
        for unknown in [unknown, stale] {
            check(UTILIZATION, &[telling(2.5, 0.0), unknown], 0.5);
            check(UTILIZATION, &[unknown, unknown], 0.0);
        }
        let half_known = Row {
            kv_usage: Some(0.4),
            ..unknown
        };
        check(UTILIZATION, &[half_known], 0.5);
    }

    /// An endpoint with so many that waited, ran and were in flight, and that are in flight now.
    #[track_caller]
    fn check_queue(waiting: f64, running: f64, (then, now): (u32, u32), expected: f64) {
        let row = Row {
            running: Some(running),
            in_flight_then: then,
            load: Load {
                requests: now,
                ..Load::default()
            },
            waiting: Some(waiting),
            ..Row::default()
        };
        check(UTILIZATION, &[row], expected / 5.0);
        // Who sends half of all knows of half of what came since.
        let shared = Row {
            share: Some(0.5),
            load: Load {
                requests: then + (now - then.min(now)) / 2 - (then - now.min(then)) / 2,
                ..row.load
            },
            ..row
        };
        check(UTILIZATION, &[shared], expected / 5.0);
    }

    #[test]
    fn a_queue_grows_by_what_came_and_shrinks_by_what_ended_since_it_was_told() {
        check_queue(3.0, 100.0, (103, 103), 3.0);
        check_queue(3.0, 100.0, (103, 105), 5.0);
        check_queue(3.0, 100.0, (103, 101), 1.0);
        check_queue(3.0, 100.0, (103, 3), 0.0);
        // An answer may keep several places of the batch, so that fewer are in flight than run.
        check_queue(3.0, 100.0, (20, 22), 5.0);
    }

    #[test]
    fn what_is_neither_executed_nor_told_of_waits_too() {
        check_queue(0.0, 0.0, (0, 4), 4.0);
        check_queue(0.0, 8.0, (8, 12), 4.0);
        check_queue(0.0, 8.0, (14, 14), 6.0);
        check_queue(2.0, 8.0, (14, 16), 8.0);
        check_queue(2.0, 8.0, (14, 10), 2.0);
        // How many were sent in the meantime does not matter when they have ended.
        let quick = Row {
            load: Load {
                sent: 1000,
                ..Load::default()
            },
            ..telling(0.0, 0.0)
        };
        check(UTILIZATION, &[quick], 0.0);
    }

    #[test]
    fn concurrency_is_what_is_in_flight_of_what_may_be() {
        let of = |requests, tokens| {
            Detector::Concurrency(Concurrency {
                requests,
                tokens,
                headroom: 0.5,
            })
        };
        let row = |requests, prefill_tokens, kept_tokens| Row {
            load: Load {
                requests,
                prefill_tokens,
                kept_tokens,
                ..Load::default()
            },
            ..Row::default()
        };
        let rows = [row(10, 600, 0), row(30, 150, 50)];
        // 40 of 2 * 40, then 800 of 2 * 1000, then (max(1/4, 3/5) + max(3/4, 1/5)) / 2.
        check(of(Some(40.0), None), &rows, 0.5);
        check(of(None, Some(1000.0)), &rows, 0.4);
        check(of(Some(40.0), Some(1000.0)), &rows, 0.675);
        check(of(Some(40.0), None), &[], 1.0);
    }

    #[test]
    fn full_is_full_however_requests_are_spread() {
        for limit in 1..60_u32 {
            for moved in 0..=limit {
                let detector = Detector::Concurrency(Concurrency {
                    requests: Some(f64::from(limit)),
                    tokens: None,
                    headroom: 0.0,
                });
                let row = |requests| Row {
                    load: Load {
                        requests,
                        ..Load::default()
                    },
                    ..Row::default()
                };
                let rows = [row(limit + moved), row(limit), row(limit - moved)];
                check(detector, &rows, 1.0);
            }
        }
    }

    #[test]
    fn token_load_is_the_prompts_to_compute_or_the_cache_that_is_needed() {
        let detector = Detector::TokenLoad(TokenLoad {
            prefill_tokens: 8192.0,
            kv_usage: 0.5,
            headroom: 0.0,
        });
        let row = |requests, prefill_tokens, pinned| Row {
            load: Load {
                requests,
                prefill_tokens,
                ..Load::default()
            },
            pinned,
            capacity_tokens: Some(64_000),
            ..Row::default()
        };
        check(detector, &[row(0, 2048, 0)], 0.25);
        // 200 blocks of 64 tokens and 25 answers of 128 are 16,000 of 64,000; of that half may be.
        check(detector, &[row(25, 2048, 200)], 0.5);
        check(detector, &[row(25, 16_384, 200)], 2.0);
        let shared = Row {
            share: Some(0.5),
            ..row(0, 0, 200)
        };
        check(detector, &[shared], 0.8);
        let untold = Row {
            capacity_tokens: None,
            ..row(25, 2048, 200)
        };
        check(detector, &[untold], 0.25);
        let kv_usage = Some(0.75);
        check(detector, &[Row { kv_usage, ..untold }], 1.5);
        let is_stale = true;
        let stale = Row {
            kv_usage,
            is_stale,
            ..untold
        };
        check(detector, &[stale], 0.25);
        let empty = Row {
            capacity_tokens: Some(0),
            ..untold
        };
        check(detector, &[empty], 0.25);
        check(detector, &[], 1.0);
    }

    /// Endpoints by queue and role; the threshold is 5.
    #[track_caller]
    fn check_stages(rows: &[(f64, Option<&'static str>)], expected: f64) {
        let row = |(waiting, role): &(f64, Option<&'static str>)| Row {
            role: *role,
            ..telling(*waiting, 0.0)
        };
        let rows: Vec<Row> = rows.iter().map(row).collect();
        let saturation = with(&rows, |cx| of_ready(UTILIZATION, cx));
        assert_eq!(saturation, expected);
    }

    #[test]
    fn the_fuller_stage_counts() {
        let (prefill, decode, both) = (Some("prefill"), Some("decode"), Some("both"));
        check_stages(&[(10.0, None), (0.0, None)], 1.0);
        check_stages(&[(10.0, prefill), (0.0, decode)], 2.0);
        check_stages(&[(0.0, prefill), (10.0, decode), (5.0, decode)], 1.5);
        check_stages(&[(10.0, prefill), (5.0, None)], 2.0);
        check_stages(&[(5.0, prefill), (10.0, None)], 2.0);
        // (10 + 5) / 2 in both.
        check_stages(&[(10.0, prefill), (5.0, both), (10.0, decode)], 1.5);
        check_stages(&[(10.0, prefill)], 2.0);
        // Who only encodes counts only when nobody does anything else.
        let encode = Some("encode");
        check_stages(&[(50.0, encode), (5.0, decode)], 1.0);
        check_stages(&[(5.0, encode), (10.0, Some("other"))], 1.5);
    }

    #[test]
    fn who_is_not_ready_has_no_room_and_takes_none() {
        let down = |row| Row {
            is_down: true,
            ..row
        };
        for (rows, expected) in [
            (&[telling(5.0, 0.0), down(telling(0.0, 0.0))][..], 1.0),
            (&[telling(0.0, 0.0), down(telling(50.0, 0.0))], 0.0),
            (&[down(telling(0.0, 0.0))], 1.0),
        ] {
            assert_eq!(with(rows, |cx| of_ready(UTILIZATION, cx)), expected);
        }
    }
}
