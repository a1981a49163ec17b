//! The scanner against its naive twin, for every cut, and claims about what it reads.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::names::{CACHE_SALT_BYTES_MAX, MODEL_BYTES_MAX};
use super::prompts::PROMPTS_MAX;
use super::*;
use crate::block::{BLOCK_BYTES, BlockHash, PROMPT_BLOCKS_MAX};
use crate::request::MediaKind;
use Shape::{ChatCompletions, Completions};

mod form;
mod generate;
mod json;
mod limits;
mod model_place;
mod prompts;
mod shapes;
mod twin;

fn scan<'a>(shape: Shape, chunks: impl IntoIterator<Item = &'a [u8]>) -> Request {
    let mut scanner = RequestScanner::new(shape);
    for chunk in chunks {
        scanner.push(chunk);
    }
    scanner.finish(HashSeed::new("pool"))
}

/// Reads `body` whole and byte by byte, which has to give the same.
#[track_caller]
fn read(shape: Shape, body: impl AsRef<[u8]>) -> Request {
    let body = body.as_ref();
    let whole = scan(shape, [body]);
    assert_eq!(scan(shape, body.chunks(1)), whole, "byte by byte");
    whole
}

#[track_caller]
fn chat(body: impl AsRef<[u8]>) -> Request {
    read(ChatCompletions, body)
}

#[track_caller]
fn completion(body: impl AsRef<[u8]>) -> Request {
    read(Completions, body)
}

/// The blocks of the only prompt.
#[track_caller]
fn blocks(request: &Request) -> &[BlockHash] {
    let [prompt] = request.prompts.as_slice() else {
        panic!("one prompt expected: {request:?}");
    };
    &prompt.blocks
}

/// A JSON string of `len` bytes that begins with `start`.
fn long(start: &str, len: usize) -> String {
    let mut text = String::from(start);
    while text.len() < len {
        text.push_str("lorem ipsum ");
    }
    text.truncate(len);
    format!("\"{text}\"")
}
