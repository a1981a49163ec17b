//! What a run has measured.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// Requests that were answered or have failed.
    pub requests: u64,
    /// Those of them that were answered whole and with 200.
    pub succeeded: u64,
    /// How many answers had which status.
    pub statuses: BTreeMap<u16, u64>,
    /// How many requests failed in which way; one may have a status all the same.
    pub failures: BTreeMap<Failure, u64>,
    /// How many requests each simulated server answered.
    pub endpoints: BTreeMap<String, u64>,
    /// Microseconds to the first data event of a stream.
    pub first_event: Histogram<u64>,
    /// Microseconds to the end of an answer that came whole, whatever its status.
    pub total: Histogram<u64>,
    /// Tokens, as the answers' usage gives them.
    pub usage: Usage,
    /// From the first request to the end of the last.
    pub elapsed: Duration,
    /// Each request, by number, if they were to be kept.
    pub records: Vec<Record>,
}

/// What became of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Counted from 0 in the order in which requests were sent.
    pub number: u64,
    /// The status, if an answer began.
    pub status: Option<u16>,
    /// Why there is no whole answer.
    pub failure: Option<Failure>,
    /// The simulated server that answered.
    pub endpoint: Option<String>,
    /// From sending to the first data event of a stream.
    pub first_event: Option<Duration>,
    /// From sending to the end.
    pub total: Duration,
    /// Bytes of the answer's body.
    pub body_bytes: u64,
    /// Tokens, as the answer's usage gives them; zeros without one.
    pub usage: Usage,
}

/// Tokens of one answer or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of prompts.
    pub prompt_tokens: u64,
    /// Tokens of answers.
    pub completion_tokens: u64,
    /// Tokens of prompts that came from a cache.
    pub cached_tokens: u64,
}

/// Why a request has no whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// No connection could be opened.
    Connect,
    /// The connection closed before the end of the answer.
    Closed,
    /// It took too long.
    Timeout,
}

impl Record {
    /// Whether the request was answered whole and with 200.
    pub fn is_success(&self) -> bool {
        self.failure.is_none() && self.status == Some(200)
    }
}

impl LoadReport {
    pub(super) fn new() -> anyhow::Result<Self> {
        let histogram = Histogram::new_with_bounds(1, MICROS_MAX, DIGITS)?;
        Ok(Self {
            requests: 0,
            succeeded: 0,
            statuses: BTreeMap::new(),
            failures: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            first_event: histogram.clone(),
            total: histogram,
            usage: Usage::default(),
            elapsed: Duration::ZERO,
            records: Vec::new(),
        })
    }

    pub(super) fn add(&mut self, record: Record, keep: bool) {
        self.requests += 1;
        self.succeeded += u64::from(record.is_success());
        if let Some(status) = record.status {
            *self.statuses.entry(status).or_default() += 1;
        }
        match record.failure {
            Some(failure) => *self.failures.entry(failure).or_default() += 1,
            None => self.total.saturating_record(micros(record.total)),
        }
        if let Some(first_event) = record.first_event {
            self.first_event.saturating_record(micros(first_event));
        }
        if let Some(endpoint) = &record.endpoint {
            *self.endpoints.entry(endpoint.clone()).or_default() += 1;
        }
        self.usage.prompt_tokens += record.usage.prompt_tokens;
        self.usage.completion_tokens += record.usage.completion_tokens;
        self.usage.cached_tokens += record.usage.cached_tokens;
        if keep {
            self.records.push(record);
        }
    }

    /// The share of prompt tokens that came from a cache, `0..=1`; 0 without any.
    pub fn hit_rate(&self) -> f64 {
        self.usage.cached_tokens as f64 / self.usage.prompt_tokens.max(1) as f64
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64().max(1e-9);
        let rate = self.requests as f64 / seconds;
        writeln!(
            f,
            "{} requests in {seconds:.2} s, {rate:.1}/s",
            self.requests
        )?;
        for (status, count) in &self.statuses {
            writeln!(f, "  status {status}: {count}")?;
        }
        for (failure, count) in &self.failures {
            writeln!(f, "  {failure}: {count}")?;
        }
        for (endpoint, count) in &self.endpoints {
            writeln!(f, "  by {endpoint}: {count}")?;
        }
        for (name, histogram) in [("first event", &self.first_event), ("total", &self.total)] {
            if histogram.is_empty() {
                continue;
            }
            write!(f, "{name:>11}, ms: mean {:.2}", histogram.mean() / 1e3)?;
            for percentile in [50.0, 90.0, 99.0, 100.0] {
                let millis = histogram.value_at_percentile(percentile) as f64 / 1e3;
                write!(f, ", p{percentile} {millis:.2}")?;
            }
            writeln!(f)?;
        }
        let Usage {
            prompt_tokens,
            completion_tokens,
            cached_tokens,
        } = self.usage;
        writeln!(
            f,
            "tokens: {prompt_tokens} prompt, {completion_tokens} completion"
        )?;
        write!(
            f,
            "cached: {cached_tokens}, {:.1} % of prompt",
            100.0 * self.hit_rate()
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "no connection",
            Self::Closed => "connection closed early",
            Self::Timeout => "timed out",
        })
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// An hour, beyond any timeout.
const MICROS_MAX: u64 = 3_600_000_000;

/// Significant digits of a latency: 0.1 %.
const DIGITS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_breaks_off_is_no_success_and_has_no_total() {
        let mut report = LoadReport::new().unwrap();
        let whole = Record {
            status: Some(200),
            ..Record::default()
        };
        let cut = Record {
            failure: Some(Failure::Closed),
            ..whole.clone()
        };
        for record in [
            whole.clone(),
            cut,
            Record {
                status: Some(503),
                ..whole
            },
        ] {
            report.add(record, false);
        }
        assert_eq!(
            (report.requests, report.succeeded, report.total.len()),
            (3, 1, 2)
        );
    }
}
