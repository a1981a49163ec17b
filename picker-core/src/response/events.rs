//! Server-sent events: the data of each event, whatever its lines end with.
//!
//! Lines end with `\n`, `\r\n` or `\r`. Comments and fields other than `data` are passed over. An
//! event ends at an empty line; at the end of the body one that is complete counts without it.

use memchr::memchr2;

use super::document::Document;
use super::facts::Facts;
use super::renaming::Renaming;
use super::template::Template;
use crate::json::short::Short;

/// Where a stream of events stands between its chunks.
#[derive(Default)]
pub(super) struct Events {
    line: Line,
    /// The last byte was `\r`: a `\n` belongs to it.
    after_return: bool,
    data: Data,
    mark: Short<MARK_BYTES_MAX>,
    template: Template,
}

/// What the line is, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Line {
    /// The first line, so many bytes into a byte order mark.
    #[default]
    Stream,
    InMark(usize),
    /// So many bytes of `data:`.
    Name(usize),
    /// After the colon, where one blank is no data.
    Blank,
    Data,
    Ignored,
}

/// What the data of an event is, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Data {
    #[default]
    None,
    Json,
    /// The end mark, or something else that is no object.
    Mark,
}

impl Events {
    pub(super) fn push(
        &mut self,
        chunk: &[u8],
        document: &mut Document,
        facts: &mut Facts,
        mut renaming: Option<&mut Renaming<'_>>,
    ) {
        let begins = self.is_between();
        if begins && let Some(text) = self.template.text_of(chunk) {
            facts.events = facts.events.saturating_add(1);
            facts.chunks = facts.chunks.saturating_add(self.template.chunks());
            if let Some(renaming) = renaming {
                self.template.rename(text, renaming);
            }
            return;
        }
        let (events, chunks) = (facts.events, facts.chunks);
        self.read(chunk, document, facts, renaming.as_deref_mut());
        if begins && self.is_between() && facts.events == events + 1 {
            let chunks = facts.chunks - chunks;
            self.template.learn(chunk, chunks, renaming.as_deref());
        }
    }

    /// Whether `chunk` would not be read, for it says nothing new.
    #[cfg(test)]
    pub(super) fn passes_over(&self, chunk: &[u8]) -> bool {
        self.is_between() && self.template.text_of(chunk).is_some()
    }

    /// Whether an event has ended and nothing of the next has come.
    fn is_between(&self) -> bool {
        self.line == Line::Name(0) && self.data == Data::None && !self.after_return
    }

    fn read(
        &mut self,
        mut chunk: &[u8],
        document: &mut Document,
        facts: &mut Facts,
        mut renaming: Option<&mut Renaming<'_>>,
    ) {
        while let Some(&byte) = chunk.first() {
            if self.after_return && byte == b'\n' {
                chunk = chunk.get(1..).unwrap_or_default();
                self.after_return = false;
                continue;
            }
            self.after_return = false;
            let end = memchr2(b'\n', b'\r', chunk).unwrap_or(chunk.len());
            let (line, rest) = chunk.split_at_checked(end).unwrap_or_default();
            if let Some(renaming) = &mut renaming {
                renaming.behind = rest.len();
            }
            self.text(line, document, facts, renaming.as_deref_mut());
            let Some((&end, rest)) = rest.split_first() else {
                return;
            };
            self.end_line(document, facts);
            self.after_return = end == b'\r';
            chunk = rest;
        }
    }

    /// Takes the last event, which may lack its empty line, and says whether it was cut.
    pub(super) fn finish(&mut self, document: &mut Document, facts: &mut Facts) -> bool {
        let is_cut = self.data == Data::Json && !document.is_complete();
        if !is_cut {
            self.end_event(document, facts);
        }
        is_cut
    }

    /// Takes a piece of a line.
    fn text(
        &mut self,
        mut text: &[u8],
        document: &mut Document,
        facts: &mut Facts,
        renaming: Option<&mut Renaming<'_>>,
    ) {
        while let Some((&byte, rest)) = text.split_first() {
            self.line = match self.line {
                Line::Stream if BYTE_ORDER_MARK.first() == Some(&byte) => Line::InMark(1),
                Line::Stream => {
                    self.line = Line::Name(0);
                    continue;
                }
                Line::InMark(at) if BYTE_ORDER_MARK.get(at) != Some(&byte) => Line::Ignored,
                Line::InMark(at) if at + 1 == BYTE_ORDER_MARK.len() => Line::Name(0),
                Line::InMark(at) => Line::InMark(at + 1),
                Line::Name(at) if DATA.get(at) != Some(&byte) => Line::Ignored,
                Line::Name(at) if at + 1 == DATA.len() => Line::Blank,
                Line::Name(at) => Line::Name(at + 1),
                Line::Blank if byte == b' ' => Line::Data,
                Line::Blank | Line::Data => {
                    self.line = Line::Data;
                    return self.data(text, document, facts, renaming);
                }
                Line::Ignored => return,
            };
            text = rest;
        }
    }

    fn data(
        &mut self,
        mut data: &[u8],
        document: &mut Document,
        facts: &mut Facts,
        renaming: Option<&mut Renaming<'_>>,
    ) {
        if self.data == Data::None {
            let begin = data.iter().position(|byte| !matches!(byte, b' ' | b'\t'));
            let Some(begin) = begin else {
                return;
            };
            data = data.get(begin..).unwrap_or_default();
            self.data = if data.first() == Some(&b'[') {
                Data::Mark
            } else {
                Data::Json
            };
        }
        if self.data == Data::Json {
            document.push(data, facts, renaming);
        } else {
            self.mark.push(data);
        }
    }

    fn end_line(&mut self, document: &mut Document, facts: &mut Facts) {
        match self.line {
            Line::Stream | Line::Name(0) => self.end_event(document, facts),
            // The lines of one data are joined by line ends.
            Line::Data if self.data == Data::Json => document.push(b"\n", facts, None),
            _ => {}
        }
        self.line = Line::Name(0);
    }

    fn end_event(&mut self, document: &mut Document, facts: &mut Facts) {
        match self.data {
            Data::None => return,
            Data::Json => {
                facts.events = facts.events.saturating_add(1);
                document.end(facts);
            }
            Data::Mark => {
                if self.mark.as_bytes().trim_ascii() == DONE {
                    facts.ended = true;
                } else {
                    facts.events = facts.events.saturating_add(1);
                }
                self.mark.clear();
            }
        }
        self.data = Data::None;
    }
}

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
const DATA: &[u8] = b"data:";

/// The data of the event that ends a stream of the `OpenAI` API.
const DONE: &[u8] = b"[DONE]";

/// Bytes of data that may be the end mark, with a blank or two around it.
const MARK_BYTES_MAX: usize = 8;
