//! A pod of the example for Kubernetes is not ended before its answers are.

use std::net::SocketAddr;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use picker_tests::held::Held;
use picker_tests::manifests::{read, skeleton};
use picker_tests::{CHAT, chat_body, eventually, module};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::{Duration, timeout};
use xtask::http::{fetch, post};
use xtask::ports;
use xtask::proxy::Proxy;
use xtask::wasm::Variant;
use xtask::workspace::root;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_drains_until_nothing_is_in_flight() -> Result<()> {
    let held = Held::start(1).await?;
    let server = held.addresses()[0];
    let (proxy, ports) = start(server).await?;
    for (path, status) in [
        ("/ready", 200),
        ("/live", 200),
        ("/metrics", 200),
        ("/quitquitquit", 404),
        ("/stats", 404),
    ] {
        ensure!(fetch(ports.metrics, path).await?.status == status, "{path}");
    }
    let body = chat_body("hello", 1);
    let traffic = ports.traffic;
    let answer = tokio::spawn(async move { post(traffic, CHAT, body.as_bytes()).await });
    ensure!(
        eventually(async || held.came().len() == 1).await,
        "nobody came"
    );

    let script = root().join("examples/kubernetes/drain.sh");
    let script = std::fs::read_to_string(script)?;
    let script = script.replace("9901", &ports.admin.port().to_string());
    let mut bash = Command::new("bash");
    bash.args(["-c", &script, "drain.sh", "0"])
        .stdout(Stdio::null());
    let mut drain = bash.kill_on_drop(true).spawn()?;
    let is_unready = async || {
        fetch(ports.metrics, "/ready")
            .await
            .is_ok_and(|it| it.status == 503)
    };
    ensure!(eventually(is_unready).await, "the pod stays ready");
    let alive = fetch(ports.metrics, "/live").await?;
    ensure!(alive.status == 200, "kubelet would kill it");
    let waiting = timeout(Duration::from_secs(2), drain.wait()).await;
    ensure!(waiting.is_err(), "it ends with an answer to come");
    held.let_go(1);
    ensure!(answer.await??.status == 200, "the answer is cut");
    let ended = timeout(Duration::from_secs(20), drain.wait()).await;
    ensure!(ended.context("it does not end")??.success(), "it fails");
    ensure!(proxy.pid().is_some(), "{}", proxy.last_lines(20));
    Ok(())
}

/// Where the pod listens here.
struct Ports {
    traffic: SocketAddr,
    metrics: SocketAddr,
    admin: SocketAddr,
}

/// The Envoy of the example, with one server that is known and ports of this machine.
async fn start(server: SocketAddr) -> Result<(Proxy, Ports)> {
    let ports = Ports {
        traffic: ports::free()?,
        metrics: ports::free()?,
        admin: ports::free()?,
    };
    let mut manifests = read(&root().join("examples/kubernetes/envoy.yaml"))?;
    let mut bootstrap = manifests.remove(0).value;
    skeleton::set_module(&mut bootstrap, &module(Variant::Shipped)?);
    let clusters = skeleton::clusters(&mut bootstrap)?;
    clusters.retain(|it| it["name"] != "picker_kube" && it["name"] != "llm_any");
    clusters.push(skeleton::cluster(
        "llm_any",
        &[(server.ip().to_string(), server.port())],
    ));
    skeleton::set_endpoints(&mut bootstrap, &[server]);
    set_ports(&mut bootstrap, &ports)?;
    let proxy = skeleton::start(&bootstrap).await?;
    Ok((proxy, ports))
}

/// Lets every listener and the way to the admin interface have ports of this machine.
fn set_ports(value: &mut Value, ports: &Ports) -> Result<()> {
    match value {
        Value::Object(fields) => {
            let port = match fields.get("port_value").and_then(Value::as_u64) {
                Some(8080) => Some(ports.traffic),
                Some(9090) => Some(ports.metrics),
                Some(9901) => Some(ports.admin),
                Some(9902) => Some(ports::free()?),
                _ => None,
            };
            if let Some(port) = port {
                fields.insert("port_value".to_owned(), json!(port.port()));
            }
            for field in fields.values_mut() {
                set_ports(field, ports)?;
            }
        }
        Value::Array(items) => {
            for item in items {
                set_ports(item, ports)?;
            }
        }
        _ => {}
    }
    Ok(())
}
