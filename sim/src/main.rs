//! The `sim` command: a simulated model server, and a client that puts load on one.

mod commands;

use clap::{Parser, Subcommand};

/// A simulated vLLM server, and a client that puts load on one.
///
/// The server schedules and caches as vLLM 0.33 does and takes as long as an accelerator would,
/// but computes nothing: one token is four bytes of prompt text, and the answer is made up from
/// it.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(commands::serve::Args),
    Load(commands::load::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Serve(args) => commands::serve::run(args).await,
        Command::Load(args) => commands::load::run(args).await,
    }
}

/// Shown below the help: a first look at both commands.
const EXAMPLES: &str = "\
Try it:
  sim serve --listen 127.0.0.1:8000 --time-scale 10
  curl http://127.0.0.1:8000/v1/chat/completions -H 'content-type: application/json' \\
    -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"max_tokens\":8}'
  curl http://127.0.0.1:8000/metrics
  sim load 127.0.0.1:8000 --connections 8 --requests 200";
