//! Metrics that are missing, late or no metrics make an endpoint unknown: never idle, never full.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use picker_tests::load::{Load, LoadOptions};
use picker_tests::{DESTINATIONS, Draft, Stack, servers, set_faults};
use serde_json::json;
use sim::server::{Faults, MetricsFault, ServerOptions};
use xtask::compose::Destination;
use xtask::draw::Draw;
use xtask::state::{EndpointState, State};

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_with_a_page_that_says_nothing_is_neither_idle_nor_shunned() -> Result<()> {
    for fault in [
        MetricsFault::Empty,
        MetricsFault::Html,
        MetricsFault::NotFound,
    ] {
        let mut options = servers(3);
        options[0].faults = Faults {
            metrics: fault,
            ..Faults::default()
        };
        let stack = Draft::new(Destination::OriginalDst, options)
            .await?
            .start_cold()
            .await?;
        let odd = stack.servers[0].address().to_string();
        let state = stack
            .wait("the others are fresh", |state| {
                state.endpoints().filter(|endpoint| endpoint.fresh).count() == 2
            })
            .await?;
        let unknown = find(&state, &odd)?;
        assert!(!unknown.fresh, "{fault:?}");
        assert_eq!(
            (unknown.waiting, unknown.running),
            (None, None),
            "{fault:?}"
        );
        send(&stack, 60).await?;
        let served = stack.served().await?;
        assert!(
            served[0] <= 35,
            "{fault:?}: the unknown one draws the traffic: {served:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_that_stop_coming_grow_stale_and_no_request_fails() -> Result<()> {
    let mut draft = Draft::new(Destination::OriginalDst, servers(3)).await?;
    let scrape = &mut draft.pool()?["scrape"];
    scrape["stalenessThreshold"] = json!("500ms");
    scrape["timeout"] = json!("300ms");
    let stack = draft.start().await?;
    let odd = stack.servers[0].address().to_string();
    for fault in [
        "not-found",
        "error",
        "html",
        "empty",
        "hang",
        "cut",
        "slow:2000",
    ] {
        set_faults(&stack.servers[0], &json!({"metrics": fault}))?;
        let state = stack
            .wait(&format!("{fault} makes it stale"), |state| {
                find(state, &odd).is_ok_and(|endpoint| !endpoint.fresh)
            })
            .await?;
        let fresh = state.endpoints().filter(|endpoint| endpoint.fresh).count();
        assert_eq!(fresh, 2, "{fault}: the others are as before");
        send(&stack, 10).await?;
        set_faults(&stack.servers[0], &json!({"metrics": "ok"}))?;
        stack
            .wait(&format!("{fault} is over"), |state| {
                find(state, &odd).is_ok_and(|endpoint| endpoint.fresh)
            })
            .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_metrics_requests_are_spread_by_what_is_in_flight() -> Result<()> {
    for destination in DESTINATIONS {
        let mut draft = Draft::new(destination, servers(3)).await?;
        let scrape = &mut draft.pool()?["scrape"];
        scrape["stalenessThreshold"] = json!("500ms");
        scrape["timeout"] = json!("300ms");
        let stack = draft.start().await?;
        let options = LoadOptions {
            clients: 6,
            patience: Duration::from_secs(10),
        };
        let load = Load::start(stack.addresses.traffic, options);
        load.more(50).await?;
        for (server, fault) in stack.servers.iter().zip(["error", "hang", "html"]) {
            set_faults(server, &json!({"metrics": fault}))?;
        }
        let none_fresh = |state: &State| state.endpoints().all(|endpoint| !endpoint.fresh);
        stack.wait("all are stale", none_fresh).await?;
        let during = load.more(300).await?;
        let state = stack.state().await?;
        let served: Vec<usize> = stack
            .servers
            .iter()
            .map(|it| during.served_by(it))
            .collect();
        println!(
            "{destination:?}, no metrics: {served:?}, {} failed",
            during.failed()
        );
        assert!(none_fresh(&state), "{state:?}");
        assert!(served.iter().all(|count| *count >= 50), "{served:?}");
        for server in &stack.servers {
            set_faults(server, &json!({"metrics": "ok"}))?;
        }
        let all_fresh = |state: &State| state.endpoints().all(|endpoint| endpoint.fresh);
        stack.wait("all are fresh again", all_fresh).await?;
        let tally = load.stop().await?;
        assert_eq!(tally.failed(), 0, "{tally:?}");
        stack.wait_until_idle().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_good_metrics_hold_until_they_are_stale() -> Result<()> {
    let mut draft = Draft::new(Destination::OriginalDst, servers(2)).await?;
    draft.pool()?["scrape"]["stalenessThreshold"] = json!("2s");
    let stack = draft.start().await?;
    let odd = stack.servers[0].address().to_string();
    let begun = Instant::now();
    set_faults(&stack.servers[0], &json!({"metrics": "error"}))?;
    stack
        .wait("it is stale", |state| {
            find(state, &odd).is_ok_and(|endpoint| !endpoint.fresh)
        })
        .await?;
    let took = begun.elapsed();
    assert!(
        took > Duration::from_millis(1500),
        "given up after {took:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn before_the_first_scrape_requests_are_served_and_spread() -> Result<()> {
    let slow = ServerOptions {
        faults: Faults {
            metrics: MetricsFault::Slow(Duration::from_secs(5)),
            ..Faults::default()
        },
        ..servers(1).remove(0)
    };
    let mut draft = Draft::new(Destination::OriginalDst, vec![slow; 3]).await?;
    draft.pool()?["scrape"]["timeout"] = json!("8s");
    let stack = draft.start_cold().await?;
    send(&stack, 30).await?;
    let state = stack.state().await?;
    assert!(
        state.endpoints().all(|endpoint| !endpoint.fresh),
        "the pages came too early"
    );
    let served = stack.served().await?;
    assert!(served.iter().all(|served| *served <= 20), "{served:?}");
    Ok(())
}

/// Sends prompts that share nothing, one after the other; each must be served.
async fn send(stack: &Stack, count: usize) -> Result<()> {
    let mut draw = Draw::new(count as u64);
    for _ in 0..count {
        let response = stack.chat(&draw.prose(200)).await?;
        assert_eq!(response.status, 200, "{}", response.text());
    }
    Ok(())
}

fn find<'a>(state: &'a State, address: &str) -> Result<&'a EndpointState> {
    let mut endpoints = state.endpoints();
    endpoints
        .find(|endpoint| endpoint.address == address)
        .context("no such endpoint")
}
