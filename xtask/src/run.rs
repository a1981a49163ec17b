//! `cargo xtask run`: Envoy with the picker in front of given servers, or of simulated ones.

use std::future::pending;
use std::io::{IsTerminal, stdout};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::bootstrap::{Bootstrap, PAGES, TRAFFIC, read_document};
use crate::check;
use crate::compose::{Addresses, Destination, compose, document, endpoints, set_endpoints};
use crate::envoy::Envoy;
use crate::http::fetch;
use crate::live;
use crate::ports;
use crate::proxy::{Proxy, ProxyOptions};
use crate::ready::ready;
use crate::simulated::Simulated;
use crate::wasm::{self, Variant};
use crate::workspace::{root, target};

/// The arguments of `cargo xtask run`.
#[derive(Clone, Debug, Args)]
pub struct RunArguments {
    /// A model server, HOST:PORT; give it once per server. Without any, three are simulated
    #[arg(
        long = "endpoint",
        value_name = "HOST:PORT",
        conflicts_with = "envoy_config"
    )]
    endpoints: Vec<String>,
    /// The picker's configuration (pools), YAML or JSON
    #[arg(long, value_name = "FILE", conflicts_with = "envoy_config")]
    config: Option<PathBuf>,
    /// A whole Envoy configuration, used as it is
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "destination"])]
    envoy_config: Option<PathBuf>,
    /// Where clients connect
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// How Envoy learns the destination
    #[arg(long, value_enum, default_value = "original-dst")]
    destination: Destination,
    /// Envoy's worker threads; with --check 2, else as many as the machine has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    concurrency: Option<u32>,
    /// The Envoy binary
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// Send requests, print where they went, fail unless they went where they should
    #[arg(long)]
    check: bool,
    /// Repeat a check with its random choices
    #[arg(long, value_name = "NUMBER", requires = "check")]
    seed: Option<u64>,
}

/// Runs until Ctrl-C, until Envoy ends, or until the check is through.
pub fn run(arguments: RunArguments) -> Result<()> {
    let plan = Plan::new(&arguments)?;
    let wasm = wasm::build(Variant::Shipped)?;
    let envoy = Envoy::find(arguments.envoy.as_deref())?;
    println!("Using {envoy}");
    tokio::runtime::Runtime::new()?.block_on(serve(&arguments, plan, &envoy, wasm))
}

/// What to run, as far as it is known before anything was started.
struct Plan {
    config: Option<Value>,
    bootstrap: Option<Bootstrap>,
    endpoints: Vec<SocketAddr>,
}

impl Plan {
    fn new(arguments: &RunArguments) -> Result<Self> {
        let mut endpoints = Vec::new();
        for endpoint in &arguments.endpoints {
            endpoints.push(resolve(endpoint)?);
        }
        let config = arguments.config.as_deref().map(read_document).transpose();
        let config = config.context("--config does not name a usable file")?;
        if let Some(config) = &config {
            check_destination(config)?;
            crate::compose::endpoints(config).context("--config")?;
        }
        let bootstrap = arguments
            .envoy_config
            .as_deref()
            .map(Bootstrap::read)
            .transpose();
        let mut bootstrap = bootstrap.context("--envoy-config does not name a usable file")?;
        match &mut bootstrap {
            Some(bootstrap) => refuse_taken(bootstrap)?,
            None if !ports::is_free(arguments.listen) => {
                let listen = arguments.listen;
                bail!("somebody listens on {listen} already; choose another with --listen");
            }
            None => {}
        }
        Ok(Self {
            config,
            bootstrap,
            endpoints,
        })
    }

    /// Whether nothing names a server, so that servers are simulated.
    fn needs_servers(&self) -> Result<bool> {
        let named = match (&self.bootstrap, &self.config) {
            (Some(_), _) => true,
            (None, Some(config)) => !endpoints(config)?.is_empty(),
            (None, None) => false,
        };
        Ok(!named && self.endpoints.is_empty())
    }

    /// The configuration to run.
    fn bootstrap(self, arguments: &RunArguments, wasm: PathBuf) -> Result<Bootstrap> {
        if let Some(mut bootstrap) = self.bootstrap {
            bootstrap.set_wasm(&wasm);
            return Ok(bootstrap);
        }
        let destination = arguments.destination;
        let config = match self.config {
            Some(mut config) if !self.endpoints.is_empty() => {
                set_endpoints(&mut config, &self.endpoints)?;
                config
            }
            Some(config) => config,
            None => document(destination, &self.endpoints)?,
        };
        let addresses = Addresses {
            traffic: arguments.listen,
            pages: ports::free_or(9902)?,
            admin: ports::free_or(9901)?,
        };
        compose(destination, addresses, &wasm, &config)
    }
}

/// Starts everything, then shows it or checks it.
async fn serve(
    arguments: &RunArguments,
    mut plan: Plan,
    envoy: &Envoy,
    wasm: PathBuf,
) -> Result<()> {
    let simulated = if plan.needs_servers()? {
        let simulated = Simulated::start(SIMULATED).await?;
        plan.endpoints = simulated.addresses();
        Some(simulated)
    } else {
        None
    };
    let mut bootstrap = plan.bootstrap(arguments, wasm)?;
    if arguments.check {
        check::name_endpoint(&mut bootstrap)?;
    }
    let options = ProxyOptions {
        concurrency: arguments
            .concurrency
            .or_else(|| arguments.check.then_some(2)),
        directory: target().join("run").join(process::id().to_string()),
        ..ProxyOptions::default()
    };
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut proxy = Proxy::start(envoy, &bootstrap, &options).await?;
    describe(&mut bootstrap, &proxy, simulated.is_some()).await;
    let result = tokio::select! {
        status = proxy.ended() => {
            let lines = proxy.last_lines(10);
            bail!("Envoy ended ({}), its last words:\n{lines}", status?);
        }
        result = work(arguments, &mut bootstrap) => result,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    proxy.stop().await?;
    result
}

/// Checks, or shows the endpoints for ever.
async fn work(arguments: &RunArguments, bootstrap: &mut Bootstrap) -> Result<()> {
    if arguments.check {
        let seed = arguments.seed.unwrap_or_else(check::random_seed);
        return check::check(Addresses::of(bootstrap)?, seed).await;
    }
    let Ok(addresses) = Addresses::of(bootstrap) else {
        println!("No listeners named `traffic` and `pages`, so there is nothing to show here.");
        return pending().await;
    };
    if let Err(error) = ready(addresses).await {
        println!("{error:#}");
    }
    live::show(addresses.pages, stdout().is_terminal()).await
}

/// Prints what listens where, and a line to try.
async fn describe(bootstrap: &mut Bootstrap, proxy: &Proxy, simulated: bool) {
    let what = if simulated { " (simulated)" } else { "" };
    let servers = bootstrap.picker().and_then(|document| endpoints(&document));
    let servers = servers.unwrap_or_default();
    for server in &servers {
        println!("  endpoint  {server}{what}");
    }
    if let Ok(pages) = bootstrap.listener_address(PAGES) {
        println!("  pages     http://{pages}/picker/state");
    }
    println!("  admin     http://{}", proxy.admin());
    println!("  log       {}", short(proxy.log()));
    if let Ok(traffic) = bootstrap.listener_address(TRAFFIC) {
        println!("  clients   http://{traffic}");
        let model = match servers.first() {
            Some(server) => model(*server).await.unwrap_or_else(|_| "MODEL".to_owned()),
            None => "MODEL".to_owned(),
        };
        println!("Try:\n  curl -N http://{traffic}/v1/chat/completions \\");
        println!("    -H 'content-type: application/json' \\");
        let message = r#"[{"role": "user", "content": "Hello"}]"#;
        println!("    -d '{{\"model\": \"{model}\", \"stream\": true, \"messages\": {message}}}'");
    }
    println!("Ctrl-C stops everything.\n");
}

/// The first model that a server serves.
pub async fn model(server: SocketAddr) -> Result<String> {
    let models = fetch(server, "/v1/models").await?.json()?;
    let model = models.pointer("/data/0/id").and_then(Value::as_str);
    model
        .map(str::to_owned)
        .context("/v1/models names no model")
}

/// A server of the command line as an address; a name is resolved once, here.
pub fn resolve(endpoint: &str) -> Result<SocketAddr> {
    if let Ok(address) = endpoint.parse() {
        return Ok(address);
    }
    let has_port = endpoint
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    ensure!(
        has_port,
        "--endpoint {endpoint}: give HOST:PORT, for example 10.0.0.1:8000"
    );
    let found = endpoint.to_socket_addrs();
    let found: Vec<SocketAddr> = found
        .with_context(|| format!("--endpoint {endpoint}: the name is not known"))?
        .collect();
    let first = found
        .iter()
        .find(|address| address.is_ipv4())
        .or_else(|| found.first());
    let address = *first.with_context(|| format!("--endpoint {endpoint}: no address"))?;
    println!("{endpoint} is {address}");
    Ok(address)
}

/// Refuses a whole configuration whose ports are taken: two Envoys can share a port in silence.
fn refuse_taken(bootstrap: &mut Bootstrap) -> Result<()> {
    let listeners = [TRAFFIC, PAGES].map(|name| bootstrap.listener_address(name).ok());
    let admin = bootstrap.admin_address().ok();
    for address in listeners.into_iter().chain([admin]).flatten() {
        ensure!(
            ports::is_free(address),
            "--envoy-config: somebody listens on {address} already; change it in the file"
        );
    }
    Ok(())
}

/// Refuses a document whose destination the shipped configurations do not serve.
fn check_destination(config: &Value) -> Result<()> {
    let via = config.pointer("/destination/via").and_then(Value::as_str);
    if let Some(via) = via.filter(|via| *via != "header") {
        bail!(
            "--config: destination.via {via} needs routes of its own; \
             give a whole configuration with --envoy-config"
        );
    }
    Ok(())
}

/// A path as a person in the root would write it.
fn short(path: &std::path::Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}

/// How many servers are simulated: enough to see a choice.
const SIMULATED: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_cannot_be_used_names_the_flag() {
        for endpoint in ["gpu1", "gpu1:http", "10.0.0.1", "no.such.host.invalid:80"] {
            let error = format!("{:#}", resolve(endpoint).unwrap_err());
            assert!(error.contains(&format!("--endpoint {endpoint}")), "{error}");
        }
        assert_eq!(resolve("[::1]:80").unwrap(), "[::1]:80".parse().unwrap());
        assert_eq!(resolve("localhost:80").unwrap().port(), 80);
    }
}
