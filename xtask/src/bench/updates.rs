//! `cargo xtask bench updates`: whether memory stays flat over many changes of the configuration,
//! with requests going on.
//!
//! Every change makes Envoy build the listener anew, and each virtual machine another root. The last
//! quarter of the samples is compared with the second.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;
use sim::load::{Bodies, LoadOptions, run_load};
use tokio::time::{Instant, sleep};

use super::bodies::chat;
use super::cpu::resident_bytes;
use super::soak::show;
use super::subject::{directory, tools};
use super::upstream::Upstream;
use crate::compose::{Addresses, Destination, compose, document};
use crate::proxy::{Proxy, ProxyOptions};
use crate::pushed::Pushed;
use crate::ready::{ready, stat};

/// The arguments of `cargo xtask bench updates`.
#[derive(Clone, Copy, Debug, Args)]
pub struct UpdatesArguments {
    /// How many times to change the configuration
    #[arg(long, value_name = "N", default_value_t = 1000)]
    updates: u64,
}

/// Changes the configuration and prints how memory went.
pub(super) fn updates(arguments: UpdatesArguments) -> Result<()> {
    let (wasm, envoy) = tools()?;
    tokio::runtime::Runtime::new()?.block_on(async {
        let upstream = Upstream::start(ENDPOINTS, None).await?;
        let (destination, addresses) = (Destination::OriginalDst, Addresses::free()?);
        let document = document(destination, upstream.addresses())?;
        let mut bootstrap = compose(destination, addresses, &wasm, &document)?;
        let directory = directory();
        let pushed = Pushed::new(&mut bootstrap, &directory.join("listeners"))?;
        let options = ProxyOptions {
            concurrency: Some(1),
            directory,
            // What a change replaces stays that long, 10 minutes by default.
            arguments: &["--drain-time-s", "1"],
        };
        let proxy = Proxy::start(&envoy, &bootstrap, &options).await?;
        ready(addresses).await?;
        let (samples, report) = tokio::join!(
            change(&pushed, addresses, &proxy, arguments.updates),
            requests(addresses, arguments.updates)
        );
        println!("{}", report?);
        show(&samples?);
        proxy.stop().await
    })
}

/// Changes the configuration again and again, each time when Envoy has taken the change before;
/// gives the resident bytes after each.
async fn change(
    pushed: &Pushed,
    addresses: Addresses,
    proxy: &Proxy,
    updates: u64,
) -> Result<Vec<u64>> {
    let pid = proxy.pid().context("Envoy has ended")?;
    let taken = || stat(addresses, "listener_manager.lds.update_success");
    let mut samples = Vec::new();
    for update in 1..=updates {
        let before = taken().await?;
        pushed
            .push(|pool| pool["scrape"]["interval"] = json!(format!("{}ms", 100 + update % 2)))?;
        let deadline = Instant::now() + PATIENCE;
        while taken().await? == before {
            ensure!(Instant::now() < deadline, "change {update} was not taken");
            sleep(Duration::from_millis(5)).await;
        }
        sleep(APART).await;
        samples.push(resident_bytes(pid)?);
        if update % SHOWN == 0 {
            let megabytes = samples.last().map_or(0.0, |bytes| *bytes as f64 / 1e6);
            println!("{update} of {updates} changes, {megabytes:.1} MB");
        }
    }
    Ok(samples)
}

/// Requests all the while, on connections of their own, for a listener that goes takes its
/// connections with it.
async fn requests(addresses: Addresses, updates: u64) -> Result<String> {
    let (mut sent, mut failed) = (0, 0);
    let deadline = Instant::now() + APART * updates as u32;
    while Instant::now() < deadline {
        let body = chat(1 << 10, sent, false);
        let mut options = LoadOptions::new(addresses.traffic, Bodies::List(vec![body.into()]));
        options.connections = 1;
        options.requests_max = Some(10);
        let report = run_load(options).await?;
        sent += report.requests;
        failed += report.requests - report.succeeded;
        sleep(Duration::from_millis(20)).await;
    }
    ensure!(failed == 0, "{failed} of {sent} requests failed");
    Ok(format!("{sent} requests meanwhile, all answered"))
}

const ENDPOINTS: usize = 16;

/// Between two changes.
const APART: Duration = Duration::from_millis(100);

/// How long Envoy may take for one.
const PATIENCE: Duration = Duration::from_secs(20);

/// One of so many changes is shown while it runs.
const SHOWN: u64 = 100;
