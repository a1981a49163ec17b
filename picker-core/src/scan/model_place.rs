//! Where the model stands in a body, and the body with another name there.
//!
//! While a body is read only offsets are noted: where each model's member begins and where the next
//! one does. What lies between is looked at when a name is replaced, for then the body is at hand. So
//! every other byte of it stays: a number keeps its digits and a tool its order of keys, on which
//! the server's cache depends.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use memchr::memchr;

use super::form::LINE_BYTES_MAX;

/// Where the model stands in a body that was read to its end without a fault; or where it can be
/// put, when the body has none.
///
/// Of several the last one counts, as in the engines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelPlace {
    syntax: Syntax,
    /// Where the first member begins; `None` when there is none.
    first: Option<u64>,
    /// Where the last member begins that has begun.
    begun: u64,
    /// Models before the last one, each with what stands between it and the next member.
    void: Vec<Range<u64>>,
    /// The model that counts, up to the next member; up to [`OPEN`] as long as there is none.
    last: Option<Range<u64>>,
    /// The length of the key of these; an API may have two.
    key_len: usize,
    has_more: bool,
}

/// How the members of a body are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Syntax {
    /// `multipart/form-data`; a member is a part, from its delimiter on.
    Form,
    /// JSON; a member goes from the quote before its key.
    Json,
}

/// Why a model cannot be given another name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameFault {
    /// The body is not the one in which the model was found.
    OtherBody,
    /// The body has more models than are remembered, [`MODELS_MAX`].
    TooManyModels,
    /// The name would end the part of the form in which it stands.
    UnusableName,
}

impl ModelPlace {
    pub(super) fn new(syntax: Syntax) -> Self {
        Self {
            syntax,
            first: None,
            begun: 0,
            void: Vec::new(),
            last: None,
            key_len: 0,
            has_more: false,
        }
    }

    /// Says that a member begins, and with it ends the one before.
    pub(super) fn begin(&mut self, offset: u64) {
        self.first.get_or_insert(offset);
        self.begun = offset;
        if let Some(last) = self.last.as_mut().filter(|last| last.end == OPEN) {
            last.end = offset;
        }
    }

    /// Says that the member that has begun is the model, under a key of this length.
    pub(super) fn found(&mut self, key_len: usize) {
        let before = self.last.replace(self.begun..OPEN);
        if self.key_len != key_len {
            // The other member means something else to the server, and stays.
            self.key_len = key_len;
            self.void.clear();
        } else if let Some(before) = before {
            if self.void.len() + 1 < MODELS_MAX {
                self.void.push(before);
            } else {
                self.has_more = true;
            }
        }
    }

    /// Whether the body has no model besides the one that counts.
    pub fn is_only(&self) -> bool {
        self.void.is_empty() && !self.has_more
    }

    /// Calls the model `name` in `body`, and leaves all else as it is; also the body where that fails.
    ///
    /// A model that is missing is put before all other members. Where there are several the last one
    /// gets the name and the others are left out, so that every server reads the same.
    pub fn rename(&self, body: &mut Vec<u8>, name: &str) -> Result<(), RenameFault> {
        if self.has_more {
            return Err(RenameFault::TooManyModels);
        }
        let (at, text) = match self.syntax {
            Syntax::Form => self.in_form(body, name)?,
            Syntax::Json => self.in_json(body, name).ok_or(RenameFault::OtherBody)?,
        };
        let at = indices(body, &at)?;
        let void = self.void.iter().map(|it| indices(body, it));
        let void: Vec<_> = void.collect::<Result<_, _>>()?;
        if void.last().is_some_and(|it| it.end > at.start) {
            return Err(RenameFault::OtherBody);
        }
        // From the end, so that what is left keeps its place.
        body.splice(at, text);
        for range in void.into_iter().rev() {
            body.drain(range);
        }
        Ok(())
    }

    /// What is replaced of an object, and by what.
    fn in_json(&self, body: &[u8], name: &str) -> Option<(Range<u64>, Vec<u8>)> {
        let Some(member) = &self.last else {
            let inside = body.trim_ascii_start().strip_prefix(b"{")?;
            let start = (body.len() - inside.len()) as u64;
            let mut text = b"\"model\":".to_vec();
            push_quoted(&mut text, name);
            text.extend(self.first.map(|_| b','));
            return Some((start..start, text));
        };
        let object = body.trim_ascii_end().strip_suffix(b"}")?;
        let end = member.end.min(object.len() as u64);
        let value = json_value(cut(body, &(member.start..end)).ok()?)?;
        let begins = end - value.len() as u64;
        // What follows belongs to the member only as far as its comma.
        let value = value.trim_ascii_end();
        let value = value.strip_suffix(b",").unwrap_or(value).trim_ascii_end();
        let mut text = Vec::new();
        push_quoted(&mut text, name);
        Some((begins..begins + value.len() as u64, text))
    }

    /// What is replaced of a form, and by what.
    fn in_form(&self, body: &[u8], name: &str) -> Result<(Range<u64>, Vec<u8>), RenameFault> {
        let start = self.first.unwrap_or_default();
        let delimiter = cut(body, &(start..body.len() as u64))?;
        let delimiter = line_of(delimiter).trim_ascii_end();
        let ends_line = name.bytes().any(|byte| matches!(byte, b'\r' | b'\n'));
        let mut windows = name.as_bytes().windows(delimiter.len().max(1));
        if ends_line || windows.any(|window| window == delimiter) {
            return Err(RenameFault::UnusableName);
        }
        let Some(part) = &self.last else {
            let head = b"\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n";
            let text = [delimiter, head, name.as_bytes(), LINE_END].concat();
            return Ok((start..start, text));
        };
        let mut rest = cut(body, part)?;
        loop {
            let line = line_of(rest);
            rest = rest.get(line.len()..).unwrap_or_default();
            let line = line.get(..LINE_BYTES_MAX).unwrap_or(line);
            if line.is_empty() {
                return Err(RenameFault::OtherBody);
            }
            if line.trim_ascii_end().is_empty() {
                break;
            }
        }
        let begins = part.end - rest.len() as u64;
        let mut text = name.as_bytes().to_vec();
        // A part that is empty may share the line end of its head.
        let Some(value) = rest.len().checked_sub(LINE_END.len()) else {
            text.extend_from_slice(LINE_END);
            return Ok((begins..begins, text));
        };
        Ok((begins..begins + value as u64, text))
    }
}

impl fmt::Display for RenameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherBody => "the body is not the one that was read",
            Self::TooManyModels => "the body has too many models",
            Self::UnusableName => "the name would end its part of the form",
        })
    }
}

/// The value of a member, and what follows it.
fn json_value(member: &[u8]) -> Option<&[u8]> {
    let key = member.strip_prefix(b"\"")?;
    // A key of a model has no quote in it, not even when it is escaped.
    let value = key.get(memchr(b'"', key)? + 1..)?.trim_ascii_start();
    Some(value.strip_prefix(b":")?.trim_ascii_start())
}

/// The first line with its end.
fn line_of(text: &[u8]) -> &[u8] {
    memchr(b'\n', text)
        .and_then(|end| text.get(..=end))
        .unwrap_or(text)
}

fn push_quoted(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            0..0x20 => {
                let digit = HEX.get(usize::from(byte & 0xF)).copied();
                out.extend_from_slice(b"\\u00");
                out.extend([b'0' + (byte >> 4), digit.unwrap_or_default()]);
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

fn cut<'a>(body: &'a [u8], range: &Range<u64>) -> Result<&'a [u8], RenameFault> {
    body.get(indices(body, range)?)
        .ok_or(RenameFault::OtherBody)
}

/// The range in `body`, where it has one.
fn indices(body: &[u8], range: &Range<u64>) -> Result<Range<usize>, RenameFault> {
    let index = |offset| usize::try_from(offset).map_err(|_| RenameFault::OtherBody);
    let range = index(range.start)?..index(range.end)?;
    let is_in = range.start <= range.end && range.end <= body.len();
    is_in.then_some(range).ok_or(RenameFault::OtherBody)
}

/// The end of a member after which none has begun.
const OPEN: u64 = u64::MAX;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// What stands between a part and the delimiter after it.
const LINE_END: &[u8] = b"\r\n";

/// Models that one body may have.
///
/// Clients send one. Two come from a member that is added without a look at those there; more is
/// an attempt to be read differently by different servers.
pub const MODELS_MAX: usize = 8;
