//! Who says how much a request matters is who is configured to, and nobody else.

use anyhow::{Context, Result, ensure};
use picker_tests::held::Held;
use picker_tests::queueing::{TENANT, all_served};
use picker_tests::{CHAT, Draft, Stack, chat_body, servers, set_faults};
use serde_json::{Value, json};
use xtask::compose::Destination;
use xtask::http::Connection;

#[tokio::test(flavor = "multi_thread")]
async fn an_objective_in_a_header_says_how_much_a_request_matters() -> Result<()> {
    let (stack, _running) = full(json!({}), &[]).await?;
    for (headers, expected) in [
        (&[][..], 200),
        (&[(NEW, "batch")], 429),
        (&[(OLD, "batch")], 429),
        (&[(NEW, " batch ")], 429),
        (&[(NEW, "chat")], 200),
        (&[(NEW, "Batch")], 200),
        // A number is an objective of that name, and there is none.
        (&[(NEW, "-5")], 200),
        (&[(NEW, "chat"), (OLD, "chat")], 200),
        (&[(OLD, "batch"), (NEW, "chat")], 200),
        (&[(OLD, "chat"), (NEW, "batch")], 429),
    ] {
        check(&stack, headers, expected).await?;
    }
    stack
        .wait_for_count("objective_conflicts_total;pool=llm", 2)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_send_is_ignored_where_metadata_or_filter_state_count() -> Result<()> {
    let metadata = |path: Value| json!({"metadata": {"namespace": "tenants", "path": path}});
    let state = |name: &str| json!({"filterState": name});
    for (source, expected) in [
        (metadata(json!(["class"])), 429),
        // As many bytes as a number has.
        (metadata(json!(["eight"])), 429),
        (metadata(json!(["claims", "number"])), 429),
        (metadata(json!(["half"])), 200),
        (metadata(json!(["nothing"])), 200),
        (metadata(json!(["claims"])), 200),
        (metadata(json!(["absent"])), 200),
        (state("tenants.class"), 429),
        (state("tenants.absent"), 200),
        (json!({"none": true}), 200),
    ] {
        let filters = [metadata_filter(), state_filter()];
        let (stack, _running) = full(json!({"priority": source}), &filters).await?;
        check(&stack, &[], expected)
            .await
            .with_context(|| source.to_string())?;
        // Opposites of what is configured: were they read, the answer would be another.
        let other = if expected == 429 { "chat" } else { "batch" };
        let headers = [(NEW, other), (OLD, other)];
        check(&stack, &headers, expected)
            .await
            .with_context(|| source.to_string())?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_names_many_tenants_has_one_turn_where_filter_state_counts() -> Result<()> {
    let held = Held::start(1).await?;
    let fair = json!({"priority": 0, "fairnessPolicyRef": "round-robin-fairness-policy"});
    let mut draft = Draft::queueing(&held, 2, 1, json!({"priorityBands": [fair]}))?;
    draft.document["trust"] = json!({"fairness": {"filterState": "tenants.user"}});
    put_first(&mut draft, &[state_filter()])?;
    let stack = draft.start().await?;
    let mut asked = vec![stack.ask(&[("x-name", "first")])];
    held.wait_for(1).await?;
    // By the header each would be a tenant of its own, and served in this order.
    for (place, name) in ["a1", "a2", "a3", "b1"].into_iter().enumerate() {
        let user = name.get(..1).unwrap_or_default();
        let headers = [("x-name", name), ("x-user", user), (TENANT, name)];
        asked.push(stack.ask(&headers));
        stack.wait_for_queue(0, place as u64 + 1).await?;
    }
    held.let_go(asked.len());
    all_served(asked).await?;
    assert_eq!(held.names(), ["first", "a1", "b1", "a2", "a3"]);
    Ok(())
}

/// What another filter knows of every request.
fn metadata_filter() -> Value {
    json!({
        "name": "metadata",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config",
            "metadata": [{
                "metadata_namespace": "tenants",
                "value": {
                    "class": "batch",
                    "eight": "12345678",
                    "half": -0.5,
                    "nothing": null,
                    "claims": {"number": -2_147_483_648_i64},
                },
            }],
        },
    })
}

fn state_filter() -> Value {
    let value = |key: &str, text: &str| {
        json!({
            "object_key": key,
            "factory_key": "envoy.string",
            "format_string": {"text_format_source": {"inline_string": text}},
        })
    };
    json!({
        "name": "state",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.set_filter_state.v3.Config",
            "on_request_headers": [
                value("tenants.class", "batch"),
                value("tenants.user", "%REQ(x-user)%"),
            ],
        },
    })
}

/// A pool with one endpoint that is full: a request with a priority below 0 is refused. It is as
/// long as the connection is open.
async fn full(trust: Value, filters: &[Value]) -> Result<(Stack, Connection)> {
    let mut draft = Draft::new(Destination::OriginalDst, servers(1)).await?;
    draft.document["trust"] = trust;
    let pool = draft.pool()?;
    pool["objectives"] = json!([
        {"name": "batch", "priority": -1},
        {"name": "12345678", "priority": -1},
        {"name": "chat", "priority": 10},
    ]);
    pool["picker"] = json!({
        "plugins": [
            {"type": "queue-scorer"},
            {"type": "concurrency-detector", "parameters": {"maxConcurrency": 1}},
        ],
        "schedulingProfiles": [
            {"name": "default", "plugins": [{"pluginRef": "queue-scorer"}]},
        ],
        "flowControl": {"saturationDetector": {"pluginRef": "concurrency-detector"}},
    });
    put_first(&mut draft, filters)?;
    let stack = draft.start().await?;
    let server = stack.servers.first().context("no server")?;
    set_faults(server, &json!({"requests": "hang"}))?;
    let running = stack.begin_chat().await?;
    set_faults(server, &json!({"requests": "ok"}))?;
    Ok((stack, running))
}

/// Puts filters before all others.
fn put_first(draft: &mut Draft, filters: &[Value]) -> Result<()> {
    let manager = draft.bootstrap.manager_mut("traffic")?;
    let http_filters = manager["http_filters"].as_array_mut();
    let http_filters = http_filters.context("no HTTP filters")?;
    http_filters.splice(0..0, filters.iter().cloned());
    Ok(())
}

async fn check(stack: &Stack, headers: &[(&str, &str)], expected: u16) -> Result<()> {
    let headers = [headers, &[("content-type", "application/json")]].concat();
    let body = chat_body("hello", 1);
    let response = stack
        .request("POST", CHAT, &headers, body.as_bytes())
        .await?;
    let status = response.status;
    ensure!(
        status == expected,
        "{headers:?}: {status} {}",
        response.text()
    );
    Ok(())
}

const NEW: &str = "x-llm-d-inference-objective";

const OLD: &str = "x-gateway-inference-objective";
