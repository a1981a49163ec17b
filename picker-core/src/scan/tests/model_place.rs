//! Bodies whose model gets another name.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::generate::{self, Draw, any, blank, mutate, spell};
use super::*;
use crate::scan::naive;

/// A scanner that has read `chunks`.
fn scanned<'a>(shape: Shape, chunks: impl IntoIterator<Item = &'a [u8]>) -> RequestScanner {
    let mut scanner = RequestScanner::new(shape);
    for chunk in chunks {
        scanner.push(chunk);
    }
    scanner
}

/// The body with its model called `name`; `None` when there is no place for it. The place is the
/// same for every cut, and what is read of the new body is what the old one is taken for.
#[track_caller]
fn renamed(shape: Shape, body: &[u8], name: &str) -> Option<Result<Vec<u8>, RenameFault>> {
    let mut whole = scanned(shape, [body]);
    let place = whole.model_place().cloned();
    // Every cut of short bodies, some of long ones.
    let stride = 1 + body.len() / 50;
    for at in (0..=body.len()).step_by(stride) {
        let (first, second) = body.split_at(at);
        let cut = scanned(shape, [first, second]);
        assert_eq!(cut.model_place(), place.as_ref(), "cut at {at}");
    }
    let cut = scanned(shape, body.chunks(1));
    assert_eq!(cut.model_place(), place.as_ref(), "byte by byte");
    assert_eq!(cut.model(), whole.model());
    let seed = HashSeed::new("pool");
    let mut renamed = body.to_vec();
    let result = place?.rename(&mut renamed, name);
    assert!(result.is_ok() || renamed == body, "it is left as it was");
    let result = result.map(|()| renamed);
    if let Ok(renamed) = &result {
        let again = scanned(shape, [renamed.as_slice()]);
        assert_eq!(again.model(), Some(name));
        whole.rename_model(name);
        assert_eq!(whole.model(), Some(name));
        assert_eq!(again.finish(seed), whole.finish(seed), "read again");
    }
    Some(result)
}

#[track_caller]
fn check(shape: Shape, body: &str, name: &str, expected: &str) {
    let renamed = renamed(shape, body.as_bytes(), name).unwrap().unwrap();
    assert_eq!(String::from_utf8(renamed).unwrap(), expected, "{body}");
}

#[test]
fn only_the_bytes_of_the_value_change() {
    for (body, expected) in [
        (
            r#"{"model":"alias","prompt":"hi","seed":9007199254740993,"x":0.1000,"y":1E400}"#,
            r#"{"model":"base","prompt":"hi","seed":9007199254740993,"x":0.1000,"y":1E400}"#,
        ),
        (
            "{\r\n  \"prompt\" : \"\\u0068i\" ,\n\t\"model\" : \"alias\"\n , \"x\":[1, 2]\n}\n",
            "{\r\n  \"prompt\" : \"\\u0068i\" ,\n\t\"model\" : \"base\"\n , \"x\":[1, 2]\n}\n",
        ),
        (r#"{"model":"alias"}"#, r#"{"model":"base"}"#),
        (r#"{"mod\u0065l":"alias" }"#, r#"{"mod\u0065l":"base" }"#),
        (
            r#"{"m\u006fdel":"a\"},\\","x":1}"#,
            r#"{"m\u006fdel":"base","x":1}"#,
        ),
        (
            r#"{"x":{"model":"a"},"model":"alias","y":[{"model":"b"}]}"#,
            r#"{"x":{"model":"a"},"model":"base","y":[{"model":"b"}]}"#,
        ),
        (
            r#"{"models":"a","Model":"b","model":"c"}"#,
            r#"{"models":"a","Model":"b","model":"base"}"#,
        ),
        (
            r#"{"messages":[{"content":"}{,\"model\":\"x\""}],"model":"a"}"#,
            r#"{"messages":[{"content":"}{,\"model\":\"x\""}],"model":"base"}"#,
        ),
    ] {
        check(Completions, body, "base", expected);
        check(ChatCompletions, body, "base", expected);
    }
}

#[test]
fn a_name_may_be_longer_or_shorter_or_as_long() {
    let body = |name: &str| format!("{{\n  \"model\": \"{name}\",\n  \"prompt\": \"hi\"\n}}");
    for name in [
        "a-name-that-is-longer-than-the-one-before",
        "other",
        "s",
        "",
    ] {
        check(Completions, &body("alias"), name, &body(name));
    }
    check(Completions, &body("alias"), "漢/é😀", &body("漢/é😀"));
    check(
        Completions,
        &body("alias"),
        "a\"b\\c\n\u{1f}\u{7f}",
        &body("a\\\"b\\\\c\\u000a\\u001f\u{7f}"),
    );
}

#[test]
fn tools_keep_the_order_of_their_keys() {
    let tool = |number| {
        format!(
            "{{\"function\": {{\"name\":\"f{number}\",\"parameters\":\
             {{\"type\":\"object\",\"required\":[\"b\",\"a\"],\"properties\":{{\"b\":{{}}, \"a\":{{}}}}}}}}}}"
        )
    };
    let tools = (0..30).map(tool).collect::<Vec<_>>().join(",\n");
    let body = |name| format!("{{\"messages\":[],\"tools\":[{tools}],\"model\":\"{name}\"}}");
    check(ChatCompletions, &body("alias"), "base", &body("base"));
}

#[test]
fn a_model_that_is_missing_is_put_first() {
    for (body, expected) in [
        ("{}", r#"{"model":"base"}"#),
        ("{ }", r#"{"model":"base" }"#),
        (" {\n}\n", " {\"model\":\"base\"\n}\n"),
        (
            r#"{"messages":[{"role":"user","content":"hi"}]}"#,
            r#"{"model":"base","messages":[{"role":"user","content":"hi"}]}"#,
        ),
        (
            "{\n  \"x\": {\"model\":\"a\"}\n}",
            "{\"model\":\"base\",\n  \"x\": {\"model\":\"a\"}\n}",
        ),
    ] {
        check(ChatCompletions, body, "base", expected);
    }
}

#[test]
fn a_model_that_is_no_text_is_replaced() {
    for value in [
        "null",
        "5",
        "-1.5e+7",
        "true",
        "{}",
        "{\"a\" : [\"}\", 1]}",
        "[ \"a\" , \"b\" ]",
        "\"\"",
    ] {
        let body = |value: &str| {
            [
                format!("{{\"model\":{value}}}"),
                format!("{{ \"x\":1 , \"model\" : {value} ,\n\"y\":2 }}"),
            ]
        };
        for (body, expected) in body(value).iter().zip(body("\"base\"")) {
            check(ChatCompletions, body, "base", &expected);
        }
    }
}

#[test]
fn of_several_models_the_last_one_stays() {
    for (body, expected) in [
        (r#"{"model":"a","model":"b"}"#, r#"{"model":"base"}"#),
        (
            r#"{ "model":"a" , "x":1, "mod\u0065l":null,"y":2,"model":["b"] }"#,
            r#"{ "x":1, "y":2,"model":"base" }"#,
        ),
        (
            r#"{"model":"a","model":"b","x":1}"#,
            r#"{"model":"base","x":1}"#,
        ),
    ] {
        check(ChatCompletions, body, "base", expected);
    }
}

#[test]
fn so_many_models_are_remembered() {
    for (shape, many) in [
        (ChatCompletions, many_members as fn(usize) -> String),
        (Shape::Transcriptions, many_parts),
    ] {
        for (count, expected) in [
            (MODELS_MAX, Ok(many(1))),
            (MODELS_MAX + 1, Err(RenameFault::TooManyModels)),
            (MODELS_MAX + 100, Err(RenameFault::TooManyModels)),
        ] {
            let result = renamed(shape, many(count).as_bytes(), "base").unwrap();
            let result = result.map(|it| String::from_utf8(it).unwrap());
            let expected = expected.map(|it| it.replace("alias", "base"));
            assert_eq!(result, expected, "{count} of {shape:?}");
        }
    }
}

fn many_members(count: usize) -> String {
    format!(
        "{{{}}}",
        alloc::vec!["\"model\":\"alias\""; count].join(",")
    )
}

fn many_parts(count: usize) -> String {
    part("model", "alias").repeat(count) + "--X--\r\n"
}

#[test]
fn a_body_that_was_not_read_to_its_end_has_no_place() {
    let body = r#"{"model":"a","x":[{}]}"#;
    for at in 0..body.len() {
        assert_eq!(renamed(ChatCompletions, &body.as_bytes()[..at], "b"), None);
    }
    for body in [
        "",
        "[]",
        "null",
        "\"model\"",
        "{\"model\":\"a\"}x",
        "{\"model\":\"a\",}",
        "{\"model\":\"\\x\"}",
        "\u{FEFF}{\"model\":\"a\"}",
    ] {
        assert_eq!(renamed(ChatCompletions, body.as_bytes(), "b"), None);
    }
    let form = part("model", "a") + "--X--";
    for at in 0..form.len() {
        let body = &form.as_bytes()[..at];
        assert_eq!(renamed(Shape::Transcriptions, body, "b"), None, "{at}");
    }
}

#[test]
fn a_place_of_another_body_is_refused() {
    for (shape, body, others) in [
        (
            ChatCompletions,
            r#"{"x":1,"model":"a"}"#.into(),
            [
                "",
                "{\"x\":1",
                "{\"x\":1,'model':'a'}",
                "{\"x\":1,\"model\":",
            ]
            .as_slice(),
        ),
        (
            Shape::Transcriptions,
            part("x", "") + &part("model", "a") + "--X--",
            &["", "--X", &"a".repeat(200)],
        ),
    ] {
        let scanner = scanned(shape, [body.as_bytes()]);
        let place = scanner.model_place().unwrap();
        assert!(place.rename(&mut body.clone().into_bytes(), "b").is_ok());
        for other in others {
            let result = place.rename(&mut other.as_bytes().to_vec(), "b");
            assert_eq!(result, Err(RenameFault::OtherBody), "{other}");
        }
    }
}

#[test]
fn every_api_has_a_model() {
    for shape in Shape::ALL {
        let name = if shape == Shape::Transcriptions {
            let body = part("model", "alias") + "--X--\r\n";
            check(shape, &body, "base", &body.replace("alias", "base"));
            continue;
        } else if shape == Shape::SglangGenerate {
            "lora_path"
        } else {
            "model"
        };
        let body = |model| format!("{{\"{name}\":\"{model}\",\"messages\":[],\"prompt\":\"hi\"}}");
        check(shape, &body("alias"), "base", &body("base"));
    }
}

#[test]
fn a_member_under_the_other_key_of_an_api_stays() {
    for (body, expected) in [
        (
            r#"{"model":"m","lora_path":"a"}"#,
            r#"{"model":"m","lora_path":"base"}"#,
        ),
        (
            r#"{"lora_path":"a","model":"m"}"#,
            r#"{"lora_path":"a","model":"base"}"#,
        ),
        (
            r#"{"model":"l","lora_path":"a","lora_path":"b","x":1}"#,
            r#"{"model":"l","lora_path":"base","x":1}"#,
        ),
        (r#"{"text":"hi"}"#, r#"{"model":"base","text":"hi"}"#),
    ] {
        check(Shape::SglangGenerate, body, "base", expected);
    }
}

fn part(name: &str, body: &str) -> String {
    format!("--X\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{body}\r\n")
}

#[track_caller]
fn check_form(body: &str, expected: &str) {
    for end in ["--X--", "--X--\r\n", "--X--\r\nepilogue"] {
        let (body, expected) = (format!("{body}{end}"), format!("{expected}{end}"));
        check(Shape::Transcriptions, &body, "base", &expected);
    }
}

#[test]
fn the_model_of_a_form_is_replaced_wherever_it_stands() {
    let file = part(
        "file\"; filename=\"a.wav",
        "RIFF\r\n--\r\n--Y\r\r\n\r\n-\n--X",
    );
    let (model, base) = (part("model", "alias"), part("model", "base"));
    let unquoted = "--X \t\r\ncontent-disposition:form-data;name=model\n\nalias\r\n";
    for (body, expected) in [
        (format!("{model}{file}"), format!("{base}{file}")),
        (format!("{file}{model}"), format!("{file}{base}")),
        (
            format!("\r\n{file}{unquoted}"),
            format!("\r\n{file}{}", unquoted.replace("alias", "base")),
        ),
        (
            format!("{model}{file}{unquoted}{model}{file}"),
            format!("{file}{base}{file}"),
        ),
        (
            format!("{file}{}", part("model", "")),
            format!("{file}{base}"),
        ),
        (
            format!("{file}{}", part("model", "a\r\n--\r\n\r\n")),
            format!("{file}{base}"),
        ),
        (file.clone(), format!("{base}{file}")),
        (format!("\r\n{file}"), format!("\r\n{base}{file}")),
    ] {
        check_form(&body, &expected);
    }
}

#[test]
fn an_empty_part_may_share_the_line_end_of_its_head() {
    let head = "--X\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n";
    let other = part("x", "1");
    check_form(&format!("{other}{head}"), &format!("{other}{head}base\r\n"));
    check_form(
        &format!("{head}{other}{head}{other}"),
        &format!("{other}{head}base\r\n{other}"),
    );
}

#[test]
fn a_head_may_be_longer_than_what_is_read_of_it() {
    let head = |name: &str| {
        let long = format!("X-Long: {}", "x".repeat(2000));
        let blank = " ".repeat(2000);
        format!(
            "--X\r\n{long}\r\nContent-Disposition: form-data; name=model\r\n{blank}y\r\n{name}\r\n"
        )
    };
    check_form(&head("alias"), &head("base"));
}

#[test]
fn a_name_that_would_end_its_part_is_refused() {
    let bodies = [part("model", "a") + "--X--", part("x", "a") + "--X--"];
    for body in &bodies {
        for name in ["a\r\nb", "a\n", "\r", "--X", "a--Xb"] {
            let result = renamed(Shape::Transcriptions, body.as_bytes(), name);
            assert_eq!(result, Some(Err(RenameFault::UnusableName)), "{name:?}");
        }
        for name in ["--Y", "-X", "a/b:c; d=\"e\""] {
            let result = renamed(Shape::Transcriptions, body.as_bytes(), name);
            assert!(matches!(result, Some(Ok(_))), "{name:?}");
        }
    }
}

#[test]
fn the_recorded_form_is_renamed() {
    let body: &[u8] =
        include_bytes!("../../../../tests/fixtures/requests/transcription-01.multipart");
    let result = renamed(Shape::Transcriptions, body, "w").unwrap().unwrap();
    let name = b"openai/whisper-large-v3";
    let at = body.windows(name.len()).position(|it| it == name).unwrap();
    let expected = [&body[..at], b"w", &body[at + name.len()..]].concat();
    assert!(result == expected);
}

#[test]
fn generated_bodies_are_renamed_like_by_their_twin() {
    let mut repeated = 0;
    for seed in 0..300 {
        let mut draw = Draw::new(seed);
        let (shape, mut body) = generate::body(&mut draw);
        let is_empty = body[1..].trim_ascii_start().starts_with('}');
        for _ in 0..draw.below(6).saturating_sub(2) {
            let key = if draw.chance(9) { "lora_path" } else { "model" };
            let (key, value) = (spell(&mut draw, key), any(&mut draw, 2));
            let blanks = [(); 4].map(|()| blank(&mut draw));
            let [a, b, c, d] = blanks;
            if !is_empty {
                body.insert_str(1, &format!("{a}{key}{b}:{c}{value}{d},"));
                repeated += 1;
            }
        }
        let name = ["b", "base", "org/a-name-that-is-a-little-longer"][draw.below(3)];
        let expected = naive::rename(shape, &body, name).unwrap();
        let result = renamed(shape, body.as_bytes(), name).unwrap().unwrap();
        let result = String::from_utf8(result).unwrap();
        assert_eq!(result, expected, "seed {seed}, body {body}");
    }
    assert!(150 < repeated, "{repeated} models were added");
}

#[test]
fn damaged_bodies_are_renamed_or_have_no_place() {
    for seed in 0..300 {
        let mut draw = Draw::new(seed);
        let (shape, body) = generate::body(&mut draw);
        let body = mutate(body.into_bytes(), &mut draw);
        // What holds of them is tried in there.
        let _ = renamed(shape, &body, "base");
        let form = part("x", "1") + &part("model", "alias") + &part("y", "") + "--X--\r\n";
        let form = mutate(form.into_bytes(), &mut draw);
        let _ = renamed(Shape::Transcriptions, &form, "base");
    }
}
