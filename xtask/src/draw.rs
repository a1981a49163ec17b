//! Random prompts from a seed.

use std::hash::{BuildHasher, RandomState};

/// A generator (SplitMix64): equal seeds give equal prompts.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..end`, `0` for an empty range.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.number() % (end.max(1) as u64)).unwrap_or(0)
    }

    /// Words of at least `bytes` bytes in total, which a tokenizer splits like prose.
    pub fn prose(&mut self, bytes: usize) -> String {
        let mut text = String::with_capacity(bytes + 16);
        while text.len() < bytes {
            let word = self.below(WORDS.len());
            text.push_str(WORDS.get(word).copied().unwrap_or_default());
            text.push(' ');
        }
        text
    }

    /// Puts items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// A seed that differs from run to run.
pub fn random_seed() -> u64 {
    // The standard library's hasher is keyed at random; six digits are enough and easy to type.
    RandomState::new().hash_one(std::process::id()) % 1_000_000
}

const WORDS: [&str; 32] = [
    "river", "stone", "night", "under", "garden", "seven", "copper", "window", "quiet", "letter",
    "north", "paper", "before", "yellow", "market", "engine", "silver", "winter", "often",
    "bridge", "corner", "people", "summer", "kitchen", "forest", "island", "number", "shadow",
    "travel", "music", "evening", "orange",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_prompts_and_another_seed_does_not() {
        let prose = |seed| Draw::new(seed).prose(300);
        assert_eq!(prose(1), prose(1));
        assert_ne!(prose(1).get(..64), prose(2).get(..64));
        assert!(prose(1).len() >= 300);
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<usize> = (0..50).collect();
        Draw::new(7).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
