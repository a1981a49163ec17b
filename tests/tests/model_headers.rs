//! Routes that are not the picker's learn the model of a request from it.

use anyhow::{Context, Result, ensure};
use picker_tests::canned::Canned;
use picker_tests::{CHAT, Draft, Stack, servers};
use serde_json::{Value, json};
use xtask::compose::Destination;
use xtask::http::Response;

/// A route to `server` for requests with this header, before all others.
fn route_by(draft: &mut Draft, header: &str, value: &str, server: &Canned) -> Result<()> {
    let name = format!("by-{header}-{value}");
    let socket = json!({"address": "127.0.0.1", "port_value": server.address().port()});
    let endpoint = json!({"endpoint": {"address": {"socket_address": socket}}});
    let cluster = json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [endpoint]}],
        },
    });
    let clusters = draft.bootstrap.value_mut();
    let clusters = clusters.pointer_mut("/static_resources/clusters");
    let clusters = clusters.and_then(Value::as_array_mut);
    clusters.context("no clusters")?.push(cluster);
    let manager = draft.bootstrap.manager_mut("traffic")?;
    let routes = manager.pointer_mut("/route_config/virtual_hosts/0/routes");
    let routes = routes.and_then(Value::as_array_mut).context("no routes")?;
    let headers = json!([{"name": header, "string_match": {"exact": value}}]);
    let matches = json!({"prefix": "/", "headers": headers});
    routes.insert(0, json!({"match": matches, "route": {"cluster": name}}));
    Ok(())
}

async fn ask(stack: &Stack, model: &Value, claimed: Option<&str>) -> Result<Response> {
    let mut body = json!({"max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]});
    body["model"] = model.clone();
    let mut headers = vec![("content-type", "application/json")];
    for name in ["x-gateway-model-name", "x-gateway-base-model-name"] {
        headers.extend(claimed.map(|it| (name, it)));
    }
    stack
        .request("POST", CHAT, &headers, body.to_string().as_bytes())
        .await
}

fn answer(text: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}",
        text.len()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_is_chosen_by_the_model_and_by_the_base_model_of_an_adapter() -> Result<()> {
    for has_pool in [true, false] {
        let by_name = Canned::start(answer("by name")).await?;
        let by_base = Canned::start(answer("by base")).await?;
        let mut draft = Draft::new(Destination::OriginalDst, servers(1)).await?;
        route_by(&mut draft, "x-gateway-base-model-name", "llama", &by_base)?;
        route_by(&mut draft, "x-gateway-model-name", "gpt", &by_name)?;
        let bases = json!([{"baseModel": "llama", "adapters": ["sql"]}]);
        draft.document["modelHeaders"] = json!({"baseModels": bases});
        if !has_pool {
            draft.pool()?["match"] = json!({"hosts": ["none"]});
        }
        let stack = draft.start().await?;
        let cases = [
            (json!("gpt"), None, "by name"),
            (json!("llama"), None, "by base"),
            (json!("sql"), None, "by base"),
            // Who claims another model is not believed.
            (json!("llama"), Some("gpt"), "by base"),
        ];
        for (model, claimed, expected) in cases {
            let response = ask(&stack, &model, claimed).await?;
            assert_eq!(response.text(), expected, "{model} {has_pool}");
        }
        // Others take the routes that they would take without.
        for (model, claimed) in [
            (json!("sim-model"), Some("gpt")),
            (json!("gpt\r\nx-evil: 1"), Some("gpt")),
            (json!(7), Some("gpt")),
        ] {
            let response = ask(&stack, &model, claimed).await?;
            let text = response.text();
            ensure!(!text.starts_with("by "), "{model}: {text}");
        }
        let served = stack.served().await?;
        ensure!(served == [3], "{served:?}");
        stack.wait_until_idle().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_served_by_nobody_here_passes_with_its_model_told() -> Result<()> {
    let by_name = Canned::start(answer("by name")).await?;
    let mut draft = Draft::new(Destination::OriginalDst, servers(1)).await?;
    route_by(&mut draft, "x-gateway-model-name", "gpt", &by_name)?;
    draft.document = json!({"modelHeaders": {}});
    let stack = draft.start_cold().await?;
    let told = async || ask(&stack, &json!("gpt"), None).await;
    let response = told().await?;
    assert_eq!(response.text(), "by name");
    let unread = stack
        .request("POST", CHAT, &[("content-type", "application/json")], b"{")
        .await?;
    ensure!(unread.text() != "by name", "{}", unread.text());
    let long = vec![b' '; 100_000];
    let unread = stack.request("POST", CHAT, &[], &long).await?;
    ensure!(unread.status != 413, "{}", unread.text());
    Ok(())
}
