//! Limits on an endpoint's load.

use alloc::vec::Vec;

use super::{of, retain};
use crate::candidate::Context;
use crate::measure::{Measure, Measured};

/// What an endpoint's load must not exceed.
#[derive(Clone, PartialEq, Debug)]
pub struct UsageLimits {
    /// The limits; all hold.
    pub limits: Vec<(Measure, f64)>,
    /// Whether all endpoints pass when none is within the limits.
    pub falls_back: bool,
}

impl UsageLimits {
    /// An endpoint without fresh metrics is taken for an average one, and passes when none has any.
    pub(super) fn keep(&self, cx: &Context<'_>, kept: &mut Vec<usize>) {
        let limits = self.limits.iter();
        let limits = limits.map(|(measure, most)| (measure.over(of(cx, kept)), *most));
        let limits: Vec<(Measured, f64)> = limits.collect();
        retain(cx, kept, self.falls_back, &|candidate| {
            let is_within = |(measured, most): &(Measured, f64)| {
                measured.of(candidate).is_none_or(|it| it <= *most)
            };
            limits.iter().all(is_within)
        });
    }
}
