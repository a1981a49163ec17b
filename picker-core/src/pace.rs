//! How often a worker tells the others of its own accord.
//!
//! To write shared data costs as much as a decision. What ends is told at once as long as that is
//! not a thousand times a second for long; beyond that it waits for the next choice, which is told
//! in any case and will not be long in coming.

use crate::{Span, Timestamp};

/// What may still be told at once.
pub(crate) struct Pace {
    /// Time that was not spent on telling.
    saved: Span,
    at: Timestamp,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            saved: SAVED_MAX,
            at: Timestamp(0),
        }
    }
}

impl Pace {
    /// Whether to tell now; counts it as done when so.
    pub(crate) fn allows(&mut self, now: Timestamp) -> bool {
        let saved = self.saved.0.saturating_add(now.since(self.at).0);
        self.saved = Span(saved.min(SAVED_MAX.0));
        self.at = now;
        let allowed = self.saved >= SPENT;
        if allowed {
            self.saved.0 -= SPENT.0;
        }
        allowed
    }
}

/// What telling once takes of the time saved: a thousand times a second in the long run.
const SPENT: Span = Span::from_millis(1);

/// How much is saved at most: 32 times at once.
const SAVED_MAX: Span = Span::from_millis(32);

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// How many of `count` were allowed, so many microseconds apart.
    fn allowed(pace: &mut Pace, count: u64, apart: u64) -> u64 {
        let begin = pace.at.0;
        let times = (1..=count).map(|number| Timestamp(begin + number * apart));
        times.filter(|at| pace.allows(*at)).count() as u64
    }

    #[test]
    fn a_burst_is_told_at_once_and_a_flood_a_thousand_times_a_second() {
        let mut pace = Pace::default();
        assert_eq!(allowed(&mut pace, 100, 0), 32);
        assert_eq!(allowed(&mut pace, 10_000, 100), 1000);
        assert_eq!(allowed(&mut pace, 500, 1000), 500, "slow enough for ever");
        assert!(!pace.allows(Timestamp(pace.at.0)), "nothing was saved");
        assert_eq!(allowed(&mut pace, 1, 1_000_000), 1);
        assert_eq!(allowed(&mut pace, 100, 0), 31, "a second saves no more");
    }

    #[test]
    fn a_clock_that_steps_back_stops_nothing() {
        let mut pace = Pace::default();
        assert!(pace.allows(Timestamp(1_000_000_000)));
        assert!(pace.allows(Timestamp(5)));
        assert_eq!(allowed(&mut pace, 100, 1000), 100);
    }
}
