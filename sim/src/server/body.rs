//! Request bodies: what of them decides the prompt, the cache and the answer.
//!
//! A field that comes twice counts as it comes last, as it does in the servers that this one
//! stands for.

use std::collections::HashMap;

use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_64;

use super::error::ApiError;
use crate::tokens::push_text;

/// Which of the two kinds of request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
}

/// A request as far as this server heeds it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Body {
    pub(super) model: Option<String>,
    /// One for a chat, any number for completions.
    pub(super) prompts: Vec<Vec<u32>>,
    /// Answers per prompt.
    pub(super) n: usize,
    /// Tokens of each answer.
    pub(super) output_len: usize,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    /// Usage in every chunk of a stream.
    pub(super) continuous_usage: bool,
    pub(super) cache_salt: Option<String>,
    pub(super) priority: i64,
}

/// The fields of a JSON object, unread.
type Fields<'a> = HashMap<String, &'a RawValue>;

impl Body {
    pub(super) fn parse(shape: Shape, bytes: &[u8]) -> Result<Self, ApiError> {
        let fields: Fields<'_> = serde_json::from_slice(bytes)
            .map_err(|error| ApiError::validation(&format!("JSON decode error: {error}")))?;
        let stream_options: Fields<'_> = read(&fields, "stream_options")?.unwrap_or_default();
        let output_len = match shape {
            Shape::Chat => match read(&fields, "max_completion_tokens")? {
                None => read(&fields, "max_tokens")?,
                asked => asked,
            },
            Shape::Completions => read(&fields, "max_tokens")?,
        };
        let body = Self {
            model: read(&fields, "model")?,
            prompts: match shape {
                Shape::Chat => vec![chat_prompt(&fields)?],
                Shape::Completions => prompts(&fields)?,
            },
            n: read(&fields, "n")?.unwrap_or(1),
            output_len: output_len.unwrap_or(OUTPUT_LEN),
            stream: read(&fields, "stream")?.unwrap_or(false),
            include_usage: read(&stream_options, "include_usage")?.unwrap_or(false),
            continuous_usage: read(&stream_options, "continuous_usage_stats")?.unwrap_or(false),
            cache_salt: read(&fields, "cache_salt")?,
            priority: read(&fields, "priority")?.unwrap_or(0),
        };
        if body.output_len == 0 || body.n == 0 || body.prompts.iter().any(Vec::is_empty) {
            return Err(ApiError::validation(
                "max_tokens, n and the prompt must not be empty",
            ));
        }
        if body.prompts.len().saturating_mul(body.n) > CHOICES_MAX {
            return Err(ApiError::validation("too many choices"));
        }
        Ok(body)
    }

    /// Starts the chain of block hashes: 0 for the base model without a salt.
    pub(super) fn root(&self, adapter: Option<&str>) -> u64 {
        if adapter.is_none() && self.cache_salt.is_none() {
            return 0;
        }
        let salt = self.cache_salt.as_deref().unwrap_or_default();
        xxh3_64(format!("{}\0{salt}", adapter.unwrap_or_default()).as_bytes())
    }
}

/// The prompt of a chat in the order of a template: tools, then messages, then the answer's role.
///
/// Every piece starts a token of its own, so an answer sent back as a message is the same tokens.
fn chat_prompt(fields: &Fields<'_>) -> Result<Vec<u32>, ApiError> {
    let mut tokens = Vec::new();
    if let Some(tools) = fields.get("tools").filter(|tools| tools.get() != "null") {
        push_text(&mut tokens, tools.get().as_bytes());
    }
    let Some(messages) = read::<Vec<Fields<'_>>>(fields, "messages")? else {
        return Err(ApiError::missing("messages"));
    };
    for message in &messages {
        if let Some(role) = message.get("role") {
            push_text(&mut tokens, text(role).as_bytes());
        }
        if let Some(content) = message.get("content") {
            push_text(&mut tokens, content_text(content).as_bytes());
        }
        if let Some(calls) = message
            .get("tool_calls")
            .filter(|calls| calls.get() != "null")
        {
            push_text(&mut tokens, calls.get().as_bytes());
        }
    }
    push_text(&mut tokens, b"assistant");
    Ok(tokens)
}

/// The prompts of a completions request: a string, several, token ids, or several lists of them.
fn prompts(fields: &Fields<'_>) -> Result<Vec<Vec<u32>>, ApiError> {
    let Some(prompt) = fields.get("prompt") else {
        return Err(ApiError::missing("prompt"));
    };
    let prompt = prompt.get();
    if prompt.starts_with('"') {
        return Ok(vec![text_tokens(prompt)]);
    }
    if let Ok(tokens) = serde_json::from_str::<Vec<u32>>(prompt) {
        return Ok(vec![tokens]);
    }
    if let Ok(prompts) = serde_json::from_str::<Vec<Vec<u32>>>(prompt) {
        return Ok(prompts);
    }
    let several: Vec<&RawValue> = serde_json::from_str(prompt)
        .map_err(|_| ApiError::validation("prompt must be text or token ids"))?;
    if several.iter().any(|prompt| !prompt.get().starts_with('"')) {
        return Err(ApiError::validation("prompt must be text or token ids"));
    }
    Ok(several
        .iter()
        .map(|prompt| text_tokens(prompt.get()))
        .collect())
}

fn text_tokens(json: &str) -> Vec<u32> {
    let mut tokens = Vec::new();
    push_text(&mut tokens, json_text(json).as_bytes());
    tokens
}

/// The text of a message: a string, or the text parts of a list.
///
/// Another part, such as an image, counts as a hash of what it holds, so that it keeps apart the
/// blocks behind it.
fn content_text(content: &RawValue) -> String {
    let Ok(parts) = serde_json::from_str::<Vec<Fields<'_>>>(content.get()) else {
        return text(content);
    };
    let part_text = |part: &Fields<'_>| match part.get("text") {
        Some(text_field) => text(text_field),
        None => {
            let mut fields: Vec<_> = part.iter().map(|it| (it.0, it.1.get())).collect();
            fields.sort_unstable();
            format!("{:016x}", xxh3_64(format!("{fields:?}").as_bytes()))
        }
    };
    parts.iter().map(part_text).collect()
}

/// The text of a JSON string; nothing for `null`, and the JSON itself for anything else.
fn text(json: &RawValue) -> String {
    json_text(json.get())
}

fn json_text(json: &str) -> String {
    if json == "null" {
        return String::new();
    }
    // A string with half a surrogate pair is no Rust string, but clients do send it.
    serde_json::from_str(json).unwrap_or_else(|_| json.to_owned())
}

/// A field's value; `None` when it is missing or null.
fn read<'a, T: serde::Deserialize<'a>>(
    fields: &Fields<'a>,
    name: &str,
) -> Result<Option<T>, ApiError> {
    let Some(field) = fields.get(name) else {
        return Ok(None);
    };
    serde_json::from_str(field.get())
        .map_err(|error| ApiError::validation(&format!("field `{name}`: {error}")))
}

/// Tokens of an answer when the request does not say.
const OUTPUT_LEN: usize = 16;

/// Answers in one request, over all its prompts: more than a client asks for by mistake.
const CHOICES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(body: &str) -> Body {
        Body::parse(Shape::Chat, body.as_bytes()).unwrap()
    }

    fn tokens(pieces: &[&str]) -> Vec<u32> {
        let mut tokens = Vec::new();
        for piece in pieces {
            push_text(&mut tokens, piece.as_bytes());
        }
        tokens
    }

    #[test]
    fn a_chat_is_tools_then_messages_then_the_role_of_the_answer() {
        let parsed = chat(
            r#"{"messages":[{"role":"system","content":"Be brief."},
                {"role":"user","content":[
                    {"type":"text","text":"one "},{"type":"text","text":"two"}]},
                {"role":"assistant","content":null}],
                "tools":[{"b":1,"a":2}]}"#,
        );
        let pieces = [
            r#"[{"b":1,"a":2}]"#,
            "system",
            "Be brief.",
            "user",
            "one two",
            "assistant",
        ];
        assert_eq!(
            parsed.prompts[0],
            [tokens(&pieces), tokens(&["assistant"])].concat()
        );
    }

    #[test]
    fn the_next_turn_of_a_chat_starts_with_this_turn_and_its_answer() {
        let first = chat(r#"{"messages":[{"role":"user","content":"hello"}]}"#);
        let answer = crate::tokens::answer(&first.prompts[0], 0, 5);
        let text: String = answer
            .iter()
            .map(|&token| crate::tokens::text(token))
            .collect();
        let second = chat(&format!(
            r#"{{"messages":[{{"role":"user","content":"hello"}},
                {{"role":"assistant","content":"{text}"}},{{"role":"user","content":"more"}}]}}"#
        ));
        assert!(second.prompts[0].starts_with(&[first.prompts[0].clone(), answer].concat()));
    }

    #[test]
    fn an_image_keeps_apart_what_comes_behind_it() {
        let with = |url: &str| {
            chat(&format!(
                r#"{{"messages":[{{"role":"user","content":[
                    {{"type":"image_url","image_url":{{"url":"{url}"}}}}]}}]}}"#
            ))
        };
        assert_eq!(with("a").prompts, with("a").prompts);
        assert_ne!(with("a").prompts, with("b").prompts);
    }

    #[test]
    fn a_field_that_comes_twice_counts_as_it_comes_last() {
        let parsed = chat(r#"{"model":"a","messages":[],"max_tokens":3,"model":"b"}"#);
        assert_eq!((parsed.model.as_deref(), parsed.output_len), (Some("b"), 3));
        let parsed = chat(r#"{"messages":[],"max_tokens":3,"max_completion_tokens":4}"#);
        assert_eq!(parsed.output_len, 4);
    }

    #[test]
    fn half_a_surrogate_pair_is_still_a_prompt() {
        let parsed = chat(r#"{"messages":[{"role":"user","content":"x\ud83d"}]}"#);
        assert!(parsed.prompts[0].len() > 4);
    }

    #[test]
    fn a_completions_prompt_may_have_four_forms() {
        for (prompt, expected) in [
            (r#""abcdefgh""#, vec![tokens(&["abcdefgh"])]),
            (
                r#"["abcd","efgh"]"#,
                vec![tokens(&["abcd"]), tokens(&["efgh"])],
            ),
            ("[1,2]", vec![vec![1, 2]]),
            ("[[1,2],[3]]", vec![vec![1, 2], vec![3]]),
        ] {
            let body = format!(r#"{{"prompt":{prompt}}}"#);
            let parsed = Body::parse(Shape::Completions, body.as_bytes()).unwrap();
            assert_eq!(parsed.prompts, expected, "{prompt}");
        }
    }

    #[test]
    fn a_body_that_makes_no_sense_is_refused() {
        for body in [
            "",
            "[]",
            r#"{"model":"a"}"#,
            r#"{"messages":"hello"}"#,
            r#"{"messages":[],"max_tokens":0}"#,
            r#"{"messages":[],"max_tokens":-1}"#,
            r#"{"messages":[],"n":1000}"#,
            r#"{"messages":[],"stream":"yes"}"#,
        ] {
            assert!(Body::parse(Shape::Chat, body.as_bytes()).is_err(), "{body}");
        }
        for body in [
            "{}",
            r#"{"prompt":7}"#,
            r#"{"prompt":[true]}"#,
            r#"{"prompt":[]}"#,
        ] {
            let parsed = Body::parse(Shape::Completions, body.as_bytes());
            assert!(parsed.map_or(true, |it| it.prompts.is_empty()), "{body}");
        }
    }

    #[test]
    fn model_and_salt_separate_the_cache() {
        let plain = chat(r#"{"messages":[]}"#);
        let salted = chat(r#"{"messages":[],"cache_salt":"s"}"#);
        let roots = [
            plain.root(None),
            plain.root(Some("s")),
            salted.root(None),
            salted.root(Some("s")),
        ];
        for (index, root) in roots.iter().enumerate() {
            assert!(!roots[index + 1..].contains(root), "{roots:?}");
        }
        assert_eq!(plain.root(None), 0);
    }
}
