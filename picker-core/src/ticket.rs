//! What passes between a decision and the stream that it was made for.

use alloc::string::String;
use alloc::vec::Vec;

use crate::ledger::Load;
use crate::response::ResponseSummary;
use crate::{Address, EndpointId};

/// A request on its way: what to give back when it ends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ticket {
    /// Prompt tokens charged to the endpoint until its first byte.
    pub(crate) prefill_tokens: u32,
    /// Tokens charged to the endpoint until the end.
    pub(crate) kept_tokens: u32,
    /// Prompt tokens that its cache was thought to hold.
    pub(crate) matched_tokens: u32,
    /// Bytes of the prompts.
    pub(crate) bytes: u64,
    /// The ring entries that placed its prompts.
    pub(crate) placed: Vec<u64>,
    /// The endpoint it is counted for; `None` once it has ended.
    pub(crate) endpoint: Option<EndpointId>,
    /// The endpoint that computes its prompts, where that is another.
    pub(crate) prefill: Option<EndpointId>,
}

/// What is known of an answer when it has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Answered {
    /// Tokens in the answer.
    pub output_tokens: Option<u32>,
    /// Tokens in the prompt.
    pub prompt_tokens: Option<u32>,
    /// Those of them that the endpoint's cache held.
    pub cached_tokens: Option<u32>,
}

impl From<ResponseSummary> for Answered {
    /// Chunks of a stream stand for tokens where the endpoint did not count them.
    fn from(summary: ResponseSummary) -> Self {
        let tokens = |count: u64| u32::try_from(count).ok();
        let chunks = Some(summary.chunks).filter(|chunks| *chunks > 0);
        Self {
            output_tokens: summary.usage.output.or(chunks).and_then(tokens),
            prompt_tokens: summary.usage.prompt.and_then(tokens),
            cached_tokens: summary.usage.cached.and_then(tokens),
        }
    }
}

/// Where a request goes.
#[derive(Clone, PartialEq, Debug)]
pub struct Pick {
    /// The chosen endpoint.
    pub endpoint: EndpointId,
    /// Its address, then fallbacks in order.
    pub destinations: Vec<Address>,
    /// Leading blocks of the prompts that the chosen endpoint holds.
    pub matched: usize,
    /// Blocks in all prompts.
    pub blocks: usize,
    /// Tokens in all prompts, as far as bytes tell.
    pub prompt_tokens: u32,
    /// Headers to set on the request.
    pub headers: Vec<(&'static str, String)>,
    /// To be given back when the request ends.
    pub ticket: Ticket,
}

impl Pick {
    pub(crate) fn load(&self) -> Load {
        Load {
            requests: 1,
            prefill_tokens: self.ticket.prefill_tokens,
            kept_tokens: self.ticket.kept_tokens,
            sent: 1,
            sent_tokens: self.prompt_tokens,
            matched_tokens: self.ticket.matched_tokens,
            ..Load::default()
        }
    }
}
