//! Forms with a file.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

/// Reads `body` whole, byte by byte and cut in two at every place, which has to give the same.
#[track_caller]
fn form(body: impl AsRef<[u8]>) -> Request {
    let body = body.as_ref();
    let whole = read(Shape::Transcriptions, body);
    for at in 0..body.len() {
        let (first, second) = body.split_at(at);
        assert_eq!(
            scan(Shape::Transcriptions, [first, second]),
            whole,
            "cut at {at}"
        );
    }
    whole
}

fn part(head: &str, body: &str) -> String {
    format!("--X\r\nContent-Disposition: form-data; {head}\r\n\r\n{body}\r\n")
}

fn model(body: &str) -> Option<String> {
    let request = form(body);
    assert_eq!(request.faults, [], "{body}");
    request.model
}

#[test]
fn the_recorded_form_is_read() {
    let body = include_bytes!("../../../../tests/fixtures/requests/transcription-01.multipart");
    let request = form(body);
    assert_eq!(request.model.as_deref(), Some("openai/whisper-large-v3"));
    assert_eq!((request.stream, request.faults.len()), (true, 0));
    assert_eq!(request.shape, Some(Shape::Transcriptions));
}

#[test]
fn the_model_may_stand_anywhere_and_the_last_one_counts() {
    let file = part(
        "name=\"file\"; filename=\"a.wav\"",
        "RIFF\r\n--\r\n--Y\r\r\n\r\n-\n--X",
    );
    let (one, other) = (part("name=\"model\"", "m"), part("name=model", "n"));
    for (parts, found) in [
        (alloc::vec![&one, &file], Some("m")),
        (alloc::vec![&file, &one], Some("m")),
        (alloc::vec![&file, &other], Some("n")),
        (alloc::vec![&one, &file, &other], Some("n")),
        (alloc::vec![&file], None),
    ] {
        let body: String = parts.into_iter().map(String::as_str).collect();
        for end in ["--X--", "--X--\r\n", "--X--\r\nname=\"model\"\r\n\r\nno"] {
            assert_eq!(model(&format!("{body}{end}")).as_deref(), found, "{body}");
        }
    }
}

#[test]
fn a_name_is_a_parameter_and_not_a_text_like_one() {
    for (head, is_model) in [
        ("name=\"model\"", true),
        ("NAME = model ; filename=x", true),
        ("filename=\"a;b\\\"\"; name=\"model\"", true),
        ("filename=\"; name=model\"", false),
        ("filename=\"\\\"; name=model\"; name=\"x\"", false),
        ("name=\"models\"", false),
        ("name=\"Model\"", false),
        ("name=\"model", false),
        ("filename*=UTF-8''name=model", false),
        ("x", false),
    ] {
        let body = part(head, "m") + "--X--";
        assert_eq!(model(&body).is_some(), is_model, "{head}");
    }
    let other_header = "--X\r\nX-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--X--";
    assert_eq!(model(other_header), None);
}

#[test]
fn a_part_may_be_empty_or_look_like_a_delimiter() {
    for (text, found) in [
        ("", ""),
        ("\r\n", "\r\n"),
        ("--X", ""),
        ("\r\n--", "\r\n--"),
        ("\r\r", "\r\r"),
    ] {
        let body = part("name=\"model\"", text) + "--X--\r\n";
        assert_eq!(form(&body).model.as_deref(), Some(found), "{text:?}");
    }
    let shared = "--X\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n--X--\r\n";
    assert_eq!(model(shared).as_deref(), Some(""));
}

#[test]
fn a_line_that_only_begins_like_a_delimiter_is_a_fault() {
    let model = part("name=\"model\"", "m");
    for (line, is_delimiter) in [
        ("--X", true),
        ("--X \t", true),
        ("--XY", false),
        ("--X -", false),
    ] {
        let body = format!("{model}{line}\r\n\r\n\r\n--X--");
        let request = form(&body);
        let offset = (model.len() + line.len() + 2) as u64;
        let fault = (!is_delimiter).then_some(RequestFault::NotAForm { offset });
        assert_eq!(request.faults, Vec::from_iter(fault), "{line:?}");
    }
}

#[test]
fn half_a_form_is_a_fault() {
    let body = part("name=\"model\"", "m") + "--X--";
    for at in 0..body.len() {
        let request = form(&body[..at]);
        let offset = at as u64;
        assert_eq!(request.faults, [RequestFault::Truncated { offset }], "{at}");
        assert!(request.model.is_none_or(|model| model == "m"), "{at}");
    }
    for (body, offset) in [("{\"model\":\"m\"}\r\n", 15), ("--\r\n", 4), ("x\ny", 2)] {
        let faults = form(body).faults;
        assert_eq!(faults, [RequestFault::NotAForm { offset }], "{body}");
    }
    let long = format!("--{}\r\n", "b".repeat(71));
    assert!(matches!(
        form(long).faults[..],
        [RequestFault::NotAForm { .. }]
    ));
}

#[test]
fn a_long_model_is_a_fault() {
    let body = part("name=\"model\"", &"m".repeat(MODEL_BYTES_MAX + 1)) + "--X--";
    assert_eq!(
        read(Shape::Transcriptions, body).faults,
        [RequestFault::ModelUnusable]
    );
}
