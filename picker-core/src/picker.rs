//! How totals become a choice.

use alloc::vec::Vec;

use crate::draw::Draws;

/// A plugin that picks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Picker {
    /// How.
    pub kind: PickerKind,
    /// How many candidates are named, best first (`maxNumOfEndpoints`); at least 1.
    pub destinations_max: usize,
}

/// A way to pick, named as in the reference picker's configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PickerKind {
    /// `max-score-picker`: the largest total, ties at random.
    MaxScore,
    /// `random-picker`: any.
    Random,
    /// `weighted-random-picker`: as likely as its total is large.
    WeightedRandom,
}

impl Default for Picker {
    fn default() -> Self {
        Self {
            kind: PickerKind::MaxScore,
            destinations_max: 1,
        }
    }
}

impl Picker {
    /// Which of `totals` are picked, best first; empty only when there are none.
    pub fn pick(&self, totals: &[f64], draws: &mut Draws) -> Vec<usize> {
        let mut order: Vec<usize> = (0..totals.len()).collect();
        let wanted = self.destinations_max.clamp(1, totals.len().max(1));
        for place in 0..wanted.min(totals.len()) {
            let rest = order.get(place..).unwrap_or_default();
            let chosen = match self.kind {
                PickerKind::MaxScore => best_of(rest, totals, draws),
                PickerKind::Random => draws.below(rest.len() as u32) as usize,
                PickerKind::WeightedRandom => weighted(rest, totals, draws),
            };
            order.swap(place, place + chosen);
        }
        order.truncate(wanted);
        order
    }
}

/// Where in `places` one stands that was drawn, each as likely as its total is large; any of them
/// when no total is positive.
///
/// One after the other drawn like this are what the reference picker draws at once, with the keys
/// `u^(1/total)`.
fn weighted(places: &[usize], totals: &[f64], draws: &mut Draws) -> usize {
    let weights = || places.iter().map(|place| totals[*place].max(0.0));
    let sum: f64 = weights().sum();
    if sum <= 0.0 {
        return draws.below(places.len() as u32) as usize;
    }
    let mut rest = draws.unit() * sum;
    let mut chosen = 0;
    for (index, weight) in weights().enumerate().filter(|(_, weight)| *weight > 0.0) {
        chosen = index;
        rest -= weight;
        if rest < 0.0 {
            break;
        }
    }
    chosen
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
    use alloc::vec;
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

    /// How often each of `totals` is named first in 8,000 picks.
    fn firsts(kind: PickerKind, totals: &[f64]) -> Vec<u32> {
        let picker = Picker {
            kind,
            destinations_max: 2,
        };
        let (mut counts, mut draws) = (vec![0; totals.len()], Draws::new(3));
        for _ in 0..8000 {
            let picked = picker.pick(totals, &mut draws);
            assert_eq!(picked.len(), totals.len().min(2));
            assert!(picked.iter().skip(1).all(|it| *it != picked[0]));
            counts[picked[0]] += 1;
        }
        counts
    }

    #[test]
    fn a_weighted_choice_is_as_likely_as_its_total_is_large() {
        let counted = firsts(PickerKind::WeightedRandom, &[3.0, 0.0, 1.0]);
        assert!((5800..=6200).contains(&counted[0]), "{counted:?}");
        assert_eq!(counted[1], 0);
        let counted = firsts(PickerKind::WeightedRandom, &[0.0; 4]);
        let is_even = |count: &u32| (1800..=2200).contains(count);
        assert!(counted.iter().all(is_even), "{counted:?}");
        assert_eq!(firsts(PickerKind::WeightedRandom, &[0.0, 2.0]), [0, 8000]);
    }

    #[test]
    fn a_random_choice_does_not_look_at_totals() {
        let counted = firsts(PickerKind::Random, &[9.0, 0.0, 1.0, 5.0]);
        let is_even = |count: &u32| (1800..=2200).contains(count);
        assert!(counted.iter().all(is_even), "{counted:?}");
    }
}
