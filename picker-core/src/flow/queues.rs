//! What waits in one worker.
//!
//! The requests themselves stay with their streams; here is what orders them.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::board::Shown;
use super::ordering::{Arrival, Ordering, Rank};
use super::{Band, Capacity};
use crate::sorted::SortedMap;
use crate::{Span, Timestamp};

/// A request that waits in this worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WaitId(pub(crate) u64);

/// What waits in one worker.
#[derive(Default)]
pub(crate) struct Queues {
    items: SortedMap<WaitId, Item>,
    /// By the place of the band, then by name.
    flows: SortedMap<(usize, String), Queue>,
    last: u64,
}

#[derive(Clone)]
struct Item {
    band: usize,
    flow: String,
    rank: Rank,
    bytes: u64,
    queued_at: Timestamp,
}

#[derive(Default)]
struct Queue {
    order: SortedMap<(Rank, WaitId), ()>,
    bytes: u64,
}

impl Queues {
    /// Whether nothing waits here.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many wait here.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Lets a request of `bytes` wait in the band at this place, in the flow of `fairness_id`.
    pub(crate) fn push(
        &mut self,
        (band, ordering): (usize, Ordering),
        fairness_id: &str,
        bytes: u64,
        arrival: &Arrival,
    ) -> WaitId {
        let flow = self.flow_of(band, fairness_id);
        let (id, rank) = (self.issue(), ordering.rank(arrival));
        let key = (band, flow);
        if self.flows.get(&key).is_none() {
            self.flows.insert(key.clone(), Queue::default());
        }
        if let Some(queue) = self.flows.get_mut(&key) {
            queue.order.insert((rank, id), ());
            queue.bytes = queue.bytes.saturating_add(bytes);
        }
        let item = Item {
            band,
            flow: key.1,
            rank,
            bytes,
            queued_at: arrival.queued_at,
        };
        self.items.insert(id, item);
        id
    }

    /// A number that no request has had here.
    pub(crate) fn issue(&mut self) -> WaitId {
        self.last += 1;
        WaitId(self.last)
    }

    /// The name of the flow of `fairness_id` in a band; those of too many share one.
    fn flow_of(&self, band: usize, fairness_id: &str) -> String {
        let key = (band, name(fairness_id));
        if self.flows.len() >= FLOWS_MAX && self.flows.get(&key).is_none() {
            return OTHER_FLOWS.to_string();
        }
        key.1
    }

    /// Takes a request out; `false` when it does not wait here.
    pub(crate) fn remove(&mut self, id: WaitId) -> bool {
        let Some(item) = self.items.remove(&id) else {
            return false;
        };
        let key = (item.band, item.flow);
        if let Some(queue) = self.flows.get_mut(&key) {
            queue.order.remove(&(item.rank, id));
            queue.bytes = queue.bytes.saturating_sub(item.bytes);
            if queue.order.is_empty() {
                self.flows.remove(&key);
            }
        }
        true
    }

    /// Moves all times back by `span`, which changes no order.
    pub(crate) fn set_back(&mut self, span: Span) {
        for (_, queue) in self.flows.iter_mut() {
            queue.order = SortedMap::default();
        }
        for (id, item) in self.items.iter_mut() {
            item.rank = item.rank.before(span);
            item.queued_at = item.queued_at.before(span);
            if let Some(queue) = self.flows.get_mut(&(item.band, item.flow.clone())) {
                queue.order.insert((item.rank, *id), ());
            }
        }
    }

    /// The first of the flow `id` in the band at this place.
    pub(crate) fn first(&self, band: usize, id: &str) -> Option<WaitId> {
        let queue = self.flows.get(&(band, id.to_string()))?;
        queue.order.first().map(|((_, id), ())| *id)
    }

    /// The place of the band of a request, and its flow.
    pub(crate) fn of(&self, id: WaitId) -> Option<(usize, &str)> {
        let item = self.items.get(&id)?;
        Some((item.band, &item.flow))
    }

    /// All requests with the moment since when they wait, the first first.
    pub(crate) fn by_age(&self) -> impl Iterator<Item = (WaitId, Timestamp)> {
        self.items.iter().map(|(id, item)| (*id, item.queued_at))
    }

    /// What others are shown of this.
    pub(crate) fn shown(&self, bands: &[Band]) -> Vec<Shown> {
        let flows = self.flows.iter().filter_map(|((band, id), queue)| {
            let ((head, first), ()) = queue.order.first()?;
            Some(Shown {
                priority: bands.get(*band)?.priority,
                id: id.clone(),
                requests: queue.order.len() as u32,
                bytes: queue.bytes,
                head: *head,
                since: self.items.get(first)?.queued_at,
            })
        });
        flows.collect()
    }
}

/// The name of the flow of `fairness_id`: that itself, unless it is long.
pub(crate) fn name(fairness_id: &str) -> String {
    if fairness_id.len() <= FLOW_BYTES_MAX {
        return fairness_id.to_string();
    }
    let mut length = FLOW_BYTES_MAX - HASH_DIGITS - 1;
    while !fairness_id.is_char_boundary(length) {
        length -= 1;
    }
    let hash = xxhash_rust::xxh3::xxh3_64(fairness_id.as_bytes());
    let begin: String = fairness_id.get(..length).unwrap_or_default().into();
    format!("{begin}~{hash:016x}")
}

impl Capacity {
    /// Whether `waiting` requests of so many `bytes` are within it.
    pub(crate) fn holds(&self, (requests, bytes): (u64, u64)) -> bool {
        requests <= self.requests && bytes <= self.bytes
    }
}

/// Flows in one worker of which something waits at the same time; those beyond share one.
pub(crate) const FLOWS_MAX: usize = 128;

/// The name of the flow that those beyond the limit share.
const OTHER_FLOWS: &str = "other";

/// Bytes of a flow's name; a longer one is cut and ends in a hash of all of it.
const FLOW_BYTES_MAX: usize = 64;

const HASH_DIGITS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn at(time: u64) -> Arrival {
        Arrival {
            received_at: Timestamp(time),
            queued_at: Timestamp(time),
            ttl: None,
            ttft: None,
        }
    }

    fn push(queues: &mut Queues, band: usize, flow: &str, time: u64) -> WaitId {
        queues.push((band, Ordering::Fcfs), flow, 10, &at(time))
    }

    #[test]
    fn the_first_of_a_flow_is_the_one_of_the_least_rank() {
        let mut queues = Queues::default();
        let late = push(&mut queues, 0, "a", 30);
        let early = push(&mut queues, 0, "a", 20);
        let other = push(&mut queues, 1, "a", 10);
        assert_eq!(queues.first(0, "a"), Some(early));
        assert_eq!(queues.first(1, "a"), Some(other));
        assert_eq!(queues.first(0, "b"), None);
        assert!(queues.remove(early));
        assert!(!queues.remove(early), "only once");
        assert_eq!(queues.first(0, "a"), Some(late));
        assert!(queues.remove(late) && queues.remove(other));
        assert!(queues.is_empty() && queues.flows.is_empty());
    }

    #[test]
    fn what_is_shown_is_what_waits() {
        let bands = [5, 0].map(Band::of);
        let mut queues = Queues::default();
        push(&mut queues, 1, "b", 7);
        push(&mut queues, 0, "a", 30);
        push(&mut queues, 0, "a", 20);
        let shown = queues.shown(&bands);
        let row = |it: &Shown| (it.priority, it.id.clone(), it.requests, it.bytes, it.since);
        let rows: Vec<_> = shown.iter().map(row).collect();
        assert_eq!(
            rows,
            [
                (5, "a".into(), 2, 20, Timestamp(20)),
                (0, "b".into(), 1, 10, Timestamp(7))
            ]
        );
    }

    #[test]
    fn names_that_nobody_could_count_share_a_flow() {
        let mut queues = Queues::default();
        let ids: Vec<WaitId> = (0..100_000)
            .map(|number| push(&mut queues, 0, &format!("{number}"), number))
            .collect();
        assert_eq!(queues.flows.len(), FLOWS_MAX + 1);
        assert_eq!(queues.of(ids[FLOWS_MAX - 1]), Some((0, "127")));
        assert_eq!(queues.of(ids[FLOWS_MAX]), Some((0, OTHER_FLOWS)));
        push(&mut queues, 0, "5", 0);
        assert_eq!(queues.flows.len(), FLOWS_MAX + 1, "a known one is itself");
        for id in ids {
            queues.remove(id);
        }
        assert_eq!((queues.len(), queues.flows.len()), (1, 1));
    }

    #[test]
    fn a_long_name_stays_apart_from_others_that_begin_alike() {
        let mut queues = Queues::default();
        let long = "ä".repeat(40);
        let id = push(&mut queues, 0, &long, 1);
        let name = queues.of(id).unwrap().1.to_string();
        assert!(name.len() <= FLOW_BYTES_MAX, "{name}");
        let other = push(&mut queues, 0, &format!("{long}x"), 1);
        assert_ne!(queues.of(other).unwrap().1, name);
        let exact = "x".repeat(FLOW_BYTES_MAX);
        let exact_id = push(&mut queues, 0, &exact, 1);
        assert_eq!(queues.of(exact_id).unwrap().1, exact);
    }
}
