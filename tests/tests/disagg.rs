//! Requests in stages: the destination reads in headers who computes the prompt for it.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use picker_tests::{CHAT, DESTINATIONS, Draft, Stack, chat_body, eventually, requests, servers};
use serde_json::{Value, json};
use sim::server::ServerOptions;
use xtask::compose::Destination;
use xtask::http::fetch;

#[tokio::test(flavor = "multi_thread")]
async fn the_endpoint_that_decodes_is_told_who_computes_the_prompt() -> Result<()> {
    for destination in DESTINATIONS {
        // Slow, so that a request can be seen in flight.
        let slow = ServerOptions {
            time_scale: 0.1,
            ..ServerOptions::default()
        };
        let stack = draft(destination, vec![slow; 4], &json!("always")).await?;
        let stack = stack.start().await?;
        let body = chat_body(&"a".repeat(8192), 2);
        let evil = [(PREFILL, "192.0.2.1:80"), (ENCODE, "192.0.2.1:80")];
        let asked = stack.request("POST", CHAT, &evil, body.as_bytes());
        let counted = stack.wait("both are counted", |state| {
            let in_flight: Vec<i64> = state.endpoints().map(|it| it.in_flight).collect();
            in_flight[..2].iter().sum::<i64>() == 1 && in_flight[2..].iter().sum::<i64>() == 1
        });
        let (response, counted) = tokio::join!(asked, counted);
        counted?;
        ensure!(response?.status == 200);
        stack.wait_until_idle().await?;
        let told = told(&stack).await?;
        ensure!(told.len() == 1, "{told:?}");
        let prefill: SocketAddr = told[0].as_deref().context("nobody is named")?.parse()?;
        let computing = stack.servers[2..].iter();
        ensure!(computing.map(|it| it.address()).any(|it| it == prefill));
        // A request without a prompt has nothing to compute, and nobody is named by a client.
        for (method, path) in [("GET", "/v1/models"), ("POST", "/unknown")] {
            stack.request(method, path, &evil, b"").await?;
        }
        let told = self::told(&stack).await?;
        ensure!(
            told.len() == 3 && told.iter().flatten().count() == 1,
            "{told:?}"
        );
        let line = stack.wait_for_line(&[CHAT, "prefill="]).await?;
        ensure!(line.contains(&format!("prefill={prefill}")), "{line}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_is_mostly_cached_is_computed_where_it_is_decoded() -> Result<()> {
    let decider = json!("prefix-based-pd-decider");
    let mut draft = draft(Destination::OriginalDst, servers(4), &decider).await?;
    draft.pool()?["emitScores"] = json!(true);
    let manager = draft.bootstrap.manager_mut("traffic")?;
    let format = "/access_log/0/typed_config/log_format/text_format_source/inline_string";
    let format = manager.pointer_mut(format).context("no format")?;
    *format = json!("scores=%FILTER_STATE(wasm.picker.scores:PLAIN)%\n");
    let stack = draft.start().await?;
    let prompt = "b".repeat(4096);
    let only_cached = async || {
        let body = chat_body(&prompt, 1);
        let prefer = [("prefer", "respond-async, If-Available")];
        let response = stack.request("POST", CHAT, &prefer, body.as_bytes()).await;
        response.map(|it| it.status)
    };
    ensure!(only_cached().await? == 412, "nobody holds anything yet");
    ensure!(stack.chat(&prompt).await?.status == 200);
    // About a thousand tokens are cached now, and few are missing.
    ensure!(
        stack
            .chat(&format!("{prompt}{}", "c".repeat(256)))
            .await?
            .status
            == 200
    );
    ensure!(only_cached().await? == 200);
    // Many are missing again.
    ensure!(
        stack
            .chat(&format!("{prompt}{}", "d".repeat(4096)))
            .await?
            .status
            == 200
    );
    stack.wait_until_idle().await?;
    let mut named: Vec<bool> = told(&stack).await?.iter().map(Option::is_some).collect();
    named.sort_unstable();
    ensure!(named == [false, false, true, true], "{named:?}");
    let decisions = "disagg_decision_total;pool=llm;decision_type=";
    for division in ["prefill-decode", "decode-only"] {
        stack
            .wait_for_count(&format!("{decisions}{division}"), 2)
            .await?;
    }
    let wanted = r#"picker_disagg_decision_total{pool="llm",decision_type="decode-only"} 2"#;
    let found = eventually(async || {
        let page = fetch(stack.proxy.admin(), "/stats/prometheus").await;
        page.is_ok_and(|page| page.text().lines().any(|line| line == wanted))
    });
    ensure!(found.await, "no {wanted}");
    let line = stack.wait_for_line(&["scores={"]).await?;
    let scores: Value = serde_json::from_str(line.trim_start_matches("scores=").trim())?;
    let of_decode = stack.servers[..2].iter();
    let mut scored = of_decode.map(|it| &scores[&it.address().to_string()]);
    ensure!(scored.all(Value::is_f64), "{line}");
    Ok(())
}

/// Two servers that decode, then those that compute prompts, as `decider` says.
async fn draft(
    destination: Destination,
    servers: Vec<ServerOptions>,
    decider: &Value,
) -> Result<Draft> {
    let mut draft = Draft::new(destination, servers).await?;
    let pool = draft.pool()?;
    let endpoints = pool["endpoints"].as_array_mut().context("no endpoints")?;
    for (place, endpoint) in endpoints.iter_mut().enumerate() {
        let role = if place < 2 { "decode" } else { "prefill" };
        endpoint["labels"] = json!({"llm-d.ai/role": role});
    }
    let profile = |role: &str| {
        json!({"name": role, "plugins": [
            {"pluginRef": format!("{role}-filter")},
            {"pluginRef": "prefix-cache-scorer"},
        ]})
    };
    pool["picker"] = json!({
        "plugins": [
            {"type": "decode-filter"},
            {"type": "prefill-filter"},
            {"type": "prefix-cache-scorer"},
            {"type": "always-disagg-pd-decider", "name": "always"},
            {"type": "prefix-based-pd-decider", "parameters": {"nonCachedTokens": 512}},
            {"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": decider}}},
        ],
        "schedulingProfiles": [profile("decode"), profile("prefill")],
    });
    Ok(draft)
}

/// Whom each request named that was sent to servers that decode; the others got none.
async fn told(stack: &Stack) -> Result<Vec<Option<String>>> {
    let mut told = Vec::new();
    for (place, server) in stack.servers.iter().enumerate() {
        for entry in requests(server).await? {
            ensure!(place < 2, "sent to a server that computes prompts: {entry}");
            let headers = entry["headers"].as_array().context("no headers")?;
            ensure!(headers.iter().all(|it| it[0] != ENCODE), "{entry}");
            let named = headers.iter().find(|it| it[0] == PREFILL);
            told.push(named.and_then(|it| it[1].as_str()).map(str::to_owned));
        }
    }
    Ok(told)
}

const PREFILL: &str = "x-prefiller-host-port";
const ENCODE: &str = "x-encoder-hosts-ports";
