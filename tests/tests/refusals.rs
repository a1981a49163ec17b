//! What clients get that are sent away for lack of room.

use anyhow::{Context, Result, ensure};
use picker_tests::{CHAT, Draft, servers, set_faults};
use serde_json::json;
use xtask::compose::Destination;

#[tokio::test(flavor = "multi_thread")]
async fn who_is_sent_away_is_told_why_and_when_to_come_back_in_the_words_of_the_api() -> Result<()>
{
    let mut draft = Draft::new(Destination::OriginalDst, servers(1)).await?;
    draft.pool()?["picker"] = json!({
        "plugins": [
            {"type": "concurrency-detector", "parameters": {"maxConcurrency": 1}},
            {"type": "queue-scorer"},
        ],
        "schedulingProfiles": [{
            "name": "default",
            "plugins": [
                {"pluginRef": "concurrency-detector"},
                {"pluginRef": "queue-scorer"},
            ],
        }],
    });
    let stack = draft.start().await?;
    set_faults(
        stack.servers.first().context("no server")?,
        &json!({"requests": "hang"}),
    )?;
    let headers = [("content-type", "application/json")];
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]}).to_string();
    let _running = stack.begin_chat().await?;
    for (path, body, kind) in [
        (CHAT, &body, "/error/type"),
        (CHAT, &streamed(), "/error/type"),
        (
            "/v1/responses",
            &json!({"input": "x"}).to_string(),
            "/error/type",
        ),
        ("/v1/messages", &streamed(), "/error/type"),
        ("/generate", &json!({"text": "x"}).to_string(), "/type"),
    ] {
        let response = stack
            .request("POST", path, &headers, body.as_bytes())
            .await?;
        let answer = response.json()?;
        ensure!(
            response.status == 429,
            "{path}: {} {answer}",
            response.status
        );
        let reason = response.header("x-llm-d-request-dropped-reason");
        assert_eq!(reason, Some("rejected-saturated"), "{path}");
        // Nothing has been answered yet that could be measured.
        let seconds: u32 = response.header("retry-after").context("no time")?.parse()?;
        ensure!(
            (5..=8).contains(&seconds),
            "{path}: retry after {seconds} s"
        );
        let media_type = response.header("content-type");
        assert_eq!(media_type, Some("application/json"), "{path}");
        let found = answer.pointer(kind);
        assert_eq!(found, Some(&json!("rate_limit_error")), "{path}: {answer}");
        let is_anthropic = answer.get("type") == Some(&json!("error"));
        assert_eq!(is_anthropic, path == "/v1/messages", "{path}: {answer}");
    }
    Ok(())
}

fn streamed() -> String {
    json!({
        "model": "m",
        "stream": true,
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "x"}],
    })
    .to_string()
}
