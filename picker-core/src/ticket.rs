//! What passes between a decision and the stream that it was made for.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::ledger::Load;
use crate::pool::RunId;
use crate::predict::Features;
use crate::response::ResponseSummary;
use crate::{Address, EndpointId, Timestamp};

/// A request on its way: what to give back when it ends.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ticket {
    /// Prompt tokens charged until the first byte to the endpoint that computes them.
    pub(crate) prefill_tokens: u32,
    /// Tokens charged to the endpoint until the end.
    pub(crate) kept_tokens: u32,
    /// Prompt tokens that the cache of the endpoint it is counted for was thought to hold.
    pub(crate) matched_tokens: u32,
    /// Bytes of the prompts.
    pub(crate) bytes: u64,
    /// The ring entries that placed its prompts there.
    pub(crate) placed: Vec<u64>,
    /// The ring entries that placed its prompts at `prefill`.
    pub(crate) prefill_placed: Vec<u64>,
    /// The endpoint it is counted for; `None` once it has ended.
    pub(crate) endpoint: Option<EndpointId>,
    /// The endpoint that computes its prompts, where that is another.
    pub(crate) prefill: Option<EndpointId>,
    /// The endpoint that encodes its images and the like, where one does.
    pub(crate) encode: Option<EndpointId>,
    /// Whether these two are done, and no prompt tokens are charged any more.
    pub(crate) is_prefilled: bool,
    /// The flow that it is counted for when it ends, after the priority of its band.
    pub(crate) flow: Option<Box<(i32, String)>>,
    /// Its number among running requests that may be ended.
    pub(crate) run: Option<RunId>,
    /// What the answer will teach of latencies, where the plan predicts them.
    pub(crate) lesson: Option<Box<Lesson>>,
}

impl Ticket {
    /// By what it is named when it has to end for others; `None` for one that never has.
    pub fn run(&self) -> Option<RunId> {
        self.run
    }
}

/// What an answer will teach of latencies.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Lesson {
    /// When the request was sent.
    pub(crate) sent_at: Timestamp,
    /// When its first token came.
    pub(crate) first_token_at: Option<Timestamp>,
    /// Who computes the prompt, and what was known of it then.
    pub(crate) prompt: (EndpointId, Features),
    /// The same of who answers.
    pub(crate) answer: (EndpointId, Features),
    /// What the request asks of later tokens, in milliseconds; 0 for nothing.
    pub(crate) tpot_ms: f64,
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
    /// The endpoint that computes the prompt before the chosen one answers, when that is another.
    pub prefill: Option<Address>,
    /// How stages were divided among endpoints, when the plan has stages.
    pub division: Option<&'static str>,
    /// The totals of all endpoints that could have been chosen, as JSON; empty unless asked for.
    pub scores: String,
    /// Headers to set on the request.
    pub headers: Vec<(&'static str, String)>,
    /// To be given back when the request ends.
    pub ticket: Ticket,
}

impl Pick {
    /// What the request adds to every endpoint that has to do with it.
    pub(crate) fn loads(&self) -> [Option<(EndpointId, Load)>; 3] {
        let Ticket {
            prefill_tokens,
            matched_tokens,
            prefill,
            encode,
            ..
        } = self.ticket;
        let load = |prefill_tokens, matched_tokens| Load {
            requests: 1,
            prefill_tokens,
            sent: 1,
            sent_tokens: self.prompt_tokens,
            matched_tokens,
            ..Load::default()
        };
        let own_tokens = if prefill.is_some() { 0 } else { prefill_tokens };
        let prefilled = load(
            prefill_tokens,
            self.prompt_tokens.saturating_sub(prefill_tokens),
        );
        let own = Load {
            kept_tokens: self.ticket.kept_tokens,
            ..load(own_tokens, matched_tokens)
        };
        let encoded = Load {
            requests: 1,
            sent: 1,
            ..Load::default()
        };
        [
            Some((self.endpoint, own)),
            prefill.map(|it| (it, prefilled)),
            encode.map(|it| (it, encoded)),
        ]
    }
}
