//! Fewer requests in flight are better: the most score 0, those up to a few score 1.

use crate::candidate::Context;
use crate::score::{Score, each};

/// What counts as idle and as busy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ActiveRequests {
    /// Requests up to which an endpoint is as good as idle.
    pub idle: u32,
    /// What scores stay below that are not of idle endpoints, `0.0..=1.0`.
    pub busy_most: f64,
}

impl ActiveRequests {
    pub(super) fn score(self, cx: &Context<'_>, scores: &mut [Score]) {
        let counts = cx.candidates.iter().map(|it| it.load.requests);
        let most = f64::from(counts.max().unwrap_or_default());
        each(cx, scores, &|it| {
            if it.load.requests <= self.idle {
                return 1.0;
            }
            (most - f64::from(it.load.requests)) / most * self.busy_most
        });
    }
}
