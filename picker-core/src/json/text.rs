//! The inside of JSON strings, unescaped.
//!
//! Runs without an escape are handed on as slices of the chunk. From the first escape on, pieces
//! are gathered in a small buffer, for code has an escape every few bytes and handing on each
//! piece costs more than copying it.
//!
//! A lone half of a surrogate pair becomes U+FFFD: engines differ in what they make of it, but
//! the same text has to hash the same each time.

use super::search::split_at_special;
use crate::block::copy;

/// Where a string stands between its chunks.
#[derive(Default)]
pub(super) struct Text {
    escape: Escape,
    /// The first half of a surrogate pair that waits for its second; 0 when none does.
    high: u16,
}

/// The next byte cannot stand in an escape.
pub(super) struct BadEscape;

#[derive(Clone, Copy, Default)]
enum Escape {
    #[default]
    None,
    Backslash,
    Hex {
        digits: u8,
        unit: u16,
    },
}

/// Gathers pieces for `out`.
struct Gather<'a, F> {
    bytes: [u8; GATHER_BYTES],
    filled: usize,
    out: &'a mut F,
}

impl Text {
    /// Hands `out` the text up to the closing quote, in pieces; `true` when that was reached.
    #[inline]
    pub(super) fn read(
        &mut self,
        input: &mut &[u8],
        out: &mut impl FnMut(&[u8]),
    ) -> Result<bool, BadEscape> {
        if self.high == 0 && matches!(self.escape, Escape::None) {
            let (plain, rest) = split_at_special(input);
            if !plain.is_empty() {
                out(plain);
            }
            *input = rest;
            match rest {
                [] => return Ok(false),
                [b'"', rest @ ..] => {
                    *input = rest;
                    return Ok(true);
                }
                _ => {}
            }
        }
        self.read_escaped(input, out)
    }

    fn read_escaped(
        &mut self,
        input: &mut &[u8],
        out: &mut impl FnMut(&[u8]),
    ) -> Result<bool, BadEscape> {
        let mut gather = Gather {
            bytes: [0; GATHER_BYTES],
            filled: 0,
            out,
        };
        let has_ended = loop {
            if !matches!(self.escape, Escape::None) {
                let [byte, rest @ ..] = *input else {
                    break false;
                };
                if let Err(fault) = self.take(*byte, &mut gather) {
                    // What has been handed on by then must not depend on where the chunks end.
                    gather.flush();
                    return Err(fault);
                }
                *input = rest;
                continue;
            }
            let (plain, rest) = split_at_special(input);
            if !plain.is_empty() {
                self.settle(&mut gather);
                gather.put(plain);
            }
            match rest {
                [] => {
                    *input = rest;
                    break false;
                }
                [b'"', rest @ ..] => {
                    self.settle(&mut gather);
                    *input = rest;
                    break true;
                }
                [_, rest @ ..] => {
                    self.escape = Escape::Backslash;
                    *input = rest;
                }
            }
        };
        gather.flush();
        Ok(has_ended)
    }

    /// Takes one byte after a backslash.
    #[inline]
    fn take(
        &mut self,
        byte: u8,
        gather: &mut Gather<'_, impl FnMut(&[u8])>,
    ) -> Result<(), BadEscape> {
        match self.escape {
            Escape::Hex { digits, unit } => {
                let digit = (byte as char).to_digit(16).ok_or(BadEscape)?;
                let unit = unit << 4 | digit as u16;
                if digits < 3 {
                    self.escape = Escape::Hex {
                        digits: digits + 1,
                        unit,
                    };
                } else {
                    self.escape = Escape::None;
                    self.take_unit(unit, gather);
                }
            }
            _ if byte == b'u' => self.escape = Escape::Hex { digits: 0, unit: 0 },
            _ => {
                let character = simple(byte).ok_or(BadEscape)?;
                self.escape = Escape::None;
                self.settle(gather);
                gather.put(&[character]);
            }
        }
        Ok(())
    }

    /// Takes a whole UTF-16 unit.
    fn take_unit(&mut self, unit: u16, gather: &mut Gather<'_, impl FnMut(&[u8])>) {
        if let (0xDC00..=0xDFFF, 0xD800..) = (unit, self.high) {
            let pair = [self.high, unit];
            self.high = 0;
            for character in char::decode_utf16(pair) {
                gather.put_char(character.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            return;
        }
        self.settle(gather);
        match unit {
            0xD800..=0xDBFF => self.high = unit,
            _ => {
                let character = char::from_u32(unit.into());
                gather.put_char(character.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
    }

    /// Says that something else than the second half of a pair follows.
    #[inline]
    fn settle(&mut self, gather: &mut Gather<'_, impl FnMut(&[u8])>) {
        if self.high != 0 {
            self.high = 0;
            gather.put_char(char::REPLACEMENT_CHARACTER);
        }
    }
}

impl<F: FnMut(&[u8])> Gather<'_, F> {
    #[inline]
    fn put(&mut self, piece: &[u8]) {
        if GATHER_BYTES < self.filled + piece.len() {
            self.flush();
        }
        let end = self.filled + piece.len();
        if let Some(room) = self.bytes.get_mut(self.filled..end) {
            copy(room, piece);
            self.filled = end;
        } else {
            (self.out)(piece);
        }
    }

    fn put_char(&mut self, character: char) {
        self.put(character.encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn flush(&mut self) {
        (self.out)(self.bytes.get(..self.filled).unwrap_or_default());
        self.filled = 0;
    }
}

#[inline]
fn simple(byte: u8) -> Option<u8> {
    Some(match byte {
        b'"' | b'\\' | b'/' => byte,
        b'b' => 0x08,
        b'f' => 0x0C,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        _ => return None,
    })
}

/// Bytes gathered before they are handed on: two blocks, so that most of them are hashed here.
const GATHER_BYTES: usize = 512;
