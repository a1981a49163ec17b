//! Several pools behind one listener: which serves a request is decided by its model.

use anyhow::{Context, Result, ensure};
use picker_tests::{CHAT, DESTINATIONS, Draft, Stack, eventually, requests, servers, set_faults};
use serde_json::{Value, json};
use sim::server::ServerOptions;
use xtask::compose::{Destination, name_pools};
use xtask::http::Response;

/// A pool for each server, the first with the first of the keys.
async fn draft(destination: Destination, models: &[&str], keys: Value) -> Result<Draft> {
    let of = |model: &&str| ServerOptions {
        model: (*model).into(),
        strict_models: true,
        ..servers(1).remove(0)
    };
    let mut draft = Draft::new(destination, models.iter().map(of).collect()).await?;
    let whole = draft.pool()?.take();
    let keys = keys.as_array().cloned().unwrap_or_default();
    let endpoints = whole["endpoints"].as_array().cloned().unwrap_or_default();
    let pools = endpoints.into_iter().zip(keys).enumerate();
    draft.document["pools"] = pools
        .map(|(place, (endpoint, keys))| {
            let mut pool = whole.clone();
            pool["name"] = json!(format!("pool-{place}"));
            pool["endpoints"] = json!([endpoint]);
            for (key, value) in keys.as_object().into_iter().flatten() {
                pool[key] = value.clone();
            }
            pool
        })
        .collect();
    if destination == Destination::OverrideHost {
        name_pools(&mut draft.bootstrap, &draft.document)?;
    }
    Ok(draft)
}

async fn ask(stack: &Stack, model: Option<&str>) -> Result<Response> {
    let mut body = json!({"max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]});
    if let Some(model) = model {
        body["model"] = json!(model);
    }
    let headers = [("content-type", "application/json")];
    stack
        .request("POST", CHAT, &headers, body.to_string().as_bytes())
        .await
}

/// Which models each server has been asked for.
async fn asked(stack: &Stack) -> Result<Vec<Vec<Value>>> {
    let mut asked = Vec::new();
    for server in &stack.servers {
        let seen = requests(server).await?;
        asked.push(seen.iter().map(|it| it["model"].clone()).collect());
    }
    Ok(asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_goes_to_the_pool_that_has_its_model() -> Result<()> {
    for destination in DESTINATIONS {
        let keys = json!([{"models": ["alpha"]}, {"models": ["beta", "be*"]}, {}]);
        let draft = draft(destination, &["alpha", "beta", "rest"], keys).await?;
        let stack = draft.start().await?;
        for _ in 0..10 {
            for (model, shown) in [("alpha", 200), ("beta", 200), ("rest", 200), ("bee", 404)] {
                let response = ask(&stack, Some(model)).await?;
                ensure!(response.status == shown, "{model}: {}", response.text());
            }
        }
        ensure!(ask(&stack, None).await?.status == 200);
        let mut expected: [Vec<Value>; 3] = Default::default();
        for _ in 0..10 {
            expected[0].push(json!("alpha"));
            expected[1].extend([json!("beta"), json!("bee")]);
            expected[2].push(json!("rest"));
        }
        expected[2].push(Value::Null);
        assert_eq!(asked(&stack).await?, expected);
        stack.wait_until_idle().await?;
        for (pool, count) in [("pool-0", 10), ("pool-1", 20), ("pool-2", 11)] {
            stack
                .wait_for_count(&format!("picks_total;pool={pool}"), count)
                .await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_without_endpoints_has_another_stand_in() -> Result<()> {
    for destination in DESTINATIONS {
        let keys = json!([
            {"models": ["alpha"], "fallback": {"pool": "pool-1", "model": "beta"}},
            {"models": ["beta"]},
        ]);
        let stack = draft(destination, &["alpha", "beta"], keys)
            .await?
            .start()
            .await?;
        let other = stack.servers.get(1).context("two servers")?;
        let served_by = async |expected: usize| {
            let before = requests(other).await?.len();
            let response = ask(&stack, Some("alpha")).await?;
            let place = requests(other).await?.len() - before;
            let is_expected = response.status == 200 && place == expected;
            anyhow::Ok(is_expected.then_some(response))
        };
        let first = served_by(0).await?.context("the pool itself serves")?;
        assert_eq!(first.json()?["model"], json!("alpha"));
        set_faults(&stack.servers[0], &json!({"refuse": true}))?;
        let stands_in = async || served_by(1).await.is_ok_and(|it| it.is_some());
        ensure!(eventually(stands_in).await, "nobody stands in");
        let response = served_by(1).await?.context("it goes on standing in")?;
        assert_eq!(response.json()?["model"], json!("alpha"));
        let last = requests(other).await?.pop().context("no request")?;
        assert_eq!(last["model"], json!("beta"));
        let is_counted = async || {
            let name = "wasmcustom.picker_fallbacks_total;pool=pool-0";
            stack.stat(name).await.is_ok_and(|it| it > 0)
        };
        ensure!(eventually(is_counted).await, "no fallback is counted");
        set_faults(&stack.servers[0], &json!({"refuse": false}))?;
        let is_back = async || served_by(0).await.is_ok_and(|it| it.is_some());
        ensure!(eventually(is_back).await, "the pool is not back");
        // Where nobody is left the pool itself refuses, as it would without the other one.
        for server in &stack.servers {
            set_faults(server, &json!({"refuse": true}))?;
        }
        let is_refused = async || {
            ask(&stack, Some("alpha"))
                .await
                .is_ok_and(|it| it.status == 503)
        };
        ensure!(eventually(is_refused).await);
        stack.wait_until_idle().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_no_pool_has_is_not_found_in_the_words_of_the_api() -> Result<()> {
    let keys = json!([{"models": ["alpha"]}]);
    let mut draft = draft(Destination::OriginalDst, &["alpha"], keys).await?;
    draft.document["strictModels"] = json!(true);
    let stack = draft.start().await?;
    let headers = [("content-type", "application/json")];
    for (path, body, kind) in [
        (CHAT, json!({"model": "x", "messages": []}), "/error/type"),
        (
            "/v1/messages",
            json!({"model": "x", "messages": []}),
            "/error/type",
        ),
        (
            "/v1/embeddings",
            json!({"model": "x", "input": "y"}),
            "/error/type",
        ),
    ] {
        let body = body.to_string();
        let response = stack
            .request("POST", path, &headers, body.as_bytes())
            .await?;
        ensure!(response.status == 404, "{path}: {}", response.status);
        let answer = response.json()?;
        assert_eq!(
            answer.pointer(kind),
            Some(&json!("not_found_error")),
            "{path}"
        );
        let reason = response.header("x-llm-d-request-dropped-reason");
        assert_eq!(reason, Some("rejected-unknown-model"));
    }
    ensure!(ask(&stack, Some("alpha")).await?.status == 200);
    assert_eq!(stack.served().await?, [1]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_models_of_all_pools_are_listed_together() -> Result<()> {
    let rewrites = json!([{
        "matches": [{"model": {"value": "public"}}],
        "targets": [{"modelRewrite": "beta"}],
    }]);
    let keys = json!([
        {"models": ["alpha", "a*"]},
        {"models": ["beta"], "modelRewrites": rewrites},
    ]);
    let mut draft = draft(Destination::OriginalDst, &["alpha", "beta"], keys).await?;
    draft.document["listModels"] = json!("always");
    let stack = draft.start().await?;
    let list = stack.request("GET", "/v1/models", &[], b"").await?.json()?;
    let ids = list["data"].as_array().into_iter().flatten();
    let ids: Vec<&Value> = ids.map(|it| &it["id"]).collect();
    assert_eq!(ids, [&json!("alpha"), &json!("beta"), &json!("public")]);
    assert_eq!(stack.served().await?, [0, 0]);
    let response = ask(&stack, Some("public")).await?;
    assert_eq!(response.json()?["model"], json!("public"));
    assert_eq!(asked(&stack).await?[1], [json!("beta")]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_gets_its_share_and_keeps_who_is_sticky() -> Result<()> {
    let rewrites = json!([{
        "matches": [{"model": {"value": "public"}}],
        "targets": [
            {"modelRewrite": "canary", "weight": 1},
            {"modelRewrite": "alpha", "weight": 3},
        ],
        "stickyHeader": "X-Session",
    }]);
    let mut options = servers(1).remove(0);
    options.model = "alpha".into();
    options.aliases = vec!["canary".into()];
    let mut draft = Draft::new(Destination::OriginalDst, vec![options]).await?;
    draft.pool()?["modelRewrites"] = rewrites;
    let stack = draft.start().await?;
    let body = json!({"model": "public", "max_tokens": 1, "prompt": "hello"}).to_string();
    for session in 0..80 {
        let session = session.to_string();
        let headers = [
            ("content-type", "application/json"),
            ("x-session", &*session),
        ];
        for _ in 0..2 {
            stack
                .request("POST", "/v1/completions", &headers, body.as_bytes())
                .await?;
        }
    }
    let asked = asked(&stack).await?;
    let pairs: Vec<&[Value]> = asked[0].chunks(2).collect();
    ensure!(
        pairs.len() == 80 && pairs.iter().all(|it| it[0] == it[1]),
        "{pairs:?}"
    );
    let canaries = pairs.iter().filter(|it| it[0] == "canary").count();
    ensure!((8..=34).contains(&canaries), "{canaries}");
    Ok(())
}
