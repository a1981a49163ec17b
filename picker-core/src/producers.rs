//! What plugins want to be known of requests and endpoints, for other plugins to read.

use crate::burst::Burst;
use crate::twin::Held;

/// What plugins of a plan want to be known.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Producers {
    /// `approx-prefix-cache-producer`: what the endpoints' prefix caches hold.
    pub prefix_cache: Option<PrefixCache>,
    /// `inflight-load-producer`: what answers are expected to add to the tokens in flight.
    pub outputs: Option<OutputEstimate>,
    /// `mm-embeddings-cache-producer`: of how many pictures, films and sounds an endpoint keeps the
    /// embeddings; 0 where nobody asks.
    pub media_max: usize,
    /// `burst-prefix-cache-producer`: how requests are held to be placed together.
    pub burst: Option<Burst>,
}

/// How the twins of prefix caches are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefixCache {
    /// Tokens that an endpoint holds which does not say how many.
    pub capacity_tokens: u64,
    /// Whether an endpoint is believed that says how many.
    pub believes: bool,
    /// Leading blocks of each prompt that are compared.
    pub blocks_max: usize,
}

/// How long answers are expected to be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OutputEstimate {
    /// Tokens of answer for each token of prompt.
    pub ratio: f64,
    /// The most tokens of an answer.
    pub tokens_max: Option<u32>,
}

impl OutputEstimate {
    /// Tokens that the answer to `prompt_tokens` is expected to have, of which the client wants at most
    /// `cap`.
    pub(crate) fn tokens(self, prompt_tokens: u64, cap: Option<u64>) -> u32 {
        // Rounded by the cast, which also keeps it within bounds.
        let expected = (prompt_tokens as f64 * self.ratio + 0.5) as u32;
        let cap = cap.and_then(|it| u32::try_from(it).ok());
        let most = cap.unwrap_or(u32::MAX);
        expected.min(most).min(self.tokens_max.unwrap_or(u32::MAX))
    }
}

impl Producers {
    /// These, and what `other` adds.
    #[must_use]
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            prefix_cache: self.prefix_cache.or(other.prefix_cache),
            outputs: self.outputs.or(other.outputs),
            media_max: if self.media_max > 0 {
                self.media_max
            } else {
                other.media_max
            },
            burst: self.burst.or(other.burst),
        }
    }

    /// How many of the blocks of a prompt count.
    pub(crate) fn counted(self, blocks: usize) -> usize {
        let most = self.prefix_cache.map_or(usize::MAX, |it| it.blocks_max);
        blocks.min(most)
    }

    /// What counts of what is held of a prompt.
    pub(crate) fn counted_of(self, held: Held) -> Held {
        Held {
            matched: self.counted(held.matched),
            pinned: self.counted(held.pinned),
        }
    }

    /// Tokens that a twin holds of an endpoint that says `told`; `None` to go by what it says.
    pub(crate) fn twin_tokens(self, told: Option<u64>) -> Option<u64> {
        let cache = self.prefix_cache?;
        (told.is_none() || !cache.believes).then_some(cache.capacity_tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn an_answer_is_expected_to_be_in_proportion_and_within_its_caps() {
        for (ratio, tokens_max, prompt, cap, expected) in [
            (1.5, None, 100, None, 150),
            (1.5, None, 3, None, 5),
            (0.3, None, 1, None, 0),
            (0.0, None, 100, None, 0),
            (1.5, None, 100, Some(20), 20),
            (1.5, None, 100, Some(0), 0),
            (1.5, None, 100, Some(1 << 40), 150),
            (1.5, Some(64), 100, None, 64),
            (1.5, Some(64), 100, Some(20), 20),
            (1e6, None, u64::MAX, None, u32::MAX),
        ] {
            let estimate = OutputEstimate { ratio, tokens_max };
            let tokens = estimate.tokens(prompt, cap);
            assert_eq!(tokens, expected, "{estimate:?} of {prompt}, {cap:?}");
        }
    }
}
