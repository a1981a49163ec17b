//! `cargo xtask bench scale`: what the collector costs while nothing else happens.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use tokio::time::sleep;

use super::subject::{Bench, Host, Subject};
use super::upstream::Upstream;
use crate::envoy::Envoy;
use crate::ready::{ready, stat};
use crate::wasm::{self, Variant};

/// The arguments of `cargo xtask bench scale`.
#[derive(Clone, Debug, Args)]
pub struct ScaleArguments {
    /// Numbers of endpoints
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10, 100, 500])]
    endpoints: Vec<usize>,
    /// Kilobytes of a metrics page
    #[arg(long, value_name = "KB", default_value_t = 50)]
    page: usize,
    /// For how long to measure
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    seconds: u64,
}

/// Measures and prints the table.
pub(super) fn scale(arguments: &ScaleArguments) -> Result<()> {
    let wasm = wasm::build(Variant::Shipped)?;
    let envoy = Envoy::find(None)?;
    println!(
        "Using {envoy}; pages of {} KB, every 100 ms",
        arguments.page
    );
    println!(
        "{:>10} {:>10} {:>12} {:>8}",
        "endpoints", "scrapes/s", "CPU (cores)", "RSS MB"
    );
    let runtime = tokio::runtime::Runtime::new()?;
    for endpoints in &arguments.endpoints {
        let upstream = Upstream::start(*endpoints, None);
        let upstream = runtime.block_on(upstream)?;
        upstream.pad_pages(arguments.page * 1024);
        let bench = Bench::new(&envoy, &wasm, upstream.addresses());
        let line = idle(&bench, Duration::from_secs(arguments.seconds));
        println!("{endpoints:>10} {}", runtime.block_on(line)?);
    }
    Ok(())
}

async fn idle(bench: &Bench<'_>, length: Duration) -> Result<String> {
    let subject = Subject::start(bench, Host::Wasm { copies: 1 }).await?;
    ready(subject.addresses).await?;
    let scrapes = || {
        stat(
            subject.addresses,
            "wasmcustom.picker_scrapes_total;pool=llm",
        )
    };
    let (begun, cpu, before) = (Instant::now(), subject.cpu()?, scrapes().await?);
    sleep(length).await;
    let (used, after) = (subject.cpu()?.since(cpu), scrapes().await?);
    let seconds = begun.elapsed().as_secs_f64();
    let line = format!(
        "{:>10.0} {:>12.3} {:>8.1}",
        (after - before) as f64 / seconds,
        used.total.as_secs_f64() / seconds,
        subject.rss_bytes()? as f64 / 1e6,
    );
    subject.stop().await?;
    Ok(line)
}
