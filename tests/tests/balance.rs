//! Where requests go, whichever worker takes them.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use picker_tests::{CHAT, Draft, Stack, chat_body, servers};
use serde_json::{Value, json};
use sim::server::ServerOptions;
use tokio::sync::Barrier;
use xtask::compose::Destination;
use xtask::draw::Draw;
use xtask::http::{Connection, Length, head};

#[tokio::test(flavor = "multi_thread")]
async fn idle_endpoints_share_what_has_no_prefix() -> Result<()> {
    let stack = Draft::new(Destination::OriginalDst, fast(4))
        .await?
        .start()
        .await?;
    let mut draw = Draw::new(42);
    let mut previous = None;
    for _ in 0..400 {
        // The connection before stays open, so that the workers take turns.
        let mut connection = stack.connect().await?;
        let body = chat_body(&draw.prose(100), 1);
        let response = connection
            .request("POST", CHAT, &JSON, body.as_bytes())
            .await?;
        assert_eq!(response.status, 200);
        drop(previous.replace(connection));
    }
    let served = stack.served().await?;
    let state = stack.state().await?;
    assert!(
        served.iter().all(|served| (65..=135).contains(served)),
        "{served:?}"
    );
    let workers: Vec<u64> = state.workers().map(|worker| worker.sent).collect();
    assert!(
        workers.len() == 2 && workers.iter().all(|sent| *sent > 100),
        "{workers:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_over_several_workers_is_spread() -> Result<()> {
    for profile in [None, Some(by_queue())] {
        // Real speed: all 64 requests must be under way before the first one ends.
        let mut draft =
            Draft::new(Destination::OriginalDst, vec![ServerOptions::default(); 8]).await?;
        draft.concurrency = 4;
        let shared = profile.is_some();
        if let Some(profile) = profile {
            draft.pool()?["picker"] = profile;
        }
        let stack = draft.start().await?;
        let mut draw = Draw::new(7);
        // By queue alone a prefix in common must not draw all to one endpoint.
        let prefix = if shared {
            draw.prose(4096)
        } else {
            String::new()
        };
        let prompts = (0..64).map(|_| format!("{prefix}{}", draw.prose(300)));
        burst(&stack, prompts.collect()).await?;
        let served = stack.served().await?;
        let even = served.iter().all(|served| (5..=11).contains(served));
        assert!(even, "one prefix: {shared}: {served:?}");
        stack.wait_until_idle().await?;
    }
    Ok(())
}

/// Sends all prompts at the same moment, each on a connection that is open already.
async fn burst(stack: &Stack, prompts: Vec<String>) -> Result<()> {
    let barrier = Arc::new(Barrier::new(prompts.len()));
    let mut tasks = Vec::new();
    for prompt in prompts {
        let barrier = Arc::clone(&barrier);
        let connection = stack.connect().await?;
        tasks.push(tokio::spawn(async move {
            barrier.wait().await;
            status(connection, &chat_body(&prompt, 20)).await
        }));
    }
    for task in tasks {
        let status = task.await??;
        ensure!(status == 200, "status {status}");
    }
    Ok(())
}

async fn status(mut connection: Connection, body: &str) -> Result<u16> {
    let mut bytes = head("POST", CHAT, &JSON, Length::Known(body.len()));
    bytes.extend_from_slice(body.as_bytes());
    connection.send(&bytes).await?;
    Ok(connection.response(false).await?.status)
}

#[tokio::test(flavor = "multi_thread")]
async fn four_workers_hit_as_many_prefixes_as_one() -> Result<()> {
    let one = 100.0 * hit_rate(1).await?;
    let four = 100.0 * hit_rate(4).await?;
    // If every turn finds all of the turn before it, 88.5 %; by chance alone about 60 %.
    assert!(one > 85.0, "one worker hits {one:.2} %");
    assert!(
        (one - four).abs() <= 1.0,
        "one worker {one:.2} %, four {four:.2} %"
    );
    Ok(())
}

/// The share of prompt tokens that the servers had cached, over conversations whose turns come on
/// changing workers.
async fn hit_rate(workers: u32) -> Result<f64> {
    let mut draft = Draft::new(Destination::OriginalDst, fast(3)).await?;
    draft.concurrency = workers;
    let stack = draft.start().await?;
    let mut draw = Draw::new(99);
    let mut talks: Vec<String> = (0..24).map(|_| draw.prose(2048)).collect();
    let mut turns: Vec<usize> = (0..24 * 12).map(|turn| turn % 24).collect();
    draw.shuffle(&mut turns);
    let (mut prompt_tokens, mut cached_tokens) = (0, 0);
    // As many connections open as there are workers, so that each new one is another worker's.
    let mut open = std::collections::VecDeque::new();
    for turn in turns {
        let talk = talks.get_mut(turn).context("no such talk")?;
        talk.push_str(&draw.prose(256));
        let mut connection = stack.connect().await?;
        let body = chat_body(talk, 1);
        let response = connection
            .request("POST", CHAT, &JSON, body.as_bytes())
            .await?;
        let answer = response.json()?;
        let number = |pointer| answer.pointer(pointer).and_then(Value::as_u64);
        prompt_tokens += number("/usage/prompt_tokens").context("no usage")?;
        cached_tokens +=
            number("/usage/prompt_tokens_details/cached_tokens").context("no cached tokens")?;
        open.push_back(connection);
        if open.len() >= workers as usize {
            open.pop_front();
        }
    }
    let busy = stack
        .state()
        .await?
        .workers()
        .filter(|worker| worker.sent > 0)
        .count();
    ensure!(
        busy == workers as usize,
        "{busy} of {workers} workers served"
    );
    Ok(cached_tokens as f64 / prompt_tokens as f64)
}

/// A profile that looks at queues only.
fn by_queue() -> Value {
    json!({
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [{"type": "queue-scorer"}, {"type": "max-score-picker"}],
        "schedulingProfiles": [{"name": "default", "plugins": [
            {"pluginRef": "queue-scorer", "weight": 1},
            {"pluginRef": "max-score-picker"},
        ]}],
    })
}

/// Servers that answer within a millisecond or so.
fn fast(count: usize) -> Vec<ServerOptions> {
    let mut options = servers(count);
    options
        .iter_mut()
        .for_each(|options| options.time_scale = 200.0);
    options
}

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
