//! What one step of an engine did.

use super::RequestId;

/// Everything that happened in one step, in the order in which it happened.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Requests that were given a place.
    pub admitted: Vec<Admission>,
    /// Requests that lost their place and their blocks.
    pub preempted: Vec<RequestId>,
    /// Tokens computed for each request.
    pub scheduled: Vec<(RequestId, usize)>,
    /// Requests that got a token, in the order of `scheduled`.
    pub sampled: Vec<Sample>,
    /// Hashes stored and removed, when the engine records them.
    pub events: Vec<Event>,
    /// What the step costs.
    pub work: Work,
    /// Running requests after scheduling, the ones that finish in this step included.
    pub running: usize,
    /// Waiting requests after scheduling.
    pub waiting: usize,
    /// Free blocks after scheduling, before finished requests give theirs back.
    pub free_blocks: usize,
}

/// A request that was given a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Which one.
    pub id: RequestId,
    /// How many of its leading tokens were found in the cache.
    pub cached_tokens: usize,
    /// Whether it had a place before and lost it.
    pub resumed: bool,
}

/// A token that a request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Which request.
    pub id: RequestId,
    /// The token.
    pub token: u32,
    /// Whether it was the last one; the request is gone from the engine then.
    pub finished: bool,
}

/// A change of what the cache holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Blocks got their hashes, one after the other from `parent` on.
    Stored {
        /// The hashes, in the order of the prompt.
        hashes: Vec<u64>,
        /// The hash before the first; `None` at the start of a prompt.
        parent: Option<u64>,
        /// How many tokens they cover.
        tokens: usize,
    },
    /// A block lost its hash; another block may still carry it.
    Removed(u64),
}

/// The amounts that the duration of a step depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Requests in the step.
    pub sequences: usize,
    /// Tokens of all requests.
    pub tokens: usize,
    /// Tokens of requests that were not just decoding.
    pub prefill_tokens: usize,
    /// For each prefill chunk of m tokens behind c others, m·c + m²/2, added up.
    pub prefill_pairs: f64,
    /// Tokens that the decoding requests look back on, added up.
    pub decode_context: usize,
    /// LoRA adapters that were not in memory.
    pub adapters_loaded: usize,
    /// Blocks in use, each counted once however many requests share it.
    pub blocks: usize,
}

impl Step {
    /// Makes the step empty and keeps its buffers.
    pub(super) fn clear(&mut self) {
        self.admitted.clear();
        self.preempted.clear();
        self.scheduled.clear();
        self.sampled.clear();
        self.events.clear();
        self.work = Work::default();
    }
}

impl Work {
    /// Adds a request that computes `tokens` behind `computed` others.
    pub(super) fn add(&mut self, tokens: usize, computed: usize, is_decode: bool) {
        self.sequences += 1;
        self.tokens += tokens;
        if is_decode {
            self.decode_context += computed + tokens;
        } else {
            let (chunk, before) = (tokens as f64, computed as f64);
            self.prefill_tokens += tokens;
            self.prefill_pairs += chunk * before + chunk * chunk / 2.0;
        }
    }
}
