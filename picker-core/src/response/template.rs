//! Events that are like the one before in all but their text.
//!
//! Nearly all events of a stream differ in one string, the text that was generated, which nobody
//! reads here. An event of the form of the last one is known without reading it: what else it
//! says was said before, and saying it again changes nothing but the counts of events.

use alloc::vec::Vec;

use memchr::memmem::rfind;

use super::renaming::Renaming;

/// What comes before and after the text of an event.
#[derive(Default)]
pub(super) struct Template {
    before: Vec<u8>,
    after: Vec<u8>,
    /// The same with another name of the model; `None` when that changes nothing.
    renamed: Option<[Vec<u8>; 2]>,
    /// How many chunks of output such an event counts for.
    chunks: u64,
}

impl Template {
    /// The text of `chunk`, when it is one event of this form.
    pub(super) fn text_of<'a>(&self, chunk: &'a [u8]) -> Option<&'a [u8]> {
        if self.before.is_empty() {
            return None;
        }
        let text = chunk.strip_prefix(self.before.as_slice());
        let text = text?.strip_suffix(self.after.as_slice())?;
        (text_length(text) == text.len()).then_some(text)
    }

    /// How many chunks of output an event of this form counts for.
    pub(super) fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Copies an event of this form with this text.
    pub(super) fn rename(&self, text: &[u8], renaming: &mut Renaming<'_>) {
        if let Some([before, after]) = &self.renamed {
            renaming.replace([before, text, after]);
        }
    }

    /// Takes the form of `chunk`, one event that counted for so many chunks of output, if it has a
    /// text.
    pub(super) fn learn(&mut self, chunk: &[u8], chunks: u64, renaming: Option<&Renaming<'_>>) {
        self.before.clear();
        self.after.clear();
        self.chunks = chunks;
        let text = |key: &[u8]| {
            let begin = rfind(chunk, key)? + key.len();
            let rest = chunk.get(begin..)?;
            let length = text_length(rest);
            (rest.get(length) == Some(&b'"')).then_some((begin, begin + length))
        };
        let last = TEXT_KEYS.iter().filter_map(|key| text(key)).max();
        let last = last.filter(|_| chunk.len() <= EVENT_BYTES_MAX);
        let renaming = renaming.filter(|it| it.has_changed());
        self.renamed = renaming
            .zip(last)
            .and_then(|(it, (begin, end))| it.around(begin, end));
        if renaming.is_some() && self.renamed.is_none() {
            return;
        }
        if let Some((begin, end)) = last {
            self.before.extend(chunk.iter().take(begin));
            self.after.extend(chunk.iter().skip(end));
        }
    }
}

/// How much of `bytes` is the inside of a string, as far as its escapes are of two characters.
fn text_length(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    loop {
        let plain = rest.iter().position(|byte| !is_plain(byte));
        rest = plain.and_then(|at| rest.get(at..)).unwrap_or_default();
        match rest {
            [b'\\', escaped, after @ ..] if b"\"\\/bfnrt".contains(escaped) => rest = after,
            _ => return bytes.len() - rest.len(),
        }
    }
}

/// Whether a byte inside a string neither ends it nor stands for another.
fn is_plain(byte: &u8) -> bool {
    *byte >= b' ' && *byte != b'"' && *byte != b'\\'
}

/// Where a text begins. No member of these names is read anywhere in a response.
const TEXT_KEYS: [&[u8]; 8] = [
    br#""arguments":""#,
    br#""content":""#,
    br#""content": ""#,
    br#""partial_json":""#,
    br#""reasoning_content":""#,
    br#""text":""#,
    br#""text": ""#,
    br#""thinking":""#,
];

/// Events longer than this have no form: what is kept for a stream is to be small, and what is
/// compared cheap.
const EVENT_BYTES_MAX: usize = 1024;
