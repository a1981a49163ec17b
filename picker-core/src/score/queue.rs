//! A shorter queue, relative to the other candidates, is better.
//!
//! The shortest queue scores 1 and the longest 0; when all are equal every score is 1. A queue is
//! the scraped one plus what this Envoy has sent since, so that a burst between two scrapes
//! spreads. A candidate without fresh metrics counts as an average one, plus what it has in flight
//! above the others' average: neither idle nor full.

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
    let waiting = candidate
        .endpoint
        .metrics
        .waiting
        .filter(|_| candidate.fresh)?;
    Some(waiting + f64::from(candidate.sent_since_scrape()))
}

fn in_flight(candidate: &Candidate<'_>) -> f64 {
    f64::from(candidate.load.requests)
}
