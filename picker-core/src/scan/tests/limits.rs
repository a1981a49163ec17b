//! Each limit at it and one past it.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;
use crate::json::lexer::NESTING_MAX;
use crate::request::MEDIA_MAX;

#[test]
fn a_body_may_be_nested_to_the_limit_and_not_deeper() {
    let nested = |depth: u32| {
        let lists = depth as usize - 1;
        format!("{{\"x\":{}{}}}", "[".repeat(lists), "]".repeat(lists))
    };
    assert_eq!(chat(nested(NESTING_MAX)).faults, []);
    // The object and `"x":` are six bytes; a bracket more than fits stands after the others.
    let offset = u64::from(NESTING_MAX) + 4;
    assert_eq!(
        chat(nested(NESTING_MAX + 1)).faults,
        [RequestFault::TooDeep { offset }]
    );
    let bomb = format!("{{\"model\":\"a\",\"x\":{}", "[".repeat(10_000));
    assert_eq!(chat(bomb).model.as_deref(), Some("a"));
    assert_eq!(
        chat("[".repeat(10_000)).faults,
        [RequestFault::NotAnObject { offset: 0 }]
    );
}

#[test]
fn a_model_name_may_have_so_many_bytes() {
    let body = |len| format!("{{\"messages\":[],\"model\":{}}}", long("", len));
    let request = chat(body(MODEL_BYTES_MAX));
    assert_eq!(request.model.map(|it| it.len()), Some(MODEL_BYTES_MAX));
    let request = chat(body(MODEL_BYTES_MAX + 1));
    assert_eq!((request.model, request.prompts), (None, [].into()));
    assert_eq!(request.faults, [RequestFault::ModelUnusable]);
}

#[test]
fn of_a_text_that_breaks_off_all_counts_however_it_is_cut() {
    let begins = "a".repeat(MODEL_BYTES_MAX - 100);
    let goes_on = "b".repeat(200);
    let body = format!("{{\"model\":\"{begins}\\n{goes_on}\\x");
    let offset = body.len() as u64 - 1;
    assert_eq!(
        chat(body).faults,
        [
            RequestFault::Malformed { offset },
            RequestFault::ModelUnusable
        ]
    );
}

#[test]
fn a_cache_salt_may_have_so_many_bytes() {
    let body = |len| format!("{{\"messages\":[],\"cache_salt\":{}}}", long("", len));
    let request = chat(body(CACHE_SALT_BYTES_MAX));
    assert_eq!(
        request.cache_salt.map(|it| it.len()),
        Some(CACHE_SALT_BYTES_MAX)
    );
    let request = chat(body(CACHE_SALT_BYTES_MAX + 1));
    assert_eq!((request.cache_salt, request.prompts), (None, [].into()));
    assert_eq!(request.faults, [RequestFault::CacheSaltUnusable]);
}

#[test]
fn names_that_are_not_utf8_are_not_used() {
    let request = chat(b"{\"messages\":[],\"model\":\"\xFF\",\"cache_salt\":\"\xFF\"}");
    assert_eq!(
        request.faults,
        [RequestFault::ModelUnusable, RequestFault::CacheSaltUnusable]
    );
    assert_eq!(
        (request.model, request.cache_salt, request.prompts),
        (None, None, [].into())
    );
}

#[test]
fn a_body_may_hold_so_many_prompts() {
    for (item, per_item) in [("\"ab\"", 2), ("[7,8,9]", 12)] {
        let body = |count| format!("{{\"prompt\":[{}]}}", alloc::vec![item; count].join(","));
        let request = completion(body(PROMPTS_MAX));
        assert_eq!(
            (request.prompts.len(), request.faults.len()),
            (PROMPTS_MAX, 0)
        );
        let request = completion(body(PROMPTS_MAX + 3));
        assert_eq!(request.prompts.len(), PROMPTS_MAX);
        assert!(request.prompts.iter().all(|it| it.bytes == per_item));
        assert_eq!(
            request.faults,
            [RequestFault::PromptsOverMax { ignored: 3 }]
        );
    }
}

#[test]
fn a_prompt_may_have_so_many_blocks_and_its_bytes_are_counted_beyond() {
    let len = PROMPT_BLOCKS_MAX * BLOCK_BYTES;
    for (len, expected) in [
        (len - 1, PROMPT_BLOCKS_MAX - 1),
        (len, PROMPT_BLOCKS_MAX),
        (len + 2 * BLOCK_BYTES, PROMPT_BLOCKS_MAX),
    ] {
        let body = format!("{{\"prompt\":{}}}", long("", len));
        for chunk in [body.len(), 100] {
            let request = scan(Completions, body.as_bytes().chunks(chunk));
            assert_eq!(blocks(&request).len(), expected);
            assert_eq!(request.prompts.first().map(|it| it.bytes), Some(len as u64));
        }
    }
}

#[test]
fn tools_and_messages_share_the_blocks_of_a_prompt() {
    let len = PROMPT_BLOCKS_MAX * BLOCK_BYTES;
    let body = format!(
        "{{\"messages\":[{{\"content\":{}}}],\"tools\":[{}]}}",
        long("", len),
        long("", len / 2)
    );
    assert_eq!(
        blocks(&scan(ChatCompletions, [body.as_bytes()])).len(),
        PROMPT_BLOCKS_MAX
    );
}

#[test]
fn a_request_lists_so_many_media() {
    let body = |count| {
        let parts = alloc::vec![r#"{"image_url":"x"}"#; count].join(",");
        format!("{{\"messages\":[{{\"content\":[{parts}]}}]}}")
    };
    assert_eq!(chat(body(MEDIA_MAX)).media.len(), MEDIA_MAX);
    let (last, past) = (chat(body(MEDIA_MAX)), chat(body(MEDIA_MAX + 24)));
    assert_eq!(past.media, last.media);
    let bytes = |request: &Request| request.prompts.first().map(|it| it.bytes);
    assert_eq!(
        bytes(&past),
        bytes(&last),
        "no room for those past the limit"
    );
    assert!(
        blocks(&last).len() < blocks(&past).len(),
        "the others still enter the blocks"
    );
}
