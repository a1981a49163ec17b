//! The requests of the published test: long prefixes, each of which comes back several times.

use std::net::SocketAddr;

use anyhow::Result;
use sim::load::LoadReport;

use super::completions::{body, send, text};
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
    pub(super) async fn send(
        &self,
        target: SocketAddr,
        concurrency: usize,
        what: &str,
    ) -> Result<LoadReport> {
        send(self.bodies(), target, concurrency, what).await
    }

    /// The bodies of all requests, in the order of sending.
    pub(super) fn bodies(&self) -> Vec<Vec<u8>> {
        let mut draw = Draw::new(self.seed);
        let prefixes: Vec<String> = (0..PREFIXES)
            .map(|_| text(&mut draw, PREFIX_TOKENS))
            .collect();
        let mut order: Vec<usize> = (0..REQUESTS).map(|number| number % PREFIXES).collect();
        draw.shuffle(&mut order);
        let prefixes = order.into_iter().filter_map(|prefix| prefixes.get(prefix));
        prefixes
            .map(|prefix| {
                let prompt = format!("{prefix}{}", text(&mut draw, SUFFIX_TOKENS));
                body(&prompt, OUTPUT_TOKENS, self.model.as_deref())
            })
            .collect()
    }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::completions::TOKEN_BYTES;
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
