//! Compressed bodies are read and go on as they came; other bodies of other APIs too.

use anyhow::{Context, Result, ensure};
use picker_tests::{Draft, Stack, eventually, requests};
use serde_json::{Value, json};
use sim::server::ServerOptions;
use xtask::compose::Destination;

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../fixtures/codings/", $name)).as_slice()
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_prompt_is_read_and_forwarded_as_it_came() -> Result<()> {
    let stack = lenient(json!({})).await?;
    for (coding, body) in [
        ("gzip", fixture!("body.gz")),
        ("deflate", fixture!("body.zlib")),
        ("br", fixture!("body-window-22.br")),
        ("zstd", fixture!("body.zst")),
    ] {
        let (blocks, unreadable) = counts(&stack).await?;
        post(&stack, "/v1/messages", coding, body).await?;
        becomes(&stack, (blocks + 6, unreadable), coding).await?;
        let seen = requests(stack.servers.first().context("a server")?).await?;
        let last = seen.last().context("the request reached the server")?;
        assert_eq!(last["path"], "/v1/messages", "{coding}");
        assert_eq!(last["body_bytes"], body.len(), "{coding}");
    }
    for (coding, body) in [
        ("compress", fixture!("body.gz")),
        ("gzip, br", fixture!("body.gz")),
        ("gzip", fixture!("body.zst")),
        ("br", fixture!("body-window-24.br")),
        ("zstd", fixture!("window-16m.zst")),
    ] {
        let (blocks, unreadable) = counts(&stack).await?;
        post(&stack, "/v1/messages", coding, body).await?;
        becomes(&stack, (blocks, unreadable + 1), coding).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bomb_is_too_large_and_reaches_no_server() -> Result<()> {
    let stack = lenient(json!({"limits": {"requestBodyBytes": "1Mi"}})).await?;
    for (coding, body) in [
        ("gzip", fixture!("bomb.gz")),
        ("br", fixture!("bomb.br")),
        ("zstd", fixture!("bomb.zst")),
    ] {
        for (path, kind) in [
            ("/v1/messages", "/error/type"),
            ("/v1/chat/completions", "/error/code"),
            ("/generate", "/code"),
        ] {
            let headers = [
                ("content-encoding", coding),
                ("content-type", "application/json"),
            ];
            let response = stack.request("POST", path, &headers, body).await?;
            assert_eq!(response.status, 413, "{coding}");
            let answer = response.json()?;
            ensure!(answer.pointer(kind).is_some(), "{path}: {answer}");
        }
    }
    assert_eq!(stack.served().await?, [0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_that_administer_a_server_are_refused() -> Result<()> {
    let stack = lenient(json!({})).await?;
    for path in [
        "/v1/load_lora_adapter",
        "/sleep?level=1",
        "/reset_prefix_cache/",
    ] {
        let response = stack.request("POST", path, &[], b"{}").await?;
        assert_eq!(response.status, 403, "{path}");
        let reason = response.header("x-llm-d-request-dropped-reason");
        assert_eq!(reason, Some("admin-path"), "{path}");
    }
    assert_eq!(stack.served().await?, [0]);
    Ok(())
}

async fn lenient(pool: Value) -> Result<Stack> {
    let options = ServerOptions {
        accept_unknown: true,
        ..ServerOptions::default()
    };
    let mut draft = Draft::new(Destination::OriginalDst, vec![options]).await?;
    for (key, value) in pool.as_object().into_iter().flatten() {
        draft.pool()?[key] = value.clone();
    }
    draft.start().await
}

async fn post(stack: &Stack, path: &str, coding: &str, body: &[u8]) -> Result<()> {
    let headers = [
        ("content-encoding", coding),
        ("content-type", "application/json"),
    ];
    let response = stack.request("POST", path, &headers, body).await?;
    ensure!(
        response.status == 200,
        "{coding}: status {}",
        response.status
    );
    Ok(())
}

/// Waits until the counts are as expected; counters are told to Envoy at the next tick.
async fn becomes(stack: &Stack, expected: (u64, u64), coding: &str) -> Result<()> {
    eventually(async || counts(stack).await.is_ok_and(|counts| counts == expected)).await;
    assert_eq!(counts(stack).await?, expected, "{coding}");
    Ok(())
}

/// Blocks of prompt and unreadable bodies so far.
async fn counts(stack: &Stack) -> Result<(u64, u64)> {
    let stat = async |name: &str| {
        let name = format!("wasmcustom.picker_{name}_total;pool=llm");
        stack.stat(&name).await
    };
    Ok((
        stat("prompt_blocks").await?,
        stat("unreadable_bodies").await?,
    ))
}
