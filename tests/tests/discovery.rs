//! Endpoints that come and go by a list that a server has.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use picker_tests::load::{Load, LoadOptions};
use picker_tests::stub::Stub;
use picker_tests::{DESTINATIONS, Draft, Stack, eventually, servers, set_faults};
use serde_json::{Value, json};
use sim::server::{Server, ServerOptions};
use tokio::time::{Instant, sleep};
use xtask::compose::Destination;
use xtask::draw::Draw;

#[tokio::test(flavor = "multi_thread")]
async fn requests_follow_the_list_within_an_interval() -> Result<()> {
    for destination in DESTINATIONS {
        let (stack, registry, all) = start(destination, 3, json!({})).await?;
        let all: Vec<&SocketAddr> = all.iter().collect();
        for listed in [vec![0, 1, 2], vec![0, 1], vec![2], vec![0, 2]] {
            let addresses: Vec<String> = listed.iter().map(|it| all[*it].to_string()).collect();
            registry.set(200, &list(&addresses));
            knows(&stack, &addresses).await?;
            if destination == Destination::OverrideHost {
                let members = async || {
                    let members = stack.stat("cluster.llm.membership_total").await;
                    members.is_ok_and(|it| it == listed.len() as u64)
                };
                ensure!(eventually(members).await, "{listed:?} in Envoy's cluster");
            }
            let before = stack.served().await?;
            send(&stack, 30).await?;
            let after = stack.served().await?;
            for (server, (before, after)) in before.into_iter().zip(after).enumerate() {
                let is_used = after > before;
                ensure!(
                    is_used == listed.contains(&server),
                    "{destination:?} {listed:?}: {server} had {before} and has {after}"
                );
            }
        }
        let asked = registry.asked();
        ensure!(
            asked.iter().all(|it| it == "registry/sd?pool=llm"),
            "{asked:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_no_list_changes_nothing_and_is_told_once() -> Result<()> {
    let (stack, registry, all) = start(Destination::OriginalDst, 2, json!({})).await?;
    let both: Vec<String> = all.iter().map(ToString::to_string).collect();
    stack
        .wait_for_count("discovered_endpoints;pool=llm", 2)
        .await?;
    for (reason, status, body) in [
        ("list", 200, "<html>".to_owned()),
        ("list", 200, list(&both).replace(']', "")),
        ("list", 200, list(&[both[0].clone(), "llm-1:80".to_owned()])),
        ("status", 500, list(&both[..1])),
        ("status", 404, String::new()),
    ] {
        let name = format!("wasmcustom.picker_discovery_failures_total;pool=llm;reason={reason}");
        let before = stack.stat(&name).await?;
        registry.set(status, &body);
        let counted = async || stack.stat(&name).await.is_ok_and(|it| it >= before + 3);
        ensure!(eventually(counted).await, "{status} {body} is not counted");
        knows(&stack, &both).await?;
        send(&stack, 4).await?;
    }
    let age = "wasmcustom.picker_discovery_age_ms;pool=llm";
    ensure!(stack.stat(age).await? > 0);
    let log = stack.log()?;
    let told = log.lines().filter(|line| line.contains("discovery failed"));
    let told: Vec<&str> = told.collect();
    assert_eq!(told.len(), 2, "{told:#?}");
    registry.set(200, &list(&both));
    stack.wait_for_line(&["discovery works again"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn less_than_half_of_the_list_is_doubted_while_it_is_held() -> Result<()> {
    let (stack, registry, all) =
        start(Destination::OriginalDst, 3, json!({"hold": "1500ms"})).await?;
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    registry.set(200, "[]");
    let begun = Instant::now();
    stack
        .wait_for_line(&["has 0 of 3 endpoints left", "hold"])
        .await?;
    stack.wait_for_count("discovery_held;pool=llm", 1).await?;
    knows(&stack, &all).await?;
    send(&stack, 3).await?;
    knows(&stack, &[]).await?;
    let took = begun.elapsed();
    ensure!(took > Duration::from_millis(1400), "after {took:?}");
    stack.wait_for_count("discovery_held;pool=llm", 0).await?;
    stack
        .wait_for_count("discovered_endpoints;pool=llm", 0)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_flight_outlives_its_endpoint() -> Result<()> {
    for destination in DESTINATIONS {
        let slow = ServerOptions {
            time_scale: 0.02,
            ..ServerOptions::default()
        };
        let draft = Draft::new(destination, vec![slow; 2]).await?;
        let (stack, registry, all) = discovered(draft, json!({})).await?;
        let all: Vec<String> = all.iter().map(ToString::to_string).collect();
        let mut connection = stack.begin_chat().await?;
        let state = stack.state().await?;
        let busy = state.endpoints().find(|it| it.in_flight == 1);
        let busy = busy.context("nothing is in flight")?.address.clone();
        let left: Vec<String> = all.into_iter().filter(|it| *it != busy).collect();
        registry.set(200, &list(&left));
        knows(&stack, &left).await?;
        let response = connection.response(false).await?;
        assert_eq!(response.status, 200, "{destination:?} {}", response.text());
        stack.wait_until_idle().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_replaced_under_load_costs_nothing_and_one_that_dies_little() -> Result<()>
{
    for destination in DESTINATIONS {
        let (stack, registry, all) = start(destination, 3, json!({})).await?;
        let all: Vec<String> = all.iter().map(ToString::to_string).collect();
        registry.set(200, &list(&all[..2]));
        knows(&stack, &all[..2]).await?;
        let options = LoadOptions {
            clients: 8,
            patience: Duration::from_secs(10),
        };
        let load = Load::start(stack.addresses.traffic, options);
        load.more(100).await?;
        registry.set(200, &list(&all[1..]));
        knows(&stack, &all[1..]).await?;
        // What it has in flight ends within this time.
        load.more(50).await?;
        set_faults(&stack.servers[0], &json!({"refuse": true}))?;
        load.more(150).await?;
        // Envoy learns of it at its next question, while requests take milliseconds.
        let new = &stack.servers[2];
        let is_used = eventually(async || load.tally().served_by(new) > 0).await;
        ensure!(is_used, "nobody went to the new one");
        let tally = load.stop().await?;
        ensure!(
            tally.failed() == 0,
            "{destination:?}: {} failed",
            tally.failed()
        );
        // The list still has one that is dead. Retries go elsewhere only where the destination is a
        // list; each worker tries once.
        set_faults(&stack.servers[1], &json!({"refuse": true}))?;
        let mut failed = 0;
        for prompt in 0..40 {
            let response = stack.chat(&format!("prompt {prompt}")).await?;
            failed += usize::from(response.status != 200);
        }
        let most = match destination {
            Destination::OverrideHost => 0,
            Destination::OriginalDst => 2,
        };
        ensure!(failed <= most, "{destination:?}: {failed} failed");
        stack.wait_until_idle().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_at_the_same_address_is_a_new_endpoint() -> Result<()> {
    let (stack, registry, all) = start(Destination::OriginalDst, 1, json!({})).await?;
    let of = |uid: &str| {
        let labels = json!({"__meta_kubernetes_pod_uid": uid, "tier": uid});
        json!([{"targets": [all[0].to_string()], "labels": labels}]).to_string()
    };
    let id = async || -> Result<u64> {
        let state = stack.state().await?;
        let mut endpoints = state.endpoints().map(|it| it.id);
        endpoints.next().context("no endpoint")
    };
    let first = id().await?;
    registry.set(200, &of("a"));
    sleep(Duration::from_millis(600)).await;
    assert_eq!(id().await?, first, "whoever had no identity is who it is");
    registry.set(200, &of("b"));
    let is_new = async || id().await.is_ok_and(|it| it > first);
    ensure!(eventually(is_new).await, "it is still {first}");
    send(&stack, 1).await
}

/// An Envoy before `count` servers, all of them listed by a registry that is asked four times a
/// second.
async fn start(
    destination: Destination,
    count: usize,
    more: Value,
) -> Result<(Stack, Stub, Vec<SocketAddr>)> {
    discovered(Draft::new(destination, servers(count)).await?, more).await
}

/// The same for the servers of a draft.
async fn discovered(mut draft: Draft, more: Value) -> Result<(Stack, Stub, Vec<SocketAddr>)> {
    let all: Vec<SocketAddr> = draft.servers.iter().map(Server::address).collect();
    let addresses: Vec<String> = all.iter().map(ToString::to_string).collect();
    let registry = Stub::start(200, &list(&addresses)).await?;
    let mut http = json!({"cluster": "registry", "path": "/sd?pool=llm", "interval": "250ms"});
    if let (Some(http), Value::Object(more)) = (http.as_object_mut(), more) {
        http.extend(more);
    }
    let pool = draft.pool()?;
    pool["discovery"] = json!({"http": http});
    pool.as_object_mut().context("no pool")?.remove("endpoints");
    let socket = json!({"address": "127.0.0.1", "port_value": registry.address().port()});
    let cluster = json!({
        "name": "registry",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": "registry", "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": {"socket_address": socket}}},
        ]}]},
    });
    let clusters = draft
        .bootstrap
        .value_mut()
        .pointer_mut("/static_resources/clusters");
    let clusters = clusters.and_then(Value::as_array_mut);
    clusters.context("no clusters")?.push(cluster);
    Ok((draft.start().await?, registry, all))
}

/// A list in the format of Prometheus' HTTP service discovery.
fn list(addresses: &[String]) -> String {
    json!([{"targets": addresses, "labels": {"llm-d.ai/role": "both"}}]).to_string()
}

/// Waits until the endpoints are these, and Envoy knows them where it has to.
async fn knows(stack: &Stack, addresses: &[String]) -> Result<()> {
    let mut wanted = addresses.to_vec();
    wanted.sort_unstable();
    let is_known = |state: &xtask::state::State| {
        let mut known: Vec<String> = state.endpoints().map(|it| it.address.clone()).collect();
        known.sort_unstable();
        known == wanted
    };
    stack
        .wait(&format!("{wanted:?} are known"), is_known)
        .await?;
    sleep(FOLLOWED).await;
    Ok(())
}

/// Sends prompts that share nothing, one after the other; each must be served.
async fn send(stack: &Stack, count: usize) -> Result<()> {
    let mut draw = Draw::new(count as u64);
    for _ in 0..count {
        let response = stack.chat(&draw.prose(200)).await?;
        ensure!(response.status == 200, "{}", response.text());
    }
    Ok(())
}

/// Workers look at what is known at most every 10 ms.
const FOLLOWED: Duration = Duration::from_millis(30);
