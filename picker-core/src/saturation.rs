//! How full the endpoints are, and which of them have room.

use crate::candidate::Candidate;
use crate::measure::{Measure, Measured, mean};

/// A saturation detector, named as in the reference picker's configuration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Detector {
    /// `concurrency-detector`: by what is in flight.
    Concurrency(Concurrency),
    /// `utilization-detector`: by what the endpoints say.
    Utilization(Utilization),
}

/// Limits of what may be in flight at one endpoint.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Concurrency {
    /// Requests; `None` when they are not limited.
    pub requests: Option<f64>,
    /// Prompt tokens that are not computed yet; `None` when they are not limited.
    pub tokens: Option<f64>,
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

/// A detector with what it has to know of all candidates.
pub(crate) enum Fullness {
    Concurrency(Concurrency),
    Utilization(Utilization, Measured, Measured),
}

impl Detector {
    /// How full the candidates are: 1 is full, and more is possible. 1 when there are none.
    ///
    /// An endpoint without fresh metrics is taken for an average one; when none has any, nothing
    /// is known to be full.
    pub fn saturation<'a>(
        &self,
        candidates: impl Iterator<Item = &'a Candidate<'a>> + Clone,
    ) -> f64 {
        if let Self::Concurrency(Concurrency {
            requests: Some(limit),
            tokens: None,
            ..
        }) = self
        {
            // In one division: a sum of rounded quotients can fall short of what is full.
            let (count, sum) = candidates.fold((0.0, 0.0), |(count, sum), it| {
                (count + 1.0, sum + f64::from(it.load.requests))
            });
            return if count > 0.0 {
                sum / (count * limit)
            } else {
                1.0
            };
        }
        let fullness = self.over(candidates.clone());
        mean(candidates.map(|it| fullness.of(it))).unwrap_or(1.0)
    }

    pub(crate) fn over<'a>(
        &self,
        candidates: impl Iterator<Item = &'a Candidate<'a>> + Clone,
    ) -> Fullness {
        match self {
            Self::Concurrency(limits) => Fullness::Concurrency(*limits),
            Self::Utilization(limits) => Fullness::Utilization(
                *limits,
                Measure::WaitingQueue.over(candidates.clone()),
                Measure::KvCacheUtilization.over(candidates),
            ),
        }
    }

    /// How full an endpoint may be that a filter lets pass; it must be less.
    pub(crate) fn filter_limit(&self) -> f64 {
        1.0 + match self {
            Self::Concurrency(limits) => limits.headroom,
            Self::Utilization(limits) => limits.headroom,
        }
    }

    /// Whether a filter lets all pass when all are full.
    pub(crate) fn falls_back(&self) -> bool {
        matches!(self, Self::Utilization(_))
    }
}

impl Fullness {
    /// How full a candidate is.
    pub(crate) fn of(&self, candidate: &Candidate<'_>) -> f64 {
        let parts = match self {
            Self::Concurrency(limits) => {
                let of = |count: u32, limit: Option<f64>| limit.map(|it| f64::from(count) / it);
                let load = &candidate.load;
                [
                    of(load.requests, limits.requests),
                    of(load.prefill_tokens, limits.tokens),
                ]
            }
            Self::Utilization(limits, queue, kv_usage) => [
                queue.of(candidate).map(|it| it / limits.queue),
                kv_usage.of(candidate).map(|it| it / limits.kv_usage),
            ],
        };
        parts.into_iter().flatten().fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EndpointId;
    use crate::ledger::Load;
    use crate::snapshot::EndpointState;
    use alloc::vec::Vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// Queue and KV usage as scraped, then requests and tokens in flight.
    type Row = (Option<f64>, Option<f64>, u32, u32);

    #[track_caller]
    fn check(detector: Detector, rows: &[Row], saturation: f64) {
        let endpoints: Vec<EndpointState> = rows
            .iter()
            .map(|(waiting, kv_usage, ..)| {
                let address = "1.1.1.1:1".parse().unwrap();
                let mut endpoint = EndpointState::unknown(EndpointId(1), address);
                endpoint.metrics.waiting = *waiting;
                endpoint.metrics.kv_usage = *kv_usage;
                endpoint
            })
            .collect();
        let candidate = |(endpoint, row): (_, &Row)| Candidate {
            load: Load {
                requests: row.2,
                prefill_tokens: row.3,
                ..Load::default()
            },
            ..Candidate::idle(endpoint)
        };
        let candidates: Vec<Candidate<'_>> = endpoints.iter().zip(rows).map(candidate).collect();
        assert_eq!(detector.saturation(candidates.iter()), saturation);
    }

    const UTILIZATION: Detector = Detector::Utilization(Utilization {
        queue: 5.0,
        kv_usage: 0.8,
        headroom: 0.0,
    });

    #[test]
    fn utilization_is_the_mean_of_what_is_fullest_at_each_endpoint() {
        // (max(1, 0.5) + max(0, 1.25)) / 2
        let rows = [(Some(5.0), Some(0.4), 0, 0), (Some(0.0), Some(1.0), 0, 0)];
        check(UTILIZATION, &rows, 1.125);
        check(UTILIZATION, &[(Some(20.0), Some(0.0), 0, 0)], 4.0);
        check(UTILIZATION, &[], 1.0);
    }

    #[test]
    fn an_endpoint_that_tells_nothing_is_neither_full_nor_idle() {
        let unknown = (None, None, 0, 0);
        check(UTILIZATION, &[(Some(2.5), Some(0.0), 0, 0), unknown], 0.5);
        check(UTILIZATION, &[unknown, unknown], 0.0);
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
        let rows = [(None, None, 10, 600), (None, None, 30, 200)];
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
                let row = |requests| (None, None, requests, 0);
                let rows = [row(limit + moved), row(limit), row(limit - moved)];
                check(detector, &rows, 1.0);
            }
        }
    }
}
