//! `zstd`.

use std::io::Read;

use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use crate::{DecodeError, Output, ZSTD_WINDOW_BYTES_MAX};

/// A zstd body. It is decoded when it is complete: the decoder only pulls.
#[derive(Default)]
pub(crate) struct Zstd {
    body: Vec<u8>,
}

impl Zstd {
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.body.extend_from_slice(chunk);
    }

    pub(crate) fn finish(self, output: &mut Output<'_>) -> Result<(), DecodeError> {
        let mut rest = self.body.as_slice();
        loop {
            frame(&mut rest, output)?;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }
}

/// Decodes the frame at the front of `rest`.
fn frame(rest: &mut &[u8], output: &mut Output<'_>) -> Result<(), DecodeError> {
    let decoder = StreamingDecoder::new_with_max_window_size(&mut *rest, ZSTD_WINDOW_BYTES_MAX);
    let mut decoder: StreamingDecoder<_, FrameDecoder> = decoder.map_err(|error| match error {
        FrameDecoderError::WindowSizeTooBig { .. } => DecodeError::WindowTooLarge,
        _ => DecodeError::Corrupt,
    })?;
    let mut decoded = [0; PIECE_BYTES];
    loop {
        match decoder.read(&mut decoded) {
            Ok(0) => return Ok(()),
            Ok(filled) => output.put(decoded.get(..filled).unwrap_or_default())?,
            Err(_) => return Err(DecodeError::Corrupt),
        }
    }
}

/// Bytes decoded at a time.
const PIECE_BYTES: usize = 16 << 10;
