//! Which blocks each endpoint holds, as far as we know: a stand-in for the servers' prefix caches.
//!
//! Held blocks form runs: stretches that were placed together and never branched. Touching a prompt makes its runs
//! the most recent ones, the head last, so that a head is always more recent than its tail. When room is needed the
//! oldest run loses blocks from its end. That is the order in which engines forget: they free a finished request's
//! blocks tail first, and a match needs the head.

use alloc::vec::Vec;
use core::num::NonZeroUsize;

use hashbrown::{DefaultHashBuilder, HashMap};
use lru::LruCache;

use crate::ring::Placed;
use crate::{BlockHash, EndpointId};

/// The blocks held by every endpoint of a pool.
#[derive(Default)]
pub struct PrefixIndex {
    /// In the order of the endpoints' numbers.
    caches: Vec<(EndpointId, Cache)>,
    /// Placements that named a parent this index does not hold; nothing could be learnt from them.
    pub unlinked: u64,
}

impl PrefixIndex {
    /// Keeps a cache for `endpoint` that holds at most `capacity` blocks, and forgets what is over.
    pub fn set_capacity(&mut self, endpoint: EndpointId, capacity: usize) {
        let cache = self.cache_mut(endpoint);
        cache.capacity = capacity;
        cache.evict();
    }

    /// Forgets every endpoint that `is_listed` does not know.
    pub fn retain(&mut self, is_listed: impl Fn(EndpointId) -> bool) {
        self.caches.retain(|(endpoint, _)| is_listed(*endpoint));
    }

    /// Takes in that a prompt was sent to an endpoint.
    pub fn apply(&mut self, placed: &Placed) {
        if !self.cache_mut(placed.endpoint).place(placed) {
            self.unlinked += 1;
        }
    }

    /// How many of the leading `blocks` are held by `endpoint`.
    pub fn matched(&self, endpoint: EndpointId, blocks: &[BlockHash]) -> usize {
        self.cache(endpoint)
            .map_or(0, |cache| cache.matched(blocks))
    }

    /// What to tell the other workers when a prompt of `blocks` goes to `endpoint`.
    pub fn placement(&self, endpoint: EndpointId, blocks: &[BlockHash]) -> Placed {
        let depth = self.matched(endpoint, blocks);
        let (held, new) = blocks.split_at(depth);
        let parent = held.last().copied();
        Placed {
            endpoint,
            depth: depth as u32,
            parent,
            blocks: new.to_vec(),
        }
    }

    /// How many blocks `endpoint` holds.
    pub fn held(&self, endpoint: EndpointId) -> usize {
        self.cache(endpoint).map_or(0, |cache| cache.held)
    }

    fn cache(&self, endpoint: EndpointId) -> Option<&Cache> {
        let index = self
            .caches
            .binary_search_by_key(&endpoint, |(id, _)| *id)
            .ok()?;
        self.caches.get(index).map(|(_, cache)| cache)
    }

    fn cache_mut(&mut self, endpoint: EndpointId) -> &mut Cache {
        let index = match self.caches.binary_search_by_key(&endpoint, |(id, _)| *id) {
            Ok(index) => index,
            Err(index) => {
                self.caches.insert(index, (endpoint, Cache::default()));
                index
            }
        };
        &mut self.caches[index].1
    }
}

/// The blocks held by one endpoint.
struct Cache {
    /// Runs by number, the most recent first.
    runs: LruCache<RunId, Run, DefaultHashBuilder>,
    /// The run of every held block.
    run_of: HashMap<BlockHash, RunId>,
    /// Blocks in all runs.
    held: usize,
    capacity: usize,
    next_run: RunId,
}

type RunId = u32;

/// A stretch of blocks that only ever continue each other.
struct Run {
    /// How many blocks of the prompt come before this run.
    depth: usize,
    /// The run that holds the block before this run's first.
    parent: Option<RunId>,
    /// How many runs have this one as their parent. Only a run without children may lose blocks.
    children: u32,
    blocks: Vec<BlockHash>,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            runs: LruCache::unbounded_with_hasher(DefaultHashBuilder::default()),
            run_of: HashMap::default(),
            held: 0,
            capacity: CAPACITY_BLOCKS_UNKNOWN.get(),
            next_run: 0,
        }
    }
}

impl Cache {
    /// Goes from run to run, and inside a run by bisection: equal hashes mean equal beginnings.
    fn matched(&self, blocks: &[BlockHash]) -> usize {
        let mut depth = 0;
        while let Some(block) = blocks.get(depth)
            && let Some(run) = self.run_of.get(block).and_then(|run| self.runs.peek(run))
        {
            // Equal hashes at unequal depths are a collision; it ends the match.
            let held = depth
                .checked_sub(run.depth)
                .and_then(|skipped| run.blocks.get(skipped..));
            match common_length(
                held.unwrap_or_default(),
                blocks.get(depth..).unwrap_or_default(),
            ) {
                0 => return depth,
                more => depth += more,
            }
        }
        depth
    }

    /// Makes the placed prompt the most recent; false when its parent is not held.
    fn place(&mut self, placed: &Placed) -> bool {
        let parent = match placed.parent {
            None => None,
            Some(block) => match self.end_run_at(block, placed.depth as usize) {
                Some(run) => Some(run),
                None => return false,
            },
        };
        let new = self.blocks_not_held(&placed.blocks);
        let last = self.extend(parent, placed.depth as usize, new);
        let mut touched = last;
        while let Some(run) = touched {
            self.runs.promote(&run);
            touched = self.runs.peek(&run).and_then(|run| run.parent);
        }
        self.evict();
        true
    }

    /// The run that ends with `block`, the `depth`th of its prompt, splitting the run that holds it if need be.
    fn end_run_at(&mut self, block: BlockHash, depth: usize) -> Option<RunId> {
        let tail_id = *self.run_of.get(&block)?;
        let head_id = self.next_run;
        let tail = self.runs.peek_mut(&tail_id)?;
        let kept = depth.checked_sub(tail.depth)?;
        if kept == 0 || kept > tail.blocks.len() {
            return None;
        }
        if kept == tail.blocks.len() {
            return Some(tail_id);
        }
        // The tail keeps its number, so it keeps its age and its children; the head is about to be touched anyway.
        let rest = tail.blocks.split_off(kept);
        let head_blocks = core::mem::replace(&mut tail.blocks, rest);
        let head = Run {
            depth: tail.depth,
            parent: tail.parent,
            children: 1,
            blocks: head_blocks,
        };
        tail.depth += kept;
        tail.parent = Some(head_id);
        for block in &head.blocks {
            self.run_of.insert(*block, head_id);
        }
        self.runs.put(head_id, head);
        self.next_run = self.next_run.wrapping_add(1);
        Some(head_id)
    }

    /// The leading part of `blocks` that continues a held run without being held itself.
    fn blocks_not_held<'a>(&self, blocks: &'a [BlockHash]) -> &'a [BlockHash] {
        let new = blocks
            .iter()
            .take_while(|block| !self.run_of.contains_key(*block))
            .count();
        blocks.get(..new).unwrap_or_default()
    }

    /// Puts `new` behind `parent` and returns the run that is now the last of the prompt.
    fn extend(&mut self, parent: Option<RunId>, depth: usize, new: &[BlockHash]) -> Option<RunId> {
        if new.is_empty() {
            return parent;
        }
        self.held += new.len();
        if let Some(id) = parent
            && let Some(run) = self.runs.peek_mut(&id)
        {
            if run.children == 0 {
                run.blocks.extend_from_slice(new);
                self.run_of.extend(new.iter().map(|block| (*block, id)));
                return Some(id);
            }
            run.children += 1;
        }
        let id = self.next_run;
        self.next_run = self.next_run.wrapping_add(1);
        self.run_of.extend(new.iter().map(|block| (*block, id)));
        self.runs.put(
            id,
            Run {
                depth,
                parent,
                children: 0,
                blocks: new.to_vec(),
            },
        );
        Some(id)
    }

    fn evict(&mut self) {
        while self.held > self.capacity {
            let Some((&id, _)) = self.runs.peek_lru() else {
                return;
            };
            let Some(run) = self.runs.peek_mut(&id) else {
                return;
            };
            debug_assert_eq!(
                run.children, 0,
                "a parent is always more recent than its children"
            );
            let kept = run.blocks.len().saturating_sub(self.held - self.capacity);
            for block in run.blocks.drain(kept..) {
                self.run_of.remove(&block);
                self.held -= 1;
            }
            if kept > 0 {
                return;
            }
            let parent = self.runs.pop(&id).and_then(|run| run.parent);
            if let Some(parent) = parent.and_then(|parent| self.runs.peek_mut(&parent)) {
                parent.children -= 1;
            }
        }
    }
}

/// How many leading hashes of two chains are equal.
fn common_length(held: &[BlockHash], wanted: &[BlockHash]) -> usize {
    let longest = held.len().min(wanted.len());
    let is_equal = |place: usize| held.get(place) == wanted.get(place);
    if longest == 0 || is_equal(longest - 1) {
        return longest;
    }
    let (mut equal, mut unequal) = (0, longest - 1);
    while equal < unequal {
        let middle = equal.midpoint(unequal);
        if is_equal(middle) {
            equal = middle + 1;
        } else {
            unequal = middle;
        }
    }
    equal
}

/// Blocks taken to fit in an endpoint that does not tell its capacity: 400,000 tokens, about what one H100 with an 8B
/// model has room for.
const CAPACITY_BLOCKS_UNKNOWN: NonZeroUsize = NonZeroUsize::new(400_000 / 64).unwrap();

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const ENDPOINT: EndpointId = EndpointId(3);

    /// A block LRU as simple as can be: blocks in the order of their last use, each prompt's tail first.
    #[derive(Default)]
    struct Naive {
        capacity: usize,
        blocks: Vec<BlockHash>,
    }

    impl Naive {
        fn matched(&self, prompt: &[BlockHash]) -> usize {
            prompt
                .iter()
                .take_while(|block| self.blocks.contains(block))
                .count()
        }

        fn place(&mut self, prompt: &[BlockHash]) {
            self.blocks.retain(|block| !prompt.contains(block));
            self.blocks.extend(prompt.iter().rev());
            let over = self.blocks.len().saturating_sub(self.capacity);
            self.blocks.drain(..over);
        }
    }

    /// The hashes of a prompt: each depends on all before it.
    fn chain(texts: &[u64]) -> Vec<BlockHash> {
        let mut hash = 1;
        let step = |text: &u64| {
            hash = (hash ^ (text + 77))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
            BlockHash(hash)
        };
        texts.iter().map(step).collect()
    }

    fn place(index: &mut PrefixIndex, prompt: &[BlockHash]) {
        let placed = index.placement(ENDPOINT, prompt);
        index.apply(&placed);
    }

    fn with_capacity(capacity: usize) -> PrefixIndex {
        let mut index = PrefixIndex::default();
        index.set_capacity(ENDPOINT, capacity);
        index
    }

    #[test]
    fn a_prompt_matches_up_to_the_first_block_that_differs() {
        let mut index = with_capacity(100);
        place(&mut index, &chain(&[1, 2, 3, 4]));
        for (prompt, matched) in [
            (&[1, 2, 3, 4][..], 4),
            (&[1, 2, 3, 4, 5], 4),
            (&[1, 2], 2),
            (&[1, 2, 9, 4], 2),
            (&[2, 3, 4], 0),
            (&[], 0),
        ] {
            assert_eq!(
                index.matched(ENDPOINT, &chain(prompt)),
                matched,
                "{prompt:?}"
            );
        }
        assert_eq!(
            index.matched(EndpointId(4), &chain(&[1])),
            0,
            "endpoints do not mix"
        );
    }

    #[test]
    fn the_tail_is_forgotten_before_the_head() {
        let mut index = with_capacity(3);
        place(&mut index, &chain(&[1, 2, 3]));
        place(&mut index, &chain(&[9]));
        assert_eq!(index.matched(ENDPOINT, &chain(&[1, 2, 3])), 2);
        assert_eq!(index.matched(ENDPOINT, &chain(&[9])), 1);
    }

    #[test]
    fn a_prompt_longer_than_the_cache_leaves_its_head() {
        let mut index = with_capacity(3);
        place(&mut index, &chain(&[7, 8]));
        place(&mut index, &chain(&[1, 2, 3, 4, 5]));
        assert_eq!(index.matched(ENDPOINT, &chain(&[1, 2, 3, 4, 5])), 3);
        assert_eq!(index.held(ENDPOINT), 3);
    }

    #[test]
    fn an_unlisted_endpoint_is_forgotten() {
        let mut index = with_capacity(3);
        place(&mut index, &chain(&[1]));
        index.retain(|endpoint| endpoint != ENDPOINT);
        assert_eq!(index.matched(ENDPOINT, &chain(&[1])), 0);
    }

    #[test]
    fn a_placement_behind_a_block_that_is_not_held_teaches_nothing() {
        let mut index = with_capacity(10);
        let prompt = chain(&[1, 2, 3]);
        let placed = Placed {
            endpoint: ENDPOINT,
            depth: 2,
            parent: Some(prompt[1]),
            blocks: vec![prompt[2]],
        };
        index.apply(&placed);
        assert_eq!((index.unlinked, index.held(ENDPOINT)), (1, 0));
    }

    #[test]
    fn it_agrees_with_a_naive_block_lru() {
        for seed in 1..=60_u64 {
            let mut random = seed;
            let mut draw = |below: u64| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (random >> 33) % below
            };
            let capacity = 1 + draw(40) as usize;
            let mut index = with_capacity(capacity);
            let mut naive = Naive {
                capacity,
                ..Naive::default()
            };
            for step in 0..300 {
                let length = draw(12);
                let prompt = chain(&(0..length).map(|_| draw(3)).collect::<Vec<_>>());
                let at = alloc::format!("seed {seed} step {step}");
                assert_eq!(
                    index.matched(ENDPOINT, &prompt),
                    naive.matched(&prompt),
                    "{at}"
                );
                place(&mut index, &prompt);
                naive.place(&prompt);
                assert_eq!(index.held(ENDPOINT), naive.blocks.len(), "{at}");
            }
        }
    }
}
