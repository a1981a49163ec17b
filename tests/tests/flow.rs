//! Requests wait while the endpoints are full, and not more of them than may.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use picker_tests::held::Held;
use picker_tests::queueing::{REASON, all_served, stream_body};
use picker_tests::{CHAT, Draft, Stack, chat_body};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn no_more_are_at_the_endpoints_than_may_until_each_stream_has_ended() -> Result<()> {
    for workers in [1, 4] {
        let held = Held::start(2).await?;
        let draft = Draft::queueing(&held, workers, 5, json!({}))?;
        ten_of_a_hundred(&draft.start().await?, &held).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_the_pool_holds_where_the_detector_has_a_higher_one() -> Result<()> {
    for workers in [1, 4] {
        let held = Held::start(2).await?;
        let mut draft = Draft::queueing(&held, workers, 1000, json!({}))?;
        draft.pool()?["limits"]["requestsPerEndpoint"] = json!(5);
        ten_of_a_hundred(&draft.start().await?, &held).await?;
    }
    Ok(())
}

/// Of a hundred streams ten run and the others wait, all the time.
async fn ten_of_a_hundred(stack: &Stack, held: &Held) -> Result<()> {
    let asked = (0..100).map(|_| stack.ask(&[])).collect();
    held.wait_for(10).await?;
    stack.wait_for_queue(0, 90).await?;
    // All ten have begun to answer, which makes no room.
    tokio::time::sleep(Duration::from_millis(300)).await;
    ensure!(held.in_flight() == 10, "{}", held.in_flight());
    for round in 1..=10 {
        held.let_go(9);
        held.wait_for(10 + 9 * round).await?;
    }
    held.let_go(10);
    all_served(asked).await?;
    ensure!(held.most() == 10, "{} at once", held.most());
    stack.wait_until_empty(&[0]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_wait_as_may_and_the_rest_is_refused_in_the_shape_of_its_api() -> Result<()> {
    for workers in [1, 4] {
        let held = Held::start(2).await?;
        let bands = json!({"priorityBands": [{"priority": 0, "maxRequests": 5}]});
        let stack = Draft::queueing(&held, workers, 5, bands)?.start().await?;
        let asked = (0..15).map(|_| stack.ask(&[])).collect();
        stack.wait_for_queue(0, 5).await?;
        held.wait_for(10).await?;
        for (path, body, kind) in [
            (CHAT, chat_body("hello", 1), "rate_limit_error"),
            (CHAT, stream_body("hello"), "rate_limit_error"),
            ("/v1/messages", stream_body("hello"), "rate_limit_error"),
        ] {
            let answer = stack.ask_for(path, &[], body).await??;
            let response = &answer.response;
            ensure!(response.status == 429, "{path}: {}", response.text());
            ensure!(
                answer.took < Duration::from_secs(1),
                "after {:?}",
                answer.took
            );
            assert_eq!(response.header(REASON), Some("rejected-saturated"));
            assert_eq!(response.header("content-type"), Some("application/json"));
            let seconds: u32 = response.header("retry-after").context("when")?.parse()?;
            ensure!((1..=60).contains(&seconds), "in {seconds} s");
            let said = response.json()?;
            assert_eq!(said["error"]["type"], kind, "{said}");
            ensure!(said["error"]["message"].is_string(), "{said}");
            let is_anthropic = said["type"] == "error";
            ensure!(is_anthropic == (path != CHAT), "{said}");
        }
        // What is no call of an API takes no room and waits for none.
        let models = stack.request("GET", "/v1/models", &[], b"");
        held.let_go(15 + 1);
        ensure!(models.await?.status == 200);
        all_served(asked).await?;
        ensure!(held.came().len() == 16, "{:?}", held.names());
        stack.wait_until_empty(&[0]).await?;
        stack
            .wait_for_count("refusals_total;pool=llm;reason=rejected-saturated", 3)
            .await?;
    }
    Ok(())
}
