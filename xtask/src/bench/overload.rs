//! `cargo xtask bench overload`: who is served when a fleet gets more than it can serve.
//!
//! What the fleet can serve is measured first, by clients that never wait between two requests; then
//! how it answers at 30 % of that, and at 150 % for five minutes.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use sim::overload::case::{CLIENTS, Case, Fleet, ROOMY, Rate, TOO_MUCH};
use sim::overload::figures::Figures;
use sim::overload::report::{self, Row, Run};
use sim::overload::traffic::Traffic;
use sim::overload::variant::Variant;
use sim::profile::{PROFILES, Profile};

use super::runs::run_all;

/// The arguments of `cargo xtask bench overload`.
#[derive(Clone, Debug, Args)]
pub struct OverloadArguments {
    /// The configuration; several are separated by commas. Without any, all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    variant: Vec<Variant>,
    /// Workers of the Envoy
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,4"
    )]
    workers: Vec<usize>,
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 3)]
    seeds: u64,
    /// The first seed; the others follow it
    #[arg(long, value_name = "K", default_value_t = 0)]
    first_seed: u64,
    /// The accelerator and model of the servers
    #[arg(long, value_name = "NAME", default_value = "l4", value_parser = profile)]
    profile: Profile,
    /// How many servers
    #[arg(long, value_name = "N", default_value_t = 4)]
    servers: usize,
    /// Write every run to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Measures, prints the tables and writes the file.
pub(super) fn overload(arguments: &OverloadArguments) -> Result<()> {
    let variants = match arguments.variant.as_slice() {
        [] => &Variant::ALL,
        some => some,
    };
    for variant in variants {
        let name = variant.name();
        ensure!(variant.is_read(), "the picker does not read {name}");
    }
    let fleet = Fleet {
        profile: arguments.profile.clone(),
        servers: arguments.servers.max(1),
    };
    let seeds = arguments.first_seed..arguments.first_seed + arguments.seeds;
    let capacities = capacities(&fleet, &seeds.collect::<Vec<_>>())?;
    for (seed, capacity) in &capacities {
        let Rate { requests, tokens } = capacity;
        println!(
            "{} servers, {}, seed {seed}: {requests:.1} requests/s, {tokens:.0} tokens/s of answers",
            fleet.servers, fleet.profile.name
        );
    }
    println!();
    let rows = rows((variants, &arguments.workers), &fleet, &capacities)?;
    print!("{}", report::table(&rows));
    super::write_json(arguments.json.as_deref(), &report::json(&rows))
}

/// What the fleet serves at best, for every seed.
fn capacities(fleet: &Fleet, seeds: &[u64]) -> Result<Vec<(u64, Rate)>> {
    let cases = seeds
        .iter()
        .flat_map(|seed| CLIENTS.map(|clients| (*seed, clients)));
    let cases: Vec<(u64, usize)> = cases.collect();
    let rates = run_all(&cases, |(seed, clients)| fleet.rate(*clients, *seed));
    let rates: Option<Vec<Rate>> = rates.into_iter().collect();
    let rates = rates.context("the picker does not read its configuration")?;
    let best = |rates: &[Rate]| {
        let best = rates.iter().copied();
        best.max_by(|a, b| a.requests.total_cmp(&b.requests))
            .unwrap_or_default()
    };
    let best = rates.chunks(CLIENTS.len()).map(best);
    Ok(seeds.iter().copied().zip(best).collect())
}

fn rows(
    (variants, workers): (&[Variant], &[usize]),
    fleet: &Fleet,
    capacities: &[(u64, Rate)],
) -> Result<Vec<Row>> {
    let both = Traffic::ALL.into_iter();
    let both = both.flat_map(|traffic| workers.iter().map(move |workers| (traffic, *workers)));
    let kinds = both.flat_map(|(traffic, workers)| {
        let variants = variants.iter();
        variants.map(move |variant| (*variant, traffic, workers))
    });
    let kinds: Vec<(Variant, Traffic, usize)> = kinds.collect();
    let mut cases = Vec::new();
    for &(variant, traffic, workers) in &kinds {
        for (seed, capacity) in capacities {
            let case = |load| Case {
                variant,
                traffic,
                workers: workers.max(1),
                load,
                seed: *seed,
            };
            cases.extend([ROOMY, TOO_MUCH].map(|load| (case(load), capacity.requests)));
        }
    }
    let figures = run_all(&cases, |(case, requests)| fleet.case(*case, *requests));
    let mut figures = figures.into_iter();
    let mut next = || -> Result<Figures> {
        let figures = figures.next().flatten();
        figures.context("the picker does not read its configuration")
    };
    let mut run = |(seed, capacity): &(u64, Rate)| -> Result<Run> {
        Ok(Run {
            seed: *seed,
            capacity: *capacity,
            roomy: next()?,
            too_much: next()?,
        })
    };
    let row = |(variant, traffic, workers)| -> Result<Row> {
        let runs = capacities.iter().map(&mut run);
        Ok(Row {
            variant,
            traffic,
            workers,
            runs: runs.collect::<Result<_>>()?,
        })
    };
    kinds.into_iter().map(row).collect()
}

fn profile(name: &str) -> Result<Profile, String> {
    Profile::named(name).ok_or_else(|| format!("the profiles are {}", PROFILES.join(", ")))
}
