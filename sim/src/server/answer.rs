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
        format!(
            "data: {},\"choices\":[{{\"index\":{choice},\"delta\":{{\"role\":\"assistant\",\
             \"content\":\"\"}},\"logprobs\":null,\"finish_reason\":null}}],\
             \"prompt_token_ids\":null,\"prompt_text\":null}}\n\n",
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
        let text = Value::from(text(token));
        let reason = if is_last { r#""length""# } else { "null" };
        let stop = if is_last {
            r#","stop_reason":null"#
        } else {
            ""
        };
        let choice = match self.shape {
            Shape::Chat => format!(
                r#"{{"index":{choice},"delta":{{"content":{text}}},"logprobs":null,"finish_reason":{reason}{stop},"token_ids":null}}"#
            ),
            Shape::Completions => format!(
                r#"{{"index":{choice},"text":{text},"logprobs":null,"finish_reason":{reason},"stop_reason":null,"prompt_token_ids":null,"token_ids":null}}"#
            ),
        };
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
        let choices = choices.iter().enumerate().map(|(index, tokens)| {
            let text = Value::from(tokens.iter().map(|&token| text(token)).collect::<String>());
            match self.shape {
                Shape::Chat => format!(
                    r#"{{"index":{index},"message":{{"role":"assistant","content":{text},"refusal":null,"annotations":null,"audio":null,"function_call":null,"tool_calls":[],"reasoning":null}},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}}"#
                ),
                Shape::Completions => format!(
                    r#"{{"index":{index},"text":{text},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null}}"#
                ),
            }
        });
        let choices = choices.collect::<Vec<_>>().join(",");
        let usage = self.usage(usage, true);
        format!(
            r#"{},"choices":[{choices}],"service_tier":null,"system_fingerprint":null,"usage":{usage},"kv_transfer_params":null}}"#,
            self.answer_head
        )
    }

    /// The usage object; a whole answer keeps the fields that are null.
    fn usage(&self, usage: Usage, keep_nulls: bool) -> String {
        let Usage {
            prompt_tokens,
            completion_tokens,
            cached_tokens,
        } = usage;
        let total = prompt_tokens + completion_tokens;
        let counts = format!(
            r#""prompt_tokens":{prompt_tokens},"total_tokens":{total},"completion_tokens":{completion_tokens}"#
        );
        match (self.with_details, keep_nulls) {
            (true, true) => format!(
                r#"{{{counts},"prompt_tokens_details":{{"cached_tokens":{cached_tokens},"multimodal_tokens":null}},"completion_tokens_details":null}}"#
            ),
            (true, false) => format!(
                r#"{{{counts},"prompt_tokens_details":{{"cached_tokens":{cached_tokens}}}}}"#
            ),
            (false, true) => format!(
                r#"{{{counts},"prompt_tokens_details":null,"completion_tokens_details":null}}"#
            ),
            (false, false) => format!("{{{counts}}}"),
        }
    }
}

/// One token of one choice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) choice: usize,
    pub(super) token: u32,
    pub(super) is_last: bool,
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    const USAGE: Usage = Usage {
        prompt_tokens: 40,
        completion_tokens: 2,
        cached_tokens: 32,
    };

    fn stream(shape: Shape, usage: Option<Usage>, expected: Expect) {
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
            expect![[r#"
            data: {"id":"chatcmpl-7","object":"chat.completion.chunk","created":5,"model":"m\"1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}

            data: {"id":"chatcmpl-7","object":"chat.completion.chunk","created":5,"model":"m\"1","choices":[{"index":0,"delta":{"content":"bad "},"logprobs":null,"finish_reason":null,"token_ids":null}],"kv_transfer_params":null}

            data: {"id":"chatcmpl-7","object":"chat.completion.chunk","created":5,"model":"m\"1","choices":[{"index":0,"delta":{"content":"dog "},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}],"kv_transfer_params":null}

            data: {"id":"chatcmpl-7","object":"chat.completion.chunk","created":5,"model":"m\"1","choices":[],"usage":{"prompt_tokens":40,"total_tokens":42,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":32}}}

            data: [DONE]

        "#]],
        );
    }

    #[test]
    fn completions_stream_only_their_tokens() {
        stream(
            Shape::Completions,
            None,
            expect![[r#"
            data: {"id":"cmpl-7","object":"text_completion","created":5,"model":"m\"1","choices":[{"index":0,"text":"bad ","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}],"kv_transfer_params":null}

            data: {"id":"cmpl-7","object":"text_completion","created":5,"model":"m\"1","choices":[{"index":0,"text":"dog ","logprobs":null,"finish_reason":"length","stop_reason":null,"prompt_token_ids":null,"token_ids":null}],"kv_transfer_params":null}

            data: [DONE]

        "#]],
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
