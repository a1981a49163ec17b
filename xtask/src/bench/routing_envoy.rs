//! `cargo xtask bench routing --envoy`: routers compared through a real Envoy.
//!
//! Simulated servers run faster than the ones they stand for, and what is measured is turned back
//! into their time. So whatever this machine and Envoy add counts several times: hit rates and
//! loaded adapters can be compared between machines, times only within one run.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use picker_core::{EngineKind, LeastCost};
use serde::Serialize;
use sim::load::LoadReport;
use sim::routing::policies::PolicyKind;
use sim::routing::scenario::Scenario;
use sim::server::Server;
use tokio::task::JoinSet;

use super::completions::send;
use super::envoy_scenario::EnvoyScenario;
use super::report::median;
use super::router::Router;
use super::subject::{Bench, tools};
use super::write_json;
use crate::envoy::Envoy;
use crate::http::fetch;

/// What to measure.
#[derive(Clone, Debug)]
pub(super) struct EnvoyArguments<'a> {
    /// The situations.
    pub(super) scenarios: &'a [Scenario],
    /// What to compare; empty for what is usual there.
    pub(super) policies: &'a [PolicyKind],
    /// Parameters of least cost; empty for the usual ones.
    pub(super) rules: &'a [LeastCost],
    /// Clients at the same time; empty for the usual numbers.
    pub(super) concurrency: &'a [usize],
    /// The first seed of the requests.
    pub(super) first_seed: u64,
    /// How many seeds; `None` for as many as is usual.
    pub(super) seeds: Option<u64>,
    /// Where to write the rows.
    pub(super) json: Option<&'a Path>,
}

/// One router under the whole test.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    scenario: &'static str,
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
    /// How often a server brought a LoRA adapter into its memory.
    adapter_loads: u64,
    /// What the run took here.
    elapsed_s: f64,
}

/// Measures, prints the tables and writes the file.
pub(super) fn routing_envoy(arguments: &EnvoyArguments<'_>) -> Result<()> {
    let scenarios: Result<Vec<EnvoyScenario>> = arguments
        .scenarios
        .iter()
        .map(|it| EnvoyScenario::of(*it))
        .collect();
    let scenarios = scenarios?;
    let (wasm, envoy) = tools()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let mut all = Vec::new();
    for scenario in scenarios {
        let rows = runtime.block_on(measure(arguments, scenario, (&envoy, &wasm)))?;
        print!("\n{}", table(&rows));
        all.extend(rows);
    }
    write_json(arguments.json, &all)
}

async fn measure(
    arguments: &EnvoyArguments<'_>,
    scenario: EnvoyScenario,
    (envoy, wasm): (&Envoy, &PathBuf),
) -> Result<Vec<Row>> {
    let policies = match arguments.policies {
        [] => scenario.policies(),
        some => some,
    };
    let mut routers = Vec::new();
    for policy in policies {
        routers.extend(Router::of_policy(*policy, arguments.rules)?);
    }
    let concurrencies = match arguments.concurrency {
        [] => scenario.concurrencies(),
        some => some,
    };
    let seeds = arguments.seeds.unwrap_or_else(|| scenario.seeds());
    let mut rows = Vec::new();
    for &concurrency in concurrencies {
        // What hardly loads the machine runs side by side.
        let together = (REQUESTS_TOGETHER / concurrency.max(1)).max(1);
        // The routers take turns, so that a disturbance does not hit all seeds of one.
        for seed in arguments.first_seed..arguments.first_seed + seeds {
            for routers in routers.chunks(together) {
                let mut runs = JoinSet::new();
                for (place, &router) in routers.iter().enumerate() {
                    let run = Run {
                        scenario,
                        router,
                        concurrency,
                        seed,
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
    }
    Ok(rows)
}

/// One router under one load.
struct Run {
    scenario: EnvoyScenario,
    router: Router,
    concurrency: usize,
    seed: u64,
}

impl Run {
    async fn measure(self, envoy: &Envoy, wasm: &Path) -> Result<Row> {
        let what = format!(
            "{}, concurrency {}, seed {}",
            self.router, self.concurrency, self.seed
        );
        let mut servers = Vec::new();
        for options in self.scenario.servers(self.seed) {
            servers.push(Server::start(options).await?);
        }
        let endpoints: Vec<SocketAddr> = servers.iter().map(Server::address).collect();
        let bench = Bench::new(envoy, wasm, &endpoints);
        let routing = self.router.start(&bench, EngineKind::Vllm).await?;
        eprintln!("{what}: begins");
        let bodies = self.scenario.bodies(self.seed);
        let report = send(bodies, routing.traffic(), self.concurrency, &what);
        let mut row = self.row(&report.await?);
        row.adapter_loads = adapter_loads(&endpoints).await?;
        routing.stop().await?;
        eprintln!(
            "{what}: hit {:.1} %, TTFT p99 {:.0} ms, {} loads, {:.0} s",
            100.0 * row.hit,
            row.ttft_ms_p99,
            row.adapter_loads,
            row.elapsed_s
        );
        Ok(row)
    }

    fn row(&self, report: &LoadReport) -> Row {
        let elapsed_s = report.elapsed.as_secs_f64();
        let scale = self.scenario.time_scale();
        let millis = |micros: f64| scale * micros / 1e3;
        let percentile = |it| millis(report.first_event.value_at_percentile(it) as f64);
        let tokens = report.usage.prompt_tokens + report.usage.completion_tokens;
        Row {
            scenario: self.scenario.name(),
            policy: self.router.to_string(),
            concurrency: self.concurrency,
            seed: self.seed,
            requests: report.requests,
            hit: report.hit_rate(),
            tokens_per_s: tokens as f64 / (scale * elapsed_s).max(1e-9),
            ttft_ms_mean: millis(report.first_event.mean()),
            ttft_ms_p50: percentile(50.0),
            ttft_ms_p99: percentile(99.0),
            adapter_loads: 0,
            elapsed_s,
        }
    }
}

/// How often the servers have loaded an adapter, all together.
async fn adapter_loads(endpoints: &[SocketAddr]) -> Result<u64> {
    let mut loads = 0;
    for endpoint in endpoints {
        let state = fetch(*endpoint, "/sim/state").await?.json()?;
        let of_one = state["adapter_loads"].as_u64();
        loads += of_one.context("/sim/state tells no `adapter_loads`")?;
    }
    Ok(loads)
}

/// A line for each router and number of clients, with the medians over the seeds.
fn table(rows: &[Row]) -> String {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let is_alike = |it: &&Row| (&it.policy, it.concurrency) == (&row.policy, row.concurrency);
        let group = groups
            .iter_mut()
            .find(|it| it.first().is_some_and(is_alike));
        match group {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    let seeds = groups.iter().map(Vec::len).max().unwrap_or(0);
    let mut text = match rows.first() {
        Some(row) if seeds > 1 => format!("{}, medians of {seeds} seeds\n", row.scenario),
        Some(row) => format!("{}\n", row.scenario),
        None => String::new(),
    };
    text += HEADER;
    for group in &groups {
        text += &line(group, rows).unwrap_or_default();
    }
    text
}

/// The medians of `group`; among `rows` are those of least cost, for comparison.
fn line(group: &[&Row], rows: &[Row]) -> Option<String> {
    let first = group.first()?;
    let of = |figure: fn(&Row) -> f64| median(group.iter().map(|it| figure(it)).collect());
    let least_cost = Router::LeastCost(LeastCost::DEFAULT).to_string();
    let against = group.iter().filter_map(|row| {
        let is_twin = |it: &&Row| {
            it.policy == least_cost && (it.concurrency, it.seed) == (row.concurrency, row.seed)
        };
        Some(row.ttft_ms_p99 / rows.iter().find(is_twin)?.ttft_ms_p99.max(1e-9))
    });
    let against: Vec<f64> = against.collect();
    let ratio = if against.is_empty() {
        String::new()
    } else {
        format!("{:.1}", median(against))
    };
    Some(format!(
        "{:<25} {:>7} {:>7.1} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {ratio:>9} {:>7.0}\n",
        first.policy,
        first.concurrency,
        100.0 * of(|it| it.hit),
        of(|it| it.tokens_per_s),
        of(|it| it.ttft_ms_mean),
        of(|it| it.ttft_ms_p50),
        of(|it| it.ttft_ms_p99),
        of(|it| it.adapter_loads as f64),
    ))
}

/// The ratio is that of the 99th percentiles of the same seed, to least cost's.
const HEADER: &str = "policy                    clients   hit %     tok/s   TTFT ms       p50       \
    p99 p99 ratio   loads\n";

/// Requests in flight that a machine with two cores can carry besides what else it does.
const REQUESTS_TOGETHER: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_medians_over_the_seeds_and_compares_within_a_seed() {
        let row = |policy: &str, seed, p99, loads| Row {
            scenario: "lora",
            policy: policy.to_owned(),
            concurrency: 64,
            seed,
            requests: 1600,
            hit: 0.0,
            tokens_per_s: 1000.0,
            ttft_ms_mean: 10.0,
            ttft_ms_p50: 5.0,
            ttft_ms_p99: p99,
            adapter_loads: loads,
            elapsed_s: 1.0,
        };
        let rows = [
            row("queue", 0, 400.0, 7),
            row("least cost", 0, 100.0, 1),
            row("queue", 1, 600.0, 9),
            row("least cost", 1, 300.0, 2),
            row("queue", 2, 900.0, 8),
            row("least cost", 2, 100.0, 3),
        ];
        let table = table(&rows);
        let lines: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(table.lines().next(), Some("lora, medians of 3 seeds"));
        assert_eq!(
            lines[2],
            ["queue", "64", "0.0", "1000", "10", "5", "600", "4.0", "8"]
        );
        assert_eq!(lines[3][..3], ["least", "cost", "64"]);
        assert_eq!(lines[3][7..], ["100", "1.0", "2"]);
    }
}
