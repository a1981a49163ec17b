//! A shorter queue, relative to the other candidates, is better.
//!
//! The shortest queue scores 1 and the longest 0; when all are equal every score is 1. A queue is
//! the scraped one plus what this Envoy has sent since and what has not ended yet, so that a burst
//! between two scrapes spreads. It is at least what this Envoy has in flight there without its being
//! executed: an endpoint that takes requests and does nothing has no queue that it knows of. A
//! candidate without fresh metrics counts as an average one, plus what it has in flight above the
//! others' average: neither idle nor full.

use crate::candidate::{Candidate, Context};
use crate::score::{Score, mean};

pub(super) fn score(cx: &Context<'_>, scores: &mut [Score]) {
    let with_known = || {
        cx.candidates
            .iter()
            .filter_map(|candidate| Some((candidate, known(candidate)?)))
    };
    let average = mean(with_known().map(|(_, queue)| queue)).unwrap_or(0.0);
    let in_flight = mean(with_known().map(|(candidate, _)| in_flight(candidate))).unwrap_or(0.0);
    let queue = |candidate: &Candidate<'_>| {
        known(candidate)
            .unwrap_or_else(|| average + (self::in_flight(candidate) - in_flight).max(0.0))
    };
    let mut shortest = f64::INFINITY;
    let mut longest = f64::NEG_INFINITY;
    for length in cx.candidates.iter().map(queue) {
        shortest = shortest.min(length);
        longest = longest.max(length);
    }
    for (candidate, score) in cx.candidates.iter().zip(scores) {
        *score = if longest > shortest {
            Score::new((longest - queue(candidate)) / (longest - shortest))
        } else {
            Score::new(1.0)
        };
    }
}

fn known(candidate: &Candidate<'_>) -> Option<f64> {
    let metrics = &candidate.endpoint.metrics;
    let waiting = metrics.waiting.filter(|_| candidate.fresh)?;
    let sent = candidate.sent_since_scrape().min(candidate.load.requests);
    let queue = waiting + f64::from(sent);
    let idle = metrics
        .running
        .map(|running| in_flight(candidate) - running);
    Some(idle.map_or(queue, |idle| queue.max(idle)))
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

    #[track_caller]
    fn check(waiting: f64, running: Option<f64>, in_flight: u32, expected: f64) {
        let mut endpoint = EndpointState::unknown(EndpointId(1), "1.1.1.1:1".parse().unwrap());
        endpoint.scraped_at = Some(Timestamp(1));
        endpoint.metrics.waiting = Some(waiting);
        endpoint.metrics.running = running;
        endpoint.sent_at_scrape = 5;
        let load = Load {
            requests: in_flight,
            sent: 6,
            ..Load::default()
        };
        let candidate = Candidate {
            load,
            ..Candidate::idle(&endpoint)
        };
        assert_eq!(known(&candidate), Some(expected));
    }

    #[test]
    fn what_is_in_flight_and_not_executed_waits() {
        check(2.0, Some(4.0), 7, 3.0);
        check(0.0, Some(0.0), 8, 8.0);
        check(0.0, Some(9.0), 1, 1.0);
        check(1.0, Some(9.0), 0, 1.0);
        check(0.0, None, 8, 1.0);
    }
}
