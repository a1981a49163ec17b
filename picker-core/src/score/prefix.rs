//! A larger share of the prompt in the endpoint's prefix cache is better.
//!
//! A request without a whole block scores 0 everywhere, so this scorer has no say in it.

use crate::candidate::Context;
use crate::score::Score;

pub(super) fn score(cx: &Context<'_>, scores: &mut [Score]) {
    for (candidate, score) in cx.candidates.iter().zip(scores) {
        *score = Score::new(candidate.held.matched as f64 / cx.blocks.max(1) as f64);
    }
}
