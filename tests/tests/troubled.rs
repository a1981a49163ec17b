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

#[tokio::test(flavor = "multi_thread")]
async fn with_no_endpoint_left_requests_fail_at_once_and_are_served_as_soon_as_one_is_back()
-> Result<()> {
    for mode in ["FailOpen", "FailClose"] {
        let mut draft = Draft::new(Destination::OriginalDst, servers(3)).await?;
        draft.pool()?["failureMode"] = json!(mode);
        let stack = draft.start().await?;
        for server in &stack.servers {
            set_faults(server, &json!({"refuse": true}))?;
        }
        for _ in 0..20 {
            let begun = Instant::now();
            let response = stack.chat("hello").await?;
            let took = begun.elapsed();
            ensure!(response.status == 503, "{mode}: {}", response.status);
            ensure!(took < Duration::from_secs(2), "{mode}: {took:?}");
        }
        set_faults(&stack.servers[1], &json!({"refuse": false}))?;
        let back = Instant::now();
        let is_served = async || stack.chat("hello").await.is_ok_and(|it| it.status == 200);
        ensure!(
            eventually(is_served).await,
            "{mode}: it is not served again"
        );
        println!("{mode}: served {:.1?} after one is back", back.elapsed());
        for _ in 0..20 {
            let response = stack.chat("hello").await?;
            ensure!(response.status == 200, "{mode}: {}", response.status);
        }
        stack.wait_until_idle().await?;
    }
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
        "error-event",
    ];
    let mut all: Vec<[Value; 2]> = kinds
        .map(|kind| [kind, "ok"].map(|requests| json!({"requests": requests})))
        .into();
    all.push([true, false].map(|refuse| json!({"refuse": refuse})));
    all
}

/// Requests sent while an endpoint is in trouble.
const CHATS: usize = 500;

/// How many of them may fail, those that find out and those that find out again: far fewer than the
/// third that is its fair share. A favourite would get most of them.
const FAILED_MAX: usize = CHATS / 6;
