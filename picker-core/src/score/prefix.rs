//! A larger share of the prompt in the endpoint's prefix cache is better.
//!
//! A request without a whole block scores 0 everywhere, so this scorer has no say in it.

use crate::candidate::{Candidate, Context};

/// How a match is valued.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PrefixShare {
    /// What the length of the match counts for, `0.0..=1.0`; its share of the prompt counts for
    /// the rest.
    pub length_weight: f64,
    /// The match, in tokens, than which no longer one is better by its length.
    pub length_scale: f64,
}

impl PrefixShare {
    /// The share alone.
    pub const DEFAULT: Self = Self {
        length_weight: 0.0,
        length_scale: 8192.0,
    };

    pub(super) fn of(self, cx: &Context<'_>, candidate: &Candidate<'_>) -> f64 {
        let matched = candidate.held.matched as f64;
        let share = matched / cx.blocks.max(1) as f64;
        if self.length_weight <= 0.0 {
            return share;
        }
        let length = (matched * cx.block_tokens / self.length_scale).min(1.0);
        self.length_weight * length * length + (1.0 - self.length_weight) * share
    }
}
