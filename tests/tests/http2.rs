//! HTTP/2 clients, whose requests end in more ways than HTTP/1 knows.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use hyper::http::{HeaderMap, HeaderValue, Request};
use picker_tests::{
    CHAT, DESTINATION, DESTINATIONS, Draft, Stack, chat_body, eventually, requests, servers,
};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use xtask::compose::Destination;

/// How a request's body comes and ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// With the last byte.
    WithData,
    /// With an empty frame after it.
    EmptyFrame,
    /// With trailers.
    Trailers,
    /// In frames of one byte, the last of which ends it.
    SingleBytes,
    /// In frames of one byte, with empty frames among them, and trailers.
    SingleBytesAndTrailers,
}

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

async fn connect(stack: &Stack) -> Result<SendRequest<Bytes>> {
    let socket = TcpStream::connect(stack.addresses.traffic).await?;
    socket.set_nodelay(true)?;
    let (client, connection) = h2::client::handshake(socket).await?;
    tokio::spawn(connection);
    Ok(client.ready().await?)
}

/// Begins a chat whose body is to come.
fn open(
    client: &SendRequest<Bytes>,
    headers: &[(&str, &str)],
) -> Result<(ResponseFuture, SendStream<Bytes>)> {
    let mut request = Request::post(format!("http://localhost{CHAT}"));
    for (name, value) in headers
        .iter()
        .chain(&[("content-type", "application/json")])
    {
        request = request.header(*name, *value);
    }
    Ok(client.clone().send_request(request.body(())?, false)?)
}

/// Sends a body in the frames that `end` wants, each in its turn.
async fn send(mut stream: SendStream<Bytes>, body: &str, end: End) -> Result<()> {
    let all = Bytes::copy_from_slice(body.as_bytes());
    let last = all.len() - 1;
    match end {
        End::WithData => return Ok(stream.send_data(all, true)?),
        End::EmptyFrame | End::Trailers => stream.send_data(all, false)?,
        End::SingleBytes | End::SingleBytesAndTrailers => {
            for at in 0..=last {
                let ends = at == last && matches!(end, End::SingleBytes);
                stream.send_data(all.slice(at..=at), ends)?;
                if at % 100 == 0 && !ends {
                    stream.send_data(Bytes::new(), false)?;
                    tokio::task::yield_now().await;
                }
            }
        }
    }
    match end {
        End::EmptyFrame => {
            // So late that it is a frame of its own.
            tokio::time::sleep(Duration::from_millis(50)).await;
            stream.send_data(Bytes::new(), true)?;
        }
        End::Trailers | End::SingleBytesAndTrailers => {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-checksum", HeaderValue::from_static("none"));
            stream.send_trailers(trailers)?;
        }
        End::WithData | End::SingleBytes => {}
    }
    Ok(())
}

/// The status and the text of an answer.
async fn finish(response: ResponseFuture) -> Result<(u16, String)> {
    let response = timeout(LIMIT, response).await.context("no answer")??;
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let mut text = Vec::new();
    while let Some(piece) = timeout(LIMIT, body.data()).await.context("no end")? {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        text.extend_from_slice(&piece);
    }
    Ok((status, String::from_utf8_lossy(&text).into_owned()))
}

/// How long one wait may last.
const LIMIT: Duration = Duration::from_secs(10);
