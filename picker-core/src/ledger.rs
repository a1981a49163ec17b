//! What is in flight, counted by all workers in one byte string.
//!
//! Each worker owns one row and rewrites it whole with absolute numbers, so a lost write heals at
//! the next one. A row whose owner has not written it for [`ROW_LIFETIME`] is void: its worker
//! died, and its streams with it.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::bytes::{Reader, Writer};
use crate::{EndpointId, Span, Timestamp};

/// What workers have sent to one endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Requests in flight.
    pub requests: u32,
    /// Prompt tokens in flight that the endpoint has to compute and that have not given a first
    /// byte yet.
    pub prefill_tokens: u32,
    /// Tokens that count until their answers end: those that answers are expected to have, and those of
    /// prompts once they are computed. 0 unless the plan asks for it.
    pub kept_tokens: u32,
    /// Requests sent so far; wraps.
    pub sent: u32,
    /// Prompt tokens in those; wraps.
    pub sent_tokens: u32,
    /// Prompt tokens of those that the endpoint's cache was thought to hold; wraps.
    pub matched_tokens: u32,
    /// The same, only of requests whose answers told how many the cache held; wraps.
    pub checked_tokens: u32,
    /// What those answers told; wraps.
    pub cached_tokens: u32,
}

impl Load {
    /// Adds `other`, as when the rows of two workers are summed.
    pub fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.prefill_tokens = self.prefill_tokens.saturating_add(other.prefill_tokens);
        self.kept_tokens = self.kept_tokens.saturating_add(other.kept_tokens);
        self.sent = self.sent.wrapping_add(other.sent);
        self.sent_tokens = self.sent_tokens.wrapping_add(other.sent_tokens);
        self.matched_tokens = self.matched_tokens.wrapping_add(other.matched_tokens);
        self.checked_tokens = self.checked_tokens.wrapping_add(other.checked_tokens);
        self.cached_tokens = self.cached_tokens.wrapping_add(other.cached_tokens);
    }

    /// Tokens in flight: of prompts that are not computed yet, and those that are kept.
    pub fn tokens(&self) -> u64 {
        u64::from(self.prefill_tokens) + u64::from(self.kept_tokens)
    }

    /// Adds one request with `prefill_tokens` to go and `kept_tokens` that was sent elsewhere first.
    pub fn take_over(&mut self, prefill_tokens: u32, kept_tokens: u32) {
        self.requests = self.requests.saturating_add(1);
        self.prefill_tokens = self.prefill_tokens.saturating_add(prefill_tokens);
        self.kept_tokens = self.kept_tokens.saturating_add(kept_tokens);
    }

    /// Takes out one request that had `prefill_tokens` to go and `kept_tokens`.
    pub fn release(&mut self, prefill_tokens: u32, kept_tokens: u32) {
        self.requests = self.requests.saturating_sub(1);
        self.prefill_tokens = self.prefill_tokens.saturating_sub(prefill_tokens);
        self.kept_tokens = self.kept_tokens.saturating_sub(kept_tokens);
    }

    /// Keeps `tokens` of a prompt that are computed now until the answer ends.
    pub(crate) fn keep(&mut self, tokens: u32) {
        self.kept_tokens = self.kept_tokens.saturating_add(tokens);
    }
}

/// One worker's row.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Row {
    /// Who writes this row: a number drawn once per virtual machine.
    pub owner: u64,
    /// The lowest number no other live row has.
    pub slot: u8,
    /// When the owner last wrote it.
    pub heartbeat: Timestamp,
    /// Loads by endpoint, in the order of the endpoints' numbers.
    pub loads: Vec<(EndpointId, Load)>,
}

impl Row {
    /// The load of `endpoint`, created when missing.
    pub fn load_mut(&mut self, endpoint: EndpointId) -> &mut Load {
        let index = match self.loads.binary_search_by_key(&endpoint, |(id, _)| *id) {
            Ok(index) => index,
            Err(index) => {
                self.loads.insert(index, (endpoint, Load::default()));
                index
            }
        };
        &mut self.loads[index].1
    }
}

/// The rows of all workers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// Rows in the order of their slots.
    pub rows: Vec<Row>,
}

impl Ledger {
    /// Reads a ledger; bytes of another release, cut ones, and rows out of order are an empty ledger,
    /// which heals as rows are rewritten.
    pub fn decode(bytes: &[u8]) -> Self {
        decode(bytes).unwrap_or_default()
    }

    /// Writes `row` over its owner's row in a ledger's bytes, which costs less than to decode,
    /// [`put`](Self::put) and encode; `false`, with nothing changed, when that would do more: add a
    /// row or an endpoint, or drop a void row.
    ///
    /// `row.slot` is set.
    #[must_use]
    pub fn overwrite(bytes: &mut [u8], row: &mut Row, now: Timestamp) -> bool {
        let Some((slot, place)) = find_row(bytes, row, now) else {
            return false;
        };
        (row.slot, row.heartbeat) = (slot, now);
        if let Some(place) = bytes.get_mut(place) {
            let mut encoded = Vec::with_capacity(place.len());
            row.encode(&mut Writer(&mut encoded));
            place.copy_from_slice(&encoded);
        }
        true
    }

    /// Appends the ledger's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer(out);
        writer.u8(FORMAT);
        for row in &self.rows {
            row.encode(&mut writer);
        }
    }

    /// Puts `row` in the place of its owner's row, on the slot it had or the lowest free one, and
    /// drops void rows.
    ///
    /// `row.slot` is set. When all slots are taken the row shares the last one; only names depend
    /// on slots.
    pub fn put(&mut self, row: &mut Row, now: Timestamp) {
        row.heartbeat = now;
        let own = self
            .rows
            .iter()
            .find(|other| other.owner == row.owner)
            .map(|other| other.slot);
        self.rows
            .retain(|other| other.owner != row.owner && other.is_live(now));
        let taken = |slot| self.rows.iter().any(|other| other.slot == slot);
        row.slot =
            own.unwrap_or_else(|| (0..u8::MAX).find(|slot| !taken(*slot)).unwrap_or(u8::MAX));
        let place = self.rows.partition_point(|other| other.slot < row.slot);
        self.rows.insert(place, row.clone());
    }

    /// The load of `endpoint`, summed over live rows.
    pub fn total(&self, endpoint: EndpointId, now: Timestamp) -> Load {
        let mut total = Load::default();
        for row in self.rows.iter().filter(|row| row.is_live(now)) {
            if let Ok(index) = row.loads.binary_search_by_key(&endpoint, |(id, _)| *id) {
                total.add(row.loads[index].1);
            }
        }
        total
    }
}

impl Row {
    /// Whether the owner has written this row lately.
    pub fn is_live(&self, now: Timestamp) -> bool {
        is_live(self.heartbeat, now)
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u64(self.owner);
        writer.u8(self.slot);
        writer.u64(self.heartbeat.0);
        writer.u16(self.loads.len() as u16);
        for (endpoint, load) in &self.loads {
            let numbers = [
                endpoint.0,
                load.requests,
                load.prefill_tokens,
                load.kept_tokens,
                load.sent,
                load.sent_tokens,
                load.matched_tokens,
                load.checked_tokens,
                load.cached_tokens,
            ];
            let mut bytes = [0; LOAD_BYTES];
            for (room, number) in bytes.as_chunks_mut().0.iter_mut().zip(numbers) {
                *room = number.to_le_bytes();
            }
            writer.0.extend_from_slice(&bytes);
        }
    }
}

fn is_live(heartbeat: Timestamp, now: Timestamp) -> bool {
    now.apart(heartbeat) <= ROW_LIFETIME
}

/// The slot and the place of the row of `row`'s owner, when it lists the same endpoints and no
/// other row is void.
fn find_row(bytes: &[u8], row: &Row, now: Timestamp) -> Option<(u8, Range<usize>)> {
    let (mut found, mut end) = (None, 0);
    for other in rows(bytes) {
        let place = other.place();
        end = place.end;
        if other.owner == row.owner {
            let listed = other.loads.iter().filter_map(|load| load.first_chunk());
            let own = row.loads.iter().map(|(id, _)| id.0.to_le_bytes());
            found = listed.copied().eq(own).then_some((other.slot, place));
        } else if !other.is_live(now) {
            return None;
        }
    }
    found.filter(|_| end == bytes.len())
}

/// The shared-data key of the ledger of `pool`.
pub fn key(pool: &str) -> String {
    format!("picker/{pool}/ledger")
}

/// The loads of `endpoints`, in the order of their numbers, each summed over `own` and the live rows
/// of the others in a ledger's bytes.
///
/// What the bytes say of the owner of `own` may be older than `own` and does not count.
pub(crate) fn totals(
    bytes: &[u8],
    own: &Row,
    endpoints: impl ExactSizeIterator<Item = EndpointId> + Clone,
    now: Timestamp,
) -> Vec<Load> {
    let mut totals = vec![Load::default(); endpoints.len()];
    let is_other = |row: &RowBytes<'_>| row.owner != own.owner && row.is_live(now);
    for row in rows(bytes).filter(is_other) {
        add_loads(&mut totals, endpoints.clone(), row.loads, (id_in, load_in));
    }
    let (id_of, load_of) = (
        |it: &(EndpointId, Load)| it.0,
        |it: &(EndpointId, Load)| it.1,
    );
    add_loads(&mut totals, endpoints, &own.loads, (id_of, load_of));
    totals
}

/// Adds to the totals of `endpoints` those of `loads` that are theirs; all in the order of the
/// endpoints' numbers.
fn add_loads<T>(
    totals: &mut [Load],
    endpoints: impl Iterator<Item = EndpointId>,
    mut loads: &[T],
    (id_of, load_of): (impl Fn(&T) -> EndpointId, impl Fn(&T) -> Load),
) {
    for (endpoint, total) in endpoints.zip(totals) {
        while let Some((first, rest)) = loads.split_first() {
            let id = id_of(first);
            if id > endpoint {
                break;
            }
            loads = rest;
            if id == endpoint {
                total.add(load_of(first));
                break;
            }
        }
    }
}

/// The owners of the live rows of a ledger's bytes.
pub(crate) fn live_owners(bytes: &[u8], now: Timestamp) -> Vec<u64> {
    let live = rows(bytes).filter(|row| row.is_live(now));
    live.map(|row| row.owner).collect()
}

/// A row as it stands in a ledger's bytes.
struct RowBytes<'a> {
    owner: u64,
    slot: u8,
    heartbeat: Timestamp,
    loads: &'a [[u8; LOAD_BYTES]],
    /// Where it begins.
    start: usize,
}

impl RowBytes<'_> {
    fn place(&self) -> Range<usize> {
        self.start..self.start + ROW_BYTES + self.loads.as_flattened().len()
    }

    fn is_live(&self, now: Timestamp) -> bool {
        is_live(self.heartbeat, now)
    }

    fn loads(&self) -> impl Iterator<Item = (EndpointId, Load)> {
        self.loads
            .iter()
            .map(|bytes| (id_in(bytes), load_in(bytes)))
    }
}

fn id_in(bytes: &[u8; LOAD_BYTES]) -> EndpointId {
    EndpointId(number_in(bytes, 0))
}

fn load_in(bytes: &[u8; LOAD_BYTES]) -> Load {
    Load {
        requests: number_in(bytes, 1),
        prefill_tokens: number_in(bytes, 2),
        kept_tokens: number_in(bytes, 3),
        sent: number_in(bytes, 4),
        sent_tokens: number_in(bytes, 5),
        matched_tokens: number_in(bytes, 6),
        checked_tokens: number_in(bytes, 7),
        cached_tokens: number_in(bytes, 8),
    }
}

fn number_in(bytes: &[u8; LOAD_BYTES], place: usize) -> u32 {
    let (numbers, _) = bytes.as_chunks();
    numbers.get(place).map_or(0, |it| u32::from_le_bytes(*it))
}

/// The rows in a ledger's bytes; none in those of another release, and none after a cut.
fn rows(bytes: &[u8]) -> impl Iterator<Item = RowBytes<'_>> {
    let mut reader = Reader(bytes);
    let is_known = reader.u8() == Some(FORMAT);
    core::iter::from_fn(move || {
        let start = bytes.len() - reader.0.len();
        let (owner, slot) = (reader.u64()?, reader.u8()?);
        let heartbeat = Timestamp(reader.u64()?);
        let length = usize::from(reader.u16()?) * LOAD_BYTES;
        let (loads, rest) = reader.0.split_at_checked(length)?;
        reader.0 = rest;
        is_known.then_some(RowBytes {
            owner,
            slot,
            heartbeat,
            loads: loads.as_chunks().0,
            start,
        })
    })
}

fn decode(bytes: &[u8]) -> Option<Ledger> {
    let row = |row: RowBytes<'_>| Row {
        owner: row.owner,
        slot: row.slot,
        heartbeat: row.heartbeat,
        loads: row.loads().collect(),
    };
    let end = rows(bytes).last().map_or(1, |row| row.place().end);
    let rows: Vec<Row> = rows(bytes).map(row).collect();
    // Look-ups and new rows rely on the order.
    let is_in_order = |row: &Row| row.loads.is_sorted_by(|one, next| one.0 < next.0);
    let are_in_order = rows.is_sorted_by_key(|row| row.slot) && rows.iter().all(is_in_order);
    (end == bytes.len() && are_in_order).then_some(Ledger { rows })
}

/// A row not rewritten for this long is void. Owners rewrite theirs every 250 ms, so eight beats
/// are missed first.
pub const ROW_LIFETIME: Span = Span::from_millis(2000);

/// Bytes of a row before its loads: owner, slot, heartbeat and their number.
const ROW_BYTES: usize = 19;

/// Bytes of an endpoint's load: its number and the eight of [`Load`].
const LOAD_BYTES: usize = 36;

/// The first byte of a ledger; raised when the layout changes.
const FORMAT: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Draws;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn row(owner: u64, requests: u32) -> Row {
        let load = Load {
            requests,
            sent: requests,
            ..Load::default()
        };
        Row {
            owner,
            loads: vec![(EndpointId(1), load)],
            ..Row::default()
        }
    }

    fn slots(ledger: &Ledger) -> Vec<(u64, u8)> {
        ledger
            .rows
            .iter()
            .map(|row| (row.owner, row.slot))
            .collect()
    }

    #[test]
    fn what_is_encoded_is_decoded_and_no_proper_prefix_is() {
        let mut ledger = Ledger::default();
        ledger.put(&mut row(7, 3), Timestamp(10));
        ledger.put(&mut row(8, 4), Timestamp(20));
        let mut bytes = Vec::new();
        ledger.encode(&mut bytes);
        assert_eq!(Ledger::decode(&bytes), ledger);
        let whole_rows = [1, 1 + (bytes.len() - 1) / 2];
        for length in (0..bytes.len()).filter(|length| !whole_rows.contains(length)) {
            assert_eq!(
                Ledger::decode(&bytes[..length]),
                Ledger::default(),
                "{length} bytes"
            );
        }
    }

    #[test]
    fn rows_and_endpoints_out_of_order_are_an_empty_ledger() {
        for (ids, slots, is_good) in [
            ([3, 7], [0, 1], true),
            ([3, 7], [1, 1], true),
            ([7, 3], [0, 1], false),
            ([3, 3], [0, 1], false),
            ([3, 7], [1, 0], false),
        ] {
            let rows = slots.map(|slot| Row {
                slot,
                loads: ids.map(|id| (EndpointId(id), Load::default())).to_vec(),
                ..Row::default()
            });
            let ledger = Ledger {
                rows: rows.to_vec(),
            };
            let mut bytes = Vec::new();
            ledger.encode(&mut bytes);
            let expected = if is_good { ledger } else { Ledger::default() };
            assert_eq!(Ledger::decode(&bytes), expected, "{ids:?} {slots:?}");
        }
    }

    #[test]
    fn overwriting_a_row_is_putting_it() {
        for seed in 0..200 {
            let mut draws = Draws::new(seed);
            let mut drawn = |below| draws.below(below);
            let mut ledger = Ledger::default();
            let mut rows: Vec<Row> = (1..4).map(|owner| row(owner, drawn(9))).collect();
            let mut now = Timestamp(0);
            for _ in 0..30 {
                now.0 += u64::from(drawn(ROW_LIFETIME.0 as u32 / 2));
                let row = &mut rows[drawn(3) as usize];
                row.load_mut(EndpointId(drawn(4))).requests = drawn(9);
                let mut bytes = Vec::new();
                ledger.encode(&mut bytes);
                let before = bytes.clone();
                let mut put = row.clone();
                let known = ledger.rows.iter().find(|known| known.owner == row.owner);
                let listed = |row: &Row| row.loads.iter().map(|(id, _)| *id).collect::<Vec<_>>();
                let mut others = ledger.rows.iter().filter(|known| known.owner != row.owner);
                let is_same = known.is_some_and(|known| listed(known) == listed(row))
                    && others.all(|other| other.is_live(now));
                let overwritten = Ledger::overwrite(&mut bytes, row, now);
                assert_eq!(overwritten, is_same, "seed {seed}");
                ledger.put(&mut put, now);
                if overwritten {
                    let mut expected = Vec::new();
                    ledger.encode(&mut expected);
                    assert_eq!((&bytes, &*row), (&expected, &put), "seed {seed}");
                } else {
                    assert_eq!(bytes, before, "seed {seed}");
                    *row = put;
                }
            }
        }
    }

    #[test]
    fn cut_and_foreign_bytes_are_not_overwritten() {
        let mut ledger = Ledger::default();
        ledger.put(&mut row(7, 3), Timestamp(10));
        let mut bytes = Vec::new();
        ledger.encode(&mut bytes);
        for length in 0..bytes.len() {
            let mut cut = bytes[..length].to_vec();
            assert!(!Ledger::overwrite(&mut cut, &mut row(7, 4), Timestamp(11)));
            assert_eq!(cut, bytes[..length]);
        }
        bytes[0] += 1;
        assert!(!Ledger::overwrite(
            &mut bytes,
            &mut row(7, 4),
            Timestamp(11)
        ));
    }

    #[test]
    fn totals_sum_live_rows_and_leave_out_void_ones() {
        let mut ledger = Ledger::default();
        ledger.put(&mut row(7, 3), Timestamp(0));
        ledger.put(&mut row(8, 4), Timestamp(1));
        let at = |now| ledger.total(EndpointId(1), Timestamp(now)).requests;
        assert_eq!(at(ROW_LIFETIME.0), 7);
        assert_eq!(
            at(ROW_LIFETIME.0 + 1),
            4,
            "the older row is past its lifetime"
        );
        assert_eq!(at(ROW_LIFETIME.0 + 2), 0);
        assert_eq!(ledger.total(EndpointId(2), Timestamp(1)), Load::default());
    }

    #[test]
    fn the_totals_of_many_endpoints_are_those_of_each() {
        for seed in 0..200 {
            let mut draws = Draws::new(seed);
            let some = |draws: &mut Draws| -> Vec<EndpointId> {
                let numbers = (1..12).filter(|_| draws.below(3) > 0);
                numbers.map(EndpointId).collect()
            };
            let some_row = |draws: &mut Draws, owner| {
                let loads = some(draws).into_iter().map(|id| {
                    let load = Load {
                        requests: draws.below(9),
                        ..Load::default()
                    };
                    (id, load)
                });
                let loads = loads.collect();
                Row {
                    owner,
                    loads,
                    ..Row::default()
                }
            };
            let mut ledger = Ledger::default();
            for owner in 0..4 {
                let mut row = some_row(&mut draws, owner);
                ledger.put(&mut row, Timestamp(u64::from(draws.below(2))));
            }
            let (endpoints, now) = (some(&mut draws), Timestamp(ROW_LIFETIME.0 + 1));
            let mut bytes = Vec::new();
            ledger.encode(&mut bytes);
            // What the owner of a row says of it later counts instead.
            let owner = u64::from(draws.below(5));
            let mut own = some_row(&mut draws, owner);
            let totals = totals(&bytes, &own, endpoints.iter().copied(), now);
            ledger.put(&mut own, now);
            let each: Vec<Load> = endpoints.iter().map(|id| ledger.total(*id, now)).collect();
            assert_eq!(totals, each, "seed {seed}");
        }
    }

    #[test]
    fn a_worker_keeps_its_slot_and_a_newcomer_takes_a_void_one() {
        let mut ledger = Ledger::default();
        ledger.put(&mut row(7, 0), Timestamp(0));
        ledger.put(&mut row(8, 0), Timestamp(0));
        ledger.put(&mut row(8, 5), Timestamp(ROW_LIFETIME.0));
        assert_eq!(slots(&ledger), [(7, 0), (8, 1)]);
        ledger.put(&mut row(9, 0), Timestamp(ROW_LIFETIME.0 + 1));
        assert_eq!(
            slots(&ledger),
            [(9, 0), (8, 1)],
            "row 7 is void and its slot is free"
        );
        ledger.put(&mut row(7, 0), Timestamp(ROW_LIFETIME.0 + 2));
        assert_eq!(
            slots(&ledger),
            [(9, 0), (8, 1), (7, 2)],
            "a worker that woke up claims again"
        );
    }
}
