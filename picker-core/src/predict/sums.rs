//! All that a fit needs of the answers seen, in a form that fades and can be added to others'.

use super::ratios::RATIO_MAX;
use super::{FEATURE_MAX, MS_MAX, MS_MIN, TERMS, TOKENS, Terms};
use crate::bytes::{Reader, Writer};

/// Weighted sums over answers, of terms and of the times that they explain.
#[derive(Clone, Default)]
pub(super) struct Sums {
    /// How many answers, older ones counting less.
    pub(super) answers: f64,
    /// The range of times, which narrows slowly, in milliseconds.
    least: f64,
    most: f64,
    /// Of each term times the time.
    pub(super) times: Terms,
    /// Of each term times each.
    pub(super) products: [Terms; TERMS],
}

impl Sums {
    /// Adds an answer with `weight`, after all before it have faded a little.
    pub(super) fn add(&mut self, terms: &Terms, ms: f64, weight: f64) {
        if self.answers == 0.0 {
            (self.least, self.most) = (ms, ms);
        }
        self.answers = self.answers * FADING + 1.0;
        self.least = (self.least * (2.0 - FADING)).min(ms);
        self.most = (self.most * FADING).max(ms);
        for ((term, time), row) in terms.iter().zip(&mut self.times).zip(&mut self.products) {
            *time = *time * FADING + weight * term * ms;
            for (other, product) in terms.iter().zip(row) {
                *product = *product * FADING + weight * term * other;
            }
        }
    }

    /// Adds what another worker has seen.
    pub(super) fn absorb(&mut self, other: &Self) {
        if other.answers == 0.0 {
            return;
        }
        if self.answers == 0.0 {
            (self.least, self.most) = (other.least, other.most);
        }
        self.answers += other.answers;
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
        let sums = self
            .times
            .iter_mut()
            .chain(self.products.as_flattened_mut());
        let others = other.times.iter().chain(other.products.as_flattened());
        for (sum, other) in sums.zip(others) {
            *sum += other;
        }
    }

    /// The nearest time that is not far outside of what was seen.
    pub(super) fn bounded(&self, ms: f64) -> f64 {
        ms.max(self.least / BEYOND).min(self.most * BEYOND)
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        let range = [self.answers, self.least, self.most];
        let sums = self.times.iter().chain(self.products.as_flattened());
        for number in range.iter().chain(sums) {
            writer.u64(number.to_bits());
        }
    }

    /// Reads what [`encode`](Self::encode) wrote; `None` when it is too short or no sum of anything.
    pub(super) fn decode(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let mut number = |most: f64| {
            let number = f64::from_bits(reader.u64()?);
            (0.0..=most).contains(&number).then_some(number)
        };
        self.answers = number(ANSWERS_MAX)?;
        self.least = number(MS_MAX * RATIO_MAX)?;
        self.most = number(MS_MAX * RATIO_MAX)?;
        for sum in self
            .times
            .iter_mut()
            .chain(self.products.as_flattened_mut())
        {
            *sum = number(SUM_MAX)?;
        }
        Some(())
    }
}

/// What is left of an answer's weight after the next one: a memory of some 330.
const FADING: f64 = 0.997;

/// The most that faded answers can count for.
const ANSWERS_MAX: f64 = 1.0 / (1.0 - FADING) + 1.0;

/// Predictions stay within this factor of what was seen.
const BEYOND: f64 = 2.0;

/// The most that a sum can be: of the largest term squared and times the longest time, each with
/// the largest weight. Times are learnt divided by ratios.
const SUM_MAX: f64 = {
    let term = FEATURE_MAX * FEATURE_MAX / TOKENS;
    let weight = RATIO_MAX * RATIO_MAX / (MS_MIN * MS_MIN);
    ANSWERS_MAX * term * term * weight * RATIO_MAX * MS_MAX
};
