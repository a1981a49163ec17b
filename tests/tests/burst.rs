//! Requests that come at once are held for a moment, and those of one prompt go to one server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use picker_tests::queueing::{Asked, answers};
use picker_tests::{CHAT, Draft, Stack, chat_body, eventually, servers};
use serde_json::{Value, json};
use tokio::time::sleep;
use xtask::compose::Destination;
use xtask::draw::Draw;

#[tokio::test(flavor = "multi_thread")]
async fn each_prompt_of_a_burst_goes_to_one_server() -> Result<()> {
    let stack = start(json!({"windowDurationMs": WINDOW_MS})).await?;
    let placed = place(&stack).await?;
    let mut homes: Vec<&[String]> = placed.chunks(4).collect();
    let is_one = homes.iter().all(|of| of.iter().all(|it| *it == of[0]));
    homes.dedup_by_key(|of| &of[0]);
    ensure!(is_one && homes.len() == 3, "{placed:?}");
    ensure!(stack.served().await? == [4, 4, 4], "{placed:?}");
    let waited = waited(&stack, 12).await?;
    let longest = waited.iter().max().copied().unwrap_or_default();
    // The first of them waits for the whole window, and nobody for much longer.
    let window = WINDOW_MS..=WINDOW_MS + LATE_MS;
    ensure!(window.contains(&longest), "{waited:?}");
    stack.wait_until_idle().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_batch_is_sent_before_its_window_is_over() -> Result<()> {
    let stack = start(json!({"windowDurationMs": 10_000, "maxBatchSize": 12})).await?;
    place(&stack).await?;
    ensure!(stack.served().await? == [4, 4, 4]);
    let waited = waited(&stack, 12).await?;
    ensure!(waited.iter().all(|it| *it < 5_000), "{waited:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_a_batch_is_not_sent_with_it() -> Result<()> {
    let stack = start(json!({"windowDurationMs": 1500})).await?;
    let body = chat_body(&Draw::new(1).prose(PROMPT_BYTES), 1);
    let asked: Vec<Asked> = (0..3)
        .map(|_| stack.ask_for(CHAT, &[], body.clone()))
        .collect();
    sleep(Duration::from_millis(500)).await;
    let mut asked = asked.into_iter();
    asked.next().context("three were asked")?.abort();
    for answer in answers(asked.collect()).await? {
        ensure!(answer.response.status == 200, "{answer:?}");
    }
    let served = stack.served().await?;
    ensure!(served.iter().sum::<usize>() == 2, "{served:?}");
    stack.wait_until_idle().await?;
    Ok(())
}

async fn start(parameters: Value) -> Result<Stack> {
    let mut draft = Draft::new(Destination::OriginalDst, servers(3)).await?;
    draft.concurrency = 1;
    draft.pool()?["picker"] = json!({
        "plugins": [
            {"type": "burst-prefix-cache-producer", "parameters": parameters},
            {"type": "prefix-cache-scorer"},
        ],
        "schedulingProfiles": [
            {"name": "default", "plugins": [{"pluginRef": "prefix-cache-scorer"}]},
        ],
    });
    draft.start().await
}

/// Sends each of three prompts four times, all at once; the servers that answered, prompt by
/// prompt.
async fn place(stack: &Stack) -> Result<Vec<String>> {
    let mut draw = Draw::new(7);
    let prompts = [(); 3].map(|()| chat_body(&draw.prose(PROMPT_BYTES), 1));
    let all = prompts.iter().flat_map(|it| [it; 4]);
    let asked = all.map(|it| stack.ask_for(CHAT, &[], it.clone())).collect();
    let answers = answers(asked).await?.into_iter();
    let by = answers.map(|it| {
        let by = it.response.header("x-sim-endpoint").map(str::to_owned);
        by.with_context(|| format!("{} {}", it.response.status, it.response.text()))
    });
    by.collect()
}

/// How long each of `count` requests was held, in milliseconds, as the access log has it.
async fn waited(stack: &Stack, count: usize) -> Result<Vec<u64>> {
    let mut all = Vec::new();
    eventually(async || {
        let log = stack.log().unwrap_or_default();
        let words = log.split_ascii_whitespace();
        let waited = words.filter_map(|it| it.strip_prefix("queued_ms="));
        all = waited.filter_map(|it| it.parse().ok()).collect();
        all.len() >= count
    })
    .await;
    ensure!(all.len() == count, "{all:?} of {count}");
    Ok(all)
}

/// Long enough for twelve requests to come on a busy machine.
const WINDOW_MS: u64 = 400;

/// A tick of a few milliseconds, and what a busy machine adds.
const LATE_MS: u64 = 100;

/// More than a request that waits keeps the hashes of, so that the body is read again.
const PROMPT_BYTES: usize = 20_000;
