//! The requests that wait for a place, in the order of the policy.

use std::collections::{BTreeSet, VecDeque};

use super::config::Policy;
use super::request::Entry;

/// Index of a request in the engine's table.
pub(super) type Slot = u32;

/// The waiting requests, next one first.
pub(super) enum Waiting {
    /// In the order of arrival, preempted ones in front.
    Fcfs(VecDeque<Slot>),
    /// By priority, then arrival, then the order in which the engine got them.
    Priority(BTreeSet<(i64, u64, u64, Slot)>),
}

impl Waiting {
    pub(super) fn new(policy: Policy) -> Self {
        match policy {
            Policy::Fcfs => Self::Fcfs(VecDeque::new()),
            Policy::Priority => Self::Priority(BTreeSet::new()),
        }
    }

    /// Adds a new request behind those that came before it.
    pub(super) fn push(&mut self, slot: Slot, entry: &Entry) {
        match self {
            Self::Fcfs(queue) => queue.push_back(slot),
            Self::Priority(queue) => {
                queue.insert(key(slot, entry));
            }
        }
    }

    /// Puts a preempted request back, before those that came after it.
    pub(super) fn push_preempted(&mut self, slot: Slot, entry: &Entry) {
        match self {
            Self::Fcfs(queue) => queue.push_front(slot),
            Self::Priority(queue) => {
                queue.insert(key(slot, entry));
            }
        }
    }

    pub(super) fn remove(&mut self, slot: Slot, entry: &Entry) {
        match self {
            // Nearly always the front one.
            Self::Fcfs(queue) => {
                if let Some(place) = queue.iter().position(|&other| other == slot) {
                    queue.remove(place);
                }
            }
            Self::Priority(queue) => {
                queue.remove(&key(slot, entry));
            }
        }
    }

    pub(super) fn peek(&self) -> Option<Slot> {
        match self {
            Self::Fcfs(queue) => queue.front().copied(),
            Self::Priority(queue) => queue.first().map(|it| it.3),
        }
    }

    /// All of them, next one first.
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = Slot> + '_> {
        match self {
            Self::Fcfs(queue) => Box::new(queue.iter().copied()),
            Self::Priority(queue) => Box::new(queue.iter().map(|it| it.3)),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Fcfs(queue) => queue.len(),
            Self::Priority(queue) => queue.len(),
        }
    }
}

fn key(slot: Slot, entry: &Entry) -> (i64, u64, u64, Slot) {
    (entry.priority, entry.arrival, entry.id.0, slot)
}
