//! All that a scorer may read.

use alloc::string::String;

use crate::adapter::AdapterFit;
use crate::latency::Prediction;
use crate::ledger::Load;
use crate::request::Request;
use crate::role::{DECODES, PREFILLS, ROLE_LABEL};
use crate::session::Affinity;
use crate::snapshot::EndpointState;
use crate::sources::{GPU_ATTRIBUTE, GPU_EXTRACTOR, METRICS_EXTRACTOR};
use crate::twin::Held;
use crate::{BlockHash, EndpointId};

/// An endpoint during one decision.
#[derive(Clone, Copy)]
pub struct Candidate<'a> {
    /// The endpoint as the snapshot shows it.
    pub endpoint: &'a EndpointState,
    /// Its labels.
    pub labels: &'a [(String, String)],
    /// Whether it has not failed lately.
    pub may_serve: bool,
    /// Whether its metrics are young enough to be believed. When not, only the rest says anything
    /// about it.
    pub fresh: bool,
    /// Whether it has as many requests in flight as it may have.
    pub is_full: bool,
    /// What all workers of this Envoy have in flight there.
    pub load: Load,
    /// What it holds of the request's prompts.
    pub held: Held,
    /// Media of the request whose embeddings it holds.
    pub media_held: usize,
    /// Different blocks used by all prompts in flight there.
    pub pinned: usize,
    /// Tokens that its KV cache has room for, when that is known.
    pub capacity_tokens: Option<u64>,
    /// When it was last sent a request of which nobody held anything, as a number that only grows; 0
    /// for never, and where the plan does not ask.
    pub cold_at: u64,
    /// How busy its busiest GPU is, `0..=1`; `None` where the plan does not ask or it is not told.
    pub gpu_usage: Option<f64>,
    /// How it stands to the adapter that the request needs; `None` when it needs none.
    pub adapter: Option<AdapterFit>,
    /// What the request can expect there; `None` where the plan does not ask, and until enough
    /// answers have been seen.
    pub prediction: Option<&'a Prediction>,
}

/// One decision's candidates, and what is to be placed.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The candidates, in the order of their numbers.
    pub candidates: &'a [Candidate<'a>],
    /// The request.
    pub request: &'a Request,
    /// Blocks in all prompts of the request.
    pub blocks: usize,
    /// Different media in the request, where the plan asks for them.
    pub media: usize,
    /// Tokens in all prompts of the request.
    pub prompt_tokens: u64,
    /// Tokens in a hash block.
    pub block_tokens: f64,
    /// Tokens that the answer is expected to have.
    pub output_tokens: f64,
    /// What requests that belong together have in common, when that is known.
    pub group: Option<BlockHash>,
    /// The endpoints of those who come back, by the plugin that knows them.
    pub pinned: &'a [(&'a Affinity, EndpointId)],
    /// The endpoint that an earlier profile chose for another part of the same request.
    pub peer: Option<&'a Candidate<'a>>,
}

impl<'a> Candidate<'a> {
    /// `endpoint` with nothing in flight and nothing known besides what the snapshot shows.
    pub fn idle(endpoint: &'a EndpointState) -> Self {
        Self {
            endpoint,
            labels: &[],
            may_serve: true,
            fresh: true,
            is_full: false,
            load: Load::default(),
            held: Held::default(),
            media_held: 0,
            pinned: 0,
            capacity_tokens: None,
            cold_at: 0,
            gpu_usage: None,
            adapter: None,
            prediction: None,
        }
    }

    /// Whether something listens there that takes requests and is not asleep.
    pub fn is_ready(&self) -> bool {
        let endpoint = self.endpoint;
        endpoint.reachable && !endpoint.draining && endpoint.metrics.sleeping != Some(true)
    }

    /// The value of one of its labels.
    pub fn label(&self, name: &str) -> Option<&'a str> {
        let label = self.labels.iter().find(|(it, _)| it == name);
        label.map(|(_, value)| value.as_str())
    }

    /// Whether it is one of those that compute prompts for others.
    pub fn prefills(&self) -> bool {
        let role = self.label(ROLE_LABEL);
        role.is_some_and(|it| PREFILLS.contains(&it))
    }

    /// Whether it decodes, as those without a role do.
    pub fn decodes(&self) -> bool {
        let role = self.label(ROLE_LABEL);
        role.is_none_or(|it| DECODES.contains(&it))
    }

    /// A number of this name that `producer`, a type of plugins, made of what its pages say; `None`
    /// when they say none or are too old to be believed.
    pub fn attribute(&self, producer: &str, name: &str) -> Option<f64> {
        match producer {
            METRICS_EXTRACTOR if self.fresh => self.endpoint.metrics.attribute(name),
            GPU_EXTRACTOR if name == GPU_ATTRIBUTE => self.gpu_usage,
            _ => None,
        }
    }

    /// The time to the first token that is predicted for the request there, in milliseconds.
    pub fn predicted_ttft_ms(&self) -> Option<f64> {
        self.prediction.map(|it| it.ttft_ms)
    }

    /// Requests sent by all workers since the metrics were read: what the metrics do not show yet.
    ///
    /// The difference of two running totals; it is zero, not huge, after a worker's row and its
    /// total have gone.
    pub fn sent_since_scrape(&self) -> u32 {
        let since = self.load.sent.wrapping_sub(self.endpoint.sent_at_scrape);
        if since > u32::MAX / 2 { 0 } else { since }
    }

    /// By how much more requests are there than when the metrics were read, others' included as far
    /// as they do as we do; below 0 when more have ended than begun.
    pub fn more_since_scrape(&self) -> f64 {
        let then = f64::from(self.endpoint.in_flight_at_scrape);
        (f64::from(self.load.requests) - then) / self.share().max(SHARE_LEAST)
    }

    /// The share of the endpoint's work that this Envoy sends; 1 until it is known to be less.
    pub fn share(&self) -> f64 {
        self.endpoint.share.unwrap_or(1.0)
    }

    /// Requests at the endpoint, others' included.
    ///
    /// Our own count is exact and never late, so it is enough where nobody else sends.
    pub fn requests(&self) -> f64 {
        let own = f64::from(self.load.requests);
        let metrics = &self.endpoint.metrics;
        match (metrics.running, metrics.waiting) {
            (Some(running), Some(waiting)) if self.fresh && self.share() < SHARE_ALONE => {
                let unseen = f64::from(self.sent_since_scrape()) / self.share().max(SHARE_LEAST);
                own.max(running + waiting + unseen)
            }
            _ => own,
        }
    }
}

#[cfg(test)]
impl<'a> Context<'a> {
    /// A request of ten blocks of 64 tokens each, of nothing else known.
    pub(crate) fn of(candidates: &'a [Candidate<'a>], request: &'a Request) -> Self {
        Self {
            candidates,
            request,
            blocks: 10,
            media: 0,
            prompt_tokens: 640,
            block_tokens: 64.0,
            output_tokens: 128.0,
            group: None,
            pinned: &[],
            peer: None,
        }
    }
}

impl Context<'_> {
    /// The endpoint to which `affinity` would send the request; not always a candidate.
    pub fn pinned_by(&self, affinity: &Affinity) -> Option<EndpointId> {
        let pinned = self.pinned.iter().find(|(it, _)| *it == affinity);
        pinned.map(|(_, endpoint)| *endpoint)
    }

    /// Tokens in the endpoint's cache that requests in flight use or will use: their prompts, what
    /// they share counted once, and the answers they are expected to have.
    pub fn tokens_in_use(&self, candidate: &Candidate<'_>) -> f64 {
        // Others have as much in flight for their share as we for ours.
        let prompts = candidate.pinned as f64 * self.block_tokens;
        prompts / candidate.share().max(SHARE_LEAST) + candidate.requests() * self.output_tokens
    }

    /// Prompt tokens that `candidate` would have to compute.
    ///
    /// An engine computes at least the last token, and matches whole blocks of its own only.
    pub fn missing_tokens(&self, candidate: &Candidate<'_>) -> u64 {
        let block = u64::from(
            candidate
                .endpoint
                .metrics
                .block_size
                .unwrap_or(ENGINE_BLOCK_TOKENS),
        );
        let most = self.prompt_tokens.saturating_sub(1) / block.max(1) * block;
        self.prompt_tokens - most.min((candidate.held.matched as f64 * self.block_tokens) as u64)
    }
}

/// The share above which an endpoint is taken to be ours alone: tokens are estimates.
pub(crate) const SHARE_ALONE: f64 = 0.9;

/// The least share that unseen requests are scaled by: a share of nothing would make every request
/// weigh endlessly.
pub(crate) const SHARE_LEAST: f64 = 0.1;

/// Tokens in an engine's block, unless it tells otherwise: vLLM's default on GPUs.
const ENGINE_BLOCK_TOKENS: u32 = 16;
