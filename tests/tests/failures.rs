//! What dies is replaced: a worker's virtual machine, and the collector.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use picker_tests::load::{Load, LoadOptions};
use picker_tests::{CHAT, Draft, Stack, chat_body, eventually, servers};
use xtask::compose::Destination;

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_panics_comes_back_and_the_other_goes_on() -> Result<()> {
    let mut draft = Draft::new(Destination::OriginalDst, servers(2)).await?;
    draft.use_test_build()?;
    let stack = draft.start().await?;
    // Two connections are two workers: Envoy gives each new one to the worker with the fewest.
    let mut one = stack.connect().await?;
    let mut other = stack.connect().await?;
    let body = chat_body("hello", 1);
    for connection in [&mut one, &mut other] {
        let response = connection
            .request("POST", CHAT, &[JSON], body.as_bytes())
            .await?;
        ensure!(response.status == 200, "{}", response.text());
    }
    let before = stack
        .wait("both workers have a row", |state| {
            state.workers().count() == 2
        })
        .await?;
    let sent_before: u64 = before.workers().map(|worker| worker.sent).sum();

    let panic = [JSON, ("x-picker-test", "panic")];
    let response = one.request("POST", CHAT, &panic, body.as_bytes()).await?;
    ensure!(
        response.status == 503,
        "the request that panicked got {}",
        response.status
    );
    for _ in 0..20 {
        let response = other
            .request("POST", CHAT, &[JSON], body.as_bytes())
            .await?;
        ensure!(
            response.status == 200,
            "the other worker: {}",
            response.status
        );
    }
    let panicked = Instant::now();
    let mut came_back = None;
    eventually(async || {
        // While the other connection is open, a new one mostly goes to the worker that panicked.
        let served = stack
            .chat("hello")
            .await
            .is_ok_and(|response| response.status == 200);
        let reloads = stack
            .stat("wasm.picker.vm_reload_success")
            .await
            .unwrap_or(0);
        if served && reloads > 0 {
            came_back = Some(panicked.elapsed());
        }
        came_back.is_some()
    })
    .await;
    let came_back = came_back.unwrap_or(Duration::MAX);
    ensure!(
        came_back < Duration::from_secs(4),
        "not back within {came_back:?}"
    );
    let rows = stack.wait("both workers have a live row", |state| {
        let alive = |age: Option<f64>| age.is_some_and(|age| age < 1000.0);
        let live = state
            .workers()
            .filter(|worker| alive(worker.heartbeat_age_ms));
        live.count() == 2
    });
    let rows = rows.await?;
    ensure!(sent_before >= 2, "{before:#?} {rows:#?}");
    stack.wait_until_idle().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_under_load_costs_what_its_worker_had_and_what_comes_until_it_is_back() -> Result<()>
{
    let mut draft = Draft::new(Destination::OriginalDst, servers(3)).await?;
    draft.use_test_build()?;
    let stack = draft.start().await?;
    let options = LoadOptions {
        clients: 8,
        patience: Duration::from_secs(5),
    };
    let load = Load::start(stack.addresses.traffic, options);
    ensure!(load.more(100).await?.failed() == 0, "before the panic");
    let body = chat_body("hello", 1);
    let panic = [JSON, ("x-picker-test", "panic")];
    let panicked = Instant::now();
    stack.request("POST", CHAT, &panic, body.as_bytes()).await?;
    let reloaded = "wasm.picker.vm_reload_success";
    let is_back = eventually(async || stack.stat(reloaded).await.is_ok_and(|count| count > 0));
    ensure!(is_back.await, "the worker did not come back");
    let back = panicked.elapsed();
    let after = load.more(300).await?;
    let tally = load.stop().await?;
    println!(
        "panic: {} of {} failed, back after {back:.1?}",
        tally.failed(),
        tally.outcomes.len()
    );
    ensure!(after.failed() <= options.clients, "it fails on: {after:?}");
    let answers = [Some(200), Some(503), None];
    let odd = tally
        .outcomes
        .iter()
        .find(|it| !answers.contains(&it.status));
    ensure!(odd.is_none(), "{odd:?}");
    stack.wait_until_idle().await?;
    let active = stack.stat("cluster.llm.upstream_rq_active").await?;
    ensure!(active == 0, "Envoy has {active} requests in flight");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_collector_is_replaced_within_two_lease_times() -> Result<()> {
    let mut draft = Draft::new(Destination::OriginalDst, servers(2)).await?;
    draft.use_test_build()?;
    let stack = draft.start().await?;
    let body = chat_body("hello", 1);
    let panic = [JSON, ("x-picker-test", "panic-collector")];
    stack.request("POST", CHAT, &panic, body.as_bytes()).await?;
    let line = stack.wait_for_line(&["planted panic", "collector"]).await?;
    ensure!(!line.is_empty(), "the collector did not die");
    let gap = longest_gap(&stack).await?;
    // The lease lasts 500 ms; to it come the age of the last page and the tick that notices.
    ensure!(
        gap < Duration::from_millis(1000 + 200),
        "no metrics for {gap:?}"
    );
    for _ in 0..10 {
        let response = stack.chat("hello").await?;
        ensure!(response.status == 200, "{}", response.text());
    }
    stack
        .wait("it collects again", |state| {
            let is_new = |age: Option<f64>| age.is_some_and(|age| age < 300.0);
            state
                .collector
                .as_ref()
                .is_some_and(|collector| collector.held)
                && state.endpoints().all(|endpoint| is_new(endpoint.age_ms))
        })
        .await?;
    Ok(())
}

/// The oldest that any endpoint's metrics get within two seconds.
async fn longest_gap(stack: &Stack) -> Result<Duration> {
    let begun = Instant::now();
    let mut oldest = 0.0f64;
    while begun.elapsed() < Duration::from_secs(2) {
        let state = stack.state().await?;
        let ages = state.endpoints().filter_map(|endpoint| endpoint.age_ms);
        oldest = ages.fold(oldest, f64::max);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(Duration::from_secs_f64(oldest / 1000.0))
}

const JSON: (&str, &str) = ("content-type", "application/json");
