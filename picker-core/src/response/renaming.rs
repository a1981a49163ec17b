//! A chunk that is copied with another name where the model is named.
//!
//! The reader says where in the chunk a value begins and what of it has been read. The new name is
//! written with the first byte of the value and the old one is left out as it comes, so nothing
//! waits for the end of a value, and what is left of it in the next chunk is left out there.

use alloc::string::ToString;
use alloc::vec::Vec;

use serde_json::Value;

/// The name of a model that clients see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicName {
    /// As it is written between quotes.
    escaped: Vec<u8>,
}

impl PublicName {
    /// The name; any text can be one.
    pub fn new(name: &str) -> Self {
        let quoted = Value::from(name).to_string();
        let escaped = quoted.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
        Self {
            escaped: escaped.unwrap_or_default().into(),
        }
    }
}

/// The copy of one chunk.
///
/// Places in the chunk are given by what follows them in the piece that is read, and `behind`.
pub(super) struct Renaming<'a> {
    chunk: &'a [u8],
    name: &'a PublicName,
    out: &'a mut Vec<u8>,
    /// Bytes of the chunk behind the piece that is read.
    pub(super) behind: usize,
    /// How much of the chunk is copied or left out.
    done: usize,
    /// The first place where the copy differs.
    first: Option<usize>,
}

impl<'a> Renaming<'a> {
    /// A copy of `chunk` to `out`, which is emptied.
    pub(super) fn new(chunk: &'a [u8], name: &'a PublicName, out: &'a mut Vec<u8>) -> Self {
        out.clear();
        Self {
            chunk,
            name,
            out,
            behind: 0,
            done: 0,
            first: None,
        }
    }

    /// Writes the name before what is left of the piece, of which there are so many bytes.
    pub(super) fn insert(&mut self, left: usize) {
        self.copy_to(self.place(left));
        self.out.extend_from_slice(&self.name.escaped);
    }

    /// Leaves out what was read while `before` bytes of the piece became `left`.
    pub(super) fn leave_out(&mut self, before: usize, left: usize) {
        self.copy_to(self.place(before));
        self.done = self.place(left);
    }

    /// Writes a copy that was put together already, in place of the whole chunk.
    pub(super) fn replace(&mut self, parts: [&[u8]; 3]) {
        self.first = Some(0);
        self.done = self.chunk.len();
        self.out
            .reserve_exact(parts.iter().map(|it| it.len()).sum());
        for part in parts {
            self.out.extend_from_slice(part);
        }
    }

    /// Whether the copy differs so far.
    pub(super) fn has_changed(&self) -> bool {
        self.first.is_some()
    }

    /// Copies the rest, and says whether the copy differs from the chunk; else it is not written.
    pub(super) fn finish(self) -> bool {
        if self.has_changed() {
            let rest = self.chunk.get(self.done..);
            self.out.extend_from_slice(rest.unwrap_or_default());
        }
        self.has_changed()
    }

    /// What the copy has before and after the part of the chunk from `begin` to `end`, as it will be
    /// when it is finished; `None` when it differs on both sides of that, or inside of it.
    pub(super) fn around(&self, begin: usize, end: usize) -> Option<[Vec<u8>; 2]> {
        let first = self.first?;
        let source = |from: usize, to: usize| self.chunk.get(from..to).unwrap_or_default();
        if self.done <= begin {
            let copied = [self.out.as_slice(), source(self.done, begin)].concat();
            return Some([copied, source(end, self.chunk.len()).into()]);
        }
        let copied = self.out.get(end..).filter(|_| end <= first)?;
        let rest = source(self.done, self.chunk.len());
        Some([source(0, begin).into(), [copied, rest].concat()])
    }

    fn copy_to(&mut self, place: usize) {
        if self.first.is_none() {
            self.first = Some(place);
            // Once for nearly all chunks, for they name one model.
            self.out.reserve(self.chunk.len() + self.name.escaped.len());
        }
        let from = self.chunk.get(self.done..place);
        self.out.extend_from_slice(from.unwrap_or_default());
        self.done = place;
    }

    fn place(&self, left: usize) -> usize {
        self.chunk.len().saturating_sub(self.behind + left)
    }
}

#[cfg(test)]
mod tests;
