//! Which pictures, films and sounds an endpoint has computed embeddings of, as far as our own
//! requests tell: the last ones that it got.

use alloc::vec::Vec;

use hashbrown::HashMap;

use crate::BlockHash;
use crate::bytes::{Reader, Writer};
use crate::sort::sort;

/// The media of one endpoint.
#[derive(Default)]
pub(super) struct MediaCache {
    /// When each was used last, by its hash.
    used: HashMap<BlockHash, u32>,
    /// Uses so far.
    uses: u32,
}

impl MediaCache {
    /// The endpoint gets `media`, in this order, and holds `most` at most.
    pub(super) fn take(&mut self, media: &[u64], most: usize) {
        for hash in media {
            self.renumber();
            self.uses += 1;
            self.used.insert(BlockHash(*hash), self.uses);
        }
        self.forget(most);
    }

    /// Whether the endpoint holds the medium of this hash.
    pub(super) fn holds(&self, hash: u64) -> bool {
        self.used.contains_key(&BlockHash(hash))
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        let by_use = self.by_use();
        writer.u32(by_use.len() as u32);
        by_use.iter().for_each(|(_, hash)| writer.u64(hash.0));
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let mut cache = Self::default();
        for _ in 0..reader.u32()? {
            cache.uses += 1;
            cache.used.insert(BlockHash(reader.u64()?), cache.uses);
        }
        Some(cache)
    }

    /// Forgets those that were not used for longest.
    fn forget(&mut self, most: usize) {
        let over = self.used.len().saturating_sub(most);
        if over > 0 {
            for (_, hash) in self.by_use().iter().take(over) {
                self.used.remove(hash);
            }
        }
    }

    /// Begins to count anew before the numbers run out.
    fn renumber(&mut self) {
        if self.uses == u32::MAX {
            let by_use = self.by_use();
            self.uses = by_use.len() as u32;
            let numbered = by_use.into_iter().zip(1..);
            self.used = numbered.map(|((_, hash), use_)| (hash, use_)).collect();
        }
    }

    /// Those that were not used for longest first.
    fn by_use(&self) -> Vec<(u32, BlockHash)> {
        let mut by_use: Vec<(u32, BlockHash)> = self
            .used
            .iter()
            .map(|(hash, used)| (*used, *hash))
            .collect();
        sort(&mut by_use);
        by_use
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Draws;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn restored(cache: &MediaCache) -> MediaCache {
        let mut bytes = Vec::new();
        cache.encode(&mut Writer(&mut bytes));
        let mut reader = Reader(&bytes);
        let cache = MediaCache::decode(&mut reader).unwrap();
        assert!(reader.is_empty());
        cache
    }

    /// Beside a list that moves what is used to its end.
    #[test]
    fn what_was_used_last_is_held_and_what_was_not_for_longest_is_forgotten() {
        for seed in 0..20 {
            let mut draws = Draws::new(seed);
            let most = draws.below(6) as usize;
            let (mut cache, mut naive) = (MediaCache::default(), Vec::new());
            cache.uses = u32::MAX - draws.below(60);
            for _ in 0..100 {
                let media: Vec<u64> = (0..draws.below(4)).map(|_| draws.below(9).into()).collect();
                cache.take(&media, most);
                for hash in media {
                    naive.retain(|it| *it != hash);
                    naive.push(hash);
                }
                let over = naive.len().saturating_sub(most);
                naive.drain(..over);
                if draws.below(5) == 0 {
                    cache = restored(&cache);
                }
                for hash in 0..9 {
                    assert_eq!(cache.holds(hash), naive.contains(&hash), "seed {seed}");
                }
            }
        }
    }
}
