//! An endpoint that is predicted to be as fast as the request asks for is better; while nothing is
//! predicted, one with more room, a shorter queue and more of the prompt.

use alloc::vec::Vec;

use super::Score;
use crate::candidate::{Candidate, Context};
use crate::latency::{LatencyScoring, Prediction, Unpredicted};
use crate::measure::Measure;

pub(super) fn score(rule: &LatencyScoring, cx: &Context<'_>, scores: &mut [Score]) {
    let predictions = cx.candidates.iter().map(|it| it.prediction.copied());
    let predictions: Vec<Option<Prediction>> = predictions.collect();
    let values = rule.scores(&predictions);
    let values = values.unwrap_or_else(|| rule.composite.scores(&unpredicted(cx)));
    for (value, score) in values.into_iter().zip(scores) {
        *score = Score::new(value);
    }
}

fn unpredicted(cx: &Context<'_>) -> Vec<Unpredicted> {
    let queue = Measure::WaitingQueue.over(cx.candidates.iter());
    let kv_usage = Measure::KvCacheUtilization.over(cx.candidates.iter());
    let known = |it: &Candidate<'_>| Unpredicted {
        kv_usage: kv_usage.of(it).unwrap_or(0.0),
        waiting: queue.or_in_flight(it),
        prefix_ratio: it.held.matched as f64 / cx.blocks.max(1) as f64,
    };
    cx.candidates.iter().map(known).collect()
}
