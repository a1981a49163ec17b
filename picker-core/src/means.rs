//! What answers have taught about the length of texts and of answers.

use crate::BLOCK_BYTES;
use crate::ticket::Answered;

/// Means over the answers that one worker has seen.
pub(crate) struct Means {
    /// Tokens that an answer has.
    pub(crate) output_tokens: f64,
    /// Bytes of prompt that make a token.
    bytes_per_token: f64,
}

impl Default for Means {
    fn default() -> Self {
        Self {
            output_tokens: OUTPUT_TOKENS_UNKNOWN,
            bytes_per_token: BYTES_PER_TOKEN,
        }
    }
}

impl Means {
    /// Follows the answer to a prompt of so many bytes.
    pub(crate) fn learn(&mut self, bytes: u64, answered: Answered) {
        if let Some(tokens) = answered.output_tokens {
            self.output_tokens += GAIN * (f64::from(tokens) - self.output_tokens);
        }
        if let Some(tokens) = answered
            .prompt_tokens
            .filter(|tokens| *tokens >= RATIO_TOKENS_MIN)
        {
            let seen = bytes as f64 / f64::from(tokens);
            let ratio = self.bytes_per_token + GAIN * (seen - self.bytes_per_token);
            self.bytes_per_token = ratio.clamp(BYTES_PER_TOKEN_MIN, BYTES_PER_TOKEN_MAX);
        }
    }

    /// Tokens in so many bytes of prompt.
    pub(crate) fn tokens(&self, bytes: u64) -> u64 {
        (bytes as f64 / self.bytes_per_token) as u64
    }

    /// Tokens in a hash block.
    pub(crate) fn block_tokens(&self) -> f64 {
        BLOCK_BYTES as f64 / self.bytes_per_token
    }

    /// Whole hash blocks in so many tokens.
    pub(crate) fn blocks(&self, tokens: u32) -> u32 {
        (f64::from(tokens) / self.block_tokens()) as u32
    }
}

/// Bytes of text that make a token until answers tell: English prose and code have 3.2 to 5.3 with
/// current vocabularies.
const BYTES_PER_TOKEN: f64 = 4.0;

/// The range of what answers may tell; images and templates make tokens that have no bytes here.
const BYTES_PER_TOKEN_MIN: f64 = 2.5;
const BYTES_PER_TOKEN_MAX: f64 = 6.0;

/// Prompts shorter than this are mostly template and tell nothing about text.
const RATIO_TOKENS_MIN: u32 = 64;

/// Tokens an answer is taken to have until some have been counted.
const OUTPUT_TOKENS_UNKNOWN: f64 = 128.0;

/// How fast the means follow new answers.
const GAIN: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn after(answers: u32, bytes: u64, prompt_tokens: u32) -> Means {
        let mut means = Means::default();
        let answered = Answered {
            prompt_tokens: Some(prompt_tokens),
            output_tokens: Some(500),
            cached_tokens: None,
        };
        (0..answers).for_each(|_| means.learn(bytes, answered));
        means
    }

    #[test]
    fn a_token_is_four_bytes_until_answers_tell() {
        assert_eq!(
            (after(0, 0, 0).tokens(4000), after(0, 0, 0).blocks(129)),
            (1000, 2)
        );
        assert_eq!(
            after(1, 5000, 1000).tokens(405),
            100,
            "one answer moves it a twentieth"
        );
        assert_eq!(after(500, 5000, 1000).block_tokens().round(), 51.0);
    }

    #[test]
    fn what_answers_tell_has_bounds_and_short_prompts_tell_nothing() {
        assert_eq!(after(500, 90_000, 1000).tokens(6000), 1000);
        assert_eq!(after(500, 100, 1000).tokens(2500), 1000);
        assert_eq!(after(500, 10, RATIO_TOKENS_MIN - 1).tokens(4000), 1000);
        assert_eq!(after(500, 10, RATIO_TOKENS_MIN).tokens(2500), 1000);
    }

    #[test]
    fn answers_are_expected_to_be_as_long_as_they_were() {
        assert_eq!(after(0, 0, 0).output_tokens, OUTPUT_TOKENS_UNKNOWN);
        assert_eq!(after(500, 4000, 1000).output_tokens.round(), 500.0);
    }
}
