//! What a worker that starts late, or that fell behind, begins with: the twins as others know them.
//!
//! Any worker that knows all writes one twin after the other, each with the number of the last ring
//! record in it, so that a newcomer reads the twins and replays only what came after. Whose turn it
//! is stands under one key and is claimed by compare-and-swap, so that a pool's workers write each
//! twin once.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::bytes::{Reader, Writer};
use crate::ring::{ENTRIES_MAX, SEQUENCE_MAX, entry_number};
use crate::shared::SharedData;
use crate::twin::Twins;
use crate::{EndpointId, Span, Timestamp};

/// Claims the twins that are due to be written; their places in the list of `count` endpoints.
///
/// All twins are written once in [`ROUND`], a few at a time. To be called at every slow tick, for
/// at least one endpoint.
pub(crate) fn claim(
    shared: &impl SharedData,
    pool: &str,
    count: usize,
    now: Timestamp,
) -> Vec<usize> {
    let mut value = Vec::new();
    let version = shared.get(&turn_key(pool), &mut value);
    let (next, last) = decode_turn(&value);
    let next = next as usize % count;
    let since = now.apart(last).min(ROUND);
    let due = (since.0 as usize).saturating_mul(count) / ROUND.0 as usize;
    if due == 0 {
        return Vec::new();
    }
    let due = due.min(WRITES_MAX);
    let places: Vec<usize> = (0..due).map(|step| (next + step) % count).collect();
    value.clear();
    let mut writer = Writer(&mut value);
    writer.u32(((next + due) % count) as u32);
    writer.u64(now.0);
    if shared.set_if(&turn_key(pool), &value, version) {
        places
    } else {
        Vec::new()
    }
}

/// Whether nobody has written twins for so long that nobody is left who knows all.
pub(crate) fn is_abandoned(shared: &impl SharedData, pool: &str, now: Timestamp) -> bool {
    let mut value = Vec::new();
    shared.get(&turn_key(pool), &mut value);
    now.apart(decode_turn(&value).1) > ABANDONED_AFTER
}

/// The place of the twin to be written next, and when twins were written last.
fn decode_turn(value: &[u8]) -> (u32, Timestamp) {
    let mut reader = Reader(value);
    let next = reader.u32().unwrap_or(0);
    (next, Timestamp(reader.u64().unwrap_or(0)))
}

/// Writes the twin of `endpoint`, the `place`th of its pool, as it is after ring record `sequence`.
pub(crate) fn write(
    shared: &impl SharedData,
    pool: &str,
    (place, endpoint): (usize, EndpointId),
    (twins, sequence): (&Twins, u64),
) {
    let mut value = Vec::new();
    let mut writer = Writer(&mut value);
    writer.u8(FORMAT);
    writer.u32(endpoint.0);
    writer.u64(sequence);
    twins.encode(endpoint, &mut writer);
    shared.set(&twin_key(pool, place), &value);
}

/// Takes over the newest twins of the first `count` places; the number of the ring record that comes
/// after the oldest of them, or `None` when there are none.
pub(crate) fn restore(
    shared: &impl SharedData,
    pool: &str,
    count: usize,
    twins: &mut Twins,
) -> Option<u64> {
    let mut value = Vec::new();
    let mut oldest = None;
    for place in 0..count {
        shared.get(&twin_key(pool, place), &mut value);
        let restored = read(&value, twins);
        oldest = oldest.min(restored).or(oldest).or(restored);
    }
    oldest.map(|sequence: u64| sequence.saturating_add(1))
}

/// The number of the last ring record in the twin.
fn read(value: &[u8], twins: &mut Twins) -> Option<u64> {
    let mut reader = Reader(value);
    if reader.u8()? != FORMAT {
        return None;
    }
    let endpoint = EndpointId(reader.u32()?);
    let sequence = reader.u64().filter(|it| *it <= SEQUENCE_MAX)?;
    let last = entry_number(sequence, ENTRIES_MAX - 1);
    twins.decode(endpoint, last, &mut reader)?;
    Some(sequence)
}

fn turn_key(pool: &str) -> String {
    format!("picker/{pool}/checkpoint")
}

fn twin_key(pool: &str, place: usize) -> String {
    format!("picker/{pool}/checkpoint/{place}")
}

/// In this time all twins of a pool are written once: what a newcomer has to replay.
const ROUND: Span = Span::from_millis(2000);

/// Five rounds without a twin.
const ABANDONED_AFTER: Span = Span::from_millis(10_000);

/// Twins written at one tick, so that a tick stays short.
const WRITES_MAX: usize = 32;

/// The first byte of a twin; raised when the layout changes.
const FORMAT: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::LocalData;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn every_twin_has_its_turn_also_after_the_clock_stepped_back() {
        let shared = LocalData::default();
        for (millis, places) in [
            (5000, &[0, 1, 2, 3][..]),
            (5400, &[]),
            (6000, &[0, 1]),
            (1000, &[2, 3, 0, 1]),
            (1500, &[2]),
            (500, &[3, 0]),
        ] {
            let now = Timestamp(1_000_000_000 + millis * 1000);
            assert_eq!(claim(&shared, "a", 4, now), places, "at {millis} ms");
        }
    }
}
