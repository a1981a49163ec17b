//! `br`.

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};

use crate::{BROTLI_WINDOW_BITS_MAX, DecodeError, Output};

/// A brotli body; nothing is allocated before its first byte, which tells the window.
#[derive(Default)]
pub(crate) struct Brotli {
    state: Option<Box<State>>,
    has_ended: bool,
}

type State = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

impl Brotli {
    pub(crate) fn push(
        &mut self,
        chunk: &[u8],
        output: &mut Output<'_>,
    ) -> Result<(), DecodeError> {
        let Some(&first) = chunk.first() else {
            return Ok(());
        };
        if self.has_ended {
            return Err(DecodeError::Corrupt);
        }
        if self.state.is_none() && BROTLI_WINDOW_BITS_MAX < window_bits(first) {
            return Err(DecodeError::WindowTooLarge);
        }
        let state = self.state.get_or_insert_with(|| {
            let (bytes, words, codes) = Default::default();
            Box::new(BrotliState::new_strict(bytes, words, codes))
        });
        let mut decoded = [0; PIECE_BYTES];
        let (mut left, mut offset, mut total) = (chunk.len(), 0, 0);
        loop {
            let (mut room, mut filled) = (decoded.len(), 0);
            let result = BrotliDecompressStream(
                &mut left,
                &mut offset,
                chunk,
                &mut room,
                &mut filled,
                &mut decoded,
                &mut total,
                state,
            );
            output.put(decoded.get(..filled).unwrap_or_default())?;
            match result {
                BrotliResult::NeedsMoreOutput => {}
                BrotliResult::NeedsMoreInput => return Ok(()),
                BrotliResult::ResultSuccess if left == 0 => {
                    self.has_ended = true;
                    return Ok(());
                }
                BrotliResult::ResultSuccess | BrotliResult::ResultFailure => {
                    return Err(DecodeError::Corrupt);
                }
            }
        }
    }

    pub(crate) fn finish(&self) -> Result<(), DecodeError> {
        if self.has_ended {
            Ok(())
        } else {
            Err(DecodeError::Corrupt)
        }
    }
}

/// The binary logarithm of the window, as RFC 7932 writes it into the first bits of a body.
fn window_bits(first: u8) -> u32 {
    let (low, high) = (first >> 1 & 7, first >> 4 & 7);
    match (first & 1, low, high) {
        (0, _, _) => 16,
        (_, 0, 0) => 17,
        // Large windows are no part of the coding.
        (_, 0, 1) => u32::MAX,
        (_, 0, high) => 8 + u32::from(high),
        (_, low, _) => 17 + u32::from(low),
    }
}

/// Bytes decoded at a time.
const PIECE_BYTES: usize = 16 << 10;
