//! What the APIs besides chat and completions make of a body.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

/// That bodies of one shape have the same prompts, with blocks.
#[track_caller]
fn check_alike(shape: Shape, bodies: &[String]) {
    let first = read(shape, &bodies[0]);
    assert!(!first.prompts[0].blocks.is_empty(), "{}", bodies[0]);
    for body in bodies {
        assert_eq!(read(shape, body).prompts, first.prompts, "{body}");
    }
}

/// That bodies of one shape share no block in their last place.
#[track_caller]
fn check_different(shape: Shape, bodies: &[String]) {
    let last = |body: &String| read(shape, body).prompts[0].blocks.last().copied();
    let mut seen: Vec<_> = bodies.iter().map(last).collect();
    assert!(seen.iter().all(Option::is_some), "each has a block");
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), bodies.len(), "{bodies:?}");
}

fn user(text: &str) -> String {
    format!("{{\"role\":\"user\",\"content\":{text}}}")
}

fn anthropic(system: &str, content: &str) -> String {
    format!("{{\"system\":{system},\"messages\":[{}]}}", user(content))
}

#[test]
fn a_system_text_is_the_same_in_blocks_and_without_the_billing_line() {
    let (text, question) = (long("be brief", 600), long("why", 300));
    let billing = r#"{"type":"text","text":"x-anthropic-billing-header: cch=1;"}"#;
    let block = format!("{{\"type\":\"text\",\"text\":{text},\"cache_control\":{{}}}}");
    let (head, tail) = text.split_at(100);
    let split = format!("[{{\"text\":{head}\"}},{{\"text\":\"{tail}}}]");
    check_alike(
        Shape::Messages,
        &[
            anthropic(&text, &question),
            anthropic(&format!("[{block}]"), &question),
            anthropic(&format!("[{billing},{block}]"), &question),
            anthropic(
                &format!("[{},{block}]", billing.replace('1', "2")),
                &question,
            ),
            anthropic(&split, &question),
        ],
    );
    check_different(
        Shape::Messages,
        &[
            anthropic(&text, &question),
            anthropic("\"x-anthropic-billing\"", &question),
            anthropic("\"x-anthropic-billinG-header\"", &question),
            anthropic("\"\"", &question),
        ],
    );
}

#[test]
fn every_block_of_the_anthropic_api_tells() {
    let content =
        |block: &str| format!("[{block},{{\"type\":\"text\",\"text\":{}}}]", long("", 300));
    let blocks = [
        r#"{"type":"thinking","thinking":"a","signature":"s"}"#,
        r#"{"type":"thinking","thinking":"b","signature":"s"}"#,
        r#"{"type":"tool_use","id":"1","name":"n","input":{"a":1}}"#,
        r#"{"type":"tool_use","id":"1","name":"n","input":{"a":2}}"#,
        r#"{"type":"tool_use","id":"1","name":"m","input":{"a":1}}"#,
        r#"{"type":"tool_result","tool_use_id":"1","content":"a"}"#,
        r#"{"type":"tool_result","tool_use_id":"2","content":"a"}"#,
        r#"{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"b"}]}"#,
        r#"{"type":"image","source":{"type":"base64","data":"AAAA"}}"#,
        r#"{"type":"image","source":{"type":"base64","data":"AAAB"}}"#,
        r#"{"type":"image","source":{"type":"url","url":"AAAC"}}"#,
        r#"{"type":"text","text":"a"}"#,
        r#"{"type":"redacted_thinking","data":"a"}"#,
    ];
    let bodies = blocks.map(|block| anthropic("\"s\"", &content(block)));
    check_different(Shape::Messages, &bodies);
    let result = |content: &str| {
        format!("{{\"type\":\"tool_result\",\"tool_use_id\":\"1\",\"content\":{content}}}")
    };
    check_alike(
        Shape::Messages,
        &[r#""a""#, r#"[{"type":"text","text":"a"}]"#, r#"["a"]"#]
            .map(|it| anthropic("\"s\"", &content(&result(it)))),
    );
}

#[test]
fn a_trailing_image_changes_the_end_and_not_the_beginning() {
    let body = |image: &str| {
        let image = format!("{{\"type\":\"image\",\"source\":{{\"data\":\"{image}\"}}}}");
        let text = |len| format!("{{\"type\":\"text\",\"text\":{}}}", long("", len));
        anthropic("\"s\"", &format!("[{},{image},{}]", text(600), text(200)))
    };
    let [one, other] = ["AAAA", "AAAB"].map(|it| read(Shape::Messages, body(it)));
    let (one, other) = (blocks(&one), blocks(&other));
    assert_eq!(one.len(), 1 + 6, "the system text closes its block");
    assert_eq!(one[..3], other[..3]);
    assert_ne!(one[3], other[3]);
    let last = |image: &str| {
        let image = format!("{{\"type\":\"image\",\"source\":{{\"data\":\"{image}\"}}}}");
        let body = anthropic("\"s\"", &format!("[{image}]"));
        blocks(&read(Shape::Messages, body)).to_vec()
    };
    assert_eq!((last("AAAA").len(), last("AAAB").len()), (4, 4));
    assert_ne!(last("AAAA")[3], last("AAAB")[3]);
}

#[test]
fn a_part_that_is_not_text_is_as_long_as_such_parts_usually_are() {
    for (part, tokens) in [
        (r#"{"image_url":{"url":"u"}}"#, 225),
        (r#"{"input_audio":{"data":"u"}}"#, 250),
        (r#"{"video_url":{"url":"u"}}"#, 4500),
        (r#"{"file":{"file_id":"u"}}"#, 225),
        (r#"{"image_url":null}"#, 0),
    ] {
        let body = format!(r#"{{"messages":[{{"content":[{part},{part}]}}]}}"#);
        let request = read(Shape::ChatCompletions, &body);
        let bytes = request.prompts.first().map(|it| it.bytes);
        assert_eq!(bytes, Some(2 * 4 * tokens), "{part}");
        // Two marks and a kind and a hash for each part, a mark between them and one at the end.
        let framing = if tokens == 0 { 0 } else { 2 * 10 };
        let bytes = 2 * 4 * tokens as usize + framing + 3;
        assert_eq!(blocks(&request).len(), bytes / BLOCK_BYTES, "{part}");
    }
}

#[test]
fn the_uuid_of_a_part_stands_for_what_it_leaves_out() {
    let body = |part: &str| format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}]}}"#);
    let image = |uuid: &str| {
        let padding = long("", 300);
        body(&format!(
            r#"{{"image_url":null,"uuid":{uuid}}},{{"text":{padding}}}"#
        ))
    };
    let bodies = ["\"a\"", "\"b\"", "null"].map(image);
    check_different(Shape::ChatCompletions, &bodies);
}

#[test]
fn the_input_of_a_response_is_a_message() {
    let text = long("tell me", 600);
    let item = user(&text);
    let parts = user(&format!("[{{\"type\":\"input_text\",\"text\":{text}}}]"));
    let typed = item.replace(
        "{\"role\"",
        "{\"type\":\"message\",\"id\":\"msg_1\",\"role\"",
    );
    let bodies = [
        text.clone(),
        format!("[{item}]"),
        format!("[{parts}]"),
        format!("[{typed}]"),
    ]
    .map(|input| format!("{{\"input\":{input},\"instructions\":\"x\"}}"));
    check_alike(Shape::Responses, &bodies);
    assert!(read(Shape::Responses, &bodies[0]).group.is_some());
    let body = |rest: &str| format!("{{\"input\":{text}{rest}}}");
    check_different(
        Shape::Responses,
        &[
            body(""),
            body(",\"instructions\":\"x\""),
            body(",\"instructions\":\"y\""),
            body(",\"previous_response_id\":\"x\""),
            body(",\"previous_response_id\":\"y\""),
            body(",\"conversation\":\"z\",\"previous_response_id\":null"),
            body(",\"conversation\":{\"id\":\"z\"}"),
            body(",\"tools\":[{}]"),
            body(",\"cache_salt\":\"x\""),
        ],
    );
}

#[test]
fn every_item_of_a_response_tells() {
    let items = [
        r#"{"type":"function_call","call_id":"1","name":"n","arguments":"{}"}"#,
        r#"{"type":"function_call","call_id":"1","name":"n","arguments":"{ }"}"#,
        r#"{"type":"function_call_output","call_id":"1","output":"{}"}"#,
        r#"{"type":"function_call_output","call_id":"1","output":[{"text":"x"}]}"#,
        r#"{"type":"reasoning","summary":[{"type":"summary_text","text":"x"}]}"#,
        r#"{"type":"message","role":"user","content":[{"image_url":"x"}]}"#,
        r#"{"type":"message","role":"user","content":[{"file_data":"x"}]}"#,
    ];
    for (shape, name) in [(Shape::Responses, "input"), (Shape::Conversations, "items")] {
        let end = user(&long("", 400));
        let bodies = items.map(|item| format!("{{\"{name}\":[{item},{end}]}}"));
        check_different(shape, &bodies);
    }
}

#[test]
fn the_query_stands_before_each_document() {
    for (shape, query, documents) in [
        (Shape::Rerank, "query", "documents"),
        (Shape::Score, "text_1", "text_2"),
        (Shape::Score, "queries", "documents"),
    ] {
        let body = |query_text: &str, first: &str| {
            let document = long("d", 300);
            format!("{{\"{documents}\":[{document},{first}],\"{query}\":{query_text}}}")
        };
        let request = read(shape, body("\"why\"", r#"{"text":"because"}"#));
        let bytes: Vec<_> = request.prompts.iter().map(|it| it.bytes).collect();
        assert_eq!(bytes, [303, 10]);
        check_different(
            shape,
            &["\"why\"", "\"how\"", "[\"w\",\"hy\"]"].map(|it| body(it, "\"x\"")),
        );
        for (query, first) in [("{\"content\":[]}", "\"x\""), ("\"why\"", "3")] {
            let request = read(shape, body(query, first));
            assert_eq!(request.faults, [RequestFault::PromptMixed]);
            assert_eq!(request.prompts, []);
        }
    }
}

#[test]
fn what_leaves_nothing_in_the_cache_has_no_blocks() {
    let text = long("", 900);
    for (shape, body) in [
        (
            Shape::ChatRender,
            format!("{{\"messages\":[{}]}}", user(&text)),
        ),
        (Shape::CompletionsRender, format!("{{\"prompt\":{text}}}")),
        (Shape::CountTokens, anthropic("\"s\"", &text)),
        (Shape::ImageGenerations, format!("{{\"prompt\":{text}}}")),
        (Shape::Tokenize, format!("{{\"prompt\":{text}}}")),
        (
            Shape::Tokenize,
            format!("{{\"messages\":[{}]}}", user(&text)),
        ),
    ] {
        let request = read(shape, body);
        assert!(900 <= request.prompts[0].bytes);
        assert!(request.prompts[0].blocks.is_empty());
        assert_eq!(request.group, None);
    }
}

#[test]
fn each_api_has_its_own_names() {
    let body = r#"{"max_tokens":1,"max_completion_tokens":2,"max_output_tokens":3,
        "sampling_params":{"max_tokens":4,"max_new_tokens":5},"cache_salt":"a","extra_key":"b"}"#;
    for (shape, cap, salt) in [
        (Shape::ChatCompletions, Some(2), "a"),
        (Shape::ChatRender, Some(2), "a"),
        (Shape::Completions, Some(1), "a"),
        (Shape::CountTokens, Some(1), "a"),
        (Shape::Embeddings, None, "a"),
        (Shape::Generate, Some(4), "a"),
        (Shape::Messages, Some(1), "a"),
        (Shape::Responses, Some(3), "a"),
        (Shape::SglangGenerate, Some(5), "b"),
    ] {
        let request = read(shape, body);
        assert_eq!(request.output_cap, cap, "{shape:?}");
        assert_eq!(request.cache_salt.as_deref(), Some(salt), "{shape:?}");
    }
}

#[test]
fn an_adapter_of_sglang_is_its_model() {
    let body = |adapter: &str| format!(r#"{{"text":{},{adapter}"x":1}}"#, long("a", 600));
    let bodies = ["", r#""lora_path":"a","#, r#""lora_path":"b","#].map(body);
    check_different(Shape::SglangGenerate, &bodies);
    let model = |shape| read(shape, &bodies[1]).model;
    assert_eq!(model(Shape::SglangGenerate).as_deref(), Some("a"));
    assert_eq!(model(Shape::Completions), None);
}

#[test]
fn a_name_without_a_value_does_not_hide_the_other_name() {
    for body in [
        r#"{"text":"abc","input_ids":null}"#,
        r#"{"input_ids":null,"text":"abc"}"#,
        r#"{"input_ids":[7],"text":"abc"}"#,
    ] {
        assert_eq!(
            read(Shape::SglangGenerate, body).prompts[0].bytes,
            3,
            "{body}"
        );
    }
    assert_eq!(
        read(Shape::Completions, r#"{"prompt":"abc","prompt":null}"#).prompts,
        []
    );
}

#[test]
fn an_image_among_token_ids_changes_the_blocks_from_its_place_on() {
    let ids = ["7"; 64 * 5].join(",");
    let body = |features: &str| format!("{{\"token_ids\":[{ids}],\"features\":{features}}}");
    let plain = read(Shape::Generate, body("null"));
    let image = |hash: &str, offset: usize| {
        read(
            Shape::Generate,
            body(&format!(
                "{{\"mm_placeholders\":{{\"image\":[{{\"length\":9,\"offset\":{offset}}}]}},\
                 \"mm_hashes\":{{\"image\":[\"{hash}\"]}}}}"
            )),
        )
    };
    for (offset, shared) in [
        (0, 0),
        (63, 0),
        (64, 1),
        (200, 3),
        (319, 4),
        (320, 5),
        (usize::MAX, 5),
    ] {
        let (one, other) = (image("a", offset), image("b", offset));
        let same = |other: &Request| {
            let pairs = blocks(&one).iter().zip(blocks(other));
            pairs.take_while(|(one, other)| one == other).count()
        };
        assert_eq!((same(&plain), same(&other)), (shared, shared), "{offset}");
        assert_eq!(same(&image("a", offset)), 5);
        assert_eq!(one.media.len(), 1);
    }
}

#[test]
fn images_beside_a_text_keep_it_apart() {
    let bodies = [
        "null",
        "\"a\"",
        "\"b\"",
        "[\"a\",\"b\"]",
        "[\"b\",\"a\"]",
        "[{\"url\":\"c\"}]",
    ];
    let bodies = bodies.map(|it| format!("{{\"text\":{},\"image_data\":{it}}}", long("", 300)));
    check_different(Shape::SglangGenerate, &bodies);
    let same = [bodies[1].clone(), bodies[1].replace("\"a\"", "[[\"a\"]]")];
    check_alike(Shape::SglangGenerate, &same);
}
