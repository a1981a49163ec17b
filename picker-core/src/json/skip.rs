//! Stepping over JSON that nobody looks at.

use super::search::split_at_special;

/// A list or object that is stepped over: brackets are counted, the grammar is not checked.
#[derive(Default)]
pub(super) struct Skip {
    /// Brackets open inside of it.
    inner: u32,
    in_string: bool,
    escaped: bool,
}

impl Skip {
    /// Takes bytes up to the bracket that closes it; `true` when that was reached.
    pub(super) fn read(&mut self, input: &mut &[u8]) -> bool {
        loop {
            let rest = if self.in_string {
                split_at_special(input).1
            } else {
                let mark = |byte: &u8| matches!(byte, b'"' | b'[' | b']' | b'{' | b'}');
                let at = input.iter().position(mark).unwrap_or(input.len());
                input.get(at..).unwrap_or_default()
            };
            let rest = if self.escaped { *input } else { rest };
            let Some((&byte, rest)) = rest.split_first() else {
                *input = rest;
                return false;
            };
            *input = rest;
            if self.take(byte) {
                return true;
            }
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_string => self.escaped = true,
            b'"' => self.in_string = !self.in_string,
            b'[' | b'{' => self.inner = self.inner.saturating_add(1),
            _ if 0 < self.inner => self.inner -= 1,
            _ => return true,
        }
        false
    }
}
