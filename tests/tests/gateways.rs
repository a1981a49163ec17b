//! The examples for control planes route as they say, in an Envoy that has what these would make.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use picker_tests::canned::Canned;
use picker_tests::manifests::{Manifest, below, envoy_gateway, istio, skeleton};
use picker_tests::{CHAT, DESTINATION, chat_body, eventually, module, requests, servers};
use serde_json::{Value, json};
use sim::server::Server;
use xtask::http::{Connection, fetch};
use xtask::ports;
use xtask::wasm::Variant;

#[tokio::test(flavor = "multi_thread")]
async fn the_picker_chooses_behind_the_filters_for_istio() -> Result<()> {
    let (servers, addresses) = start().await?;
    let manifests = retarget(below("examples/istio")?, &addresses)?;
    let gateway = istio::Gateway::service(&sockets(&addresses));
    let bootstrap = istio::compose(&manifests, &gateway, &module(Variant::Shipped)?)?;
    routes_by_prompt(bootstrap, &servers).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_picker_chooses_in_place_of_an_endpoint_picker_of_istio() -> Result<()> {
    let (servers, addresses) = start().await?;
    let manifests = retarget(below("examples/istio-inference-pool")?, &addresses)?;
    let gateway = istio::Gateway::pool(&sockets(&addresses));
    let bootstrap = istio::compose(&manifests, &gateway, &module(Variant::Shipped)?)?;
    routes_by_prompt(bootstrap, &servers).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_picker_chooses_as_a_plugin_of_istio() -> Result<()> {
    let (servers, addresses) = start().await?;
    let manifests = retarget(below("examples/istio-wasmplugin")?, &addresses)?;
    let gateway = istio::Gateway::service(&sockets(&addresses));
    let bootstrap = istio::compose(&manifests, &gateway, &module(Variant::Shipped)?)?;
    routes_by_prompt(bootstrap, &servers).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_picker_chooses_behind_the_policies_for_envoy_gateway() -> Result<()> {
    let (servers, addresses) = start().await?;
    let manifests = retarget(below("examples/envoy-gateway")?, &addresses)?;
    let bootstrap = envoy_gateway::compose(&manifests, &module(Variant::Shipped)?)?;
    routes_by_prompt(bootstrap, &servers).await
}

async fn start() -> Result<(Vec<Server>, Vec<SocketAddr>)> {
    let mut started = Vec::new();
    for options in servers(3) {
        started.push(Server::start(options).await?);
    }
    let addresses = started.iter().map(Server::address).collect();
    Ok((started, addresses))
}

/// The manifests with these servers in place of those that they name or discover.
fn retarget(manifests: Vec<Manifest>, addresses: &[SocketAddr]) -> Result<Vec<Manifest>> {
    let retargeted = manifests.into_iter().map(|mut manifest| {
        skeleton::set_endpoints(&mut manifest.value, addresses);
        drop_discovery(&mut manifest.value);
        let mut text = manifest.value.to_string();
        for (index, address) in addresses.iter().enumerate() {
            text = text.replace(
                &format!("10.96.0.10{}:8000", index + 1),
                &address.to_string(),
            );
        }
        manifest.value = serde_json::from_str(&text)?;
        if manifest.value["kind"] == "Backend" {
            let endpoints = sockets(addresses).into_iter();
            let endpoints =
                endpoints.map(|(ip, port)| json!({"ip": {"address": ip, "port": port}}));
            manifest.value["spec"]["endpoints"] = endpoints.collect();
        }
        Ok(manifest)
    });
    retargeted.collect()
}

/// Leaves out the way to whom knows the endpoints.
fn drop_discovery(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(drop_discovery),
        Value::Array(items) => {
            items.retain(|it| it.pointer("/patch/value/name") != Some(&json!("picker_kube")));
            items.iter_mut().for_each(drop_discovery);
        }
        _ => {}
    }
}

fn sockets(addresses: &[SocketAddr]) -> Vec<(String, u16)> {
    let addresses = addresses.iter();
    addresses
        .map(|it| (it.ip().to_string(), it.port()))
        .collect()
}

/// Whether equal prompts meet at one server, whatever a client says and however long they are, and
/// every server's metrics are read though there is no bootstrap service.
async fn routes_by_prompt(mut bootstrap: Value, servers: &[Server]) -> Result<()> {
    let (traffic, admin) = (ports::free()?, ports::free()?);
    let listener = "/static_resources/listeners/0/address/socket_address/port_value";
    *bootstrap.pointer_mut(listener).context("no listener")? = json!(traffic.port());
    bootstrap["admin"]["address"]["socket_address"]["port_value"] = json!(admin.port());
    let proxy = skeleton::start(&bootstrap).await?;
    let evil = Canned::start("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil").await?;
    let spoofed = evil.address().to_string();
    // The second is longer than a gateway holds by default.
    for (prompt, padding) in [
        ("The same words again. ", 0),
        ("And again others. ", 2 << 20),
    ] {
        let before = served(servers).await?;
        for _ in 0..6 {
            let body = chat_body(&prompt.repeat(200), 1) + &" ".repeat(padding);
            let headers = [(DESTINATION, spoofed.as_str())];
            let mut client = Connection::open(traffic).await?;
            let answer = client
                .request("POST", CHAT, &headers, body.as_bytes())
                .await?;
            ensure!(
                answer.status == 200,
                "{}\n{}",
                answer.text(),
                proxy.last_lines(20)
            );
        }
        let after = served(servers).await?;
        let mut more = after
            .iter()
            .zip(before)
            .map(|(after, before)| after - before);
        ensure!(more.any(|count| count == 6), "they spread: {after:?}");
    }
    ensure!(evil.connections() == 0, "a client chose the destination");
    let all = format!("membership_total: {}\n", servers.len());
    let are_scraped = eventually(async || {
        let path = "/stats?usedonly&filter=cluster.picker_endpoints";
        let stats = fetch(proxy.admin(), path).await.map(|it| it.text());
        stats.is_ok_and(|it| it.contains(&all) && it.contains("upstream_rq_200"))
    });
    ensure!(are_scraped.await, "nobody reads the metrics");
    Ok(())
}

/// How many requests each server has seen.
async fn served(servers: &[Server]) -> Result<Vec<usize>> {
    let mut served = Vec::new();
    for server in servers {
        served.push(requests(server).await?.len());
    }
    Ok(served)
}
