//! Serialized `google.protobuf.Struct`s: a document in this form gives what it gives as JSON,
//! fields that nobody knows change nothing, and of a repeated key the last value counts.

use std::io;

use picker_core::{ConfigError, Role, parse_config};
use serde_json::{Map, Value};

use crate::config::{self, DOCUMENTS};
use crate::input::Input;

/// A byte that says which of the two the rest is: a document in JSON, or a `Struct`.
pub fn check(input: &[u8]) {
    let mut input = Input(input);
    if input.byte() & 1 == 0 {
        reads_like_json(input.0);
    } else {
        config::check(input.0);
        grows_without_effect(input.0);
    }
}

/// The documents of the other target, in both forms.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let mut seeds = Vec::new();
    for document in DOCUMENTS {
        let map: Map<String, Value> = serde_json::from_str(document)?;
        seeds.push([&[0], document.as_bytes()].concat());
        seeds.push([&[1], object(&map).as_slice()].concat());
    }
    Ok(seeds)
}

fn reads_like_json(document: &[u8]) {
    let Ok(map) = serde_json::from_slice::<Map<String, Value>>(document) else {
        return;
    };
    let encoded = object(&map);
    if map.is_empty() || !fits(&Value::Object(map), DEPTH_MAX) {
        return;
    }
    assert_eq!(parse_config(&encoded), parse_config(document));
}

/// Whether a `Struct` can hold it: numbers are doubles there, and nesting has another limit.
fn fits(value: &Value, depth: usize) -> bool {
    let Some(deeper) = depth.checked_sub(1) else {
        return false;
    };
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(it) if it.is_f64() => it.as_f64().is_some_and(|it| it.fract() != 0.0),
        Value::Number(it) => it.as_i64().is_some_and(|it| it.unsigned_abs() <= 1 << 53),
        Value::Array(values) => values.iter().all(|it| fits(it, deeper)),
        Value::Object(map) => map.values().all(|it| fits(it, deeper)),
    }
}

fn grows_without_effect(bytes: &[u8]) {
    let is_control = |byte: &u8| *byte < b' ' && !byte.is_ascii_whitespace();
    let is_struct = !bytes.starts_with(b"{") && bytes.iter().any(is_control);
    if !is_struct {
        return;
    }
    let read = parse_config(bytes);
    // A fault stays where it is, unless the field that is cut there goes on in what follows.
    let is_cut = |read: &Result<Role, Vec<ConfigError>>| {
        read.as_ref()
            .is_err_and(|errors| errors.iter().any(|it| it.path == "configuration"))
    };
    if is_cut(&read) {
        return;
    }
    for unknown in [&[0x78, 5][..], &[0x7A, 2, 1, 2], &[0x7D, 1, 2, 3, 4]] {
        assert_eq!(
            parse_config(&[bytes, unknown].concat()),
            read,
            "{unknown:?} behind it"
        );
        assert_eq!(
            parse_config(&[unknown, bytes].concat()),
            read,
            "{unknown:?} before it"
        );
    }
    assert_eq!(parse_config(&[bytes, bytes].concat()), read, "twice");
}

fn object(map: &Map<String, Value>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in map {
        let entry = [field(1, name.as_bytes()), field(2, &encoded(value))].concat();
        bytes.extend(field(1, &entry));
    }
    bytes
}

fn encoded(value: &Value) -> Vec<u8> {
    match value {
        Value::Null => vec![0x08, 0],
        Value::Number(it) => {
            let bits = it.as_f64().unwrap_or_default().to_le_bytes();
            [&[0x11][..], &bits].concat()
        }
        Value::String(it) => field(3, it.as_bytes()),
        Value::Bool(it) => vec![0x20, u8::from(*it)],
        Value::Object(it) => field(5, &object(it)),
        Value::Array(values) => {
            let values: Vec<u8> = values
                .iter()
                .flat_map(|it| field(1, &encoded(it)))
                .collect();
            field(6, &values)
        }
    }
}

/// A field of bytes: tag, length, content.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(content);
    bytes
}

/// Objects and lists within one another that both forms may have.
const DEPTH_MAX: usize = 60;
