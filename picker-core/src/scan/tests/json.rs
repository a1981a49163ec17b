//! What is read from a body besides its prompts, and what bodies that are no JSON give.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

#[track_caller]
fn check_model(body: &str, expected: Option<&str>) {
    assert_eq!(chat(body).model.as_deref(), expected, "{body}");
}

#[test]
fn only_the_last_model_of_the_body_itself_counts() {
    for (body, model) in [
        (r#"{"model":"a"}"#, Some("a")),
        (r#"{"messages":[],"model":"a"}"#, Some("a")),
        (r#"{"model":"a","model":"b"}"#, Some("b")),
        (r#"{"model":"a","model":null}"#, None),
        (r#"{"model":"","x":1}"#, Some("")),
        (r#"{"metadata":{"model":"decoy"}}"#, None),
        (r#"{"model":"a","x":[{"model":"decoy"}]}"#, Some("a")),
        (
            r#"{"messages":[{"model":"decoy","content":"\"model\":\"decoy\""}]}"#,
            None,
        ),
        (
            r#"{"Model":"a","model ":"b","mode":"c","models":"d"}"#,
            None,
        ),
        (
            r#"{"a_key_longer_than_any_key_that_is_read_model":"a"}"#,
            None,
        ),
        (
            r#"{"mod\u0065l":"\u0061\/\"b\ud83d\ude00"}"#,
            Some("a/\"b\u{1F600}"),
        ),
        (r#"{"x":"\\","model":"a"}"#, Some("a")),
        (r#"{"x":"\\\"","model":"a"}"#, Some("a")),
        (" \r\n\t{ \"model\" : \"a\" } \n", Some("a")),
    ] {
        check_model(body, model);
        assert_eq!(chat(body).faults, [], "{body}");
    }
}

#[test]
fn a_model_that_is_no_text_is_absent_and_a_fault() {
    for body in [
        r#"{"model":{}}"#,
        r#"{"model":["a"]}"#,
        r#"{"model":5}"#,
        r#"{"model":true}"#,
        r#"{"model":"a","model":{"model":"b"}}"#,
    ] {
        check_model(body, None);
        assert_eq!(chat(body).faults, [RequestFault::ModelNotText], "{body}");
    }
}

#[test]
fn only_true_is_a_stream() {
    for (value, stream) in [
        ("true", true),
        ("false", false),
        ("null", false),
        ("\"true\"", false),
        ("1", false),
        ("[true]", false),
        ("{\"stream\":true}", false),
        ("true,\"stream\":null", false),
    ] {
        assert_eq!(
            chat(format!("{{\"stream\":{value}}}")).stream,
            stream,
            "{value}"
        );
    }
}

#[test]
fn an_output_cap_is_a_non_negative_integer() {
    for (value, cap) in [
        ("10", Some(10)),
        ("0", Some(0)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("123456789012345678901234567890", None),
        ("-1", None),
        ("-0", None),
        ("1e3", None),
        ("1.0", None),
        ("\"10\"", None),
        ("null", None),
        ("[10]", None),
        ("10,\"max_tokens\":null", None),
    ] {
        let body = format!("{{\"max_tokens\":{value}}}");
        assert_eq!(completion(&body).output_cap, cap, "{value}");
        assert_eq!(chat(&body).output_cap, cap, "{value}");
        assert_eq!(chat(&body).faults, [], "{value}");
    }
}

#[test]
fn the_newer_name_of_the_output_cap_wins_in_chat_only() {
    for body in [
        r#"{"max_tokens":1,"max_completion_tokens":2}"#,
        r#"{"max_completion_tokens":2,"max_tokens":1}"#,
    ] {
        assert_eq!(chat(body).output_cap, Some(2), "{body}");
        assert_eq!(completion(body).output_cap, Some(1), "{body}");
    }
    let body = r#"{"max_completion_tokens":null,"max_tokens":1}"#;
    assert_eq!(chat(body).output_cap, Some(1));
}

#[test]
fn unknown_members_and_null_change_nothing() {
    let body = r#"{"stream":null,"logprobs":null,"min_tokens":0,"max_tokens":null,"n":null,
        "stop":null,"context_management":{"edits":[{"a":[1,2.5e-3,{}]}]},"seed":1e400}"#;
    let expected = Request {
        shape: Some(ChatCompletions),
        ..Request::default()
    };
    assert_eq!(chat(body), expected);
}

/// What a body has to be refused for, or that it is fine.
#[track_caller]
fn check_fault(body: impl AsRef<[u8]>, fault: Option<RequestFault>) {
    let body = body.as_ref();
    let request = chat(body);
    let what = String::from_utf8_lossy(body);
    assert_eq!(request.faults.first().copied(), fault, "{what}");
    assert!(fault.is_none() || request.prompts.is_empty(), "{what}");
}

#[test]
fn a_body_that_is_no_object_is_not_read() {
    for (body, offset) in [
        ("[]", 0),
        ("\"x\"", 0),
        ("null", 0),
        ("[1,2,3]", 0),
        ("5", 0),
        ("x", 0),
        ("}", 0),
        (" tru", 1),
        ("\r\n[", 2),
        ("\u{FEFE}{}", 2),
    ] {
        check_fault(body, Some(RequestFault::NotAnObject { offset }));
    }
}

#[test]
fn a_body_that_ends_early_keeps_what_was_read() {
    for body in [
        "",
        " ",
        "{",
        "{\"model\":",
        "{\"model\":\"a",
        "{\"x\":tr",
        "{\"x\":1",
        "{\"x\"",
        "{\"x\":\"\\",
    ] {
        let offset = body.len() as u64;
        check_fault(body, Some(RequestFault::Truncated { offset }));
    }
    let request =
        chat(r#"{"model":"a","stream":true,"messages":[{"role":"user","content":"cut he"#);
    assert_eq!(request.model.as_deref(), Some("a"));
    assert!(request.stream);
    assert_eq!(chat(r#"{"model":"half of a na"#).model, None);
    assert_eq!(chat(r#"{"model":"a\nb\x"}"#).model, None);
    assert_eq!(request.prompts, []);
}

#[test]
fn a_fault_names_the_first_byte_that_cannot_be() {
    for (body, offset) in [
        ("{,", 1),
        ("{]", 1),
        ("{1:2}", 1),
        ("{\"a\" \"b\"}", 5),
        ("{\"a\":}", 5),
        ("{\"a\":1,}", 7),
        ("{\"a\":1 2}", 7),
        ("{\"a\":1]", 6),
        ("{\"a\":[1}", 7),
        ("{\"a\":[1,]}", 8),
        ("{\"a\":[,]}", 6),
        ("{\"a\":01}", 6),
        ("{\"a\":-01}", 7),
        ("{\"a\":1.}", 7),
        ("{\"a\":.5}", 5),
        ("{\"a\":+5}", 5),
        ("{\"a\":-}", 6),
        ("{\"a\":1e}", 7),
        ("{\"a\":1ee}", 7),
        ("{\"a\":tru }", 8),
        ("{\"a\":nul1}", 8),
        ("{\"a\":NaN}", 5),
        ("{\"a\":'b'}", 5),
        ("{\"a\":\"\\x\"}", 7),
        ("{\"a\":\"\\u12G4\"}", 10),
        ("{\"a\":[t,1]}", 7),
        ("{\"messages\":[1 2]}", 15),
        ("{\"tools\":[1 2]}", 12),
        ("{\"tools\":[tr ue]}", 12),
        ("{\"tools\":{\"a\":\"\\x\"}}", 16),
        ("{\"x\":\u{1}1}", 5),
    ] {
        check_fault(body, Some(RequestFault::Malformed { offset }));
    }
}

#[test]
fn nothing_but_blanks_may_follow_the_object() {
    check_fault("{}\r\n\t ", None);
    check_fault("{} {}", Some(RequestFault::TrailingBytes { offset: 3 }));
    check_fault("{}\0", Some(RequestFault::TrailingBytes { offset: 2 }));
    let request = chat(r#"{"model":"a","messages":[]}x"#);
    assert_eq!(request.model.as_deref(), Some("a"));
    assert_eq!(request.prompts, []);
}

#[test]
fn a_byte_order_mark_is_a_fault_and_the_model_is_read_all_the_same() {
    let request = chat("\u{FEFF}{\"model\":\"a\",\"messages\":[]}");
    assert_eq!(request.model.as_deref(), Some("a"));
    assert_eq!(request.faults, [RequestFault::ByteOrderMark]);
    assert_eq!(request.prompts, []);
}

#[test]
fn bytes_after_a_fault_are_counted() {
    let mut scanner = RequestScanner::new(ChatCompletions);
    for chunk in ["{\"model\":\"a\",", "]", "\"model\":\"b\"}"] {
        scanner.push(chunk.as_bytes());
    }
    assert_eq!(scanner.bytes(), 26);
    let megabyte = alloc::vec![b' '; 1 << 20];
    (0..4096).for_each(|_| scanner.push(&megabyte));
    assert_eq!(scanner.bytes(), 26 + (4 << 30), "where 32 bits end");
    assert_eq!(
        scanner.finish(HashSeed::new("")).model.as_deref(),
        Some("a")
    );
}

#[test]
fn faults_are_clauses_without_content_of_the_body() {
    for (body, text) in [
        ("{\"SECRET\":x", "the body is not JSON at byte 10"),
        ("{\"model\":[\"SECRET\"]}", "the model is not a string"),
        ("SECRET", "the body is not a JSON object at byte 0"),
    ] {
        let faults = chat(body).faults;
        let texts: Vec<_> = faults.iter().map(|fault| format!("{fault}")).collect();
        assert_eq!(texts.first().map(String::as_str), Some(text), "{body}");
    }
}
