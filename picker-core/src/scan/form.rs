//! The fields of a form with a file, while it arrives.
//!
//! `multipart/form-data` is parts between delimiter lines. The first line of the body is one and so
//! names the boundary. Of the parts only `model` and `stream` are kept; a file is searched for the
//! next delimiter and otherwise not touched. Memory is a constant.

use alloc::vec::Vec;
use core::mem;

use memchr::memchr;

use super::model_place::{ModelPlace, Syntax};
use super::names::{MODEL_BYTES_MAX, Name, NameFault};
use crate::json::short::Short;
use crate::request::{Request, RequestFault};
use crate::shape::Shape;

/// Reads one form.
pub(super) struct Form {
    place: Place,
    /// `\r\n--` and the boundary, once the first line has come.
    delimiter: Vec<u8>,
    /// Bytes of the delimiter that the last bytes of the part equal.
    matched: usize,
    /// How many of these are the line end of the part's head, and not of the part.
    borrowed: usize,
    line: Vec<u8>,
    /// Where that line begins, as long as it is the first.
    line_begins: u64,
    field: Field,
    model: Name,
    model_place: ModelPlace,
    stream: Short<8>,
    bytes: u64,
    fault: Option<RequestFault>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    FirstLine,
    /// In a line of a part's head.
    Head,
    Part,
    /// In the line of a delimiter, after it.
    AfterDelimiter,
    /// After the last delimiter.
    End,
}

/// What a part is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Ignored,
    Model,
    Stream,
}

impl Form {
    pub(super) fn new() -> Self {
        Self {
            place: Place::FirstLine,
            delimiter: b"\r\n".to_vec(),
            matched: 0,
            borrowed: 0,
            line: Vec::new(),
            line_begins: 0,
            field: Field::Ignored,
            model: Name::default(),
            model_place: ModelPlace::new(Syntax::Form),
            stream: Short::default(),
            bytes: 0,
            fault: None,
        }
    }

    pub(super) fn push(&mut self, mut chunk: &[u8]) {
        let start = self.bytes;
        let len = chunk.len() as u64;
        self.bytes = start.saturating_add(len);
        while !chunk.is_empty() && self.fault.is_none() && self.place != Place::End {
            if self.place == Place::Part {
                self.part(&mut chunk);
                continue;
            }
            let end = memchr(b'\n', chunk);
            let taken = end.map_or(chunk.len(), |end| end + 1);
            let (line, rest) = chunk.split_at_checked(taken).unwrap_or_default();
            let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
            self.line.extend(line.iter().take(room));
            chunk = rest;
            if end.is_some() {
                let line = mem::take(&mut self.line);
                self.line_ends(line.trim_ascii_end(), self.offset(chunk));
                self.line = line;
                self.line.clear();
            }
            if self.fault.is_some() {
                let read = len - chunk.len() as u64;
                self.fault = Some(RequestFault::NotAForm {
                    offset: start.saturating_add(read),
                });
            }
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn model(&self) -> Option<&str> {
        self.model.text()
    }

    pub(super) fn model_place(&self) -> Option<&ModelPlace> {
        let is_read = self.fault.is_none() && self.is_complete();
        is_read.then_some(&self.model_place)
    }

    pub(super) fn rename_model(&mut self, name: &str) {
        self.model = Name::of(name, MODEL_BYTES_MAX);
    }

    /// Where what is left of the chunk begins.
    fn offset(&self, chunk: &[u8]) -> u64 {
        self.bytes.saturating_sub(chunk.len() as u64)
    }

    fn is_complete(&self) -> bool {
        // The last delimiter needs no line end.
        let is_last = self.place == Place::AfterDelimiter && self.line.starts_with(b"--");
        is_last || self.place == Place::End
    }

    pub(super) fn finish(mut self) -> Request {
        let mut faults = Vec::new();
        if self.fault.is_none() && !self.is_complete() {
            self.fault = Some(RequestFault::Truncated { offset: self.bytes });
        }
        faults.extend(self.fault);
        let model = self.model.finish().unwrap_or_else(|fault| {
            faults.extend(match fault {
                NameFault::NotText => None,
                NameFault::Unusable => Some(RequestFault::ModelUnusable),
            });
            None
        });
        Request {
            shape: Some(Shape::Transcriptions),
            model,
            stream: TRUE.contains(&self.stream.as_bytes()),
            faults,
            ..Request::default()
        }
    }

    /// Takes a line without its end; `end` is where the next one begins. Where a fault is, the caller
    /// says.
    fn line_ends(&mut self, line: &[u8], end: u64) {
        match self.place {
            Place::FirstLine if line.is_empty() => self.line_begins = end,
            Place::FirstLine => {
                let boundary = line.strip_prefix(b"--").unwrap_or_default();
                if boundary.is_empty() || BOUNDARY_BYTES_MAX < boundary.len() {
                    self.fault = Some(RequestFault::NotAForm { offset: 0 });
                }
                self.delimiter.extend_from_slice(line);
                self.model_place.begin(self.line_begins);
                self.place = Place::Head;
            }
            Place::Head if line.is_empty() => self.begin_part(),
            Place::Head => {
                if let Some(name) = field_name(line) {
                    self.field = match name {
                        b"model" => Field::Model,
                        b"stream" => Field::Stream,
                        _ => Field::Ignored,
                    };
                }
            }
            Place::AfterDelimiter if line.starts_with(b"--") => self.place = Place::End,
            Place::AfterDelimiter if line.is_empty() => {
                self.field = Field::Ignored;
                self.place = Place::Head;
            }
            // Servers differ in whether this is a delimiter, and in what they read after it.
            Place::AfterDelimiter => self.fault = Some(RequestFault::NotAForm { offset: 0 }),
            Place::Part | Place::End => {}
        }
    }

    fn begin_part(&mut self) {
        match self.field {
            Field::Model => {
                self.model = Name::begin();
                self.model_place.found(0);
            }
            Field::Stream => self.stream.clear(),
            Field::Ignored => {}
        }
        // A part may be empty and share its line end with the head.
        self.matched = LINE_END_BYTES;
        self.borrowed = LINE_END_BYTES;
        self.place = Place::Part;
    }

    /// Takes bytes up to the end of the chunk or of the next delimiter.
    ///
    /// Only the first byte of the delimiter is `\r`, so a failed match can begin again only there.
    fn part(&mut self, chunk: &mut &[u8]) {
        while let Some((&byte, rest)) = chunk.split_first() {
            if self.matched == 0 {
                let at = memchr(b'\r', chunk).unwrap_or(chunk.len());
                let (text, rest) = chunk.split_at_checked(at).unwrap_or_default();
                self.keep(text);
                self.matched = rest.len().min(1);
                *chunk = rest.get(1..).unwrap_or_default();
                continue;
            }
            if self.delimiter.get(self.matched) != Some(&byte) {
                let delimiter = mem::take(&mut self.delimiter);
                self.keep(
                    delimiter
                        .get(self.borrowed..self.matched)
                        .unwrap_or_default(),
                );
                self.delimiter = delimiter;
                self.matched = 0;
                self.borrowed = 0;
                continue;
            }
            self.matched += 1;
            *chunk = rest;
            if self.matched == self.delimiter.len() {
                if self.field == Field::Model {
                    self.model.end();
                }
                let line = self.delimiter.len().saturating_sub(LINE_END_BYTES) as u64;
                self.model_place
                    .begin(self.offset(chunk).saturating_sub(line));
                self.place = Place::AfterDelimiter;
                return;
            }
        }
    }

    fn keep(&mut self, text: &[u8]) {
        match self.field {
            Field::Model => self.model.push(text, MODEL_BYTES_MAX),
            Field::Stream => self.stream.push(text),
            Field::Ignored => {}
        }
    }
}

/// The parameter `name` of a `content-disposition` line.
fn field_name(line: &[u8]) -> Option<&[u8]> {
    let colon = memchr(b':', line)?;
    let (header, value) = line.split_at_checked(colon)?;
    if !header.eq_ignore_ascii_case(b"content-disposition") {
        return None;
    }
    let mut rest = value;
    while let Some(semicolon) = memchr(b';', rest) {
        let parameter = rest.get(semicolon + 1..)?.trim_ascii_start();
        let equals = memchr(b'=', parameter)?;
        let (name, value) = parameter.split_at_checked(equals)?;
        let value = value.get(1..)?.trim_ascii_start();
        let (value, later) = parameter_value(value)?;
        if name.trim_ascii_end().eq_ignore_ascii_case(b"name") {
            return Some(value);
        }
        rest = later;
    }
    None
}

/// Splits a value, quoted or not, from what follows it.
fn parameter_value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let end = memchr(b';', text).unwrap_or(text.len());
        let (value, rest) = text.split_at_checked(end)?;
        return Some((value.trim_ascii_end(), rest));
    };
    let mut escaped = false;
    let end = quoted.iter().position(|byte| {
        let is_end = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        is_end
    })?;
    quoted.split_at_checked(end)
}

/// Texts of a field that is a yes.
const TRUE: [&[u8]; 3] = [b"true", b"True", b"1"];

/// Bytes of a line of a part's head that are looked at; a file may have a long name.
pub(super) const LINE_BYTES_MAX: usize = 1024;

/// Bytes of the line end before a delimiter.
const LINE_END_BYTES: usize = 2;

/// Bytes of a boundary: the limit of RFC 2046.
const BOUNDARY_BYTES_MAX: usize = 70;
