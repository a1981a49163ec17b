//! What waits in all workers, in one byte string that they all see.
//!
//! Each worker owns one row, in which it shows the first request of every flow and how many are
//! behind it, and rewrites it whole. A worker of which nothing waits, and nothing runs that could be
//! ended, has no row. A row whose owner has not written it for [`ROW_LIFETIME`] is void: its worker
//! died or hangs, and the others do not wait for it.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::eviction::{Reclaim, Victim};
use super::fairness::{Fairness, Flow, LeastAttained};
use super::ordering::Rank;
use crate::bytes::{Reader, Writer};
use crate::sort::sort_by;
use crate::{Span, Timestamp};

/// What all workers show, and what they remember together of who was served.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Board {
    /// Rows of workers of which something waits or may be ended.
    pub(crate) rows: Vec<Row>,
    /// Who makes room for others.
    pub(crate) reclaim: Reclaim,
    /// For every band that was served, by its priority, the flow that was served last.
    served: Vec<(i32, String)>,
    /// What flows have had, where a policy asks for it.
    attained: Vec<Attained>,
}

/// What one worker shows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Row {
    /// Who writes it: the same number as in the ledger.
    pub(crate) owner: u64,
    /// Under which number that worker is woken.
    pub(crate) slot: u8,
    /// When it was written last.
    pub(crate) heartbeat: Timestamp,
    /// Its flows, in the order of bands, the first band first, and of names.
    pub(crate) flows: Vec<Shown>,
    /// Its running requests that may be ended: their numbers, priorities and when they were sent.
    pub(crate) running: Vec<(u64, i32, Timestamp)>,
}

/// A flow of one worker of which something waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shown {
    /// The priority of its band.
    pub(crate) priority: i32,
    /// Whose.
    pub(crate) id: String,
    /// Requests.
    pub(crate) requests: u32,
    /// Bytes of their bodies.
    pub(crate) bytes: u64,
    /// The place of the first.
    pub(crate) head: Rank,
    /// When the first began to wait.
    pub(crate) since: Timestamp,
}

/// What a flow has had.
#[derive(Clone, PartialEq, Debug)]
struct Attained {
    id: String,
    tokens: f64,
    /// When it was reckoned.
    at: Timestamp,
}

/// How much waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waiting {
    /// Requests.
    pub requests: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// When the first of those that are first in their flows began to wait.
    pub since: Option<Timestamp>,
}

/// The flow whose turn it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Next {
    /// The worker that holds its first request.
    pub(crate) owner: u64,
    /// The number under which that worker is woken.
    pub(crate) slot: u8,
    /// Whose.
    pub(crate) id: String,
}

impl Board {
    /// Whether these bytes show that nothing waits; in doubt they do not.
    pub(crate) fn is_blank(bytes: &[u8]) -> bool {
        bytes.is_empty() || bytes.starts_with(&[FORMAT, 0, 0])
    }

    /// Reads a board without its void rows; bytes of another release and cut ones are an empty one,
    /// which heals as rows are rewritten.
    pub(crate) fn decode(bytes: &[u8], now: Timestamp) -> Self {
        let mut board = decode(bytes).unwrap_or_default();
        board
            .rows
            .retain(|row| now.apart(row.heartbeat) <= ROW_LIFETIME);
        board
    }

    /// The board's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        writer.u8(FORMAT);
        writer.u16(self.rows.len().min(ROWS_MAX) as u16);
        for row in self.rows.iter().take(ROWS_MAX) {
            row.encode(&mut writer);
        }
        writer.u64(self.reclaim.at.0);
        writer.u8(self.reclaim.victims.len() as u8);
        for (owner, run) in &self.reclaim.victims {
            writer.u64(*owner);
            writer.u64(*run);
        }
        writer.u16(self.served.len() as u16);
        for (priority, id) in &self.served {
            writer.u32(*priority as u32);
            writer.text(id);
        }
        writer.u16(self.attained.len() as u16);
        for Attained { id, tokens, at } in &self.attained {
            writer.text(id);
            writer.u64(tokens.to_bits());
            writer.u64(at.0);
        }
        bytes
    }

    /// Puts `row` in the place of its owner's, or takes that away when nothing waits there.
    pub(crate) fn put(&mut self, row: Row) {
        self.rows.retain(|it| it.owner != row.owner);
        if !row.flows.is_empty() || !row.running.is_empty() {
            self.rows.push(row);
        }
    }

    /// Whether nothing waits in any worker.
    pub(crate) fn is_idle(&self) -> bool {
        self.rows.iter().all(|row| row.flows.is_empty())
    }

    /// The running requests that may be ended, of all workers.
    pub(crate) fn victims(&self) -> impl Iterator<Item = Victim> {
        self.rows.iter().flat_map(|row| {
            let of = |(run, priority, sent_at): &(u64, i32, Timestamp)| Victim {
                owner: row.owner,
                run: *run,
                priority: *priority,
                sent_at: *sent_at,
            };
            row.running.iter().map(of)
        })
    }

    /// Remembers that `id` was served in the band of `priority`.
    pub(crate) fn serve(&mut self, priority: i32, id: &str) {
        self.served.retain(|(it, _)| *it != priority);
        if self.served.len() >= SERVED_MAX {
            // They are in the order of their last service.
            self.served.remove(0);
        }
        self.served.push((priority, id.to_string()));
    }

    /// Remembers that `id` has had `tokens` more.
    pub(crate) fn attain(
        &mut self,
        id: &str,
        tokens: f64,
        weights: &LeastAttained,
        now: Timestamp,
    ) {
        let had = self.attained_by(id, weights, now);
        self.attained
            .retain(|it| it.id != id && now.apart(it.at) < weights.forgotten_after);
        if self.attained.len() >= ATTAINED_MAX {
            // They are in the order of their last service.
            self.attained.remove(0);
        }
        self.attained.push(Attained {
            id: id.to_string(),
            tokens: had + tokens,
            at: now,
        });
    }

    fn attained_by(&self, id: &str, weights: &LeastAttained, now: Timestamp) -> f64 {
        let attained = self.attained.iter().find(|it| it.id == id);
        attained.map_or(0.0, |it| weights.decayed(it.tokens, now.since(it.at)))
    }

    /// How much waits in the band of `priority`, or in all bands.
    pub(crate) fn waiting(&self, priority: Option<i32>) -> Waiting {
        let flows = self.rows.iter().flat_map(|row| &row.flows);
        let flows = flows.filter(|it| priority.is_none_or(|priority| it.priority == priority));
        flows.fold(Waiting::default(), |sum, it| Waiting {
            requests: sum.requests.saturating_add(it.requests.into()),
            bytes: sum.bytes.saturating_add(it.bytes),
            since: Some(sum.since.map_or(it.since, |since| since.min(it.since))),
        })
    }

    /// The flow of the band of `priority` whose turn it is; `None` when nothing waits in it.
    pub(crate) fn next(&self, priority: i32, fairness: &Fairness, now: Timestamp) -> Option<Next> {
        let rows = self.rows.iter();
        let mut heads: Vec<(&Row, &Shown)> = rows
            .flat_map(|row| row.flows.iter().map(move |it| (row, it)))
            .filter(|(_, it)| it.priority == priority)
            .collect();
        // Of each flow the first of all workers; of equals the same for everyone.
        sort_by(&mut heads, |(left_row, left), (right_row, right)| {
            let by_flow = left.id.cmp(&right.id);
            let by_head = by_flow.then(left.head.cmp(&right.head));
            by_head.then(left_row.owner.cmp(&right_row.owner))
        });
        heads.dedup_by(|(_, later), (_, first)| later.id == first.id);
        let attained = |id: &str| match fairness {
            Fairness::ProgramAware(weights) => self.attained_by(id, weights, now),
            Fairness::GlobalStrict | Fairness::RoundRobin => 0.0,
        };
        let flows: Vec<Flow<'_>> = heads
            .iter()
            .map(|(_, it)| Flow {
                id: &it.id,
                head: it.head,
                since: it.since,
                attained: attained(&it.id),
            })
            .collect();
        let last = self.served.iter().find(|(it, _)| *it == priority);
        let last = last.map_or("", |(_, id)| id.as_str());
        let (row, shown) = heads.get(fairness.next(&flows, last, now)?)?;
        Some(Next {
            owner: row.owner,
            slot: row.slot,
            id: shown.id.clone(),
        })
    }
}

impl Row {
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u64(self.owner);
        writer.u8(self.slot);
        writer.u64(self.heartbeat.0);
        writer.u16(self.flows.len() as u16);
        for flow in &self.flows {
            writer.u32(flow.priority as u32);
            writer.text(&flow.id);
            writer.u32(flow.requests);
            for number in [flow.bytes, flow.head.due, flow.head.came, flow.since.0] {
                writer.u64(number);
            }
        }
        writer.u16(self.running.len() as u16);
        for (run, priority, sent_at) in &self.running {
            writer.u64(*run);
            writer.u32(*priority as u32);
            writer.u64(sent_at.0);
        }
    }
}

fn decode(bytes: &[u8]) -> Option<Board> {
    let mut reader = Reader(bytes);
    if reader.u8()? != FORMAT {
        return None;
    }
    let mut board = Board::default();
    for _ in 0..reader.u16()? {
        board.rows.push(decode_row(&mut reader)?);
    }
    board.reclaim.at = Timestamp(reader.u64()?);
    for _ in 0..reader.u8()? {
        board.reclaim.victims.push((reader.u64()?, reader.u64()?));
    }
    for _ in 0..count_in(&mut reader, SERVED_MAX)? {
        board
            .served
            .push((reader.u32()? as i32, reader.text()?.to_string()));
    }
    for _ in 0..count_in(&mut reader, ATTAINED_MAX)? {
        let (id, tokens) = (reader.text()?.to_string(), f64::from_bits(reader.u64()?));
        board.attained.push(Attained {
            id,
            // What is no such number would stay for ever.
            tokens: Some(tokens).filter(|it| it.is_finite() && *it >= 0.0)?,
            at: Timestamp(reader.u64()?),
        });
    }
    Some(board).filter(|_| reader.is_empty())
}

/// A count that nobody writes larger than `max`.
fn count_in(reader: &mut Reader<'_>, max: usize) -> Option<u16> {
    reader.u16().filter(|it| usize::from(*it) <= max)
}

fn decode_row(reader: &mut Reader<'_>) -> Option<Row> {
    let mut row = Row {
        owner: reader.u64()?,
        slot: reader.u8()?,
        heartbeat: Timestamp(reader.u64()?),
        flows: Vec::new(),
        running: Vec::new(),
    };
    for _ in 0..reader.u16()? {
        row.flows.push(Shown {
            priority: reader.u32()? as i32,
            id: reader.text()?.to_string(),
            requests: reader.u32()?,
            bytes: reader.u64()?,
            head: Rank {
                due: reader.u64()?,
                came: reader.u64()?,
            },
            since: Timestamp(reader.u64()?),
        });
    }
    for _ in 0..reader.u16()? {
        let running = (
            reader.u64()?,
            reader.u32()? as i32,
            Timestamp(reader.u64()?),
        );
        row.running.push(running);
    }
    Some(row)
}

/// The shared-data key of the board of `pool`.
pub(crate) fn key(pool: &str) -> String {
    format!("picker/{pool}/queue")
}

/// How long a row holds without being rewritten: a hundred fast ticks. The first of a worker that is
/// gone is waited for no longer than that.
pub(crate) const ROW_LIFETIME: Span = Span::from_millis(400);

/// How often a row is rewritten at least.
pub(crate) const HEARTBEAT: Span = Span::from_millis(100);

/// Rows of one board: more than there are workers.
const ROWS_MAX: usize = 1024;

/// Bands of which it is known who was served last.
const SERVED_MAX: usize = 64;

/// Flows of which it is known what they have had.
const ATTAINED_MAX: usize = 256;

/// Changes with every change of the layout.
const FORMAT: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const NOW: Timestamp = Timestamp(10_000_000);

    fn shown(priority: i32, id: &str, requests: u32, due: u64) -> Shown {
        Shown {
            priority,
            id: id.into(),
            requests,
            bytes: u64::from(requests) * 100,
            head: Rank { due, came: due },
            since: Timestamp(due),
        }
    }

    fn row(owner: u64, flows: Vec<Shown>) -> Row {
        Row {
            owner,
            slot: owner as u8,
            heartbeat: NOW,
            flows,
            running: Vec::new(),
        }
    }

    fn board() -> Board {
        let mut board = Board::default();
        board.put(row(1, vec_of([shown(5, "a", 2, 30), shown(0, "b", 1, 5)])));
        board.put(row(2, vec_of([shown(5, "a", 1, 20), shown(5, "b", 3, 40)])));
        board
    }

    fn vec_of<const N: usize>(flows: [Shown; N]) -> Vec<Shown> {
        flows.into()
    }

    #[test]
    fn a_board_survives_the_way_through_bytes() {
        let mut board = board();
        board.serve(5, "a");
        board.serve(5, "b");
        board.serve(-1, "c");
        board.attain("a", 2.5, &LEAST_ATTAINED, NOW);
        board.rows[0].running.push((7, -3, Timestamp(5)));
        board.reclaim.victims.push((1, 7));
        board.reclaim.at = NOW;
        let bytes = board.encode();
        assert_eq!(Board::decode(&bytes, NOW), board);
        assert!(!Board::is_blank(&bytes));
        for length in 0..bytes.len() {
            assert_eq!(Board::decode(&bytes[..length], NOW), Board::default());
        }
        assert!(Board::is_blank(&Board::default().encode()));
        assert!(Board::is_blank(&[]));
    }

    #[test]
    fn rows_of_workers_that_are_silent_are_void() {
        let bytes = board().encode();
        let late = NOW.after(ROW_LIFETIME);
        assert_eq!(Board::decode(&bytes, late).rows.len(), 2);
        assert_eq!(Board::decode(&bytes, late.after(Span(1))).rows.len(), 0);
        let before = Timestamp(NOW.0 - ROW_LIFETIME.0 - 1);
        assert_eq!(Board::decode(&bytes, before).rows.len(), 0);
    }

    #[test]
    fn what_waits_is_summed_over_workers() {
        let board = board();
        let waiting = |requests, since| Waiting {
            requests,
            bytes: requests * 100,
            since: Some(Timestamp(since)),
        };
        assert_eq!(board.waiting(Some(5)), waiting(6, 20));
        assert_eq!(board.waiting(Some(0)), waiting(1, 5));
        assert_eq!(board.waiting(None), waiting(7, 5));
        assert_eq!(board.waiting(Some(7)), Waiting::default());
    }

    #[track_caller]
    fn check(board: &Board, priority: i32, fairness: Fairness, expected: Option<(u64, &str)>) {
        let next = board.next(priority, &fairness, NOW);
        let next = next.as_ref().map(|it| (it.owner, it.id.as_str()));
        assert_eq!(next, expected, "{priority} by {fairness:?}");
    }

    #[test]
    fn the_turn_is_with_the_worker_that_holds_the_first_of_the_flow() {
        let mut board = board();
        check(&board, 5, Fairness::GlobalStrict, Some((2, "a")));
        check(&board, 5, Fairness::RoundRobin, Some((2, "a")));
        check(&board, 0, Fairness::GlobalStrict, Some((1, "b")));
        check(&board, -1, Fairness::GlobalStrict, None);
        board.serve(5, "a");
        check(&board, 5, Fairness::RoundRobin, Some((2, "b")));
        board.serve(5, "b");
        check(&board, 5, Fairness::RoundRobin, Some((2, "a")));
        board.put(row(2, Vec::new()));
        check(&board, 5, Fairness::GlobalStrict, Some((1, "a")));
    }

    const LEAST_ATTAINED: LeastAttained = LeastAttained {
        weight_service: 0.8,
        weight_wait: 0.2,
        half_life: Span::from_millis(1000),
        forgotten_after: Span::from_millis(10_000),
    };

    #[test]
    fn who_has_had_much_is_served_later() {
        let fairness = Fairness::ProgramAware(LEAST_ATTAINED);
        let mut board = board();
        // Nobody has had anything, and a waits longer.
        check(&board, 5, fairness, Some((2, "a")));
        board.attain("a", 80.0, &LEAST_ATTAINED, Timestamp(NOW.0 - 1_000_000));
        check(&board, 5, fairness, Some((2, "b")));
        // 50 is more than the half of 80.
        board.attain("b", 50.0, &LEAST_ATTAINED, NOW);
        check(&board, 5, fairness, Some((2, "a")));
        board.attain("a", 20.0, &LEAST_ATTAINED, NOW);
        check(&board, 5, fairness, Some((2, "b")));
    }

    #[test]
    fn numbers_that_nobody_writes_make_no_board() {
        let attained = |tokens: f64| {
            let mut board = board();
            board.attain("a", 0.0, &LEAST_ATTAINED, NOW);
            board.attained[0].tokens = tokens;
            Board::decode(&board.encode(), NOW) == board
        };
        let found = [0.0, 1e300, -1.0, f64::INFINITY, f64::NAN].map(attained);
        assert_eq!(found, [true, true, false, false, false]);
        let served = |bands: i32| {
            let mut board = board();
            board.served = (0..bands).map(|it| (it, String::new())).collect();
            Board::decode(&board.encode(), NOW) == board
        };
        assert_eq!([64, 65].map(served), [true, false]);
    }

    #[test]
    fn bands_beyond_the_limit_are_forgotten_in_the_order_of_their_service() {
        let mut board = Board::default();
        for priority in [0, 1].into_iter().chain(0..=SERVED_MAX as i32) {
            board.serve(priority, "a");
        }
        let served: Vec<i32> = board.served.iter().map(|(it, _)| *it).collect();
        assert_eq!(served, Vec::from_iter(1..=SERVED_MAX as i32));
    }

    #[test]
    fn flows_beyond_the_limit_are_forgotten_in_the_order_of_their_service() {
        let mut board = Board::default();
        for number in 0..=ATTAINED_MAX {
            let id = format!("{number}");
            board.attain(&id, 1.0, &LEAST_ATTAINED, NOW);
        }
        assert_eq!(board.attained.len(), ATTAINED_MAX);
        assert_eq!(board.attained_by("0", &LEAST_ATTAINED, NOW), 0.0);
        assert_eq!(board.attained_by("1", &LEAST_ATTAINED, NOW), 1.0);
    }
}
