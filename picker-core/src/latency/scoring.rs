//! Scores by headroom, so that endpoints are filled up to what requests ask for, and no further.
//!
//! Where the objectives can be met only the endpoints that do have a score. Where none does, it is
//! the idle ones, else those that miss the least: only later tokens, only the first, or both.

use alloc::vec;
use alloc::vec::Vec;

use super::Prediction;

/// How headrooms become scores.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LatencyScoring {
    /// How much the first token counts; only the proportion of the two matters.
    pub ttft_weight: f64,
    /// How much later tokens count.
    pub tpot_weight: f64,
    /// Whether the endpoint with the most headroom is best, and not the one with the least.
    ///
    /// Of endpoints that are too late the one that misses the least is best, either way.
    pub prefers_most: bool,
    /// What counts without any prediction.
    pub composite: Composite,
}

/// How much each measure counts where nothing is predicted; only proportions matter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Composite {
    /// The share of KV blocks that is free.
    pub kv_weight: f64,
    /// How short the queue is compared with the longest one.
    pub queue_weight: f64,
    /// The share of the prompt that is cached.
    pub prefix_weight: f64,
}

/// What is known of an endpoint without a prediction.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Unpredicted {
    /// The share of KV blocks in use, `0..=1`.
    pub kv_usage: f64,
    /// Requests that wait.
    pub waiting: f64,
    /// The share of the prompt that is cached, `0..=1`.
    pub prefix_ratio: f64,
}

impl Default for LatencyScoring {
    fn default() -> Self {
        Self {
            ttft_weight: 0.8,
            tpot_weight: 0.2,
            prefers_most: false,
            composite: Composite {
                kv_weight: 1.0,
                queue_weight: 1.0,
                prefix_weight: 1.0,
            },
        }
    }
}

impl LatencyScoring {
    /// A score in `0..=1` for each endpoint, or `None` when nothing is predicted of any.
    ///
    /// An endpoint without a prediction among others counts as one that has no headroom left.
    pub fn scores(&self, predictions: &[Option<Prediction>]) -> Option<Vec<f64>> {
        if predictions.iter().all(Option::is_none) {
            return None;
        }
        let group = |it: &Option<Prediction>| it.map_or(Group::Positive, Group::of);
        let best = predictions.iter().map(group).min()?;
        let within = |it: &&Option<Prediction>| group(it) == best;
        let headrooms = |of: fn(&Prediction) -> f64| {
            let inside = predictions.iter().filter(within);
            Range::over(inside.map(|it| it.as_ref().map_or(0.0, of).abs()))
        };
        let ttft = headrooms(|it| it.ttft_headroom);
        let tpot = headrooms(|it| it.tpot_headroom);
        let (ttft_weight, tpot_weight) = self.weights(ttft, tpot);
        let prefers_most = self.prefers_most && best == Group::Positive;
        let score = |it: &Option<Prediction>| {
            if group(it) != best {
                return 0.0;
            }
            let it = it.unwrap_or_default();
            let headroom = ttft_weight * ttft.place(it.ttft_headroom.abs())
                + tpot_weight * tpot.place(it.tpot_headroom.abs());
            let preference = if prefers_most {
                headroom
            } else {
                1.0 - headroom
            };
            // Cut to hundredths, and never nothing, for a picker may choose by chance.
            let hundredths = (preference * 100.0) as u32 + 1;
            (f64::from(hundredths) / 100.0).min(1.0)
        };
        Some(predictions.iter().map(score).collect())
    }

    /// What each of the two counts, 1 in all: one that is the same everywhere counts for nothing
    /// where the other is not.
    fn weights(&self, ttft: Range, tpot: Range) -> (f64, f64) {
        let sum = self.ttft_weight + self.tpot_weight;
        match (ttft.is_empty(), tpot.is_empty()) {
            (true, false) => (0.0, 1.0),
            (false, true) => (1.0, 0.0),
            _ if sum > 0.0 => (self.ttft_weight / sum, self.tpot_weight / sum),
            _ => (1.0, 0.0),
        }
    }
}

impl Composite {
    /// A score in `0..=1` for each endpoint, in hundredths.
    pub fn scores(&self, endpoints: &[Unpredicted]) -> Vec<f64> {
        let mut weights = [self.kv_weight, self.queue_weight, self.prefix_weight];
        if weights.iter().sum::<f64>() <= 0.0 {
            weights = [1.0, 0.0, 0.0];
        }
        let sum: f64 = weights.iter().sum();
        let longest = endpoints.iter().map(|it| it.waiting).fold(0.0, f64::max);
        let mut scores = vec![0.0; endpoints.len()];
        for (endpoint, score) in endpoints.iter().zip(&mut scores) {
            let queue = if longest > 0.0 {
                (longest - endpoint.waiting) / longest
            } else {
                1.0
            };
            let measures = [1.0 - endpoint.kv_usage, queue, endpoint.prefix_ratio];
            let weighted = measures.iter().zip(weights).map(|(it, weight)| it * weight);
            let mean = weighted.sum::<f64>() / sum;
            *score = f64::from((mean * 100.0 + 0.5) as u32) / 100.0;
        }
        scores
    }
}

/// Endpoints that are compared with one another, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Positive,
    Idle,
    LaterTokensLate,
    FirstTokenLate,
    BothLate,
}

impl Group {
    fn of(prediction: Prediction) -> Self {
        let is_first_late = prediction.ttft_headroom < 0.0;
        let are_later_late = prediction.tpot_headroom < 0.0;
        match (is_first_late, are_later_late) {
            (false, false) => Self::Positive,
            _ if prediction.dispatched == 0 => Self::Idle,
            (false, true) => Self::LaterTokensLate,
            (true, false) => Self::FirstTokenLate,
            (true, true) => Self::BothLate,
        }
    }
}

/// The least and the most of some numbers.
#[derive(Clone, Copy)]
struct Range {
    least: f64,
    most: f64,
}

impl Range {
    fn over(numbers: impl Iterator<Item = f64>) -> Self {
        let none = Self {
            least: f64::INFINITY,
            most: 0.0,
        };
        numbers.fold(none, |range, number| Self {
            least: range.least.min(number),
            most: range.most.max(number),
        })
    }

    fn is_empty(self) -> bool {
        self.most - self.least <= EQUAL_WITHIN
    }

    /// Where `number` lies between the least, 0, and the most, 1.
    fn place(self, number: f64) -> f64 {
        if self.is_empty() {
            0.5
        } else {
            (number - self.least) / (self.most - self.least)
        }
    }
}

/// Headrooms that differ by no more milliseconds are the same.
const EQUAL_WITHIN: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// Headrooms for the first token and later ones, and requests dispatched.
    type Known = (f64, f64, u32);

    fn prediction((ttft_headroom, tpot_headroom, dispatched): Known) -> Prediction {
        Prediction {
            ttft_headroom,
            tpot_headroom,
            dispatched,
            ..Prediction::default()
        }
    }

    fn check(scoring: LatencyScoring, known: &[Option<Known>], expected: &[f64]) {
        let predictions: Vec<_> = known.iter().map(|it| it.map(prediction)).collect();
        let scores = scoring.scores(&predictions);
        assert_eq!(scores.as_deref(), Some(expected), "{known:?}");
    }

    fn most() -> LatencyScoring {
        LatencyScoring {
            prefers_most: true,
            ..LatencyScoring::default()
        }
    }

    #[test]
    fn the_least_headroom_scores_the_most_unless_configured_otherwise() {
        // Headrooms lie at 0, 0.25 and 1 of their ranges: 0.8·0.25 + 0.2·0.25 = 0.25.
        let known = [
            Some((100.0, 10.0, 1)),
            Some((150.0, 15.0, 1)),
            Some((300.0, 30.0, 1)),
        ];
        check(LatencyScoring::default(), &known, &[1.0, 0.76, 0.01]);
        check(most(), &known, &[0.01, 0.26, 1.0]);
    }

    #[test]
    fn a_headroom_that_is_equal_everywhere_leaves_its_weight_to_the_other() {
        // Otherwise the second would have 0.8·1 + 0.2·0.5 = 0.9.
        let known = [Some((100.0, 0.0, 1)), Some((200.0, 0.0, 1))];
        check(LatencyScoring::default(), &known, &[1.0, 0.01]);
        let known = [
            Some((5.0, 10.0, 1)),
            Some((5.0, 20.0, 1)),
            Some((5.0, 12.5, 1)),
        ];
        check(most(), &known, &[0.01, 1.0, 0.26]);
        let same = [Some((5.0, 10.0, 1)), Some((5.0, 10.0, 1))];
        check(LatencyScoring::default(), &same, &[0.51, 0.51]);
    }

    #[test]
    fn who_is_too_late_has_no_score_while_another_is_not() {
        let known = [
            Some((-1.0, 5.0, 0)),
            Some((10.0, 5.0, 9)),
            Some((5.0, -1.0, 0)),
        ];
        check(LatencyScoring::default(), &known, &[0.0, 0.51, 0.0]);
    }

    #[test]
    fn among_the_late_the_idle_come_first_then_those_that_miss_the_least() {
        let known = [
            Some((-9.0, -9.0, 0)),
            Some((1.0, -1.0, 1)),
            Some((-8.0, -9.0, 0)),
        ];
        check(LatencyScoring::default(), &known, &[0.01, 0.0, 1.0]);
        let known = [
            Some((-1.0, 1.0, 1)),
            Some((90.0, -20.0, 1)),
            Some((90.0, -10.0, 1)),
            Some((-1.0, -1.0, 1)),
        ];
        check(most(), &known, &[0.0, 0.01, 1.0, 0.0]);
        let known = [Some((-1.0, 1.0, 1)), Some((-1.0, -1.0, 1))];
        check(LatencyScoring::default(), &known, &[0.51, 0.0]);
        let known = [Some((-100.0, -1.0, 1)), Some((-50.0, -1.0, 1))];
        check(most(), &known, &[0.01, 1.0]);
    }

    #[test]
    fn an_endpoint_of_which_nothing_is_predicted_has_no_headroom_left() {
        let known = [None, Some((100.0, 0.0, 1)), Some((-5.0, 0.0, 0))];
        check(LatencyScoring::default(), &known, &[1.0, 0.01, 0.0]);
        assert_eq!(LatencyScoring::default().scores(&[None, None]), None);
        assert_eq!(LatencyScoring::default().scores(&[]), None);
    }

    #[test]
    fn only_the_proportion_of_weights_matters() {
        let weighted = |ttft_weight, tpot_weight| LatencyScoring {
            ttft_weight,
            tpot_weight,
            ..LatencyScoring::default()
        };
        // The first and the second differ by their first tokens, the third by its later ones.
        let known = [
            Some((0.0, 0.0, 1)),
            Some((8.0, 0.0, 1)),
            Some((0.0, 4.0, 1)),
        ];
        check(weighted(1.0, 3.0), &known, &[1.0, 0.76, 0.26]);
        check(weighted(0.25, 0.75), &known, &[1.0, 0.76, 0.26]);
        check(weighted(0.0, 0.0), &known, &[1.0, 0.01, 1.0]);
    }

    #[test]
    fn without_predictions_measures_are_averaged() {
        let known = |kv_usage, waiting, prefix_ratio| Unpredicted {
            kv_usage,
            waiting,
            prefix_ratio,
        };
        let check = |weights: [f64; 3], expected: &[f64]| {
            let [kv_weight, queue_weight, prefix_weight] = weights;
            let composite = Composite {
                kv_weight,
                queue_weight,
                prefix_weight,
            };
            let endpoints = [known(0.5, 4.0, 1.0), known(0.2, 1.0, 0.0)];
            assert_eq!(composite.scores(&endpoints), expected, "{weights:?}");
        };
        // (0.5 + 0 + 1) / 3 and (0.8 + 0.75 + 0) / 3 = 0.5167.
        check([1.0, 1.0, 1.0], &[0.5, 0.52]);
        check([0.0, 5.0, 0.0], &[0.0, 0.75]);
        check([1.0, 0.0, 3.0], &[0.88, 0.2]);
        check([0.0, 0.0, 0.0], &[0.5, 0.8]);
        let idle = [known(0.0, 0.0, 0.0)];
        assert_eq!(LatencyScoring::default().composite.scores(&idle), [0.67]);
    }
}
