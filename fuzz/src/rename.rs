//! Request bodies whose model gets another name: it is the name that is read then, and `serde_json`
//! agrees that all else is as before.

use std::collections::BTreeMap;
use std::io;

use picker_core::{HashSeed, ModelPlace, RenameFault, Request, RequestScanner, Shape};
use serde_json::value::RawValue;

use crate::input::{Input, chunks};
use crate::request;

/// An API, two bytes that say how the body is cut, and the body. The name is taken from the cut.
pub fn check(input: &[u8]) {
    let mut input = Input(input);
    let (shape, seed) = (input.of(&Shape::ALL), input.u16());
    let (body, name) = (input.0, NAMES[usize::from(seed) % NAMES.len()]);
    let scanner = scanned(shape, vec![body]);
    let place = scanner.model_place().cloned();
    let cut = scanned(shape, chunks(body, seed));
    assert_eq!(cut.model_place(), place.as_ref(), "cut by {seed}");
    let model = scanner.model().map(String::from);
    assert_eq!(cut.model().map(String::from), model);
    let request = cut.finish(HashSeed::new("llm"));
    assert_eq!(request.model, model);
    let Some(place) = place else {
        assert!(
            !request.faults.is_empty(),
            "a body that is read has a place"
        );
        return;
    };
    let renamed = match renamed_body(&place, body, name) {
        Ok(renamed) => renamed,
        Err(fault) => return assert_is_due(fault, shape, name),
    };
    let new_place = reads_as_renamed(scanner, &renamed, name);
    let twice = new_place.map(|it| renamed_body(&it, &renamed, NAMES[0]));
    assert_eq!(
        twice,
        Some(renamed_body(&place, body, NAMES[0])),
        "renamed twice"
    );
    if shape != Shape::Transcriptions {
        agrees_with_serde(body, &renamed, name);
    }
}

fn renamed_body(place: &ModelPlace, body: &[u8], name: &str) -> Result<Vec<u8>, RenameFault> {
    let mut renamed = body.to_vec();
    let result = place.rename(&mut renamed, name);
    assert!(result.is_ok() || renamed == body, "it is left as it was");
    result.map(|()| renamed)
}

/// Every recorded request, and bodies with several models.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let mut seeds = request::seeds()?;
    let part = "--X\r\nContent-Disposition: form-data; name=model\r\n\r\n";
    let chat = Shape::ChatCompletions;
    for (shape, body) in [
        (chat, "{ }".into()),
        (
            chat,
            "{\"model\":\"a\" ,\"x\":1E400, \"mod\\u0065l\": {\"a\":[]} }".into(),
        ),
        (chat, format!("{{{}}}", ["\"model\":1"; 9].join(","))),
        (
            Shape::SglangGenerate,
            "{\"model\":null,\"lora_path\":\"a\",\"lora_path\":[]}".into(),
        ),
        (Shape::Transcriptions, format!("{part}a\r\n{part}--X--")),
        (Shape::Transcriptions, format!("{part}{part}\r\n--X--\r\n")),
    ] {
        let number = Shape::ALL.iter().position(|known| *known == shape);
        let number = number.unwrap_or_default() as u8;
        for cut in 0..NAMES.len() {
            seeds.push([&[number, cut as u8, 0], body.as_bytes()].concat());
        }
    }
    Ok(seeds)
}

fn scanned(shape: Shape, chunks: Vec<&[u8]>) -> RequestScanner {
    let mut scanner = RequestScanner::new(shape);
    for chunk in chunks {
        scanner.push(chunk);
    }
    scanner
}

/// What cannot be renamed has a reason.
fn assert_is_due(fault: RenameFault, shape: Shape, name: &str) {
    let is_form = shape == Shape::Transcriptions;
    assert_ne!(fault, RenameFault::OtherBody);
    if fault == RenameFault::UnusableName {
        assert!(is_form && name != NAMES[0]);
    }
}

/// Reads the new body, which is what the scanner of the old one takes it for once that is told; where
/// the model stands now.
fn reads_as_renamed(mut scanner: RequestScanner, renamed: &[u8], name: &str) -> Option<ModelPlace> {
    let again = scanned(scanner.shape(), vec![renamed]);
    let place = again.model_place().cloned();
    let read: Request = again.finish(HashSeed::new("llm"));
    assert_eq!(read.model.as_deref(), Some(name));
    scanner.rename_model(name);
    assert_eq!(
        scanner.finish(HashSeed::new("llm")),
        read,
        "the blocks of the new body"
    );
    place
}

fn agrees_with_serde(body: &[u8], renamed: &[u8], name: &str) {
    type Members<'a> = BTreeMap<String, &'a RawValue>;
    let Ok(before) = serde_json::from_slice::<Members<'_>>(body) else {
        return;
    };
    let after = serde_json::from_slice::<Members<'_>>(renamed).unwrap_or_default();
    let text = |value: &&RawValue| serde_json::from_str::<String>(value.get()).ok();
    let mut models = KEYS.iter().filter_map(|key| after.get(*key).and_then(text));
    assert!(models.any(|model| model == name));
    let others = |members: &Members<'_>| -> Vec<(String, String)> {
        let others = members.iter().filter(|it| !KEYS.contains(&it.0.as_str()));
        others
            .map(|(key, value)| (key.clone(), value.get().into()))
            .collect()
    };
    assert_eq!(others(&before), others(&after));
}

/// Names to give; the first can stand anywhere.
const NAMES: [&str; 4] = ["a", "org/a-longer-name:1.0", "\"\\\n\u{1}\u{20AC}", "--X"];

/// Keys of models.
const KEYS: [&str; 2] = ["model", "lora_path"];
