//! `cargo xtask bench routing`: routers compared on the same requests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use picker_core::LeastCost;
use sim::routing::case::{Case, Row, Source};
use sim::routing::plot;
use sim::routing::policies::PolicyKind;
use sim::routing::report;
use sim::routing::scenario::Scenario;
use sim::routing::trace::Trace;

use super::routing_endpoints::{EndpointArguments, routing_endpoints};
use super::routing_envoy::{EnvoyArguments, routing_envoy};
use super::runs::run_all;

/// The arguments of `cargo xtask bench routing`.
#[derive(Clone, Debug, Args)]
pub struct RoutingArguments {
    /// The situation; several are separated by commas, and `all` stands for all
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "headline", value_parser = scenarios)]
    scenario: Vec<Scenarios>,
    /// The router; several are separated by commas. Without any, all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    policy: Vec<PolicyKind>,
    /// How many seeds: 5, unless one shows enough
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// The first seed; the others follow it
    #[arg(long, value_name = "K", default_value_t = 0)]
    first_seed: u64,
    /// Workers of each Envoy, for our own picker
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1")]
    workers: Vec<usize>,
    /// Clients or users at the same time, instead of the scenario's own number
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "trace"
    )]
    concurrency: Vec<usize>,
    /// Recorded requests instead of a scenario: Mooncake's JSON lines
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    trace: Option<PathBuf>,
    /// How many times faster than recorded a trace is sent
    #[arg(long, value_name = "X", default_value_t = 2.0, requires = "trace")]
    speed: f64,
    /// How many lines of a trace are sent
    #[arg(long, value_name = "N", default_value_t = 5000, requires = "trace")]
    requests: usize,
    /// Pods that serve a trace
    #[arg(long, value_name = "N", default_value_t = 8, requires = "trace")]
    pods: usize,
    /// Parameters of least-cost: base tokens, overflow weight and backlog weight, as 512/48/4;
    /// several sets are separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = rule)]
    rule: Vec<LeastCost>,
    /// Write every run to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a picture of each situation into this directory
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Through a real Envoy, with servers that are simulated in real time: headline or lora
    #[arg(long, conflicts_with_all = SIMULATED_ONLY)]
    envoy: bool,
    /// The published test on real engines through a real Envoy; once per engine
    #[arg(long = "endpoint", value_name = "HOST:PORT")]
    #[arg(conflicts_with_all = SIMULATED_ONLY)]
    #[arg(conflicts_with_all = ["envoy", "policy", "rule", "scenario", "seeds"])]
    endpoints: Vec<String>,
    /// The model to ask real engines for, instead of the first they serve
    #[arg(long, value_name = "NAME", requires = "endpoints")]
    model: Option<String>,
}

/// One scenario or all.
#[derive(Clone, Debug)]
struct Scenarios(Vec<Scenario>);

/// Runs what was asked for, prints the table and writes the files.
pub fn routing(arguments: &RoutingArguments) -> Result<()> {
    if arguments.envoy {
        let scenarios = arguments.scenario.iter().flat_map(|it| it.0.clone());
        return routing_envoy(&EnvoyArguments {
            scenarios: &scenarios.collect::<Vec<_>>(),
            policies: &arguments.policy,
            rules: &arguments.rule,
            concurrency: &arguments.concurrency,
            first_seed: arguments.first_seed,
            seeds: arguments.seeds,
            json: arguments.json.as_deref(),
        });
    }
    if !arguments.endpoints.is_empty() {
        return routing_endpoints(&EndpointArguments {
            endpoints: &arguments.endpoints,
            model: arguments.model.as_deref(),
            concurrency: &arguments.concurrency,
            seed: arguments.first_seed,
            json: arguments.json.as_deref(),
        });
    }
    let cases = cases(arguments)?;
    let rows = run_all(&cases, |case| case.clone().run());
    print!("{}", report::table(&rows));
    if let Some(file) = &arguments.json {
        let mut text = serde_json::to_string_pretty(&report::json(&rows))?;
        text.push('\n');
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Some(directory) = &arguments.plot {
        plot(&rows, directory)?;
    }
    Ok(())
}

fn plot(rows: &[Row], directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    for (situation, groups) in report::groups(rows) {
        let clients = situation.concurrency.map(|it| format!("-{it}-clients"));
        let clients = clients.unwrap_or_default();
        let file = directory.join(format!("routing-{}{clients}.svg", situation.scenario));
        fs::write(&file, plot::chart(&situation, &groups))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn cases(arguments: &RoutingArguments) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let concurrencies: Vec<Option<usize>> = match arguments.concurrency.as_slice() {
        [] => vec![None],
        clients => clients.iter().copied().map(Some).collect(),
    };
    for source in sources(arguments)? {
        for &concurrency in &concurrencies {
            for policy in policies(arguments, &source) {
                let variants = variants(arguments, policy).into_iter();
                cases.extend(variants.map(|(workers, rule, seed)| Case {
                    source: source.clone(),
                    policy,
                    workers,
                    rule,
                    concurrency,
                    seed,
                }));
            }
        }
    }
    Ok(cases)
}

/// The policies asked for, or all that differ on these requests.
fn policies(arguments: &RoutingArguments, source: &Source) -> Vec<PolicyKind> {
    if !arguments.policy.is_empty() {
        return arguments.policy.clone();
    }
    let has_adapters = matches!(source, Source::Scenario(Scenario::Lora));
    let all = PolicyKind::ALL.into_iter();
    all.filter(|policy| has_adapters || !policy.is_for_adapters())
        .collect()
}

/// The workers, parameters and seeds that a policy is run with.
fn variants(arguments: &RoutingArguments, policy: PolicyKind) -> Vec<(usize, LeastCost, u64)> {
    // Any other router is one process, whatever the workers of an Envoy.
    let workers = match arguments.workers.as_slice() {
        workers if policy.is_ours() => workers,
        _ => &[1],
    };
    let rules = match arguments.rule.as_slice() {
        rules if policy == PolicyKind::LeastCost && !rules.is_empty() => rules,
        _ => &[LeastCost::DEFAULT],
    };
    let mut variants = Vec::new();
    for &workers in workers {
        for &rule in rules {
            let count = arguments.seeds.unwrap_or(SEEDS);
            let seeds = arguments.first_seed..arguments.first_seed + count;
            variants.extend(seeds.map(|seed| (workers, rule, seed)));
        }
    }
    variants
}

fn sources(arguments: &RoutingArguments) -> Result<Vec<Source>> {
    let Some(file) = &arguments.trace else {
        let scenarios = arguments.scenario.iter().flat_map(|it| it.0.clone());
        return Ok(scenarios.map(Source::Scenario).collect());
    };
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let trace = Trace::parse(&text, arguments.requests, arguments.speed, arguments.pods)
        .with_context(|| format!("cannot read {}", file.display()))?;
    Ok(vec![Source::Trace(Arc::new(trace))])
}

fn rule(text: &str) -> Result<LeastCost, String> {
    let numbers: Option<Vec<f64>> = text.split('/').map(|it| it.parse().ok()).collect();
    match numbers.as_deref() {
        Some(&[base_tokens, overflow_weight, backlog_weight]) => Ok(LeastCost {
            base_tokens,
            overflow_weight,
            backlog_weight,
        }),
        _ => Err("give three numbers, as 512/48/4".to_owned()),
    }
}

fn scenarios(name: &str) -> Result<Scenarios, String> {
    match name {
        "all" => Ok(Scenarios(Scenario::ALL.to_vec())),
        name => Ok(Scenarios(vec![name.parse()?])),
    }
}

/// What has no meaning without a simulation in virtual time.
const SIMULATED_ONLY: [&str; 3] = ["workers", "trace", "plot"];

/// Seeds to average over in virtual time, which costs next to nothing.
const SEEDS: u64 = 5;
