//! Pods that come and go, told by an API server of Kubernetes that the shipped cluster asks.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use picker_tests::kube::{Api, Pod};
use picker_tests::kube_server::{KubeFault, KubeServer};
use picker_tests::{Draft, Stack, directory, eventually, servers};
use serde_json::{Value, json};
use sim::server::{Server, ServerOptions};
use tokio::time::sleep;
use xtask::bootstrap::read_document;
use xtask::compose::Destination;
use xtask::draw::Draw;
use xtask::ports;
use xtask::state::State;
use xtask::workspace::root;

#[tokio::test(flavor = "multi_thread")]
async fn requests_follow_the_pods() -> Result<()> {
    let cluster = Cluster::start(servers(3)).await?;
    cluster.check(&[0, 1, 2]).await?;
    cluster.change(|api| api.set("p1", None));
    cluster.check(&[0, 2]).await?;
    cluster.change(|api| edit(api, "p2", |pod| pod.ready = false));
    cluster.check(&[0]).await?;
    cluster.change(|api| edit(api, "p2", |pod| pod.ready = true));
    cluster.check(&[0, 2]).await?;
    cluster.change(|api| edit(api, "p0", |pod| pod.ending = true));
    cluster.check(&[2]).await?;
    let before = cluster.numbers().await?;
    cluster.change(|api| {
        api.set("p2", None);
        api.set("p2", Some(cluster.pod(2, "again")));
    });
    let is_new = async || {
        let after = cluster.numbers().await.unwrap_or_default();
        let address = cluster.all[2].to_string();
        after.get(&address) > before.get(&address)
    };
    ensure!(eventually(is_new).await, "it is still {before:?}");
    cluster.check(&[2]).await?;
    // Of all ports only the first is left.
    let first = cluster.all[0].port();
    cluster.change(|api| {
        edit(api, "p0", |pod| pod.ending = false);
        api.set_pool("llm", &[first], "FailOpen", false);
    });
    cluster.check(&[0]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_flight_outlive_their_pod() -> Result<()> {
    let slow = ServerOptions {
        time_scale: 0.02,
        ..ServerOptions::default()
    };
    let cluster = Cluster::start(vec![slow; 2]).await?;
    let mut connection = cluster.stack.begin_chat().await?;
    let state = cluster.stack.state().await?;
    let busy = state.endpoints().find(|it| it.in_flight == 1);
    let busy = busy.context("nothing is in flight")?.address.clone();
    let place = cluster.all.iter().position(|it| it.to_string() == busy);
    let name = format!("p{}", place.context("no such pod")?);
    cluster.change(|api| edit(api, &name, |pod| pod.ending = true));
    let drains = |state: &State| state.endpoints().any(|it| it.draining && it.in_flight == 1);
    cluster.stack.wait("it drains", drains).await?;
    cluster.change(|api| api.set(&name, None));
    let is_gone = |state: &State| state.endpoints().all(|it| it.address != busy);
    cluster.stack.wait("it is gone", is_gone).await?;
    let response = connection.response(false).await?;
    assert_eq!(response.status, 200, "{}", response.text());
    cluster.stack.wait_until_idle().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_followed_when_it_is_rotated() -> Result<()> {
    let cluster = Cluster::start(servers(2)).await?;
    ensure!(cluster.kube.state().refused == 0);
    for token in ["second", "third"] {
        cluster.kube.state().token = token.into();
        let is_refused = async || cluster.kube.state().refused > 0;
        ensure!(eventually(is_refused).await, "the old token is still good");
        write_token(&cluster.secrets, token)?;
        cluster.change(|api| edit(api, "p0", |pod| pod.ready = token == "third"));
        let listed: &[usize] = if token == "third" { &[0, 1] } else { &[1] };
        cluster.check(listed).await?;
        cluster.kube.state().refused = 0;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_server_answers_the_last_good_state_stays() -> Result<()> {
    let cluster = Cluster::start(servers(2)).await?;
    let failures = async |reason: &str| -> Result<u64> {
        let name = "wasmcustom.picker_discovery_failures_total;pool=llm;reason=";
        cluster.stack.stat(&format!("{name}{reason}")).await
    };
    for (fault, reason) in [
        (KubeFault::Status(401), "status"),
        (KubeFault::Status(403), "status"),
        (KubeFault::Status(404), "status"),
        (KubeFault::Status(500), "status"),
        (KubeFault::Status(410), "status"),
        (KubeFault::Cut, "list"),
        (KubeFault::Away, "status"),
    ] {
        let before = failures(reason).await?;
        cluster.kube.state().fault = Some(fault.clone());
        let is_counted = async || failures(reason).await.is_ok_and(|it| it > before + 1);
        ensure!(eventually(is_counted).await, "{fault:?} is not counted");
        cluster.check(&[0, 1]).await?;
    }
    // What happened meanwhile is learnt once the server is back, also when it has forgotten it.
    cluster.change(|api| {
        api.set("p0", None);
        api.forget();
    });
    cluster.kube.state().fault = None;
    cluster.check(&[1]).await?;
    cluster
        .stack
        .wait_for_line(&["discovery works again"])
        .await?;
    let log = cluster.stack.log()?;
    let told = log.lines().filter(|line| line.contains("discovery failed"));
    let told: Vec<&str> = told.collect();
    ensure!(told.len() <= 7, "{told:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_failure_mode_is_that_of_the_pool() -> Result<()> {
    let cluster = Cluster::start(servers(1)).await?;
    cluster.change(|api| api.set("p0", None));
    cluster
        .stack
        .wait("nobody is left", |state| state.endpoints().count() == 0)
        .await?;
    for (mode, status) in [("FailClose", 503), ("FailOpen", 200)] {
        let ports: Vec<u16> = cluster.all.iter().map(SocketAddr::port).collect();
        cluster.change(|api| api.set_pool("llm", &ports, mode, false));
        let follows = async || {
            cluster
                .stack
                .chat("x")
                .await
                .is_ok_and(|it| it.status == status)
        };
        ensure!(eventually(follows).await, "{mode} is not followed");
    }
    Ok(())
}

/// Servers, the pods that they are, and an Envoy that is told of them.
struct Cluster {
    kube: KubeServer,
    stack: Stack,
    all: Vec<SocketAddr>,
    /// Where the token is mounted.
    secrets: PathBuf,
}

impl Cluster {
    async fn start(options: Vec<ServerOptions>) -> Result<Self> {
        let mut draft = Draft::new(Destination::OriginalDst, options).await?;
        let all: Vec<SocketAddr> = draft.servers.iter().map(Server::address).collect();
        let kube = KubeServer::start("first").await?;
        {
            let mut state = kube.state();
            let ports: Vec<u16> = all.iter().map(SocketAddr::port).collect();
            state.api.set_pool("llm", &ports, "FailOpen", false);
            for (place, address) in all.iter().enumerate() {
                let pod = pod_at(*address, "first");
                state.api.set(&format!("p{place}"), Some(pod));
            }
        }
        let pool = draft.pool()?.as_object_mut().context("no pool")?;
        pool.remove("endpoints");
        let kubernetes = json!({"namespace": "serving", "inferencePool": "llm"});
        pool.insert("discovery".into(), json!({"kubernetes": kubernetes}));
        let secrets = directory();
        write_token(&secrets, "first")?;
        add_cluster(&mut draft, &kube, &secrets)?;
        let stack = draft.start().await?;
        Ok(Self {
            kube,
            stack,
            all,
            secrets,
        })
    }

    fn change(&self, how: impl FnOnce(&mut Api)) {
        how(&mut self.kube.state().api);
    }

    fn pod(&self, place: usize, uid: &str) -> Pod {
        pod_at(self.all[place], uid)
    }

    /// The number of each endpoint by its address.
    async fn numbers(&self) -> Result<BTreeMap<String, u64>> {
        let state = self.stack.state().await?;
        let numbers = state.endpoints().map(|it| (it.address.clone(), it.id));
        Ok(numbers.collect())
    }

    /// Waits until these servers take requests and no others, and sends some.
    async fn check(&self, places: &[usize]) -> Result<()> {
        let mut wanted: Vec<String> = places.iter().map(|it| self.all[*it].to_string()).collect();
        wanted.sort_unstable();
        let is_known = |state: &State| {
            let taking = state.endpoints().filter(|it| !it.draining);
            let mut known: Vec<String> = taking.map(|it| it.address.clone()).collect();
            known.sort_unstable();
            known == wanted
        };
        self.stack
            .wait(&format!("{wanted:?} take requests"), is_known)
            .await?;
        // Workers look at what is known at most every 10 ms.
        sleep(Duration::from_millis(30)).await;
        let before = self.stack.served().await?;
        let mut draw = Draw::new(7);
        for _ in 0..30 {
            let response = self.stack.chat(&draw.prose(200)).await?;
            ensure!(response.status == 200, "{}", response.text());
        }
        let after = self.stack.served().await?;
        for (place, (before, after)) in before.into_iter().zip(after).enumerate() {
            ensure!(
                (after > before) == places.contains(&place),
                "{places:?}: {place} had {before} and has {after}"
            );
        }
        Ok(())
    }
}

/// A pod behind an address: all pods have the same host and all ports, so each says which is its.
fn pod_at(address: SocketAddr, uid: &str) -> Pod {
    let mut pod = Pod::new(
        &format!("{uid}-{address}"),
        &address.ip().to_string(),
        "llm",
    );
    let port = address.port().to_string();
    pod.annotations.insert("llm-d.ai/active-ports".into(), port);
    pod
}

fn edit(api: &mut Api, name: &str, how: impl FnOnce(&mut Pod)) {
    let pod = api.pods().get(name).cloned();
    let pod = pod.map(|mut pod| {
        how(&mut pod);
        pod
    });
    api.set(name, pod);
}

/// Writes a token as the kubelet does: into a new directory to which a link is then moved.
fn write_token(secrets: &Path, token: &str) -> Result<()> {
    fs::create_dir_all(secrets.join(token))?;
    fs::write(secrets.join(token).join("token"), token)?;
    std::os::unix::fs::symlink(token, secrets.join("..data_tmp"))?;
    fs::rename(secrets.join("..data_tmp"), secrets.join("..data"))?;
    if !secrets.join("token").exists() {
        std::os::unix::fs::symlink("..data/token", secrets.join("token"))?;
    }
    Ok(())
}

/// Adds the shipped cluster, with the files and the address of this test, and what ends its TLS.
fn add_cluster(draft: &mut Draft, kube: &KubeServer, secrets: &Path) -> Result<()> {
    let fixtures = root().join("tests/fixtures/kube");
    let mut token = read_document(&root().join("envoy/kubernetes-token.yaml"))?;
    let path = json!({"filename": secrets.join("token")});
    *at(&mut token, "/resources/0/generic_secret/secret")? = path;
    let token_file = secrets.join("kubernetes-token.yaml");
    fs::write(&token_file, token.to_string())?;
    let mut shipped = read_document(&root().join("envoy/kubernetes-cluster.yaml"))?;
    let cluster = at(&mut shipped, "/0")?;
    let tls = ports::free()?;
    let address = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address";
    *at(cluster, address)? = json!({"address": "127.0.0.1", "port_value": tls.port()});
    let ca = "/transport_socket/typed_config/common_tls_context/validation_context/trusted_ca";
    *at(cluster, ca)? = json!({"filename": fixtures.join("ca.crt")});
    let options = at(cluster, "/typed_extension_protocol_options")?;
    let options = options
        .as_object_mut()
        .and_then(|it| it.values_mut().next());
    let secret = "/http_filters/0/typed_config/credential/typed_config/credential/sds_config";
    *at(options.context("no options")?, secret)? = json!({
        "path_config_source": {"path": token_file},
    });
    let plain = json!({"address": "127.0.0.1", "port_value": kube.address().port()});
    let behind = json!({
        "name": "kube_plain",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": "kube_plain", "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": {"socket_address": plain}}},
        ]}]},
    });
    let certificate = json!({
        "certificate_chain": {"filename": fixtures.join("tls.crt")},
        "private_key": {"filename": fixtures.join("tls.key")},
    });
    let listener = json!({
        "name": "kube",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": tls.port()}},
        "filter_chains": [{
            "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": {
                "@type": format!("{TYPES}.transport_sockets.tls.v3.DownstreamTlsContext"),
                "common_tls_context": {"tls_certificates": [certificate]},
            }},
            "filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": {
                "@type": format!("{TYPES}.filters.network.tcp_proxy.v3.TcpProxy"),
                "stat_prefix": "kube",
                "cluster": "kube_plain",
            }}],
        }],
    });
    let cluster = cluster.take();
    let resources = at(draft.bootstrap.value_mut(), "/static_resources")?;
    for (key, value) in [
        ("clusters", cluster),
        ("clusters", behind),
        ("listeners", listener),
    ] {
        let list = resources[key].as_array_mut();
        list.context("no list")?.push(value);
    }
    Ok(())
}

fn at<'a>(value: &'a mut Value, pointer: &str) -> Result<&'a mut Value> {
    value
        .pointer_mut(pointer)
        .with_context(|| format!("nothing at {pointer}"))
}

const TYPES: &str = "type.googleapis.com/envoy.extensions";
