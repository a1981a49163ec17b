//! `cargo xtask bench soak`: whether memory stays flat over many mixed requests.
//!
//! Memory is sampled all the time; the last quarter of the samples is compared with the second. The
//! first is left out: there caches fill, and heaps grow to the largest body.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use sim::load::{Bodies, LoadOptions, run_load};
use tokio::time::sleep;

use super::bodies::{chat, image};
use super::subject::{Bench, Host, Subject, tools};
use super::upstream::Upstream;
use crate::ready::ready;

/// The arguments of `cargo xtask bench soak`.
#[derive(Clone, Copy, Debug, Args)]
pub struct SoakArguments {
    /// How many requests to send
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    requests: u64,
}

/// Sends the requests and prints how memory went.
pub(super) fn soak(arguments: SoakArguments) -> Result<()> {
    let (wasm, envoy) = tools()?;
    tokio::runtime::Runtime::new()?.block_on(async {
        let upstream = Upstream::start(ENDPOINTS, None).await?;
        let bench = Bench::new(&envoy, &wasm, upstream.addresses());
        let subject = Subject::start(&bench, Host::Wasm { copies: 1 }).await?;
        ready(subject.addresses).await?;
        let samples = load(&subject, arguments.requests).await?;
        show(&samples);
        subject.stop().await
    })
}

/// Sends the requests; gives the resident bytes at even intervals.
async fn load(subject: &Subject, requests: u64) -> Result<Vec<u64>> {
    let sent = Arc::new(AtomicU64::new(0));
    let generate = {
        let sent = Arc::clone(&sent);
        move |number: u64| {
            sent.fetch_add(1, Ordering::Relaxed);
            mixed(number).into()
        }
    };
    let mut options = LoadOptions::new(
        subject.addresses.traffic,
        Bodies::Generate(Arc::new(generate)),
    );
    options.connections = 8;
    options.requests_max = Some(requests);
    let mut run = tokio::spawn(run_load(options));
    let mut samples = Vec::new();
    let report = loop {
        tokio::select! {
            report = &mut run => break report??,
            () = sleep(SAMPLE_EVERY) => {
                let resident = subject.rss_bytes()?;
                samples.push(resident);
                if samples.len() % SAMPLES_SHOWN == 0 {
                    let sent = sent.load(Ordering::Relaxed);
                    let megabytes = resident as f64 / 1e6;
                    println!("{sent} of {requests} requests, {megabytes:.1} MB");
                }
            }
        }
    };
    println!("{report}");
    ensure!(report.succeeded == report.requests, "some requests failed");
    Ok(samples)
}

/// Mostly small chats, every one new; some large ones and images, few of 8 MB.
fn mixed(number: u64) -> Vec<u8> {
    match number % 10_000 {
        0 => image(8 << 20, number),
        n if n % 500 == 0 => image(1 << 20, number),
        n if n % 100 == 0 => chat(400 << 10, number, false),
        n if n % 10 == 0 => chat(32 << 10, number, false),
        _ => chat(1 << 10, number, false),
    }
}

/// Prints the mean of each quarter of the samples, and how the last differs from the second.
pub(super) fn show(samples: &[u64]) {
    let mean = |part: &[u64]| part.iter().sum::<u64>() as f64 / part.len().max(1) as f64 / 1e6;
    let quarters: Vec<f64> = samples
        .chunks(samples.len().div_ceil(4).max(1))
        .map(mean)
        .collect();
    println!(
        "{} samples of resident memory, MB by quarter: {quarters:.1?}",
        samples.len()
    );
    if let [_, second, _, last] = quarters.as_slice() {
        let percent = 100.0 * (last - second) / second;
        println!("last against second: {percent:+.1} %");
    }
}

const ENDPOINTS: usize = 16;

const SAMPLE_EVERY: Duration = Duration::from_millis(200);

/// One of so many samples is shown while it runs.
const SAMPLES_SHOWN: usize = 150;
