//! Decoder, request scanner and block hash behind a C interface, to be timed as wasm.
#![allow(unsafe_code, reason = "a C interface")]

use std::slice::from_raw_parts;

use codecs::{Coding, Decoder};
use picker_core::{BLOCK_BYTES, HashSeed, RequestScanner, Shape};
use xxhash_rust::xxh3::xxh3_64;

/// How bodies are to be read.
pub struct Job {
    shape: Shape,
    coding: Option<Coding>,
}

/// Room for `size` bytes, never given back.
#[unsafe(no_mangle)]
pub extern "C" fn room(size: usize) -> *mut u8 {
    Box::leak(vec![0; size].into_boxed_slice()).as_mut_ptr()
}

/// What to do with bodies sent to a path with a content coding, given with a blank between them;
/// null for a path of no known API.
///
/// # Safety
///
/// `text` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn job(text: *const u8, size: usize) -> *const Job {
    let text = std::str::from_utf8(unsafe { from_raw_parts(text, size) });
    let Some((path, coding)) = text.ok().and_then(|text| text.split_once(' ')) else {
        return std::ptr::null();
    };
    let coding = Coding::named(coding);
    let job = Shape::of_path(path, &[]).map(|shape| Job { shape, coding });
    job.map_or(std::ptr::null(), |job| Box::leak(Box::new(job)))
}

/// Reads a body that arrives in pieces of `piece` bytes, and gives how many bytes of prompt it
/// has.
///
/// # Safety
///
/// `job` comes from [`job`] and is not null; `body` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scan(job: *const Job, body: *const u8, size: usize, piece: usize) -> u64 {
    let (job, body) = unsafe { (&*job, from_raw_parts(body, size)) };
    let mut scanner = RequestScanner::new(job.shape);
    let mut decoder = job.coding.map(|coding| Decoder::new(coding, u64::MAX));
    for piece in body.chunks(piece.max(1)) {
        match &mut decoder {
            Some(decoder) => {
                let _ = decoder.push(piece, &mut |piece| scanner.push(piece));
            }
            None => scanner.push(piece),
        }
    }
    if let Some(decoder) = decoder {
        let _ = decoder.finish(&mut |piece| scanner.push(piece));
    }
    let request = scanner.finish(HashSeed::new("bench"));
    request.prompts.iter().map(|it| it.bytes).sum()
}

/// Hashes block by block, without the scanner.
///
/// # Safety
///
/// `body` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hash(body: *const u8, size: usize) -> u32 {
    let body = unsafe { from_raw_parts(body, size) };
    let (blocks, _) = body.as_chunks::<BLOCK_BYTES>();
    blocks.iter().fold(0, |sum, it| sum ^ xxh3_64(it)) as u32
}
