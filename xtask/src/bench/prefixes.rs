//! The requests of the published test: long prefixes, each of which comes back several times.

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

/// Every prefix equally often, in a random order, each time with a suffix of its own.
#[derive(Clone, Debug)]
pub(super) struct Prefixes {
    /// The model that is asked for; `None` leaves it out.
    pub(super) model: Option<String>,
    /// Another seed gives other prefixes, suffixes and another order.
    pub(super) seed: u64,
}

impl Prefixes {
    /// Sends all requests and waits for the answers; `what` is named on standard error.
    ///
    /// Any answer that is none is an error.
    pub(super) async fn send(
        &self,
        target: SocketAddr,
        concurrency: usize,
        what: &str,
    ) -> Result<LoadReport> {
        let bodies = self.bodies();
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
        options.requests_max = Some(REQUESTS as u64);
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
                    eprintln!("{what}: {sent} of {REQUESTS} requests");
                }
            }
        };
        ensure!(
            report.succeeded == report.requests,
            "{what}: some requests failed:\n{report}"
        );
        Ok(report)
    }

    fn bodies(&self) -> Vec<Vec<u8>> {
        let mut draw = Draw::new(self.seed);
        let prefixes: Vec<String> = (0..PREFIXES)
            .map(|_| text(&mut draw, PREFIX_TOKENS))
            .collect();
        let mut order: Vec<usize> = (0..REQUESTS).map(|number| number % PREFIXES).collect();
        draw.shuffle(&mut order);
        let prefixes = order.into_iter().filter_map(|prefix| prefixes.get(prefix));
        prefixes
            .map(|prefix| {
                let mut body = json!({
                    "prompt": format!("{prefix}{}", text(&mut draw, SUFFIX_TOKENS)),
                    "max_tokens": OUTPUT_TOKENS,
                    // An engine that would stop early makes another test of it.
                    "ignore_eos": true,
                    "stream": true,
                    "stream_options": {"include_usage": true},
                });
                if let Some(model) = &self.model {
                    body["model"] = json!(model);
                }
                body.to_string().into_bytes()
            })
            .collect()
    }
}

/// Prose of exactly so many tokens of the simulated servers, and roughly as many of real ones.
fn text(draw: &mut Draw, tokens: usize) -> String {
    let bytes = tokens * TOKEN_BYTES;
    let mut text = draw.prose(bytes);
    text.truncate(bytes);
    text
}

/// Different prefixes.
pub(super) const PREFIXES: usize = 128;

/// Requests: eight of each prefix.
pub(super) const REQUESTS: usize = 8 * PREFIXES;

/// Tokens of a prefix.
pub(super) const PREFIX_TOKENS: usize = 2048;

/// Tokens of what follows a prefix.
pub(super) const SUFFIX_TOKENS: usize = 128;

/// Tokens of an answer.
const OUTPUT_TOKENS: usize = 128;

/// Bytes of a token, as the simulated servers cut text.
const TOKEN_BYTES: usize = 4;

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_secs(10);

/// No queue of this test is as long as that, on whatever accelerator.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_prefix_comes_eight_times_and_no_prompt_twice() {
        let workload = Prefixes {
            model: Some("m".to_owned()),
            seed: 7,
        };
        let mut prefixes: BTreeMap<String, usize> = BTreeMap::new();
        let mut prompts: Vec<String> = Vec::new();
        for body in workload.bodies() {
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let prompt = body["prompt"].as_str().unwrap().to_owned();
            assert_eq!(prompt.len(), (PREFIX_TOKENS + SUFFIX_TOKENS) * TOKEN_BYTES);
            let prefix = prompt[..PREFIX_TOKENS * TOKEN_BYTES].to_owned();
            *prefixes.entry(prefix).or_default() += 1;
            prompts.push(prompt);
        }
        assert_eq!(prefixes.len(), PREFIXES);
        assert!(prefixes.values().all(|times| *times == 8));
        prompts.sort_unstable();
        prompts.dedup();
        assert_eq!(prompts.len(), REQUESTS);
    }
}
