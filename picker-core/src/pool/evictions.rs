//! Running requests that make room for those that matter more.

use alloc::vec::Vec;

use super::Pool;
use super::turns::Turn;
use crate::flow::{Board, Victim, count_victims};
use crate::saturation::Detector;
use crate::shared::SharedData;
use crate::ticket::Ticket;
use crate::{Span, Timestamp};

/// A running request that may be ended, as this worker knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RunId(pub(super) u64);

impl Pool {
    /// The running requests of this worker that are to be ended with
    /// [`Refusal::Evicted`](crate::Refusal::Evicted); each is named once.
    pub fn evictions(&mut self, now: Timestamp) -> Vec<RunId> {
        if self.desk.running.is_empty() {
            return Vec::new();
        }
        let owner = self.tally.owner();
        let board = self.desk.board(now);
        let own = board.reclaim.victims.iter().filter(|it| it.0 == owner);
        let mut named = Vec::new();
        for (_, run) in own {
            if let Some(running) = self.desk.running.iter_mut().find(|it| it.0.run == *run)
                && !core::mem::replace(&mut running.1, true)
            {
                named.push(RunId(*run));
            }
        }
        named
    }

    /// Takes note of a request that is sent and may be ended.
    pub(super) fn run(
        &mut self,
        shared: &impl SharedData,
        ticket: &mut Ticket,
        priority: i32,
        now: Timestamp,
    ) {
        let Some(flow) = self.options.plan.flow.as_ref().filter(|it| it.evicts) else {
            return;
        };
        if priority < 0 {
            let slot = self.tally.slot().unwrap_or_default();
            let run = self.desk.run(shared, flow, (priority, slot), now);
            ticket.run = Some(RunId(run));
        }
    }

    /// Takes note of its end.
    pub(super) fn end_run(
        &mut self,
        shared: &impl SharedData,
        ticket: &mut Ticket,
        now: Timestamp,
    ) {
        let grace = self.grace();
        if let (Some(RunId(run)), Some(flow)) = (ticket.run.take(), &self.options.plan.flow) {
            self.desk.end_run(shared, flow, (run, grace), now);
        }
    }

    /// How long it takes until the room that a request has left is seen.
    fn grace(&self) -> Span {
        match self.options.plan.detector {
            Detector::Utilization(_) => Span(self.options.staleness_threshold.0 + SEEN_AFTER.0),
            _ => COUNTED_AFTER,
        }
    }

    /// Begins to make room for a band of `priority` that waits while the endpoints are as full as
    /// `saturation`; who is to be woken for that.
    pub(super) fn reclaim(
        &mut self,
        shared: &impl SharedData,
        (board, priority): (&Board, i32),
        (saturation, ceiling): (f64, f64),
        now: Timestamp,
    ) -> Turn {
        let Some(flow) = self.options.plan.flow.as_ref().filter(|it| it.evicts) else {
            return Turn::Nobody;
        };
        let running: Vec<Victim> = board.victims().collect();
        if running.is_empty() || !board.reclaim.is_over(now) {
            return Turn::Nobody;
        }
        let endpoints = &self.view.snapshot().endpoints;
        let loads = self.tally.totals(endpoints.iter().map(|it| it.id), now);
        let in_flight = loads
            .iter()
            .fold(0, |sum: u32, it| sum.saturating_add(it.requests));
        let count = count_victims(saturation, ceiling, in_flight);
        let owners = self.desk.reclaim(shared, flow, (priority, count), now);
        let others = owners.into_iter().find(|it| *it != self.tally.owner());
        let slot = others.and_then(|owner| {
            let row = board.rows.iter().find(|row| row.owner == owner)?;
            Some(row.slot)
        });
        slot.map_or(Turn::Nobody, Turn::Of)
    }
}

/// After metrics that were young enough to be believed are so no more, those that follow show what
/// has ended.
const SEEN_AFTER: Span = Span::from_millis(250);

/// What is counted by us is seen at once.
const COUNTED_AFTER: Span = Span::from_millis(10);
