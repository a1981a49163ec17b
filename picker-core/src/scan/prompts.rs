//! The prompts of a body, hashed while they stream by.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::fields::Mark;
use crate::block::{BlockHash, BlockHasher, Chain, HashedText};
use crate::request::{GROUP_BLOCKS_MAX, Prompt};

/// The one prompt of a chat, as the sections that a template renders one after the other.
///
/// In the body they stand in any order. All but the last are closed: a section begins a block of
/// its own, for where its neighbour ended is not known while it is read.
#[derive(Default)]
pub(super) struct Sections {
    previous: Option<Box<BlockHasher>>,
    tools: Option<Box<BlockHasher>>,
    system: Option<Box<BlockHasher>>,
    messages: Option<Box<BlockHasher>>,
    /// Full blocks of the messages at the end of the first message of the user.
    group_blocks: Option<usize>,
}

/// A section of a chat, in template order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    /// What names the part of the conversation that is not in the body.
    Previous,
    Tools,
    System,
    Messages,
}

/// The prompts of a body that may hold more than one.
#[derive(Default)]
pub(super) struct PromptList {
    /// What stands before each prompt.
    query: Option<Box<BlockHasher>>,
    items: Option<Item>,
    texts: Vec<HashedText>,
    open: Option<Box<BlockHasher>>,
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
        *self.slot(section) = Some(Box::default());
        if section == Section::Messages {
            self.group_blocks = None;
        }
    }

    /// Says that a message of the user ends here.
    pub(super) fn end_user_message(&mut self) {
        let blocks = self.messages.as_ref().map(|messages| messages.blocks());
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
        let leading = [
            // `[]` and `{}` are no tools: templates render nothing for them.
            (PREVIOUS_TAG, self.previous, 0),
            (TOOLS_TAG, self.tools, 2),
            (SYSTEM_TAG, self.system, 0),
        ];
        for (tag, section, empty_bytes) in leading {
            if let Some(section) = section.filter(|it| empty_bytes < it.bytes()) {
                let section = section.finish();
                bytes = bytes.saturating_add(section.bytes);
                chain.section(tag, section);
            }
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
    fn slot(&mut self, section: Section) -> &mut Option<Box<BlockHasher>> {
        match section {
            Section::Previous => &mut self.previous,
            Section::Tools => &mut self.tools,
            Section::System => &mut self.system,
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
            self.open = Some(Box::default());
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

    /// Makes a full block of the first prompt another one, depending on `hash`.
    pub(super) fn mix(&mut self, block: usize, hash: u64) {
        if let Some(text) = self.texts.first_mut() {
            text.mix(block, hash);
        }
    }

    /// Forgets the prompts, and not what stands before them.
    pub(super) fn begin(&mut self) {
        let query = self.query.take();
        *self = Self {
            query,
            ..Self::default()
        };
    }

    /// Begins what stands before each prompt.
    pub(super) fn begin_query(&mut self) {
        self.query = Some(Box::default());
    }

    pub(super) fn push_query(&mut self, text: &[u8]) {
        if let Some(query) = &mut self.query {
            query.push(text);
        }
    }

    /// Ends one of the texts that stand before each prompt.
    pub(super) fn end_query_text(&mut self) {
        if let Some(query) = &mut self.query {
            query.frame(&[Mark::End as u8]);
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
        let query = self.query.filter(|query| 0 < query.bytes());
        let query = query.map(|query| query.finish());
        let prompt = |text: HashedText| {
            let mut bytes = text.bytes;
            let mut chain = Chain::new(origin);
            if let Some(query) = &query {
                bytes = bytes.saturating_add(query.bytes);
                chain.section(QUERY_TAG, query.clone());
            }
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
const SYSTEM_TAG: u64 = 5;
const PREVIOUS_TAG: u64 = 6;
const QUERY_TAG: u64 = 7;
