//! What was found in a response so far.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::mem;

use super::fields::Count;
use super::{ResponseError, Usage};

/// What was found in all documents of a response.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) model: Option<String>,
    pub(super) events: u64,
    pub(super) chunks: u64,
    pub(super) finish: Option<String>,
    pub(super) usage: Usage,
    pub(super) error: Option<ResponseError>,
    /// The end mark or the last event has come.
    pub(super) ended: bool,
}

/// The counts of one usage object.
#[derive(Default)]
pub(super) struct Counts {
    cache_creation: Option<u64>,
    cache_read: Option<u64>,
    cached: Option<u64>,
    input: Option<u64>,
    output: Option<u64>,
    prompt: Option<u64>,
}

impl Facts {
    /// Sets the reason to finish without an allocation when it is the same again.
    pub(super) fn set_finish(&mut self, reason: &[u8]) {
        let reason = name(reason);
        if reason.is_some() && self.finish.as_deref() != reason {
            self.finish = reason.map(str::to_owned);
        }
    }

    /// Takes the counts of a usage object that has ended.
    pub(super) fn merge(&mut self, counts: &mut Counts, first: bool) {
        let counts = mem::take(counts);
        let usage = &mut self.usage;
        usage.prompt = counts.prompt(first).or(usage.prompt);
        usage.cached = counts.cached.or(counts.cache_read).or(usage.cached);
        usage.output = counts.output.or(usage.output);
    }
}

impl Counts {
    pub(super) fn set(&mut self, count: Count, value: u64) {
        let slot = match count {
            Count::Cached => &mut self.cached,
            Count::CacheCreation => &mut self.cache_creation,
            Count::CacheRead => &mut self.cache_read,
            Count::Input => &mut self.input,
            Count::Output => &mut self.output,
            Count::Prompt => &mut self.prompt,
        };
        *slot = Some(value);
    }

    /// The whole prompt; the module's documentation has the rule.
    fn prompt(&self, first: bool) -> Option<u64> {
        let beside = self
            .cache_creation
            .unwrap_or(0)
            .saturating_add(self.cache_read.unwrap_or(0));
        let whole = self.input.map(|input| {
            if first && beside <= input {
                input
            } else {
                input.saturating_add(beside)
            }
        });
        self.prompt.or(whole)
    }
}

/// A text of the server that is kept: plain like a name, so that no generated text passes for one.
pub(super) fn name(text: &[u8]) -> Option<&str> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b" _-.".contains(byte);
    let is_name = !text.is_empty() && text.iter().all(is_plain);
    is_name.then(|| str::from_utf8(text).ok())?
}
