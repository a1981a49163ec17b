//! The loop back from the engine: does its cache hold what the twin expects?
//!
//! A twin that is too large expects blocks that the engine has forgotten; one that is too small knows too few. Over
//! windows of prompt tokens what was expected is compared with what the engine found, by its counters where all its
//! work is ours, else by what answers tell, and the twin's capacity follows.

use crate::candidate::SHARE_ALONE;
use crate::ledger::Load;

/// The window that is open for one endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheFit {
    begin: Option<(Load, u64)>,
}

impl CacheFit {
    /// The part of the advertised cache to count on, given what it was, what all our workers have counted, the
    /// endpoint's own count of cached prompt tokens, and our share of its work.
    pub fn update(&mut self, known: f64, load: Load, hits: Option<u64>, share: Option<f64>) -> f64 {
        let alone = share.is_some_and(|share| share >= SHARE_ALONE);
        let counter = hits.unwrap_or(0);
        let (begin, begin_counter) = *self.begin.get_or_insert((load, counter));
        let found = counter.checked_sub(begin_counter);
        let since = |now: u32, then: u32| f64::from(now.wrapping_sub(then));
        let (expected, found) = match found.filter(|_| alone && hits.is_some()) {
            Some(found) => (
                since(load.matched_tokens, begin.matched_tokens),
                found as f64,
            ),
            None => (
                since(load.checked_tokens, begin.checked_tokens),
                since(load.cached_tokens, begin.cached_tokens),
            ),
        };
        if counter < begin_counter {
            self.begin = Some((load, counter));
            return known;
        }
        if expected.max(found) < WINDOW_TOKENS {
            return known;
        }
        self.begin = Some((load, counter));
        let ratio = found / expected.max(1.0);
        let factor = if ratio < TOO_FEW {
            ratio.max(SHRINK_MOST)
        } else if ratio > TOO_MANY {
            GROW
        } else {
            RECOVER
        };
        (known * factor).clamp(FIT_LEAST, FIT_MOST)
    }
}

/// Tokens expected or found in a window.
const WINDOW_TOKENS: f64 = 32_768.0;

/// Below this part of what was expected the engine has forgotten more than the twin.
const TOO_FEW: f64 = 0.9;

/// Above it the engine keeps more than the twin.
const TOO_MANY: f64 = 1.1;

/// The most that one window takes away.
const SHRINK_MOST: f64 = 0.7;

/// What one window with more than expected adds.
const GROW: f64 = 1.05;

/// What one window as expected adds, so that a passing disturbance is forgotten.
const RECOVER: f64 = 1.002;

/// The least part: below it a cache is of no use to a router.
const FIT_LEAST: f64 = 0.02;

/// The most: an engine that offloads holds more than it advertises.
const FIT_MOST: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// The part after windows in which so many tokens were expected and found.
    fn after(windows: &[(u32, u64)], share: Option<f64>) -> f64 {
        let mut fit = CacheFit::default();
        let (mut load, mut hits, mut known) = (Load::default(), 1000, 1.0);
        known = fit.update(known, load, Some(hits), share);
        for (expected, found) in windows {
            load.matched_tokens = load.matched_tokens.wrapping_add(*expected);
            hits += found;
            known = fit.update(known, load, Some(hits), share);
        }
        known
    }

    #[test]
    fn an_engine_that_forgets_more_shrinks_its_twin() {
        assert_eq!(after(&[(40_000, 32_000)], Some(1.0)), 0.8);
        assert_eq!(after(&[(40_000, 0)], Some(1.0)), SHRINK_MOST);
        assert_eq!(
            after(&[(40_000, 36_000)], Some(1.0)),
            RECOVER,
            "as expected"
        );
        assert_eq!(after(&[(40_000, 80_000)], Some(1.0)), GROW);
        assert_eq!(
            after(&[(20_000, 0)], Some(1.0)),
            1.0,
            "the window is not full"
        );
        assert_eq!(after(&[(20_000, 0), (20_000, 0)], Some(1.0)), SHRINK_MOST);
        assert!(after(&[(40_000, 0); 50], Some(1.0)) >= FIT_LEAST);
        assert!(after(&[(0, 40_000); 200], Some(1.0)) <= FIT_MOST);
    }

    #[test]
    fn counters_say_nothing_about_our_twin_where_others_send_too() {
        assert_eq!(after(&[(40_000, 0)], Some(0.5)), 1.0);
        assert_eq!(after(&[(40_000, 0)], None), 1.0, "the share is not known");
    }

    #[test]
    fn answers_tell_where_counters_do_not() {
        let mut fit = CacheFit::default();
        let mut load = Load::default();
        assert_eq!(fit.update(1.0, load, None, None), 1.0);
        load.checked_tokens = 40_000;
        load.cached_tokens = 30_000;
        assert_eq!(fit.update(1.0, load, None, None), 0.75);
    }

    #[test]
    fn counters_that_fall_begin_a_new_window() {
        let mut fit = CacheFit::default();
        let mut load = Load::default();
        fit.update(1.0, load, Some(1_000_000), Some(1.0));
        load.matched_tokens = 40_000;
        assert_eq!(fit.update(1.0, load, Some(0), Some(1.0)), 1.0);
        load.matched_tokens = 80_000;
        assert_eq!(fit.update(1.0, load, Some(40_000), Some(1.0)), RECOVER);
    }
}
