//! Response bodies with another name of the model: any cut is renamed the same and reads as without
//! a name, what is no name stays, and whole documents become what a parser makes of them.

use std::fmt;
use std::io;

use picker_core::{PublicName, ResponseKind, ResponseReader, ResponseSummary};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::input::{Input, chunks, records};
use crate::response;

/// A kind, two bytes that say how the body is cut, the name, and the body.
pub fn check(input: &[u8]) {
    let mut input = Input(input);
    let (kind, seed) = (input.of(&KINDS), input.u16());
    let name = String::from_utf8_lossy(input.record());
    let body = input.0;
    let (whole, summary) = rename(kind, &name, vec![body]);
    let cut = rename(kind, &name, chunks(body, seed));
    assert_eq!(cut, (whole.clone(), summary.clone()), "cut by {seed}");
    let mut reader = ResponseReader::new(kind);
    reader.push(body);
    assert_eq!(reader.finish(), summary, "another reading");
    let (without, _) = rename(kind, "", vec![body]);
    let mut rest = body.iter();
    assert!(
        without.iter().all(|byte| rest.any(|it| it == byte)),
        "more is added than the name"
    );
    let expected = match kind {
        ResponseKind::Json => whole_document(body, &name),
        _ => whole_events(body, &name),
    };
    if let Some(expected) = expected {
        let whole = String::from_utf8_lossy(&whole);
        assert_eq!(whole, String::from_utf8_lossy(&expected));
    }
}

/// Every recorded response, with two names.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let mut seeds = Vec::new();
    for seed in response::seeds()? {
        let Some((head @ [0 | 1, ..], body)) = seed.split_at_checked(3) else {
            continue;
        };
        for name in ["base", "a\"\n\u{e4}"] {
            let name = records([name.as_bytes()]);
            seeds.push([head, name.as_slice(), body].concat());
        }
    }
    Ok(seeds)
}

fn rename(kind: ResponseKind, name: &str, chunks: Vec<&[u8]>) -> (Vec<u8>, ResponseSummary) {
    let name = PublicName::new(name);
    let mut reader = ResponseReader::new(kind);
    let (mut passed, mut out) = (Vec::new(), Vec::new());
    for chunk in chunks {
        let is_changed = reader.push_renaming(chunk, &name, &mut out);
        passed.extend_from_slice(if is_changed { &out } else { chunk });
    }
    (passed, reader.finish())
}

/// What a document becomes; `None` where it is none, or not text.
fn whole_document(body: &[u8], name: &str) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(body).ok()?;
    Some(object(text, name, true)?.into_bytes())
}

/// What a stream becomes; `None` unless its lines end with `\n`, and each event has at most one line
/// of data, and that an object or nothing that is read.
fn whole_events(body: &[u8], name: &str) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(body).ok()?;
    let events = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    let mut expected = text[..text.len() - events.len()].to_owned();
    let mut has_data = false;
    for line in events.split_inclusive('\n') {
        let Some(data) = line.strip_prefix("data:") else {
            has_data &= line != "\n";
            expected.push_str(line);
            continue;
        };
        if has_data {
            return None;
        }
        has_data = true;
        expected.push_str("data:");
        match data.trim_start_matches([' ', '\t']) {
            "" | "\n" => expected.push_str(data),
            list if list.starts_with('[') => expected.push_str(data),
            _ => expected.push_str(&object(data, name, true)?),
        }
    }
    (!text.contains('\r')).then(|| expected.into_bytes())
}

/// What the object that is all of `text` becomes, taken apart by another parser.
fn object(text: &str, name: &str, is_outer: bool) -> Option<String> {
    let members: Members<'_> = serde_json::from_str(text).ok()?;
    let (mut result, mut done) = (String::new(), 0);
    for (key, value) in members.0 {
        let value = value.get();
        let begin = value.as_ptr() as usize - text.as_ptr() as usize;
        let new = match key.as_str() {
            "model" if value.starts_with('"') => serde_json::to_string(name).ok()?,
            "message" | "response" if is_outer && value.starts_with('{') => {
                object(value, name, false)?
            }
            _ => continue,
        };
        result.push_str(&text[done..begin]);
        result.push_str(&new);
        done = begin + value.len();
    }
    Some(result + &text[done..])
}

/// The members of an object in order, names as they are meant and values as they are written.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

const KINDS: [ResponseKind; 2] = [ResponseKind::Json, ResponseKind::EventStream];
