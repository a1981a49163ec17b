//! What a router believes a pod holds: the last so many blocks sent there.

use std::collections::{BTreeMap, HashMap};

use picker_core::BlockHash;

/// Blocks in the order of their last use.
pub(super) struct Lru {
    capacity: usize,
    used: u64,
    stamps: HashMap<BlockHash, u64>,
    oldest_first: BTreeMap<u64, BlockHash>,
}

impl Lru {
    /// Nothing yet, and never more than `capacity` blocks.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            used: 0,
            stamps: HashMap::new(),
            oldest_first: BTreeMap::new(),
        }
    }

    /// How many of the leading `blocks` are there.
    pub(super) fn matched(&self, blocks: &[BlockHash]) -> usize {
        let held = |block: &&BlockHash| self.stamps.contains_key(block);
        blocks.iter().take_while(held).count()
    }

    /// Adds `blocks`, the head first, so that the head is also the first to go.
    pub(super) fn add(&mut self, blocks: &[BlockHash]) {
        for &block in blocks {
            self.used += 1;
            if let Some(stamp) = self.stamps.insert(block, self.used) {
                self.oldest_first.remove(&stamp);
            }
            self.oldest_first.insert(self.used, block);
        }
        while self.stamps.len() > self.capacity {
            let Some((_, block)) = self.oldest_first.pop_first() else {
                break;
            };
            self.stamps.remove(&block);
        }
    }

    /// How many blocks there are.
    pub(super) fn len(&self) -> usize {
        self.stamps.len()
    }
}

/// One thing for each pod, made when it is first asked for.
pub(super) struct PerPod<T> {
    items: Vec<T>,
    make: fn() -> T,
}

impl<T> PerPod<T> {
    pub(super) fn new(make: fn() -> T) -> Self {
        let items = Vec::new();
        Self { items, make }
    }

    /// Makes room for `pods`.
    pub(super) fn cover(&mut self, pods: usize) -> &mut [T] {
        while self.items.len() < pods {
            self.items.push((self.make)());
        }
        &mut self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_used_longest_ago_go_first_and_the_head_before_the_tail() {
        let blocks: Vec<BlockHash> = (0..6).map(BlockHash).collect();
        let mut lru = Lru::new(5);
        lru.add(&blocks[..3]);
        lru.add(&blocks[3..5]);
        assert_eq!(lru.matched(&blocks), 5);
        lru.add(&blocks[..1]);
        lru.add(&blocks[5..]);
        assert_eq!(lru.len(), 5);
        assert_eq!(lru.matched(&blocks), 1);
        assert_eq!(lru.matched(&blocks[2..]), 4);
    }
}
