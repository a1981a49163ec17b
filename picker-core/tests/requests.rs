//! Every recorded request reads as expected, however it is cut.
#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};

use picker_core::{HashSeed, MediaKind, Request, RequestFault, RequestScanner, Shape};
use serde_json::Value;

#[test]
fn every_request_reads_as_expected() {
    let index: Value = serde_json::from_slice(&body("index.json")).unwrap();
    let entries = index.as_array().unwrap();
    assert_eq!(entries.len(), files(), "the index names every body");
    let mut lines = String::new();
    for entry in entries {
        let file = entry["file"].as_str().unwrap();
        let path = entry["path"].as_str().unwrap();
        let shape = Shape::of_path(path, &[]).unwrap();
        let body = body(file);
        let read = read(shape, [body.as_slice()]);
        assert_eq!(self::read(shape, body.chunks(1)), read, "{file}");
        for at in (0..body.len()).step_by(1 + body.len() / 500) {
            let (first, second) = body.split_at(at);
            assert_eq!(self::read(shape, [first, second]), read, "{file}: {at}");
        }
        lines += &line(file, &read);
    }
    let expected = String::from_utf8(self::body("expected.txt")).unwrap();
    for (line, expected) in lines.lines().zip(expected.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(lines.lines().count(), expected.lines().count(), "{lines}");
}

/// A reading in a line: what is there, and nothing else.
fn line(file: &str, read: &Request) -> String {
    let mut line = format!("{file} {}", read.shape.map_or("none", Shape::name));
    let text = |name: &str, value: &Option<String>| {
        value
            .as_ref()
            .map_or_else(String::new, |value| format!(" {name}={value}"))
    };
    line += &text("model", &read.model);
    line += &text("salt", &read.cache_salt);
    line += if read.stream { " stream" } else { "" };
    line += &text("cap", &read.output_cap.map(|cap| cap.to_string()));
    for prompt in &read.prompts {
        line += &format!(" prompt={}/{}", prompt.bytes, prompt.blocks.len());
    }
    let kinds: Vec<&str> = read
        .media
        .iter()
        .map(|it| MediaKind::name(it.kind))
        .collect();
    line += &text("media", &(!kinds.is_empty()).then(|| kinds.join(",")));
    let faults: Vec<String> = read.faults.iter().map(RequestFault::to_string).collect();
    line += &text("faults", &(!faults.is_empty()).then(|| faults.join(",")));
    line + "\n"
}

fn read<'a>(shape: Shape, chunks: impl IntoIterator<Item = &'a [u8]>) -> Request {
    let mut scanner = RequestScanner::new(shape);
    for chunk in chunks {
        scanner.push(chunk);
    }
    scanner.finish(HashSeed::new("llm"))
}

fn body(file: &str) -> Vec<u8> {
    fs::read(fixtures().join(file)).unwrap()
}

/// How many bodies there are.
fn files() -> usize {
    let names = fs::read_dir(fixtures()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| name != "index.json" && name != "expected.txt")
        .count()
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/requests")
}
