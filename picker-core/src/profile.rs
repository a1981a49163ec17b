//! Scorers, weights and how the totals become a choice.

use alloc::vec;
use alloc::vec::Vec;

use crate::candidate::Context;
use crate::draw::Draws;
use crate::score::{LeastCost, Score, ScorerKind};

/// A scorer and its say.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WeightedScorer {
    /// The measure.
    pub scorer: ScorerKind,
    /// What its score is multiplied with.
    pub weight: f64,
}

/// How candidates are ranked: the weighted sum of scores, the largest first, ties at random
/// (`max-score-picker`).
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// The measures.
    pub scorers: Vec<WeightedScorer>,
    /// How many candidates are named, best first (`maxNumOfEndpoints`); at least 1.
    pub destinations_max: usize,
}

impl Default for Profile {
    /// The endpoint where a request costs least.
    fn default() -> Self {
        Self::of(&[(ScorerKind::LeastCost(LeastCost::DEFAULT), 1.0)])
    }
}

impl Profile {
    /// The reference picker's weights for a pool that shares prefixes: queue 2, KV cache 2, prefix
    /// 3.
    pub fn compatible() -> Self {
        Self::of(&[
            (ScorerKind::Queue, 2.0),
            (ScorerKind::KvCacheUtilization, 2.0),
            (ScorerKind::Prefix, 3.0),
        ])
    }

    fn of(scorers: &[(ScorerKind, f64)]) -> Self {
        let weighted = |(scorer, weight): &(ScorerKind, f64)| WeightedScorer {
            scorer: *scorer,
            weight: *weight,
        };
        Self {
            scorers: scorers.iter().map(weighted).collect(),
            destinations_max: 1,
        }
    }

    /// The places of the best candidates, best first; empty only when there are none.
    pub fn rank(&self, cx: &Context<'_>, draws: &mut Draws) -> Vec<usize> {
        let totals = self.totals(cx);
        let mut order: Vec<usize> = (0..totals.len()).collect();
        let wanted = self.destinations_max.clamp(1, totals.len().max(1));
        for place in 0..wanted.min(totals.len()) {
            let best = best_of(&order[place..], &totals, draws);
            order.swap(place, place + best);
        }
        order.truncate(wanted);
        order
    }

    /// The weighted sum of scores of every candidate.
    pub fn totals(&self, cx: &Context<'_>) -> Vec<f64> {
        let mut totals = vec![0.0; cx.candidates.len()];
        let mut scores = vec![Score::new(0.0); cx.candidates.len()];
        for WeightedScorer { scorer, weight } in &self.scorers {
            scorer.score(cx, &mut scores);
            for (total, score) in totals.iter_mut().zip(&scores) {
                *total += weight * score.value();
            }
        }
        totals
    }
}

/// Where in `places` the largest total stands; each of several equal ones is as likely as the
/// others.
fn best_of(places: &[usize], totals: &[f64], draws: &mut Draws) -> usize {
    let mut best = 0;
    let mut largest = f64::NEG_INFINITY;
    let mut ties = 0;
    for (index, total) in places.iter().map(|place| totals[*place]).enumerate() {
        // Sums of the same scores in another order may differ in the last bits; they are ties all
        // the same.
        if total > largest + TIE {
            (best, largest, ties) = (index, total, 1);
        } else if total >= largest - TIE {
            ties += 1;
            if draws.below(ties) == 0 {
                best = index;
            }
        }
    }
    best
}

/// Totals this close are equal: far below what a scorer can tell apart, far above rounding.
const TIE: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn counts(totals: &[f64], picks: u32) -> Vec<u32> {
        let mut counts = vec![0; totals.len()];
        let mut draws = Draws::new(7);
        let places: Vec<usize> = (0..totals.len()).collect();
        for _ in 0..picks {
            counts[best_of(&places, totals, &mut draws)] += 1;
        }
        counts
    }

    #[test]
    fn ties_are_settled_evenly_and_only_among_the_best() {
        let counted = counts(&[50.0, 50.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 8000);
        assert!(
            counted[..2]
                .iter()
                .all(|count| (3800..=4200).contains(count)),
            "{counted:?}"
        );
        assert_eq!(counted[2..].iter().sum::<u32>(), 0);
        let counted = counts(&[1.0; 4], 4000);
        assert!(
            counted.iter().all(|count| (900..=1100).contains(count)),
            "{counted:?}"
        );
        let counted = counts(&[0.1 + 0.2, 0.3], 4000);
        assert!(
            counted.iter().all(|count| *count > 1800),
            "rounding is no preference: {counted:?}"
        );
    }

    #[test]
    fn the_best_wins_wherever_it_stands() {
        for best in 0..5 {
            let mut totals = [1.0; 5];
            totals[best] = 1.5;
            assert_eq!(counts(&totals, 100)[best], 100);
        }
    }
}
