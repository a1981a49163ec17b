//! Every recorded response reads as its index says, however it is cut.

#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};

use picker_core::{PublicName, ResponseKind, ResponseReader, ResponseSummary};
use serde_json::Value;

#[test]
fn every_response_reads_as_its_index_says() {
    let index = index();
    assert_eq!(index.len(), 47);
    for (file, entry) in &index {
        let read = summary(kind(entry), [body(file).as_slice()]);
        let expected = &entry["expect"];
        let check = |key: &str, found: Value| {
            if let Some(wanted) = expected.get(key) {
                assert_eq!(&found, wanted, "{file}: {key}");
            }
        };
        check("model", read.model.clone().into());
        check("prompt_tokens", read.usage.prompt.into());
        check("completion_tokens", read.usage.output.into());
        check("cached_tokens", read.usage.cached.into());
        check("token_chunks", read.chunks.into());
        check("complete", read.ended.into());
        let error = read.error.clone();
        let name = error.map(|it| it.code.map_or_else(|| it.kind.into(), Value::from));
        check("error", name.into());
        let is_error = expected.get("error").is_some() || entry["status"] != 200;
        assert_eq!(read.error.is_some(), is_error, "{file}: error");
        if expected.get("complete").is_none() {
            assert!(read.ended, "{file}: ended");
        }
    }
}

#[test]
fn cuts_do_not_matter() {
    for (file, entry) in index() {
        let (kind, body) = (kind(&entry), body(&file));
        let whole = summary(kind, [body.as_slice()]);
        assert_eq!(summary(kind, body.chunks(1)), whole, "{file}: byte by byte");
        for at in 0..body.len() {
            let (first, second) = body.split_at(at);
            assert_eq!(summary(kind, [first, second]), whole, "{file}: cut at {at}");
        }
    }
}

#[test]
fn line_ends_and_the_blank_after_the_colon_do_not_matter() {
    for (file, entry) in index() {
        if kind(&entry) != ResponseKind::EventStream {
            continue;
        }
        let plain = String::from_utf8(body(&file))
            .unwrap()
            .replace("\r\n", "\n");
        let whole = summary(ResponseKind::EventStream, [plain.as_bytes()]);
        for other in [
            plain.replace('\n', "\r\n"),
            plain.replace('\n', "\r"),
            plain.replace("data: ", "data:"),
            plain.replace("data: {", "data: {\ndata:"),
            plain.replace("data: ", ": comment\nid: 7\nretry: 1\ndata: "),
            format!("\u{FEFF}{plain}"),
        ] {
            for cut in [1, 7, other.len()] {
                let read = summary(ResponseKind::EventStream, other.as_bytes().chunks(cut));
                assert_eq!(read, whole, "{file}: {other}");
            }
        }
    }
}

#[test]
fn every_response_shows_another_name_where_it_names_the_model_and_is_else_the_same() {
    let (name, shown) = (PublicName::new("a \"public\" name"), r#"a \"public\" name"#);
    let mut renamed = 0;
    for (file, entry) in index() {
        let (kind, body) = (kind(&entry), body(&file));
        let whole = summary(kind, [body.as_slice()]);
        let model = whole.model.as_deref().unwrap_or("no model");
        let text = String::from_utf8(body.clone()).unwrap();
        let mut expected = text.clone();
        for blank in ["", " "] {
            let member = |name: &str| format!("\"model\":{blank}\"{name}\"");
            expected = expected.replace(&member(model), &member(shown));
        }
        renamed += usize::from(expected != text);
        assert!(whole.model.is_none() || expected != text, "{file}");
        for cut in [1, 2, 5, 64, 1000, body.len()] {
            let mut reader = ResponseReader::new(kind);
            let (mut passed, mut out) = (Vec::new(), Vec::new());
            for chunk in body.chunks(cut) {
                let is_changed = reader.push_renaming(chunk, &name, &mut out);
                passed.extend_from_slice(if is_changed { &out } else { chunk });
            }
            assert_eq!(
                String::from_utf8(passed).unwrap(),
                expected,
                "{file}: by {cut}"
            );
            assert_eq!(reader.finish(), whole, "{file}: by {cut}");
        }
    }
    assert_eq!(renamed, 29);
}

fn summary<'a>(kind: ResponseKind, chunks: impl IntoIterator<Item = &'a [u8]>) -> ResponseSummary {
    let mut reader = ResponseReader::new(kind);
    for chunk in chunks {
        reader.push(chunk);
    }
    reader.finish()
}

fn kind(entry: &Value) -> ResponseKind {
    ResponseKind::of_headers(entry["content_type"].as_str(), None)
}

fn index() -> Vec<(String, Value)> {
    let index: Value = serde_json::from_slice(&body("index.json")).unwrap();
    let files = index.as_object().unwrap().clone();
    files.into_iter().collect()
}

fn body(file: &str) -> Vec<u8> {
    fs::read(fixtures().join(file)).unwrap()
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/responses")
}
