//! The request scanner and the block hash behind a C interface, to be timed as wasm.
#![allow(unsafe_code, reason = "a C interface")]

use picker_core::{BLOCK_BYTES, HashSeed, RequestScanner, Shape};
use xxhash_rust::xxh3::xxh3_64;

/// Room for `size` bytes, never given back.
#[unsafe(no_mangle)]
pub extern "C" fn room(size: usize) -> *mut u8 {
    Box::leak(vec![0; size].into_boxed_slice()).as_mut_ptr()
}

/// Scans a chat that arrives in pieces of `piece` bytes, and counts its blocks.
///
/// # Safety
///
/// `body` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scan(body: *const u8, size: usize, piece: usize) -> usize {
    let body = unsafe { std::slice::from_raw_parts(body, size) };
    let mut scanner = RequestScanner::new(Shape::ChatCompletions);
    for piece in body.chunks(piece.max(1)) {
        scanner.push(piece);
    }
    let request = scanner.finish(HashSeed::new("bench"));
    request.prompts.iter().map(|it| it.blocks.len()).sum()
}

/// Hashes block by block, without the scanner.
///
/// # Safety
///
/// As for [`scan`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hash(body: *const u8, size: usize) -> u32 {
    let body = unsafe { std::slice::from_raw_parts(body, size) };
    let (blocks, _) = body.as_chunks::<BLOCK_BYTES>();
    blocks.iter().fold(0, |sum, it| sum ^ xxh3_64(it)) as u32
}
