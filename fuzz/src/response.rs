//! Response bodies: any cut reads the same, progress never goes back, and nothing grows with the
//! body.

use std::io;

use picker_core::{ResponseKind, ResponseReader, ResponseSummary};

use crate::fixtures::{fixture, index};
use crate::input::{Input, chunks};

/// A kind, two bytes that say how the body is cut, and the body.
pub fn check(input: &[u8]) {
    let mut input = Input(input);
    let (kind, seed) = (input.of(&KINDS), input.u16());
    let body = input.0;
    let whole = read(kind, vec![body]);
    assert_eq!(read(kind, chunks(body, seed)), whole, "cut by {seed}");
    let is_stream = kind == ResponseKind::EventStream;
    assert!(is_stream || whole.events == 0 && whole.chunks == 0);
    assert!(whole.chunks <= whole.events && whole.events <= body.len() as u64);
    let is_short =
        |text: &Option<String>| text.as_ref().is_none_or(|it| it.len() <= TEXT_BYTES_MAX);
    assert!(is_short(&whole.model) && is_short(&whole.finish));
    assert!(whole.error.is_none_or(|error| is_short(&error.kind)));
}

/// Every recorded response as what its content type says, and as the others.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let index = index("responses/index.json")?;
    let mut seeds = Vec::new();
    for (file, entry) in index.as_object().into_iter().flatten() {
        let kind = ResponseKind::of_headers(entry["content_type"].as_str(), None);
        let number = KINDS.iter().position(|known| *known == kind).unwrap_or(0);
        let body = fixture(&format!("responses/{file}"))?;
        for seed in [0, 3] {
            seeds.push([&[number as u8, seed, 0], body.as_slice()].concat());
        }
    }
    Ok(seeds)
}

fn read(kind: ResponseKind, chunks: Vec<&[u8]>) -> ResponseSummary {
    let mut reader = ResponseReader::new(kind);
    let mut seen = 0;
    for chunk in chunks {
        reader.push(chunk);
        assert!(seen <= reader.chunks(), "tokens that arrived have gone");
        seen = reader.chunks();
        assert!(reader.has_output() || seen == 0);
    }
    let summary = reader.finish();
    assert!(kind == ResponseKind::Json || seen <= summary.chunks);
    summary
}

const KINDS: [ResponseKind; 4] = [
    ResponseKind::Json,
    ResponseKind::EventStream,
    ResponseKind::Coded,
    ResponseKind::Other,
];

/// The longest text that is kept, that of a model.
const TEXT_BYTES_MAX: usize = 1024;
