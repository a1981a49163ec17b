//! Fixed runs of prompt bytes and the hashes that name them.

/// The name of a block *and of everything before it*: two prompts that share a block hash share all bytes up to the
/// end of that block, the model, the adapter and the cache salt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockHash(pub u64);

/// Bytes of prompt text in a block.
///
/// 256 bytes are about 64 tokens, the block size of the reference picker's approximate index.
pub const BLOCK_BYTES: usize = 256;
