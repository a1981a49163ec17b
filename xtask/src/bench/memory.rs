//! `cargo xtask bench memory`: what full twins of the endpoints' caches take in each virtual
//! machine.

use std::sync::Arc;

use anyhow::{Result, ensure};
use clap::Args;
use sim::load::{Bodies, LoadOptions, run_load};
use tokio::time::sleep;

use super::bodies::chat;
use super::subject::{Bench, Host, Subject, tools};
use super::upstream::Upstream;
use crate::ready::ready;

/// The arguments of `cargo xtask bench memory`.
#[derive(Clone, Copy, Debug, Args)]
pub struct MemoryArguments {
    /// How many endpoints there are
    #[arg(long, value_name = "N", default_value_t = 100)]
    endpoints: usize,
    /// The tokens that each has room for: an H100 with an 8B model in 16 bits by default
    #[arg(long, value_name = "TOKENS", default_value_t = 450_000)]
    tokens: usize,
}

/// Fills the twins and prints what they take.
pub(super) fn memory(arguments: MemoryArguments) -> Result<()> {
    let (wasm, envoy) = tools()?;
    tokio::runtime::Runtime::new()?.block_on(async {
        let upstream = Upstream::start(arguments.endpoints, None).await?;
        upstream.tell_tokens(arguments.tokens);
        let bench = Bench::new(&envoy, &wasm, upstream.addresses());
        let subject = Subject::start(&bench, Host::Wasm { copies: 1 }).await?;
        ready(subject.addresses).await?;
        let tokens = arguments.endpoints * arguments.tokens;
        // What bodies of this size take besides is there after the first few.
        send(&subject, 0..WARMING).await?;
        let before = subject.rss_bytes()?;
        let requests = (tokens * BYTES_PER_TOKEN / PROMPT_BYTES) as u64;
        let filling = WARMING + requests + requests / 2;
        println!(
            "Sending {requests} prompts of {} KB that fill {} caches, and half as many again ...",
            PROMPT_BYTES / 1024,
            arguments.endpoints
        );
        send(&subject, WARMING..filling).await?;
        let (_, matched) = subject.blocks().await?;
        ensure!(
            matched == 0,
            "{matched} blocks matched: prompts were not new"
        );
        sleep(SETTLED_AFTER).await;
        let after = subject.rss_bytes()?;
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        println!(
            "{:.1} MB before, {:.1} MB with full twins: {:.1} MB in each of the {VMS} virtual \
             machines that keep them, a worker's and the main thread's",
            megabytes(before),
            megabytes(after),
            megabytes(after.saturating_sub(before)) / VMS as f64
        );
        subject.stop().await
    })
}

/// Sends prompts of these numbers, none like another.
async fn send(subject: &Subject, numbers: std::ops::Range<u64>) -> Result<()> {
    let first = numbers.start;
    let generate = move |number: u64| chat(PROMPT_BYTES, first + number, false).into();
    let bodies = Bodies::Generate(Arc::new(generate));
    let mut options = LoadOptions::new(subject.addresses.traffic, bodies);
    options.connections = 8;
    options.requests_max = Some(numbers.end - first);
    let report = run_load(options).await?;
    ensure!(
        report.succeeded == report.requests,
        "some requests failed:\n{report}"
    );
    Ok(())
}

/// Long enough that few requests fill much, and short enough that there are many runs of blocks.
const PROMPT_BYTES: usize = 16 << 10;

/// Bytes that the picker takes for a token until answers tell, and these answers do not.
const BYTES_PER_TOKEN: usize = 4;

/// Requests before the first look at memory.
const WARMING: u64 = 200;

/// One for a worker, one for the main thread, which follows the workers.
const VMS: u32 = 2;

/// The main thread's twins follow at the next tick.
const SETTLED_AFTER: std::time::Duration = std::time::Duration::from_millis(500);
