//! What plugins want to be known of requests and endpoints, for other plugins to read.

use crate::twin::Held;

/// What plugins of a plan want to be known.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Producers {
    /// `approx-prefix-cache-producer`: what the endpoints' prefix caches hold.
    pub prefix_cache: Option<PrefixCache>,
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

impl Producers {
    /// These, and what `other` adds.
    #[must_use]
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            prefix_cache: self.prefix_cache.or(other.prefix_cache),
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
