//! Records of the ring: their entries are read in order and once, each is written as it was read,
//! and workers who have read the same know the same.

use std::io;
use std::slice;

use picker_core::{Entry, LocalData, Ring, SharedData, Twins, entry_number};

use crate::input::{Input, records};
use crate::workers::{ENDPOINTS, POOL, stored, work, worked};

/// Whether records are numbered as their keys say, and outputs are short, in a byte; the records of
/// the keys 1, 2 and so on.
pub fn check(input: &[u8]) {
    let mut input = Input(input);
    let is_numbered = input.byte() & 1 == 1;
    let shared = LocalData::default();
    let mut position: u64 = 1;
    while !input.0.is_empty() && position <= RECORDS_MAX {
        let mut record = input.record().to_vec();
        if is_numbered {
            number(&mut record, position);
            leave_out_output(&mut record);
        }
        shared.set(&key(position), &record);
        position += 1;
    }
    let entries = replayed(&shared);
    let copy = LocalData::default();
    let mut ring = Ring::new(POOL);
    let mut twins = Twins::default();
    for (number, entry) in &entries {
        assert!(ring.replay(&copy, |_, _| {}));
        assert!(ring.append(&copy, slice::from_ref(entry)).is_some());
        twins.apply(*number, entry);
    }
    let copied: Vec<Entry> = replayed(&copy)
        .into_iter()
        .map(|(_, entry)| entry)
        .collect();
    let entries: Vec<Entry> = entries.into_iter().map(|(_, entry)| entry).collect();
    assert_eq!(copied, entries);
    for endpoint in ENDPOINTS {
        assert!(twins.pinned(endpoint) <= twins.blocks(endpoint));
    }
    work(&shared);
}

/// The ring that two workers leave.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let shared = worked();
    let ring: Vec<Vec<u8>> = (1..)
        .map(|position| stored(&shared, &key(position)))
        .take_while(|record| !record.is_empty())
        .collect();
    let seed = |is_numbered: u8, ring: &[Vec<u8>]| {
        let mut seed = vec![is_numbered];
        seed.extend(records(ring.iter().map(Vec::as_slice)));
        seed
    };
    let mut seeds = vec![seed(0, &ring)];
    seeds.extend(ring.chunks(1).map(|record| seed(1, record)));
    seeds.push(seed(1, &ring));
    Ok(seeds)
}

/// What a newcomer reads.
fn replayed(shared: &LocalData) -> Vec<(u64, Entry)> {
    let mut ring = Ring::new(POOL);
    let mut entries = Vec::new();
    let mut read = |number: u64, entry: &Entry| entries.push((number, entry.clone()));
    if !ring.replay(shared, &mut read) {
        ring.rejoin(shared, 0);
        let _ = ring.replay(shared, &mut read);
    }
    let next = entry_number(ring.next(), 0);
    // The largest numbers are all one.
    let numbers = entries.iter().map(|(number, _)| *number).chain([next]);
    assert!(numbers.is_sorted_by(|one, then| one < then || *then == u64::MAX));
    let _ = ring.replay(shared, |number, _| assert!(number >= next, "read twice"));
    entries
}

/// Writes the number of a record behind its format.
pub(crate) fn number(record: &mut [u8], number: u64) {
    if let Some(place) = record.get_mut(1..9) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

/// Leaves less than 256 blocks of the outputs of the requests that ended, with which a record
/// begins: more takes its time in every twin and shows nothing new.
fn leave_out_output(record: &mut [u8]) {
    let entries = record.get_mut(9..).unwrap_or_default();
    for entry in entries.chunks_exact_mut(DONE_BYTES) {
        if entry[0] != DONE {
            return;
        }
        entry[10..13].fill(0);
    }
}

pub(crate) fn key(position: u64) -> String {
    format!("picker/{POOL}/ring/{position}")
}

/// The first byte of an entry that says that a request has ended.
const DONE: u8 = 2;

/// The bytes of that entry: kind, number, output and what was cached.
const DONE_BYTES: usize = 21;

/// Records of one input: enough for a prompt that branches and ends.
const RECORDS_MAX: u64 = 64;
