//! Numbers about endpoints that are compared: as scraped, and corrected by what was sent since.
//!
//! A candidate without fresh metrics is unknown, neither idle nor full. It counts as an average
//! one, plus what it has in flight above the others' average.

use crate::candidate::Candidate;

/// A number about an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// Requests in flight from all workers of this Envoy; always known.
    ActiveRequests,
    /// The fraction of KV blocks in use.
    KvCacheUtilization,
    /// Requests executing, with those sent since the scrape.
    RunningRequests,
    /// Requests queued, with those sent since the scrape, so that a burst between two scrapes
    /// spreads.
    ///
    /// At least what this Envoy has in flight there without its being executed: an endpoint that
    /// takes requests and does nothing has no queue that it knows of.
    WaitingQueue,
}

/// A measure over the candidates of a decision.
#[derive(Clone, Copy)]
pub(crate) struct Measured {
    measure: Measure,
    /// The mean of those that are known; `None` when none is.
    average: Option<f64>,
    /// The mean of what these have in flight.
    in_flight: f64,
}

impl Measure {
    /// The number, when the candidate tells it.
    pub(crate) fn known(self, candidate: &Candidate<'_>) -> Option<f64> {
        let metrics = &candidate.endpoint.metrics;
        let fresh = |gauge: Option<f64>| gauge.filter(|_| candidate.fresh);
        match self {
            Self::ActiveRequests => Some(in_flight(candidate)),
            Self::KvCacheUtilization => fresh(metrics.kv_usage),
            Self::RunningRequests => Some(fresh(metrics.running)? + unseen(candidate)),
            Self::WaitingQueue => {
                let queue = fresh(metrics.waiting)? + unseen(candidate);
                let idle = metrics
                    .running
                    .map(|running| in_flight(candidate) - running);
                Some(idle.map_or(queue, |idle| queue.max(idle)))
            }
        }
    }

    /// The measure over `candidates`.
    pub(crate) fn over<'a>(
        self,
        candidates: impl Iterator<Item = &'a Candidate<'a>> + Clone,
    ) -> Measured {
        let known = candidates.filter_map(|it| Some((it, self.known(it)?)));
        Measured {
            measure: self,
            average: mean(known.clone().map(|(_, number)| number)),
            in_flight: mean(known.map(|(it, _)| in_flight(it))).unwrap_or(0.0),
        }
    }
}

impl Measured {
    /// The number, or what an unknown candidate is taken for; `None` when all are unknown.
    pub(crate) fn of(&self, candidate: &Candidate<'_>) -> Option<f64> {
        let estimate = || {
            let more = match self.measure {
                Measure::KvCacheUtilization => 0.0,
                _ => (in_flight(candidate) - self.in_flight).max(0.0),
            };
            Some(self.average? + more)
        };
        self.measure.known(candidate).or_else(estimate)
    }

    /// The number of requests; where all are unknown, what is in flight tells them apart.
    pub(crate) fn or_in_flight(&self, candidate: &Candidate<'_>) -> f64 {
        self.of(candidate).unwrap_or_else(|| in_flight(candidate))
    }
}

/// The mean of the numbers given; `None` when there are none.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0_u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

/// Requests that were sent since the scrape and have not ended.
fn unseen(candidate: &Candidate<'_>) -> f64 {
    f64::from(candidate.sent_since_scrape().min(candidate.load.requests))
}

fn in_flight(candidate: &Candidate<'_>) -> f64 {
    f64::from(candidate.load.requests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Load;
    use crate::snapshot::EndpointState;
    use crate::{EndpointId, Timestamp};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn endpoint(waiting: Option<f64>, running: Option<f64>) -> EndpointState {
        let mut endpoint = EndpointState::unknown(EndpointId(1), "1.1.1.1:1".parse().unwrap());
        endpoint.scraped_at = Some(Timestamp(1));
        endpoint.metrics.waiting = waiting;
        endpoint.metrics.running = running;
        endpoint.metrics.kv_usage = waiting.map(|it| it / 40.0);
        endpoint.sent_at_scrape = 5;
        endpoint
    }

    fn candidate(endpoint: &EndpointState, requests: u32) -> Candidate<'_> {
        let load = Load {
            requests,
            sent: 6,
            ..Load::default()
        };
        Candidate {
            load,
            ..Candidate::idle(endpoint)
        }
    }

    #[track_caller]
    fn check(waiting: f64, running: Option<f64>, in_flight: u32, expected: f64) {
        let endpoint = endpoint(Some(waiting), running);
        let candidate = candidate(&endpoint, in_flight);
        assert_eq!(Measure::WaitingQueue.known(&candidate), Some(expected));
    }

    #[test]
    fn what_is_in_flight_and_not_executed_waits() {
        check(2.0, Some(4.0), 7, 3.0);
        check(0.0, Some(0.0), 8, 8.0);
        check(0.0, Some(9.0), 1, 1.0);
        check(1.0, Some(9.0), 0, 1.0);
        check(0.0, None, 8, 1.0);
    }

    #[test]
    fn what_was_sent_since_the_scrape_runs_unless_it_has_ended() {
        for (in_flight, expected) in [(8, 5.0), (1, 5.0), (0, 4.0)] {
            let endpoint = endpoint(None, Some(4.0));
            let known = Measure::RunningRequests.known(&candidate(&endpoint, in_flight));
            assert_eq!(known, Some(expected), "{in_flight}");
        }
    }

    #[test]
    fn an_unknown_candidate_is_an_average_one_plus_what_it_has_in_flight_above_average() {
        let endpoints = [Some(10.0), Some(20.0), None].map(|waiting| endpoint(waiting, None));
        let of = |measure: Measure, in_flight: u32| {
            let mut candidates = endpoints.each_ref().map(|it| candidate(it, 2));
            candidates[2].load.requests = in_flight;
            measure.over(candidates.iter()).of(&candidates[2])
        };
        // Known are 11 and 21, each with one sent since, and 2 in flight at both.
        assert_eq!(of(Measure::WaitingQueue, 1), Some(16.0));
        assert_eq!(of(Measure::WaitingQueue, 6), Some(20.0));
        assert_eq!(of(Measure::KvCacheUtilization, 6), Some(0.375));
        assert_eq!(of(Measure::RunningRequests, 6), None);
        assert_eq!(of(Measure::ActiveRequests, 6), Some(6.0));
    }
}
