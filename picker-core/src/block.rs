//! Fixed runs of prompt text and the hashes that name them.
//!
//! Hashing has two halves, because the parts of a prompt may stand in a body in any order while
//! the chain follows the order in which a chat template renders them. While the text streams by,
//! [`BlockHasher`] takes the *content hash* of each run of [`BLOCK_BYTES`] bytes. At the end
//! [`Chain`] links the content hashes, section by section, into [`BlockHash`]es:
//! `h[i] = xxh3_64(LE64(h[i-1]) ‖ LE64(c[i]))`, beginning at [`HashSeed::origin`].

use alloc::vec::Vec;

use xxhash_rust::xxh3::xxh3_64;

/// The name of a block *and of everything before it*.
///
/// Two prompts that share a block hash share all bytes up to the end of that block, the model,
/// the adapter and the cache salt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockHash(pub u64);

/// What all block hashes of a pool depend on.
///
/// Every Envoy in front of one pool has to use the same seed, or they do not agree on the home of
/// a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashSeed(u64);

/// Takes the content hash of each full block of a text that arrives in pieces.
///
/// Holds 8 bytes for each block and one block of text, whatever the length of the text. Blocks
/// past [`PROMPT_BLOCKS_MAX`] are counted in [`bytes`](Self::bytes) and not hashed.
pub(crate) struct BlockHasher {
    contents: Vec<u64>,
    partial: [u8; BLOCK_BYTES],
    filled: usize,
    bytes: u64,
}

/// The content hashes of a text that has ended.
#[derive(Clone)]
pub(crate) struct HashedText {
    /// Bytes of text, without framing.
    pub(crate) bytes: u64,
    contents: Vec<u64>,
    /// The content hash of the partial block at the end, when there is one.
    tail: Option<u64>,
}

/// Links content hashes into block hashes.
pub(crate) struct Chain {
    last: u64,
    blocks: Vec<BlockHash>,
}

impl HashSeed {
    /// The seed that a configured text stands for.
    pub fn new(text: &str) -> Self {
        Self(xxh3_64(text.as_bytes()))
    }

    /// Where the chains of a request begin.
    ///
    /// Each part that is there is written with a tag and its length, so no two different pairs of
    /// model and salt are written alike, and an absent part differs from an empty one.
    pub(crate) fn origin(self, model: Option<&str>, cache_salt: Option<&str>) -> u64 {
        let mut tagged = Vec::new();
        tagged.extend_from_slice(&self.0.to_le_bytes());
        for (tag, part) in [(b'm', model), (b's', cache_salt)] {
            let Some(part) = part else { continue };
            tagged.push(tag);
            tagged.extend_from_slice(&(part.len() as u64).to_le_bytes());
            tagged.extend_from_slice(part.as_bytes());
        }
        xxh3_64(&tagged)
    }
}

impl Default for BlockHasher {
    fn default() -> Self {
        Self {
            contents: Vec::new(),
            partial: [0; BLOCK_BYTES],
            filled: 0,
            bytes: 0,
        }
    }
}

impl BlockHasher {
    /// Appends text.
    pub(crate) fn push(&mut self, text: &[u8]) {
        self.bytes = self.bytes.saturating_add(text.len() as u64);
        self.hash(text);
    }

    /// Appends bytes that keep texts apart and are no text themselves: hashed, but not counted.
    pub(crate) fn frame(&mut self, bytes: &[u8]) {
        self.hash(bytes);
    }

    pub(crate) fn finish(self) -> HashedText {
        let partial = self.partial.get(..self.filled).unwrap_or_default();
        let tail = (!partial.is_empty()).then(|| xxh3_64(partial));
        HashedText {
            bytes: self.bytes,
            contents: self.contents,
            tail,
        }
    }

    /// Bytes of text so far, without framing.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Full blocks so far.
    pub(crate) fn blocks(&self) -> usize {
        self.contents.len()
    }

    #[inline]
    fn hash(&mut self, bytes: &[u8]) {
        // Text with many escapes comes in pieces of a few bytes.
        if self.filled + bytes.len() < BLOCK_BYTES {
            self.keep(bytes);
        } else {
            self.hash_blocks(bytes);
        }
    }

    fn hash_blocks(&mut self, mut bytes: &[u8]) {
        if 0 < self.filled {
            let (head, rest) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.filled));
            self.keep(head);
            self.filled = 0;
            self.close(xxh3_64(&self.partial));
            bytes = rest;
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
        for block in blocks {
            self.close(xxh3_64(block));
        }
        self.keep(rest);
    }

    /// Appends to the partial block what fits into it.
    #[inline]
    fn keep(&mut self, bytes: &[u8]) {
        let end = self.filled + bytes.len();
        if let Some(room) = self.partial.get_mut(self.filled..end) {
            copy(room, bytes);
            self.filled = end;
        }
    }

    fn close(&mut self, content: u64) {
        if self.contents.len() < PROMPT_BLOCKS_MAX {
            self.contents.push(content);
        }
    }
}

impl HashedText {
    /// Makes the content of a full block another one, depending on `hash`.
    pub(crate) fn mix(&mut self, block: usize, hash: u64) {
        if let Some(content) = self.contents.get_mut(block) {
            *content = link(*content, hash);
        }
    }
}

impl Chain {
    pub(crate) fn new(origin: u64) -> Self {
        Self {
            last: origin,
            blocks: Vec::new(),
        }
    }

    /// Appends a section that another one follows: its partial block is closed as it is.
    ///
    /// `tag` names the kind of section, so equal bytes in different sections never match.
    pub(crate) fn section(&mut self, tag: u64, text: HashedText) {
        let tail = text.tail;
        self.last_section(tag, text);
        if let Some(tail) = tail {
            self.link(tail);
        }
    }

    /// Appends the last section: its partial block may still grow, so it is left out.
    pub(crate) fn last_section(&mut self, tag: u64, text: HashedText) {
        self.last = link(self.last, tag);
        self.blocks.reserve(text.contents.len());
        for content in text.contents {
            self.link(content);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn into_blocks(self) -> Vec<BlockHash> {
        self.blocks
    }

    fn link(&mut self, content: u64) {
        if self.blocks.len() < PROMPT_BLOCKS_MAX {
            self.last = link(self.last, content);
            self.blocks.push(BlockHash(self.last));
        }
    }
}

/// Copies `from` to `to`, which is as long.
///
/// Most pieces are short, and calling the general copy costs more than a few overlapping words.
#[inline]
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    match from.len() {
        0..2 => {
            for (to, from) in to.iter_mut().zip(from) {
                *to = *from;
            }
        }
        2..=4 => copy_ends::<2>(to, from),
        5..=8 => copy_ends::<4>(to, from),
        9..=16 => copy_ends::<8>(to, from),
        17..=32 => copy_ends::<16>(to, from),
        33..=64 => copy_ends::<32>(to, from),
        _ => to.copy_from_slice(from),
    }
}

#[inline]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(to), Some(from)) = (to.first_chunk_mut::<N>(), from.first_chunk()) {
        *to = *from;
    }
    if let (Some(to), Some(from)) = (to.last_chunk_mut::<N>(), from.last_chunk()) {
        *to = *from;
    }
}

fn link(previous: u64, content: u64) -> u64 {
    let mut pair = [0; 16];
    let (first, second) = pair.split_at_mut(8);
    first.copy_from_slice(&previous.to_le_bytes());
    second.copy_from_slice(&content.to_le_bytes());
    xxh3_64(&pair)
}

/// Bytes of prompt text in a block.
///
/// 256 bytes are about 64 tokens, the block size of the reference picker's approximate index.
pub const BLOCK_BYTES: usize = 256;

/// Blocks hashed for each prompt; what follows is counted and not hashed.
///
/// 4,096 blocks are 1 MiB of text or about 262,000 tokens, longer than the context window of the
/// models in use; past it a longer match would not change a pick.
pub const PROMPT_BLOCKS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// The hashes of `text` as the last section after `before`, pushed in pieces of `piece` bytes.
    fn blocks(before: &[u8], text: &[u8], piece: usize) -> Vec<BlockHash> {
        let hashed = |text: &[u8]| {
            let mut hasher = BlockHasher::default();
            for piece in text.chunks(piece) {
                hasher.push(piece);
            }
            hasher.finish()
        };
        let mut chain = Chain::new(HashSeed::new("pool").origin(None, None));
        chain.section(1, hashed(before));
        chain.last_section(2, hashed(text));
        chain.into_blocks()
    }

    #[test]
    fn pieces_do_not_matter() {
        let text: Vec<u8> = (0..1500).map(|at| (at % 251) as u8).collect();
        let whole = blocks(&text[..300], &text, text.len());
        assert_eq!(whole.len(), 2 + 5);
        for piece in 1..600 {
            assert_eq!(blocks(&text[..300], &text, piece), whole, "{piece}");
        }
    }

    #[test]
    fn only_a_section_that_another_follows_closes_its_partial_block() {
        for (before, last, expected) in [
            (0, BLOCK_BYTES - 1, 0),
            (0, BLOCK_BYTES, 1),
            (1, 0, 1),
            (BLOCK_BYTES, BLOCK_BYTES + 1, 2),
            (BLOCK_BYTES + 1, 0, 2),
        ] {
            let text = [7; 2 * BLOCK_BYTES];
            assert_eq!(blocks(&text[..before], &text[..last], 99).len(), expected);
        }
    }

    #[test]
    fn a_block_names_all_that_stands_before_it() {
        let text = [7; 3 * BLOCK_BYTES];
        let mut other = text;
        other[0] = 8;
        let (text, other) = (blocks(&[], &text, 99), blocks(&[], &other, 99));
        assert!(text.iter().zip(&other).all(|(one, other)| one != other));
        assert!(
            text[0] != text[1] && text[1] != text[2],
            "equal content, other places"
        );
    }
}
