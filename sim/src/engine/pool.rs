//! The KV blocks of one engine: who holds which, and which is given away next.
//!
//! Free blocks form a queue whose front is used next. A free block that still carries a hash can
//! be hit until it is taken. Several blocks may carry one hash; a lookup answers with the oldest.
//! Both lists are threaded through the blocks, so every operation costs the same at any size.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Index of a block; 0 is reserved by the engine and never given out.
pub(super) type BlockId = u32;

/// The blocks of one engine, in use or free.
pub(super) struct BlockPool {
    /// `blocks[0]` is the reserved block: it closes the free queue into a ring.
    blocks: Vec<Block>,
    free: usize,
    by_hash: HashMap<u64, Holders, BuildHasherDefault<HashIsKey>>,
}

impl BlockPool {
    /// A pool of `num_blocks`, the reserved one included, all free in the order of their ids.
    pub(super) fn new(num_blocks: u32) -> Self {
        let num_blocks = num_blocks.max(1);
        let blocks = (0..num_blocks)
            .map(|id| Block {
                free_prev: if id == 0 { num_blocks - 1 } else { id - 1 },
                free_next: if id == num_blocks - 1 {
                    RESERVED
                } else {
                    id + 1
                },
                ..Block::default()
            })
            .collect();
        Self {
            blocks,
            free: num_blocks as usize - 1,
            by_hash: HashMap::default(),
        }
    }

    /// Takes the block at the front of the free queue, and the hash it loses by that.
    pub(super) fn take(&mut self) -> Option<(BlockId, Option<u64>)> {
        let id = self.block(RESERVED).free_next;
        if id == RESERVED {
            return None;
        }
        self.unlink_free(id);
        let evicted = self.forget(id);
        self.block_mut(id).references = 1;
        Some((id, evicted))
    }

    /// Adds a reference to a block found by [`oldest`](Self::oldest).
    pub(super) fn touch(&mut self, id: BlockId) {
        if self.block(id).references == 0 {
            self.unlink_free(id);
        }
        self.block_mut(id).references += 1;
    }

    /// Gives a block that is in use and has no hash the hash of its content.
    pub(super) fn assign(&mut self, id: BlockId, hash: u64) {
        debug_assert!(self.block(id).hash.is_none() && self.block(id).references > 0);
        let holders = self.by_hash.entry(hash).or_insert(Holders {
            oldest: id,
            newest: id,
        });
        let newest = holders.newest;
        holders.newest = id;
        let block = self.block_mut(id);
        block.hash = Some(hash);
        if newest != id {
            block.same_prev = newest;
            self.block_mut(newest).same_next = id;
        }
    }

    /// Drops one reference on each of a request's blocks, given from head to tail.
    ///
    /// The tail is freed first, for a match needs the head. Blocks without a hash can never be
    /// hit, so they go to the front of the queue and are used up first.
    pub(super) fn release(&mut self, blocks: &[BlockId]) {
        for &id in blocks.iter().rev() {
            let block = self.block_mut(id);
            debug_assert!(block.references > 0);
            block.references -= 1;
            if block.references == 0 && block.hash.is_some() {
                self.link_free(id, self.block(RESERVED).free_prev);
            }
        }
        // From the head on, so that the tail ends up in front.
        for &id in blocks {
            if self.block(id).references == 0 && self.block(id).hash.is_none() {
                self.link_free(id, RESERVED);
            }
        }
    }

    /// Forgets every hash; `false` when a block is in use, and then nothing changes.
    pub(super) fn forget_all(&mut self) -> bool {
        if self.free + 1 < self.blocks.len() {
            return false;
        }
        self.by_hash.clear();
        for block in &mut self.blocks {
            block.hash = None;
            block.same_prev = RESERVED;
            block.same_next = RESERVED;
        }
        true
    }

    /// The oldest block that carries `hash`.
    pub(super) fn oldest(&self, hash: u64) -> Option<BlockId> {
        self.by_hash.get(&hash).map(|holders| holders.oldest)
    }

    /// Whether the block waits in the free queue.
    pub(super) fn is_free(&self, id: BlockId) -> bool {
        self.block(id).references == 0
    }

    /// How many blocks can be taken, cached ones included.
    pub(super) fn free(&self) -> usize {
        self.free
    }

    /// How many blocks there are to take when none is in use.
    pub(super) fn usable(&self) -> usize {
        self.blocks.len() - 1
    }

    /// Removes the block's hash and takes it out of the list of that hash's holders.
    fn forget(&mut self, id: BlockId) -> Option<u64> {
        let block = self.block_mut(id);
        let hash = block.hash.take()?;
        let (prev, next) = (block.same_prev, block.same_next);
        block.same_prev = RESERVED;
        block.same_next = RESERVED;
        if prev != RESERVED {
            self.block_mut(prev).same_next = next;
        }
        if next != RESERVED {
            self.block_mut(next).same_prev = prev;
        }
        match (prev, next) {
            (RESERVED, RESERVED) => {
                self.by_hash.remove(&hash);
            }
            (RESERVED, oldest) => {
                self.by_hash.entry(hash).and_modify(|it| it.oldest = oldest);
            }
            (newest, RESERVED) => {
                self.by_hash.entry(hash).and_modify(|it| it.newest = newest);
            }
            _ => {}
        }
        Some(hash)
    }

    /// Puts the block into the free queue right behind `after`.
    fn link_free(&mut self, id: BlockId, after: BlockId) {
        let next = self.block(after).free_next;
        let block = self.block_mut(id);
        block.free_prev = after;
        block.free_next = next;
        self.block_mut(after).free_next = id;
        self.block_mut(next).free_prev = id;
        self.free += 1;
    }

    fn unlink_free(&mut self, id: BlockId) {
        let Block {
            free_prev,
            free_next,
            ..
        } = *self.block(id);
        self.block_mut(free_prev).free_next = free_next;
        self.block_mut(free_next).free_prev = free_prev;
        self.free -= 1;
    }

    fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id as usize]
    }

    fn block_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id as usize]
    }
}

/// One block and its place in the two lists; [`RESERVED`] stands for "none".
#[derive(Clone, Copy, Default)]
struct Block {
    hash: Option<u64>,
    references: u32,
    free_prev: BlockId,
    free_next: BlockId,
    same_prev: BlockId,
    same_next: BlockId,
}

/// Both ends of the list of blocks that carry one hash.
struct Holders {
    oldest: BlockId,
    newest: BlockId,
}

/// The keys are hashes already, so the map takes them as they are.
#[derive(Default)]
struct HashIsKey(u64);

impl Hasher for HashIsKey {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The block that is never given out; it also marks the ends of the lists.
const RESERVED: BlockId = 0;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// The same pool with plain containers and searches through them.
    struct Naive {
        free: VecDeque<BlockId>,
        references: Vec<u32>,
        hashes: Vec<Option<u64>>,
        holders: Vec<(u64, BlockId)>,
    }

    impl Naive {
        fn new(num_blocks: u32) -> Self {
            Self {
                free: (1..num_blocks).collect(),
                references: vec![0; num_blocks as usize],
                hashes: vec![None; num_blocks as usize],
                holders: Vec::new(),
            }
        }

        fn take(&mut self) -> Option<(BlockId, Option<u64>)> {
            let id = self.free.pop_front()?;
            self.holders.retain(|&(_, holder)| holder != id);
            self.references[id as usize] = 1;
            Some((id, self.hashes[id as usize].take()))
        }

        fn touch(&mut self, id: BlockId) {
            self.free.retain(|&free| free != id);
            self.references[id as usize] += 1;
        }

        fn assign(&mut self, id: BlockId, hash: u64) {
            self.hashes[id as usize] = Some(hash);
            self.holders.push((hash, id));
        }

        fn release(&mut self, blocks: &[BlockId]) {
            let mut front = Vec::new();
            for &id in blocks.iter().rev() {
                self.references[id as usize] -= 1;
                match (self.references[id as usize], self.hashes[id as usize]) {
                    (0, None) => front.push(id),
                    (0, Some(_)) => self.free.push_back(id),
                    _ => {}
                }
            }
            for id in front.into_iter().rev() {
                self.free.push_front(id);
            }
        }

        fn oldest(&self, hash: u64) -> Option<BlockId> {
            self.holders
                .iter()
                .find(|holder| holder.0 == hash)
                .map(|holder| holder.1)
        }
    }

    fn queue(pool: &BlockPool) -> Vec<BlockId> {
        let mut ids = Vec::new();
        let mut id = pool.block(RESERVED).free_next;
        while id != RESERVED {
            ids.push(id);
            id = pool.block(id).free_next;
        }
        ids
    }

    #[test]
    fn the_linked_pool_agrees_with_plain_containers() {
        for seed in 1..40 {
            let mut state: u64 = seed;
            let mut draw = |below: u64| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 33) % below
            };
            let (mut pool, mut naive) = (BlockPool::new(24), Naive::new(24));
            let mut held: Vec<Vec<BlockId>> = Vec::new();
            for _ in 0..400 {
                if draw(3) == 0 && !held.is_empty() {
                    let blocks = held.swap_remove(draw(held.len() as u64) as usize);
                    pool.release(&blocks);
                    naive.release(&blocks);
                } else {
                    let mut blocks = Vec::new();
                    for hash in 0..draw(4) {
                        assert_eq!(pool.oldest(hash), naive.oldest(hash), "seed {seed}");
                        let Some(id) = pool.oldest(hash) else { break };
                        pool.touch(id);
                        naive.touch(id);
                        blocks.push(id);
                    }
                    for _ in 0..draw(5) {
                        let taken = pool.take();
                        assert_eq!(taken, naive.take(), "seed {seed}");
                        let Some((id, _)) = taken else { break };
                        if draw(4) > 0 {
                            pool.assign(id, blocks.len() as u64);
                            naive.assign(id, blocks.len() as u64);
                        }
                        blocks.push(id);
                    }
                    held.push(blocks);
                }
                assert_eq!(queue(&pool), Vec::from(naive.free.clone()), "seed {seed}");
                assert_eq!(pool.free(), naive.free.len(), "seed {seed}");
            }
        }
    }

    #[test]
    fn hashes_are_forgotten_only_when_no_block_is_in_use() {
        let mut pool = BlockPool::new(3);
        let (id, _) = pool.take().unwrap();
        pool.assign(id, 7);
        assert!(!pool.forget_all());
        assert_eq!(pool.oldest(7), Some(id));
        pool.release(&[id]);
        assert!(pool.forget_all());
        assert_eq!(pool.oldest(7), None);
        assert_eq!(pool.take().map(|taken| taken.1), Some(None));
    }
}
