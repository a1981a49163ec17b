//! What the picker did can be seen from outside.

use anyhow::{Result, ensure};
use picker_tests::{CHAT, DESTINATIONS, Draft, eventually, servers};
use serde_json::json;
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

fn ours(stats: &str) -> String {
    let lines = stats.lines().filter(|line| line.starts_with("picker"));
    lines.collect::<Vec<_>>().join("\n")
}
