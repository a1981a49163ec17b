//! What is said of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use super::driver::{End, Outcome, Record};
use super::fairness::{Demand, Fairness, fairness};
use super::traffic::TENANTS;
use crate::routing::summary::percentile;

/// The figures of one run, of what happened in a part of its time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Figures {
    /// Answers that ended there, a second.
    pub requests_per_s: f64,
    /// Their tokens, a second.
    pub tokens_per_s: f64,
    /// The same for every minute of it.
    pub tokens_per_s_by_minute: Vec<f64>,
    /// What became of the requests of each priority, the highest first.
    pub bands: Vec<BandFigures>,
    /// How evenly the tenants were served of the priority that most requests have.
    pub fairness: Option<Fairness>,
    /// Seconds from the end of that time to the last answer.
    pub drained_s: f64,
    /// Places in servers that requests lost for want of blocks.
    pub preemptions: u64,
}

/// What became of the requests of one priority that came in that time. Times are in milliseconds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BandFigures {
    /// The priority.
    pub priority: i32,
    /// Requests.
    pub requests: usize,
    /// Those that were answered to the end.
    pub answered: usize,
    /// The time that those which were sent had waited, the median.
    pub wait_p50: f64,
    /// The time that 99 % of them had waited less than.
    pub wait_p99: f64,
    /// The time to the first token of those that had one, the median.
    pub ttft_p50: f64,
    /// The time to the first token that 99 % of them stay below.
    pub ttft_p99: f64,
    /// Those that were not answered, by reason.
    pub lost: BTreeMap<String, usize>,
}

impl Figures {
    /// The figures of what happened from one time to another.
    pub fn of(outcome: &Outcome, from: Duration, until: Duration) -> Self {
        let records = &outcome.records;
        let last = records.iter().map(|it| it.ended_at).max();
        let minutes = (until - from).as_secs() / 60;
        let minute = |number| {
            let begin = from + MINUTE * number as u32;
            rate(&answered(records, begin, begin + MINUTE), 60.0)
        };
        let seconds = (until - from).as_secs_f64();
        let answered = answered(records, from, until);
        let mut priorities: Vec<i32> = records.iter().map(|it| it.priority).collect();
        priorities.sort_unstable_by(|a, b| b.cmp(a));
        priorities.dedup();
        let came = |it: &&Record| (from..until).contains(&it.asked_at);
        let came: Vec<&Record> = records.iter().filter(came).collect();
        let bands: Vec<BandFigures> = priorities
            .into_iter()
            .map(|priority| BandFigures::of(priority, &came))
            .collect();
        let most = bands.iter().max_by_key(|it| it.requests);
        Self {
            requests_per_s: answered.len() as f64 / seconds,
            tokens_per_s: rate(&answered, seconds),
            tokens_per_s_by_minute: (0..minutes).map(minute).collect(),
            fairness: most.map(|band| fairness(&demands(band.priority, &came, &answered))),
            bands,
            drained_s: last.unwrap_or_default().saturating_sub(until).as_secs_f64(),
            preemptions: outcome.preemptions,
        }
    }
}

impl BandFigures {
    fn of(priority: i32, came: &[&Record]) -> Self {
        let of_band: Vec<&Record> = came
            .iter()
            .copied()
            .filter(|it| it.priority == priority)
            .collect();
        let since = |at: fn(&Record) -> Option<Duration>| {
            let times = of_band.iter().filter_map(|it| Some(at(it)? - it.asked_at));
            let mut times: Vec<f64> = times.map(|it| it.as_secs_f64() * 1e3).collect();
            times.sort_unstable_by(f64::total_cmp);
            times
        };
        let (wait, ttft) = (since(|it| it.sent_at), since(|it| it.first_token_at));
        let mut lost = BTreeMap::new();
        for record in &of_band {
            match record.end {
                End::Answered => {}
                End::Left => *lost.entry("Left".to_owned()).or_default() += 1,
                End::Refused(refusal) => *lost.entry(format!("{refusal:?}")).or_default() += 1,
            }
        }
        Self {
            priority,
            requests: of_band.len(),
            answered: of_band.len() - lost.values().sum::<usize>(),
            wait_p50: percentile(&wait, 50.0),
            wait_p99: percentile(&wait, 99.0),
            ttft_p50: percentile(&ttft, 50.0),
            ttft_p99: percentile(&ttft, 99.0),
            lost,
        }
    }
}

/// The requests whose answers ended from one time to another.
fn answered(records: &[Record], from: Duration, until: Duration) -> Vec<&Record> {
    let is_in = |it: &&Record| it.end == End::Answered && (from..until).contains(&it.ended_at);
    records.iter().filter(is_in).collect()
}

/// Tokens of answers, a second.
fn rate(answered: &[&Record], seconds: f64) -> f64 {
    let tokens: usize = answered.iter().map(|it| it.output_tokens).sum();
    tokens as f64 / seconds
}

/// What each tenant asked for of one priority, and how many answers it got, in requests.
fn demands(priority: i32, came: &[&Record], answered: &[&Record]) -> Vec<Demand> {
    let mut demands = vec![Demand::default(); TENANTS];
    for record in came.iter().filter(|it| it.priority == priority) {
        demands[record.tenant].asked += 1.0;
    }
    for record in answered.iter().filter(|it| it.priority == priority) {
        demands[record.tenant].served += 1.0;
    }
    demands
}

/// A minute.
const MINUTE: Duration = Duration::from_secs(60);
