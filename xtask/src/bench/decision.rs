//! `cargo xtask bench decision`: what choosing an endpoint costs by itself, without any Envoy.
//!
//! Prompts have 2,048 blocks, and either every endpoint holds all of them or one does. A decision
//! reads what the worker knows already. A pick also reads what other workers wrote, counts the
//! request and tells the others where its prompt is, so its cost grows with them.

use std::fmt;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use picker_core::{
    Answered, BLOCK_BYTES, BlockHash, Done, Draws, EndpointId, Entry, Ledger, Load, LocalData,
    Placed, Plan, Pool, PoolOptions, Prompt, Request, Ring, Row, SharedData, Snapshot, Span,
    Timestamp, entry_number, ledger_key,
};
use serde::Serialize;

use super::write_json;

/// The arguments of `cargo xtask bench decision`.
#[derive(Clone, Debug, Args)]
pub struct DecisionArguments {
    /// How many endpoints there are
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "8,128,1024,2048"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16_384))]
    endpoints: Vec<u32>,
    /// How many workers share the state, this one included
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,4,16"
    )]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=64))]
    workers: Vec<u64>,
    /// Write every row to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One number of endpoints and workers; times are medians in microseconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Measured {
    endpoints: u32,
    /// How many of them hold the whole prompt.
    holders: u32,
    workers: u64,
    decision_us: f64,
    pick_us: f64,
}

/// Measures and prints the table.
pub(super) fn decision(arguments: &DecisionArguments) -> Result<()> {
    println!("{HEADER}");
    let mut rows = Vec::new();
    for &endpoints in &arguments.endpoints {
        for holders in [endpoints, 1] {
            for &workers in &arguments.workers {
                let mut worker = Worker::new(endpoints, holders)?;
                worker.join(workers);
                let row = Measured {
                    endpoints,
                    holders,
                    workers,
                    decision_us: worker.decision_us(),
                    pick_us: worker.pick_us()?,
                };
                println!("{row}");
                rows.push(row);
            }
        }
    }
    for (endpoints, budget_us) in BUDGETS {
        let of_them = rows.iter().filter(|row| row.endpoints == endpoints);
        let Some(worst) = of_them.map(|row| row.decision_us).reduce(f64::max) else {
            continue;
        };
        let met = if worst <= budget_us { "met" } else { "missed" };
        println!(
            "A decision among {endpoints} endpoints: {worst:.1} us, budget {budget_us} us: {met}"
        );
    }
    write_json(arguments.json.as_deref(), &rows)
}

/// One worker, and what it shares with others.
struct Worker {
    shared: LocalData,
    pool: Pool,
    draws: Draws,
    request: Request,
}

impl Worker {
    /// A worker that has sent to every endpoint, the first `holders` of which hold the prompt.
    fn new(endpoints: u32, holders: u32) -> Result<Self> {
        let snapshot = snapshot(endpoints)?;
        let options = PoolOptions {
            name: POOL.to_owned(),
            plan: Plan::default(),
            labels: Vec::new(),
            staleness_threshold: Span::from_millis(2000),
            capacity_tokens: None,
            ..PoolOptions::default()
        };
        let mut worker = Self {
            shared: LocalData::default(),
            pool: Pool::new(options, snapshot, OWNER),
            draws: Draws::new(1),
            request: request(),
        };
        worker.send_everywhere(endpoints)?;
        for holder in 1..=holders {
            worker.place(EndpointId(holder));
        }
        Ok(worker)
    }

    /// Sends a request without a prompt to every endpoint, and lets all end.
    fn send_everywhere(&mut self, endpoints: u32) -> Result<()> {
        let mut tickets = Vec::new();
        for _ in 0..endpoints {
            tickets.push(self.pick(&Request::default())?);
        }
        for mut ticket in tickets {
            self.pool
                .on_done(&self.shared, &mut ticket, Answered::default(), NOW);
        }
        Ok(())
    }

    /// Lets `endpoint` hold the prompt from now on.
    fn place(&mut self, endpoint: EndpointId) {
        let mut ring = Ring::new(POOL);
        let blocks = self.request.prompts.iter().flat_map(|it| it.blocks.clone());
        let placed = Entry::Placed(Placed {
            endpoint,
            owner: OWNER,
            adapter: None,
            is_cold: false,
            depth: 0,
            parent: None,
            blocks: blocks.collect(),
        });
        let _ = ring.replay(&self.shared, |_, _| {});
        if let Some(record) = ring.append(&self.shared, &[placed]) {
            let done = Done {
                placed: entry_number(record, 0),
                output_blocks: 0,
                cached_blocks: None,
            };
            let _ = ring.replay(&self.shared, |_, _| {});
            let _ = ring.append(&self.shared, &[Entry::Done(done)]);
        }
        self.pool.tick(&self.shared, NOW);
    }

    /// Lets others share the state, so that there are `workers`, all of which have sent everywhere.
    fn join(&mut self, workers: u64) {
        let mut bytes = Vec::new();
        let key = ledger_key(POOL);
        self.shared.get(&key, &mut bytes);
        let mut ledger = Ledger::decode(&bytes);
        for owner in OWNER + 1..OWNER + workers {
            let load = Load {
                requests: 1,
                sent: 1,
                ..Load::default()
            };
            let endpoints = self.pool.snapshot().endpoints.iter();
            let mut row = Row {
                owner,
                loads: endpoints.map(|endpoint| (endpoint.id, load)).collect(),
                ..Row::default()
            };
            ledger.put(&mut row, NOW);
        }
        bytes.clear();
        ledger.encode(&mut bytes);
        self.shared.set(&key, &bytes);
        self.pool.tick(&self.shared, NOW);
    }

    fn decision_us(&mut self) -> f64 {
        median_us(|| {
            let begun = Instant::now();
            let pick = self
                .pool
                .preview(black_box(&self.request), &mut self.draws, NOW);
            drop(black_box(pick));
            Ok(begun.elapsed())
        })
        .unwrap_or(f64::NAN)
    }

    /// The request ends after each measurement, so that all measure the same.
    fn pick_us(&mut self) -> Result<f64> {
        let request = self.request.clone();
        median_us(|| {
            let begun = Instant::now();
            let mut ticket = self.pick(&request)?;
            let elapsed = begun.elapsed();
            self.pool
                .on_done(&self.shared, &mut ticket, Answered::default(), NOW);
            Ok(elapsed)
        })
    }

    fn pick(&mut self, request: &Request) -> Result<picker_core::Ticket> {
        let pick = self.pool.pick(&self.shared, request, &mut self.draws, NOW);
        let pick = pick.ok().context("the picker refused")?;
        Ok(pick.ticket)
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>9} {:>9} {:>9} {:>13.1} {:>9.1}",
            self.endpoints, self.holders, self.workers, self.decision_us, self.pick_us
        )
    }
}

/// Endpoints whose pages have been read.
fn snapshot(endpoints: u32) -> Result<Snapshot> {
    let mut addresses = Vec::new();
    for number in 0..endpoints {
        let [_, high, middle, low] = number.to_be_bytes();
        let address = format!("10.{high}.{middle}.{low}:8000").parse();
        addresses.push(address.ok().context("no address")?);
    }
    let mut snapshot = Snapshot::unknown(addresses);
    for endpoint in &mut snapshot.endpoints {
        endpoint.scraped_at = Some(NOW);
        endpoint.metrics.running = Some(2.0);
        endpoint.metrics.waiting = Some(0.0);
        endpoint.metrics.kv_usage = Some(0.25);
        endpoint.metrics.block_size = Some(16);
        endpoint.metrics.capacity_tokens = Some(400_000);
    }
    Ok(snapshot)
}

fn request() -> Request {
    let mut draws = Draws::new(7);
    let blocks: Vec<BlockHash> = (0..BLOCKS).map(|_| BlockHash(draws.next_draw())).collect();
    Request {
        stream: true,
        group: blocks.last().copied(),
        prompts: vec![Prompt {
            bytes: (BLOCKS * BLOCK_BYTES) as u64,
            blocks,
        }],
        ..Request::default()
    }
}

/// The median of what `measure` says, called again and again for a while.
fn median_us(mut measure: impl FnMut() -> Result<Duration>) -> Result<f64> {
    let begun = Instant::now();
    let mut times = Vec::new();
    while times.len() < TIMES_MIN || (begun.elapsed() < SPAN && times.len() < TIMES_MAX) {
        times.push(measure()?);
    }
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    Ok(median.as_secs_f64() * 1e6)
}

const HEADER: &str = "endpoints   holders   workers   decision us   pick us";

/// The most microseconds that a decision among so many endpoints may take.
const BUDGETS: [(u32, f64); 2] = [(128, 20.0), (2048, 200.0)];

/// Blocks of a prompt: 131,072 tokens, the longest that is hashed whole.
const BLOCKS: usize = 2048;

const POOL: &str = "llm";

/// This worker's number.
const OWNER: u64 = 1;

/// The time at which everything happens: 2025-01-01.
const NOW: Timestamp = Timestamp(1_735_689_600_000_000);

/// How long one figure is measured.
const SPAN: Duration = Duration::from_millis(300);

/// Measurements that a median needs, however long they take.
const TIMES_MIN: usize = 51;

/// Measurements that are enough for any median.
const TIMES_MAX: usize = 20_000;
