//! One worker's side of the board: what waits here, and what the others show.

use alloc::string::String;
use alloc::vec::Vec;

use super::board::{self, Board, Next, Row};
use super::eviction::{STEP_MAX, Victim, choose};
use super::ordering::Arrival;
use super::queues::{self, Queues, WaitId};
use super::{Band, FlowControl, LeastAttained, Waiting};
use crate::shared::{SharedData, Version};
use crate::tally::WRITES_MAX;
use crate::{Span, Timestamp};

/// One worker's side of the board of its pool.
pub(crate) struct Desk {
    key: String,
    /// The board as it was read or written last.
    bytes: Vec<u8>,
    pub(crate) queues: Queues,
    /// Running requests that may be ended, and whether they were told to.
    pub(crate) running: Vec<(Victim, bool)>,
    runs: u64,
    /// Who this worker is on the board, and under which number it is woken.
    owner: u64,
    slot: u8,
    /// Whether the board does not show what waits here.
    is_untold: bool,
    shown_at: Timestamp,
    /// Since when there have been endpoints, or none.
    regime: (bool, Timestamp),
    /// When that was asked last.
    asked_at: Timestamp,
    /// Turns asked for.
    pub(crate) cycle: u64,
    /// Who was woken last, and when.
    woken: Option<(u8, Timestamp)>,
}

/// Why a request cannot wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QueueFull;

impl Desk {
    /// The side of the worker `owner`, of which nothing waits.
    pub(crate) fn new(pool: &str, owner: u64) -> Self {
        Self {
            key: board::key(pool),
            bytes: Vec::new(),
            queues: Queues::default(),
            running: Vec::new(),
            runs: 0,
            owner,
            slot: 0,
            is_untold: false,
            shown_at: Timestamp(0),
            regime: (true, Timestamp(0)),
            asked_at: Timestamp(0),
            cycle: 0,
            woken: None,
        }
    }

    /// Whether nothing waited anywhere when the board was read last.
    pub(crate) fn is_idle(&self, now: Timestamp) -> bool {
        let is_idle_elsewhere = || Board::is_blank(&self.bytes) || self.board(now).is_idle();
        self.queues.is_empty() && is_idle_elsewhere()
    }

    /// Reads what all workers show.
    pub(crate) fn read(&mut self, shared: &impl SharedData) -> Version {
        shared.get(&self.key, &mut self.bytes)
    }

    /// What was read last, without what is void.
    pub(crate) fn board(&self, now: Timestamp) -> Board {
        if Board::is_blank(&self.bytes) {
            return Board::default();
        }
        Board::decode(&self.bytes, now)
    }

    /// Lets a request wait, unless as much waits as may.
    ///
    /// `slot` is the number under which this worker is woken.
    pub(crate) fn push(
        &mut self,
        shared: &impl SharedData,
        (flow, place, slot): (&FlowControl, usize, u8),
        (fairness_id, bytes): (&str, u64),
        arrival: &Arrival,
    ) -> Result<WaitId, QueueFull> {
        self.slot = slot;
        let now = arrival.queued_at;
        let band = flow.bands.get(place).copied();
        let band = band.unwrap_or_else(|| Band::of(0));
        for attempt in 0..WRITES_MAX {
            let version = self.read(shared);
            let mut board = Board::decode(&self.bytes, now);
            // What waits here counts whether the board shows it or not.
            board.put(self.row(flow, now));
            let with =
                |waiting: Waiting| (waiting.requests + 1, waiting.bytes.saturating_add(bytes));
            if !band
                .capacity
                .holds(with(board.waiting(Some(band.priority))))
                || !flow.capacity.holds(with(board.waiting(None)))
            {
                return Err(QueueFull);
            }
            let of = (place, band.ordering);
            let id = self.queues.push(of, fairness_id, bytes, arrival);
            board.put(self.row(flow, now));
            if self.write(shared, &board, (version, now)) {
                return Ok(id);
            }
            if attempt + 1 == WRITES_MAX {
                self.is_untold = true;
                return Ok(id);
            }
            self.queues.remove(id);
        }
        Err(QueueFull)
    }

    /// Takes requests out; the others learn of it at once.
    pub(crate) fn remove(
        &mut self,
        shared: &impl SharedData,
        flow: &FlowControl,
        ids: &[WaitId],
        now: Timestamp,
    ) {
        let before = self.queues.len();
        for id in ids {
            self.queues.remove(*id);
        }
        if self.queues.len() < before {
            self.show(shared, flow, now);
        }
    }

    /// Takes out a request that goes to an endpoint.
    pub(crate) fn serve(
        &mut self,
        shared: &impl SharedData,
        flow: &FlowControl,
        id: WaitId,
        now: Timestamp,
    ) {
        let Some((place, name)) = self.queues.of(id) else {
            return;
        };
        let name = String::from(name);
        self.queues.remove(id);
        let priority = flow.bands.get(place).map_or(0, |it| it.priority);
        self.change(shared, flow, now, |board| board.serve(priority, &name));
    }

    /// Remembers that the flow `name` has had `tokens` more.
    pub(crate) fn attain(
        &mut self,
        shared: &impl SharedData,
        flow: &FlowControl,
        (name, tokens, weights): (&str, f64, &LeastAttained),
        now: Timestamp,
    ) {
        self.change(shared, flow, now, |board| {
            board.attain(name, tokens, weights, now);
        });
    }

    /// Shows what waits here, where that is not shown or was not lately.
    pub(crate) fn tick(&mut self, shared: &impl SharedData, flow: &FlowControl, now: Timestamp) {
        let is_shown = !self.queues.is_empty() || !self.running.is_empty();
        let is_due = is_shown && now.apart(self.shown_at) >= board::HEARTBEAT;
        if is_due || self.is_untold {
            self.show(shared, flow, now);
        }
    }

    /// Reads what all workers show, and takes away what those that are gone have left where nobody
    /// else writes: until then every request reads through it.
    pub(crate) fn sweep(&mut self, shared: &impl SharedData, flow: &FlowControl, now: Timestamp) {
        self.read(shared);
        if !Board::is_blank(&self.bytes) && self.board(now).rows.is_empty() {
            self.show(shared, flow, now);
        }
    }

    /// Takes note of whether there are endpoints; since when it has been so.
    ///
    /// To be asked before anything is pushed, for it notices that the clock has been set back: then
    /// all go on waiting as if it had always gone like that.
    pub(crate) fn since_regime(&mut self, has_endpoints: bool, now: Timestamp) -> Timestamp {
        let back = self.asked_at.since(now);
        if back > Span(0) {
            self.queues.set_back(back);
            self.regime.1 = self.regime.1.before(back);
            self.is_untold = true;
        }
        self.asked_at = now;
        if self.regime.0 != has_endpoints {
            self.regime = (has_endpoints, now);
        }
        self.regime.1
    }

    /// Whether to wake the worker that has the turn; not when that was done a moment ago.
    pub(crate) fn wakes(&mut self, next: &Next, now: Timestamp) -> bool {
        let just = |(slot, at): (u8, Timestamp)| slot == next.slot && now.apart(at) < WAKE_EVERY;
        if self.woken.is_some_and(just) {
            return false;
        }
        self.woken = Some((next.slot, now));
        true
    }

    /// The name of the flow of `fairness_id`.
    pub(crate) fn flow_name(fairness_id: &str) -> String {
        queues::name(fairness_id)
    }

    fn row(&self, flow: &FlowControl, now: Timestamp) -> Row {
        Row {
            owner: self.owner,
            slot: self.slot,
            heartbeat: now,
            flows: self.queues.shown(&flow.bands),
            running: self.first_victims(),
        }
    }

    /// Those of the running requests here that would be ended first, as many as a step ends.
    fn first_victims(&self) -> Vec<(u64, i32, Timestamp)> {
        let open = self.running.iter().filter(|(_, is_told)| !is_told);
        let open: Vec<Victim> = open.map(|(victim, _)| *victim).collect();
        let first = choose(&open, i32::MAX, STEP_MAX);
        let shown = |(_, run): (u64, u64)| {
            let victim = open.iter().find(|it| it.run == run)?;
            Some((run, victim.priority, victim.sent_at))
        };
        first.into_iter().filter_map(shown).collect()
    }

    /// Takes note of a running request that may be ended; its number.
    ///
    /// `slot` is the number under which this worker is woken.
    pub(crate) fn run(
        &mut self,
        shared: &impl SharedData,
        flow: &FlowControl,
        (priority, slot): (i32, u8),
        now: Timestamp,
    ) -> u64 {
        self.slot = slot;
        self.runs += 1;
        let victim = Victim {
            owner: self.owner,
            run: self.runs,
            priority,
            sent_at: now,
        };
        self.running.push((victim, false));
        self.show(shared, flow, now);
        self.runs
    }

    /// Takes note of its end; when it was told to, others may be after `grace`.
    pub(crate) fn end_run(
        &mut self,
        shared: &impl SharedData,
        flow: &FlowControl,
        (run, grace): (u64, Span),
        now: Timestamp,
    ) {
        self.running.retain(|(it, _)| it.run != run);
        let victim = (self.owner, run);
        self.change(shared, flow, now, |board| {
            board.reclaim.end(victim, grace, now);
        });
    }

    /// Chooses running requests to end for a band of `priority`, unless that is under way; the
    /// workers that hold them.
    pub(crate) fn reclaim(
        &mut self,
        shared: &impl SharedData,
        flow: &FlowControl,
        (priority, count): (i32, usize),
        now: Timestamp,
    ) -> Vec<u64> {
        self.change(shared, flow, now, |board| {
            if board.reclaim.is_over(now) {
                let running: Vec<Victim> = board.victims().collect();
                board.reclaim.victims = choose(&running, priority, count);
                board.reclaim.at = now;
            }
        });
        let victims = self.board(now).reclaim.victims;
        victims.into_iter().map(|(owner, _)| owner).collect()
    }

    fn show(&mut self, shared: &impl SharedData, flow: &FlowControl, now: Timestamp) {
        self.change(shared, flow, now, |_| {});
    }

    /// Writes the board with what waits here and with `change`; should other workers always be
    /// faster, the next tick shows what waits.
    fn change(
        &mut self,
        shared: &impl SharedData,
        flow: &FlowControl,
        now: Timestamp,
        change: impl Fn(&mut Board),
    ) {
        for _ in 0..WRITES_MAX {
            let version = self.read(shared);
            let mut board = Board::decode(&self.bytes, now);
            board.put(self.row(flow, now));
            change(&mut board);
            if self.write(shared, &board, (version, now)) {
                return;
            }
        }
        self.is_untold = true;
    }

    fn write(
        &mut self,
        shared: &impl SharedData,
        board: &Board,
        (version, now): (Version, Timestamp),
    ) -> bool {
        self.bytes = board.encode();
        let written = shared.set_if(&self.key, &self.bytes, version);
        if written {
            (self.is_untold, self.shown_at) = (false, now);
        }
        written
    }
}

/// A worker that was woken this lately has not slept since: it sends all that it may when it wakes,
/// and looks by itself every few milliseconds.
const WAKE_EVERY: Span = Span::from_millis(1);
