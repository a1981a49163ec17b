//! `cargo xtask bench routing --endpoint`: the published test on real engines, through Envoy.
//!
//! Real caches cannot be emptied from here, so each router gets prefixes that nobody has sent
//! before. Figures come from the engines' own pages.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use picker_core::{EndpointMetrics, EngineKind, LeastCost, Timestamp, detect_engine, read_page};
use serde::Serialize;
use sim::load::LoadReport;
use tokio::time::sleep;

use super::prefixes::{PREFIX_TOKENS, PREFIXES, Prefixes, REQUESTS, SUFFIX_TOKENS};
use super::router::Router;
use super::subject::{Bench, tools};
use super::write_json;
use crate::http::fetch;
use crate::run::{model, resolve};

/// What to measure.
#[derive(Clone, Debug)]
pub(super) struct EndpointArguments<'a> {
    /// The engines, each as HOST:PORT.
    pub(super) endpoints: &'a [String],
    /// The model to ask for; `None` for the first that the first engine serves.
    pub(super) model: Option<&'a str>,
    /// Clients at the same time; empty for the usual number.
    pub(super) concurrency: &'a [usize],
    /// The seed of the requests.
    pub(super) seed: u64,
    /// Where to write the rows.
    pub(super) json: Option<&'a Path>,
}

/// One router under the whole test.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    policy: String,
    concurrency: usize,
    /// Found in all prefix caches, of what was looked up there.
    hit: f64,
    /// Tokens of prompts and answers a second.
    tokens_per_s: f64,
    ttft_ms_mean: f64,
    ttft_ms_p50: f64,
    ttft_ms_p99: f64,
    endpoints: Vec<EndpointRow>,
}

/// One endpoint's part of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct EndpointRow {
    address: SocketAddr,
    /// Requests sent to it.
    requests: u64,
    /// Tokens looked up in its prefix cache.
    queries: u64,
    /// Those of them that were found.
    hits: u64,
    /// Requests executing, the mean over the run.
    running: f64,
}

/// Measures, prints the tables and the bound, and writes the file.
pub(super) fn routing_endpoints(arguments: &EndpointArguments<'_>) -> Result<()> {
    let endpoints: Result<Vec<SocketAddr>> =
        arguments.endpoints.iter().map(|it| resolve(it)).collect();
    let endpoints = endpoints?;
    let (wasm, envoy) = tools()?;
    let bench = Bench::new(&envoy, &wasm, &endpoints);
    let rows = tokio::runtime::Runtime::new()?.block_on(measure(arguments, &bench))?;
    write_json(arguments.json, &rows)
}

async fn measure(arguments: &EndpointArguments<'_>, bench: &Bench<'_>) -> Result<Vec<Row>> {
    let (engine, mut before) = pages(bench.endpoints).await?;
    let first = bench.endpoints.first().context("no endpoint")?;
    let model = match arguments.model {
        Some(model) => model.to_owned(),
        None => model(*first).await?,
    };
    println!(
        "Asking {} engines ({}) for {model}",
        bench.endpoints.len(),
        engine.name()
    );
    let concurrency = arguments
        .concurrency
        .first()
        .copied()
        .unwrap_or(CONCURRENCY);
    let mut rows = Vec::new();
    let mut tokens = 0.0;
    for (number, router) in ROUTERS.into_iter().enumerate() {
        let workload = Prefixes {
            model: Some(model.clone()),
            seed: arguments.seed.wrapping_add(number as u64),
        };
        let routing = router.start(bench, engine).await?;
        let mut running = vec![Mean::default(); bench.endpoints.len()];
        let what = router.to_string();
        let report = tokio::select! {
            report = workload.send(routing.traffic(), concurrency, &what) => report?,
            never = watch(bench.endpoints, &mut running) => match never {},
        };
        let (_, after) = pages(bench.endpoints).await?;
        let mut parts = Vec::new();
        for (place, &address) in bench.endpoints.iter().enumerate() {
            let (before, after) = (&before[place], &after[place]);
            let grown = |of: fn(&EndpointMetrics) -> Option<u64>| {
                of(after)
                    .unwrap_or(0)
                    .saturating_sub(of(before).unwrap_or(0))
            };
            parts.push(EndpointRow {
                address,
                requests: routing.sent_to(address).await?,
                queries: grown(|it| it.prefix_queries),
                hits: grown(|it| it.prefix_hits),
                running: running[place].value(),
            });
        }
        routing.stop().await?;
        let row = row(router, concurrency, &report, parts);
        print!("\n{row}");
        rows.push(row);
        tokens = report.usage.prompt_tokens as f64 / report.requests.max(1) as f64;
        before = after;
    }
    println!("\n{}", bound(tokens, &before));
    Ok(rows)
}

fn row(
    router: Router,
    concurrency: usize,
    report: &LoadReport,
    endpoints: Vec<EndpointRow>,
) -> Row {
    let sum = |of: fn(&EndpointRow) -> u64| endpoints.iter().map(of).sum::<u64>() as f64;
    let tokens = report.usage.prompt_tokens + report.usage.completion_tokens;
    let percentile = |it| report.first_event.value_at_percentile(it) as f64 / 1e3;
    Row {
        policy: router.to_string(),
        concurrency,
        hit: sum(|it| it.hits) / sum(|it| it.queries).max(1.0),
        tokens_per_s: tokens as f64 / report.elapsed.as_secs_f64().max(1e-9),
        ttft_ms_mean: report.first_event.mean() / 1e3,
        ttft_ms_p50: percentile(50.0),
        ttft_ms_p99: percentile(99.0),
        endpoints,
    }
}

/// What any router can reach with prompts of so many tokens, given the endpoints' caches.
fn bound(prompt_tokens: f64, endpoints: &[EndpointMetrics]) -> String {
    let prefix = prompt_tokens * PREFIX_TOKENS as f64 / (PREFIX_TOKENS + SUFFIX_TOKENS) as f64;
    let working_set = PREFIXES as f64 * prefix;
    let capacities: Option<Vec<u64>> = endpoints.iter().map(|it| it.capacity_tokens).collect();
    let smallest = capacities.and_then(|all| all.into_iter().min());
    // A prefix has to be computed once, wherever that is.
    let most_after = |computed: usize| {
        let found = REQUESTS.saturating_sub(computed) as f64 / REQUESTS as f64;
        100.0 * found * prefix / prompt_tokens.max(1.0)
    };
    let best = most_after(PREFIXES);
    let mut text = format!(
        "Each prefix is computed at least once, so no router can be above {best:.1} % here.\n"
    );
    text += &match smallest {
        None => "An endpoint does not tell how much its cache holds.".to_owned(),
        Some(smallest) if smallest as f64 >= working_set => format!(
            "All prefixes together ({working_set:.0} tokens) fit into every cache (the smallest \
             holds {smallest}),\nso no router can show a difference once every endpoint has seen \
             all of them: then all of\nthem reach {:.1} %. In this run, which began without them, \
             none can be below {:.1} %.",
            most_after(0),
            most_after(PREFIXES * endpoints.len()),
        ),
        Some(smallest) => format!(
            "All prefixes together ({working_set:.0} tokens) do not fit into the smallest cache \
             ({smallest}),\nso it matters which endpoint gets which."
        ),
    };
    text
}

/// The engine of all endpoints and what each one's page says.
async fn pages(endpoints: &[SocketAddr]) -> Result<(EngineKind, Vec<EndpointMetrics>)> {
    let mut engines = Vec::new();
    let mut metrics = Vec::new();
    for &endpoint in endpoints {
        let (engine, read) = page(endpoint)
            .await
            .with_context(|| format!("http://{endpoint}/metrics"))?;
        engines.push(engine);
        metrics.push(read);
    }
    let first = *engines.first().context("no endpoint")?;
    ensure!(
        engines.iter().all(|engine| *engine == first),
        "the endpoints are of different engines, which one pool cannot have"
    );
    Ok((first, metrics))
}

async fn page(endpoint: SocketAddr) -> Result<(EngineKind, EndpointMetrics)> {
    let page = fetch(endpoint, "/metrics").await?.body;
    let engine = detect_engine(&page).context("the page is of no known engine")?;
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let now = Timestamp(u64::try_from(since_epoch.as_micros())?);
    let reading = read_page(&page, engine, true, now);
    let reading = reading.map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok((engine, reading.metrics))
}

/// Keeps the mean of how many requests each endpoint executes.
async fn watch(endpoints: &[SocketAddr], running: &mut [Mean]) -> Infallible {
    loop {
        sleep(WATCHED_EVERY).await;
        for (endpoint, mean) in endpoints.iter().zip(&mut *running) {
            // A page that cannot be read now says nothing; the one at the end has to be there.
            if let Ok((
                _,
                EndpointMetrics {
                    running: Some(count),
                    ..
                },
            )) = page(*endpoint).await
            {
                mean.sum += count;
                mean.count += 1.0;
            }
        }
    }
}

/// The mean of numbers that come one by one.
#[derive(Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn value(self) -> f64 {
        self.sum / self.count.max(1.0)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, {} clients: hit {:.1} %, {:.0} tok/s, TTFT {:.0} ms (p50 {:.0}, p99 {:.0})",
            self.policy,
            self.concurrency,
            100.0 * self.hit,
            self.tokens_per_s,
            self.ttft_ms_mean,
            self.ttft_ms_p50,
            self.ttft_ms_p99,
        )?;
        for endpoint in &self.endpoints {
            writeln!(
                f,
                "  {:<21} {:>5} requests, {:>8} of {:>8} tokens found ({:>5.1} %), {:>5.1} running",
                endpoint.address.to_string(),
                endpoint.requests,
                endpoint.hits,
                endpoint.queries,
                100.0 * endpoint.hits as f64 / endpoint.queries.max(1) as f64,
                endpoint.running,
            )?;
        }
        Ok(())
    }
}

/// What is compared; each leaves the caches as it used them, so the order is the same every time.
const ROUTERS: [Router; 2] = [Router::RoundRobin, Router::LeastCost(LeastCost::DEFAULT)];

/// Clients of the published test.
const CONCURRENCY: usize = 32;

/// How often running requests are looked at.
const WATCHED_EVERY: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_that_fit_everywhere_leave_no_difference_to_show() {
        let endpoints = |tokens: [Option<u64>; 2]| {
            tokens.map(|capacity_tokens| EndpointMetrics {
                capacity_tokens,
                ..EndpointMetrics::default()
            })
        };
        for (capacities, said) in [
            ([Some(262_144), Some(500_000)], "none can be below 70.6 %"),
            ([Some(262_143), Some(500_000)], "do not fit"),
            ([None, Some(500_000)], "does not tell"),
        ] {
            let text = bound(2176.0, &endpoints(capacities));
            assert!(text.contains(said), "{capacities:?}: {text}");
            assert!(text.contains("above 82.4 %"), "{text}");
        }
    }
}
