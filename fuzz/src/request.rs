//! Request bodies: any cut reads the same, and `serde_json` agrees about what is JSON, the model
//! and the stream.

use std::io;

use picker_core::{
    HashSeed, MEDIA_MAX, PROMPT_BLOCKS_MAX, Request, RequestFault, RequestScanner, Shape,
};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::fixtures::{fixture, index};
use crate::input::{Input, chunks};

/// An API, two bytes that say how the body is cut, and the body.
pub fn check(input: &[u8]) {
    let mut input = Input(input);
    let (shape, seed) = (input.of(&Shape::ALL), input.u16());
    let body = input.0;
    let whole = read(shape, vec![body]);
    assert_eq!(read(shape, chunks(body, seed)), whole, "cut by {seed}");
    within_limits(&whole);
    if shape != Shape::Transcriptions {
        agrees_with_serde(&whole, body);
    }
}

/// Every recorded request, byte by byte and in other pieces, and long names.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let index = index("requests/index.json")?;
    let mut seeds = Vec::new();
    for entry in index.as_array().into_iter().flatten() {
        let text = |key: &str| entry[key].as_str().unwrap_or_default();
        let shape = Shape::of_path(text("path"), &[]);
        let number = Shape::ALL.iter().position(|known| Some(*known) == shape);
        let number = number.ok_or_else(|| io::Error::other(text("path")))?;
        let body = fixture(&format!("requests/{}", text("file")))?;
        for seed in [0, number as u8] {
            let head = [number as u8, seed, 0];
            seeds.push([head.as_slice(), &body].concat());
        }
    }
    // A name that is as long as names may be, and one that is longer.
    for length in [MODEL_BYTES_MAX - 1, MODEL_BYTES_MAX] {
        let body = format!("{{\"model\":\"\\n{}\"}}", "a".repeat(length));
        seeds.push([&[0, 0, 0], body.as_bytes()].concat());
    }
    Ok(seeds)
}

fn read(shape: Shape, chunks: Vec<&[u8]>) -> Request {
    let mut scanner = RequestScanner::new(shape);
    let mut bytes = 0;
    for chunk in chunks {
        scanner.push(chunk);
        bytes += chunk.len() as u64;
    }
    assert_eq!((scanner.shape(), scanner.bytes()), (shape, bytes));
    scanner.finish(HashSeed::new("llm"))
}

fn within_limits(request: &Request) {
    assert!(request.media.len() <= MEDIA_MAX);
    assert!(request.prompts.len() <= PROMPTS_MAX);
    assert!(
        request
            .model
            .as_ref()
            .is_none_or(|it| it.len() <= MODEL_BYTES_MAX)
    );
    for prompt in &request.prompts {
        assert!(prompt.blocks.len() <= PROMPT_BLOCKS_MAX);
    }
    if let Some(group) = request.group {
        let mut blocks = request.prompts.iter().flat_map(|prompt| &prompt.blocks);
        assert!(
            blocks.any(|block| *block == group),
            "the group is of no prompt"
        );
    }
    if request.faults.iter().any(is_broken) {
        assert!(request.prompts.is_empty(), "prompts of a broken body");
    }
}

fn agrees_with_serde(request: &Request, body: &[u8]) {
    let is_broken = request.faults.iter().any(is_broken);
    // Strings are not looked into where nobody reads them, so what is wrong there does not count.
    let mended: String = body.iter().map(|byte| mend(*byte)).collect();
    let is_json = serde_json::from_str::<&RawValue>(&mended).is_ok();
    assert!(is_json || is_broken, "not seen to be broken");
    let Ok(members) = serde_json::from_slice::<Map<String, Value>>(body) else {
        return;
    };
    assert!(!is_broken, "seen to be broken: {:?}", request.faults);
    let unusable = request.faults.contains(&RequestFault::ModelUnusable);
    let model = members.get("model").and_then(Value::as_str);
    assert_eq!(request.model.as_deref(), model.filter(|_| !unusable));
    let not_text = !matches!(
        members.get("model"),
        None | Some(Value::Null | Value::String(_))
    );
    assert_eq!(
        request.faults.contains(&RequestFault::ModelNotText),
        not_text
    );
    assert_eq!(
        request.stream,
        members.get("stream") == Some(&Value::Bool(true))
    );
}

/// A byte that may stand in a string, in place of one that may not.
fn mend(byte: u8) -> char {
    match byte {
        0..0x20 => ' ',
        0x80.. => 'a',
        _ => char::from(byte),
    }
}

/// Whether the fault is one of the body as a whole.
fn is_broken(fault: &RequestFault) -> bool {
    matches!(
        fault,
        RequestFault::ByteOrderMark
            | RequestFault::Malformed { .. }
            | RequestFault::NotAnObject { .. }
            | RequestFault::TooDeep { .. }
            | RequestFault::TrailingBytes { .. }
            | RequestFault::Truncated { .. }
    )
}

/// Prompts that are read of one body.
const PROMPTS_MAX: usize = 64;

/// Bytes of a model's name.
const MODEL_BYTES_MAX: usize = 1024;
