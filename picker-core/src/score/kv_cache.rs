//! More room in the KV cache is better: the score is the fraction that is free.
//!
//! A candidate without a fresh gauge has the others' mean, or one half when no gauge is known.

use crate::candidate::{Candidate, Context};
use crate::score::{Score, mean};

pub(super) fn score(cx: &Context<'_>, scores: &mut [Score]) {
    let average = mean(cx.candidates.iter().filter_map(usage)).unwrap_or(0.5);
    for (candidate, score) in cx.candidates.iter().zip(scores) {
        *score = Score::new(1.0 - usage(candidate).unwrap_or(average));
    }
}

fn usage(candidate: &Candidate<'_>) -> Option<f64> {
    candidate
        .endpoint
        .metrics
        .kv_usage
        .filter(|_| candidate.fresh)
}
