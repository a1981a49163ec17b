//! Requests of little importance: what they give up for others, with flow control and without.

use anyhow::{Context, Result, ensure};
use picker_tests::held::Held;
use picker_tests::queueing::{Asked, OBJECTIVE, REASON, all_served};
use picker_tests::{CHAT, Draft, chat_body};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn running_requests_of_little_importance_make_room_one_by_one() -> Result<()> {
    for workers in [1, 4] {
        let held = Held::start(1).await?;
        let evicting = json!({"enableEviction": true});
        let mut draft = Draft::queueing(&held, workers, 4, evicting)?;
        draft.set_objectives()?;
        let stack = draft.start().await?;
        let mut running: Vec<Asked> = Vec::new();
        for (place, streams) in [true, false, true, false].into_iter().enumerate() {
            let name = if streams { "streams" } else { "whole" };
            let headers = [(OBJECTIVE, "low"), ("x-name", name)];
            running.push(if streams {
                stack.ask(&headers)
            } else {
                stack.ask_for(CHAT, &headers, chat_body("hello", 1))
            });
            held.wait_for(place + 1).await?;
        }
        let mut asked = Vec::new();
        for place in 0..4 {
            let objective = if place % 2 == 0 { "high" } else { "none" };
            asked.push(stack.ask(&[(OBJECTIVE, objective), ("x-name", objective)]));
            held.wait_for(5 + place).await?;
            // The last that was sent goes first.
            let evicted = running.pop().context("one is left")?.await?;
            if place % 2 == 0 {
                let response = evicted?.response;
                assert_eq!(
                    (response.status, response.header(REASON)),
                    (429, Some("evicted"))
                );
                ensure!(response.json()?["error"].is_object(), "{}", response.text());
            } else {
                ensure!(evicted.is_err(), "{evicted:?}");
            }
            ensure!(
                running.iter().all(|it| !it.is_finished()),
                "more than one went"
            );
        }
        // Now nobody is left that could go.
        asked.push(stack.ask(&[(OBJECTIVE, "high")]));
        stack.wait_for_queue(10, 1).await?;
        held.wait_for_in_flight(4).await?;
        held.let_go(5);
        all_served(asked).await?;
        // The server may learn of an end after the next request has come.
        ensure!(held.most() <= 5, "{} at once", held.most());
        stack.wait_until_empty(&[10, 3, 0, -1]).await?;
        stack
            .wait_for_count("refusals_total;pool=llm;reason=evicted", 4)
            .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_flow_control_only_what_can_be_shed_is_turned_away() -> Result<()> {
    for workers in [1, 4] {
        let held = Held::start(1).await?;
        let mut draft = Draft::queueing(&held, workers, 2, json!({}))?;
        draft.pool()?["picker"]["featureGates"] = json!([]);
        draft.set_objectives()?;
        let stack = draft.start().await?;
        let mut asked = vec![stack.ask(&[(OBJECTIVE, "low")])];
        held.wait_for(1).await?;
        asked.push(stack.ask(&[]));
        held.wait_for(2).await?;
        let refused = stack.ask(&[(OBJECTIVE, "low")]).await??.response;
        ensure!(refused.status == 429, "{}", refused.text());
        ensure!(refused.text().contains("sheddable"), "{}", refused.text());
        for (place, objective) in ["none", "middle", "high"].into_iter().enumerate() {
            asked.push(stack.ask(&[(OBJECTIVE, objective)]));
            held.wait_for(3 + place).await?;
        }
        held.let_go(6);
        all_served(asked).await?;
        all_served(vec![stack.ask(&[(OBJECTIVE, "low")])]).await?;
        stack.wait_until_idle().await?;
    }
    Ok(())
}
