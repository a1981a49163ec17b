//! stub
use crate::BlockHash;
use alloc::vec::Vec;
/// A request.
#[derive(Default, Clone, Debug)]
pub struct Request {
    /// Prompts.
    pub prompts: Vec<Prompt>,
}
/// Prompt.
#[derive(Default, Clone, Debug)]
pub struct Prompt {
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: Vec<BlockHash>,
}
