//! `sim serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::builder::PossibleValuesParser;
use sim::profile::{PROFILES, Profile};
use sim::server::{Faults, MetricsFault, Server, ServerOptions};

/// Serve until Ctrl-C.
///
/// Prints `listening on http://ADDRESS` once it accepts connections.
#[derive(clap::Args)]
#[command(after_long_help = PATHS)]
pub(crate) struct Args {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The served model, as answers and metrics name it.
    #[arg(long, value_name = "NAME", default_value = "sim-model")]
    model: String,
    /// Another name of the same model; may be repeated.
    #[arg(long = "alias", value_name = "NAME")]
    aliases: Vec<String>,
    /// A LoRA adapter, with a cache of its own; may be repeated.
    #[arg(long = "adapter", value_name = "NAME")]
    adapters: Vec<String>,
    /// Slots for adapters: so many stay in memory and run at once [default: any number].
    #[arg(long, value_name = "N")]
    max_loras: Option<usize>,
    /// How many milliseconds it takes to load an adapter that is not in memory.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    adapter_load_ms: u64,
    /// Answer 404 to models that are not named here, instead of taking them for adapters.
    #[arg(long)]
    strict_models: bool,
    /// The accelerator and model that are simulated: their speed and their room.
    #[arg(long, value_name = "NAME", default_value = "l4",
        value_parser = PossibleValuesParser::new(PROFILES))]
    profile: String,
    /// By how much everything is faster than that.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    time_scale: f64,
    /// KV blocks of 16 tokens that the metrics page reports [default: the profile's].
    #[arg(long, value_name = "N")]
    num_gpu_blocks: Option<u32>,
    /// KV blocks that really hold something [default: the profile's, or all that are reported].
    #[arg(long, value_name = "N")]
    usable_blocks: Option<u32>,
    /// Most requests that run at once [default: the profile's].
    #[arg(long, value_name = "N")]
    max_num_seqs: Option<usize>,
    /// Most tokens computed in one step [default: the profile's].
    #[arg(long, value_name = "N")]
    max_num_batched_tokens: Option<usize>,
    /// Most tokens of a request, prompt and output together [default: 32768, or all blocks].
    #[arg(long, value_name = "N")]
    max_model_len: Option<usize>,
    /// Keep no blocks after their request.
    #[arg(long)]
    no_prefix_caching: bool,
    /// Leave `prompt_tokens_details` out of the usage, as a server does unless told otherwise.
    #[arg(long)]
    no_prompt_tokens_details: bool,
    /// Read the body of a POST to any unknown path and answer 200 with its length.
    #[arg(long)]
    accept_unknown: bool,
    /// After how many seconds an idle connection is closed.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    keep_alive: f64,
    /// A file to show instead of the metrics page, until a POST to /sim/faults says otherwise.
    #[arg(long, value_name = "FILE")]
    metrics_page: Option<PathBuf>,
    /// How many requests `/sim/log` remembers.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    log_len: usize,
    /// What is wrong with the metrics page: ok, slow:MS, empty, html, not-found, error, hang,
    /// truncated (in the middle of a line), cut (the connection closes half-way), stale.
    #[arg(long, value_name = "FAULT", default_value = "ok")]
    fault_metrics: MetricsFault,
    /// What is wrong with requests: ok, error:STATUS, hang, reset (close the connection). `:RATE`
    /// behind it is the share of requests that are hit, such as error:503:0.5.
    #[arg(long, value_name = "FAULT", default_value = "ok")]
    fault_requests: String,
}

/// Serves until Ctrl-C.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let page = args
        .metrics_page
        .as_ref()
        .map(|path| std::fs::read_to_string(path).with_context(|| path.display().to_string()));
    let page = page.transpose()?;
    let server = Server::start(options(args)?).await?;
    if let Some(page) = page {
        server.show_page(page);
    }
    println!("listening on http://{}", server.address());
    tokio::signal::ctrl_c()
        .await
        .context("cannot wait for Ctrl-C")?;
    server.stop().await;
    Ok(())
}

fn options(args: Args) -> anyhow::Result<ServerOptions> {
    let mut faults = Faults {
        metrics: args.fault_metrics,
        ..Faults::default()
    };
    faults
        .set_requests(&args.fault_requests)
        .context("--fault-requests")?;
    let mut profile = Profile::named(&args.profile).context("no such profile")?;
    profile.adapter_load = Duration::from_millis(args.adapter_load_ms);
    Ok(ServerOptions {
        listen: args.listen,
        model: args.model,
        aliases: args.aliases,
        adapters: args.adapters,
        strict_models: args.strict_models,
        profile,
        time_scale: args.time_scale,
        num_gpu_blocks: args.num_gpu_blocks,
        usable_blocks: args.usable_blocks,
        max_num_seqs: args.max_num_seqs,
        max_num_batched_tokens: args.max_num_batched_tokens,
        max_model_len: args.max_model_len,
        max_loras: args.max_loras,
        prefix_caching: !args.no_prefix_caching,
        prompt_tokens_details: !args.no_prompt_tokens_details,
        accept_unknown: args.accept_unknown,
        keep_alive: Duration::try_from_secs_f64(args.keep_alive).context("--keep-alive")?,
        faults,
        log_len: args.log_len,
    })
}

/// Shown below the long help: what a running server answers.
const PATHS: &str = r#"Paths:
  POST /v1/chat/completions, /v1/completions   streamed or not; usage with cached_tokens
  GET  /v1/models /metrics /health /ping /version /load
  POST /reset_prefix_cache                     409 while a request is in the engine
  GET  /sim/state       counters: requests, prompt_tokens, cached_tokens, running, waiting, ...
  GET  /sim/log         the last requests: method, path, headers, body_bytes, body_xxh3, model,
                        status, prompt_tokens, cached_tokens; POST /sim/log/clear forgets them
  GET  /sim/faults      the faults; POST changes those that the body names:
    {"metrics": "FAULT"}      as --fault-metrics
    {"requests": "FAULT"}     as --fault-requests
    {"refuse": true}          refuse connections; the one that asked stays open to end it
    {"refuse_ms": 500}        refuse connections for so long
    {"restart": true}         new start time, counters 0, empty cache, requests in flight cut
  POST /sim/metrics-page   show the body instead of the metrics page, until the faults change

Every answer carries `x-sim-endpoint: IP:PORT`, so that a client behind a proxy can tell who
served it. Faults of requests do not hit /metrics, /health, /ping, /version, /v1/models, /sim."#;
