use alloc::string::String;
use alloc::{format, vec};
use core::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::*;
use crate::response::ResponseKind::{self, Coded, EventStream, Json, Other};
use crate::response::{ResponseReader, ResponseSummary};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// Reads and renames chunks, one after the other; each is to be passed on at once.
fn rename<'a>(
    kind: ResponseKind,
    name: &str,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<u8>, ResponseSummary) {
    let name = PublicName::new(name);
    let mut reader = ResponseReader::new(kind);
    let (mut passed, mut out) = (Vec::new(), vec![1, 2, 3]);
    for chunk in chunks {
        if reader.push_renaming(chunk, &name, &mut out) {
            passed.extend_from_slice(&out);
        } else {
            passed.extend_from_slice(chunk);
        }
    }
    (passed, reader.finish())
}

/// Checks what becomes of `body`, whole and however it is cut, and that it reads as without a name.
#[track_caller]
fn check(kind: ResponseKind, name: &str, body: &[u8], expected: &[u8]) {
    let mut reader = ResponseReader::new(kind);
    reader.push(body);
    let read = reader.finish();
    let (whole, summary) = rename(kind, name, [body]);
    assert_eq!(text(&whole), text(expected));
    assert_eq!(summary, read);
    let (passed, summary) = rename(kind, name, body.chunks(1));
    assert_eq!(text(&passed), text(expected), "byte by byte");
    assert_eq!(summary, read, "byte by byte");
    for at in 0..body.len() {
        let (first, second) = body.split_at(at);
        let (passed, summary) = rename(kind, name, [first, second]);
        assert_eq!(text(&passed), text(expected), "cut at {at}");
        assert_eq!(summary, read, "cut at {at}");
    }
}

/// Checks that of `body` each `@` changes, as the whole text of a string.
#[track_caller]
fn changes(kind: ResponseKind, body: &str) {
    for (name, escaped) in [
        ("p", "p"),
        (
            "a name longer than the other",
            "a name longer than the other",
        ),
        (
            "a\"b\\c\nd\u{1}\u{e4}\u{1f600}",
            "a\\\"b\\\\c\\nd\\u0001\u{e4}\u{1f600}",
        ),
        ("", ""),
    ] {
        for old in [
            "base",
            "",
            "a\\\"b\\\\",
            "\\ud83d\\ude00\\n",
            "\u{6a21}\u{1f600}",
        ] {
            let (before, after) = (body.replace('@', old), body.replace('@', escaped));
            check(kind, name, before.as_bytes(), after.as_bytes());
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_model_of_a_document_changes_and_nothing_else() {
    for body in [
        r#"{"id":"x","object":"chat.completion","model":"@","choices":[{"index":0,"message":{"role":"assistant","content":"{\"model\":\"base\"}","model":"base"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"model":"base"}}"#,
        "\u{FEFF} {\r\n\t\"model\" :\t\"@\"\n} \n",
        r#"{"type":"message","model":"@","content":[{"type":"text","text":"\"model\":\"base\""},{"type":"tool_use","input":{"model":"base"}}],"stop_reason":"end_turn"}"#,
        r#"{"object":"response","model":"@","output":[{"model":"base"}],"metadata":{"model":"base"},"text":{"model":"base"}}"#,
        r#"{"object":"list","data":[{"object":"embedding","embedding":[1.5,-2],"model":"base"}],"model":"@"}"#,
        r#"{"m\u006fdel":"@","\"model\"":"base","Model":"base","model ":"base"}"#,
        r#"{"model":"@","model":null,"model":"@","model":7,"model":["@","base"],"model":{"model":"base"}}"#
            .replace("[\"@\"", "[\"base\"").as_str(),
        r#"{"response":{"model":"@","response":{"model":"base"},"message":{"model":"base"}},"message":{"model":"@"}}"#,
        r#"{"message":"base","response":["model","base"],"choices":{"model":"base"},"error":{"model":"base"}}"#,
    ] {
        changes(Json, body);
    }
}

#[test]
fn the_model_of_every_event_changes_and_nothing_else() {
    for body in [
        "data: {\"id\":\"x\",\"model\":\"@\",\"choices\":[{\"delta\":{\"content\":\"base\"}}]}\n\n\
         data: {\"model\":\"@\",\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":\
         {\"arguments\":\"{\\\"model\\\":\\\"base\\\"}\"}}]}}]}\n\n\
         : \"model\":\"base\"\n\n\
         data: {\"model\":\"@\",\"choices\":[],\"usage\":{\"prompt_tokens\":3}}\n\ndata: [DONE]\n\n",
        "\u{FEFF}data:{\"model\":\"@\"}\r\n\r\n: ping\r\n\r\nid: {\"model\":\"base\"}\r\n\
         data: {\"model\": \"@\"}\r\n\r\n\r\ndata: [DONE]\r\n\r\n",
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"type\":\"message\",\
         \"model\":\"@\",\"content\":[{\"model\":\"base\"}],\"usage\":{\"input_tokens\":9}}}\n\n\
         event: ping\ndata: {\"type\":\"ping\"}\n\n\
         event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":\
         {\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"model\\\":\\\"base\\\"}\",\
         \"model\":\"base\"}}\n\n",
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":\
         {\"id\":\"r\",\"model\":\"@\",\"tools\":[{\"model\":\"base\"}]}}\n\n\
         event: response.completed\ndata: {\"response\":{\"model\":\"@\"},\
         \"type\":\"response.completed\"}\n\n",
        "data: {\ndata:\"model\"\n: {\"model\":\"base\"}\ndata: :\ndata: \"@\",\"x\":\"base\"}\n\n",
        "data: {\"model\":\"@\"}\r\rdata: {\"model\":\"@\"}",
        "data: [{\"model\":\"base\"}]\n\ndata: \"model\":\"base\"\n\nevent: {\"model\":\"base\"}\n\n",
    ] {
        changes(EventStream, body);
    }
}

#[test]
fn the_name_is_written_with_the_first_byte_of_the_value() {
    let name = PublicName::new("public");
    let mut reader = ResponseReader::new(Json);
    let mut out = Vec::new();
    for (chunk, passed) in [
        ("{\"model\": ", None),
        ("\"", None),
        ("ba", Some("public")),
        ("se\\", Some("")),
        ("n\"", Some("\"")),
        (",\"a\":1", None),
        (
            ",\"model\":\"x\",\"model\":\"",
            Some(",\"model\":\"public\",\"model\":\""),
        ),
        ("y\"}", Some("public\"}")),
        ("\n", None),
    ] {
        let is_changed = reader.push_renaming(chunk.as_bytes(), &name, &mut out);
        assert_eq!(is_changed.then(|| text(&out)).as_deref(), passed, "{chunk}");
    }
}

#[test]
fn after_a_fault_nothing_changes_until_the_next_event() {
    for (bad, renamed) in [
        (
            "{\"a\":x,\"model\":\"base\"}",
            "{\"a\":x,\"model\":\"base\"}",
        ),
        (
            "{\"model\":\"base\"}{\"model\":\"base\"}",
            "{\"model\":\"p\"}{\"model\":\"base\"}",
        ),
        (
            "{\"model\":\"ba\\qse\",\"model\":\"base\"}",
            "{\"model\":\"pqse\",\"model\":\"base\"}",
        ),
        (
            "{\"model\":\"b\\u12x\",\"model\":\"base\"}",
            "{\"model\":\"px\",\"model\":\"base\"}",
        ),
        (
            "{\"model\":\"base\",\"model\":\"ba",
            "{\"model\":\"p\",\"model\":\"p",
        ),
        (
            "{\"model\":\"\\\"content\":\"a\"}",
            "{\"model\":\"p\":\"a\"}",
        ),
        ("[\"model\",\"base\"]", "[\"model\",\"base\"]"),
        ("", ""),
    ] {
        check(Json, "p", bad.as_bytes(), renamed.as_bytes());
        let stream = |event: &str, next: &str| {
            let next = format!("data: {{\"model\":\"{next}\"}}\n\n");
            format!("data: {event}\n\n{next}data: {event}\n\n{next}")
        };
        let (before, after) = (stream(bad, "base"), stream(renamed, "p"));
        check(EventStream, "p", before.as_bytes(), after.as_bytes());
    }
}

#[test]
fn bodies_that_are_not_read_stay() {
    for kind in [Coded, Other] {
        let body = b"data: {\"model\":\"base\"}\n\n{\"model\":\"base\"}";
        check(kind, "p", body, body);
    }
}

/// Events of one form with `@` where the model is named, and `#` where their text is.
const FORMS: [&str; 7] = [
    "data: {\"id\":\"a\",\"model\":\"@\",\"choices\":[{\"delta\":{\"content\":\"#\"}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{\"content\":\"#\"}}],\"model\":\"@\"}\n\n",
    "data: {\"model\":\"@\",\"choices\":[{\"text\": \"#\"}],\"model\":\"@\"}\n\n",
    "data: {\"model\":\"@\",\"content\":\"x\",\"content\":\"#\"}\r\n\r\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"#\"}}\n\n",
    ": \"content\":\"#\"\ndata: {\"model\":\"@\"}\n\n",
    "data: {\"model\":\"\\\"content\":\"#\"}\n\n",
];

#[test]
fn events_of_one_form_are_renamed_as_if_they_were_read() {
    let name = PublicName::new("public");
    for form in FORMS {
        let mut reader = ResponseReader::new(EventStream);
        let mut plain = ResponseReader::new(EventStream);
        let mut out = Vec::new();
        for (number, part) in ["a", "b", "", " long text", "\\n", "c", "d", "e"]
            .iter()
            .enumerate()
        {
            let event = form.replace('#', part).replace('@', "base");
            let mut expected = form.replace('#', part).replace('@', "public");
            if form == FORMS[6] {
                expected = event.replace("\\\"content", "public");
            }
            let is_known = reader.events.passes_over(event.as_bytes());
            if number == 3 {
                assert_eq!(is_known, form != FORMS[2], "{form}");
            }
            let is_changed = reader.push_renaming(event.as_bytes(), &name, &mut out);
            assert_eq!(is_changed, event != expected, "{form}");
            if is_changed {
                assert_eq!(text(&out), expected);
            }
            plain.push(event.as_bytes());
            assert_eq!(reader.chunks(), plain.chunks(), "{form}");
        }
        assert_eq!(reader.finish(), plain.finish(), "{form}");
    }
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

/// The stupid twin: takes a whole object apart, and puts it together with other values.
fn renamed(object: &str, name: &str, is_outer: bool) -> String {
    let members: Members<'_> = serde_json::from_str(object).unwrap();
    let (mut result, mut done) = (String::new(), 0);
    for (key, value) in members.0 {
        let value = value.get();
        let begin = value.as_ptr() as usize - object.as_ptr() as usize;
        let new = match key.as_str() {
            "model" if value.starts_with('"') => serde_json::to_string(name).unwrap(),
            "message" | "response" if is_outer && value.starts_with('{') => {
                renamed(value, name, false)
            }
            _ => continue,
        };
        result.push_str(&object[done..begin]);
        result.push_str(&new);
        done = begin + value.len();
    }
    result + &object[done..]
}

const KEYS: [&str; 12] = [
    "model",
    "model",
    "m\\u006fdel",
    "message",
    "response",
    "choices",
    "usage",
    "error",
    "delta",
    "content",
    "type",
    "x",
];
const SCALARS: [&str; 10] = [
    "\"base\"",
    "\"\"",
    "\"b\\\"a\\\\\\u00e4\"",
    "\"\\ud83d\\ude00,\\\"model\\\":\\\"base\\\"\"",
    "\"\u{6a21}\u{1f600}\"",
    "null",
    "-1.5e3",
    "17",
    "true",
    "\"model\"",
];
const BLANKS: [&str; 6] = ["", "", "", " ", "\n", " \n\t"];

/// Writes a value, with blanks between its tokens; a line end is never in a string.
fn write_value(draws: &mut crate::Draws, depth: u32, out: &mut String) {
    let mut one_of = |of: &[&'static str]| of[draws.below(of.len() as u32) as usize];
    let blank = one_of(&BLANKS);
    match one_of(&["object", "object", "list", "scalar", "scalar"]) {
        kind @ ("object" | "list") if depth < 4 => {
            let [open, close] = if kind == "object" {
                ["{", "}"]
            } else {
                ["[", "]"]
            };
            out.push_str(open);
            for number in 0..draws.below(5) {
                if number > 0 {
                    out.push(',');
                }
                out.push_str(blank);
                if kind == "object" {
                    let key = KEYS[draws.below(KEYS.len() as u32) as usize];
                    out.push_str(&format!("\"{key}\"{blank}:"));
                }
                write_value(draws, depth + 1, out);
            }
            out.push_str(blank);
            out.push_str(close);
        }
        _ => out.push_str(SCALARS[draws.below(SCALARS.len() as u32) as usize]),
    }
}

fn object(draws: &mut crate::Draws) -> String {
    loop {
        let mut value = String::new();
        write_value(draws, 0, &mut value);
        if value.starts_with('{') {
            return value;
        }
    }
}

/// A body, and what it is to become.
fn body(draws: &mut crate::Draws, name: &str) -> (ResponseKind, String, String) {
    if draws.below(3) == 0 {
        let object = object(draws);
        let renamed = renamed(&object, name, true);
        return (Json, object, renamed);
    }
    let end = ["\n", "\r\n", "\r"][draws.below(3) as usize];
    let (mut before, mut after) = (String::new(), String::new());
    let known: Vec<String> = (0..2).map(|_| object(draws)).collect();
    for _ in 0..1 + draws.below(5) {
        let object = match draws.below(4) {
            0 => object(draws),
            which => known[which as usize / 2].clone(),
        };
        let around = [
            ("", ""),
            ("event: \"model\":\"base\"\n", ""),
            (": ping\n\n", ": {\"model\":\"base\"}\n"),
            ("", "\ndata: [DONE]\n\n"),
        ];
        let (above, below) = around[draws.below(4) as usize];
        let event = |object: &str| {
            let data = object.replace('\n', "\ndata:");
            format!("{above}data: {data}\n{below}\n").replace('\n', end)
        };
        before.push_str(&event(&object));
        after.push_str(&event(&renamed(&object, name, true)));
    }
    (EventStream, before, after)
}

#[test]
fn renaming_equals_that_of_the_stupid_twin_however_it_is_cut() {
    for seed in 0..1000 {
        let mut draws = crate::Draws::new(seed);
        let name = ["p", "a \"public\" \\ name", "\u{6a21}"][draws.below(3) as usize];
        let (kind, before, after) = body(&mut draws, name);
        let (passed, whole) = rename(kind, name, [before.as_bytes()]);
        assert_eq!(text(&passed), after, "seed {seed}");
        let mut reader = ResponseReader::new(kind);
        reader.push(before.as_bytes());
        assert_eq!(whole, reader.finish(), "seed {seed}");
        let mut chunks = Vec::new();
        let mut rest = before.as_bytes();
        while !rest.is_empty() {
            let longest = [4, 40, 400][draws.below(3) as usize];
            let (chunk, later) =
                rest.split_at(draws.below(longest).min(rest.len() as u32) as usize);
            chunks.push(chunk);
            rest = later;
        }
        let (passed, summary) = rename(kind, name, chunks);
        assert_eq!((text(&passed), summary), (after, whole), "seed {seed}, cut");
    }
}

#[test]
fn what_is_broken_is_renamed_the_same_however_it_is_cut() {
    for seed in 0..1000 {
        let mut draws = crate::Draws::new(seed);
        let (kind, before, _) = body(&mut draws, "p");
        let mut broken = before.into_bytes();
        for _ in 0..=draws.below(3) {
            let at = draws.below(broken.len() as u32) as usize;
            broken[at] = b"\"\\{}[],:\n\r\xff0u"[draws.below(13) as usize];
        }
        let (whole, summary) = rename(kind, "p", [broken.as_slice()]);
        let mut reader = ResponseReader::new(kind);
        reader.push(&broken);
        assert_eq!(summary, reader.finish(), "seed {seed}");
        for cut in [1, 2, 3, 7, 50] {
            let (passed, read) = rename(kind, "p", broken.chunks(cut));
            assert_eq!(text(&passed), text(&whole), "seed {seed}, by {cut}");
            assert_eq!(read, summary, "seed {seed}, by {cut}");
        }
    }
}
