//! Answers as clients see them: one JSON object, or a stream of events.
//!
//! Fields come in the order in which vLLM writes them, for a reader in the middle may rely on it.

use serde_json::Value;

use super::body::Shape;
use crate::tokens::text;

/// What all parts of one answer have in common.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    shape: Shape,
    /// The leading fields of a chunk, up to its choices.
    chunk_head: String,
    /// The same of a whole answer.
    answer_head: String,
    with_details: bool,
}

/// The tokens that an answer cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) prompt_tokens: usize,
    pub(super) completion_tokens: usize,
    pub(super) cached_tokens: usize,
}

impl Writer {
    /// A writer for the answer `id` of `model`, begun at `created` seconds since 1970.
    pub(super) fn new(shape: Shape, id: &str, model: &str, created: u64) -> Self {
        let (prefix, chunk, answer) = match shape {
            Shape::Chat => ("chatcmpl", "chat.completion.chunk", "chat.completion"),
            Shape::Completions => ("cmpl", "text_completion", "text_completion"),
        };
        let id = Value::from(format!("{prefix}-{id}"));
        let model = Value::from(model);
        let head = |object: &str| {
            format!(r#"{{"id":{id},"object":"{object}","created":{created},"model":{model}"#)
        };
        Self {
            shape,
            chunk_head: head(chunk),
            answer_head: head(answer),
            with_details: true,
        }
    }

    /// Leaves the cached tokens out of the usage.
    pub(super) fn without_details(mut self) -> Self {
        self.with_details = false;
        self
    }

    /// The event before the first token of a choice; completions have none.
    pub(super) fn opening(&self, choice: usize) -> String {
        if self.shape == Shape::Completions {
            return String::new();
        }
        let choice = object(&[
            ("index", &choice.to_string()),
            ("delta", r#"{"role":"assistant","content":""}"#),
            ("logprobs", NULL),
            ("finish_reason", NULL),
        ]);
        let tail = r#""prompt_token_ids":null,"prompt_text":null"#;
        format!(
            "data: {},\"choices\":[{choice}],{tail}}}\n\n",
            self.chunk_head
        )
    }

    /// The event of one token.
    pub(super) fn token(&self, token: Token, usage: Option<Usage>) -> String {
        let Token {
            choice,
            token,
            is_last,
        } = token;
        let (index, text) = (choice.to_string(), Value::from(text(token)).to_string());
        let reason = if is_last { LENGTH } else { NULL };
        let delta = object(&[("content", &text)]);
        let mut fields = vec![("index", index.as_str())];
        match self.shape {
            Shape::Chat => fields.push(("delta", &delta)),
            Shape::Completions => fields.push(("text", &text)),
        }
        fields.extend([("logprobs", NULL), ("finish_reason", reason)]);
        if is_last || self.shape == Shape::Completions {
            fields.push(("stop_reason", NULL));
        }
        if self.shape == Shape::Completions {
            fields.push(("prompt_token_ids", NULL));
        }
        fields.push(("token_ids", NULL));
        let choice = object(&fields);
        let usage = usage.map(|usage| format!(r#","usage":{}"#, self.usage(usage, false)));
        format!(
            "data: {},\"choices\":[{choice}]{},\"kv_transfer_params\":null}}\n\n",
            self.chunk_head,
            usage.unwrap_or_default()
        )
    }

    /// The last events of a stream, with the usage if the client asked for it.
    pub(super) fn closing(&self, usage: Option<Usage>) -> String {
        let usage = usage.map(|usage| {
            let usage = self.usage(usage, false);
            format!(
                "data: {},\"choices\":[],\"usage\":{usage}}}\n\n",
                self.chunk_head
            )
        });
        format!("{}data: [DONE]\n\n", usage.unwrap_or_default())
    }

    /// A whole answer, given the tokens of each choice.
    pub(super) fn whole(&self, choices: &[Vec<u32>], usage: Usage) -> String {
        let choices: Vec<_> = choices
            .iter()
            .enumerate()
            .map(|it| self.whole_choice(it.0, it.1))
            .collect();
        format!(
            "{},\"choices\":[{}],\"service_tier\":null,\"system_fingerprint\":null,\
             \"usage\":{},\"kv_transfer_params\":null}}",
            self.answer_head,
            choices.join(","),
            self.usage(usage, true)
        )
    }

    fn whole_choice(&self, index: usize, tokens: &[u32]) -> String {
        let text: String = tokens.iter().map(|&token| text(token)).collect();
        let (index, text) = (index.to_string(), Value::from(text).to_string());
        let message = object(&[
            ("role", r#""assistant""#),
            ("content", &text),
            ("refusal", NULL),
            ("annotations", NULL),
            ("audio", NULL),
            ("function_call", NULL),
            ("tool_calls", "[]"),
            ("reasoning", NULL),
        ]);
        let content = match self.shape {
            Shape::Chat => ("message", message.as_str()),
            Shape::Completions => ("text", text.as_str()),
        };
        object(&[
            ("index", &index),
            content,
            ("logprobs", NULL),
            ("finish_reason", LENGTH),
            ("stop_reason", NULL),
            ("token_ids", NULL),
        ])
    }

    /// The usage object; a whole answer keeps the fields that are null.
    fn usage(&self, usage: Usage, keep_nulls: bool) -> String {
        let Usage {
            prompt_tokens,
            completion_tokens,
            cached_tokens,
        } = usage;
        let [prompt, total, completion, cached] = [
            prompt_tokens,
            prompt_tokens + completion_tokens,
            completion_tokens,
            cached_tokens,
        ]
        .map(|count| count.to_string());
        let mut details = vec![("cached_tokens", cached.as_str())];
        if keep_nulls {
            details.push(("multimodal_tokens", NULL));
        }
        let details = object(&details);
        let mut fields = vec![
            ("prompt_tokens", prompt.as_str()),
            ("total_tokens", &total),
            ("completion_tokens", &completion),
        ];
        match (self.with_details, keep_nulls) {
            (true, _) => fields.push(("prompt_tokens_details", &details)),
            (false, true) => fields.push(("prompt_tokens_details", NULL)),
            (false, false) => {}
        }
        if keep_nulls {
            fields.push(("completion_tokens_details", NULL));
        }
        object(&fields)
    }
}

/// One token of one choice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) choice: usize,
    pub(super) token: u32,
    pub(super) is_last: bool,
}

/// A JSON object of fields whose values are JSON already.
fn object(fields: &[(&str, &str)]) -> String {
    let fields: Vec<_> = fields
        .iter()
        .map(|it| format!("\"{}\":{}", it.0, it.1))
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// The value of a field that has none.
const NULL: &str = "null";

/// Every answer ends because it has as many tokens as it may have.
const LENGTH: &str = r#""length""#;

#[cfg(test)]
mod tests {
    use expect_test::{ExpectFile, expect_file};

    use super::*;

    const USAGE: Usage = Usage {
        prompt_tokens: 40,
        completion_tokens: 2,
        cached_tokens: 32,
    };

    fn stream(shape: Shape, usage: Option<Usage>, expected: ExpectFile) {
        let writer = Writer::new(shape, "7", "m\"1", 5);
        let token = |token: &[u8; 4], is_last| Token {
            choice: 0,
            token: u32::from_le_bytes(*token),
            is_last,
        };
        let text = [
            writer.opening(0),
            writer.token(token(b"bad ", false), None),
            writer.token(token(b"dog ", true), None),
            writer.closing(usage),
        ];
        expected.assert_eq(&text.concat());
    }

    #[test]
    fn a_chat_streams_its_role_its_tokens_and_its_usage() {
        stream(
            Shape::Chat,
            Some(USAGE),
            expect_file!["../../../tests/fixtures/responses/sim-chat.sse"],
        );
    }

    #[test]
    fn completions_stream_only_their_tokens() {
        stream(
            Shape::Completions,
            None,
            expect_file!["../../../tests/fixtures/responses/sim-completions.sse"],
        );
    }

    #[test]
    fn every_event_and_every_whole_answer_is_json() {
        for shape in [Shape::Chat, Shape::Completions] {
            for writer in [
                Writer::new(shape, "7", "m", 5),
                Writer::new(shape, "7", "m", 5).without_details(),
            ] {
                let whole: Value =
                    serde_json::from_str(&writer.whole(&[vec![1, 2], vec![3]], USAGE)).unwrap();
                assert_eq!(whole["usage"]["total_tokens"], 42);
                assert_eq!(whole["choices"].as_array().unwrap().len(), 2);
                let token = Token {
                    choice: 1,
                    token: 7,
                    is_last: false,
                };
                let chunk = writer.token(token, Some(USAGE));
                let chunk: Value = serde_json::from_str(&chunk["data: ".len()..]).unwrap();
                assert_eq!(chunk["usage"]["completion_tokens"], 2);
            }
        }
    }
}
