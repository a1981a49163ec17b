//! JSON string escapes, one byte at a time.
//!
//! A lone half of a surrogate pair becomes U+FFFD: engines differ in what they make of it, but
//! the same text has to hash the same each time.

/// Where a string stands between its plain runs.
#[derive(Default)]
pub(super) struct Unescape {
    step: Step,
    /// The first half of a surrogate pair that waits for its second; 0 when none does.
    high: u16,
}

/// The byte cannot stand in an escape.
pub(super) struct BadEscape;

#[derive(Default)]
enum Step {
    #[default]
    Plain,
    Backslash,
    Hex {
        digits: u8,
        unit: u16,
    },
}

impl Unescape {
    /// Begins an escape: a backslash was read.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.step = Step::Backslash;
    }

    /// Takes one byte after the backslash and hands `out` the character once it is whole.
    #[inline]
    pub(super) fn take(&mut self, byte: u8, out: &mut impl FnMut(&[u8])) -> Result<(), BadEscape> {
        match self.step {
            Step::Plain => return Err(BadEscape),
            Step::Backslash if byte == b'u' => self.step = Step::Hex { digits: 0, unit: 0 },
            Step::Backslash => {
                let character = simple(byte).ok_or(BadEscape)?;
                self.step = Step::Plain;
                self.settle(out);
                out(&[character]);
            }
            Step::Hex { digits, unit } => {
                let digit = (byte as char).to_digit(16).ok_or(BadEscape)?;
                let unit = unit << 4 | digit as u16;
                if digits < 3 {
                    self.step = Step::Hex {
                        digits: digits + 1,
                        unit,
                    };
                } else {
                    self.step = Step::Plain;
                    self.unit(unit, out);
                }
            }
        }
        Ok(())
    }

    /// Says that no second half of a pair follows: plain text or the end of the string does.
    #[inline]
    pub(super) fn settle(&mut self, out: &mut impl FnMut(&[u8])) {
        if self.high != 0 {
            self.high = 0;
            put(char::REPLACEMENT_CHARACTER, out);
        }
    }

    /// Whether an escape is under way.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.step, Step::Plain)
    }

    fn unit(&mut self, unit: u16, out: &mut impl FnMut(&[u8])) {
        if let (0xDC00..=0xDFFF, 0xD800..) = (unit, self.high) {
            let pair = [self.high, unit];
            self.high = 0;
            for character in char::decode_utf16(pair) {
                put(character.unwrap_or(char::REPLACEMENT_CHARACTER), out);
            }
            return;
        }
        self.settle(out);
        match unit {
            0xD800..=0xDBFF => self.high = unit,
            _ => put(
                char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER),
                out,
            ),
        }
    }
}

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

fn put(character: char, out: &mut impl FnMut(&[u8])) {
    out(character.encode_utf8(&mut [0; 4]).as_bytes());
}
