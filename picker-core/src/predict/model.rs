//! A sum of terms with coefficients that are never negative, fitted to times by their relative
//! errors.

use super::Terms;
use super::sums::Sums;

/// The fit, from what this worker has seen and what others told.
#[derive(Clone, Default)]
pub(super) struct Model {
    /// What this worker has seen itself.
    pub(super) own: Sums,
    others: Sums,
    /// Both, as of the last fit.
    all: Sums,
    coefficients: Terms,
}

impl Model {
    /// Learns that `terms` took `ms`.
    ///
    /// The error is weighed by the larger one of the expected and the actual time, so that no answer
    /// weighs more than any other, however long it took.
    pub(super) fn learn(&mut self, terms: &Terms, ms: f64) {
        let scale = self.predict(terms).unwrap_or(ms).max(ms);
        self.own.add(terms, ms, 1.0 / (scale * scale));
        self.fit(SWEEPS);
    }

    /// Takes what others have seen in place of all that they told before.
    pub(super) fn hear(&mut self, others: Sums) {
        self.others = others;
        self.fit(SWEEPS_ANEW);
    }

    /// What `terms` will take, in milliseconds; `None` until enough was seen.
    pub(super) fn predict(&self, terms: &Terms) -> Option<f64> {
        let ms = dot(&self.coefficients, terms);
        (self.all.answers >= ANSWERS_MIN).then(|| self.all.bounded(ms))
    }

    /// Improves one coefficient after the other by least squares, starting from those of before.
    fn fit(&mut self, sweeps: usize) {
        self.all.clone_from(&self.own);
        self.all.absorb(&self.others);
        for _ in 0..sweeps {
            let rows = self.all.products.iter().zip(&self.all.times);
            for (place, (row, time)) in rows.enumerate() {
                let explained = dot(&self.coefficients, row);
                let square = row.get(place).copied().unwrap_or_default();
                let Some(coefficient) = self.coefficients.get_mut(place) else {
                    continue;
                };
                if square > 0.0 {
                    let left = time - explained + square * *coefficient;
                    let best = left / (square * (1.0 + RIDGE));
                    *coefficient = best.clamp(0.0, COEFFICIENT_MAX);
                }
            }
        }
    }
}

fn dot(one: &Terms, other: &Terms) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

/// Answers that must have been seen, each a little less than one: four for each term.
const ANSWERS_MIN: f64 = 30.5;

/// Sweeps after each answer: few are enough, for sums change little from one to the next.
const SWEEPS: usize = 2;

/// Sweeps where the sums are new.
const SWEEPS_ANEW: usize = 32;

/// How much is taken off a coefficient of its own: terms that always come together share what they
/// explain.
const RIDGE: f64 = 0.001;

/// No coefficient is larger, whatever others tell: an hour for the smallest part of a term that
/// counts.
const COEFFICIENT_MAX: f64 = 1e12;
