//! What comes back: as it comes, and counted only where an endpoint has said it.

use anyhow::{Context, Result, ensure};
use picker_tests::canned::Stepwise;
use picker_tests::{CHAT, DESTINATIONS, Draft, chat_body, eventually, servers, set_faults};
use serde_json::json;
use xtask::compose::Destination;
use xtask::http::{Length, chunk, head};

#[tokio::test(flavor = "multi_thread")]
async fn every_piece_of_a_stream_is_passed_on_before_the_next_comes() -> Result<()> {
    for destination in DESTINATIONS {
        let server = Stepwise::start().await?;
        let draft = Draft::with_endpoints(destination, &[server.address()])?;
        let stack = draft.start().await?;
        let mut connection = stack.connect().await?;
        let body = chat_body("hello", 2);
        let headers = [("content-type", "application/json")];
        let mut bytes = head("POST", CHAT, &headers, Length::of(body.as_bytes()));
        bytes.extend_from_slice(body.as_bytes());
        connection.send(&bytes).await?;
        server.send(HEAD).await?;
        let (response, mut framing) = connection.head().await?;
        ensure!(response.status == 200, "status {}", response.status);
        for event in EVENTS {
            server.send(chunk(event.as_bytes())).await?;
            // The server has nothing more to say until this one has arrived.
            let piece = connection.piece(&mut framing).await?;
            let piece = piece.with_context(|| format!("{event:?} did not arrive"))?;
            ensure!(piece == event.as_bytes(), "{event:?} became {piece:?}");
        }
        server.send(chunk(b"")).await?;
        let end = connection.piece(&mut framing).await?;
        ensure!(end.is_none(), "more than was sent: {end:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_envoy_answers_itself_is_no_answer_of_an_endpoint() -> Result<()> {
    let mut draft = Draft::new(Destination::OriginalDst, servers(1)).await?;
    draft.pool()?["limits"] = json!({"requestBodyBytes": 10_000});
    draft.concurrency = 1;
    let manager = draft.bootstrap.manager_mut("traffic")?;
    let routes = manager.pointer_mut("/route_config/virtual_hosts/0/routes");
    let routes = routes.and_then(|routes| routes.as_array_mut());
    for route in routes.context("no routes")? {
        route["route"]["timeout"] = json!("0.3s");
    }
    let stack = draft.start().await?;
    let server = stack.servers.first().context("no server")?;
    set_faults(server, &json!({"requests": "hang"}))?;
    let post = async |path, body: &str| {
        let headers = [("content-type", "application/json")];
        let response = stack.request("POST", path, &headers, body.as_bytes());
        anyhow::Ok(response.await?.status)
    };
    ensure!(post(CHAT, &chat_body("hello", 2)).await? == 504);
    ensure!(post(CHAT, &"x".repeat(10_001)).await? == 413);
    ensure!(post("/sleep", "").await? == 403);
    stack.wait_until_idle().await?;
    let count = async |name: &str| {
        let name = format!("wasmcustom.picker_{name}");
        stack.stat(&name).await.unwrap_or(u64::MAX)
    };
    // Counters are told to Envoy at the next tick, all at once.
    let last = "refusals_total;pool=llm;reason=admin-path";
    ensure!(eventually(async || count(last).await == 1).await, "{last}");
    let picks = count("picks_total;pool=llm").await;
    ensure!(picks == 1, "{picks} picks");
    for name in ["prompt_tokens", "output_tokens", "first_tokens"] {
        let counted = count(&format!("{name}_total;pool=llm")).await;
        ensure!(counted == 0, "{counted} {name}");
    }
    let state = stack.state().await?;
    let sent: Vec<u64> = state.endpoints().map(|endpoint| endpoint.sent).collect();
    ensure!(sent == [1], "sent {sent:?}");
    Ok(())
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                    transfer-encoding: chunked\r\n\r\n";

/// Signs of life that an endpoint gives while it thinks, and then tokens.
const EVENTS: [&str; 6] = [
    ": ping\n\n",
    "event: ping\ndata: {\"type\": \"ping\"}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"}}]}\n\n",
    "\n",
    "data: [DONE]\n\n",
];
