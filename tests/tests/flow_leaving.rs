//! Who leaves, at whatever moment, gives back the place in the queue and is not served.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use h2::Reason;
use picker_tests::held::Held;
use picker_tests::queueing::{OBJECTIVE, all_served, gauge, stream_body};
use picker_tests::{CHAT, Draft, Stack, http2};
use serde_json::json;
use xtask::draw::Draw;
use xtask::http::{Connection, Length, head};

#[tokio::test(flavor = "multi_thread")]
async fn of_five_hundred_clients_that_leave_nothing_waits_or_is_served_later() -> Result<()> {
    for workers in [1, 4] {
        let held = Held::start(1).await?;
        let stack = Draft::queueing(&held, workers, 5, json!({}))?
            .start()
            .await?;
        let (small, large) = (stream_body("hello"), stream_body(&"five ".repeat(1 << 20)));
        let mut memory = Vec::new();
        for round in 1..=ROUNDS {
            let running = begun(&stack, &small, 5).await?;
            held.wait_for(5 * round).await?;
            for _ in 0..20 {
                let mut connection = stack.connect().await?;
                connection
                    .send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: l")
                    .await?;
                connection.reset()?;
                let mut connection = stack.connect().await?;
                let length = Length::Known(small.len());
                connection.send(&head("POST", CHAT, &[], length)).await?;
                connection.send(&small.as_bytes()[..40]).await?;
                tokio::time::sleep(Duration::from_millis(2)).await;
                connection.reset()?;
            }
            let mut waiting = begun(&stack, &small, 50).await?;
            waiting.extend(begun(&stack, &large, 5).await?);
            stack.wait_for_queue(0, 55).await?;
            let bytes = stack.stat(&gauge("llm_d_epp", "bytes", 0)).await?;
            assert_eq!(bytes, (50 * small.len() + 5 * large.len()) as u64);
            for connection in waiting {
                connection.reset()?;
            }
            stack.wait_for_queue(0, 0).await?;
            ensure!(held.in_flight() == 5, "{}", held.in_flight());
            for connection in running {
                connection.reset()?;
            }
            stack.wait_until_empty(&[0]).await?;
            memory.push(stack.memory()?);
        }
        ensure!(held.came().len() == 5 * ROUNDS, "{}", held.came().len());
        held.wait_for_in_flight(0).await?;
        println!("{workers} workers: {memory:?} bytes");
        let grown = memory.last().unwrap_or(&0).saturating_sub(memory[0]);
        ensure!(grown < 30 << 20, "it has grown by {grown} bytes");
        held.let_go(1);
        all_served(vec![stack.ask(&[])]).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_one_connection_that_are_reset_while_they_wait_leave_the_others() -> Result<()> {
    let held = Held::start(1).await?;
    let stack = Draft::queueing(&held, 2, 1, json!({}))?.start().await?;
    let running = stack.ask(&[]);
    held.wait_for(1).await?;
    let client = http2::connect(&stack).await?;
    let mut waiting = Vec::new();
    for number in 0..100 {
        let name = number.to_string();
        let (response, mut stream) = http2::open(&client, &[("x-name", &name)])?;
        stream.send_data(Bytes::from(stream_body("hello")), true)?;
        waiting.push((response, stream));
    }
    stack.wait_for_queue(0, 100).await?;
    let mut stay = Vec::new();
    for (number, (response, mut stream)) in waiting.into_iter().enumerate() {
        if number % 10 == 3 {
            stay.push((response, stream));
        } else {
            stream.send_reset(Reason::CANCEL);
        }
    }
    stack.wait_for_queue(0, 10).await?;
    held.let_go(11);
    for (response, _) in stay {
        let (status, text) = http2::finish(response).await?;
        ensure!(status == 200, "{status} {text}");
    }
    all_served(vec![running]).await?;
    let expected: Vec<String> = (0..10).map(|it| format!("{}", 10 * it + 3)).collect();
    assert_eq!(held.names().split_off(1), expected);
    stack.wait_until_empty(&[0]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_when_the_turn_comes_takes_nobody_along() -> Result<()> {
    let held = Held::start(2).await?;
    let bands = json!({"enableEviction": true});
    let mut draft = Draft::queueing(&held, 4, 2, bands)?;
    draft.set_objectives()?;
    let stack = draft.start().await?;
    // Nobody is held, so that turns come all the time.
    held.let_go(1 << 20);
    for seed in 0..20 {
        let mut draw = Draw::new(seed);
        let mut leaving = Vec::new();
        let mut staying = Vec::new();
        for _ in 0..100 {
            let body = stream_body(&draw.prose(50));
            if draw.below(2) == 0 {
                staying.push(stack.ask_for(CHAT, &[(OBJECTIVE, "high")], body));
                continue;
            }
            let objective = ["low", "middle", "high"][draw.below(3)];
            let after = Duration::from_micros(draw.below(100_000) as u64);
            let traffic = stack.addresses.traffic;
            leaving.push(tokio::spawn(async move {
                let mut connection = Connection::open(traffic).await?;
                let headers = [(OBJECTIVE, objective)];
                let head = head("POST", CHAT, &headers, Length::Known(body.len()));
                connection.send(&[&head, body.as_bytes()].concat()).await?;
                tokio::time::sleep(after).await;
                connection.reset()
            }));
        }
        for client in leaving {
            client.await?.with_context(|| format!("seed {seed}"))?;
        }
        all_served(staying)
            .await
            .with_context(|| format!("seed {seed}"))?;
    }
    stack.wait_until_empty(&[10, 3, 0, -1]).await?;
    held.wait_for_in_flight(0).await?;
    println!("{} of 2000 came", held.came().len());
    Ok(())
}

/// Connections on each of which a request is sent whole.
async fn begun(stack: &Stack, body: &str, count: usize) -> Result<Vec<Connection>> {
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count {
        let mut connection = stack.connect().await?;
        let head = head("POST", CHAT, &[], Length::Known(body.len()));
        connection.send(&head).await?;
        connection.send(body.as_bytes()).await.context("the body")?;
        connections.push(connection);
    }
    Ok(connections)
}

/// So often a hundred clients leave, five of them with a body of five megabytes.
const ROUNDS: usize = 5;
