//! One order of events for all workers: who was given which blocks.
//!
//! What a worker has to tell at one time is a record. Record `n` lives under key
//! `n mod RING_RECORDS`. A worker appends by compare-and-swap on the key of the next record, so it
//! succeeds only when it has seen every record before its own, and all workers apply the same
//! entries in the same order. No record is ever missing in the middle: there is nothing to claim
//! first and then to fill.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::bytes::{Reader, Writer};
use crate::decimal::push_decimal;
use crate::health::Verdict;
use crate::shared::{SharedData, Version};
use crate::{BlockHash, EndpointId, Timestamp};

/// Something all workers should know. Its number names it: its record's and its place there, see
/// [`entry_number`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A placed request has ended.
    Done(Done),
    /// An answer has shown how an endpoint does.
    Judged(Judged),
    /// Pictures, films or sounds were sent to an endpoint.
    Media(MediaSent),
    /// A prompt was sent to an endpoint.
    Placed(Placed),
}

/// An answer has shown how an endpoint does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judged {
    /// Which endpoint.
    pub endpoint: EndpointId,
    /// How it does.
    pub verdict: Verdict,
    /// When that was seen.
    pub at: Timestamp,
}

/// A placed request has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// The number of the entry that placed it.
    pub placed: u64,
    /// Blocks that the output has filled behind the prompt.
    pub output_blocks: u32,
    /// Leading blocks of the prompt that the endpoint said its cache held.
    pub cached_blocks: Option<u32>,
}

/// Pictures, films or sounds were sent to an endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MediaSent {
    /// Where they went.
    pub endpoint: EndpointId,
    /// Their hashes; none twice.
    pub media: Vec<u64>,
}

/// A prompt was sent to an endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Where it went.
    pub endpoint: EndpointId,
    /// The number of the worker that sent it, as in its row of the ledger.
    pub owner: u64,
    /// The hash of the name of the LoRA adapter that it needs.
    pub adapter: Option<u64>,
    /// Whether no endpoint that could have been chosen held any of the request; only said where a
    /// plan asks for it.
    pub is_cold: bool,
    /// How many leading blocks the endpoint held already.
    pub depth: u32,
    /// The last of those, when there is one: it names all before it.
    pub parent: Option<BlockHash>,
    /// The blocks after it, which the endpoint holds from now on.
    pub blocks: Vec<BlockHash>,
}

/// One worker's place in the ring.
pub struct Ring {
    /// The key of the last record that was read or written.
    key: String,
    /// How much of the key is the same for all records.
    prefix_length: usize,
    next: u64,
    value: Vec<u8>,
    version: Version,
    /// Whether the version is that of the key of the next record, which nobody had written when it
    /// was read.
    is_at_end: bool,
    /// Times this worker was so far behind that records were overwritten before it had read them.
    pub lapped: u64,
}

impl Ring {
    /// A place at the first record of the ring of `pool`.
    pub fn new(pool: &str) -> Self {
        let key = format!("picker/{pool}/ring/");
        Self {
            prefix_length: key.len(),
            key,
            next: FIRST,
            value: Vec::new(),
            version: Version::ABSENT,
            is_at_end: false,
            lapped: 0,
        }
    }

    /// The number of the record that will be read or written next.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether an append may succeed without another replay: neither this worker has appended since
    /// the last one, nor was an append refused.
    pub fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// Gives `apply` every entry written since the last call with its number, in order.
    ///
    /// False when records were overwritten before they could be read: then [`Ring::rejoin`].
    #[must_use]
    pub fn replay(&mut self, shared: &impl SharedData, mut apply: impl FnMut(u64, &Entry)) -> bool {
        self.is_at_end = false;
        loop {
            match self.read(shared, self.next) {
                Some(sequence) if sequence == self.next => {
                    for (place, entry) in entries(&self.value).enumerate() {
                        apply(entry_number(sequence, place), &entry);
                    }
                    self.next += 1;
                }
                Some(sequence) if sequence > self.next => return false,
                _ => break,
            }
        }
        self.is_at_end = true;
        true
    }

    /// Goes on at record `from`, or at the oldest that can still be read; not past the newest, for
    /// others would take what is appended there for records that they have missed.
    pub fn rejoin(&mut self, shared: &impl SharedData, from: u64) {
        self.lapped += u64::from(self.next > FIRST);
        let newest = self.newest(shared);
        // One record of slack: the oldest is the next to be overwritten.
        let oldest = newest.saturating_sub(RING_RECORDS - 2).max(FIRST);
        let from = from.min(newest.saturating_add(1));
        self.next = oldest.max(from).max(self.next + 1);
        self.is_at_end = false;
    }

    /// Appends `entries`, at most [`ENTRIES_MAX`], as one record and gives its number; `None` when
    /// another worker has appended since the last replay, or that replay did not reach the end.
    ///
    /// After `None`, replay and think again: what `entries` say may have changed.
    #[must_use]
    pub fn append(&mut self, shared: &impl SharedData, entries: &[Entry]) -> Option<u64> {
        if !self.is_at_end {
            return None;
        }
        let sequence = self.next;
        self.value.clear();
        encode(sequence, entries, &mut self.value);
        self.set_key(sequence);
        self.is_at_end = false;
        if !shared.set_if(&self.key, &self.value, self.version) {
            return None;
        }
        self.next += 1;
        Some(sequence)
    }

    /// The newest record, by bisecting the ring.
    fn newest(&mut self, shared: &impl SharedData) -> u64 {
        // The record behind one that cannot be read stands for it.
        let sequence_at = |ring: &mut Self, position: u64| {
            let found = (position..RING_RECORDS).find_map(|at| ring.read(shared, at));
            found.unwrap_or_default()
        };
        let first = sequence_at(self, 0);
        let (mut newest, mut low, mut high) = (first, 0, RING_RECORDS);
        while high - low > 1 {
            let middle = low.midpoint(high);
            let sequence = sequence_at(self, middle);
            if sequence > newest {
                (newest, low) = (sequence, middle);
            } else {
                high = middle;
            }
        }
        newest
    }

    /// Reads the record under the key of `sequence` and gives its own number; `None` when the key
    /// was never written, or holds a number that no record under it can have.
    fn read(&mut self, shared: &impl SharedData, sequence: u64) -> Option<u64> {
        self.set_key(sequence);
        self.version = shared.get(&self.key, &mut self.value);
        let mut reader = Reader(&self.value);
        reader.u8()?;
        let number = reader.u64()?;
        let is_possible =
            number <= SEQUENCE_MAX && number % RING_RECORDS == sequence % RING_RECORDS;
        is_possible.then_some(number)
    }

    fn set_key(&mut self, sequence: u64) {
        self.key.truncate(self.prefix_length);
        push_decimal(&mut self.key, sequence % RING_RECORDS);
    }
}

/// The number of the entry at `place` in record `sequence`: later entries have larger ones.
pub fn entry_number(sequence: u64, place: usize) -> u64 {
    sequence
        .saturating_mul(ENTRIES_MAX as u64)
        .saturating_add(place as u64)
}

fn encode(sequence: u64, entries: &[Entry], out: &mut Vec<u8>) {
    let mut writer = Writer(out);
    writer.u8(FORMAT);
    writer.u64(sequence);
    for entry in entries {
        encode_entry(entry, &mut writer);
    }
}

fn encode_entry(entry: &Entry, writer: &mut Writer<'_>) {
    match entry {
        Entry::Placed(placed) => {
            writer.u8(KIND_PLACED);
            writer.u32(placed.endpoint.0);
            writer.u64(placed.owner);
            writer.count(placed.adapter);
            writer.u8(placed.is_cold.into());
            writer.u32(placed.depth);
            writer.u64(placed.parent.map_or(0, |hash| hash.0));
            writer.u32(placed.blocks.len() as u32);
            placed.blocks.iter().for_each(|block| writer.u64(block.0));
        }
        Entry::Judged(judged) => {
            writer.u8(KIND_JUDGED);
            writer.u32(judged.endpoint.0);
            writer.u8(judged.verdict.code());
            writer.u64(judged.at.0);
        }
        Entry::Media(sent) => {
            writer.u8(KIND_MEDIA);
            writer.u32(sent.endpoint.0);
            writer.u32(sent.media.len() as u32);
            sent.media.iter().for_each(|hash| writer.u64(*hash));
        }
        Entry::Done(done) => {
            writer.u8(KIND_DONE);
            writer.u64(done.placed);
            writer.u32(done.output_blocks);
            writer.count(done.cached_blocks.map(u64::from));
        }
    }
}

/// The entries of a record; those up to the first of a kind that this release does not know.
fn entries(bytes: &[u8]) -> impl Iterator<Item = Entry> {
    let mut reader = Reader(bytes);
    let is_known = reader.u8() == Some(FORMAT) && reader.u64().is_some();
    core::iter::from_fn(move || {
        (is_known && !reader.is_empty())
            .then(|| decode_entry(&mut reader))
            .flatten()
    })
    .take(ENTRIES_MAX)
}

fn decode_entry(reader: &mut Reader<'_>) -> Option<Entry> {
    match reader.u8()? {
        KIND_PLACED => decode_placed(reader).map(Entry::Placed),
        KIND_DONE => {
            let placed = reader.u64()?;
            Some(Entry::Done(Done {
                placed,
                output_blocks: reader.u32()?,
                cached_blocks: reader
                    .count()?
                    .and_then(|blocks| u32::try_from(blocks).ok()),
            }))
        }
        KIND_MEDIA => Some(Entry::Media(MediaSent {
            endpoint: EndpointId(reader.u32()?),
            media: decode_hashes(reader)?,
        })),
        KIND_JUDGED => Some(Entry::Judged(Judged {
            endpoint: EndpointId(reader.u32()?),
            verdict: Verdict::from_code(reader.u8()?)?,
            at: Timestamp(reader.u64()?),
        })),
        _ => None,
    }
}

fn decode_placed(reader: &mut Reader<'_>) -> Option<Placed> {
    let endpoint = EndpointId(reader.u32()?);
    let owner = reader.u64()?;
    let adapter = reader.count()?;
    let is_cold = reader.u8()? != 0;
    let depth = reader.u32()?;
    let parent = BlockHash(reader.u64()?);
    let blocks = decode_hashes(reader)?;
    Some(Placed {
        endpoint,
        owner,
        adapter,
        is_cold,
        depth,
        parent: (depth > 0).then_some(parent),
        blocks: blocks.into_iter().map(BlockHash).collect(),
    })
}

fn decode_hashes(reader: &mut Reader<'_>) -> Option<Vec<u64>> {
    let bytes = (reader.u32()? as usize).checked_mul(size_of::<u64>())?;
    let (hashes, rest) = reader.0.split_at_checked(bytes)?;
    reader.0 = rest;
    let (hashes, _) = hashes.as_chunks();
    Some(hashes.iter().map(|it| u64::from_le_bytes(*it)).collect())
}

/// Records kept. Workers replay every 100 ms at the latest, so this bears 10,000 placements a
/// second.
pub const RING_RECORDS: u64 = 1024;

/// The most entries in a record: a request, and those that ended before it.
pub const ENTRIES_MAX: usize = 256;

/// The largest number of a record: what a million records a second reach in nine years.
pub(crate) const SEQUENCE_MAX: u64 = 1 << 48;

/// The number of the first record; 0 stands for a key that was never written.
const FIRST: u64 = 1;

/// The first byte of a record; raised when the layout changes. The number after it keeps its place.
const FORMAT: u8 = 3;

const KIND_PLACED: u8 = 1;

const KIND_DONE: u8 = 2;

const KIND_JUDGED: u8 = 3;

const KIND_MEDIA: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::LocalData;
    use alloc::vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn placed(number: u64) -> Entry {
        let blocks = vec![BlockHash(number), BlockHash(number + 1)];
        Entry::Placed(Placed {
            endpoint: EndpointId(number as u32),
            owner: 77,
            adapter: Some(number),
            is_cold: number % 2 == 1,
            depth: 1,
            parent: Some(BlockHash(9)),
            blocks,
        })
    }

    fn read_all(ring: &mut Ring, shared: &LocalData) -> Vec<u32> {
        let mut seen = Vec::new();
        let read = |_, entry: &Entry| match entry {
            Entry::Placed(placed) => seen.push(placed.endpoint.0),
            other => panic!("nobody appended {other:?}"),
        };
        if !ring.replay(shared, read) {
            ring.rejoin(shared, 0);
            return read_all(ring, shared);
        }
        seen
    }

    fn append(ring: &mut Ring, shared: &LocalData, number: u64) {
        read_all(ring, shared);
        assert_eq!(
            ring.append(shared, &[placed(number)]),
            Some(ring.next() - 1)
        );
    }

    #[test]
    fn only_a_replay_to_the_end_spares_another_before_an_append() {
        let shared = LocalData::default();
        let (mut ring, mut other) = (Ring::new("a"), Ring::new("a"));
        assert!(!ring.is_at_end(), "nothing was read yet");
        read_all(&mut ring, &shared);
        assert!(ring.is_at_end());
        append(&mut other, &shared, 5);
        assert_eq!(ring.append(&shared, &[placed(6)]), None);
        assert!(!ring.is_at_end(), "the append was refused");
        append(&mut ring, &shared, 6);
        assert!(
            !ring.is_at_end(),
            "the key of the next entry was not read yet"
        );
        read_all(&mut ring, &shared);
        for number in 0..=RING_RECORDS {
            append(&mut other, &shared, number);
        }
        assert!(!ring.replay(&shared, |_, _| {}));
        assert!(!ring.is_at_end(), "its place was overwritten");
    }

    #[test]
    fn an_entry_arrives_as_it_was_appended() {
        let shared = LocalData::default();
        let (mut writer, mut reader) = (Ring::new("a"), Ring::new("a"));
        append(&mut writer, &shared, 5);
        let done = Entry::Done(Done {
            placed: 1,
            output_blocks: 7,
            cached_blocks: Some(3),
        });
        let media = Entry::Media(MediaSent {
            endpoint: EndpointId(2),
            media: vec![3, u64::MAX],
        });
        read_all(&mut writer, &shared);
        let entries = [done.clone(), media.clone(), placed(6)];
        assert_eq!(writer.append(&shared, &entries), Some(2));
        let mut seen = Vec::new();
        assert!(reader.replay(&shared, |sequence, entry| {
            seen.push((sequence, entry.clone()));
        }));
        assert_eq!(
            seen,
            [
                (entry_number(1, 0), placed(5)),
                (entry_number(2, 0), done),
                (entry_number(2, 1), media),
                (entry_number(2, 2), placed(6)),
            ]
        );
        assert_eq!(
            read_all(&mut Ring::new("b"), &shared),
            [0_u32; 0],
            "pools do not mix"
        );
    }

    #[test]
    fn a_worker_appends_only_after_it_has_seen_all_before() {
        let shared = LocalData::default();
        let (mut first, mut second) = (Ring::new("a"), Ring::new("a"));
        read_all(&mut first, &shared);
        read_all(&mut second, &shared);
        assert_eq!(first.append(&shared, &[placed(1)]), Some(1));
        assert_eq!(second.append(&shared, &[placed(2)]), None);
        assert_eq!(read_all(&mut second, &shared), [1]);
        assert_eq!(second.append(&shared, &[placed(2)]), Some(2));
        assert_eq!(
            read_all(&mut first, &shared),
            [2],
            "a worker does not read its own entry again"
        );
    }

    #[test]
    fn a_worker_that_was_lapped_goes_on_with_the_oldest_entry_left() {
        let shared = LocalData::default();
        let (mut writer, mut sleeper) = (Ring::new("a"), Ring::new("a"));
        append(&mut writer, &shared, 1);
        assert_eq!(read_all(&mut sleeper, &shared), [1]);
        for laps in [2, 3, 7] {
            let last = laps * RING_RECORDS + laps * 100;
            for number in writer.next()..=last {
                append(&mut writer, &shared, number);
            }
            let seen = read_all(&mut sleeper, &shared);
            assert_eq!(seen.len() as u64, RING_RECORDS - 1);
            assert_eq!(seen.last(), Some(&(last as u32)));
        }
        assert_eq!(sleeper.lapped, 3);
        assert_eq!(
            read_all(&mut Ring::new("a"), &shared).len() as u64,
            RING_RECORDS - 1
        );
    }

    #[test]
    fn nobody_goes_on_past_the_newest_record() {
        let shared = LocalData::default();
        let mut writer = Ring::new("a");
        (1..=5).for_each(|number| append(&mut writer, &shared, number));
        for from in [6, 7, u64::MAX] {
            let mut late = Ring::new("a");
            late.rejoin(&shared, from);
            assert_eq!(late.next(), 6, "from {from}");
        }
    }

    #[test]
    fn a_newcomer_reads_all_of_a_ring_that_has_not_gone_round() {
        for entries in [1, 2, 100, RING_RECORDS - 1] {
            let shared = LocalData::default();
            let mut writer = Ring::new("a");
            (1..=entries).for_each(|number| append(&mut writer, &shared, number));
            assert_eq!(read_all(&mut Ring::new("a"), &shared).len() as u64, entries);
        }
    }

    #[test]
    fn an_entry_of_another_release_is_passed_over() {
        let shared = LocalData::default();
        let mut writer = Ring::new("a");
        let mut other = vec![FORMAT + 1];
        other.extend_from_slice(&FIRST.to_le_bytes());
        shared.set("picker/a/ring/1", &other);
        append(&mut writer, &shared, 2);
        assert_eq!(read_all(&mut Ring::new("a"), &shared), [2]);
        shared.set("picker/a/ring/3", b"x");
        assert_eq!(
            read_all(&mut Ring::new("a"), &shared),
            [2],
            "cut bytes end the replay"
        );
    }
}
