//! Requests of every kind pass through, and what is refused says why.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use picker_tests::canned::Canned;
use picker_tests::{CHAT, DESTINATIONS, Draft, Stack, chat_body, requests, servers, set_faults};
use serde_json::{Value, json};
use sim::server::ServerOptions;
use xtask::compose::Destination;
use xtask::http::{Length, Response, chunk, head};

#[tokio::test(flavor = "multi_thread")]
async fn a_streaming_chat_arrives_to_its_end() -> Result<()> {
    for destination in DESTINATIONS {
        for concurrency in [1, 2] {
            let slow = ServerOptions {
                time_scale: 0.2,
                ..ServerOptions::default()
            };
            let mut draft = Draft::new(destination, vec![slow; 3]).await?;
            draft.concurrency = concurrency;
            let stack = draft.start().await?;
            streams(&stack)
                .await
                .with_context(|| format!("{destination:?} {concurrency}"))?;
        }
    }
    Ok(())
}

/// Streams five tokens as an OpenAI client does.
async fn streams(stack: &Stack) -> Result<()> {
    let body = json!({
        "model": "sim-model",
        "stream": true,
        "stream_options": {"include_usage": true},
        "max_completion_tokens": 5,
        "messages": [
            {"role": "system", "content": "You are brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        ],
    });
    let body = body.to_string();
    let headers = [
        ("content-type", "application/json"),
        ("accept", "text/event-stream"),
        ("authorization", "Bearer sk-none"),
    ];
    let mut connection = stack.connect().await?;
    let mut bytes = head("POST", CHAT, &headers, Length::of(body.as_bytes()));
    bytes.extend_from_slice(body.as_bytes());
    connection.send(&bytes).await?;
    let (response, mut framing) = connection.head().await?;
    ensure!(response.status == 200, "status {}", response.status);
    let kind = response.header("content-type").unwrap_or_default();
    ensure!(kind.starts_with("text/event-stream"), "content-type {kind}");
    let mut text = String::new();
    while let Some(piece) = connection.piece(&mut framing).await? {
        text.push_str(&String::from_utf8(piece)?);
    }
    ensure!(
        text.ends_with("data: [DONE]\n\n"),
        "the end is missing: {text}"
    );
    ensure!(
        text.contains(r#""usage":{"#),
        "the usage is missing: {text}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bodiless_requests_are_decided_at_once() -> Result<()> {
    let draft = Draft::new(Destination::OriginalDst, servers(2)).await?;
    let stack = draft.start().await?;
    let sent_before: u64 = stack
        .state()
        .await?
        .endpoints()
        .map(|endpoint| endpoint.sent)
        .sum();
    let asked = [
        ("GET", "/v1/models"),
        ("HEAD", "/v1/models"),
        ("OPTIONS", CHAT),
        ("GET", "/health"),
        ("DELETE", "/v1/models/sim-model"),
        ("POST", CHAT),
    ];
    for (method, path) in asked {
        let response = stack.request(method, path, &[], b"").await?;
        let mut seen = Vec::new();
        for server in &stack.servers {
            seen.extend(requests(server).await?);
        }
        let is_it = |entry: &&Value| entry["method"] == method && entry["path"] == path;
        let entry = seen.iter().find(is_it);
        let entry =
            entry.with_context(|| format!("{method} {path} reached no server: {seen:?}"))?;
        assert_eq!(entry["status"], response.status, "{method} {path}");
    }
    let sent = |state: &xtask::state::State| -> u64 {
        state.endpoints().map(|endpoint| endpoint.sent).sum()
    };
    stack
        .wait("every request was picked", |state| {
            sent(state) == sent_before + 6
        })
        .await?;
    assert_eq!(stack.stat("cluster.llm_any.upstream_rq_total").await?, 0);
    stack.wait_until_idle().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_at_the_limit_passes_and_one_byte_more_is_too_large() -> Result<()> {
    let mut draft = Draft::new(Destination::OriginalDst, servers(1)).await?;
    draft.pool()?["limits"] = json!({"requestBodyBytes": LIMIT});
    let manager = draft.bootstrap.manager_mut("traffic")?;
    manager["http_protocol_options"] = json!({"enable_trailers": true});
    let stack = draft.start().await?;
    for (bytes, status) in [(LIMIT - 1, 200), (LIMIT, 200), (LIMIT + 1, 413)] {
        for framing in [Framing::Length, Framing::Chunked, Framing::Trailers] {
            let response = send(&stack, &padded(bytes)?, framing).await?;
            let case = format!("{bytes} bytes, {framing:?}: {}", response.text());
            assert_eq!(response.status, status, "{case}");
            if status == 413 {
                is_openai_error(&response)?;
            }
        }
    }
    assert_eq!(
        stack.served().await?,
        [6],
        "what is too large reaches no server"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_declared_too_large_is_refused_before_it_is_sent() -> Result<()> {
    let stack = Draft::new(Destination::OriginalDst, servers(1))
        .await?
        .start()
        .await?;
    let mut connection = stack.connect().await?;
    let headers = [("content-type", "application/json")];
    connection
        .send(&head("POST", CHAT, &headers, Length::Known(300 << 20)))
        .await?;
    let response = connection.response(false).await?;
    assert_eq!(response.status, 413);
    is_openai_error(&response)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_ours_streams_through_whatever_its_size() -> Result<()> {
    let options = ServerOptions {
        accept_unknown: true,
        ..ServerOptions::default()
    };
    let stack = Draft::new(Destination::OriginalDst, vec![options])
        .await?
        .start()
        .await?;
    let body = vec![b'x'; 40 << 20];
    let headers = [("content-type", "application/octet-stream")];
    let response = stack.request("POST", "/upload", &headers, &body).await?;
    assert_eq!(response.status, 200);
    let seen = requests(&stack.servers[0]).await?;
    assert_eq!(seen[0]["body_bytes"], body.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connections_buffer_limit_does_not_limit_bodies() -> Result<()> {
    let mut draft = Draft::new(Destination::OriginalDst, servers(1)).await?;
    let listener = draft.bootstrap.listener_mut("traffic")?;
    listener["per_connection_buffer_limit_bytes"] = json!(32_768);
    let stack = draft.start().await?;
    for bytes in [32_768, 32_769, 2 << 20] {
        for framing in [Framing::Length, Framing::Chunked] {
            let response = send(&stack, &padded(bytes)?, framing).await?;
            assert_eq!(response.status, 200, "{bytes} bytes, {framing:?}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_server_comes_back_as_it_is_and_at_once() -> Result<()> {
    let stack = Draft::new(Destination::OriginalDst, servers(1))
        .await?
        .start()
        .await?;
    for status in [400, 404, 422, 429, 500, 503] {
        set_faults(
            &stack.servers[0],
            &json!({"requests": format!("error:{status}")}),
        )?;
        let begun = Instant::now();
        let response = stack.chat("hello").await?;
        assert_eq!(response.status, status);
        assert!(response.json()?["error"].is_object(), "{}", response.text());
        assert!(
            begun.elapsed() < Duration::from_secs(1),
            "{status} took {:?}",
            begun.elapsed()
        );
    }
    stack.wait_until_idle().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_without_a_body_does_not_wait_for_one() -> Result<()> {
    for (answer, method, status) in [
        ("HTTP/1.1 204 No Content\r\n\r\n", "POST", 204),
        ("HTTP/1.1 304 Not Modified\r\n\r\n", "GET", 304),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", "HEAD", 200),
        (
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
            "POST",
            400,
        ),
    ] {
        let server = Canned::start(answer).await?;
        let draft = Draft::with_endpoints(Destination::OriginalDst, &[server.address()])?;
        let stack = draft.start_cold().await?;
        let body = if method == "POST" {
            chat_body("hello", 1)
        } else {
            String::new()
        };
        let begun = Instant::now();
        let response = stack.request(method, CHAT, &[], body.as_bytes()).await?;
        assert_eq!(response.status, status);
        assert!(begun.elapsed() < Duration::from_secs(1), "{answer:?}");
        stack.wait_until_idle().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_does_not_wait_for_a_body() -> Result<()> {
    let server = Canned::start(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    )
    .await?;
    let draft = Draft::with_endpoints(Destination::OriginalDst, &[server.address()])?;
    let stack = draft.start_cold().await?;
    let headers = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let mut connection = stack.connect().await?;
    connection
        .send(&head("GET", CHAT, &headers, Length::None))
        .await?;
    let (response, _) = connection.head().await?;
    assert_eq!(response.status, 101);
    connection.reset()?;
    stack.wait_until_idle().await?;
    Ok(())
}

/// How a request says where its body ends.
#[derive(Clone, Copy, Debug)]
enum Framing {
    Length,
    Chunked,
    Trailers,
}

/// Sends a chat on a connection of its own.
async fn send(stack: &Stack, body: &[u8], framing: Framing) -> Result<Response> {
    let length = match framing {
        Framing::Length => Length::Known(body.len()),
        Framing::Chunked | Framing::Trailers => Length::Chunked,
    };
    let mut connection = stack.connect().await?;
    connection
        .send(&head(
            "POST",
            CHAT,
            &[("content-type", "application/json")],
            length,
        ))
        .await?;
    // A refusal may come before the end; then the rest cannot be sent, and the answer is there.
    let rest = async {
        match framing {
            Framing::Length => connection.send(body).await?,
            Framing::Chunked | Framing::Trailers => {
                for piece in body.chunks(100_000) {
                    connection.send(&chunk(piece)).await?;
                }
                let end: &[u8] = match framing {
                    Framing::Trailers => b"0\r\nx-checksum: none\r\n\r\n",
                    _ => b"0\r\n\r\n",
                };
                connection.send(end).await?;
            }
        }
        anyhow::Ok(())
    };
    let sent = rest.await;
    let response = connection.response(false).await;
    response.with_context(|| format!("sending: {sent:?}"))
}

/// A chat of exactly `bytes` bytes.
fn padded(bytes: usize) -> Result<Vec<u8>> {
    let body = chat_body("hello", 1);
    let start = body.strip_suffix('}').context("a chat is an object")?;
    let frame = format!(r#"{start},"user":"""#);
    let pad = bytes
        .checked_sub(frame.len() + 1)
        .context("smaller than a chat")?;
    let padded = format!(r#"{start},"user":"{}"}}"#, "u".repeat(pad));
    ensure!(padded.len() == bytes, "{} bytes", padded.len());
    Ok(padded.into_bytes())
}

fn is_openai_error(response: &Response) -> Result<()> {
    let error = &response.json()?["error"];
    for field in ["message", "type", "param", "code"] {
        ensure!(error.get(field).is_some(), "no `{field}` in {error}");
    }
    let message = error["message"].as_str().unwrap_or_default();
    ensure!(!message.is_empty(), "no message in {error}");
    let reason = response.header("x-llm-d-request-dropped-reason");
    ensure!(
        reason.is_some_and(|reason| !reason.is_empty()),
        "no reason in the headers"
    );
    Ok(())
}

/// The limit of the test about the limit, in bytes.
const LIMIT: usize = 1 << 20;
