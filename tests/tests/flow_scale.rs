//! Requests wait for endpoints that are not there yet, and what their clients are told when none
//! comes.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use picker_tests::held::Held;
use picker_tests::queueing::{Asked, REASON, all_served};
use picker_tests::{DESTINATIONS, Draft, Stack, eventually, servers, set_faults};
use serde_json::{Value, json};
use sim::server::{Server, ServerOptions};
use xtask::compose::Destination;
use xtask::http::fetch;
use xtask::ports;

#[tokio::test(flavor = "multi_thread")]
async fn requests_wait_for_the_first_endpoint_and_autoscalers_see_it() -> Result<()> {
    for destination in DESTINATIONS {
        let addresses = [ports::free()?, ports::free()?];
        let mut stack = start_empty(destination, &addresses, json!({})).await?;
        let asked = (0..20).map(|_| stack.ask(&[])).collect();
        stack.wait_for_queue(0, 20).await?;
        let page = fetch(stack.addresses.admin, "/stats/prometheus")
            .await?
            .text();
        for name in ["llm_d_epp", "inference_extension"] {
            let line = format!(
                "{name}_flow_control_queue_size{{inference_pool=\"llm\",priority=\"0\"}} 20"
            );
            ensure!(page.lines().any(|it| it == line), "no {line} in {page}");
        }
        let options = ServerOptions {
            listen: addresses[1],
            ..servers(1).remove(0)
        };
        stack.servers.push(Server::start(options).await?);
        all_served(asked).await?;
        ensure!(stack.served().await? == [20], "{:?}", stack.served().await?);
        stack.wait_until_empty(&[0]).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_told_whether_there_was_no_room_or_nobody() -> Result<()> {
    let limits = json!({
        "defaultRequestTTL": "3s",
        "priorityBands": [{"priority": 0, "maxRequests": 3}],
    });
    for is_empty in [false, true] {
        let held = Held::start(1).await?;
        let stack = if is_empty {
            start_empty(Destination::OriginalDst, &[ports::free()?], limits.clone()).await?
        } else {
            Draft::queueing(&held, 4, 1, limits.clone())?
                .start()
                .await?
        };
        let running = (!is_empty).then(|| stack.ask(&[]));
        if running.is_some() {
            held.wait_for(1).await?;
        }
        let (status, full, late) = if is_empty {
            (503, "rejected-no-endpoints", "rejected-no-endpoints")
        } else {
            (429, "rejected-saturated", "rejected-ttl-expired")
        };
        let waiting: Vec<_> = (0..3).map(|_| stack.ask(&[])).collect();
        stack.wait_for_queue(0, 3).await?;
        let refused = stack.ask(&[]).await??;
        let told = |it: &picker_tests::queueing::Answer| {
            let reason = it.response.header(REASON).map(str::to_owned);
            (it.response.status, reason.unwrap_or_default())
        };
        assert_eq!(told(&refused), (status, full.to_owned()));
        for asked in waiting {
            let answer = asked.await??;
            assert_eq!(told(&answer), (status, late.to_owned()));
            let took = answer.took;
            let in_time = Duration::from_millis(2900)..Duration::from_millis(6000);
            ensure!(in_time.contains(&took), "after {took:?}");
        }
        held.let_go(1);
        all_served(running.into_iter().collect()).await?;
        stack.wait_until_empty(&[0]).await?;
        ensure!(held.came().len() == usize::from(!is_empty));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_outlives_the_last_endpoint() -> Result<()> {
    let options = ServerOptions {
        listen: ports::free()?,
        ..servers(1).remove(0)
    };
    let mut draft = Draft::new(Destination::OriginalDst, vec![options.clone()]).await?;
    draft.let_wait(2, json!({}))?;
    draft.concurrency = 4;
    let mut stack = draft.start().await?;
    set_faults(&stack.servers[0], &json!({"requests": "hang"}))?;
    let running: Vec<Asked> = (0..2).map(|_| stack.ask(&[])).collect();
    stack
        .wait("two run", |state| {
            state.endpoints().all(|it| it.in_flight == 2)
        })
        .await?;
    let waiting: Vec<Asked> = (0..20).map(|_| stack.ask(&[])).collect();
    stack.wait_for_queue(0, 20).await?;
    stack.servers.remove(0).stop().await;
    for asked in running {
        let status = asked.await??.response.status;
        ensure!(status >= 500, "{status}");
    }
    stack
        .wait("nobody listens", |state| {
            state.endpoints().all(|it| !it.reachable)
        })
        .await?;
    // As many as there was room for may have been sent there before that was known.
    let still = stack.queued(0).await?;
    ensure!(still >= 10, "only {still} wait on");
    stack.servers.push(Server::start(options).await?);
    let mut served = 0;
    for asked in waiting {
        served += u64::from(asked.await??.response.status == 200);
    }
    ensure!(served >= still, "{served} of {still} were served");
    stack.wait_until_empty(&[0]).await
}

/// An Envoy whose endpoints do not listen, and which knows that.
async fn start_empty(
    destination: Destination,
    addresses: &[SocketAddr],
    flow_control: Value,
) -> Result<Stack> {
    let mut draft = Draft::with_endpoints(destination, addresses)?;
    draft.concurrency = 4;
    draft.let_wait(10, flow_control)?;
    let stack = draft.start_cold().await?;
    stack
        .wait("nobody listens", |state| {
            state.endpoints().count() == addresses.len()
                && state.endpoints().all(|endpoint| !endpoint.reachable)
        })
        .await?;
    if destination == Destination::OverrideHost {
        let members = "cluster.llm.membership_total";
        let is_told = eventually(async || stack.stat(members).await.is_ok_and(|it| it > 0));
        ensure!(is_told.await, "Envoy knows no endpoint");
    }
    Ok(stack)
}
