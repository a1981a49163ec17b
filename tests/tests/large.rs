//! Large bodies and answers pass, of every API, with a coding, at once and beside a buffer filter.

use std::io::Write;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use picker_core::PROMPT_BLOCKS_MAX;
use picker_tests::canned::Canned;
use picker_tests::{CHAT, Draft, chat_body, requests};
use serde_json::json;
use sim::server::ServerOptions;
use xtask::compose::Destination;

#[tokio::test(flavor = "multi_thread")]
async fn one_limit_holds_for_every_api_and_the_bytes_go_on_as_they_came() -> Result<()> {
    let stack = draft().await?.start().await?;
    let text = "some of two and a half megabytes ".repeat(80_000);
    let chat = json!({"messages": [{"role": "user", "content": text}]}).to_string();
    let item = json!({"input": [{"role": "user", "content": text}]}).to_string();
    let list = json!({"input": [text]}).to_string();
    let disposition = "--X\r\nContent-Disposition: form-data; name=";
    let sound = "\r\n--Y sound".repeat(2_000_000);
    let form = format!(
        "{disposition}\"file\"; filename=\"a\"\r\n\r\n{sound}\r\n\
         {disposition}\"model\"\r\n\r\nm\r\n--X--\r\n"
    );
    let gzip = gzip(chat.as_bytes())?;
    for (path, coding, body) in [
        (CHAT, "identity", chat.as_bytes()),
        ("/v1/messages?beta=true", "identity", chat.as_bytes()),
        ("/v1/responses", "identity", item.as_bytes()),
        ("/v1/embeddings/", "identity", list.as_bytes()),
        ("/v1/messages", "gzip", &gzip),
        ("/v1/audio/transcriptions", "identity", form.as_bytes()),
        // No path of an engine: routed by load, and left as it is.
        ("/V1/Chat/Completions", "gzip", chat.as_bytes()),
    ] {
        let headers = [("content-encoding", coding)];
        let response = stack.request("POST", path, &headers, body).await?;
        let by = response.header("x-sim-endpoint");
        ensure!(by.is_some(), "{path}: {}", response.text());
        let seen = requests(stack.servers.first().context("a server")?).await?;
        let last = seen.last().context("the request reached the server")?;
        assert_eq!(last["path"], path);
        assert_eq!(last["body_bytes"], body.len(), "{path}");
    }
    // Of each of the five long texts as many as a prompt may have.
    let blocks = 5 * PROMPT_BLOCKS_MAX as u64;
    stack
        .wait_for_count("prompt_blocks_total;pool=llm", blocks)
        .await?;
    let unread = "wasmcustom.picker_unreadable_bodies_total;pool=llm";
    assert_eq!(stack.stat(unread).await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn large_images_at_once_end_no_worker() -> Result<()> {
    let stack = draft().await?.start().await?;
    let image = "iVBORw0KGgoAAAANSUhEUgAA".repeat(500_000);
    let body = json!({"model": "sim-model", "max_tokens": 1, "messages": [{"role": "user",
        "content": [{"type": "image_url",
            "image_url": {"url": format!("data:image/png;base64,{image}")}}]}]});
    let body = body.to_string();
    let one = async || stack.request("POST", CHAT, &[], body.as_bytes()).await;
    let (first, second, third, fourth) = tokio::try_join!(one(), one(), one(), one())?;
    for response in [first, second, third, fourth] {
        ensure!(
            response.header("x-sim-endpoint").is_some(),
            "{}",
            response.text()
        );
    }
    assert_eq!(stack.stat("wasm.picker.vm_reload_success").await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_buffer_filter_may_stand_before_the_picker_or_behind_it() -> Result<()> {
    for place in [0, 1] {
        let mut draft = draft().await?;
        let manager = draft.bootstrap.manager_mut("traffic")?;
        let filters = manager["http_filters"].as_array_mut();
        let buffer = "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer";
        filters.context("no filters")?.insert(
            place,
            json!({
                "name": "buffer",
                "typed_config": {"@type": buffer, "max_request_bytes": 10 << 20},
            }),
        );
        let stack = draft.start().await?;
        let body = chat_body(&"a megabyte ".repeat(100_000), 1);
        let response = stack.request("POST", CHAT, &[], body.as_bytes()).await?;
        let by = response.header("x-sim-endpoint");
        ensure!(by.is_some(), "at {place}: {}", response.text());
        stack
            .wait_for_count("prompt_blocks_total;pool=llm", PROMPT_BLOCKS_MAX as u64)
            .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_pass_as_they_are_whatever_their_length_and_coding() -> Result<()> {
    let large = json!({"data": "0.1,".repeat(1_500_000), "usage": {"prompt_tokens": 7}});
    let large = large.to_string().into_bytes();
    let error = gzip(br#"{"error":{"code":400}}"#)?;
    let events = gzip(b"data: {\"choices\":[{}]}\n\ndata: [DONE]\n\n")?;
    for (status, kind, coding, body, coded) in [
        ("200 OK", "application/json", "identity", large, 0),
        ("400 Bad Request", "application/json", "gzip", error, 1),
        ("200 OK", "text/event-stream", "gzip", events, 1),
        ("200 OK", "application/json", "gzip", Vec::new(), 1),
    ] {
        let mut answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-encoding: {coding}\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        answer.extend_from_slice(&body);
        let server = Canned::start(answer).await?;
        let draft = Draft::with_endpoints(Destination::OriginalDst, &[server.address()])?;
        let stack = draft.start_cold().await?;
        let response = stack.chat("hello").await?;
        ensure!(status.starts_with(&response.status.to_string()));
        assert_eq!(response.header("content-encoding"), Some(coding));
        ensure!(response.body == body, "{coding} {kind} came otherwise");
        let tokens = if coded == 0 { 7 } else { 0 };
        let [answers, prompts] =
            ["coded_answers", "prompt_tokens"].map(|name| format!("{name}_total;pool=llm"));
        stack.wait_for_count(&answers, coded).await?;
        stack.wait_for_count(&prompts, tokens).await?;
    }
    Ok(())
}

async fn draft() -> Result<Draft> {
    let options = ServerOptions {
        accept_unknown: true,
        ..ServerOptions::default()
    };
    Draft::new(Destination::OriginalDst, vec![options]).await
}

fn gzip(body: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(body)?;
    Ok(gzip.finish()?)
}
