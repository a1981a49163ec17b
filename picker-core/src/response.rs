//! Reads the body of a response while it streams by.
//!
//! One pass over chunks that may be cut anywhere, without a tree: [`events`] finds the data of
//! server-sent events, [`document`] follows one JSON object with the tables of [`fields`],
//! [`facts`] keeps what was found, and [`template`] passes over events that say nothing new. Memory
//! is a constant for each response. [`renaming`] copies a chunk with another name of the model.
//!
//! Only members at their place in the document count: a `"usage"` in generated text, in the
//! arguments of a tool call or in a nested object of another API is none. What cannot be read is
//! passed over; a response never fails for it.
//!
//! # Usage
//!
//! The last count of each kind wins, for servers repeat running totals; `null` is no count.
//! The Anthropic API splits the prompt into `input_tokens` and two counts of cached ones, and
//! their sum is the prompt. Its first event is ambiguous: `vLLM` states the whole prompt as
//! `input_tokens` there. So there the sum is taken only where the cached tokens alone are more
//! than `input_tokens`.

mod document;
mod events;
mod facts;
mod fields;
mod renaming;
mod template;

use alloc::string::String;
use alloc::vec::Vec;

use self::document::Document;
use self::events::Events;
use self::facts::Facts;
pub use self::renaming::PublicName;
use self::renaming::Renaming;

/// Reads one response body.
///
/// Call [`push`](Self::push) for each chunk and [`finish`](Self::finish) after the last, or
/// whenever the response was cut.
pub struct ResponseReader {
    kind: ResponseKind,
    events: Events,
    document: Document,
    facts: Facts,
}

/// How a response body is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponseKind {
    /// One JSON document.
    Json,
    /// Server-sent events with a JSON object in each.
    EventStream,
    /// Something with a content coding, which is not decoded.
    Coded,
    /// Something else that is not read.
    Other,
}

/// What a response said about itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResponseSummary {
    /// The first model named: an adapter, or the first of the names that the server has.
    pub model: Option<String>,
    /// Events with data, without the end mark; 0 for a body that is no stream.
    pub events: u64,
    /// Events that carry output; an event may carry several tokens.
    pub chunks: u64,
    /// Why the output ended, as the server says it (`stop`, `length`, `end_turn`, `completed`);
    /// of several choices the last.
    pub finish: Option<String>,
    /// Tokens, as far as the server counted them.
    pub usage: Usage,
    /// The first error in the body, also of a stream that began well.
    pub error: Option<ResponseError>,
    /// Whether the body ended as its format says, rather than being cut.
    ///
    /// A stream ends with its end mark, its last event or at least a reason to finish. A body
    /// that is not read counts as ended.
    pub ended: bool,
}

/// Tokens of one request; `None` where the server did not say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Tokens of the whole prompt, cached ones included.
    pub prompt: Option<u64>,
    /// Tokens of the prompt that the server found in its cache.
    pub cached: Option<u64>,
    /// Tokens generated.
    pub output: Option<u64>,
}

/// An error in a response body, without its message, which may quote the prompt.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResponseError {
    /// The status that the body gives.
    pub code: Option<u64>,
    /// The type that the body gives; `None` also when it does not look like the name of a type.
    pub kind: Option<String>,
}

impl ResponseKind {
    /// The kind of a body with these headers; a content coding other than `identity` is not read.
    pub fn of_headers(content_type: Option<&str>, content_encoding: Option<&str>) -> Self {
        let is_plain = content_encoding.is_none_or(|it| it.trim().eq_ignore_ascii_case("identity"));
        let media_type = content_type.and_then(|it| it.split(';').next());
        match media_type.map(str::trim) {
            _ if !is_plain => Self::Coded,
            Some(it) if it.eq_ignore_ascii_case("application/json") => Self::Json,
            Some(it) if it.eq_ignore_ascii_case("text/event-stream") => Self::EventStream,
            _ => Self::Other,
        }
    }
}

impl ResponseReader {
    /// A reader for a body of this kind.
    pub fn new(kind: ResponseKind) -> Self {
        Self {
            kind,
            events: Events::default(),
            document: Document::default(),
            facts: Facts::default(),
        }
    }

    /// Reads the next chunk, of any length.
    pub fn push(&mut self, chunk: &[u8]) {
        self.read(chunk, None);
    }

    /// Reads the next chunk and copies it to `out` with `name` where it names the model; whether
    /// that changed anything, and else `out` is of no use.
    ///
    /// `name` has to be the same for all chunks. A copy may be empty, for the rest of a name that
    /// began in an earlier chunk is left out.
    pub fn push_renaming(&mut self, chunk: &[u8], name: &PublicName, out: &mut Vec<u8>) -> bool {
        let mut renaming = Renaming::new(chunk, name, out);
        self.read(chunk, Some(&mut renaming));
        renaming.finish()
    }

    /// Whether bodies of this kind are read at all.
    pub fn is_wanted(&self) -> bool {
        matches!(self.kind, ResponseKind::Json | ResponseKind::EventStream)
    }

    /// Whether output has come: tokens in a stream, or the beginning of a document.
    pub fn has_output(&self) -> bool {
        self.kind == ResponseKind::Json || self.chunks() > 0
    }

    /// Events with output so far: when this grows, tokens have arrived. Comments and the events
    /// around the output do not count. Always 0 for a body that is no stream.
    pub fn chunks(&self) -> u64 {
        self.facts.chunks
    }

    /// What the body said, complete or not.
    pub fn finish(mut self) -> ResponseSummary {
        let ended = match self.kind {
            ResponseKind::Json => {
                let ended = !self.document.is_cut();
                self.document.end(&mut self.facts);
                self.facts.chunks = 0;
                ended
            }
            ResponseKind::EventStream => {
                let is_cut = self.events.finish(&mut self.document, &mut self.facts);
                self.facts.ended || self.facts.finish.is_some() && !is_cut
            }
            ResponseKind::Coded | ResponseKind::Other => true,
        };
        ResponseSummary {
            model: self.facts.model.take(),
            events: self.facts.events,
            chunks: self.facts.chunks,
            finish: self.facts.finish.take(),
            usage: self.facts.usage,
            error: self.facts.error.take(),
            ended,
        }
    }

    fn read(&mut self, chunk: &[u8], renaming: Option<&mut Renaming<'_>>) {
        let (document, facts) = (&mut self.document, &mut self.facts);
        match self.kind {
            ResponseKind::Json => document.push(chunk, facts, renaming),
            ResponseKind::EventStream => self.events.push(chunk, document, facts, renaming),
            ResponseKind::Coded | ResponseKind::Other => {}
        }
    }
}

#[cfg(test)]
mod tests;
