//! Requests that wait when a configuration goes, a listener drains or a virtual machine dies.

use std::time::Duration;

use anyhow::{Result, ensure};
use picker_tests::held::Held;
use picker_tests::queueing::{Asked, REASON, all_served, answers, stream_body};
use picker_tests::{CHAT, Draft, Stack, directory, eventually, servers, set_faults};
use serde_json::json;
use tokio::time::Instant;
use xtask::compose::Destination;
use xtask::http::{Length, head, post};
use xtask::pushed::Pushed;

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_goes_on_waiting_under_its_old_configuration_and_is_served() -> Result<()> {
    for workers in [1, 4] {
        let held = Held::start(1).await?;
        let (stack, pushed) = start_pushed(&held, workers, &[]).await?;
        let mut asked = vec![stack.ask(&[])];
        held.wait_for(1).await?;
        asked.extend((0..20).map(|_| stack.ask(&[])));
        stack.wait_for_queue(0, 20).await?;
        push(&stack, &pushed).await?;
        // Those that come now wait behind them, in the new one.
        for late in 1..=5 {
            asked.push(stack.ask(&[("x-name", "late")]));
            stack.wait_for_queue(0, 20 + late).await?;
        }
        for came in 2..=26 {
            held.let_go(1);
            held.wait_for(came).await?;
        }
        held.let_go(1);
        all_served(asked).await?;
        ensure!(held.most() == 1, "{} at once", held.most());
        let names = held.names();
        ensure!(names[21..].iter().all(|it| it == "late"), "{names:?}");
        stack.wait_until_empty(&[0]).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_still_waits_when_its_configuration_goes_ends_then() -> Result<()> {
    for workers in [1, 4] {
        let held = Held::start(1).await?;
        let (stack, pushed) = start_pushed(&held, workers, &["--drain-time-s", "1"]).await?;
        let running = stack.ask(&[]);
        held.wait_for(1).await?;
        let asked: Vec<Asked> = (0..20).map(|_| stack.ask(&[])).collect();
        stack.wait_for_queue(0, 20).await?;
        push(&stack, &pushed).await?;
        let pushed_at = Instant::now();
        let mut told = 0;
        for asked in asked {
            // Envoy cuts what is left of a configuration at the end of its drain time.
            let Ok(answer) = asked.await? else { continue };
            let (status, reason) = (answer.response.status, answer.response.header(REASON));
            ensure!(
                (status, reason) == (503, Some("rejected-shutting-down")),
                "{status} {reason:?}"
            );
            told += 1;
        }
        let took = pushed_at.elapsed();
        println!("{workers} workers: {told} of 20 were told, all ended after {took:.1?}");
        ensure!(took < Duration::from_secs(5), "after {took:?}");
        ensure!(running.await?.is_err(), "Envoy has not cut the stream");
        held.wait_for_in_flight(0).await?;
        held.let_go(1);
        all_served(vec![stack.ask(&[])]).await?;
        ensure!(held.came().len() == 2, "{:?}", held.names());
        stack.wait_until_empty(&[0]).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_served_while_the_listeners_drain() -> Result<()> {
    let held = Held::start(1).await?;
    let stack = Draft::queueing(&held, 4, 1, json!({}))?.start().await?;
    let mut asked = vec![stack.ask(&[])];
    held.wait_for(1).await?;
    asked.extend((0..20).map(|_| stack.ask(&[])));
    stack.wait_for_queue(0, 20).await?;
    let path = "/drain_listeners?graceful";
    let response = post(stack.addresses.admin, path, b"").await?;
    ensure!(response.status == 200, "{}", response.text());
    held.let_go(21);
    all_served(asked).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_takes_along_what_waits_in_it_and_nothing_else() -> Result<()> {
    let held = Held::start(1).await?;
    let mut draft = Draft::queueing(&held, 2, 1, json!({}))?;
    draft.use_test_build()?;
    let manager = draft.bootstrap.manager_mut("traffic")?;
    manager["stream_idle_timeout"] = json!("4s");
    let stack = draft.start().await?;
    let mut running = stack.connect().await?;
    let body = stream_body("hello");
    let length = Length::Known(body.len());
    running.send(&head("POST", CHAT, &[], length)).await?;
    running.send(body.as_bytes()).await?;
    held.wait_for(1).await?;
    let asked: Vec<Asked> = (0..10).map(|_| stack.ask(&[])).collect();
    stack.wait_for_queue(0, 10).await?;
    // One worker has six connections and the other five, and so the latter gets this one.
    let panic = [("x-picker-test", "panic")];
    let response = stack.request("POST", CHAT, &panic, body.as_bytes()).await?;
    ensure!(response.status == 503, "{}", response.status);
    stack.wait_for_queue(0, 5).await?;
    // The others do not wait for those that were before them, once it is known that they are gone.
    held.let_go(6);
    let mut statuses = Vec::new();
    for asked in asked {
        let answer = asked.await??;
        let status = answer.response.status;
        statuses.push(status);
        // No call reaches the streams of a virtual machine that is gone: Envoy ends them when they
        // have been silent for too long.
        let is_in_time = answer.took < Duration::from_secs(if status == 200 { 2 } else { 6 });
        ensure!(is_in_time, "{status} after {:?}", answer.took);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [[200; 5], [503; 5]].concat());
    ensure!(held.came().len() == 6, "{:?}", held.names());
    drop(running);
    stack.wait_until_empty(&[0]).await?;
    held.let_go(4);
    let asked = (0..4).map(|_| stack.ask(&[])).collect();
    all_served(asked).await
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_that_do_not_come_hold_nobody_up() -> Result<()> {
    let mut draft = Draft::new(Destination::OriginalDst, servers(1)).await?;
    // How full an endpoint is, is what its metrics say.
    draft.pool()?["picker"] = json!({"featureGates": ["flowControl"]});
    let stack = draft.start().await?;
    all_served(vec![stack.ask(&[])]).await?;
    for fault in ["hang", "error", "html", "slow:3000"] {
        set_faults(&stack.servers[0], &json!({"metrics": fault}))?;
        // From a little late to much too old.
        let begun = Instant::now();
        let mut is_old = false;
        while !is_old {
            let late = stack.state().await?;
            is_old = late.endpoints().all(|it| !it.fresh);
            let asked = [(); 3].map(|()| stack.ask(&[]));
            for answer in answers(asked.into()).await? {
                assert_eq!(answer.response.status, 200);
                let took = answer.took;
                ensure!(took < Duration::from_secs(1), "{fault}: {took:?}");
            }
            let limit = Duration::from_secs(10);
            ensure!(begun.elapsed() < limit, "{fault}: {late:#?}");
        }
        set_faults(&stack.servers[0], &json!({"metrics": "ok"}))?;
        let fresh = stack.wait("metrics are fresh", |state| {
            state.endpoints().all(|it| it.fresh)
        });
        fresh.await?;
    }
    stack.wait_until_empty(&[0]).await
}

/// An Envoy whose listener comes from a file, and room for one request.
async fn start_pushed(
    held: &Held,
    workers: u32,
    arguments: &'static [&'static str],
) -> Result<(Stack, Pushed)> {
    let mut draft = Draft::queueing(held, workers, 1, json!({}))?;
    draft.bootstrap.set_picker(&draft.document)?;
    (draft.arguments, draft.has_picker) = (arguments, false);
    let pushed = Pushed::new(&mut draft.bootstrap, &directory())?;
    let stack = draft.start().await?;
    let is_there = eventually(async || stack.connect().await.is_ok());
    ensure!(is_there.await, "the listener did not come");
    Ok((stack, pushed))
}

/// Replaces the configuration and waits until Envoy has taken it.
async fn push(stack: &Stack, pushed: &Pushed) -> Result<()> {
    let accepted = "listener_manager.lds.update_success";
    let before = stack.stat(accepted).await?;
    pushed.push(|pool| pool["limits"]["requestBodyBytes"] = json!("16Mi"))?;
    let is_taken = eventually(async || stack.stat(accepted).await.is_ok_and(|it| it > before));
    ensure!(is_taken.await, "the configuration was not taken");
    Ok(())
}
