//! What is asked of the servers: prompts made of parts that other prompts may share.

use picker_core::BlockHash;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// A run of tokens that is always the same for the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// What the tokens are; see [`Segment::new`].
    pub key: u64,
    /// How many.
    pub tokens: usize,
}

/// A request before it is sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Planned {
    /// The prompt, part by part.
    pub segments: Vec<Segment>,
    /// The answer; at least one token.
    pub output: Segment,
    /// What a hand-made partition and consistent hashing go by.
    pub group: u64,
    /// The conversation it is part of.
    pub conversation: Option<u64>,
    /// The LoRA adapter asked for.
    pub adapter: Option<u32>,
    /// The connection it is sent on: a user, or a place in a closed loop.
    pub connection: usize,
}

/// A request on its way.
#[derive(Clone, Debug)]
pub struct Job {
    /// Counted from 0 in the order of sending; unlike those of any other.
    pub id: u64,
    /// What was planned.
    pub planned: Planned,
    /// The tokens of the prompt.
    pub prompt: Vec<u32>,
    /// One hash for each whole [`BLOCK_TOKENS`] of the prompt; equal prefixes have equal hashes.
    pub blocks: Vec<BlockHash>,
}

impl Segment {
    /// The part called `number` of one `kind`; parts of other kinds or numbers are unlike it.
    pub fn new(kind: &str, number: u64, tokens: usize) -> Self {
        let key = xxh3_64_with_seed(kind.as_bytes(), number);
        Self { key, tokens }
    }

    /// The tokens.
    pub fn tokens(&self) -> impl Iterator<Item = u32> {
        let key = self.key;
        (0..self.tokens as u64).map(move |place| {
            let mixed = (key ^ place).wrapping_mul(MIX);
            (mixed >> 32) as u32
        })
    }
}

impl Default for Segment {
    fn default() -> Self {
        Self { key: 0, tokens: 1 }
    }
}

impl Job {
    /// Writes out what was planned.
    pub fn new(id: u64, planned: Planned) -> Self {
        let prompt: Vec<u32> = planned.segments.iter().flat_map(Segment::tokens).collect();
        let blocks = chain(&prompt, root(planned.adapter));
        Self {
            id,
            planned,
            prompt,
            blocks,
        }
    }

    /// The request as the engine takes it.
    pub fn engine_request(&self) -> crate::engine::Request {
        crate::engine::Request {
            prompt: self.prompt.clone(),
            output: self.planned.output.tokens().collect(),
            root: self.root(),
            adapter: self.planned.adapter,
            ..crate::engine::Request::default()
        }
    }

    /// Where the engine's block hashes of this request begin.
    pub fn root(&self) -> u64 {
        root(self.planned.adapter)
    }

    /// Tokens of the answer.
    pub fn output_tokens(&self) -> usize {
        self.planned.output.tokens.max(1)
    }
}

/// Where the hashes of an adapter begin: two adapters share no block.
fn root(adapter: Option<u32>) -> u64 {
    adapter.map_or(0, |adapter| xxh3_64(&adapter.to_le_bytes()))
}

fn chain(prompt: &[u32], root: u64) -> Vec<BlockHash> {
    let mut bytes = [0; BLOCK_TOKENS * 4];
    let mut last = root;
    let hashes = prompt.chunks_exact(BLOCK_TOKENS).map(|block| {
        for (slot, token) in bytes.chunks_exact_mut(4).zip(block) {
            slot.copy_from_slice(&token.to_le_bytes());
        }
        last = xxh3_64_with_seed(&bytes, last);
        BlockHash(last)
    });
    hashes.collect()
}

/// Tokens of prompt that get one hash, as in the picker: 256 bytes of text.
pub const BLOCK_TOKENS: usize = 64;

/// An odd number without a pattern, the golden ratio's: spreads keys and places over the tokens.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    fn job(parts: &[(&str, u64, usize)], adapter: Option<u32>) -> Job {
        let segments = parts.iter().map(|it| Segment::new(it.0, it.1, it.2));
        let planned = Planned {
            segments: segments.collect(),
            adapter,
            ..Planned::default()
        };
        Job::new(0, planned)
    }

    /// How many leading blocks two prompts share.
    fn check(a: &Job, b: &Job, shared: usize) {
        let same = a.blocks.iter().zip(&b.blocks).take_while(|(a, b)| a == b);
        assert_eq!(same.count(), shared);
    }

    #[test]
    fn prompts_share_the_blocks_of_what_they_share_and_no_others() {
        let one = job(&[("prefix", 1, 130), ("suffix", 1, 100)], None);
        assert_eq!((one.prompt.len(), one.blocks.len()), (230, 3));
        check(&one, &one.clone(), 3);
        check(
            &one,
            &job(&[("prefix", 1, 130), ("suffix", 2, 100)], None),
            2,
        );
        check(
            &one,
            &job(&[("prefix", 2, 130), ("suffix", 1, 100)], None),
            0,
        );
        check(&one, &job(&[("prefix", 1, 130)], Some(1)), 0);
        check(&job(&[], None), &one, 0);
    }
}
