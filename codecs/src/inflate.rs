//! `gzip` and `deflate`.

use std::io::{self, Write};

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use crate::{DecodeError, Output};

/// A body of one of the forms of deflate.
pub(crate) enum Inflate {
    Gzip(MultiGzDecoder<Vec<u8>>),
    /// `deflate` before its second byte, which tells the form.
    Unknown(Option<u8>),
    Raw(DeflateDecoder<Vec<u8>>),
    Zlib(ZlibDecoder<Vec<u8>>),
}

impl Inflate {
    pub(crate) fn gzip() -> Self {
        Self::Gzip(MultiGzDecoder::new(Vec::new()))
    }

    pub(crate) fn deflate() -> Self {
        Self::Unknown(None)
    }

    pub(crate) fn push(
        &mut self,
        chunk: &[u8],
        output: &mut Output<'_>,
    ) -> Result<(), DecodeError> {
        let Self::Unknown(first) = self else {
            return self.decode(chunk, output);
        };
        let mut head = Vec::from_iter(*first);
        head.extend(chunk.iter().take(2 - head.len()));
        let rest = chunk
            .get(head.len() - first.iter().count()..)
            .unwrap_or_default();
        let [first, second] = head.as_slice() else {
            *first = head.first().copied();
            return Ok(());
        };
        let is_zlib = first & 0x0F == 8 && u16::from_be_bytes([*first, *second]) % 31 == 0;
        *self = if is_zlib {
            Self::Zlib(ZlibDecoder::new(Vec::new()))
        } else {
            Self::Raw(DeflateDecoder::new(Vec::new()))
        };
        self.decode(&head, output)?;
        self.decode(rest, output)
    }

    pub(crate) fn finish(mut self, output: &mut Output<'_>) -> Result<(), DecodeError> {
        let finished = match &mut self {
            Self::Gzip(decoder) => decoder.try_finish(),
            Self::Unknown(_) => return Err(DecodeError::Corrupt),
            Self::Raw(decoder) => decoder.try_finish(),
            Self::Zlib(decoder) => decoder.try_finish(),
        };
        self.drain(output)?;
        finished.map_err(|_| DecodeError::Corrupt)
    }

    /// Each call of the decoder fills its own buffer at most once or twice, and so ours.
    fn decode(&mut self, mut chunk: &[u8], output: &mut Output<'_>) -> Result<(), DecodeError> {
        while !chunk.is_empty() {
            let taken = self.write(chunk).map_err(|_| DecodeError::Corrupt);
            self.drain(output)?;
            chunk = match taken? {
                0 => return Err(DecodeError::Corrupt),
                taken => chunk.get(taken..).unwrap_or_default(),
            };
        }
        Ok(())
    }

    fn write(&mut self, chunk: &[u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(decoder) => decoder.write(chunk),
            Self::Unknown(_) => Ok(0),
            Self::Raw(decoder) => decoder.write(chunk),
            Self::Zlib(decoder) => decoder.write(chunk),
        }
    }

    fn drain(&mut self, output: &mut Output<'_>) -> Result<(), DecodeError> {
        let decoded = match self {
            Self::Gzip(decoder) => decoder.get_mut(),
            Self::Unknown(_) => return Ok(()),
            Self::Raw(decoder) => decoder.get_mut(),
            Self::Zlib(decoder) => decoder.get_mut(),
        };
        output.put(decoded)?;
        decoded.clear();
        Ok(())
    }
}
