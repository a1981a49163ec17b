//! `sim load`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use sim::load::{Bodies, LoadOptions, SharedPrefixes, run_load};

/// Send requests from a fixed number of connections and print what came of them.
///
/// Each connection sends its next request when the last one is answered. Without --body the
/// requests are chats that share a few long system prompts.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server or the proxy in front of it, such as 127.0.0.1:8000.
    #[arg(value_name = "HOST:PORT")]
    target: String,
    /// The path of every request.
    #[arg(long, default_value = "/v1/chat/completions")]
    path: String,
    /// A header of every request, as `name: value`; may be repeated.
    #[arg(long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// A file with the body to send; may be repeated, and then they take turns.
    #[arg(long = "body", value_name = "FILE")]
    bodies: Vec<PathBuf>,
    /// Requests in flight at once.
    #[arg(long, value_name = "N", default_value_t = 8)]
    connections: usize,
    /// Open a new connection for each request.
    #[arg(long)]
    reconnect: bool,
    /// How many requests to send.
    #[arg(long, value_name = "N", default_value_t = 200)]
    requests: u64,
    /// After how many seconds to send no more.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// After how many seconds a request counts as failed.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    timeout: f64,
    /// The model to ask for [default: none, which is the server's first].
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// How many system prompts there are; 0 gives each chat its own.
    #[arg(long, value_name = "N", default_value_t = 8)]
    prefixes: u64,
    /// Tokens of a system prompt, of four bytes each.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    prefix_tokens: usize,
    /// Tokens of a question, no two of which are alike.
    #[arg(long, value_name = "N", default_value_t = 64)]
    question_tokens: usize,
    /// Tokens of an answer.
    #[arg(long, value_name = "N", default_value_t = 32)]
    max_tokens: usize,
    /// Ask for answers in one piece instead of streams.
    #[arg(long)]
    no_stream: bool,
    /// Another seed gives other prompts.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the load and prints the report; fails unless every request succeeds.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let report = run_load(options(args)?).await?;
    println!("{report}");
    let failed = report.requests - report.succeeded;
    ensure!(
        failed == 0,
        "{failed} of {} requests did not succeed",
        report.requests
    );
    Ok(())
}

fn options(args: Args) -> anyhow::Result<LoadOptions> {
    let target = resolve(&args.target)?;
    let header = |line: &String| {
        let (name, value) = line
            .split_once(':')
            .with_context(|| format!("no `:` in `{line}`"))?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    let headers = args
        .headers
        .iter()
        .map(header)
        .collect::<anyhow::Result<_>>()?;
    let duration = |seconds: f64| {
        Duration::try_from_secs_f64(seconds).with_context(|| format!("{seconds} seconds"))
    };
    let bodies = if args.bodies.is_empty() {
        let workload = SharedPrefixes {
            model: args.model,
            prefixes: args.prefixes,
            prefix_tokens: args.prefix_tokens,
            question_tokens: args.question_tokens,
            max_tokens: args.max_tokens,
            stream: !args.no_stream,
            seed: args.seed,
        };
        Bodies::Generate(Arc::new(move |number| workload.body(number)))
    } else {
        let read = |path: &PathBuf| {
            let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
            Ok(Bytes::from(bytes))
        };
        Bodies::List(
            args.bodies
                .iter()
                .map(read)
                .collect::<anyhow::Result<_>>()?,
        )
    };
    Ok(LoadOptions {
        path: args.path,
        headers,
        connections: args.connections,
        reconnect: args.reconnect,
        requests_max: Some(args.requests),
        duration_max: args.seconds.map(duration).transpose()?,
        request_timeout: duration(args.timeout)?,
        keep_records: false,
        ..LoadOptions::new(target, bodies)
    })
}

/// The address of `HOST:PORT`, with or without `http://` before it.
fn resolve(target: &str) -> anyhow::Result<SocketAddr> {
    let host = target
        .strip_prefix("http://")
        .unwrap_or(target)
        .trim_end_matches('/');
    let mut addresses = host
        .to_socket_addrs()
        .with_context(|| format!("target `{target}`"))?;
    addresses
        .next()
        .with_context(|| format!("`{target}` has no address"))
}
