//! More, or less, of a number from the endpoints' pages is better.
//!
//! A candidate that does not tell it has the mean of the others, or 0 like all when none does.

use alloc::string::String;

use crate::candidate::{Candidate, Context};
use crate::measure::mean;
use crate::score::{Score, each};

/// How a number from an endpoint's pages becomes a score.
#[derive(Clone, PartialEq, Debug)]
pub struct AttributeRange {
    /// The plugin that makes the number; empty when it has no producer.
    pub producer: String,
    /// The number's name.
    pub name: String,
    /// Whether less is better.
    pub lower_is_better: bool,
    /// The numbers that score least and most; those of the candidates when `None`.
    pub range: Option<(f64, f64)>,
}

impl AttributeRange {
    pub(super) fn score(&self, cx: &Context<'_>, scores: &mut [Score]) {
        let told = |it: &Candidate<'_>| it.attribute(&self.producer, &self.name);
        let numbers = || cx.candidates.iter().filter_map(told);
        let seen = || {
            let least = numbers().fold(f64::INFINITY, f64::min);
            (least, numbers().fold(f64::NEG_INFINITY, f64::max))
        };
        let (least, most) = self.range.unwrap_or_else(seen);
        let average = mean(numbers());
        each(cx, scores, &|it| {
            let number = told(it).or(average);
            number.map_or(0.0, |it| self.place(it, (least, most)))
        });
    }

    /// Where a number lies in a range, which is good everywhere when it has no width.
    fn place(&self, number: f64, (least, most): (f64, f64)) -> f64 {
        if most <= least {
            return 1.0;
        }
        let place = ((number - least) / (most - least)).clamp(0.0, 1.0);
        if self.lower_is_better {
            1.0 - place
        } else {
            place
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[track_caller]
    fn check(lower_is_better: bool, range: (f64, f64), expected: [f64; 3]) {
        let rule = AttributeRange {
            producer: String::new(),
            name: String::new(),
            lower_is_better,
            range: Some(range),
        };
        assert_eq!([10.0, 20.0, 60.0].map(|it| rule.place(it, range)), expected);
    }

    #[test]
    fn a_number_scores_by_its_place_in_the_range() {
        check(false, (0.0, 40.0), [0.25, 0.5, 1.0]);
        check(true, (0.0, 40.0), [0.75, 0.5, 0.0]);
        check(true, (20.0, 60.0), [1.0, 1.0, 0.0]);
        check(true, (20.0, 20.0), [1.0, 1.0, 1.0]);
    }
}
