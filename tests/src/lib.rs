//! What the end-to-end tests stand on: a real Envoy with the picker in front of simulated servers.
//!
//! A test makes a [`Draft`], changes in it what it is about, starts it, and gets a [`Stack`]. All
//! ports are free ones, so tests run side by side.

pub mod canned;
pub mod held;
pub mod http2;
pub mod kube;
pub mod kube_server;
mod listening;
pub mod load;
pub mod manifests;
pub mod queueing;
pub mod recorder;
pub mod scripted;
pub mod stub;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use sim::server::{FaultChange, Server, ServerOptions};
use tokio::time::{Instant, sleep};
use xtask::bench::cpu::resident_bytes;
use xtask::bootstrap::Bootstrap;
use xtask::compose::{Addresses, Destination, compose, document};
use xtask::envoy::Envoy;
use xtask::http::{Connection, Length, Response, fetch, head, post};
use xtask::proxy::{Proxy, ProxyOptions};
use xtask::ready::{ready, stat};
use xtask::state::State;
use xtask::test::module_from_environment;
use xtask::wasm::{self, Variant};
use xtask::workspace::target;

/// An Envoy and its servers, not started yet.
pub struct Draft {
    /// The picker's configuration: the shipped one, with the simulated servers as endpoints.
    pub document: Value,
    /// Envoy's configuration; the picker's in it is replaced by `document` at the start.
    pub bootstrap: Bootstrap,
    /// Whether `document` goes into `bootstrap`; not where the listener comes from a file.
    pub has_picker: bool,
    /// Worker threads.
    pub concurrency: u32,
    /// More of Envoy's own arguments.
    pub arguments: &'static [&'static str],
    /// The servers, running already.
    pub servers: Vec<Server>,
    addresses: Addresses,
}

/// A running Envoy in front of running servers. Dropping it ends them.
pub struct Stack {
    /// The servers, in the order in which they were asked for.
    pub servers: Vec<Server>,
    /// Where Envoy listens.
    pub addresses: Addresses,
    /// The process.
    pub proxy: Proxy,
}

impl Draft {
    /// Starts servers and prepares the shipped configuration of `destination` for them, with two
    /// workers.
    pub async fn new(destination: Destination, options: Vec<ServerOptions>) -> Result<Self> {
        let mut servers = Vec::with_capacity(options.len());
        for options in options {
            servers.push(Server::start(options).await?);
        }
        let endpoints: Vec<SocketAddr> = servers.iter().map(Server::address).collect();
        Self::of(destination, servers, &endpoints)
    }

    /// The same for endpoints that are no simulated servers.
    pub fn with_endpoints(destination: Destination, endpoints: &[SocketAddr]) -> Result<Self> {
        Self::of(destination, Vec::new(), endpoints)
    }

    fn of(
        destination: Destination,
        servers: Vec<Server>,
        endpoints: &[SocketAddr],
    ) -> Result<Self> {
        let addresses = Addresses::free()?;
        let document = document(destination, endpoints)?;
        Ok(Self {
            bootstrap: compose(
                destination,
                addresses,
                &module(Variant::Shipped)?,
                &document,
            )?,
            document,
            has_picker: true,
            concurrency: 2,
            arguments: &[],
            servers,
            addresses,
        })
    }

    /// The one pool of the document.
    pub fn pool(&mut self) -> Result<&mut Value> {
        self.document
            .pointer_mut("/pools/0")
            .context("the document has no pool")
    }

    /// Uses the test build of the module, which has switches that the shipped one refuses.
    pub fn use_test_build(&mut self) -> Result<()> {
        self.bootstrap.set_wasm(&module(Variant::Test)?);
        Ok(())
    }

    /// Starts Envoy and waits until it serves; metrics may not have been scraped yet.
    pub async fn start_cold(mut self) -> Result<Stack> {
        if self.has_picker {
            self.bootstrap.set_picker(&self.document)?;
        }
        let options = ProxyOptions {
            concurrency: Some(self.concurrency),
            directory: directory(),
            arguments: self.arguments,
        };
        let proxy = Proxy::start(envoy()?, &self.bootstrap, &options).await?;
        Ok(Stack {
            servers: self.servers,
            addresses: self.addresses,
            proxy,
        })
    }

    /// Starts Envoy and waits until every endpoint can be picked by its metrics.
    pub async fn start(self) -> Result<Stack> {
        let stack = self.start_cold().await?;
        if let Err(error) = ready(stack.addresses).await {
            bail!("{error:#}\n{}", stack.proxy.last_lines(20));
        }
        Ok(stack)
    }
}

impl Stack {
    /// Opens a connection to the traffic listener.
    pub async fn connect(&self) -> Result<Connection> {
        Connection::open(self.addresses.traffic).await
    }

    /// One request on a connection of its own.
    pub async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response> {
        self.connect()
            .await?
            .request(method, path, headers, body)
            .await
    }

    /// One chat completion on a connection of its own.
    pub async fn chat(&self, prompt: &str) -> Result<Response> {
        let body = chat_body(prompt, 1);
        post(self.addresses.traffic, CHAT, body.as_bytes()).await
    }

    /// Sends a chat and waits until it is in flight, which it is while the connection is open and its
    /// server does not answer.
    pub async fn begin_chat(&self) -> Result<Connection> {
        let body = chat_body("hello", 1);
        let headers = [("content-type", "application/json")];
        let length = Length::of(body.as_bytes());
        let mut connection = self.connect().await?;
        connection
            .send(&head("POST", CHAT, &headers, length))
            .await?;
        connection.send(body.as_bytes()).await?;
        let is_begun = |state: &State| state.endpoints().any(|it| it.in_flight == 1);
        self.wait("one is running", is_begun).await?;
        Ok(connection)
    }

    /// What the picker says of itself now.
    pub async fn state(&self) -> Result<State> {
        State::fetch(self.addresses.pages).await
    }

    /// Waits until the picker's state is as wanted, and returns it.
    pub async fn wait(&self, what: &str, wanted: impl Fn(&State) -> bool) -> Result<State> {
        let mut last = None;
        let found = eventually(async || {
            let state = self.state().await;
            let is_wanted = state.as_ref().is_ok_and(&wanted);
            last = Some(state);
            is_wanted
        })
        .await;
        let Some(last) = last else {
            bail!("no state was read")
        };
        let last = last.with_context(|| format!("{what}: {}", self.proxy.last_lines(5)))?;
        ensure!(found, "not within {PATIENCE:?}: {what}; it is {last:#?}");
        Ok(last)
    }

    /// Waits until nothing is in flight on any endpoint or worker.
    pub async fn wait_until_idle(&self) -> Result<State> {
        self.wait("nothing is in flight", |state| {
            state.endpoints().all(|endpoint| endpoint.in_flight == 0)
                && state.workers().all(|worker| worker.in_flight == 0)
        })
        .await
    }

    /// A counter or gauge of Envoy; 0 when there is none of that name.
    pub async fn stat(&self, name: &str) -> Result<u64> {
        stat(self.addresses, name).await
    }

    /// Waits until a counter of the pool `llm` is this: they are told to Envoy at the next tick.
    pub async fn wait_for_count(&self, name: &str, count: u64) -> Result<()> {
        let name = format!("wasmcustom.picker_{name}");
        eventually(async || self.stat(&name).await.is_ok_and(|it| it == count)).await;
        let found = self.stat(&name).await?;
        ensure!(found == count, "{name} is {found} and not {count}");
        Ok(())
    }

    /// Envoy's resident memory, in bytes.
    pub fn memory(&self) -> Result<u64> {
        resident_bytes(self.proxy.pid().context("Envoy has ended")?)
    }

    /// Envoy's log so far, access log included.
    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.proxy.log())?)
    }

    /// Waits until a line of Envoy's log contains all of `words`, and returns it.
    pub async fn wait_for_line(&self, words: &[&str]) -> Result<String> {
        let mut line = None;
        eventually(async || {
            let log = self.log().unwrap_or_default();
            let mut lines = log.lines();
            let found = lines.find(|line| words.iter().all(|word| line.contains(word)));
            line = found.map(str::to_owned);
            line.is_some()
        })
        .await;
        line.with_context(|| format!("no line with {words:?} in:\n{}", self.proxy.last_lines(20)))
    }

    /// How many requests other than scrapes each server has seen.
    pub async fn served(&self) -> Result<Vec<usize>> {
        let mut served = Vec::with_capacity(self.servers.len());
        for server in &self.servers {
            served.push(requests(server).await?.len());
        }
        Ok(served)
    }
}

/// What a server has seen, scrapes left out.
pub async fn requests(server: &Server) -> Result<Vec<Value>> {
    let log = fetch(server.address(), "/sim/log").await?.json()?;
    let entries = log
        .as_array()
        .with_context(|| format!("/sim/log is no list: {log}"))?;
    let is_scrape = |entry: &&Value| entry["path"] == "/metrics";
    Ok(entries
        .iter()
        .filter(|entry| !is_scrape(entry))
        .cloned()
        .collect())
}

/// Makes a server misbehave, or behave again; what is not named stays as it is.
pub fn set_faults(server: &Server, faults: &Value) -> Result<()> {
    let change = FaultChange::parse(faults.to_string().as_bytes(), server.faults())?;
    server.change_faults(change);
    Ok(())
}

/// `count` equal servers, twenty times faster than an L4 and otherwise like one.
pub fn servers(count: usize) -> Vec<ServerOptions> {
    let options = ServerOptions {
        time_scale: 20.0,
        ..ServerOptions::default()
    };
    vec![options; count]
}

/// A chat of one message that asks for `tokens` of output.
pub fn chat_body(prompt: &str, tokens: u32) -> String {
    json!({
        "model": MODEL,
        "max_tokens": tokens,
        "messages": [{"role": "user", "content": prompt}],
    })
    .to_string()
}

/// Asks until the answer is yes, ten seconds at most; whether it was.
pub async fn eventually(mut asked: impl AsyncFnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if asked().await {
            return true;
        }
        sleep(Duration::from_millis(20)).await;
    }
    false
}

/// A module, built once per process unless the environment names one.
pub fn module(variant: Variant) -> Result<PathBuf> {
    static SHIPPED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    static TEST: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    if let Some(path) = module_from_environment(variant) {
        return Ok(path);
    }
    let built = match variant {
        Variant::Shipped => &SHIPPED,
        Variant::Test => &TEST,
    };
    let built = built.get_or_init(|| wasm::build(variant).map_err(|error| format!("{error:#}")));
    built.clone().map_err(anyhow::Error::msg)
}

/// The Envoy of this process's tests, looked for once.
pub fn envoy() -> Result<&'static Envoy> {
    static ENVOY: OnceLock<Result<Envoy, String>> = OnceLock::new();
    let envoy = ENVOY.get_or_init(|| Envoy::find(None).map_err(|error| format!("{error:#}")));
    envoy
        .as_ref()
        .map_err(|error| anyhow::Error::msg(error.clone()))
}

/// A new directory below the target directory for one Envoy's files.
pub fn directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    target()
        .join("run")
        .join(format!("test-{}-{number}", process::id()))
}

/// Both ways to a destination.
pub const DESTINATIONS: [Destination; 2] = [Destination::OriginalDst, Destination::OverrideHost];

/// The path of chat completions.
pub const CHAT: &str = "/v1/chat/completions";

/// The header in which the picker names its choice.
pub const DESTINATION: &str = "x-gateway-destination-endpoint";

/// The model that simulated servers serve.
pub const MODEL: &str = "sim-model";

/// How long a condition may take to come true: long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
