//! One endpoint is in trouble: the others serve, it does not become the favourite for being fast,
//! and it comes back when the trouble is over.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use picker_tests::load::{Load, LoadOptions};
use picker_tests::{Draft, Stack, eventually, servers, set_faults};
use serde_json::{Value, json};
use xtask::compose::Destination;

#[tokio::test(flavor = "multi_thread")]
async fn the_others_serve_while_one_is_in_trouble() -> Result<()> {
    in_trouble(Destination::OriginalDst).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_others_serve_while_one_is_in_trouble_with_fallbacks() -> Result<()> {
    in_trouble(Destination::OverrideHost).await
}

async fn in_trouble(destination: Destination) -> Result<()> {
    let stack = Draft::new(destination, servers(3)).await?.start().await?;
    for [trouble, over] in troubles() {
        let what = format!("{destination:?} {trouble}");
        one(&stack, &trouble, &over).await.context(what.clone())?;
        stack.wait_until_idle().await.context(what)?;
    }
    Ok(())
}

/// Puts the first server into trouble and out of it again, under load.
async fn one(stack: &Stack, trouble: &Value, over: &Value) -> Result<()> {
    let [odd, others @ ..] = stack.servers.as_slice() else {
        bail!("no servers")
    };
    let options = LoadOptions {
        clients: 8,
        patience: Duration::from_secs(1),
    };
    let load = Load::start(stack.addresses.traffic, options);
    let before = load.more(100).await?;
    set_faults(odd, trouble)?;
    let begun = Instant::now();
    let during = load.more(CHATS).await?;
    let took = begun.elapsed();
    set_faults(odd, over)?;
    let ended = Instant::now();
    let served = load.tally().served_by(odd);
    let is_back = eventually(async || load.tally().served_by(odd) > served + 5).await;
    let back = ended.elapsed();
    load.stop().await?;
    println!(
        "{trouble}: {} of {} failed in {took:.1?}, back after {back:.1?}",
        during.failed(),
        during.outcomes.len()
    );
    ensure!(before.failed() == 0, "before: {before:?}");
    ensure!(during.failed() <= FAILED_MAX, "{} failed", during.failed());
    for other in others {
        let served = during.served_by(other);
        ensure!(served > CHATS / 4, "another served only {served}");
    }
    ensure!(is_back, "it did not come back");
    Ok(())
}

/// Faults of one server and how they end.
fn troubles() -> Vec<[Value; 2]> {
    let kinds = [
        "hang",
        "reset",
        "cut",
        "error:500",
        "error:503",
        "error:429",
    ];
    let mut all: Vec<[Value; 2]> = kinds
        .map(|kind| [kind, "ok"].map(|requests| json!({"requests": requests})))
        .into();
    all.push([true, false].map(|refuse| json!({"refuse": refuse})));
    all
}

/// Requests sent while an endpoint is in trouble.
const CHATS: usize = 800;

/// How many of them may fail, those that find out and those that find out again: far fewer than the
/// third that is its fair share. A favourite would get most of them.
const FAILED_MAX: usize = CHATS / 6;
