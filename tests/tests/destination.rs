//! Only the picker names a destination.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use picker_tests::canned::Canned;
use picker_tests::{
    CHAT, DESTINATION, DESTINATIONS, Draft, Stack, chat_body, eventually, requests, servers,
    set_faults,
};
use serde_json::{Value, json};
use sim::server::{Server, ServerOptions};
use xtask::compose::Destination;
use xtask::http::{Length, chunk, head};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_never_chooses_the_destination() -> Result<()> {
    for destination in DESTINATIONS {
        let evil = Canned::start("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil").await?;
        let mut draft = Draft::new(destination, accepting(2)).await?;
        draft.pool()?["match"] = json!({"pathPrefixes": ["/v1/", "/ours", "/bare"]});
        disable_on(&mut draft, "/bare")?;
        let manager = draft.bootstrap.manager_mut("traffic")?;
        manager["http_protocol_options"] = json!({"enable_trailers": true});
        let stack = draft.start().await?;
        let sent = spoof(&stack, evil.address()).await?;
        assert_eq!(evil.connections(), 0, "{destination:?}");
        let mut seen = Vec::new();
        for server in &stack.servers {
            ours_only(server, evil.address()).await?;
            seen.extend(requests(server).await?);
        }
        assert_eq!(
            seen.len(),
            sent,
            "{destination:?}: every request was served by the pool"
        );
    }
    Ok(())
}

/// Sends what a client could think of; the number of requests sent.
async fn spoof(stack: &Stack, evil: SocketAddr) -> Result<usize> {
    let evil = evil.to_string();
    let list = format!("{evil},{evil}");
    let chat = chat_body("hello", 1);
    // A chat; without a body; a path the picker does not know; no pool; the picker switched off.
    let paths = [
        ("POST", CHAT, chat.as_bytes()),
        ("GET", "/v1/models", b""),
        ("POST", "/ours/unknown", b"{\"x\":1}"),
        ("POST", "/of/no/pool", b"{}"),
        ("POST", "/bare/of/picker", b"{}"),
    ];
    let owned = [
        DESTINATION,
        "X-Gateway-Destination-Endpoint",
        "x-gateway-destination-endpoint-subset",
        "x-gateway-destination-endpoint-served",
        "x-prefiller-host-port",
        "x-data-parallel-host-port",
        "x-envoy-original-dst-host",
        "test-epp-endpoint-selection",
    ];
    let mut sent = 0;
    for (method, path, body) in paths {
        let mut variants: Vec<Vec<(&str, &str)>> = owned
            .iter()
            .map(|name| vec![(*name, evil.as_str())])
            .collect();
        variants.push(vec![(DESTINATION, &evil), (DESTINATION, &evil)]);
        variants.push(vec![(DESTINATION, &list)]);
        for headers in &variants {
            let response = stack.request(method, path, headers, body).await?;
            let case = format!("{method} {path} {headers:?}: {}", response.text());
            ensure!(response.status == 200, "{} {case}", response.status);
            ensure!(response.text() != "evil", "{case}");
            sent += 1;
        }
        if !body.is_empty() {
            as_trailer(stack, path, body, &evil).await?;
            sent += 1;
        }
    }
    Ok(sent)
}

/// Sends the header after the body.
async fn as_trailer(stack: &Stack, path: &str, body: &[u8], evil: &str) -> Result<()> {
    let mut connection = stack.connect().await?;
    let mut bytes = head("POST", path, &[("trailer", DESTINATION)], Length::Chunked);
    bytes.extend(chunk(body));
    bytes.extend(format!("0\r\n{DESTINATION}: {evil}\r\n\r\n").into_bytes());
    connection.send(&bytes).await?;
    let response = connection.response(false).await?;
    ensure!(
        response.status == 200,
        "trailer on {path}: {}",
        response.status
    );
    Ok(())
}

/// Checks that no header which a server got names anybody but servers of the pool.
async fn ours_only(server: &Server, evil: SocketAddr) -> Result<()> {
    let evil = evil.to_string();
    for entry in requests(server).await? {
        for header in entry["headers"].as_array().context("no headers")? {
            let name = header[0].as_str().unwrap_or_default();
            let value = header[1].as_str().unwrap_or_default();
            // Envoy's own default header is not one of ours and means nothing to these clusters.
            let harmless = name == "x-envoy-original-dst-host";
            ensure!(
                harmless || !value.contains(&evil),
                "{name}: {value} in {entry}"
            );
        }
    }
    Ok(())
}

/// Switches the picker off on a route of its own, which leads where requests go without a pick.
fn disable_on(draft: &mut Draft, prefix: &str) -> Result<()> {
    let manager = draft.bootstrap.manager_mut("traffic")?;
    let routes = manager.pointer_mut("/route_config/virtual_hosts/0/routes");
    let routes = routes.and_then(Value::as_array_mut).context("no routes")?;
    let mut route = routes.last().context("no route")?.clone();
    route["match"] = json!({"prefix": prefix});
    route["typed_per_filter_config"] = json!({
        "picker": {
            "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig",
            "disabled": true,
        }
    });
    routes.insert(0, route);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_goes_to_the_next_endpoint_of_the_list() -> Result<()> {
    let mut draft = Draft::new(Destination::OverrideHost, servers(3)).await?;
    // The picker must not learn by a scrape that the endpoint refuses.
    draft.pool()?["scrape"] = json!({"interval": "20s", "stalenessThreshold": "60s"});
    let stack = draft.start().await?;
    let prompt = "The same words again. ".repeat(200);
    stack.chat(&prompt).await?;
    let before = stack.served().await?;
    let owner = before
        .iter()
        .position(|served| *served == 1)
        .context("nobody served")?;
    set_faults(&stack.servers[owner], &json!({"refuse": true}))?;
    // A request on a connection that is closing may have been seen, and is not sent again.
    let open = || stack.stat("cluster.llm.upstream_cx_active");
    let is_closed = eventually(async || open().await.is_ok_and(|count| count == 0)).await;
    ensure!(is_closed, "the endpoint keeps its connection");
    let response = stack.chat(&prompt).await?;
    assert_eq!(response.status, 200, "{}", response.text());
    let line = stack.wait_for_line(&[CHAT, "attempts=2"]).await?;
    let refusing = format!("upstream={}", stack.servers[owner].address());
    assert!(!line.contains(&refusing), "{line}");
    stack.wait_until_idle().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_matches_routes_again_and_filter_state_does_not() -> Result<()> {
    for (via, status) in [("header", 404), ("filterState", 200)] {
        let mut draft = Draft::new(Destination::OriginalDst, servers(2)).await?;
        draft.document["destination"] = json!({"via": via});
        let manager = draft.bootstrap.manager_mut("traffic")?;
        // The client's host leads to the endpoints; a filter in front of the picker changes it to
        // one that leads nowhere.
        manager["route_config"]["virtual_hosts"] = json!([
            {"name": "outer", "domains": ["localhost"], "routes": [
                {"match": {"prefix": "/"}, "route": {"cluster": "llm"}}]},
            {"name": "inner", "domains": ["*"], "routes": [
                {"match": {"prefix": "/"}, "direct_response": {"status": 404}}]},
        ]);
        let filters = manager["http_filters"]
            .as_array_mut()
            .context("no filters")?;
        let script = r#"
            function envoy_on_request(request)
              request:headers():replace(":authority", "inner.example")
            end
        "#;
        filters.insert(
            0,
            json!({
                "name": "rewrite",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
                    "default_source_code": {"inline_string": script},
                    "clear_route_cache": false,
                },
            }),
        );
        let stack = draft.start().await?;
        let response = stack.chat("hello").await?;
        assert_eq!(response.status, status, "{via}: {}", response.text());
        stack.wait_until_idle().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_shipped_routes_a_pick_is_matched_again_to_the_cluster_of_picks() -> Result<()> {
    let mut draft = Draft::new(Destination::OriginalDst, accepting(2)).await?;
    draft.pool()?["match"] = json!({"pathPrefixes": ["/v1/"]});
    let stack = draft.start().await?;
    stack.chat("hello").await?;
    assert_eq!(stack.stat("cluster.llm.upstream_rq_total").await?, 1);
    assert_eq!(stack.stat("cluster.llm_any.upstream_rq_total").await?, 0);
    let response = stack.request("POST", "/of/no/pool", &[], b"{}").await?;
    assert_eq!(response.status, 200);
    assert_eq!(stack.stat("cluster.llm_any.upstream_rq_total").await?, 1);
    Ok(())
}

/// Servers that accept a POST to any path.
fn accepting(count: usize) -> Vec<ServerOptions> {
    let mut options = servers(count);
    options
        .iter_mut()
        .for_each(|options| options.accept_unknown = true);
    options
}
