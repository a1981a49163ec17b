//! More room in the KV cache is better: the score is the fraction that is free.
//!
//! A candidate without a fresh gauge has the others' mean, or one half when no gauge is known.

use crate::candidate::Context;
use crate::measure::Measure;
use crate::score::Score;

pub(super) fn score(cx: &Context<'_>, scores: &mut [Score]) {
    let usage = Measure::KvCacheUtilization.over(cx.candidates.iter());
    for (candidate, score) in cx.candidates.iter().zip(scores) {
        *score = Score::new(1.0 - usage.of(candidate).unwrap_or(0.5));
    }
}
