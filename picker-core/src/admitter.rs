//! Whether a request that matters less is served at all when the pool is full.

use alloc::vec::Vec;

use crate::candidate::Candidate;
use crate::latency::{Objectives, Prospect, is_denied};
use crate::measure::{Measure, mean};
use crate::request::Request;

/// What a request with a priority below 0 has to pass, named as in the reference picker's
/// configuration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Admitter {
    /// `probabilistic-admitter`: the fuller the pool, the likelier a request is refused.
    Fullness(Fullness),
    /// `latency-slo-admitter`: a request is refused that asks for latencies which no endpoint is
    /// predicted to have.
    Objectives,
}

/// How likely it is to refuse at a fullness of the pool.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fullness {
    /// The queue of an endpoint that is full.
    pub queue_max: f64,
    /// The part of the KV cache in use of an endpoint that is full.
    pub kv_usage_max: f64,
    /// How late and how suddenly it begins to refuse.
    pub power: u32,
    /// The likelihood to refuse where the pool is just full, which is more than 1.
    pub factor: f64,
}

impl Admitter {
    /// How likely `request` is refused, from 0 to 1.
    pub(crate) fn refuses(&self, request: &Request, candidates: &[Candidate<'_>]) -> f64 {
        match self {
            Self::Fullness(rule) => rule.refuses(candidates),
            Self::Objectives => {
                let objectives = Objectives::read(|name| request.header(name));
                let prospects: Vec<Prospect> = candidates.iter().map(prospect).collect();
                f64::from(is_denied(request.priority, objectives, &prospects))
            }
        }
    }
}

fn prospect(candidate: &Candidate<'_>) -> Prospect {
    Prospect {
        prediction: candidate.prediction.copied(),
        running: Measure::RunningRequests.known(candidate),
        kv_usage: Measure::KvCacheUtilization.known(candidate),
    }
}

impl Fullness {
    /// How likely a request is refused, from 0 to 1. Endpoints of which nothing is known do not count;
    /// when all are such, nothing is refused.
    fn refuses(&self, candidates: &[Candidate<'_>]) -> f64 {
        let fullness = |candidate: &Candidate<'_>| {
            let queue = Measure::WaitingQueue.known(candidate);
            let kv_usage = Measure::KvCacheUtilization.known(candidate);
            let parts = [
                queue.map(|it| it / self.queue_max),
                kv_usage.map(|it| it / self.kv_usage_max),
            ];
            parts.into_iter().flatten().reduce(f64::max)
        };
        let saturation = mean(candidates.iter().filter_map(fullness)).unwrap_or(0.0);
        let risen = (0..self.power).fold(1.0, |risen, _| risen * saturation);
        (risen * self.factor).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EndpointId;
    use crate::snapshot::EndpointState;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// Waiting and KV usage of each endpoint, with the reference picker's defaults.
    #[track_caller]
    fn check(rows: &[(Option<f64>, Option<f64>)], expected: f64) {
        let endpoints = rows.iter().map(|(waiting, kv_usage)| {
            let mut endpoint = EndpointState::unknown(EndpointId(1), "1.1.1.1:1".parse().unwrap());
            endpoint.metrics.waiting = *waiting;
            endpoint.metrics.kv_usage = *kv_usage;
            endpoint
        });
        let endpoints: Vec<EndpointState> = endpoints.collect();
        let candidates: Vec<Candidate<'_>> = endpoints.iter().map(Candidate::idle).collect();
        let admitter = Fullness {
            queue_max: 5.0,
            kv_usage_max: 0.8,
            power: 5,
            factor: 300.0,
        };
        let refuses = admitter.refuses(&candidates);
        assert!((refuses - expected).abs() < 1e-9, "{refuses} for {rows:?}");
    }

    /// With a mean fullness of s, 300 s^5 and 1 at most.
    #[test]
    fn the_fuller_the_pool_the_likelier_a_refusal() {
        let row = |waiting, kv_usage| (Some(waiting), Some(kv_usage));
        check(&[row(0.0, 0.0)], 0.0);
        check(&[row(1.0, 0.0)], 300.0 * 0.000_32);
        check(&[row(1.0, 0.24)], 300.0 * 0.002_43);
        check(&[row(2.0, 0.0), row(0.0, 0.0)], 300.0 * 0.000_32);
        check(&[row(2.0, 0.0)], 1.0);
        check(&[row(50.0, 1.0)], 1.0);
    }

    #[test]
    fn what_is_not_known_does_not_count() {
        check(&[], 0.0);
        check(&[(None, None)], 0.0);
        check(&[(None, None), (Some(1.0), None)], 300.0 * 0.000_32);
        check(&[(None, Some(0.16))], 300.0 * 0.000_32);
    }
}
