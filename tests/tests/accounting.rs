//! A request is counted until it is over, whatever ends it.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use picker_tests::{CHAT, DESTINATIONS, Draft, Stack, chat_body, servers, set_faults};
use serde_json::{Value, json};
use sim::server::ServerOptions;
use xtask::compose::Destination;
use xtask::http::{Length, head};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_stays_in_flight_whatever_ends_a_stream() -> Result<()> {
    for destination in DESTINATIONS {
        let options = ServerOptions {
            time_scale: 1.0,
            ..ServerOptions::default()
        };
        let mut draft = Draft::new(destination, vec![options; 2]).await?;
        let manager = draft.bootstrap.manager_mut("traffic")?;
        manager["stream_idle_timeout"] = json!("1s");
        abort_behind_the_picker(manager)?;
        let stack = draft.start().await?;

        each(
            "a client that leaves before its headers",
            &stack,
            leave_in_head,
        )
        .await?;
        each("a client that leaves in its body", &stack, leave_in_body).await?;
        each(
            "a client that leaves in the stream",
            &stack,
            leave_in_stream,
        )
        .await?;
        stack
            .wait("the servers have stopped too", |state| {
                state
                    .endpoints()
                    .all(|endpoint| endpoint.running == Some(0.0))
            })
            .await?;
        each("an answer by a later filter", &stack, aborted).await?;
        faulty(&stack, "reset").await?;
        each("a server that resets", &stack, failed).await?;
        faulty(&stack, "hang").await?;
        each("a server that never answers", &stack, failed).await?;
        faulty(&stack, "ok").await?;
        let response = stack.chat("hello").await?;
        assert_eq!(response.status, 200);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_five_hundred_clients_that_leave_nothing_stays() -> Result<()> {
    let draft = Draft::new(Destination::OriginalDst, servers(2)).await?;
    let stack = draft.start().await?;
    let mut memory = Vec::new();
    // The first hundred are what Envoy keeps room for.
    for _ in 0..6 {
        each("leaving in the head", &stack, leave_in_head).await?;
        each("leaving in the body", &stack, leave_in_body).await?;
        each("leaving in the stream", &stack, leave_in_stream).await?;
        memory.push(stack.memory()?);
    }
    let requests = stack.stat("cluster.llm.upstream_rq_active").await?;
    let clients = stack.stat("http.traffic.downstream_cx_active").await?;
    println!("{memory:?} bytes, {requests} requests and {clients} clients are left");
    assert_eq!(requests, 0);
    assert_eq!(clients, 0);
    let grown = memory.last().unwrap_or(&0).saturating_sub(memory[0]);
    assert!(grown < 20 << 20, "it has grown by {grown} bytes");
    Ok(())
}

/// Does the same many times at once, then waits until nothing is in flight.
async fn each<'a, F>(what: &str, stack: &'a Stack, once: fn(&'a Stack) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + 'a,
{
    let all: Vec<_> = (0..CLIENTS).map(|_| once(stack)).collect();
    for result in join(all).await {
        result.with_context(|| what.to_owned())?;
    }
    stack
        .wait_until_idle()
        .await
        .with_context(|| what.to_owned())?;
    Ok(())
}

/// Polls all futures to their ends.
async fn join<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut pending: Vec<_> = futures
        .into_iter()
        .map(|future| (Box::pin(future), None))
        .collect();
    std::future::poll_fn(|cx| {
        let mut ready = true;
        for (future, output) in &mut pending {
            if output.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(value) => *output = Some(value),
                    std::task::Poll::Pending => ready = false,
                }
            }
        }
        if ready {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    pending
        .into_iter()
        .filter_map(|(_, output)| output)
        .collect()
}

async fn leave_in_head(stack: &Stack) -> Result<()> {
    let mut connection = stack.connect().await?;
    connection
        .send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: loc")
        .await?;
    connection.reset()
}

async fn leave_in_body(stack: &Stack) -> Result<()> {
    let mut connection = stack.connect().await?;
    connection
        .send(&head("POST", CHAT, &[], Length::Known(1000)))
        .await?;
    connection
        .send(br#"{"model":"sim-model","messages":[{"role":"#)
        .await?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    connection.reset()
}

async fn leave_in_stream(stack: &Stack) -> Result<()> {
    let body = json!({
        "model": "sim-model",
        "stream": true,
        "max_tokens": 2000,
        "messages": [{"role": "user", "content": "Tell me all."}],
    });
    let body = body.to_string();
    let mut connection = stack.connect().await?;
    connection
        .send(&head("POST", CHAT, &[], Length::Known(body.len())))
        .await?;
    connection.send(body.as_bytes()).await?;
    let (response, mut framing) = connection.head().await?;
    ensure!(response.status == 200, "status {}", response.status);
    for _ in 0..2 {
        connection
            .piece(&mut framing)
            .await?
            .context("the stream ended early")?;
    }
    connection.reset()
}

async fn aborted(stack: &Stack) -> Result<()> {
    let body = chat_body("hello", 1);
    let response = stack
        .request("POST", CHAT, &[("x-abort", "1")], body.as_bytes())
        .await?;
    ensure!(response.status == 418, "status {}", response.status);
    Ok(())
}

async fn failed(stack: &Stack) -> Result<()> {
    let response = stack.chat("hello").await?;
    ensure!(response.status >= 500, "status {}", response.status);
    Ok(())
}

async fn faulty(stack: &Stack, requests: &str) -> Result<()> {
    for server in &stack.servers {
        set_faults(server, &json!({"requests": requests}))?;
    }
    Ok(())
}

/// Puts a filter behind the picker that answers requests with `x-abort` itself.
fn abort_behind_the_picker(manager: &mut Value) -> Result<()> {
    let filters = manager["http_filters"]
        .as_array_mut()
        .context("no filters")?;
    let router = filters.len() - 1;
    filters.insert(
        router,
        json!({
            "name": "abort",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
                "abort": {"http_status": 418, "percentage": {"numerator": 100}},
                "headers": [{"name": "x-abort", "present_match": true}],
            },
        }),
    );
    Ok(())
}

/// Clients at once.
const CLIENTS: usize = 100;
