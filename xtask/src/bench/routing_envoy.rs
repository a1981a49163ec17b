//! `cargo xtask bench routing --envoy`: the published test through a real Envoy.
//!
//! Two simulated servers run eight times as fast as the ones they stand for, and what is measured
//! is turned back into their time. So whatever this machine and Envoy add counts eightfold: the
//! hit rate can be compared between machines, times only within one run.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use picker_core::{EngineKind, LeastCost};
use serde::Serialize;
use sim::load::LoadReport;
use sim::routing::policies::PolicyKind;
use sim::server::{Server, ServerOptions};
use tokio::task::JoinSet;

use super::prefixes::Prefixes;
use super::router::Router;
use super::subject::{Bench, tools};
use super::write_json;
use crate::envoy::Envoy;

/// What to measure.
#[derive(Clone, Debug)]
pub(super) struct EnvoyArguments<'a> {
    /// What to compare; empty for all that an Envoy has.
    pub(super) policies: &'a [PolicyKind],
    /// Parameters of least cost; empty for the usual ones.
    pub(super) rules: &'a [LeastCost],
    /// Clients at the same time; empty for the usual numbers.
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
    seed: u64,
    requests: u64,
    /// Share of prompt tokens that the servers found in their caches.
    hit: f64,
    /// Tokens of prompts and answers a second.
    tokens_per_s: f64,
    ttft_ms_mean: f64,
    ttft_ms_p50: f64,
    ttft_ms_p99: f64,
    /// What the run took here.
    elapsed_s: f64,
}

/// Measures, prints the table and writes the file.
pub(super) fn routing_envoy(arguments: &EnvoyArguments<'_>) -> Result<()> {
    let policies = match arguments.policies {
        [] => &POLICIES,
        some => some,
    };
    let mut routers = Vec::new();
    for policy in policies {
        routers.extend(Router::of_policy(*policy, arguments.rules)?);
    }
    let (wasm, envoy) = tools()?;
    let measured = measure(arguments, &routers, (envoy, wasm));
    let rows = tokio::runtime::Runtime::new()?.block_on(measured)?;
    println!("\n{HEADER}");
    for row in &rows {
        println!("{row}");
    }
    write_json(arguments.json, &rows)
}

async fn measure(
    arguments: &EnvoyArguments<'_>,
    routers: &[Router],
    (envoy, wasm): (Envoy, PathBuf),
) -> Result<Vec<Row>> {
    let concurrencies = match arguments.concurrency {
        [] => &CONCURRENCIES,
        some => some,
    };
    let mut rows = Vec::new();
    for &concurrency in concurrencies {
        // What hardly loads the machine runs side by side.
        let together = (REQUESTS_TOGETHER / concurrency.max(1)).max(1);
        for routers in routers.chunks(together) {
            let mut runs = JoinSet::new();
            for (place, &router) in routers.iter().enumerate() {
                let run = Run {
                    router,
                    concurrency,
                    seed: arguments.seed,
                };
                let (envoy, wasm) = (envoy.clone(), wasm.clone());
                runs.spawn(async move { (place, run.measure(&envoy, &wasm).await) });
            }
            let mut measured = runs.join_all().await;
            measured.sort_by_key(|it| it.0);
            for (_, row) in measured {
                rows.push(row?);
            }
        }
    }
    Ok(rows)
}

/// One router under one load.
struct Run {
    router: Router,
    concurrency: usize,
    seed: u64,
}

impl Run {
    async fn measure(self, envoy: &Envoy, wasm: &Path) -> Result<Row> {
        let what = format!("{}, concurrency {}", self.router, self.concurrency);
        let mut servers = Vec::new();
        for _ in 0..SERVERS {
            let options = ServerOptions {
                time_scale: TIME_SCALE,
                ..ServerOptions::default()
            };
            servers.push(Server::start(options).await?);
        }
        let endpoints: Vec<SocketAddr> = servers.iter().map(Server::address).collect();
        let bench = Bench::new(envoy, wasm, &endpoints);
        let routing = self.router.start(&bench, EngineKind::Vllm).await?;
        eprintln!("{what}: begins");
        let workload = Prefixes {
            model: None,
            seed: self.seed,
        };
        let report = workload.send(routing.traffic(), self.concurrency, &what);
        let row = self.row(&report.await?);
        routing.stop().await?;
        eprintln!(
            "{what}: hit {:.1} %, {:.0} s",
            100.0 * row.hit,
            row.elapsed_s
        );
        Ok(row)
    }

    fn row(&self, report: &LoadReport) -> Row {
        let elapsed_s = report.elapsed.as_secs_f64();
        let millis = |micros: f64| TIME_SCALE * micros / 1e3;
        let percentile = |it| millis(report.first_event.value_at_percentile(it) as f64);
        let tokens = report.usage.prompt_tokens + report.usage.completion_tokens;
        Row {
            policy: self.router.to_string(),
            concurrency: self.concurrency,
            seed: self.seed,
            requests: report.requests,
            hit: report.hit_rate(),
            tokens_per_s: tokens as f64 / (TIME_SCALE * elapsed_s).max(1e-9),
            ttft_ms_mean: millis(report.first_event.mean()),
            ttft_ms_p50: percentile(50.0),
            ttft_ms_p99: percentile(99.0),
            elapsed_s,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<22} {:>8} {:>7.1} {:>9.0} {:>9.0} {:>9.0} {:>9.0}",
            self.policy,
            self.concurrency,
            100.0 * self.hit,
            self.tokens_per_s,
            self.ttft_ms_mean,
            self.ttft_ms_p50,
            self.ttft_ms_p99,
        )
    }
}

const HEADER: &str =
    "policy                  clients   hit %     tok/s   TTFT ms       p50       p99";

/// What is compared.
const POLICIES: [PolicyKind; 3] = [
    PolicyKind::RoundRobin,
    PolicyKind::Compatible,
    PolicyKind::LeastCost,
];

/// Clients, unless others are asked for.
const CONCURRENCIES: [usize; 2] = [1, 4];

/// Requests in flight that a machine with two cores can carry besides what else it does.
const REQUESTS_TOGETHER: usize = 4;

/// Servers behind each Envoy, as in the published test.
const SERVERS: usize = 2;

/// How much faster than real the servers are: a step takes about a millisecond.
const TIME_SCALE: f64 = 8.0;
