//! Images and the like among token ids, where a body names them beside the ids.
//!
//! The ids hold placeholders, the same for every image. So the hash of an image is mixed into the
//! block where its placeholders begin, and with it into all later ones.

use alloc::vec::Vec;

use xxhash_rust::xxh3::xxh3_64;

use super::prompts::PromptList;
use crate::block::BLOCK_BYTES;
use crate::request::{MEDIA_MAX, Media, MediaKind};

/// What `features` of a body says: hashes and places, each in lists by kind.
#[derive(Default)]
pub(super) struct Features {
    /// The kind of the list that is being read.
    kind: Option<MediaKind>,
    hashes: Vec<Media>,
    /// Where the placeholders of each item begin, in token ids.
    offsets: Vec<(MediaKind, u64)>,
    has_too_many: bool,
}

impl Features {
    /// Says that lists of hashes begin.
    pub(super) fn begin_hashes(&mut self) {
        self.hashes.clear();
    }

    /// Says that lists of places begin.
    pub(super) fn begin_places(&mut self) {
        self.offsets.clear();
    }

    /// Says that the list of a kind begins.
    pub(super) fn begin_list(&mut self, name: &[u8]) {
        self.kind = Some(match name {
            b"audio" => MediaKind::Audio,
            b"image" => MediaKind::Image,
            b"video" => MediaKind::Video,
            _ => MediaKind::File,
        });
    }

    pub(super) fn push_hash(&mut self, hash: u64) {
        let Some(kind) = self.kind else { return };
        if self.hashes.len() < MEDIA_MAX {
            self.hashes.push(Media { kind, hash });
        } else {
            self.has_too_many = true;
        }
    }

    /// Says that a place begins; without an offset it is at the beginning.
    pub(super) fn begin_place(&mut self) {
        let Some(kind) = self.kind else { return };
        if self.offsets.len() < MEDIA_MAX {
            self.offsets.push((kind, 0));
        } else {
            self.has_too_many = true;
        }
    }

    pub(super) fn set_offset(&mut self, offset: u64) {
        if let Some(place) = self.offsets.last_mut() {
            place.1 = offset;
        }
    }

    /// Whether there are more items than are read, so that the prompt is not known.
    pub(super) fn has_too_many(&self) -> bool {
        self.has_too_many
    }

    /// Mixes the hashes into the only prompt, and gives them.
    pub(super) fn mix(self, prompts: &mut PromptList) -> Vec<Media> {
        for (at, media) in self.hashes.iter().enumerate() {
            let is_of_kind = |kind: MediaKind| kind == media.kind;
            let before = self.hashes.iter().take(at);
            let nth = before.filter(|it| is_of_kind(it.kind)).count();
            let mut places = self.offsets.iter().filter(|it| is_of_kind(it.0));
            let offset = places.nth(nth).map_or(0, |it| it.1);
            let block = offset / IDS_PER_BLOCK;
            let mut tagged = [0; 9];
            if let Some((kind, hash)) = tagged.split_first_mut() {
                *kind = media.kind as u8;
                hash.copy_from_slice(&media.hash.to_le_bytes());
            }
            prompts.mix(
                usize::try_from(block).unwrap_or(usize::MAX),
                xxh3_64(&tagged),
            );
        }
        self.hashes
    }
}

/// Token ids in a block, of four bytes each.
const IDS_PER_BLOCK: u64 = BLOCK_BYTES as u64 / 4;
