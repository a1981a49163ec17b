//! Who waits when the endpoints are full, and whose turn it is when they are not any more.
//!
//! Requests of one priority form a band, those of one tenant in it a flow. A worker holds its own
//! requests in queues, and shows on the board that all workers see how many there are and which
//! is the first of each flow. So the turn goes round all workers as if there were one queue.

mod board;
mod ceiling;
mod desk;
mod eviction;
mod fairness;
mod ordering;
mod queues;

use alloc::vec;
use alloc::vec::Vec;

pub(crate) use board::Board;
pub use board::Waiting;
pub use ceiling::UsageLimit;
pub(crate) use desk::{Desk, QueueFull};
pub(crate) use eviction::{Victim, count as count_victims};
pub use fairness::{Fairness, Flow, LeastAttained};
pub use ordering::{Arrival, Ordering, Rank, wanted_ttft};
pub use queues::WaitId;

use crate::Span;

/// How requests wait.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowControl {
    /// The bands, the highest priority first, none twice; there is always one for priority 0.
    pub bands: Vec<Band>,
    /// What all bands together hold at most.
    pub capacity: Capacity,
    /// How long a request waits while there are endpoints; `None` for as long as its client does.
    pub request_ttl: Option<Span>,
    /// How long it waits while there is none.
    pub no_endpoint_ttl: Option<Span>,
    /// How full the endpoints may be for each band.
    pub usage_limit: UsageLimit,
    /// Whether running requests of a priority below 0 make room for those that matter more.
    pub evicts: bool,
}

/// Requests of one priority.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Band {
    /// The larger, the more it matters.
    pub priority: i32,
    /// What waits in it at most.
    pub capacity: Capacity,
    /// Which flow is next.
    pub fairness: Fairness,
    /// Which request of a flow is next.
    pub ordering: Ordering,
}

/// How much may wait, in all workers together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// Requests.
    pub requests: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

impl FlowControl {
    /// The place of the band that requests of `priority` wait in: their own, or that of priority 0.
    pub fn band_of(&self, priority: i32) -> usize {
        let place = |wanted: i32| self.bands.iter().position(|it| it.priority == wanted);
        place(priority).or_else(|| place(0)).unwrap_or_default()
    }

    /// How full the endpoints may be for each band, in their order, when they are as full as
    /// `saturation`; `cycle` counts up with every call.
    pub(crate) fn ceilings(&self, saturation: f64, cycle: u64) -> Vec<f64> {
        let priorities: Vec<i32> = self.priorities().collect();
        self.usage_limit.ceilings(saturation, &priorities, cycle)
    }

    /// Priorities of the bands, the highest first.
    pub fn priorities(&self) -> impl Iterator<Item = i32> {
        self.bands.iter().map(|it| it.priority)
    }
}

impl Default for FlowControl {
    /// What the reference picker does without being told more.
    fn default() -> Self {
        Self {
            bands: vec![Band::of(0)],
            capacity: Capacity::UNLIMITED,
            request_ttl: Some(REQUEST_TTL),
            no_endpoint_ttl: Some(REQUEST_TTL),
            usage_limit: UsageLimit::Static(1.0),
            evicts: false,
        }
    }
}

impl Band {
    /// A band that nothing else is said of.
    pub fn of(priority: i32) -> Self {
        Self {
            priority,
            capacity: Capacity::OF_BAND,
            fairness: Fairness::GlobalStrict,
            ordering: Ordering::Fcfs,
        }
    }
}

impl Capacity {
    /// No limit.
    pub const UNLIMITED: Self = Self {
        requests: u64::MAX,
        bytes: u64::MAX,
    };

    /// That of a band that nothing else is said of, as in the reference picker.
    pub const OF_BAND: Self = Self {
        requests: 5000,
        bytes: 1_000_000_000,
    };
}

/// How long a request waits, unless it is said.
const REQUEST_TTL: Span = Span::from_millis(60_000);
