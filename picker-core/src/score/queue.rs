//! Fewer requests, relative to the other candidates, are better.
//!
//! The fewest score 1 and the most 0; when all are equal every score is 1.

use crate::candidate::Context;
use crate::measure::Measure;
use crate::score::Score;

pub(super) fn score(cx: &Context<'_>, measure: Measure, scores: &mut [Score]) {
    let measured = measure.over(cx.candidates.iter());
    let mut fewest = f64::INFINITY;
    let mut most = f64::NEG_INFINITY;
    for count in cx.candidates.iter().map(|it| measured.or_in_flight(it)) {
        fewest = fewest.min(count);
        most = most.max(count);
    }
    for (candidate, score) in cx.candidates.iter().zip(scores) {
        *score = if most > fewest {
            Score::new((most - measured.or_in_flight(candidate)) / (most - fewest))
        } else {
            Score::new(1.0)
        };
    }
}
