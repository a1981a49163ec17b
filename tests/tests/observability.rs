//! What the picker did can be seen from outside.

use anyhow::{Result, ensure};
use picker_tests::{CHAT, DESTINATIONS, Draft, chat_body, eventually, servers};
use serde_json::json;
use sim::server::ServerOptions;
use xtask::compose::Destination;
use xtask::http::fetch;

#[tokio::test(flavor = "multi_thread")]
async fn the_access_log_and_the_stats_say_what_was_decided() -> Result<()> {
    for destination in DESTINATIONS {
        let mut draft = Draft::new(destination, servers(2)).await?;
        draft.pool()?["limits"] = json!({"requestBodyBytes": 100_000});
        let stack = draft.start().await?;
        stack.chat("hello").await?;
        let line = stack.wait_for_line(&[CHAT, " 200 "]).await?;
        let upstream = line
            .split(' ')
            .find_map(|word| word.strip_prefix("upstream="));
        let picked = line
            .split(' ')
            .find_map(|word| word.strip_prefix("endpoint="));
        ensure!(upstream.is_some() && upstream == picked, "{line}");
        ensure!(line.contains("picker=pool=llm"), "{line}");

        let too_large = "x".repeat(100_001);
        let response = stack
            .request("POST", CHAT, &[], too_large.as_bytes())
            .await?;
        let reason = response
            .header("x-llm-d-request-dropped-reason")
            .unwrap_or_default();
        let retry = response.header("retry-after");
        ensure!(retry.is_none(), "it never fits, but {retry:?}");
        let line = stack.wait_for_line(&[CHAT, " 413 "]).await?;
        ensure!(
            !reason.is_empty() && line.contains(&format!("refused={reason}")),
            "{line}"
        );
        ensure!(line.contains(" picker_"), "no details of ours: {line}");

        let refusals = format!(r#"picker_refusals_total{{pool="llm",reason="{reason}"}} 1"#);
        for wanted in [r#"picker_picks_total{pool="llm"} 1"#, &refusals] {
            // Counters are told to Envoy at the next tick.
            let mut stats = String::new();
            let found = eventually(async || {
                let page = fetch(stack.proxy.admin(), "/stats/prometheus").await;
                stats = page.map(|page| page.text()).unwrap_or_default();
                stats.lines().any(|line| line == wanted)
            });
            ensure!(found.await, "no {wanted} in:\n{}", ours(&stats));
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_and_their_times_are_counted_and_in_the_access_log() -> Result<()> {
    let slow = ServerOptions {
        time_scale: 0.2,
        ..ServerOptions::default()
    };
    let stack = Draft::new(Destination::OriginalDst, vec![slow])
        .await?
        .start()
        .await?;
    let streamed = |usage: bool| {
        let body = json!({
            "model": "sim-model",
            "stream": true,
            "stream_options": {"include_usage": usage},
            "max_completion_tokens": 5,
            "messages": [{"role": "user", "content": "Hello"}],
        });
        body.to_string()
    };
    let known = ["prompt", "output", "first_token_us", "later_token_us"];
    let log_lines = || -> Result<usize> { Ok(stack.log()?.matches("wasm log").count()) };
    let said_before = log_lines()?;
    let requests = [
        (chat_body("hello", 5), 5, &known[..2]),
        (streamed(true), 5, &known),
        // Where nothing is counted events stand for tokens, and the one with the role is one.
        (streamed(false), 6, &known[1..]),
    ];
    for (count, (body, output, said)) in requests.iter().enumerate() {
        let path = format!("{CHAT}?{count}");
        let response = stack.request("POST", &path, &[], body.as_bytes()).await?;
        assert_eq!(response.status, 200);
        let line = stack.wait_for_line(&[&path]).await?;
        let figure = |name: &str| -> Option<u64> {
            let name = format!("{name}=");
            line.split(' ')
                .find_map(|word| word.strip_prefix(&name))?
                .parse()
                .ok()
        };
        let found = known.iter().filter(|name| figure(name).is_some());
        ensure!(found.copied().eq(said.iter().copied()), "{line}");
        assert_eq!(figure("output"), Some(*output), "{line}");
        let took = |name| figure(name).is_none_or(|it| (5_000..2_000_000).contains(&it));
        ensure!(took("first_token_us") && took("later_token_us"), "{line}");
    }
    let stat = async |name: &str| {
        let name = format!("wasmcustom.picker_{name}_total;pool=llm");
        stack.stat(&name).await
    };
    assert_eq!(log_lines()?, said_before, "no request has a line");
    stack
        .wait_for_count("output_tokens_total;pool=llm", 16)
        .await?;
    assert_eq!(stat("first_tokens").await?, 2);
    assert_eq!(stat("later_tokens").await?, 9);
    ensure!(stat("prompt_tokens").await? >= 2);
    ensure!((10_000..4_000_000).contains(&stat("first_token_us").await?));
    ensure!((40_000..16_000_000).contains(&stat("later_token_us").await?));
    Ok(())
}

fn ours(stats: &str) -> String {
    let lines = stats.lines().filter(|line| line.starts_with("picker"));
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_do_not_make_stats() -> Result<()> {
    let fast = ServerOptions {
        time_scale: 200.0,
        ..ServerOptions::default()
    };
    let mut draft = Draft::new(Destination::OriginalDst, vec![fast; 2]).await?;
    draft.concurrency = 1;
    let stack = draft.start().await?;
    let names = async || -> Result<Vec<String>> {
        let stats = fetch(stack.proxy.admin(), "/stats?usedonly").await?.text();
        let names = stats.lines().filter_map(|line| line.split_once(": "));
        let ours = names
            .map(|it| it.0)
            .filter(|it| it.starts_with("wasmcustom."));
        Ok(ours.map(str::to_owned).collect())
    };
    let send = async |number: usize| -> Result<()> {
        let model = format!("model-{number}");
        let body = json!({"model": model, "prompt": model, "user": model, "max_tokens": 1});
        let path = format!("/v1/completions?tenant={number}");
        let headers = [
            ("content-type", "application/json"),
            ("x-tenant", &model),
            ("x-gateway-inference-fairness-id", &model),
        ];
        let body = body.to_string();
        stack
            .request("POST", &path, &headers, body.as_bytes())
            .await?;
        Ok(())
    };
    send(0).await?;
    let told = "wasmcustom.picker_picks_total;pool=llm";
    let is_told = async |count: u64| {
        let told = eventually(async || stack.stat(told).await.is_ok_and(|it| it == count));
        told.await
    };
    ensure!(is_told(1).await, "the first was not counted");
    let before = names().await?;
    for number in 1..200 {
        send(number).await?;
    }
    ensure!(is_told(200).await, "not all were counted");
    let after = names().await?;
    ensure!(
        !before.is_empty() && before == after,
        "{before:?} became {after:?}"
    );
    Ok(())
}
