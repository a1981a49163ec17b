//! Who comes back gets the endpoint that served before, whichever worker takes the request.

use anyhow::{Context, Result, ensure};
use picker_tests::{CHAT, DESTINATIONS, Draft, Stack, chat_body, servers};
use serde_json::{Value, json};
use xtask::compose::Destination;
use xtask::http::Response;

#[tokio::test(flavor = "multi_thread")]
async fn a_token_leads_back_and_one_that_is_not_ours_leads_nowhere() -> Result<()> {
    for destination in DESTINATIONS {
        let stack = start(destination, json!({})).await?;
        let mut tokens: Vec<String> = Vec::new();
        for number in 0..60 {
            let response = ask(&stack, number, &[]).await?;
            let token = response.header(TOKEN).context("no token")?;
            if !tokens.iter().any(|it| it == token) {
                tokens.push(token.to_owned());
            }
        }
        assert_eq!(tokens.len(), 3, "one for each server: {tokens:?}");
        for token in &tokens {
            let before = stack.served().await?;
            for number in 0..12 {
                let response = ask(&stack, number, &[(TOKEN, token)]).await?;
                assert_eq!(response.header(TOKEN), Some(token.as_str()));
            }
            let mut served = more(&before, &stack.served().await?);
            served.sort_unstable();
            assert_eq!(served, [0, 0, 12]);
        }
        workers_took_turns(&stack).await?;
        let forged = [
            stack.servers[0].address().to_string(),
            "0123456789abcdef".to_owned(),
            "ZGVmYXVsdC92bGxtLTA=".to_owned(),
        ];
        for token in &forged {
            let before = stack.served().await?;
            for number in 0..24 {
                let response = ask(&stack, number, &[(TOKEN, token)]).await?;
                ensure!(response.header(TOKEN) != Some(token), "{token}");
            }
            let served = more(&before, &stack.served().await?);
            ensure!(served.iter().all(|it| *it > 0), "{token}: {served:?}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_the_client_names_stays_where_it_began() -> Result<()> {
    let parameters = json!({"strategy": "session_id"});
    let stack = start(Destination::OriginalDst, parameters).await?;
    let mut total = vec![0; 3];
    for session in 0..12 {
        let before = stack.served().await?;
        for number in 0..8 {
            let name = format!("session {session}");
            let response = ask(&stack, number, &[("x-session-id", &name)]).await?;
            assert_eq!(response.header(TOKEN), None);
        }
        let mut served = more(&before, &stack.served().await?);
        total
            .iter_mut()
            .zip(&served)
            .for_each(|(sum, it)| *sum += it);
        served.sort_unstable();
        assert_eq!(served, [0, 0, 8], "session {session}");
    }
    ensure!(total.iter().all(|it| *it > 0), "{total:?}");
    workers_took_turns(&stack).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_envoys_with_one_key_take_each_others_tokens() -> Result<()> {
    let one = draft(Destination::OriginalDst, json!({})).await?;
    let endpoints = one.servers.iter().map(sim::server::Server::address);
    let endpoints: Vec<_> = endpoints.collect();
    let mut other = Draft::with_endpoints(Destination::OriginalDst, &endpoints)?;
    other.document = one.document.clone();
    let (one, other) = (one.start().await?, other.start().await?);
    let first = ask(&one, 0, &[]).await?;
    let token = first.header(TOKEN).context("no token")?;
    for number in 0..12 {
        let response = ask(&other, number, &[(TOKEN, token)]).await?;
        assert_eq!(response.header(TOKEN), Some(token));
    }
    Ok(())
}

async fn start(destination: Destination, parameters: Value) -> Result<Stack> {
    let mut draft = draft(destination, parameters).await?;
    draft.document["sessionKey"] = Value::Null;
    draft.start().await
}

/// Three servers behind a plan that keeps sessions and else picks by chance.
async fn draft(destination: Destination, parameters: Value) -> Result<Draft> {
    let mut draft = Draft::new(destination, servers(3)).await?;
    draft.document["sessionKey"] = "a key of both Envoys".into();
    draft.pool()?["picker"] = json!({"plugins": [
        {"type": "session-affinity-filter", "parameters": parameters},
        {"type": "random-picker"},
    ]});
    Ok(draft)
}

/// One request on a connection of its own, so that the workers take turns.
async fn ask(stack: &Stack, number: u32, headers: &[(&str, &str)]) -> Result<Response> {
    let mut all = vec![("content-type", "application/json")];
    all.extend_from_slice(headers);
    let body = chat_body(&format!("question {number}"), 1);
    let response = stack.request("POST", CHAT, &all, body.as_bytes()).await?;
    ensure!(response.status == 200, "{}", response.text());
    Ok(response)
}

async fn workers_took_turns(stack: &Stack) -> Result<()> {
    let state = stack.state().await?;
    let sent: Vec<u64> = state.workers().map(|worker| worker.sent).collect();
    ensure!(sent.len() == 2 && sent.iter().all(|it| *it > 4), "{sent:?}");
    Ok(())
}

fn more(before: &[usize], after: &[usize]) -> Vec<usize> {
    let pairs = after.iter().zip(before);
    pairs.map(|(after, before)| after - before).collect()
}

const TOKEN: &str = "x-session-token";
