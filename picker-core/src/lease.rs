//! Who collects: one virtual machine of the process, by a lease in shared data.
//!
//! Only the holder extends the lease and anyone may take it once it has run out, both by
//! compare-and-swap on what was read, so two can never hold it at once. Roots that serve requests
//! let the lease lie for a while longer than the service and idle roots do, so that scraping stays
//! off the workers as long as somebody else can do it.

use alloc::vec::Vec;

use crate::bytes::{Reader, Writer};
use crate::shared::SharedData;
use crate::{Span, Timestamp};

/// How eager a root is to collect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Eagerness {
    /// The bootstrap service: it exists to collect.
    Service,
    /// A root whose virtual machine has served no request lately.
    Idle,
    /// A root that serves requests.
    Busy,
}

/// One root's claim to the lease.
pub struct Lease {
    holder: u64,
    length: Span,
    /// When this root first saw the lease free, to measure its own patience.
    free_since: Option<Timestamp>,
    held: bool,
    value: Vec<u8>,
}

/// The lease as shared data shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseState {
    /// Who holds it.
    pub holder: u64,
    /// When it runs out.
    pub expires: Timestamp,
}

impl Lease {
    /// A claim by `holder`, a number drawn once per root, for `length` at a time.
    pub fn new(holder: u64, length: Span) -> Self {
        Self {
            holder,
            length,
            free_since: None,
            held: false,
            value: Vec::new(),
        }
    }

    /// Extends or takes the lease where that is due; tells whether this root holds it now.
    ///
    /// To be called at every slow tick, several times in a lease's length.
    pub fn try_hold(
        &mut self,
        shared: &impl SharedData,
        eagerness: Eagerness,
        now: Timestamp,
    ) -> bool {
        let version = shared.get(KEY, &mut self.value);
        let state = decode(&self.value);
        let own = state.is_some_and(|state| state.holder == self.holder);
        if !own && !self.may_take(state, eagerness, now) {
            self.held = false;
            return false;
        }
        self.value.clear();
        let mut writer = Writer(&mut self.value);
        writer.u64(self.holder);
        writer.u64(now.after(self.length).0);
        self.held = shared.set_if(KEY, &self.value, version);
        self.held
    }

    /// Whether this root held the lease at its last try.
    pub fn is_held(&self) -> bool {
        self.held
    }

    fn may_take(
        &mut self,
        state: Option<LeaseState>,
        eagerness: Eagerness,
        now: Timestamp,
    ) -> bool {
        // A lease that lasts longer than anybody extends one is from before the clock stepped back.
        let latest = now.after(Span(self.length.0.saturating_mul(2)));
        if state.is_some_and(|state| now < state.expires && state.expires <= latest) {
            self.free_since = None;
            return false;
        }
        let free_since = self.free_since.filter(|since| *since <= now);
        let free_since = *self.free_since.insert(free_since.unwrap_or(now));
        let patience = match eagerness {
            Eagerness::Service => 0,
            Eagerness::Idle => self.length.0 / 4,
            Eagerness::Busy => self.length.0 / 2,
        };
        now.since(free_since).0 >= patience
    }
}

/// The lease as shared data shows it; `None` before anyone has collected.
pub fn lease_state(shared: &impl SharedData) -> Option<LeaseState> {
    let mut value = Vec::new();
    shared.get(KEY, &mut value);
    decode(&value)
}

/// How long a lease lasts for pools scraped every `interval`: five rounds, and half a second at
/// least.
pub fn lease_length(interval: Span) -> Span {
    Span(interval.0.saturating_mul(5))
        .max(Span::from_millis(500))
        .min(LENGTH_MAX)
}

fn decode(bytes: &[u8]) -> Option<LeaseState> {
    let mut reader = Reader(bytes);
    Some(LeaseState {
        holder: reader.u64()?,
        expires: Timestamp(reader.u64()?),
    })
}

const KEY: &str = "picker/lease";

/// The longest lease.
const LENGTH_MAX: Span = Span::from_millis(300_000);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::LocalData;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const LENGTH: Span = Span::from_millis(500);

    fn at(millis: u64) -> Timestamp {
        Timestamp(1_000_000_000 + millis * 1000)
    }

    /// When a second root takes over from a first one that holds the lease until 500 ms and then is
    /// silent.
    fn taken_over_at(eagerness: Eagerness) -> u64 {
        let shared = LocalData::default();
        assert!(Lease::new(1, LENGTH).try_hold(&shared, Eagerness::Service, at(0)));
        let mut second = Lease::new(2, LENGTH);
        let ticks = (0..20).map(|tick| tick * 100);
        ticks
            .into_iter()
            .find(|tick| second.try_hold(&shared, eagerness, at(*tick)))
            .unwrap()
    }

    #[test]
    fn an_unused_lease_is_taken_within_two_lengths_by_the_most_eager_first() {
        assert_eq!(taken_over_at(Eagerness::Service), 500);
        assert_eq!(taken_over_at(Eagerness::Idle), 700);
        assert_eq!(taken_over_at(Eagerness::Busy), 800);
    }

    #[test]
    fn a_lease_that_is_extended_stays() {
        let shared = LocalData::default();
        let (mut first, mut second) = (Lease::new(1, LENGTH), Lease::new(2, LENGTH));
        for tick in 0..50 {
            assert!(first.try_hold(&shared, Eagerness::Service, at(tick * 100)));
            assert!(!second.try_hold(&shared, Eagerness::Service, at(tick * 100 + 50)));
        }
        assert_eq!(lease_state(&shared).map(|state| state.holder), Some(1));
    }

    #[test]
    fn of_two_that_try_at_once_one_holds() {
        let shared = LocalData::default();
        let (mut first, mut second) = (Lease::new(1, LENGTH), Lease::new(2, LENGTH));
        assert!(first.try_hold(&shared, Eagerness::Service, at(0)));
        assert!(!second.try_hold(&shared, Eagerness::Service, at(0)));
    }

    #[test]
    fn a_lease_from_before_the_clock_stepped_back_is_free() {
        let shared = LocalData::default();
        assert!(Lease::new(1, LENGTH).try_hold(&shared, Eagerness::Service, at(10_000_000)));
        assert!(Lease::new(2, LENGTH).try_hold(&shared, Eagerness::Service, at(0)));
    }
}
