//! `cargo xtask bench overhead`: what the picker adds to Envoy's CPU time and latency.
//!
//! All Envoys run side by side and are loaded in turn, in slices of a fraction of a second, so that
//! what else the machine does reaches all of them alike. One such round is one pair of "without" and
//! "with"; the median of the pairs is what counts.

use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use sim::load::{Bodies, LoadOptions, LoadReport, run_load};
use tokio::time::sleep;

use super::bodies::chat;
use super::cpu::CpuTime;
use super::report::{Row, Rows};
use super::subject::{Bench, Host, Subject};
use super::upstream::{CHUNKS, Upstream};
use crate::envoy::Envoy;
use crate::ready::ready;
use crate::wasm::{self, Variant};

/// The arguments of `cargo xtask bench overhead`.
#[derive(Clone, Debug, Args)]
pub struct OverheadArguments {
    /// Write every row as a line of JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Compare with this external processor too; its endpoints are those from --first-port on
    #[arg(long, value_name = "HOST:PORT")]
    ext_proc: Option<SocketAddr>,
    /// The processor's process, to add its CPU time
    #[arg(long, value_name = "PID", requires = "ext_proc")]
    ext_proc_pid: Option<u32>,
    /// What runs the picker
    #[arg(long, value_enum, default_value = "all")]
    host: HostArgument,
    /// Pairs of "without" and "with"
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Only bodies of these sizes, in KB, and no stream
    #[arg(long, value_name = "KB", value_delimiter = ',')]
    sizes: Vec<usize>,
    /// Put the endpoints on this port and the following ones
    #[arg(long, value_name = "PORT")]
    #[arg(value_parser = clap::value_parser!(u16).range(1024..=65_000))]
    first_port: Option<u16>,
    /// Measure several copies with flow control too, while nothing waits
    #[arg(long)]
    queues: bool,
    /// Measure several copies too that each rewrite the model of requests, and others that rename it
    /// in answers besides
    #[arg(long)]
    rewrite: bool,
    /// Measure this module instead of the one built here
    #[arg(long, value_name = "FILE")]
    wasm: Option<PathBuf>,
    /// The Envoy binary
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
}

/// What can run the picker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum HostArgument {
    /// The filter in Envoy's wasm engine
    Wasm,
    /// A dynamic module
    Module,
    /// All there are
    All,
}

/// Measures and prints the table.
pub(super) fn overhead(arguments: &OverheadArguments) -> Result<()> {
    ensure!(
        arguments.host != HostArgument::Module,
        "--host module: there is no dynamic module in this version; use --host wasm"
    );
    let wasm = match &arguments.wasm {
        Some(wasm) => wasm.clone(),
        None => wasm::build(Variant::Shipped)?,
    };
    let envoy = Envoy::find(arguments.envoy.as_deref())?;
    println!("Using {envoy}");
    if arguments.host == HostArgument::All {
        println!("There is no dynamic module in this version, so no rows for it.");
    }
    tokio::runtime::Runtime::new()?.block_on(measure(arguments, &envoy, &wasm))
}

/// One kind of load.
struct Case {
    body_bytes: usize,
    stream_chunks: u32,
    connections: usize,
    /// How long an Envoy is loaded before it is the next one's turn.
    slice: Duration,
    bodies: Vec<Vec<u8>>,
}

impl Case {
    fn all(sizes: &[usize]) -> Vec<Self> {
        let plain = |kilobytes: usize| Self {
            body_bytes: kilobytes * 1024,
            stream_chunks: 0,
            connections: 4,
            slice: Duration::from_millis(400),
            bodies: (0..PROMPTS)
                .map(|seed| chat(kilobytes * 1024, seed, false))
                .collect(),
        };
        if !sizes.is_empty() {
            return sizes.iter().copied().map(plain).collect();
        }
        let mut cases: Vec<Self> = SIZES_KB.into_iter().map(plain).collect();
        cases.push(Self {
            body_bytes: 1024,
            stream_chunks: 1000,
            // Each stream takes more than a second, for its chunks are to be read one by one.
            connections: 16,
            slice: Duration::from_millis(100),
            bodies: (0..PROMPTS).map(|seed| chat(1024, seed, true)).collect(),
        });
        cases
    }

    fn options(&self, target: SocketAddr) -> LoadOptions {
        let bodies = self.bodies.iter().map(|body| body.clone().into());
        let mut options = LoadOptions::new(target, Bodies::List(bodies.collect()));
        options.connections = self.connections;
        options.requests_max = None;
        options.duration_max = Some(self.slice);
        if self.stream_chunks > 0 {
            let chunks = self.stream_chunks.to_string();
            options.headers.push((CHUNKS.to_owned(), chunks));
        }
        options
    }
}

async fn measure(arguments: &OverheadArguments, envoy: &Envoy, wasm: &Path) -> Result<()> {
    let upstream = Upstream::start(ENDPOINTS, arguments.first_port).await?;
    let bench = Bench::new(envoy, wasm, upstream.addresses());
    let rewriting = |is_public| {
        let copies = COPIES;
        arguments
            .rewrite
            .then_some(Host::Rewrite { copies, is_public })
    };
    let hosts = [
        Some(Host::None),
        Some(Host::Wasm { copies: 1 }),
        Some(Host::Wasm { copies: COPIES }),
        arguments.queues.then_some(Host::Queues { copies: COPIES }),
        rewriting(false),
        rewriting(true),
        arguments.ext_proc.map(|server| Host::ExtProc { server }),
    ];
    let mut subjects = Vec::new();
    for host in hosts.into_iter().flatten() {
        subjects.push(Subject::start(&bench, host).await?);
    }
    let cases = Case::all(&arguments.sizes);
    println!("Filling the caches of {ENDPOINTS} endpoints ...");
    fill(&upstream, &subjects, &cases).await?;
    let mut file = match &arguments.json {
        Some(path) => Some(File::create(path).context("--json does not name a usable file")?),
        None => None,
    };
    let mut rows = Rows::default();
    for run in 1..=arguments.runs {
        for case in &cases {
            for row in round(&subjects, case, run, arguments.ext_proc_pid).await? {
                println!("{row}");
                if let Some(file) = &mut file {
                    writeln!(file, "{}", serde_json::to_string(&row)?)?;
                }
                rows.add(row);
            }
        }
    }
    let summary = rows.summary();
    for added in &summary {
        if let Some(file) = &mut file {
            writeln!(file, "{}", serde_json::to_string(added)?)?;
        }
    }
    println!("\n{}", rows.table());
    for subject in subjects {
        subject.stop().await?;
    }
    Ok(())
}

/// Sends every prompt to every endpoint once, while all others sleep, so that all hold all of them.
async fn fill(upstream: &Upstream, subjects: &[Subject], cases: &[Case]) -> Result<()> {
    let filters = || subjects.iter().filter(|it| it.host.has_filter());
    for subject in filters() {
        ready(subject.addresses).await?;
    }
    for endpoint in 0..upstream.addresses().len() {
        upstream.wake_only(Some(endpoint));
        sleep(KNOWN_AFTER).await;
        for subject in filters() {
            for case in cases {
                fill_one(endpoint, subject, case).await?;
            }
        }
    }
    upstream.wake_only(None);
    sleep(KNOWN_AFTER).await;
    Ok(())
}

/// Sends the prompts of a case until all have gone to the endpoint that is awake.
async fn fill_one(endpoint: usize, subject: &Subject, case: &Case) -> Result<()> {
    let mut options = case.options(subject.addresses.traffic);
    options.headers.clear();
    options.connections = 1;
    options.duration_max = None;
    options.requests_max = Some(PROMPTS);
    for _ in 0..FILL_TRIES {
        let report = loaded(options.clone()).await?;
        if report.endpoints.get(&endpoint.to_string()) == Some(&PROMPTS) {
            return Ok(());
        }
        // On a busy machine a scrape may come late.
        sleep(KNOWN_AFTER).await;
    }
    bail!("endpoint {endpoint} is the only one awake, and others still get requests");
}

/// Loads every subject in turn, several times, and sums up what each used.
async fn round(
    subjects: &[Subject],
    case: &Case,
    run: u32,
    server: Option<u32>,
) -> Result<Vec<Row>> {
    let mut parts: Vec<Option<Part>> = subjects.iter().map(|_| None).collect();
    for slice in 0..SLICES {
        for turn in 0..subjects.len() {
            // There and back again, so that none always follows the same one.
            let turn = if slice % 2 == 0 {
                turn
            } else {
                subjects.len() - 1 - turn
            };
            let server = server.filter(|_| matches!(subjects[turn].host, Host::ExtProc { .. }));
            let part = Part::measure(&subjects[turn], case, server).await?;
            parts[turn] = Some(match parts[turn].take() {
                Some(whole) => whole.plus(part)?,
                None => part,
            });
        }
    }
    let parts = parts.into_iter().flatten().zip(subjects);
    Ok(parts
        .map(|(part, subject)| part.row(subject.host, case, run))
        .collect())
}

/// What one subject did in its slices.
struct Part {
    report: LoadReport,
    cpu: CpuTime,
    server_cpu: Option<Duration>,
    blocks: u64,
    matched: u64,
}

impl Part {
    async fn measure(subject: &Subject, case: &Case, server: Option<u32>) -> Result<Self> {
        let server_cpu = || server.map(CpuTime::of).transpose();
        let (blocks, matched) = subject.blocks().await?;
        let (before, server_before) = (subject.cpu()?, server_cpu()?);
        let report = loaded(case.options(subject.addresses.traffic)).await?;
        let (after, server_after) = (subject.cpu()?, server_cpu()?);
        let (blocks_after, matched_after) = subject.blocks().await?;
        Ok(Self {
            report,
            cpu: after.since(before),
            server_cpu: server_after
                .zip(server_before)
                .map(|(after, before)| after.since(before).total),
            blocks: blocks_after - blocks,
            matched: matched_after - matched,
        })
    }

    fn plus(mut self, other: Self) -> Result<Self> {
        self.report.total.add(&other.report.total)?;
        self.report.requests += other.report.requests;
        self.report.elapsed += other.report.elapsed;
        self.cpu.total += other.cpu.total;
        self.cpu.main += other.cpu.main;
        self.server_cpu = self
            .server_cpu
            .zip(other.server_cpu)
            .map(|(own, more)| own + more);
        self.blocks += other.blocks;
        self.matched += other.matched;
        Ok(self)
    }

    fn row(&self, host: Host, case: &Case, run: u32) -> Row {
        let requests = self.report.requests.max(1) as f64;
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / requests;
        Row {
            host: host.to_string(),
            body_bytes: case.body_bytes,
            stream_chunks: case.stream_chunks,
            connections: case.connections,
            run,
            cpu_us: micros(self.cpu.total),
            main_us: micros(self.cpu.main),
            server_cpu_us: self.server_cpu.map(micros),
            p50_us: self.report.total.value_at_percentile(50.0),
            p99_us: self.report.total.value_at_percentile(99.0),
            rps: requests / self.report.elapsed.as_secs_f64().max(1e-9),
            matched: host
                .has_filter()
                .then(|| self.matched as f64 / self.blocks.max(1) as f64),
        }
    }
}

/// Sends the load; an answer that is none fails the measurement.
async fn loaded(options: LoadOptions) -> Result<LoadReport> {
    let report = run_load(options).await?;
    ensure!(
        report.succeeded == report.requests,
        "some requests failed:\n{report}"
    );
    Ok(report)
}

/// Endpoints in the pool.
const ENDPOINTS: usize = 16;

/// The sizes of bodies, in KB.
const SIZES_KB: [usize; 4] = [1, 10, 100, 400];

/// Different prompts of each size.
const PROMPTS: u64 = 4;

/// Copies of the filter in one chain, for what is too small to be seen of one.
const COPIES: u32 = 8;

/// Turns of every subject in one round.
const SLICES: u32 = 4;

/// Times that prompts are sent again because the picker did not know yet who is awake.
const FILL_TRIES: u32 = 20;

/// Two scrapes later the picker knows who is awake.
const KNOWN_AFTER: Duration = Duration::from_millis(400);
