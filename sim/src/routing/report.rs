//! Many runs as a table and as JSON.

use std::fmt::Write;

use picker_core::LeastCost;
use serde_json::{Value, json};

use super::case::Row;
use super::policies::PolicyKind;
use super::summary::{Summary, mean};

/// Runs that differ in the seed only.
pub struct Group<'a> {
    /// In the order in which they were made.
    pub rows: Vec<&'a Row>,
}

/// What a group has in common, its policy left out: figures are compared within one situation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Situation {
    /// The scenario, or `trace`.
    pub scenario: &'static str,
    /// Pods at the beginning.
    pub pods: usize,
    /// Routers that share nothing.
    pub envoys: usize,
    /// Clients, when the scenario's own number was not used.
    pub concurrency: Option<usize>,
}

/// The runs by situation, then by policy and workers, all in the order in which they appear.
pub fn groups(rows: &[Row]) -> Vec<(Situation, Vec<Group<'_>>)> {
    let mut situations: Vec<(Situation, Vec<Group<'_>>)> = Vec::new();
    for row in rows {
        let situation = situation(row);
        let place = situations.iter().position(|it| it.0 == situation);
        let place = place.unwrap_or_else(|| {
            situations.push((situation, Vec::new()));
            situations.len() - 1
        });
        let Some((_, groups)) = situations.get_mut(place) else {
            continue;
        };
        match groups.iter_mut().find(|group| group.is_of(row)) {
            Some(group) => group.rows.push(row),
            None => groups.push(Group { rows: vec![row] }),
        }
    }
    situations
}

impl Group<'_> {
    /// The name of the policy, with its parameters when they are not the usual ones and the workers when there are several.
    pub fn name(&self) -> String {
        let Some(row) = self.rows.first() else {
            return String::new();
        };
        let events = if row.case.policy.knows_caches() {
            " *"
        } else {
            ""
        };
        let mut name = row.case.policy.name().to_owned();
        if row.case.rule != LeastCost::DEFAULT && row.case.policy == PolicyKind::LeastCost {
            let LeastCost {
                base_tokens,
                overflow_weight,
                backlog_weight,
            } = row.case.rule;
            let _ = write!(name, " {base_tokens}/{overflow_weight}/{backlog_weight}");
        }
        if row.case.workers > 1 {
            let _ = write!(name, ", {} workers", row.case.workers);
        }
        name.push_str(events);
        name
    }

    /// The mean of a figure over the seeds.
    pub fn mean(&self, of: impl Fn(&Summary) -> f64) -> f64 {
        mean(&self.values(of))
    }

    /// How far the seeds lie from the mean.
    pub fn deviation(&self, of: impl Fn(&Summary) -> f64) -> f64 {
        let values = self.values(of);
        let middle = mean(&values);
        let squares: Vec<f64> = values.iter().map(|it| (it - middle).powi(2)).collect();
        mean(&squares).sqrt()
    }

    fn values(&self, of: impl Fn(&Summary) -> f64) -> Vec<f64> {
        self.rows.iter().map(|row| of(&row.summary)).collect()
    }

    fn is_of(&self, row: &Row) -> bool {
        self.rows.first().is_some_and(|first| {
            first.case.policy == row.case.policy
                && first.case.workers == row.case.workers
                && first.case.rule == row.case.rule
        })
    }

    /// In how many of the seeds that both have run this group is ahead of `other` in throughput.
    pub fn seeds_ahead_of(&self, other: &Self) -> (usize, usize) {
        let both = self.rows.iter().filter_map(|row| {
            let seed = row.case.seed;
            let twin = other.rows.iter().find(|twin| twin.case.seed == seed)?;
            Some(row.summary.tokens_per_s > twin.summary.tokens_per_s)
        });
        both.fold((0, 0), |(ahead, all), is_ahead| {
            (ahead + usize::from(is_ahead), all + 1)
        })
    }
}

/// A table for each situation, figures averaged over the seeds.
///
/// The last column compares with the first policy: by how much that is faster, in how many seeds.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for (situation, groups) in groups(rows) {
        let seeds = groups.iter().map(|group| group.rows.len()).max();
        let _ = writeln!(text, "{}, {} seeds", situation.title(), seeds.unwrap_or(0));
        let _ = writeln!(text, "{HEADER}");
        for group in &groups {
            let _ = writeln!(text, "{}", line(group, groups.first()));
        }
        text.push('\n');
    }
    if rows.iter().any(|row| row.case.policy.knows_caches()) {
        text.push_str("* told by the engines, without delay, what they hold\n");
    }
    text
}

fn line(group: &Group<'_>, first: Option<&Group<'_>>) -> String {
    let mut line = format!(
        "{:<24}{:>6.1} ±{:<4.1}{:>8.0} ±{:<5.0}{:>6.0}{:>6.0}{:>6.0}{:>7.0}{:>7.2}{:>8.0}{:>6.0}",
        group.name(),
        100.0 * group.mean(|it| it.hit),
        100.0 * group.deviation(|it| it.hit),
        group.mean(|it| it.tokens_per_s),
        group.deviation(|it| it.tokens_per_s),
        group.mean(|it| it.ttft_mean),
        group.mean(|it| it.ttft_p50),
        group.mean(|it| it.ttft_p95),
        group.mean(|it| it.ttft_p99),
        group.mean(|it| it.itl_mean),
        group.mean(|it| it.e2e_p99),
        group.mean(|it| it.preemptions as f64),
    );
    if let Some(first) = first.filter(|first| !std::ptr::eq(*first, group)) {
        let speed = |group: &Group<'_>| group.mean(|it| it.tokens_per_s);
        let gain = 100.0 * (speed(first) / speed(group) - 1.0);
        let (ahead, all) = first.seeds_ahead_of(group);
        let _ = write!(line, "  {gain:+.1} % {ahead}/{all}");
    }
    line
}

impl Situation {
    /// In words.
    pub fn title(&self) -> String {
        let mut title = format!("{}: {} pods", self.scenario, self.pods);
        if self.envoys > 1 {
            let _ = write!(title, ", {} routers that share nothing", self.envoys);
        }
        if let Some(concurrency) = self.concurrency {
            let _ = write!(title, ", {concurrency} clients");
        }
        title
    }
}

fn situation(row: &Row) -> Situation {
    Situation {
        scenario: row.case.source.name(),
        pods: row.pods,
        envoys: row.envoys,
        concurrency: row.case.concurrency,
    }
}

/// The runs as a list of objects, one for each.
pub fn json(rows: &[Row]) -> Value {
    rows.iter().map(json_row).collect()
}

fn json_row(row: &Row) -> Value {
    let summary = &row.summary;
    let LeastCost {
        base_tokens,
        overflow_weight,
        backlog_weight,
    } = row.case.rule;
    let rule = (row.case.policy == PolicyKind::LeastCost).then(|| {
        json!({
            "base_tokens": base_tokens,
            "overflow_weight": overflow_weight,
            "backlog_weight": backlog_weight,
        })
    });
    json!({
        "scenario": row.case.source.name(),
        "policy": row.case.policy.name(),
        "pods": row.pods,
        "workers": row.case.workers,
        "envoys": row.envoys,
        "concurrency": row.case.concurrency,
        "seed": row.case.seed,
        "requests": summary.requests,
        "refused": summary.refused,
        "hit": rounded(summary.hit, 4),
        "tokens_per_s": rounded(summary.tokens_per_s, 0),
        "ttft_ms_mean": rounded(summary.ttft_mean, 1),
        "ttft_ms_p50": rounded(summary.ttft_p50, 1),
        "ttft_ms_p95": rounded(summary.ttft_p95, 1),
        "ttft_ms_p99": rounded(summary.ttft_p99, 1),
        "itl_ms": rounded(summary.itl_mean, 2),
        "e2e_ms_mean": rounded(summary.e2e_mean, 1),
        "e2e_ms_p99": rounded(summary.e2e_p99, 1),
        "preemptions": summary.preemptions,
        "rule": rule,
        "requests_by_pod": summary.by_pod,
    })
}

fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

/// Above the columns of [`table`].
const HEADER: &str = "policy                   hit %       tokens/s       TTFT   p50   p95    p99    \
    ITL  E2E p99  prem  first is ahead by";
