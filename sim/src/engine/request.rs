//! A request inside the engine: its tokens, its blocks and how far it has come.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::RequestId;
use super::pool::BlockId;

/// A request as it is handed to the engine.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The prompt, at least one token.
    pub prompt: Vec<u32>,
    /// The tokens the model will answer with; the request is finished after the last one.
    /// An empty output counts as one token.
    pub output: Vec<u32>,
    /// Starts the chain of block hashes: requests with different roots share no block.
    pub root: u64,
    /// The LoRA adapter, for the places that adapters have; the cache goes by `root`.
    pub adapter: Option<u32>,
    /// A lower number is served first, under [`Policy::Priority`](super::Policy::Priority).
    pub priority: i64,
    /// When it arrived, in any unit that grows; orders requests of one priority.
    pub arrival: u64,
}

/// A request that waits or runs.
pub(super) struct Entry {
    pub(super) id: RequestId,
    pub(super) adapter: Option<u32>,
    pub(super) priority: i64,
    pub(super) arrival: u64,
    /// Prompt, then output; only the first `known` exist yet.
    pub(super) tokens: Vec<u32>,
    pub(super) prompt_len: usize,
    pub(super) known: usize,
    /// How many leading tokens have been given to the model since the last admission.
    pub(super) computed: usize,
    pub(super) blocks: Vec<BlockId>,
    /// How many leading blocks carry their hash.
    pub(super) hashed: usize,
    pub(super) preemptions: u32,
    pub(super) status: Status,
    /// Hashes of the full blocks of the known tokens, as far as anyone asked.
    hashes: Vec<u64>,
    root: u64,
}

/// Where a request stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    Waiting,
    Running,
}

impl Entry {
    pub(super) fn new(id: RequestId, request: Request) -> Self {
        let Request {
            prompt,
            output,
            root,
            adapter,
            priority,
            arrival,
        } = request;
        let prompt_len = prompt.len();
        let mut tokens = prompt;
        tokens.extend(output);
        Self {
            id,
            adapter,
            priority,
            arrival,
            tokens,
            prompt_len,
            known: prompt_len,
            computed: 0,
            blocks: Vec::new(),
            hashed: 0,
            preemptions: 0,
            status: Status::Waiting,
            hashes: Vec::new(),
            root,
        }
    }

    /// The hashes of all full blocks of the known tokens.
    pub(super) fn hashes(&mut self, block_size: usize) -> &[u64] {
        let full = self.known / block_size;
        for block in self
            .tokens
            .chunks_exact(block_size)
            .take(full)
            .skip(self.hashes.len())
        {
            let parent = self.hashes.last().copied().unwrap_or(self.root);
            self.hashes.push(block_hash(parent, block));
        }
        &self.hashes
    }

    /// The hashes that [`hashes`](Self::hashes) has made so far.
    pub(super) fn full_hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// Whether it has all its tokens.
    pub(super) fn is_complete(&self, max_model_len: usize) -> bool {
        self.known >= self.tokens.len() || self.known >= max_model_len
    }
}

/// The hash of a block: its tokens, chained on the hash of the block before it.
pub(super) fn block_hash(parent: u64, block: &[u32]) -> u64 {
    let mut bytes = [0; BLOCK_BYTES_INLINE];
    let Some(inline) = bytes.get_mut(..block.len() * 4) else {
        let bytes: Vec<u8> = block.iter().flat_map(|token| token.to_le_bytes()).collect();
        return xxh3_64_with_seed(&bytes, parent);
    };
    for (slot, token) in inline.chunks_exact_mut(4).zip(block) {
        slot.copy_from_slice(&token.to_le_bytes());
    }
    xxh3_64_with_seed(inline, parent)
}

/// Bytes of a block hashed without an allocation: 64 tokens, the largest common block size.
const BLOCK_BYTES_INLINE: usize = 256;
