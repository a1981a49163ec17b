//! The line of a system text that is no part of the prompt.

use core::mem;

/// Leaves out a text that begins like a billing header, which servers drop before they render.
///
/// The line holds a hash of each request; kept, it would make all prompts of a client different.
#[derive(Clone, Copy, Default)]
pub(super) enum Billing {
    /// So many bytes are those of the header, and not handed on yet.
    Undecided(usize),
    #[default]
    Passing,
    Dropping,
}

impl Billing {
    /// Says that a text begins.
    pub(super) fn begin(&mut self) {
        *self = Self::Undecided(0);
    }

    /// Takes a piece of the text, and gives what to keep.
    pub(super) fn text<'a>(&mut self, text: &'a [u8]) -> [&'a [u8]; 2] {
        let Self::Undecided(matched) = *self else {
            let is_kept = matches!(self, Self::Passing);
            return [b"", if is_kept { text } else { b"" }];
        };
        let wanted = HEADER.get(matched..).unwrap_or_default();
        let common = wanted.iter().zip(text).take_while(|(it, byte)| it == byte);
        let common = common.count();
        if common == wanted.len() {
            *self = Self::Dropping;
        } else if common == text.len() {
            *self = Self::Undecided(matched + common);
        } else {
            *self = Self::Passing;
            return [HEADER.get(..matched).unwrap_or_default(), text];
        }
        [b"", b""]
    }

    /// Ends the text, and gives what was held back.
    pub(super) fn end(&mut self) -> &'static [u8] {
        match mem::take(self) {
            Self::Undecided(matched) => HEADER.get(..matched).unwrap_or_default(),
            Self::Passing | Self::Dropping => b"",
        }
    }
}

/// How the line begins.
const HEADER: &[u8] = b"x-anthropic-billing-header";
