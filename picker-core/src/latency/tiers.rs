//! Endpoints that will meet a request's objectives apart from those that will not.

use super::Prediction;

/// Which endpoints are left to choose from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tier {
    /// All, for there is no difference.
    All,
    /// Those without a negative headroom.
    Positive,
    /// Those with one, and those of which nothing is predicted.
    Negative,
}

impl Tier {
    /// The tier to choose from: the positive one, but the negative one where `chance`, drawn from
    /// `0..1`, is below `exploration`, so that endpoints that were overloaded are tried again.
    pub fn choose(
        predictions: impl Iterator<Item = Option<Prediction>>,
        exploration: f64,
        chance: impl FnOnce() -> f64,
    ) -> Self {
        let (mut predicted, mut positive, mut negative) = (false, false, false);
        for prediction in predictions {
            predicted |= prediction.is_some();
            let is_positive = prediction.is_some_and(|it| it.is_positive());
            positive |= is_positive;
            negative |= !is_positive;
        }
        if !(predicted && positive && negative) {
            Self::All
        } else if chance() < exploration {
            Self::Negative
        } else {
            Self::Positive
        }
    }

    /// Whether an endpoint of this prediction belongs to the tier.
    pub fn keeps(self, prediction: Option<&Prediction>) -> bool {
        let is_positive = prediction.is_some_and(Prediction::is_positive);
        match self {
            Self::All => true,
            Self::Positive => is_positive,
            Self::Negative => !is_positive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn prediction(headrooms: (f64, f64)) -> Prediction {
        Prediction {
            ttft_headroom: headrooms.0,
            tpot_headroom: headrooms.1,
            ..Prediction::default()
        }
    }

    const GOOD: Option<(f64, f64)> = Some((0.0, 5.0));
    const LATE: Option<(f64, f64)> = Some((5.0, -1.0));

    /// Which of the endpoints stay when one in a hundred explores.
    fn check(headrooms: &[Option<(f64, f64)>], chance: f64, kept: &[bool]) {
        let predictions = headrooms.iter().map(|it| it.map(prediction));
        let tier = Tier::choose(predictions.clone(), 0.01, || chance);
        let stay: alloc::vec::Vec<bool> = predictions.map(|it| tier.keeps(it.as_ref())).collect();
        assert_eq!(stay, kept, "{headrooms:?}");
    }

    #[test]
    fn those_that_will_be_in_time_are_kept_but_for_one_request_in_a_hundred() {
        check(&[GOOD, LATE, GOOD], 0.01, &[true, false, true]);
        check(&[GOOD, LATE, GOOD], 0.0099, &[false, true, false]);
    }

    #[test]
    fn what_is_not_predicted_is_among_the_late() {
        check(&[GOOD, None], 0.5, &[true, false]);
        check(&[GOOD, None], 0.0, &[false, true]);
    }

    #[test]
    fn one_tier_alone_is_kept_whole() {
        check(&[GOOD, GOOD], 0.0, &[true, true]);
        check(&[LATE, LATE, None], 0.0, &[true, true, true]);
        check(&[None, None], 0.0, &[true, true]);
        check(&[], 0.0, &[]);
    }
}
