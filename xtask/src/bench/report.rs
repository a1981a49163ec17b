//! Rows of `bench overhead` and what follows from them.

use std::fmt::{self, Write as _};

use serde::Serialize;

/// One Envoy under one load in one round. Times are microseconds for each request.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Row {
    /// What picks.
    pub(super) host: String,
    pub(super) body_bytes: usize,
    /// Chunks of the answer when it is a stream, else 0.
    pub(super) stream_chunks: u32,
    pub(super) connections: usize,
    pub(super) run: u32,
    /// CPU time of the Envoy process.
    pub(super) cpu_us: f64,
    /// That of its main thread, which collects metrics, as a part of it.
    pub(super) main_us: f64,
    /// CPU time of the external processor.
    pub(super) server_cpu_us: Option<f64>,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
    /// Requests a second.
    pub(super) rps: f64,
    /// Share of the prompts' blocks that the chosen endpoint held.
    pub(super) matched: Option<f64>,
}

/// What a host adds, by the median of its pairs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Added {
    pub(super) host: String,
    pub(super) body_bytes: usize,
    pub(super) stream_chunks: u32,
    pub(super) pairs: usize,
    /// CPU time added to each request.
    pub(super) added_us: f64,
    /// The least and the most of the pairs.
    pub(super) added_us_range: [f64; 2],
    /// Median latency added.
    pub(super) added_p50_us: f64,
    /// CPU time added to each chunk of a stream by one copy of the filter; only of several copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) chunk_us: Option<f64>,
}

/// All rows of a measurement.
#[derive(Default)]
pub(super) struct Rows(Vec<Row>);

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "run {}  {:>6} B {:>4} chunks  {:<8} {:>8.1} us CPU ({:>6.1} main)  p50 {:>7} us  \
             p99 {:>7} us  {:>5.0}/s",
            self.run,
            self.body_bytes,
            self.stream_chunks,
            self.host,
            self.cpu_us,
            self.main_us,
            self.p50_us,
            self.p99_us,
            self.rps,
        )?;
        if let Some(matched) = self.matched {
            write!(f, "  matched {:.0} %", 100.0 * matched)?;
        }
        if let Some(server) = self.server_cpu_us {
            write!(f, "  server {server:.1} us")?;
        }
        Ok(())
    }
}

impl Rows {
    pub(super) fn add(&mut self, row: Row) {
        self.0.push(row);
    }

    /// What each host adds to each load, in the order in which they were measured.
    pub(super) fn summary(&self) -> Vec<Added> {
        let mut summary: Vec<Added> = Vec::new();
        for row in self.0.iter().filter(|row| row.host != NONE) {
            let known = summary.iter().any(|added| {
                (&added.host, added.body_bytes, added.stream_chunks)
                    == (&row.host, row.body_bytes, row.stream_chunks)
            });
            if !known {
                summary.push(self.added(row));
            }
        }
        summary
    }

    /// The summary for people.
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "{:>10} {:>7}  {:<9} {:>9} {:>10} {:>19} {:>11}\n",
            "body", "chunks", "host", "CPU us", "added us", "(least .. most)", "p50 added"
        );
        for added in self.summary() {
            let base = median(self.alike(NONE, &added).map(|row| row.cpu_us).collect());
            let [least, most] = added.added_us_range;
            let range = format!("({least:.0} .. {most:.0})");
            let _ = writeln!(
                text,
                "{:>10} {:>7}  {:<9} {:>9.1} {:>10.1} {range:>19} {:>11.0}",
                added.body_bytes,
                added.stream_chunks,
                added.host,
                base + added.added_us,
                added.added_us,
                added.added_p50_us,
            );
            let copies = copies(&added.host);
            if copies > 1 {
                let each = added.added_us / f64::from(copies);
                let _ = writeln!(text, "{:>51.1} each", each);
            }
            if let Some(chunk_us) = added.chunk_us {
                let _ = writeln!(text, "{chunk_us:>51.2} each and chunk");
            }
        }
        text
    }

    fn added(&self, row: &Row) -> Added {
        let mut added = Added {
            host: row.host.clone(),
            body_bytes: row.body_bytes,
            stream_chunks: row.stream_chunks,
            pairs: 0,
            added_us: 0.0,
            added_us_range: [0.0, 0.0],
            added_p50_us: 0.0,
            chunk_us: None,
        };
        let with: Vec<&Row> = self.alike(&row.host, &added).collect();
        let without: Vec<&Row> = self.alike(NONE, &added).collect();
        let pairs = || with.iter().zip(&without);
        let cpu: Vec<f64> = pairs()
            .map(|(with, without)| with.cpu_us - without.cpu_us)
            .collect();
        let p50 = pairs().map(|(with, without)| with.p50_us as f64 - without.p50_us as f64);
        added.pairs = cpu.len();
        added.added_us_range = [
            cpu.iter().copied().fold(f64::INFINITY, f64::min),
            cpu.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        ];
        added.added_us = median(cpu);
        added.added_p50_us = median(p50.collect());
        if row.stream_chunks > 0 && copies(&row.host) > 1 {
            // Without what the same request costs when its answer is no stream.
            let mut plain = added.clone();
            plain.stream_chunks = 0;
            let of_stream = self.added_by_worker(&added) - self.added_by_worker(&plain);
            let chunks = f64::from(row.stream_chunks) * f64::from(copies(&row.host));
            added.chunk_us = Some(of_stream / chunks);
        }
        added
    }

    /// CPU time added outside the main thread, where scrapes go on as long as a stream lasts.
    fn added_by_worker(&self, of: &Added) -> f64 {
        let worker = |row: &Row| row.cpu_us - row.main_us;
        let pairs = self.alike(&of.host, of).zip(self.alike(NONE, of));
        median(
            pairs
                .map(|(with, without)| worker(with) - worker(without))
                .collect(),
        )
    }

    /// The rows of `host` under the load of `of`, in the order of the rounds.
    fn alike<'a>(&'a self, host: &'a str, of: &Added) -> impl Iterator<Item = &'a Row> {
        let load = (of.body_bytes, of.stream_chunks);
        let rows = self.0.iter().filter(move |row| row.host == host);
        rows.filter(move |row| (row.body_bytes, row.stream_chunks) == load)
    }
}

/// The copies of the filter in a host's name.
fn copies(host: &str) -> u32 {
    let count = host.rsplit_once(" x").map(|(_, count)| count.parse());
    count.and_then(Result::ok).unwrap_or(1)
}

/// The middle value, the mean of the two middle ones, 0 of none.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.as_slice() {
        [] => 0.0,
        values if values.len() % 2 == 1 => values[middle],
        values => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// The host that adds nothing.
const NONE: &str = "none";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(host: &str, chunks: u32, run: u32, cpu_us: f64) -> Row {
        Row {
            host: host.to_owned(),
            body_bytes: 1024,
            stream_chunks: chunks,
            connections: 4,
            run,
            cpu_us,
            main_us: 0.0,
            server_cpu_us: None,
            p50_us: 100,
            p99_us: 200,
            rps: 1000.0,
            matched: None,
        }
    }

    #[test]
    fn added_is_the_median_of_the_differences_inside_each_round() {
        let mut rows = Rows::default();
        for (run, without, with) in [(1, 100.0, 130.0), (2, 500.0, 520.0), (3, 90.0, 180.0)] {
            rows.add(row("none", 0, run, without));
            rows.add(row("wasm", 0, run, with));
        }
        let summary = rows.summary();
        let [added] = summary.as_slice() else {
            panic!("{summary:?}");
        };
        assert_eq!((added.pairs, added.added_us), (3, 30.0));
        assert_eq!(added.added_us_range, [20.0, 90.0]);
    }

    #[test]
    fn a_chunk_costs_what_the_stream_costs_more_than_a_plain_answer() {
        let mut rows = Rows::default();
        rows.add(row("none", 0, 1, 100.0));
        rows.add(row("wasm x8", 0, 1, 500.0));
        rows.add(row("none", 1000, 1, 20_000.0));
        rows.add(row("wasm x8", 1000, 1, 28_400.0));
        let chunk_us: Vec<_> = rows.summary().iter().map(|added| added.chunk_us).collect();
        assert_eq!(chunk_us, [None, Some(1.0)]);
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_ones() {
        for (values, middle) in [
            (vec![], 0.0),
            (vec![3.0], 3.0),
            (vec![9.0, 1.0], 5.0),
            (vec![9.0, 1.0, 2.0], 2.0),
        ] {
            assert_eq!(median(values), middle);
        }
    }
}
