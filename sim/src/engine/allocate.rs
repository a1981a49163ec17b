//! Which blocks a request gets: those that hold its prompt already, and free ones for the rest.
//!
//! A block gets its hash as soon as its tokens are scheduled, so that the next request in the same
//! step can hit it.

use super::pool::BlockId;
use super::waiting::Slot;
use super::{Engine, Event};

impl Engine {
    /// The cached blocks that a waiting request can start from.
    ///
    /// The last token is always computed, for it gives the first one of the answer.
    pub(super) fn lookup(&mut self, slot: Slot) -> Vec<BlockId> {
        let block_size = self.config.block_size;
        let Some(entry) = &mut self.entries[slot as usize] else {
            return Vec::new();
        };
        if !self.config.prefix_caching {
            return Vec::new();
        }
        let blocks_max = entry.known.saturating_sub(1) / block_size;
        let hashes = entry.hashes(block_size).iter().take(blocks_max);
        hashes.map_while(|&hash| self.pool.oldest(hash)).collect()
    }

    /// Gives a running request the blocks for `tokens` more; `false` when there are not enough.
    pub(super) fn grow(&mut self, slot: Slot, tokens: usize) -> bool {
        let Some(entry) = &mut self.entries[slot as usize] else {
            return false;
        };
        let upto = entry.computed + tokens;
        let needed = upto
            .div_ceil(self.config.block_size)
            .saturating_sub(entry.blocks.len());
        if needed > self.pool.free() {
            return false;
        }
        self.take(slot, needed);
        self.store(slot, upto);
        true
    }

    /// Gives a waiting request its hits and the blocks for `tokens` more; `false` when it does
    /// not fit.
    pub(super) fn admit(&mut self, slot: Slot, tokens: usize, hit: &[BlockId]) -> bool {
        let block_size = self.config.block_size;
        let Some(entry) = &mut self.entries[slot as usize] else {
            return false;
        };
        // Hit blocks that nobody uses leave the free queue too.
        let revived = hit
            .iter()
            .filter(|&&block| self.pool.is_free(block))
            .count();
        let needed = |upto: usize| upto.div_ceil(block_size).saturating_sub(hit.len()) + revived;
        let reserve = if self.running.is_empty() {
            0
        } else {
            (self.config.watermark * f64::from(self.config.num_blocks)) as usize
        };
        let upto = hit.len() * block_size + tokens;
        let asked = if self.config.reserve_full_prompt {
            entry.known.max(upto)
        } else {
            upto
        };
        if needed(asked) + reserve > self.pool.free() {
            return false;
        }
        for &block in hit {
            self.pool.touch(block);
        }
        entry.blocks.extend_from_slice(hit);
        entry.hashed = hit.len();
        self.take(slot, needed(upto) - revived);
        self.store(slot, upto);
        true
    }

    /// Moves blocks from the free queue to a request.
    fn take(&mut self, slot: Slot, count: usize) {
        let Some(entry) = &mut self.entries[slot as usize] else {
            return;
        };
        for _ in 0..count {
            let Some((block, evicted)) = self.pool.take() else {
                return;
            };
            entry.blocks.push(block);
            if let (Some(hash), true) = (evicted, self.config.record_events) {
                self.step.events.push(Event::Removed(hash));
            }
        }
    }

    /// Gives the blocks that are full after `upto` tokens their hashes.
    fn store(&mut self, slot: Slot, upto: usize) {
        let block_size = self.config.block_size;
        let Some(entry) = &mut self.entries[slot as usize] else {
            return;
        };
        let (from, full) = (entry.hashed, upto.min(entry.known) / block_size);
        if !self.config.prefix_caching || full <= from {
            return;
        }
        entry.hashes(block_size);
        for (&block, &hash) in entry
            .blocks
            .iter()
            .zip(entry.full_hashes())
            .take(full)
            .skip(from)
        {
            self.pool.assign(block, hash);
        }
        entry.hashed = full;
        if self.config.record_events {
            let hashes = entry.full_hashes();
            self.step.events.push(Event::Stored {
                hashes: hashes.iter().take(full).skip(from).copied().collect(),
                parent: from.checked_sub(1).and_then(|it| hashes.get(it)).copied(),
                tokens: (full - from) * block_size,
            });
        }
    }
}
