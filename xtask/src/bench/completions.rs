//! Completions sent through a router, a fixed number at a time.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use sim::load::{Bodies, LoadOptions, LoadReport, run_load};
use tokio::time::interval;

use crate::draw::Draw;

/// Sends all requests and waits for the answers; `what` is named on standard error.
///
/// Any answer that is none is an error.
pub(super) async fn send(
    bodies: Vec<Vec<u8>>,
    target: SocketAddr,
    concurrency: usize,
    what: &str,
) -> Result<LoadReport> {
    let requests = bodies.len();
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let make = move |number: u64| {
        counter.fetch_add(1, Ordering::Relaxed);
        let body = usize::try_from(number).ok().and_then(|it| bodies.get(it));
        body.cloned().unwrap_or_default().into()
    };
    let mut options = LoadOptions::new(target, Bodies::Generate(Arc::new(make)));
    options.path = "/v1/completions".to_owned();
    options.connections = concurrency;
    options.requests_max = Some(requests as u64);
    options.request_timeout = REQUEST_TIMEOUT;
    options.keep_records = false;
    let mut load = pin!(run_load(options));
    let mut progress = interval(PROGRESS);
    progress.tick().await;
    let report = loop {
        tokio::select! {
            report = &mut load => break report?,
            _ = progress.tick() => {
                let sent = sent.load(Ordering::Relaxed);
                eprintln!("{what}: {sent} of {requests} requests");
            }
        }
    };
    ensure!(
        report.succeeded == report.requests,
        "{what}: some requests failed:\n{report}"
    );
    Ok(report)
}

/// A request for a stream of exactly `max_tokens` tokens; without a `model` the body names none.
pub(super) fn body(prompt: &str, max_tokens: usize, model: Option<&str>) -> Vec<u8> {
    let mut body = json!({
        "prompt": prompt,
        "max_tokens": max_tokens,
        // An engine that would stop early makes another test of it.
        "ignore_eos": true,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    if let Some(model) = model {
        body["model"] = json!(model);
    }
    body.to_string().into_bytes()
}

/// Prose of exactly so many tokens of the simulated servers, and roughly as many of real ones.
pub(super) fn text(draw: &mut Draw, tokens: usize) -> String {
    let bytes = tokens * TOKEN_BYTES;
    let mut text = draw.prose(bytes);
    text.truncate(bytes);
    text
}

/// Bytes of a token, as the simulated servers cut text.
pub(super) const TOKEN_BYTES: usize = 4;

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_secs(10);

/// No queue of these tests is as long as that, on whatever accelerator.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);
