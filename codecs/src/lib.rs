//! Content codings of request bodies, decoded for reading, within limits.
//!
//! A body goes to its server as the client sent it, unless its model gets another name. So whatever
//! cannot be decoded is no reason to refuse a request, with one exception: a body that is longer
//! decoded than a body may be.
//!
//! Memory is bounded whatever a body says about itself: decoded bytes are handed on in pieces, and
//! windows have limits, checked before a window is allocated.

mod brotli;
mod inflate;
mod zstd;

use std::fmt;

use self::brotli::Brotli;
use self::inflate::Inflate;
use self::zstd::Zstd;

/// A content coding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coding {
    /// `br`
    Brotli,
    /// `deflate`, with the frame of zlib as it should be, or without
    Deflate,
    /// `gzip`
    Gzip,
    /// `zstd`
    Zstd,
}

/// Decodes one body that arrives in chunks.
pub struct Decoder {
    codec: Codec,
    /// Decoded bytes that may still come.
    left: u64,
}

/// Why a body was not decoded to its end; where several reasons hold, which one is seen first can
/// depend on the chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// The bytes are not of this coding, or end too early.
    Corrupt,
    /// The decoded body is longer than the limit.
    TooLarge,
    /// The body needs more memory than [`BROTLI_WINDOW_BITS_MAX`] or [`ZSTD_WINDOW_BYTES_MAX`]
    /// allow.
    WindowTooLarge,
}

enum Codec {
    Brotli(Box<Brotli>),
    Inflate(Box<Inflate>),
    Zstd(Zstd),
}

/// Where decoded bytes go, up to a limit.
struct Output<'a> {
    left: &'a mut u64,
    out: &'a mut dyn FnMut(&[u8]),
}

impl Coding {
    /// The coding that a `content-encoding` header names; `None` for several codings, for none
    /// and for those not known here.
    pub fn named(header: &str) -> Option<Self> {
        let name = header.trim();
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("gzip") || is("x-gzip") {
            Some(Self::Gzip)
        } else if is("br") {
            Some(Self::Brotli)
        } else if is("zstd") {
            Some(Self::Zstd)
        } else if is("deflate") {
            Some(Self::Deflate)
        } else {
            None
        }
    }
}

impl Decoder {
    /// A decoder for a body that may have `limit` bytes when it is decoded.
    pub fn new(coding: Coding, limit: u64) -> Self {
        let codec = match coding {
            Coding::Brotli => Codec::Brotli(Box::default()),
            Coding::Deflate => Codec::Inflate(Box::new(Inflate::deflate())),
            Coding::Gzip => Codec::Inflate(Box::new(Inflate::gzip())),
            Coding::Zstd => Codec::Zstd(Zstd::default()),
        };
        Self { codec, left: limit }
    }

    /// Decodes the next chunk, of any length, and hands `out` the pieces.
    ///
    /// After an error the decoder is of no more use. Zstd hands on nothing before
    /// [`finish`](Self::finish).
    pub fn push(&mut self, chunk: &[u8], out: &mut dyn FnMut(&[u8])) -> Result<(), DecodeError> {
        let left = &mut self.left;
        let mut output = Output { left, out };
        match &mut self.codec {
            Codec::Brotli(brotli) => brotli.push(chunk, &mut output),
            Codec::Inflate(inflate) => inflate.push(chunk, &mut output),
            Codec::Zstd(zstd) => {
                zstd.push(chunk);
                Ok(())
            }
        }
    }

    /// Hands `out` what is left, and says whether the body is complete.
    pub fn finish(mut self, out: &mut dyn FnMut(&[u8])) -> Result<(), DecodeError> {
        let left = &mut self.left;
        let mut output = Output { left, out };
        match self.codec {
            Codec::Brotli(brotli) => brotli.finish(),
            Codec::Inflate(inflate) => inflate.finish(&mut output),
            Codec::Zstd(zstd) => zstd.finish(&mut output),
        }
    }
}

impl Output<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let left = self.left.checked_sub(bytes.len() as u64);
        *self.left = left.ok_or(DecodeError::TooLarge)?;
        if !bytes.is_empty() {
            (self.out)(bytes);
        }
        Ok(())
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Corrupt => "the body is not of its content coding",
            Self::TooLarge => "the decoded body is too large",
            Self::WindowTooLarge => "the body needs too large a window",
        })
    }
}

/// Binary logarithm of the largest window that a brotli body may need: 4 MiB, which is also what
/// encoders use at most by default.
pub const BROTLI_WINDOW_BITS_MAX: u32 = 22;

/// The largest window that a zstd body may need: 8 MiB, the limit of RFC 9659 for this coding.
pub const ZSTD_WINDOW_BYTES_MAX: u64 = 8 << 20;

#[cfg(test)]
mod tests;
