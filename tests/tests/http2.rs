//! HTTP/2 clients, whose requests end in more ways than HTTP/1 knows.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use h2::Reason;
use hyper::http::{HeaderMap, HeaderValue};
use picker_tests::http2::{End, LIMIT, connect, finish, open, send};
use picker_tests::{DESTINATION, DESTINATIONS, Draft, chat_body, eventually, requests, servers};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use xtask::compose::Destination;

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_read_however_it_ends() -> Result<()> {
    for destination in DESTINATIONS {
        let stack = Draft::new(destination, servers(2)).await?.start().await?;
        let prompt = "The same words in all of them. ".repeat(30);
        stack.chat(&prompt).await?;
        let body = chat_body(&prompt, 1);
        for end in [
            End::WithData,
            End::EmptyFrame,
            End::Trailers,
            End::SingleBytes,
            End::SingleBytesAndTrailers,
        ] {
            let client = connect(&stack).await?;
            let (response, stream) = open(&client, &[])?;
            send(stream, &body, end).await?;
            let (status, text) = finish(response).await.with_context(|| format!("{end:?}"))?;
            ensure!(status == 200, "{end:?}: {status} {text}");
        }
        // All bodies match all blocks of the first one, so all of each was read.
        let matched = || {
            let log = stack.log().unwrap_or_default();
            log.matches("matched=3/3").count()
        };
        let all = eventually(async || matched() == 5).await;
        ensure!(all, "{destination:?}: {} were read", matched());
        stack.wait_until_idle().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_streams_in_one_write_are_all_served_and_spread() -> Result<()> {
    let stack = Draft::new(Destination::OriginalDst, servers(2))
        .await?
        .start()
        .await?;
    let socket = TcpStream::connect(stack.addresses.traffic).await?;
    let (client, connection) = h2::client::handshake(socket).await?;
    let mut responses = Vec::new();
    for number in 0..50 {
        let (response, mut stream) = open(&client, &[])?;
        let body = chat_body(&format!("number {number}"), 1);
        stream.send_data(Bytes::from(body), true)?;
        responses.push(response);
    }
    // Nothing is written before this: now all is.
    tokio::spawn(connection);
    for response in responses {
        let (status, text) = finish(response).await?;
        ensure!(status == 200, "{status} {text}");
    }
    let served = stack.served().await?;
    ensure!(served.iter().sum::<usize>() == 50, "{served:?}");
    ensure!(served.iter().all(|count| *count >= 15), "{served:?}");
    stack.wait_until_idle().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_reset_leave_nothing_in_flight() -> Result<()> {
    let stack = Draft::new(Destination::OriginalDst, servers(2))
        .await?
        .start()
        .await?;
    let body = chat_body("hello", 2000).replace("\"max_tokens\"", "\"stream\":true,\"max_tokens\"");
    let client = connect(&stack).await?;
    for round in 0..60 {
        let (response, mut stream) = open(&client, &[])?;
        match round % 3 {
            // In the body; before the answer; in the answer.
            0 => stream.send_data(Bytes::from_static(b"{\"model\":"), false)?,
            1 => stream.send_data(Bytes::from(body.clone()), true)?,
            _ => {
                stream.send_data(Bytes::from(body.clone()), true)?;
                let response = timeout(LIMIT, response).await??;
                let mut answer = response.into_body();
                timeout(LIMIT, answer.data()).await?.context("no data")??;
                stream.send_reset(Reason::CANCEL);
                continue;
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
        stream.send_reset(Reason::CANCEL);
    }
    stack.wait_until_idle().await?;
    let active = stack.stat("cluster.llm.upstream_rq_active").await?;
    ensure!(active == 0, "{active} requests are left");
    let (response, stream) = open(&client, &[])?;
    send(stream, &chat_body("hello", 1), End::WithData).await?;
    ensure!(
        finish(response).await?.0 == 200,
        "the connection is of no use any more"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_the_picker_owns_are_removed_however_often_they_come() -> Result<()> {
    let stack = Draft::new(Destination::OriginalDst, servers(2))
        .await?
        .start()
        .await?;
    let evil = "127.0.0.1:9";
    let client = connect(&stack).await?;
    let owned = [(DESTINATION, evil); 5];
    let (response, mut stream) = open(&client, &owned)?;
    stream.send_data(Bytes::from(chat_body("hello", 1)), false)?;
    let mut trailers = HeaderMap::new();
    for _ in 0..3 {
        trailers.append(DESTINATION, HeaderValue::from_static("127.0.0.1:9"));
    }
    stream.send_trailers(trailers)?;
    let (status, text) = finish(response).await?;
    ensure!(status == 200, "{status} {text}");
    let mut values = Vec::new();
    for server in &stack.servers {
        for entry in requests(server).await? {
            let headers = entry["headers"].as_array().context("no headers")?.clone();
            values.extend(
                headers
                    .into_iter()
                    .filter(|header| header[0] == DESTINATION),
            );
        }
    }
    let names_evil = |header: &Value| header[1] == evil;
    ensure!(
        values.len() == 1 && !values.iter().any(names_evil),
        "{values:?}"
    );
    Ok(())
}
