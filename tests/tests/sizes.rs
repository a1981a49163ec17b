//! What is large passes through or is refused, and is not kept.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use picker_tests::canned::Sink;
use picker_tests::{CHAT, Draft, MODEL, Stack, chat_body, requests, servers};
use serde_json::json;
use xtask::compose::Destination;
use xtask::http::{Connection, Length, Response, chunk, head};

#[tokio::test(flavor = "multi_thread")]
async fn a_large_upload_that_nobody_reads_streams_through() -> Result<()> {
    let sink = Sink::start().await?;
    let draft = Draft::with_endpoints(Destination::OriginalDst, &[sink.address()])?;
    let stack = draft.start_cold().await?;
    // A first one, for what Envoy keeps to use again.
    upload(&stack, "/upload", 10).await?;
    let before = stack.memory()?;
    let begun = Instant::now();
    let response = upload(&stack, "/upload", 200).await?;
    let took = begun.elapsed();
    let grown = stack.memory()?.saturating_sub(before);
    println!("200 MB passed in {took:.1?}, memory grew by {grown} bytes");
    assert_eq!(response.status, 200);
    assert_eq!(sink.largest(), 200 << 20);
    assert!(grown < 50 << 20, "memory grew by {grown} bytes");
    stack.wait_until_idle().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_body_that_would_be_read_is_refused_at_the_limit() -> Result<()> {
    let stack = Draft::new(Destination::OriginalDst, servers(1))
        .await?
        .start()
        .await?;
    let before = stack.memory()?;
    let declared = {
        let mut connection = stack.connect().await?;
        let head = head("POST", CHAT, &[JSON], Length::Known(200 << 20));
        connection.send(&head).await?;
        connection.response(false).await?
    };
    assert_eq!(declared.status, 413, "declared: {}", declared.text());
    let chunked = upload(&stack, CHAT, 200).await?;
    assert_eq!(chunked.status, 413, "chunked: {}", chunked.text());
    for response in [&declared, &chunked] {
        let reason = response.header("x-llm-d-request-dropped-reason");
        assert_eq!(reason, Some("rejected-body-too-large"));
    }
    let grown = stack.memory()?.saturating_sub(before);
    println!("two bodies of 200 MB were refused, memory grew by {grown} bytes");
    // The limit is 32 MiB, which Envoy and the scanner's window hold while it fills.
    assert!(grown < 100 << 20, "memory grew by {grown} bytes");
    assert_eq!(stack.served().await?, [0]);
    stack.wait_until_idle().await?;
    Ok(())
}

/// Sends so many MiB in chunks, until all is sent or an answer has come.
async fn upload(stack: &Stack, path: &str, mebibytes: usize) -> Result<Response> {
    let mut connection = stack.connect().await?.with_limit(Duration::from_secs(30));
    connection
        .send(&head("POST", path, &[JSON], Length::Chunked))
        .await?;
    let piece = chunk(&vec![b' '; 1 << 20]);
    let rest = async {
        for _ in 0..mebibytes {
            connection.send(&piece).await?;
        }
        connection.send(b"0\r\n\r\n").await
    };
    // A refusal comes before the end; then the rest cannot be sent.
    let sent = rest.await;
    let response = connection.response(false).await;
    response.with_context(|| format!("sending: {sent:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_of_64_kilobytes_passes_and_one_that_envoy_refuses_is_refused() -> Result<()> {
    let mut draft = Draft::new(Destination::OriginalDst, servers(2)).await?;
    let manager = draft.bootstrap.manager_mut("traffic")?;
    manager["max_request_headers_kb"] = json!(96);
    let stack = draft.start().await?;
    for (bytes, status) in [(1 << 10, 200), (64 << 10, 200), (96 << 10, 431)] {
        let value = "v".repeat(bytes);
        let headers = [JSON, ("x-large", value.as_str())];
        let response = stack
            .request("POST", CHAT, &headers, chat_body("hello", 1).as_bytes())
            .await?;
        assert_eq!(
            response.status,
            status,
            "{bytes} bytes: {}",
            response.text()
        );
    }
    let mut longest = 0;
    for server in &stack.servers {
        for entry in requests(server).await? {
            let headers = entry["headers"].as_array().context("no headers")?;
            let large = headers.iter().filter(|header| header[0] == "x-large");
            let length = large.filter_map(|header| Some(header[1].as_str()?.len()));
            longest = length.fold(longest, usize::max);
        }
    }
    assert_eq!(longest, 64 << 10);
    stack.wait_until_idle().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_requests_in_one_segment_are_answered_in_order() -> Result<()> {
    let stack = Draft::new(Destination::OriginalDst, servers(2))
        .await?
        .start()
        .await?;
    let mut bytes = Vec::new();
    for number in 0..50_u32 {
        let body = chat_body(&format!("number {number}"), 1 + number % 3);
        bytes.extend(head("POST", CHAT, &[JSON], Length::Known(body.len())));
        bytes.extend_from_slice(body.as_bytes());
    }
    let mut connection = stack.connect().await?;
    connection.send(&bytes).await?;
    for number in 0..50_u32 {
        let answer = connection.response(false).await?.json()?;
        let tokens = answer["usage"]["completion_tokens"].as_u64();
        assert_eq!(tokens, Some(u64::from(1 + number % 3)), "answer {number}");
        assert_eq!(answer["model"], MODEL);
    }
    assert_eq!(stack.served().await?.iter().sum::<usize>(), 50);
    stack.wait_until_idle().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_single_bytes_and_trailers_is_read_as_a_whole() -> Result<()> {
    let mut draft = Draft::new(Destination::OriginalDst, servers(2)).await?;
    let manager = draft.bootstrap.manager_mut("traffic")?;
    manager["http_protocol_options"] = json!({"enable_trailers": true});
    let stack = draft.start().await?;
    let prompt = "The same words in both. ".repeat(40);
    stack.chat(&prompt).await?;
    let body = chat_body(&prompt, 1);
    let mut bytes = head("POST", CHAT, &[JSON], Length::Chunked);
    bytes.extend(body.bytes().flat_map(|byte| chunk(&[byte])));
    bytes.extend_from_slice(b"0\r\nx-checksum: none\r\n\r\n");
    let mut connection = stack.connect().await?;
    for piece in bytes.chunks(7) {
        connection.send(piece).await?;
    }
    let response = connection.response(false).await?;
    assert_eq!(response.status, 200, "{}", response.text());
    // Equal bodies match all blocks of the first one.
    let line = stack.wait_for_line(&[CHAT, "matched=3/3"]).await?;
    ensure!(line.contains(" 200 "), "{line}");
    stack.wait_until_idle().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connect_is_decided_at_once() -> Result<()> {
    let mut draft = Draft::new(Destination::OriginalDst, servers(1)).await?;
    let stack = {
        let manager = draft.bootstrap.manager_mut("traffic")?;
        manager["upgrade_configs"] = json!([{"upgrade_type": "CONNECT"}]);
        draft.start().await?
    };
    let begun = Instant::now();
    let mut connection: Connection = stack.connect().await?;
    connection
        .send(b"CONNECT somewhere:443 HTTP/1.1\r\nhost: somewhere:443\r\n\r\n")
        .await?;
    let (response, _) = connection.head().await?;
    let took = begun.elapsed();
    println!("CONNECT: {} in {took:.1?}", response.status);
    assert!(response.status >= 400, "a tunnel to {}", response.status);
    assert!(took < Duration::from_secs(2), "{took:?}");
    stack.wait_until_idle().await?;
    Ok(())
}

const JSON: (&str, &str) = ("content-type", "application/json");
