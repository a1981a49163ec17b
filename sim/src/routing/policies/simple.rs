//! Rules that know nothing of prompts.

use std::collections::HashMap;

use super::{Dice, Fleet, Job, Policy};

/// In turn.
#[derive(Default)]
pub(super) struct RoundRobin {
    turn: usize,
}

/// At random.
pub(super) struct Random(pub(super) Dice);

/// At random for each connection, as when a kernel balances connections that are kept alive.
pub(super) struct KubeProxy {
    dice: Dice,
    connections: HashMap<usize, usize>,
}

/// Fewest own requests in flight.
pub(super) struct LeastInFlight(pub(super) Dice);

/// Groups are dealt out like cards.
pub(super) struct Hand;

impl Policy for RoundRobin {
    fn choose(&mut self, _job: &Job, fleet: &Fleet<'_>) -> usize {
        self.turn += 1;
        place(fleet, self.turn - 1)
    }
}

impl Policy for Random {
    fn choose(&mut self, _job: &Job, fleet: &Fleet<'_>) -> usize {
        place(fleet, self.0.below(fleet.candidates.len()))
    }
}

impl KubeProxy {
    pub(super) fn new(dice: Dice) -> Self {
        let connections = HashMap::new();
        Self { dice, connections }
    }
}

impl Policy for KubeProxy {
    fn choose(&mut self, job: &Job, fleet: &Fleet<'_>) -> usize {
        let kept = self.connections.get(&job.planned.connection);
        if let Some(&pod) = kept.filter(|pod| fleet.candidates.contains(pod)) {
            return pod;
        }
        let pod = place(fleet, self.dice.below(fleet.candidates.len()));
        // A connection that was led elsewhere by force does not stay there.
        if fleet.candidates == fleet.listed {
            self.connections.insert(job.planned.connection, pod);
        }
        pod
    }
}

impl Policy for LeastInFlight {
    fn choose(&mut self, _job: &Job, fleet: &Fleet<'_>) -> usize {
        let in_flight = |pod: usize| fleet.pods[pod].in_flight as f64;
        self.0.least(fleet.candidates, in_flight)
    }
}

impl Policy for Hand {
    fn choose(&mut self, job: &Job, fleet: &Fleet<'_>) -> usize {
        place(fleet, job.planned.group as usize)
    }
}

/// The candidate at a place, counted round and round.
fn place(fleet: &Fleet<'_>, place: usize) -> usize {
    fleet.candidates[place % fleet.candidates.len()]
}
