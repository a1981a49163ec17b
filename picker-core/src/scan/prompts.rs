//! The prompts of a body, hashed while they stream by.

use alloc::vec::Vec;

use crate::block::{BlockHash, BlockHasher, Chain, HashedText};
use crate::request::{GROUP_BLOCKS_MAX, Prompt};

/// The one prompt of a chat, as the sections that a template renders one after the other.
///
/// In the body they stand in any order. All but the last are closed: a section begins a block of
/// its own, for where its neighbour ended is not known while it is read.
#[derive(Default)]
pub(super) struct Sections {
    tools: Option<BlockHasher>,
    messages: Option<BlockHasher>,
    /// Full blocks of the messages at the end of the first message of the user.
    group_blocks: Option<usize>,
}

/// A section of a chat, in template order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Tools,
    Messages,
}

/// The prompts of a body that may hold more than one.
#[derive(Default)]
pub(super) struct PromptList {
    items: Option<Item>,
    texts: Vec<HashedText>,
    open: Option<BlockHasher>,
    ignored: u64,
}

/// What a list of prompts consists of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    /// Texts, each a prompt.
    Text,
    /// Token ids, all together a prompt.
    TokenId,
    /// Lists of token ids, each a prompt.
    TokenIds,
}

impl Sections {
    /// Begins `section`; what an earlier member of the same name said is forgotten.
    pub(super) fn begin(&mut self, section: Section) {
        *self.slot(section) = Some(BlockHasher::new());
        if section == Section::Messages {
            self.group_blocks = None;
        }
    }

    /// Says that a message of the user ends here.
    pub(super) fn end_user_message(&mut self) {
        let blocks = self.messages.as_ref().map(BlockHasher::blocks);
        self.group_blocks = self.group_blocks.or(blocks);
    }

    /// Takes `section` out of the prompt.
    pub(super) fn remove(&mut self, section: Section) {
        *self.slot(section) = None;
    }

    #[inline]
    pub(super) fn push(&mut self, section: Section, text: &[u8]) {
        if let Some(hasher) = self.slot(section) {
            hasher.push(text);
        }
    }

    pub(super) fn frame(&mut self, section: Section, bytes: &[u8]) {
        if let Some(hasher) = self.slot(section) {
            hasher.frame(bytes);
        }
    }

    /// The prompt, its chain beginning at `origin`, and its group; `None` without messages.
    pub(super) fn finish(self, origin: u64) -> Option<(Prompt, Option<BlockHash>)> {
        let messages = self.messages?.finish();
        let mut bytes = messages.bytes;
        let mut chain = Chain::new(origin);
        // `[]` and `{}` are no tools: templates render nothing for them.
        if let Some(tools) = self.tools.filter(|tools| 2 < tools.bytes()) {
            let tools = tools.finish();
            bytes = bytes.saturating_add(tools.bytes);
            chain.section(TOOLS_TAG, tools);
        }
        let blocks_before = chain.len();
        chain.last_section(MESSAGES_TAG, messages);
        let blocks = chain.into_blocks();
        let group_blocks = self
            .group_blocks
            .map_or(blocks.len(), |it| blocks_before + it);
        let group = blocks.iter().take(group_blocks).next_back().copied();
        Some((Prompt { bytes, blocks }, group))
    }

    #[inline]
    fn slot(&mut self, section: Section) -> &mut Option<BlockHasher> {
        match section {
            Section::Tools => &mut self.tools,
            Section::Messages => &mut self.messages,
        }
    }
}

/// What a plain prompt belongs to.
pub(super) fn group_of(prompt: &Prompt) -> Option<BlockHash> {
    prompt
        .blocks
        .iter()
        .take(GROUP_BLOCKS_MAX)
        .next_back()
        .copied()
}

impl PromptList {
    /// Whether an `item` may stand with the items before it.
    pub(super) fn admits(&mut self, item: Item) -> bool {
        *self.items.get_or_insert(item) == item
    }

    /// Begins a prompt if none is open.
    pub(super) fn open(&mut self) {
        if self.open.is_some() {
            return;
        }
        if self.texts.len() < PROMPTS_MAX {
            self.open = Some(BlockHasher::new());
        } else {
            self.ignored = self.ignored.saturating_add(1);
        }
    }

    #[inline]
    pub(super) fn push(&mut self, text: &[u8]) {
        if let Some(hasher) = &mut self.open {
            hasher.push(text);
        }
    }

    /// Ends the prompt that is open, if one is.
    pub(super) fn close(&mut self) {
        if let Some(hasher) = self.open.take() {
            self.texts.push(hasher.finish());
        }
    }

    /// How many prompts past [`PROMPTS_MAX`] were not read.
    pub(super) fn ignored(&self) -> u64 {
        self.ignored
    }

    /// The prompts, each with a chain of its own that begins at `origin`.
    pub(super) fn finish(self, origin: u64) -> Vec<Prompt> {
        let tag = match self.items {
            None | Some(Item::Text) => TEXT_TAG,
            Some(Item::TokenId | Item::TokenIds) => TOKEN_IDS_TAG,
        };
        let prompt = |text: HashedText| {
            let bytes = text.bytes;
            let mut chain = Chain::new(origin);
            chain.last_section(tag, text);
            Prompt {
                bytes,
                blocks: chain.into_blocks(),
            }
        };
        self.texts.into_iter().map(prompt).collect()
    }
}

/// Prompts read from one body.
///
/// Clients of batch completions send a few at a time, and each prompt costs its own lookups.
pub(super) const PROMPTS_MAX: usize = 64;

/// Keep apart the chains of texts that are different prompts though their bytes are equal.
const TEXT_TAG: u64 = 1;
const TOKEN_IDS_TAG: u64 = 2;
const TOOLS_TAG: u64 = 3;
const MESSAGES_TAG: u64 = 4;
