//! A line per endpoint, kept up to date.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};

use crate::state::{EndpointState, State};

/// Shows the endpoints for ever: redrawn in place on a terminal, else printed when something
/// changed.
pub async fn show(pages: SocketAddr, terminal: bool) -> Result<()> {
    let mut shown = String::new();
    let mut shown_at: Option<Instant> = None;
    loop {
        let table = match State::fetch(pages).await {
            Ok(state) => table(&state),
            Err(error) => format!("no state: {error:#}\n"),
        };
        let due = terminal || shown_at.is_none_or(|at| at.elapsed() >= QUIET);
        if due && table != shown {
            let mut out = stdout().lock();
            if terminal && !shown.is_empty() {
                // Up to the first line of the old table, and clear from there.
                write!(out, "\x1b[{}A\x1b[J", shown.lines().count())?;
            }
            write!(out, "{table}")?;
            out.flush()?;
            shown = table;
            shown_at = Some(Instant::now());
        }
        sleep(PERIOD).await;
    }
}

/// The endpoints as a table with a heading.
pub fn table(state: &State) -> String {
    let endpoints: Vec<&EndpointState> = state.endpoints().collect();
    let address = |endpoint: &&EndpointState| endpoint.address.len();
    let width = endpoints
        .iter()
        .map(address)
        .max()
        .unwrap_or(0)
        .max("endpoint".len());
    let heads = ["running", "waiting", "in flight", "KV", "hits", "picks"];
    let mut text = format!("{:width$}", "endpoint");
    for head in heads {
        let _ = write!(text, "  {head:>9}");
    }
    text.push('\n');
    for endpoint in endpoints {
        let _ = write!(text, "{:width$}", endpoint.address);
        for cell in cells(endpoint) {
            let _ = write!(text, "  {cell:>9}");
        }
        text.push_str(if endpoint.fresh {
            "\n"
        } else {
            "  no fresh metrics\n"
        });
    }
    text
}

fn cells(endpoint: &EndpointState) -> [String; 6] {
    let number =
        |value: Option<f64>| value.map_or_else(|| "?".to_owned(), |value| format!("{value:.0}"));
    let share = |part: Option<f64>, whole: Option<f64>| match (part, whole) {
        (Some(_), Some(0.0)) => "-".to_owned(),
        (Some(part), Some(whole)) => format!("{:.0} %", 100.0 * part / whole),
        _ => "?".to_owned(),
    };
    [
        number(endpoint.running),
        number(endpoint.waiting),
        endpoint.in_flight.to_string(),
        share(endpoint.kv_usage, Some(1.0)),
        share(endpoint.prefix_hits, endpoint.prefix_queries),
        endpoint.sent.to_string(),
    ]
}

/// How often the page is read.
const PERIOD: Duration = Duration::from_secs(1);

/// The least time between two tables in a file or a pipe, where nothing can be redrawn.
const QUIET: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::PoolState;

    #[test]
    fn what_is_unknown_is_a_question_mark_and_not_zero() {
        let known = EndpointState {
            id: 1,
            address: "127.0.0.1:8001".into(),
            reachable: true,
            draining: false,
            fresh: true,
            age_ms: Some(3.0),
            running: Some(2.0),
            waiting: Some(0.0),
            kv_usage: Some(0.25),
            prefix_queries: Some(200.0),
            prefix_hits: Some(100.0),
            capacity_tokens: None,
            models: None,
            gpu_usage: None,
            in_flight: 2,
            sent: 17,
        };
        let unknown = EndpointState {
            address: "10.0.0.1:80".into(),
            fresh: false,
            running: None,
            waiting: None,
            kv_usage: None,
            prefix_hits: None,
            ..known.clone()
        };
        let pool = PoolState {
            name: "llm".into(),
            generation: None,
            endpoints: vec![known, unknown],
            workers: vec![],
        };
        let text = table(&State {
            pools: vec![pool],
            collector: None,
        });
        let words: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(words[1].join(" "), "127.0.0.1:8001 2 0 2 25 % 50 % 17");
        assert_eq!(
            words[2].join(" "),
            "10.0.0.1:80 ? ? 2 ? ? 17 no fresh metrics"
        );
    }
}
