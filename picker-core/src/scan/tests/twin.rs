//! Every fixture and thousands of generated bodies, cut everywhere.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::generate::{Draw, body, mutate};
use super::*;
use crate::scan::naive;

/// Compares with the twin where that can read the body, and one cut with the others always.
#[track_caller]
fn check(shape: Shape, body: &[u8], draw: &mut Draw, what: &str) {
    let whole = scan(shape, [body]);
    match naive::read(shape, body, HashSeed::new("pool")) {
        Some(expected) => assert_eq!(whole, expected, "{what}: twin"),
        None => assert_broken(&whole, body, what),
    }
    // Every cut of short bodies, some of long ones: the seeds make up for it.
    let stride = 1 + body.len() / 50;
    for at in (0..=body.len()).step_by(stride) {
        let (first, second) = body.split_at(at);
        assert_eq!(scan(shape, [first, second]), whole, "{what}: cut at {at}");
    }
    assert_eq!(scan(shape, body.chunks(1)), whole, "{what}: byte by byte");
    for _ in 0..4 {
        let (mut rest, mut chunks) = (body, Vec::new());
        while !rest.is_empty() {
            let longest = if draw.chance(2) { 9 } else { 700 };
            let (chunk, later) = rest.split_at(draw.below(longest).min(rest.len()));
            chunks.push(chunk);
            rest = later;
        }
        assert_eq!(scan(shape, chunks), whole, "{what}: many cuts");
    }
}

/// A body that the twin refuses offers no prompt, unless what is wrong is inside a string.
#[track_caller]
fn assert_broken(request: &Request, body: &[u8], what: &str) {
    let hides_prompts = request.faults.iter().any(RequestFault::hides_prompts);
    if hides_prompts {
        assert!(
            request.prompts.is_empty(),
            "{what}: prompts of a broken body"
        );
    }
    let mended: Vec<u8> = body
        .iter()
        .map(|byte| match byte {
            0..0x20 => b' ',
            0x80.. => b'a',
            _ => *byte,
        })
        .collect();
    let mended = String::from_utf8(mended).unwrap();
    if serde_json::from_str::<&serde_json::value::RawValue>(&mended).is_err() {
        assert!(hides_prompts, "{what}: not seen to be broken");
    }
}

#[test]
fn every_fixture_reads_like_its_twin_for_every_cut() {
    for (shape, name, body) in FIXTURES {
        check(*shape, body, &mut Draw::new(1), name);
        for at in 0..body.len().min(1000) {
            let (first, second) = body.split_at(at);
            assert_eq!(
                scan(*shape, [first, second]),
                scan(*shape, [*body]),
                "{name}: cut at {at}"
            );
        }
    }
}

#[test]
fn generated_bodies_read_like_their_twins_for_every_cut() {
    let mut block_count = 0;
    for seed in 0..500 {
        let mut draw = Draw::new(seed);
        let (shape, body) = body(&mut draw);
        let what = format!("seed {seed}, body {body}");
        let request = scan(shape, [body.as_bytes()]);
        block_count += request
            .prompts
            .iter()
            .map(|it| it.blocks.len())
            .sum::<usize>();
        assert!(
            naive::read(shape, body.as_bytes(), HashSeed::new("")).is_some(),
            "{what}"
        );
        check(shape, body.as_bytes(), &mut draw, &what);
    }
    assert!(
        200 < block_count,
        "the bodies are worth reading: {block_count} blocks"
    );
}

#[test]
fn damaged_bodies_read_alike_for_every_cut() {
    for seed in 0..500 {
        let mut draw = Draw::new(seed);
        let (shape, body) = body(&mut draw);
        let body = mutate(body.into_bytes(), &mut draw);
        let what = format!("seed {seed}, body {}", String::from_utf8_lossy(&body));
        check(shape, &body, &mut draw, &what);
    }
}

macro_rules! fixtures {
    ($($shape:ident $name:literal)*) => {
        &[$((
            Shape::$shape,
            $name,
            include_bytes!(concat!("../../../../tests/fixtures/requests/", $name)),
        )),*]
    };
}

const FIXTURES: &[(Shape, &str, &[u8])] = fixtures! {
    ChatCompletions "chat-01-string-content.json"
    ChatCompletions "chat-02-multi-turn.json"
    ChatCompletions "chat-03-parts-text.json"
    ChatCompletions "chat-04-image-url.json"
    ChatCompletions "chat-05-image-data-uri.json"
    ChatCompletions "chat-06-audio-and-video.json"
    ChatCompletions "chat-07-tools-first-turn.json"
    ChatCompletions "chat-08-tools-second-turn.json"
    ChatCompletions "chat-10-template-kwargs.json"
    ChatCompletions "chat-11-names-and-thinking-history.json"
    ChatCompletions "chat-12-continue-final.json"
    ChatCompletions "chat-13-response-format-seed-n.json"
    ChatCompletions "chat-15-duplicate-keys.json"
    ChatCompletions "chat-17-big-numbers.json"
    ChatCompletions "chat-18-missing-model.json"
    ChatCompletions "chat-19-model-null.json"
    ChatCompletions "chat-20-model-last.json"
    ChatCompletions "chat-22-pd-decode-leg.json"
    ChatCompletions "chat-23-pd-prefill-leg.json"
    ChatCompletions "chat-24-invalid-truncated.json"
    ChatCompletions "chat-25-top-level-array.json"
    ChatCompletions "chat-26-bom.json"
    Completions "completions-01-string.json"
    Completions "completions-02-string-list.json"
    Completions "completions-03-token-ids.json"
    Completions "completions-04-token-id-lists.json"
    Completions "completions-05-stream-usage.json"
    Completions "completions-07-cache-salt-lora.json"
    Completions "completions-08-empty-prompt.json"
    Completions "completions-09-prompt-embeds.json"
    Responses "responses-01-string.json"
    Responses "responses-02-items.json"
    Responses "responses-04-previous-id.json"
    Embeddings "embeddings-01.json"
    Embeddings "embeddings-02-tokens.json"
    Rerank "rerank-01.json"
    Score "score-01.json"
    Pooling "pooling-01.json"
    Classify "classify-01.json"
    Messages "messages-01-basic.json"
    Messages "messages-02-blocks-tools-cache.json"
    CountTokens "messages-03-count-tokens.json"
    Generate "generate-01-token-in.json"
    Tokenize "tokenize-01.json"
    Tokenize "tokenize-02-chat.json"
    SglangGenerate "sglang-generate-01.json"
};
