//! The loop back from the engine: does its cache hold what the twin expects?
//!
//! A twin that is too large expects blocks that the engine has forgotten; one that is too small
//! knows too few. Over windows of prompt tokens what was expected is compared with what the engine
//! found: by what answers tell, which is exact, or else by its counters where all its work is ours.
//! The twin's capacity follows. One bad window is a twin that had wrong beliefs, which it forgets
//! by itself; two in a row are a twin of the wrong size. Where answers tell, the twin has forgotten
//! what the engine has, block by block, so its capacity has only to grow.

use crate::candidate::SHARE_ALONE;
use crate::ledger::Load;

/// The windows that are open for one endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheFit {
    begin: Option<(Load, u64)>,
    /// Whether the last window found too few.
    was_low: bool,
}

impl CacheFit {
    /// The part of the advertised cache to count on, given what it was, what all our workers have
    /// counted, the endpoint's own count of cached prompt tokens, and our share of its work.
    pub fn update(&mut self, known: f64, load: Load, hits: Option<u64>, share: Option<f64>) -> f64 {
        let counter = hits.unwrap_or(0);
        let (begin, begin_counter) = *self.begin.get_or_insert((load, counter));
        let Some(counted) = counter.checked_sub(begin_counter) else {
            self.begin = Some((load, counter));
            return known;
        };
        let since = |now: u32, then: u32| f64::from(now.wrapping_sub(then));
        let told = (
            since(load.checked_tokens, begin.checked_tokens),
            since(load.cached_tokens, begin.cached_tokens),
        );
        let is_ours = hits.is_some() && share.is_some_and(|share| share >= SHARE_ALONE);
        let seen = (
            since(load.matched_tokens, begin.matched_tokens),
            counted as f64,
        );
        let is_full = |(expected, found): (f64, f64)| expected.max(found) >= WINDOW_TOKENS;
        let window = if is_full(told) {
            (told.0.min(told.1 / AS_EXPECTED), told.1)
        } else if is_ours && told.0 == 0.0 && is_full(seen) {
            seen
        } else {
            return known;
        };
        self.begin = Some((load, counter));
        self.follow(known, window)
    }

    fn follow(&mut self, known: f64, (expected, found): (f64, f64)) -> f64 {
        let ratio = found / expected.max(1.0);
        let is_low = ratio < TOO_FEW;
        let was_low = core::mem::replace(&mut self.was_low, is_low);
        if is_low && was_low {
            return (known * ratio.max(SHRINK_MOST)).max(FIT_LEAST);
        }
        if ratio > TOO_MANY {
            return (known * GROW).min(FIT_MOST);
        }
        if ratio > AS_EXPECTED && known < 1.0 {
            return (known * RECOVER).min(1.0);
        }
        known
    }
}

/// Tokens expected or found in a window: some sixty requests of two thousand.
const WINDOW_TOKENS: f64 = 131_072.0;

/// Below this part of what was expected the engine has forgotten more than the twin.
const TOO_FEW: f64 = 0.85;

/// Above it a twin that was made smaller may be large again.
const AS_EXPECTED: f64 = 0.95;

/// Above it the engine keeps more than the twin.
const TOO_MANY: f64 = 1.15;

/// The most that one window takes away.
const SHRINK_MOST: f64 = 0.6;

/// What one window with more than expected adds.
const GROW: f64 = 1.1;

/// What one window as expected gives back.
const RECOVER: f64 = 1.1;

/// The least part: below it a cache is of no use to a router.
const FIT_LEAST: f64 = 0.02;

/// The most: an engine that offloads holds more than it advertises.
const FIT_MOST: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const FULL: u32 = WINDOW_TOKENS as u32;

    /// The part after windows in which so many tokens were expected and, in percent of that, found.
    fn after(windows: &[(u32, u64)], share: Option<f64>) -> f64 {
        let mut fit = CacheFit::default();
        let (mut load, mut hits, mut known) = (Load::default(), 1000, 1.0);
        known = fit.update(known, load, Some(hits), share);
        for (expected, percent) in windows {
            load.matched_tokens = load.matched_tokens.wrapping_add(*expected);
            hits += u64::from(*expected) * percent / 100;
            known = fit.update(known, load, Some(hits), share);
        }
        known
    }

    #[test]
    fn a_twin_that_expects_too_much_twice_shrinks_and_recovers() {
        let ours = Some(1.0);
        assert_eq!(
            after(&[(FULL, 50)], ours),
            1.0,
            "one window may be wrong beliefs"
        );
        assert_eq!(after(&[(FULL, 50), (FULL, 100), (FULL, 50)], ours), 1.0);
        assert_eq!(
            after(&[(FULL, 75), (FULL, 75)], ours).to_string()[..4],
            *"0.75"
        );
        assert_eq!(after(&[(FULL, 0), (FULL, 0)], ours), SHRINK_MOST);
        assert_eq!(
            after(&[(FULL, 0), (FULL, 0), (FULL, 100)], ours),
            SHRINK_MOST * RECOVER
        );
        assert_eq!(
            after(&[(FULL, 0), (FULL, 0), (FULL, 90)], ours),
            SHRINK_MOST,
            "it fits now"
        );
        assert_eq!(after(&[(FULL, 90); 9], ours), 1.0);
        assert_eq!(after(&[(FULL, 200)], ours), GROW);
        assert_eq!(after(&[(FULL / 2, 0); 3], ours), 1.0, "one window is full");
        assert_eq!(after(&[(FULL, 0); 50], ours), FIT_LEAST);
        assert_eq!(after(&[(FULL, 300); 200], ours), FIT_MOST);
    }

    #[test]
    fn counters_say_nothing_about_our_twin_where_others_send_too() {
        assert_eq!(after(&[(FULL, 0); 4], Some(0.5)), 1.0);
        assert_eq!(after(&[(FULL, 0); 4], None), 1.0, "the share is not known");
    }

    #[test]
    fn answers_make_a_twin_grow_but_not_shrink() {
        for (percent, expected) in [(50, 1.0), (100, 1.0), (150, GROW * GROW)] {
            let mut fit = CacheFit::default();
            let mut load = Load::default();
            let mut known = fit.update(1.0, load, None, None);
            for _ in 0..2 {
                load.checked_tokens += FULL;
                load.cached_tokens += FULL / 100 * percent;
                known = fit.update(known, load, None, Some(0.5));
            }
            assert_eq!(known, expected, "{percent} %");
        }
    }

    #[test]
    fn counters_that_fall_begin_a_new_window() {
        let mut fit = CacheFit::default();
        let mut load = Load::default();
        fit.update(1.0, load, Some(1_000_000), Some(1.0));
        for _ in 0..2 {
            load.matched_tokens += FULL;
            assert_eq!(fit.update(1.0, load, Some(0), Some(1.0)), 1.0);
        }
    }
}
