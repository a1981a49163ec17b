//! Compressed bodies: what comes out never passes the limit, comes in pieces of bounded length, and
//! depends neither on cuts nor, as far as both reach, on the limit.

use std::io;

use codecs::{Coding, DecodeError, Decoder};

use crate::fixtures::files;
use crate::input::{Input, chunks};

/// A coding, the binary logarithm of the limit, two bytes that say how the body is cut, and the
/// body.
pub fn check(input: &[u8]) {
    let mut input = Input(input);
    let coding = input.of(&CODINGS);
    let limit = 1 << (input.byte() % LIMITS);
    let seed = input.u16();
    let (result, decoded) = decode(coding, limit, vec![input.0]);
    let (cut_result, cut) = decode(coding, limit, chunks(input.0, seed));
    if result.is_ok() || cut_result.is_ok() {
        assert_eq!((cut_result, &cut), (result, &decoded), "cut by {seed}");
    } else if cut_result != result {
        // What is wrong behind the limit may be seen first, or the limit.
        let both = [Err(DecodeError::Corrupt), Err(DecodeError::TooLarge)];
        assert!(
            both.contains(&result) && both.contains(&cut_result),
            "{result:?}, {cut_result:?}"
        );
    }
    let (wider_result, wider) = decode(coding, limit * 2, vec![input.0]);
    assert!(wider.starts_with(&decoded), "the limit changes the body");
    match result {
        Ok(()) => assert_eq!((wider_result, wider), (Ok(()), decoded)),
        Err(DecodeError::TooLarge) => assert_ne!((wider_result, wider), (Ok(()), decoded)),
        Err(_) => assert_eq!(wider_result, result),
    }
}

/// Every recorded body, under a wide limit and under a narrow one.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let mut seeds = Vec::new();
    for (file, body) in files("codings")? {
        let coding = match file.rsplit('.').next() {
            Some("br") => Coding::Brotli,
            Some("deflate" | "zlib") => Coding::Deflate,
            Some("gz") => Coding::Gzip,
            Some("zst") => Coding::Zstd,
            _ => continue,
        };
        let number = CODINGS
            .iter()
            .position(|known| *known == coding)
            .unwrap_or(0);
        for limit in [10, LIMITS - 1] {
            seeds.push([&[number as u8, limit, 3, 0], body.as_slice()].concat());
        }
    }
    Ok(seeds)
}

fn decode(coding: Coding, limit: u64, chunks: Vec<&[u8]>) -> (Result<(), DecodeError>, Vec<u8>) {
    let mut decoder = Decoder::new(coding, limit);
    let mut decoded = Vec::new();
    let mut out = |piece: &[u8]| {
        assert!(
            piece.len() <= PIECE_BYTES_MAX,
            "{} bytes at once",
            piece.len()
        );
        decoded.extend_from_slice(piece);
    };
    let pushed = chunks
        .into_iter()
        .try_for_each(|chunk| decoder.push(chunk, &mut out));
    let result = pushed.and_then(|()| decoder.finish(&mut out));
    assert!(
        decoded.len() as u64 <= limit,
        "{} of {limit} bytes",
        decoded.len()
    );
    (result, decoded)
}

const CODINGS: [Coding; 4] = [Coding::Brotli, Coding::Deflate, Coding::Gzip, Coding::Zstd];

/// Limits tried: up to 64 KiB, which the recorded bombs pass and the bodies do not.
const LIMITS: u8 = 17;

/// The longest piece: the buffer of a deflate decoder.
const PIECE_BYTES_MAX: usize = 128 << 10;
