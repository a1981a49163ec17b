//! Whose turn it is: by priority, by tenant, by the time of arrival, and by no worker.

use std::time::Duration;

use anyhow::{Result, ensure};
use picker_tests::Draft;
use picker_tests::held::Held;
use picker_tests::queueing::{Asked, OBJECTIVE, TENANT, all_served};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn what_matters_more_comes_first_and_of_equals_what_came_first() -> Result<()> {
    for workers in [1, 4] {
        let held = Held::start(1).await?;
        let mut draft = Draft::queueing(&held, workers, 1, json!({}))?;
        draft.set_objectives()?;
        let stack = draft.start().await?;
        let mut asked = vec![stack.ask(&[("x-name", "first")])];
        held.wait_for(1).await?;
        for round in 1..=4 {
            for (objective, priority) in OBJECTIVES {
                let name = format!("{objective}{round}");
                asked.push(stack.ask(&[(OBJECTIVE, objective), ("x-name", &name)]));
                stack.wait_for_queue(priority, round).await?;
            }
        }
        let came = one_by_one(&held, 17).await?;
        all_served(asked).await?;
        let mut expected = vec!["first".to_owned()];
        for objective in ["high", "middle", "none", "low"] {
            expected.extend((1..=4).map(|round| format!("{objective}{round}")));
        }
        assert_eq!(came, expected, "{workers} workers");
        stack.wait_until_empty(&[10, 3, 0, -1]).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_take_turns_though_one_of_them_was_first_with_all_of_its_requests() -> Result<()> {
    for workers in [1, 4] {
        let held = Held::start(1).await?;
        let fair = json!({"priority": 0, "fairnessPolicyRef": "round-robin-fairness-policy"});
        let bands = json!({"priorityBands": [fair]});
        let stack = Draft::queueing(&held, workers, 1, bands)?.start().await?;
        let mut asked = vec![stack.ask(&[("x-name", "first")])];
        held.wait_for(1).await?;
        for (place, tenant) in ["a"; 8].into_iter().chain(["b"; 4]).enumerate() {
            asked.push(stack.ask(&[(TENANT, tenant), ("x-name", tenant)]));
            stack.wait_for_queue(0, place as u64 + 1).await?;
        }
        let came = one_by_one(&held, 13).await?;
        all_served(asked).await?;
        let turns = came[1..].concat();
        ensure!(turns == "ababababaaaa", "{turns} with {workers} workers");
        stack.wait_until_empty(&[0]).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_tenants_that_nobody_knows_are_served_and_soon_forgotten() -> Result<()> {
    let held = Held::start(1).await?;
    let fair = json!({"priority": 0, "fairnessPolicyRef": "round-robin-fairness-policy"});
    let bands = json!({"priorityBands": [fair]});
    let stack = Draft::queueing(&held, 4, 10, bands)?.start().await?;
    let mut memory = Vec::new();
    for round in 0..3 {
        let mut asked: Vec<Asked> = (0..10).map(|_| stack.ask(&[])).collect();
        held.wait_for(1010 * round + 10).await?;
        for number in 0..1000 {
            let tenant = format!("{round} {number} {}", "x".repeat(number % 100));
            asked.push(stack.ask(&[(TENANT, &tenant)]));
        }
        stack.wait_for_queue(0, 1000).await?;
        held.let_go(1010);
        all_served(asked).await?;
        stack.wait_until_empty(&[0]).await?;
        memory.push(stack.memory()?);
    }
    ensure!(held.most() == 10, "{} at once", held.most());
    println!("{memory:?} bytes");
    let grown = memory[2].saturating_sub(memory[0]);
    ensure!(grown < 20 << 20, "it has grown by {grown} bytes");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn room_on_one_worker_is_taken_by_another_at_once() -> Result<()> {
    let held = Held::start(1).await?;
    let stack = Draft::queueing(&held, 4, 1, json!({}))?.start().await?;
    let mut asked = vec![stack.ask(&[])];
    held.wait_for(1).await?;
    asked.extend((0..200).map(|_| stack.ask(&[])));
    stack.wait_for_queue(0, 200).await?;
    held.let_go(201);
    all_served(asked).await?;
    ensure!(held.most() == 1, "{} at once", held.most());
    let ended = held.ended();
    let came = held.came();
    let gaps = came.iter().skip(1).zip(&ended);
    let mut gaps: Vec<Duration> = gaps.map(|(came, ended)| came.at - *ended).collect();
    gaps.sort_unstable();
    let (median, longest) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
    println!("from an end to the next beginning: {median:?}, at most {longest:?}");
    ensure!(median < Duration::from_millis(50), "{median:?}");
    stack.wait_until_empty(&[0]).await
}

/// Lets one after the other go and waits for the next, until `count` have come; the order in which
/// they came.
async fn one_by_one(held: &Held, count: usize) -> Result<Vec<String>> {
    for next in 2..=count {
        held.let_go(1);
        held.wait_for(next).await?;
    }
    held.let_go(1);
    Ok(held.names())
}

/// Objectives and their priorities, in the order in which they ask.
const OBJECTIVES: [(&str, i32); 4] = [("low", -1), ("none", 0), ("middle", 3), ("high", 10)];
