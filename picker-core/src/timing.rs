//! How long an answer takes: to its first token, and from one token to the next.
//!
//! Two points in time are kept of a stream, however long it is. An answer that is no stream has no
//! first token, for it comes when all of it is computed.

use alloc::string::String;

use crate::decimal::push_decimal;
use crate::stats::Stat;
use crate::ticket::Answered;
use crate::time::{Span, Timestamp};

/// When a request was sent and when its answer began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    sent_at: Timestamp,
    first_token_at: Option<Timestamp>,
}

/// What one request took and gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timed {
    /// Tokens, as far as the endpoint counted them.
    pub answered: Answered,
    /// From the choice to the first token of a stream.
    pub first_token: Option<Span>,
    /// From the first token of a stream to its end, and how many tokens came in it; `None` when
    /// that is none.
    pub later_tokens: Option<(Span, u32)>,
}

impl Timing {
    /// Begins when a request is sent to its endpoint.
    pub fn new(sent_at: Timestamp) -> Self {
        Self {
            sent_at,
            first_token_at: None,
        }
    }

    /// Tells that tokens of a stream have come. Only the first call counts.
    pub fn on_token(&mut self, now: Timestamp) {
        self.first_token_at.get_or_insert(now);
    }

    /// Tells that the answer has ended, or was cut.
    pub fn end(self, answered: Answered, now: Timestamp) -> Timed {
        let later = answered.output_tokens.unwrap_or(0).saturating_sub(1);
        let took = self.first_token_at.map(|first| now.since(first));
        Timed {
            answered,
            first_token: self.first_token_at.map(|first| first.since(self.sent_at)),
            later_tokens: took.map(|took| (took, later)).filter(|it| 0 < it.1),
        }
    }
}

impl Timed {
    /// Appends what is known as ` name=number` for each figure.
    pub fn write_to(&self, text: &mut String) {
        let tokens = |count: Option<u32>| count.map(u64::from);
        let later = self.later_tokens;
        for (name, figure) in [
            (" prompt=", tokens(self.answered.prompt_tokens)),
            (" cached=", tokens(self.answered.cached_tokens)),
            (" output=", tokens(self.answered.output_tokens)),
            (" first_token_us=", self.first_token.map(|it| it.0)),
            (
                " later_token_us=",
                later.map(|(took, count)| took.0 / u64::from(count.max(1))),
            ),
        ] {
            if let Some(figure) = figure {
                text.push_str(name);
                push_decimal(text, figure);
            }
        }
    }

    /// What to add to each stat.
    pub fn stats(&self) -> [(Stat, u64); 7] {
        let tokens = |count: Option<u32>| count.unwrap_or(0).into();
        let first = self.first_token;
        let (took, later) = self.later_tokens.unwrap_or_default();
        [
            (Stat::PromptTokens, tokens(self.answered.prompt_tokens)),
            (Stat::CachedTokens, tokens(self.answered.cached_tokens)),
            (Stat::OutputTokens, tokens(self.answered.output_tokens)),
            (Stat::FirstTokens, first.is_some().into()),
            (Stat::FirstTokenMicros, first.unwrap_or_default().0),
            (Stat::LaterTokens, later.into()),
            (Stat::LaterTokenMicros, took.0),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn timed(tokens_at: &[u64], output_tokens: Option<u32>) -> Timed {
        let mut timing = Timing::new(Timestamp(1_000));
        for at in tokens_at {
            timing.on_token(Timestamp(*at));
        }
        let answered = Answered {
            output_tokens,
            prompt_tokens: Some(40),
            cached_tokens: None,
        };
        timing.end(answered, Timestamp(9_000))
    }

    #[test]
    fn a_stream_has_a_first_token_and_a_time_for_each_later_one() {
        for (tokens_at, output, text, counts) in [
            (
                &[3_000, 5_000, 8_999][..],
                Some(4),
                " prompt=40 output=4 first_token_us=2000 later_token_us=2000",
                [40, 0, 4, 1, 2_000, 3, 6_000],
            ),
            (
                &[3_000],
                Some(1),
                " prompt=40 output=1 first_token_us=2000",
                [40, 0, 1, 1, 2_000, 0, 0],
            ),
            (
                &[3_000],
                None,
                " prompt=40 first_token_us=2000",
                [40, 0, 0, 1, 2_000, 0, 0],
            ),
            (&[], Some(4), " prompt=40 output=4", [40, 0, 4, 0, 0, 0, 0]),
            // The clock stepped back: no time is negative, and the token has come.
            (
                &[500],
                Some(2),
                " prompt=40 output=2 first_token_us=0 later_token_us=8500",
                [40, 0, 2, 1, 0, 1, 8_500],
            ),
        ] {
            let timed = timed(tokens_at, output);
            let mut written = String::new();
            timed.write_to(&mut written);
            assert_eq!(written, text);
            assert_eq!(timed.stats().map(|it| it.1), counts, "{text}");
        }
    }
}
