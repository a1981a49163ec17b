//! Little-endian records in byte strings, the form in which state crosses virtual machines.

use alloc::vec::Vec;

/// Appends values to a byte string.
pub(crate) struct Writer<'a>(pub(crate) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Writes an optional number; NaN stands for `None`, and no gauge is ever NaN.
    pub(crate) fn gauge(&mut self, value: Option<f64>) {
        self.u64(value.unwrap_or(f64::NAN).to_bits());
    }

    /// Writes an optional count; the largest number stands for `None`.
    pub(crate) fn count(&mut self, value: Option<u64>) {
        self.u64(value.unwrap_or(u64::MAX));
    }

    /// Writes a flag that may be unknown.
    pub(crate) fn flag(&mut self, value: Option<bool>) {
        self.u8(match value {
            None => 2,
            Some(value) => u8::from(value),
        });
    }

    /// Writes a text of at most 65,535 bytes; a longer one is cut at a character.
    pub(crate) fn text(&mut self, text: &str) {
        let mut length = text.len().min(usize::from(u16::MAX));
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        self.u16(length as u16);
        self.0.extend(text.bytes().take(length));
    }
}

/// Takes values off the front of a byte string; `None` once it is too short.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn gauge(&mut self) -> Option<Option<f64>> {
        let value = f64::from_bits(self.u64()?);
        Some((!value.is_nan()).then_some(value))
    }

    pub(crate) fn count(&mut self) -> Option<Option<u64>> {
        let value = self.u64()?;
        Some((value != u64::MAX).then_some(value))
    }

    pub(crate) fn flag(&mut self) -> Option<Option<bool>> {
        match self.u8()? {
            0 => Some(Some(false)),
            1 => Some(Some(true)),
            2 => Some(None),
            _ => None,
        }
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = usize::from(self.u16()?);
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        core::str::from_utf8(text).ok()
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
}
