//! Chats that share prefixes: the traffic that a cache is there for.

use bytes::Bytes;
use serde_json::json;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::tokens::{answer, text};

/// Chats with one of several long system prompts and a question of their own.
#[derive(Clone, Debug)]
pub struct SharedPrefixes {
    /// The model that is asked for; `None` leaves it out.
    pub model: Option<String>,
    /// How many system prompts there are; with 0 nothing is shared.
    pub prefixes: u64,
    /// Tokens of a system prompt.
    pub prefix_tokens: usize,
    /// Tokens of a question.
    pub question_tokens: usize,
    /// Tokens of an answer.
    pub max_tokens: usize,
    /// Whether answers are streamed, with their usage.
    pub stream: bool,
    /// Other seeds give other prompts.
    pub seed: u64,
}

impl SharedPrefixes {
    /// The body of the request `number`, the same every time.
    pub fn body(&self, number: u64) -> Bytes {
        let drawn = xxh3_64_with_seed(&number.to_le_bytes(), self.seed);
        // Prefixes and questions are numbered apart, so that none is like another.
        let prefix = drawn.checked_rem(self.prefixes).unwrap_or(number);
        let mut body = json!({
            "messages": [
                {"role": "system", "content": self.words(2 * prefix, self.prefix_tokens)},
                {"role": "user", "content": self.words(2 * number + 1, self.question_tokens)},
            ],
            "max_tokens": self.max_tokens,
        });
        if let Some(model) = &self.model {
            body["model"] = json!(model);
        }
        if self.stream {
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
        }
        Bytes::from(body.to_string())
    }

    fn words(&self, number: u64, tokens: usize) -> String {
        let words = answer(&[number as u32, (number >> 32) as u32], self.seed, tokens);
        words.iter().map(|&token| text(token)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn prompts(prefixes: u64) -> (usize, usize) {
        let workload = SharedPrefixes {
            model: None,
            prefixes,
            prefix_tokens: 20,
            question_tokens: 5,
            max_tokens: 1,
            stream: false,
            seed: 1,
        };
        let (mut systems, mut questions) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..50 {
            let body: serde_json::Value = serde_json::from_slice(&workload.body(number)).unwrap();
            systems.insert(body["messages"][0]["content"].to_string());
            questions.insert(body["messages"][1]["content"].to_string());
        }
        (systems.len(), questions.len())
    }

    #[test]
    fn system_prompts_are_shared_and_questions_are_not() {
        assert_eq!(prompts(4), (4, 50));
        assert_eq!(prompts(0), (50, 50));
    }
}
