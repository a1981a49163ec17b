//! Figures of many runs as text and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::case::Rate;
use super::figures::{BandFigures, Figures};
use super::traffic::Traffic;
use super::variant::Variant;
use crate::routing::summary::mean;

/// All runs of a variant under one traffic.
#[derive(Clone, Debug)]
pub struct Row {
    /// The configuration.
    pub variant: Variant,
    /// Who asked for what.
    pub traffic: Traffic,
    /// Workers of the Envoy.
    pub workers: usize,
    /// A run for each seed.
    pub runs: Vec<Run>,
}

/// What a seed gave.
#[derive(Clone, Debug)]
pub struct Run {
    /// The seed.
    pub seed: u64,
    /// What the fleet can serve.
    pub capacity: Rate,
    /// While there was room.
    pub roomy: Figures,
    /// While there was too much.
    pub too_much: Figures,
}

/// A number that has a goal.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Judged {
    number: Option<f64>,
    misses: bool,
}

impl Row {
    fn mean(&self, of: impl Fn(&Run) -> f64) -> f64 {
        mean(&self.runs.iter().map(of).collect::<Vec<_>>())
    }

    /// The least goodput of a minute by that of the first.
    fn least_minute(&self) -> Judged {
        let least = self.mean(|it| {
            let minutes = &it.too_much.tokens_per_s_by_minute;
            let least = minutes.iter().copied().fold(f64::INFINITY, f64::min);
            least / minutes.first().copied().unwrap_or_default()
        });
        Judged {
            number: Some(least),
            misses: least < LEAST_MINUTE_GOAL,
        }
    }

    fn jain(&self) -> Judged {
        let of = |it: &Run| it.too_much.fairness.and_then(|it| it.jain);
        let known: Vec<f64> = self.runs.iter().filter_map(of).collect();
        let number = (known.len() == self.runs.len()).then(|| mean(&known));
        let is_goal = self.variant.is_round_robin();
        Judged {
            number,
            misses: is_goal && number.is_some_and(|it| it < JAIN_GOAL),
        }
    }

    /// The TTFT that 99 % of a band stay below, by the same while there was room.
    fn ttft_ratio(&self, band: usize) -> Judged {
        let of = |figures: &Figures| figures.bands.get(band).map_or(0.0, |it| it.ttft_p99);
        let ratio = self.mean(|it| of(&it.too_much)) / self.mean(|it| of(&it.roomy));
        let is_goal = self.traffic == Traffic::Bands && band == 0;
        Judged {
            number: Some(ratio),
            misses: is_goal && ratio > TTFT_GOAL,
        }
    }

    fn band(&self, band: usize, of: impl Fn(&BandFigures) -> f64) -> f64 {
        self.mean(|it| it.too_much.bands.get(band).map_or(0.0, &of))
    }

    /// What became of the others of a band, by reason, in percent of its requests.
    fn lost(&self, band: usize) -> String {
        let bands = || {
            self.runs
                .iter()
                .filter_map(|it| it.too_much.bands.get(band))
        };
        let mut reasons: Vec<&String> = bands().flat_map(|it| it.lost.keys()).collect();
        reasons.sort_unstable();
        reasons.dedup();
        let part = |reason: &String| {
            let of = |it: &BandFigures| it.lost.get(reason).copied().unwrap_or_default() as f64;
            100.0 * self.band(band, of) / self.band(band, |it| it.requests as f64)
        };
        let parts = reasons.iter().map(|it| format!("{it} {:.1} %", part(it)));
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// Two tables for each traffic and number of workers, figures averaged over the seeds.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut left = rows;
    while let Some(first) = left.first() {
        let alike = |it: &&Row| (it.traffic, it.workers) == (first.traffic, first.workers);
        let count = left.iter().take_while(alike).count();
        let (group, rest) = left.split_at(count);
        left = rest;
        let _ = writeln!(text, "{}", title(first));
        let _ = writeln!(text, "{FLEET_HEADER}");
        for row in group {
            let _ = writeln!(text, "{}", fleet_line(row));
        }
        let _ = writeln!(text, "\n{BAND_HEADER}");
        for row in group {
            for (place, (priority, _)) in row.traffic.bands().iter().enumerate() {
                let _ = writeln!(text, "{}", band_line(row, place, *priority));
            }
        }
        text.push('\n');
    }
    text.push_str(NOTES);
    text
}

fn title(row: &Row) -> String {
    let bands = row.traffic.bands().iter();
    let bands: Vec<String> = bands
        .map(|(priority, share)| format!("{:.0} % of priority {priority}", 100.0 * share))
        .collect();
    format!(
        "{}: {}; workers: {}, seeds: {}",
        row.traffic.name(),
        bands.join(", "),
        row.workers,
        row.runs.len()
    )
}

fn fleet_line(row: &Row) -> String {
    let requests = row.mean(|it| it.too_much.requests_per_s);
    let tokens = row.mean(|it| it.too_much.tokens_per_s);
    let fairness = |of: fn(&super::fairness::Fairness) -> f64| {
        row.mean(|it| it.too_much.fairness.as_ref().map_or(0.0, of))
    };
    format!(
        "{:<21}{:>9.1}{:>6.0}{:>10.0}{:>6.0}{:>9}{:>9}{:>5.1}{:>8.0}{:>9.0}{:>11.0}",
        row.variant.name(),
        requests,
        100.0 * requests / row.mean(|it| it.capacity.requests),
        tokens,
        100.0 * tokens / row.mean(|it| it.capacity.tokens),
        row.least_minute().text(2),
        row.jain().text(3),
        fairness(|it| it.competing as f64),
        100.0 * fairness(|it| it.modest_least.unwrap_or_default()),
        row.mean(|it| it.too_much.drained_s),
        row.mean(|it| it.too_much.preemptions as f64),
    )
}

fn band_line(row: &Row, band: usize, priority: i32) -> String {
    let roomy = |it: &Run| it.roomy.bands.get(band).map_or(0.0, |it| it.ttft_p99);
    let answered = row.band(band, |it| it.answered as f64);
    format!(
        "{:<21}{:>4}{:>9.1}{:>9.0}{:>8.0}{:>9.0}{:>8.0}{:>8.0}{:>8}  {}",
        row.variant.name(),
        priority,
        100.0 * answered / row.band(band, |it| it.requests as f64),
        row.band(band, |it| it.wait_p50),
        row.band(band, |it| it.wait_p99),
        row.band(band, |it| it.ttft_p50),
        row.band(band, |it| it.ttft_p99),
        row.mean(roomy),
        row.ttft_ratio(band).text(2),
        row.lost(band),
    )
}

impl Judged {
    fn text(self, digits: usize) -> String {
        let mark = if self.misses { "!" } else { "" };
        let number = self.number.map(|it| format!("{it:.digits$}{mark}"));
        number.unwrap_or_else(|| "-".to_owned())
    }
}

/// The runs as a list of objects, one for each.
pub fn json(rows: &[Row]) -> Value {
    let runs = rows.iter().flat_map(|row| {
        row.runs.iter().map(|run| {
            json!({
                "variant": row.variant.name(),
                "traffic": row.traffic.name(),
                "workers": row.workers,
                "seed": run.seed,
                "capacity": {
                    "requests_per_s": run.capacity.requests,
                    "tokens_per_s": run.capacity.tokens,
                },
                "roomy": figures(&run.roomy),
                "too_much": figures(&run.too_much),
            })
        })
    });
    runs.collect()
}

fn figures(figures: &Figures) -> Value {
    let bands = figures.bands.iter().map(|it| {
        json!({
            "priority": it.priority,
            "requests": it.requests,
            "answered": it.answered,
            "wait_ms_p50": it.wait_p50,
            "wait_ms_p99": it.wait_p99,
            "ttft_ms_p50": it.ttft_p50,
            "ttft_ms_p99": it.ttft_p99,
            "lost": it.lost,
        })
    });
    let fairness = figures.fairness.map(|it| {
        json!({
            "competing": it.competing,
            "jain": it.jain,
            "modest_least": it.modest_least,
        })
    });
    json!({
        "requests_per_s": figures.requests_per_s,
        "tokens_per_s": figures.tokens_per_s,
        "tokens_per_s_by_minute": figures.tokens_per_s_by_minute,
        "drained_s": figures.drained_s,
        "preemptions": figures.preemptions,
        "fairness": fairness,
        "bands": bands.collect::<Value>(),
    })
}

/// Above what is said of the whole fleet.
const FLEET_HEADER: &str = "                     requests/s   %  tokens/s     %    least     Jain  of  \
     others  drained  preempted";

/// Above what is said of each band.
const BAND_HEADER: &str = "                     prio answered %  wait p50   p99  TTFT p50   p99  \
     roomy   ratio  not answered";

/// Below all tables.
const NOTES: &str = "\
%: of what the fleet can serve. least: the tokens/s of the worst minute by those of the first.
Jain: the index over the answers of the tenants that ask for more than an equal share, so that
something of theirs always waits; of: how many these are; others: the least part of their requests,
in percent, that any other tenant got answered. Of the priority that most requests have.
drained: seconds from the last request to the last answer. Times are in ms.
roomy: the p99 of TTFT at 30 % of what the fleet can serve; ratio: p99 by that.
!: misses its goal, which is a ratio of 1.2 for the highest priority, a least of 0.9, and a Jain of
0.95 where tenants are served in turn.
";

/// How much longer the first token may take for the highest priority.
const TTFT_GOAL: f64 = 1.2;

/// Below this by the first minute goodput has collapsed.
const LEAST_MINUTE_GOAL: f64 = 0.9;

/// How evenly tenants are to be served.
const JAIN_GOAL: f64 = 0.95;
