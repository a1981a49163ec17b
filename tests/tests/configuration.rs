//! A bad configuration is refused with one line that says where, what and how to mend it, and what
//! Envoy takes but should not is found in its own account of it.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use picker_tests::load::{Load, LoadOptions};
use picker_tests::{
    CHAT, DESTINATIONS, Draft, MODEL, Stack, directory, envoy, eventually, servers,
};
use serde_json::{Value, json};
use sim::server::ServerOptions;
use xtask::bootstrap::Bootstrap;
use xtask::compose::Destination;
use xtask::config::{Finding, check};
use xtask::http::{Connection, fetch};
use xtask::proxy::validate;
use xtask::pushed::Pushed;

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_configuration_is_refused_with_one_line_that_names_path_and_fix() -> Result<()> {
    let endpoint = "127.0.0.1:9".parse()?;
    let cases: [(Change, &[&str]); 5] = [
        (
            |pool| pool["enginee"] = json!("vllm"),
            &["pools[0]", "enginee", "engine"],
        ),
        (
            |pool| pool["engine"] = json!("vlm"),
            &["pools[0].engine", "vlm", "vllm"],
        ),
        (
            |pool| pool["endpoints"] = json!([{"address": "gpu1:8000"}]),
            &["pools[0].endpoints[0].address", "gpu1:8000"],
        ),
        (
            |pool| pool["scrape"]["interval"] = json!("fast"),
            &["pools[0].scrape.interval", "fast"],
        ),
        (
            |pool| pool["limits"]["requestBodyBytes"] = json!(-1),
            &["requestBodyBytes", "-1"],
        ),
    ];
    for (change, words) in cases {
        let mut draft = Draft::with_endpoints(Destination::OriginalDst, &[endpoint])?;
        change(draft.pool()?);
        draft.bootstrap.set_picker(&draft.document)?;
        refused(&draft.bootstrap, words).await?;
    }
    let mut draft = Draft::with_endpoints(Destination::OriginalDst, &[endpoint])?;
    draft.bootstrap.set_picker_text("{\"pools\": [")?;
    refused(&draft.bootstrap, &["JSON"]).await
}

/// A change of the pool's document.
type Change = fn(&mut Value);

/// Checks that both a validation and a start are refused, with the same single line of ours.
async fn refused(bootstrap: &Bootstrap, words: &[&str]) -> Result<()> {
    let validated = validate(envoy()?, bootstrap, &directory()).await;
    let validated = validated
        .err()
        .with_context(|| format!("{words:?} was taken"))?
        .to_string();
    let line = our_line(&validated)?;
    for word in words {
        ensure!(line.contains(word), "no {word:?} in: {line}");
    }
    let options = xtask::proxy::ProxyOptions {
        concurrency: Some(1),
        directory: directory(),
        ..Default::default()
    };
    let started = xtask::proxy::Proxy::start(envoy()?, bootstrap, &options).await;
    let started = started.err().context("Envoy started all the same")?;
    ensure!(
        our_line(&format!("{started:#}"))? == line,
        "a start says something else"
    );
    Ok(())
}

/// The picker's message in a log: the only Critical line of its own.
fn our_line(log: &str) -> Result<String> {
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("picker: configuration refused"))
        .collect();
    let critical = lines
        .iter()
        .filter(|line| line.contains("[critical]"))
        .count();
    ensure!(
        lines.len() == 1 && critical == 1,
        "{critical} critical of {lines:?} in {log}"
    );
    let message = lines
        .first()
        .and_then(|line| line.split_once("picker: "))
        .context("no line")?;
    Ok(message.1.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_configuration_pushed_to_a_running_envoy_is_refused_and_nothing_fails() -> Result<()>
{
    let mut draft = Draft::new(Destination::OriginalDst, servers(2)).await?;
    draft.bootstrap.set_picker(&draft.document)?;
    let pushed = Pushed::new(&mut draft.bootstrap, &directory())?;
    let stack = start_without_picker(draft).await?;
    let rejected = "listener_manager.lds.update_rejected";
    let accepted = "listener_manager.lds.update_success";
    let before = stack.stat(accepted).await?;
    let load = Load::start(stack.addresses.traffic, ONE_CLIENT);
    load.more(30).await?;

    pushed.push(|pool| pool["enginee"] = json!("vllm"))?;
    let was_rejected = eventually(async || stack.stat(rejected).await.is_ok_and(|count| count > 0));
    ensure!(was_rejected.await, "the bad configuration was not refused");
    stack
        .wait_for_line(&["picker: configuration refused", "enginee"])
        .await?;

    load.more(30).await?;
    pushed.push(|pool| pool["scrape"]["interval"] = json!("50ms"))?;
    let was_accepted =
        eventually(async || stack.stat(accepted).await.is_ok_and(|count| count > before));
    ensure!(was_accepted.await, "a good configuration was refused");
    load.more(30).await?;
    let tally = load.stop().await?;
    ensure!(tally.failed() == 0, "some requests failed: {tally:?}");
    stack.wait_until_idle().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn configurations_in_quick_succession_lose_no_request_and_cut_no_stream() -> Result<()> {
    let slow = ServerOptions {
        time_scale: 1.0,
        ..ServerOptions::default()
    };
    let mut draft = Draft::new(Destination::OriginalDst, vec![slow; 3]).await?;
    draft.bootstrap.set_picker(&draft.document)?;
    let pushed = Pushed::new(&mut draft.bootstrap, &directory())?;
    let stack = start_without_picker(draft).await?;
    let accepted = "listener_manager.lds.update_success";
    let options = LoadOptions {
        clients: 4,
        ..ONE_CLIENT
    };
    let load = Load::start(stack.addresses.traffic, options);
    // Streams that outlast all updates.
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push(tokio::spawn(stream(stack.connect().await?, UPDATES * 50)));
    }
    load.more(20).await?;
    for update in 0..UPDATES {
        let before = stack.stat(accepted).await?;
        push_nth(&pushed, update)?;
        let is_there = async || stack.stat(accepted).await.is_ok_and(|count| count > before);
        ensure!(eventually(is_there).await, "update {update} was refused");
        load.more(20).await?;
        let under_way = streams.iter().all(|stream| !stream.is_finished());
        ensure!(update > 0 || under_way, "the streams are over too early");
    }
    let mut cut = 0;
    for stream in streams {
        cut += usize::from(!stream.await??);
    }
    let tally = load.stop().await?;
    println!(
        "{UPDATES} updates: {} of {} requests failed, {cut} of 4 streams cut",
        tally.failed(),
        tally.outcomes.len()
    );
    ensure!(tally.failed() == 0, "some requests failed: {tally:?}");
    ensure!(cut == 0, "{cut} streams were cut");
    stack.wait_until_idle().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_was_replaced_leaves_no_conflict_behind() -> Result<()> {
    let mut draft = Draft::new(Destination::OriginalDst, servers(2)).await?;
    draft.bootstrap.set_picker(&draft.document)?;
    draft.arguments = &["--drain-time-s", "2"];
    let pushed = Pushed::new(&mut draft.bootstrap, &directory())?;
    let stack = start_without_picker(draft).await?;
    let conflicts = || stack.stat("wasmcustom.picker_config_conflict;pool=llm");
    ensure!(conflicts().await? == 0, "a conflict with nobody");
    push_nth(&pushed, 0)?;
    let is_told = eventually(async || conflicts().await.is_ok_and(|count| count == 1));
    ensure!(
        is_told.await,
        "the old configuration does not say that it is superseded"
    );
    let is_over = eventually(async || conflicts().await.is_ok_and(|count| count == 0));
    ensure!(
        is_over.await,
        "the old configuration is gone and the conflict is not"
    );
    let state = stack.state().await?;
    ensure!(state.endpoints().count() == 2, "{state:#?}");
    Ok(())
}

/// Streams `tokens` tokens; whether the end came.
async fn stream(mut connection: Connection, tokens: usize) -> Result<bool> {
    let body = json!({
        "model": MODEL,
        "stream": true,
        "max_tokens": tokens,
        "messages": [{"role": "user", "content": "Tell me all."}],
    });
    let body = body.to_string();
    let headers = [("content-type", "application/json")];
    let response = connection
        .request("POST", CHAT, &headers, body.as_bytes())
        .await;
    Ok(response.is_ok_and(|it| it.status == 200 && it.text().ends_with("data: [DONE]\n\n")))
}

/// Replaces the configuration by one that differs from the one before.
fn push_nth(pushed: &Pushed, number: usize) -> Result<()> {
    const CHANGES: [Change; 3] = [
        |pool| pool["scrape"]["interval"] = json!("50ms"),
        |pool| pool["limits"]["requestBodyBytes"] = json!("16Mi"),
        |pool| pool["scrape"]["timeout"] = json!("2s"),
    ];
    pushed.push(CHANGES[number % CHANGES.len()])
}

/// Starts a draft whose listener for clients comes from a file, and waits until it is there.
async fn start_without_picker(mut draft: Draft) -> Result<Stack> {
    draft.has_picker = false;
    let stack = draft.start().await?;
    let is_there = eventually(async || stack.chat("hello").await.is_ok());
    ensure!(is_there.await, "the listener did not come");
    Ok(stack)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_check_understands_what_envoy_tells_of_its_configuration() -> Result<()> {
    let endpoint = "127.0.0.1:9".parse()?;
    for destination in DESTINATIONS {
        let draft = Draft::with_endpoints(destination, &[endpoint])?;
        let stack = draft.start_cold().await?;
        let findings = check_dump(&stack).await?;
        ensure!(findings.is_empty(), "{destination:?}: {findings:#?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_check_finds_a_missing_setting_in_a_listener_that_came_later() -> Result<()> {
    let mut draft = Draft::new(Destination::OriginalDst, servers(1)).await?;
    draft.bootstrap.set_picker(&draft.document)?;
    let manager = draft.bootstrap.manager_mut("traffic")?;
    let removed = manager
        .as_object_mut()
        .and_then(|it| it.remove("stream_idle_timeout"));
    ensure!(removed.is_some(), "the setting was not there");
    let _pushed = Pushed::new(&mut draft.bootstrap, &directory())?;
    let stack = start_without_picker(draft).await?;
    let findings = check_dump(&stack).await?;
    let [one] = findings.as_slice() else {
        bail!("{findings:#?}")
    };
    let line = one.to_string();
    for word in ["listener.filter_chains", "stream_idle_timeout", "300 s"] {
        ensure!(line.contains(word), "no {word} in: {line}");
    }
    Ok(())
}

/// What `cargo xtask config check --envoy` says of a running Envoy.
async fn check_dump(stack: &Stack) -> Result<Vec<Finding>> {
    let dump = fetch(stack.proxy.admin(), "/config_dump").await?.text();
    check(&[("dump.json".to_owned(), dump)])
}

/// One request after the other.
const ONE_CLIENT: LoadOptions = LoadOptions {
    clients: 1,
    patience: Duration::from_secs(10),
};

/// How many configurations are pushed in a row.
const UPDATES: usize = 6;
