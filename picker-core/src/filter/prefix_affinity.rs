//! Endpoints that hold most of a prompt are kept alone, while they are not much slower.

use alloc::vec::Vec;

use super::of;
use crate::candidate::{Candidate, Context};
use crate::draw::Draws;

/// When a request stays where its prompt is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PrefixAffinity {
    /// The share of the prompt that an endpoint must hold; nothing is done at 0.
    pub threshold: f64,
    /// The share of requests for which nothing is done.
    pub exploration: f64,
    /// How much longer, in milliseconds, the first token may take there than elsewhere; 0 when it
    /// may take any time.
    pub penalty_max_ms: f64,
    /// Where the time to the first token is known from.
    pub source: TtftSource,
}

/// Where the time to the first token is known from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum TtftSource {
    /// A prediction.
    Prediction,
    /// The prompt tokens in flight, of which so many are computed in a second.
    PrefillThroughput(f64),
}

impl PrefixAffinity {
    pub(super) fn keep(&self, cx: &Context<'_>, draws: &mut Draws, kept: &mut Vec<usize>) {
        if kept.len() <= 1 || self.threshold <= 0.0 {
            return;
        }
        if self.exploration > 0.0 && draws.unit() < self.exploration {
            return;
        }
        let holds_enough = |place: &usize| {
            let held = cx.candidates.get(*place).map_or(0, |it| it.held.matched);
            held as f64 / cx.blocks.max(1) as f64 >= self.threshold
        };
        let (holders, others): (Vec<usize>, Vec<usize>) =
            kept.iter().copied().partition(holds_enough);
        let penalty = || self.ttft_ms(cx, &holders) - self.ttft_ms(cx, &others);
        let is_slow = self.penalty_max_ms > 0.0 && penalty() > self.penalty_max_ms;
        if !holders.is_empty() && !is_slow {
            *kept = holders;
        }
    }

    /// The shortest time to the first token at any of `places`; endless when there are none.
    fn ttft_ms(&self, cx: &Context<'_>, places: &[usize]) -> f64 {
        let ttft_ms = |candidate: &Candidate<'_>| match self.source {
            TtftSource::Prediction => candidate.predicted_ttft_ms().unwrap_or(f64::MAX),
            TtftSource::PrefillThroughput(tokens_per_second) => {
                candidate.load.tokens() as f64 / tokens_per_second * 1000.0
            }
        };
        of(cx, places).map(ttft_ms).fold(f64::INFINITY, f64::min)
    }
}
