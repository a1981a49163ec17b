//! One endpoint's prefix cache: runs of blocks, who uses them, and the order in which they go.

use alloc::vec::Vec;

use hashbrown::{DefaultHashBuilder, HashMap};
use lru::LruCache;

use super::media::MediaCache;
use super::{Found, Held};
use crate::BlockHash;
use crate::adapter::Adapters;
use crate::bytes::{Reader, Writer};
use crate::health::Health;
use crate::ring::Placed;

/// The twin of one endpoint's cache.
pub(super) struct Twin {
    /// Runs by number, the most recent first.
    runs: LruCache<RunId, Run, DefaultHashBuilder>,
    /// The run of every held block.
    run_of: HashMap<BlockHash, RunId>,
    /// Blocks in all runs.
    pub(super) blocks: usize,
    /// Blocks in runs that are pinned.
    pub(super) pinned: usize,
    pub(super) capacity: usize,
    next_run: RunId,
    pub(super) health: Health,
    pub(super) adapters: Adapters,
    pub(super) media: MediaCache,
    /// The last ring entry that sent it a request of which nobody held anything; 0 for none.
    pub(super) cold_at: u64,
    /// The last ring entry that was in it when it was taken over from another worker.
    pub(super) restored: u64,
}

pub(super) type RunId = u32;

/// A stretch of blocks that only ever continue each other.
struct Run {
    /// How many blocks of the prompt come before this run.
    depth: usize,
    /// The run that holds the block before this run's first.
    parent: Option<RunId>,
    /// How many runs have this one as their parent. Only a run without children may lose blocks.
    children: u32,
    /// How many prompts in flight use this run, which is then used to its end.
    pins: u32,
    /// The ring entry that touched it last.
    used: u64,
    blocks: Vec<BlockHash>,
}

impl Default for Twin {
    fn default() -> Self {
        Self {
            runs: LruCache::unbounded_with_hasher(DefaultHashBuilder::default()),
            run_of: HashMap::default(),
            blocks: 0,
            pinned: 0,
            capacity: CAPACITY_BLOCKS_UNKNOWN,
            next_run: 0,
            health: Health::default(),
            adapters: Adapters::default(),
            media: MediaCache::default(),
            cold_at: 0,
            restored: 0,
        }
    }
}

impl Twin {
    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        self.health.encode(writer);
        self.adapters.encode(writer);
        writer.u64(self.cold_at);
        self.media.encode(writer);
        writer.u32(self.next_run);
        writer.u32(self.runs.len() as u32);
        for (id, run) in self.runs.iter().rev() {
            writer.u32(*id);
            writer.count(run.parent.map(u64::from));
            writer.u32(run.depth as u32);
            writer.u64(run.used);
            writer.u32(run.blocks.len() as u32);
            run.blocks.iter().for_each(|block| writer.u64(block.0));
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let mut twin = Self {
            health: Health::decode(reader)?,
            adapters: Adapters::decode(reader)?,
            cold_at: reader.u64()?,
            media: MediaCache::decode(reader)?,
            next_run: reader.u32()?,
            ..Self::default()
        };
        for _ in 0..reader.u32()? {
            let id = reader.u32()?;
            let parent = reader.count()?.map(RunId::try_from).transpose().ok()?;
            let (depth, used) = (reader.u32()? as usize, reader.u64()?);
            let block = |reader: &mut Reader<'_>| reader.u64().map(BlockHash);
            let blocks: Vec<BlockHash> = (0..reader.u32()?)
                .map(|_| block(reader))
                .collect::<Option<_>>()?;
            twin.blocks += blocks.len();
            twin.run_of.extend(blocks.iter().map(|block| (*block, id)));
            let run = Run {
                depth,
                parent,
                children: 0,
                pins: 0,
                used,
                blocks,
            };
            if run.blocks.is_empty() || twin.runs.put(id, run).is_some() {
                return None;
            }
        }
        twin.count_children()?;
        // No block is in two places.
        (twin.run_of.len() == twin.blocks).then_some(twin)
    }

    /// Tells every run how many continue it; `None` unless each begins where its parent ends, so
    /// that none comes before itself.
    ///
    /// Parents are more recent than their children and are decoded later.
    fn count_children(&mut self) -> Option<()> {
        let runs = self.runs.iter();
        let begins: Vec<_> = runs.map(|(_, run)| (run.parent, run.depth)).collect();
        for (parent, depth) in begins {
            let end = match parent {
                None => 0,
                Some(parent) => {
                    let parent = self.runs.peek_mut(&parent)?;
                    parent.children += 1;
                    parent.depth + parent.blocks.len()
                }
            };
            if end != depth {
                return None;
            }
        }
        Some(())
    }

    /// Goes from run to run, and inside a run by bisection: equal hashes mean equal beginnings.
    pub(super) fn held(&self, blocks: &[BlockHash]) -> Held {
        let mut held = Held::default();
        while let Some(block) = blocks.get(held.matched)
            && let Some(run) = self.run_of.get(block).and_then(|run| self.runs.peek(run))
        {
            // Equal hashes at unequal depths are a collision; it ends the match.
            let own = held
                .matched
                .checked_sub(run.depth)
                .and_then(|skip| run.blocks.get(skip..));
            let wanted = blocks.get(held.matched..).unwrap_or_default();
            let more = common_length(own.unwrap_or_default(), wanted);
            if more == 0 {
                break;
            }
            held.matched += more;
            if run.pins > 0 {
                held.pinned = held.matched;
            }
        }
        held
    }

    /// What is held of the placed prompt, the first stretch first.
    pub(super) fn found(&self, placed: &Placed) -> Vec<Found> {
        let mut found = Vec::new();
        let mut end = placed.depth as usize;
        let last = placed
            .parent
            .and_then(|block| self.run_of.get(&block))
            .copied();
        let mut next = last.and_then(|run| self.runs.peek(&run));
        while let Some(run) = next {
            found.push(Found {
                end,
                used: run.used,
            });
            end = run.depth;
            next = run.parent.and_then(|run| self.runs.peek(&run));
        }
        found.reverse();
        found
    }

    /// Takes in and pins the placed prompt; its last run, or `None` when its parent is not held.
    pub(super) fn place(&mut self, sequence: u64, placed: &Placed) -> Option<RunId> {
        let depth = placed.depth as usize;
        let parent = match placed.parent {
            None => None,
            Some(block) => Some(self.end_run_at(block, depth)?),
        };
        let new = self.blocks_not_held(&placed.blocks);
        let last = self.extend(parent, depth, new)?;
        let touched = self.touch(sequence, last);
        self.pin(&touched);
        self.evict();
        Some(last)
    }

    pub(super) fn pin(&mut self, runs: &[RunId]) {
        for run in runs {
            if let Some(run) = self.runs.peek_mut(run) {
                self.pinned += if run.pins == 0 { run.blocks.len() } else { 0 };
                run.pins = run.pins.saturating_add(1);
            }
        }
    }

    /// `last` and all runs before it, the first one last; empty when `last` is none.
    pub(super) fn path(&self, last: RunId) -> Vec<RunId> {
        let mut path = Vec::new();
        let mut next = Some(last);
        while let Some(id) = next
            && let Some(run) = self.runs.peek(&id)
        {
            path.push(id);
            next = run.parent;
        }
        path
    }

    /// Lets go of a prompt that ended with `last`, and puts its output behind it.
    pub(super) fn finish(&mut self, sequence: u64, last: RunId, output: &[BlockHash]) {
        let depth = self
            .runs
            .peek(&last)
            .map_or(0, |run| run.depth + run.blocks.len());
        let tail = self.extend(Some(last), depth, output);
        for id in tail.map_or_else(Vec::new, |tail| self.touch(sequence, tail)) {
            if Some(id) != tail || tail == Some(last) {
                self.unpin(id);
            }
        }
        self.evict();
    }

    /// Forgets what an endpoint cannot hold any more that held only `cached` blocks of what was
    /// `found`.
    ///
    /// A block more or less is rounding, for hash blocks and the engine's are cut differently.
    pub(super) fn believe(&mut self, found: &[Found], cached: Option<u32>) {
        let Some(cached) = cached.map(|cached| cached as usize) else {
            return;
        };
        let lost = found
            .iter()
            .find(|stretch| stretch.end > cached + ROUNDING_BLOCKS);
        let Some(Found { used, .. }) = lost else {
            return;
        };
        while let Some((&id, run)) = self.runs.peek_lru()
            && run.used <= *used
            && run.pins == 0
            && run.children == 0
        {
            self.forget_from(id, 0);
        }
    }

    /// Forgets the blocks of a run from place `kept` on; a run without any goes.
    fn forget_from(&mut self, id: RunId, kept: usize) {
        let Some(run) = self.runs.peek_mut(&id) else {
            return;
        };
        for block in run.blocks.drain(kept.min(run.blocks.len())..) {
            self.run_of.remove(&block);
            self.blocks -= 1;
        }
        if kept > 0 {
            return;
        }
        let parent = self.runs.pop(&id).and_then(|run| run.parent);
        if let Some(parent) = parent.and_then(|parent| self.runs.peek_mut(&parent)) {
            parent.children = parent.children.saturating_sub(1);
        }
    }

    fn unpin(&mut self, id: RunId) {
        if let Some(run) = self.runs.peek_mut(&id)
            && run.pins > 0
        {
            run.pins -= 1;
            self.pinned -= if run.pins == 0 { run.blocks.len() } else { 0 };
        }
    }

    /// Makes `last` and all runs before it the most recent, the first one last; gives them in that
    /// order.
    fn touch(&mut self, sequence: u64, last: RunId) -> Vec<RunId> {
        let path = self.path(last);
        for id in &path {
            self.runs.promote(id);
            if let Some(run) = self.runs.peek_mut(id) {
                run.used = sequence;
            }
        }
        path
    }

    /// The run that ends with `block`, the `depth`th of its prompt, splitting the run that holds it
    /// if need be.
    fn end_run_at(&mut self, block: BlockHash, depth: usize) -> Option<RunId> {
        let tail_id = *self.run_of.get(&block)?;
        let tail = self.runs.peek_mut(&tail_id)?;
        let kept = depth.checked_sub(tail.depth)?;
        if kept == 0 || kept > tail.blocks.len() {
            return None;
        }
        if kept == tail.blocks.len() {
            return Some(tail_id);
        }
        // The tail keeps its number, so it keeps its age, its children and the pins that name it.
        // Every prompt that pins it uses it to its end, so the head has the same pins.
        let rest = tail.blocks.split_off(kept);
        let blocks = core::mem::replace(&mut tail.blocks, rest);
        let (depth, parent, pins, used) = (tail.depth, tail.parent, tail.pins, tail.used);
        tail.depth += kept;
        let head_id = self.insert(Run {
            depth,
            parent,
            children: 1,
            pins,
            used,
            blocks,
        });
        self.runs.peek_mut(&tail_id)?.parent = Some(head_id);
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
        self.blocks += new.len();
        if let Some(id) = parent
            && let Some(run) = self.runs.peek_mut(&id)
        {
            // A pinned run must end where its prompts end.
            if run.children == 0 && run.pins == 0 {
                run.blocks.extend_from_slice(new);
                self.run_of.extend(new.iter().map(|block| (*block, id)));
                return Some(id);
            }
            run.children += 1;
        }
        Some(self.insert(Run {
            depth,
            parent,
            children: 0,
            pins: 0,
            used: 0,
            blocks: new.to_vec(),
        }))
    }

    fn insert(&mut self, run: Run) -> RunId {
        let mut id = self.next_run;
        // Numbers come round again, and a run that is used all the time outlives the round.
        while self.runs.contains(&id) {
            id = id.wrapping_add(1);
        }
        self.next_run = id.wrapping_add(1);
        self.run_of
            .extend(run.blocks.iter().map(|block| (*block, id)));
        self.runs.put(id, run);
        id
    }

    /// Forgets the oldest blocks that nobody uses until the rest fits, or until all that is left is
    /// in use.
    pub(super) fn evict(&mut self) {
        let mut in_use = 0;
        while self.blocks > self.capacity && in_use < self.runs.len() {
            let Some((&id, _)) = self.runs.peek_lru() else {
                return;
            };
            let Some(run) = self.runs.peek_mut(&id) else {
                return;
            };
            if run.pins > 0 || run.children > 0 {
                // It will be touched when its last prompt ends, so it may as well be recent now.
                self.runs.promote(&id);
                in_use += 1;
                continue;
            }
            let kept = run.blocks.len().saturating_sub(self.blocks - self.capacity);
            self.forget_from(id, kept);
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

/// Blocks taken to fit in an endpoint that does not tell its capacity: 400,000 tokens, about what
/// one H100 with an 8B model has room for.
const CAPACITY_BLOCKS_UNKNOWN: usize = 400_000 / 64;

/// By how much an endpoint may have held less than its twin without having forgotten anything.
const ROUNDING_BLOCKS: usize = 2;
