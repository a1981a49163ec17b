//! Whether a request that matters less is served at all when the pool is full.

use crate::candidate::Candidate;
use crate::measure::{Measure, mean};

/// `probabilistic-admitter`: the fuller the pool, the likelier a request with a priority below 0 is
/// refused.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Admitter {
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
    /// How likely a request is refused, from 0 to 1. Endpoints of which nothing is known do not count;
    /// when all are such, nothing is refused.
    pub(crate) fn refuses(&self, candidates: &[Candidate<'_>]) -> f64 {
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
    use alloc::vec::Vec;
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
        let admitter = Admitter {
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
