use alloc::format;

use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// Reads `body` whole, byte by byte and cut in two at every place, which has to give the same.
#[track_caller]
fn read(kind: ResponseKind, body: impl AsRef<[u8]>) -> ResponseSummary {
    let body = body.as_ref();
    let read = |chunks: &[&[u8]]| {
        let mut reader = ResponseReader::new(kind);
        for chunk in chunks {
            reader.push(chunk);
        }
        reader.finish()
    };
    let whole = read(&[body]);
    let bytes: alloc::vec::Vec<_> = body.chunks(1).collect();
    assert_eq!(read(&bytes), whole, "byte by byte");
    for at in 0..body.len() {
        let (first, second) = body.split_at(at);
        assert_eq!(read(&[first, second]), whole, "cut at {at}");
    }
    whole
}

#[track_caller]
fn json(body: &str) -> ResponseSummary {
    read(ResponseKind::Json, body)
}

#[track_caller]
fn stream(body: &str) -> ResponseSummary {
    read(ResponseKind::EventStream, body)
}

fn usage(prompt: u64, cached: u64, output: u64) -> Usage {
    Usage {
        prompt: Some(prompt),
        cached: Some(cached),
        output: Some(output),
    }
}

#[test]
fn the_counts_of_the_anthropic_events_are_neither_lost_nor_added_twice() {
    let start = r#"data: {"type":"message_start","message":{"model":"m",
data: "usage":{"input_tokens":100,"cache_read_input_tokens":40,"output_tokens":1}}}

"#;
    for delta in [
        r#"{"output_tokens":7}"#,
        r#"{"input_tokens":100,"output_tokens":7}"#,
        r#"{"input_tokens":60,"cache_read_input_tokens":40,"output_tokens":7}"#,
    ] {
        let delta = format!("data: {{\"type\":\"message_delta\",\"usage\":{delta}}}\n\n");
        assert_eq!(stream(&format!("{start}{delta}")).usage, usage(100, 40, 7));
    }
    let split = start.replace("100", "20");
    assert_eq!(stream(&split).usage, usage(60, 40, 1));
}

#[test]
fn a_usage_that_is_not_at_its_place_does_not_count() {
    for decoy in [
        r#"{"x":{"usage":{"prompt_tokens":9}}}"#,
        r#"{"choices":[{"usage":{"prompt_tokens":9},"message":{"model":"no"}}]}"#,
        r#"{"choices":[{"message":{"content":"\",\"usage\":{\"prompt_tokens\":9}}"}}]}"#,
        r#"{"output":[{"usage":{"prompt_tokens":9},"model":"no"}]}"#,
        r#"{"content":[{"type":"tool_use","input":{"usage":{"input_tokens":9}}}]}"#,
        r#"{"usage":[{"prompt_tokens":9}],"usage":"prompt_tokens","model":{"model":"no"}}"#,
        r#"{"usage":{"prompt_tokens":"9","completion_tokens":-1,"total_tokens":1.5}}"#,
        r#"{"usage":{"other":{"prompt_tokens":9,"cached_tokens":9}}}"#,
    ] {
        let read = json(decoy);
        assert_eq!(
            (read.usage, read.model),
            (Usage::default(), None),
            "{decoy}"
        );
        assert!(read.ended);
    }
}

#[test]
fn the_data_of_several_lines_is_one_document() {
    for end in ["\n", "\r", "\r\n"] {
        let body = ["data: {\"model\":", "data:\"m\"", ": x", "data: }", "", ""].join(end);
        let read = stream(&body);
        assert_eq!(
            (read.model.as_deref(), read.events),
            (Some("m"), 1),
            "{end:?}"
        );
    }
}

#[test]
fn the_last_counts_win_and_null_is_none() {
    let read = stream(
        "data: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\n\
         data: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\
         \"prompt_tokens_details\":{\"cached_tokens\":2}}}\n\n\
         data: {\"usage\":null}\n\ndata:[DONE]\n\n",
    );
    assert_eq!(read.usage, usage(3, 2, 4));
    assert_eq!((read.events, read.chunks, read.ended), (3, 0, true));
}

#[test]
fn the_native_api_of_sglang_counts_in_its_meta_info() {
    let body = r#"{"text":"x","meta_info":{"id":"1","prompt_tokens":5,"completion_tokens":8,
        "cached_tokens":4,"finish_reason":{"type":"length","length":8}}}"#;
    for read in [
        json(body),
        stream(&format!("data: {}\n\n", body.replace('\n', ""))),
    ] {
        assert_eq!(read.usage, usage(5, 4, 8));
        assert_eq!(read.finish.as_deref(), Some("length"));
        assert!(read.ended);
    }
}

#[test]
fn streams_end_with_a_mark_or_a_last_event_or_a_reason() {
    let chunk = "data: {\"choices\":[{\"finish_reason\":null}]}\n\n";
    for (end, ended) in [
        ("", false),
        ("data: [DONE]\n\n", true),
        ("data:  [DONE]", true),
        ("data: [DONE", false),
        ("data: [\"DONE\"]\n\n", false),
        ("data: {\"type\":\"message_stop\"}\n\n", true),
        ("data: {\"type\":\"response.incomplete\"}\r\r", true),
        ("data: {\"type\":\"message_stop\"}", true),
        ("data: {\"type\":\"message_stop\"", false),
        (
            "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n",
            true,
        ),
        (
            "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: {\"usa",
            false,
        ),
    ] {
        assert_eq!(stream(&format!("{chunk}{end}")).ended, ended, "{end}");
    }
}

#[test]
fn errors_keep_their_code_and_their_type_and_no_message() {
    for (body, code, kind) in [
        (r#"{"error":"marker"}"#, None, None),
        (r#"{"error":null,"code":5}"#, None, None),
        (
            r#"{"error":{"type":"x y","code":400,"message":"marker"}}"#,
            Some(400),
            Some("x y"),
        ),
        (
            r#"{"error":{"type":"a\"marker","code":"429"}}"#,
            Some(429),
            None,
        ),
        (
            r#"{"error":{"code":"rate_limit","type":null}}"#,
            None,
            Some("rate_limit"),
        ),
        (
            r#"{"object":"error","type":"BadRequest","code":400}"#,
            Some(400),
            Some("BadRequest"),
        ),
        (
            r#"{"type":"error","error":{"type":"api_error"}}"#,
            None,
            Some("api_error"),
        ),
        (
            r#"{"error_type":"overloaded","error":"marker"}"#,
            None,
            Some("overloaded"),
        ),
        (r#"{"detail":[{"msg":"marker"}]}"#, None, None),
    ] {
        let error = json(body).error;
        let is_error = !body.contains("null,\"code");
        assert_eq!(error.is_some(), is_error, "{body}");
        let error = error.unwrap_or_default();
        assert_eq!((error.code, error.kind.as_deref()), (code, kind), "{body}");
    }
    assert_eq!(
        json(r#"{"choices":[{"finish_reason":"a\nb"}]}"#).finish,
        None
    );
}

#[test]
fn what_cannot_be_read_is_passed_over() {
    let good = "data: {\"model\":\"m\",\"usage\":{\"prompt_tokens\":3}}\n\n";
    for bad in [
        "{",
        "[",
        "\"",
        "nul",
        "{\"error\":\"x\",",
        "{\"a\":}",
        "{\"a\":[}]}",
        "\u{FEFF}{}",
        "{}{}",
        "\u{C}{\"model\":\"x\"}",
        "x{\"error\":1}",
    ] {
        let read = stream(&format!("data: {bad}\n\n{good}"));
        assert_eq!(read.model.as_deref(), Some("m"), "{bad}");
        assert_eq!(
            (read.usage.prompt, read.events, read.error),
            (Some(3), 2, None),
            "{bad}"
        );
    }
    let deep = format!("{}{}", "[".repeat(2000), "]".repeat(2000));
    for skipped in [&deep, r#"["]\"]}\\",[{}]]"#, r#"{"}\"":{}}"#, r#""\"\\""#] {
        let read = json(&format!("{{\"a\":{skipped},\"model\":\"m\"}}"));
        assert_eq!(read.model.as_deref(), Some("m"), "{skipped}");
    }
    assert!(json("").ended);
    assert!(!json("{\"model\":\"m\"").ended);
    assert!(!stream("").ended);
}

#[test]
fn a_model_has_a_limit() {
    for (len, known) in [(1024, true), (1025, false)] {
        let model = "m".repeat(len);
        assert_eq!(
            json(&format!("{{\"model\":\"{model}\"}}")).model.is_some(),
            known
        );
    }
}

#[test]
fn only_plain_bodies_of_two_types_are_read() {
    use ResponseKind::{Coded, EventStream, Json, Other};
    for (content_type, encoding, kind) in [
        (Some("application/json"), None, Json),
        (
            Some("Application/JSON ; charset=utf-8"),
            Some("identity"),
            Json,
        ),
        (Some("text/event-stream;charset=utf-8"), None, EventStream),
        (Some("text/event-stream"), Some("gzip"), Coded),
        (Some("application/json"), Some("br"), Coded),
        (None, Some("zstd"), Coded),
        (Some("audio/mpeg"), None, Other),
        (None, None, Other),
    ] {
        assert_eq!(ResponseKind::of_headers(content_type, encoding), kind);
    }
    for kind in [Coded, Other] {
        assert!(!ResponseReader::new(kind).is_wanted());
        assert_eq!(
            read(kind, "{\"model\":\"m\"}"),
            ResponseSummary {
                ended: true,
                ..Default::default()
            }
        );
    }
}

/// Events of the APIs, with `@` where their text is, and others between them.
const EVENTS: [&str; 12] = [
    "data: {\"id\":\"a\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"@\"},\"finish_reason\":null}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"@\"},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"choices\":[{\"text\": \"@\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\r\n\r\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"@\"}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"@\"}}\n\n",
    "data: {\"text\":\"@\",\"meta_info\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n",
    "data: {\"type\":\"@\",\"delta\":{\"text\":\"x\"}}\n\n",
    "data: {\"choices\":[{\"finish_reason\":\"@\",\"text\":\"x\"}]}\n\n",
    "data: {\"content\":\"@\",\"error\":{\"type\":\"x\",\"code\":500}}\n\n",
    ": @\n\n",
    "data: {\"text\":\"@\"\n\n",
    "data: [DONE]\n\n",
];

const TEXTS: [&[u8]; 13] = [
    b" tide",
    b"\\",
    b"\\\\\\\"\\/",
    b"\\x",
    b"",
    b"\\\"",
    b"\\u00e4\\n",
    "\u{e4}\u{1f600}".as_bytes(),
    b"\xff\xfe",
    b"\",\"usage\":{\"prompt_tokens\":1},\"x\":\"",
    b"\n",
    b"stop",
    b"message_stop",
];

#[test]
fn an_event_that_is_passed_over_changes_what_reading_it_would() {
    for seed in 0..3000 {
        let mut draws = crate::Draws::new(seed);
        let (mut whole, mut bytewise) = (
            ResponseReader::new(ResponseKind::EventStream),
            ResponseReader::new(ResponseKind::EventStream),
        );
        let mut form = EVENTS[0];
        for _ in 0..12 {
            if draws.below(3) == 0 {
                form = EVENTS[draws.below(EVENTS.len() as u32) as usize];
            }
            let text = TEXTS[draws.below(TEXTS.len() as u32) as usize];
            let mut event = alloc::vec::Vec::new();
            for byte in form.bytes() {
                match byte {
                    b'@' => event.extend_from_slice(text),
                    byte => event.push(byte),
                }
            }
            // Now and then what comes at once is no whole event.
            let cut = match draws.below(4) {
                0 => draws.below(event.len() as u32) as usize,
                _ => event.len(),
            };
            whole.push(&event[..cut]);
            whole.push(&event[cut..]);
            event.chunks(1).for_each(|byte| bytewise.push(byte));
            assert_eq!(whole.chunks(), bytewise.chunks(), "seed {seed}");
        }
        assert_eq!(whole.finish(), bytewise.finish(), "seed {seed}");
    }
}

#[test]
fn events_of_one_form_are_passed_over_once_it_is_known() {
    let mut reader = ResponseReader::new(ResponseKind::EventStream);
    let event = |text: &str| EVENTS[0].replace('@', text);
    let passes = |reader: &ResponseReader, text: &str| {
        let event = event(text);
        reader.events.passes_over(event.as_bytes())
    };
    reader.push(event("a").as_bytes());
    assert!(!passes(&reader, "b"), "the first begins the stream");
    reader.push(event("b").as_bytes());
    for text in [
        "",
        " c",
        &"long ".repeat(500),
        "\\n",
        "\\\"a\\\\",
        "\\t\\\\\\\"",
    ] {
        assert!(passes(&reader, text), "{text}");
    }
    for text in [
        "\"", "\u{1}", "\\", "a\\", "\\u00e4", "\\x", "\\\\\\", "\\\\\"",
    ] {
        assert!(!passes(&reader, text), "{text}");
    }
    reader.push(b"data: {");
    assert!(!passes(&reader, "c"), "inside of another event");
    let long = event(&"x".repeat(2000));
    let mut reader = ResponseReader::new(ResponseKind::EventStream);
    reader.push(b"\n");
    reader.push(long.as_bytes());
    assert!(
        !reader.events.passes_over(long.as_bytes()),
        "too long to keep"
    );
}

#[test]
fn blanks_before_the_end_mark_do_not_hide_it_however_it_is_cut() {
    for blanks in ["", " ", "\t", "  \t\t\t ", "                    "] {
        let read = stream(&format!("data:{blanks}[DONE]\n\n"));
        assert_eq!((read.events, read.ended), (0, true), "{blanks:?}");
    }
}
