//! How fast a pool answers, and when a refused client should come back.
//!
//! What ends is counted over all workers and followed slowly. Time in which nothing was in flight
//! does not count: a pool that had nothing to do is not a slow one.

use crate::draw::Draws;
use crate::{Span, Timestamp};

/// How many requests a pool ends in a second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct DrainRate {
    /// What had ended when the counter was read last, and when that was.
    read: Option<(u32, Timestamp)>,
    /// Requests a second, once something was measured.
    rate: f64,
    /// The seconds that the rate stands for, at most [`WINDOW_SECONDS`].
    seconds: f64,
}

impl DrainRate {
    /// Takes in that `ended` requests (wraps) have ended by `now`; to be called every 100 ms.
    ///
    /// Where the counter or the clock has stepped back, or leapt, the time since the last reading
    /// does not count: a worker's row was lost, or the clock was set.
    pub(crate) fn follow(&mut self, ended: u32, is_busy: bool, now: Timestamp) {
        let Some((before, at)) = self.read.replace((ended, now)) else {
            return;
        };
        let (count, passed) = (ended.wrapping_sub(before), now.since(at));
        let seconds = passed.0 as f64 / MICROS_PER_SECOND;
        let count = f64::from(count);
        let is_measured = passed > Span(0) && passed <= GAP_MAX && count <= RATE_MAX * seconds;
        if is_measured && (is_busy || count > 0.0) {
            let all = self.seconds + seconds;
            self.rate = (self.rate * self.seconds + count) / all;
            self.seconds = all.min(WINDOW_SECONDS);
        }
    }

    /// The seconds after which `ahead` requests will have ended, and up to half as much again:
    /// clients that were refused together shall not come back together. From 1 to 59.
    pub(crate) fn retry_after(&self, ahead: f64, draws: &mut Draws) -> u32 {
        let known_after = if self.rate > 0.0 {
            KNOWN_AFTER_SECONDS
        } else {
            WINDOW_SECONDS
        };
        let seconds = if self.seconds < known_after {
            UNKNOWN_SECONDS
        } else {
            // Without a rate this is infinite.
            (ahead / self.rate).clamp(1.0, SECONDS_MAX)
        };
        let whole = seconds as u32;
        jittered(whole + u32::from(f64::from(whole) < seconds), draws)
    }
}

/// A number from `seconds` up to half as much again; of 1 it is 1 or 2.
pub(crate) fn jittered(seconds: u32, draws: &mut Draws) -> u32 {
    seconds + draws.below(seconds.div_ceil(2) + 1)
}

/// The seconds of which the rate is the mean, then fading: some answers of usual length.
const WINDOW_SECONDS: f64 = 10.0;

/// A rate stands for at least this long; that nothing ends is only said of a whole window, for long
/// answers are usual.
const KNOWN_AFTER_SECONDS: f64 = 1.0;

/// The answer while no rate is known, in seconds: about as long as a short answer takes.
const UNKNOWN_SECONDS: f64 = 5.0;

/// The longest answer before jitter, in seconds. With it there are 59: the clients of `OpenAI` and
/// of Anthropic do not believe a minute, and come back after a few seconds.
const SECONDS_MAX: f64 = 39.0;

/// Time without a reading after which the clock was set, or this worker stood still.
const GAP_MAX: Span = Span::from_millis(1000);

/// More requests a second than a pool of model servers ends. Where more seem to have ended, the row
/// of a worker has come or gone.
const RATE_MAX: f64 = 10_000.0;

const MICROS_PER_SECOND: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// Milliseconds, what had ended, and whether anything is in flight.
    type Reading = (u64, u32, bool);

    #[track_caller]
    fn check(readings: &[Reading], seconds: f64, rate: f64) {
        let mut drain = DrainRate::default();
        for (millis, ended, is_busy) in readings {
            let now = Timestamp(1_000_000_000).after(Span::from_millis(*millis));
            drain.follow(*ended, *is_busy, now);
        }
        let is = |a: f64, b: f64| (a - b).abs() < 1e-9;
        if !is(drain.seconds, seconds) || !is(drain.rate, rate) {
            panic!("{drain:?}, not {rate} over {seconds} s");
        }
    }

    /// Readings every 100 ms of a counter that grows by `by`, from `begin` on.
    fn steady(count: u64, begin: Reading, by: u32) -> Vec<Reading> {
        let reading = |step: u64| (begin.0 + 100 * step, begin.1 + by * step as u32, begin.2);
        (0..=count).map(reading).collect()
    }

    #[test]
    fn a_rate_is_the_mean_at_first_and_then_follows_slowly() {
        check(&[], 0.0, 0.0);
        check(&[(0, 70, true)], 0.0, 0.0);
        // 3 in 100 ms, then 4 in 200 ms: one more in the 100 ms after.
        check(&[(0, 0, true), (100, 3, true)], 0.1, 30.0);
        check(&[(0, 0, true), (100, 3, true), (200, 4, true)], 0.2, 20.0);
        check(&steady(100, (0, 5, true), 2), 10.0, 20.0);
        // (20 * 10 + 0) / 10.1, then (that * 10 + 12) / 10.1.
        let mut readings = steady(100, (0, 5, true), 2);
        readings.push((10_100, 205, true));
        check(&readings, 10.0, 200.0 / 10.1);
        readings.push((10_200, 217, true));
        check(&readings, 10.0, (2000.0 / 10.1 + 12.0) / 10.1);
    }

    #[test]
    fn a_pool_that_has_nothing_to_do_is_not_slow() {
        let mut readings = steady(100, (0, 5, true), 2);
        readings.extend(steady(500, (10_100, 205, false), 0));
        check(&readings, 10.0, 20.0);
        // What has ended counts although nothing is left.
        check(&[(0, 0, false), (100, 3, false)], 0.1, 30.0);
    }

    #[test]
    fn steps_and_leaps_of_counter_and_clock_do_not_count() {
        let begin = [(0, 100, true), (100, 103, true)];
        let after = |reading: Reading, next: Reading, seconds, rate| {
            let readings = [&begin[..], &[reading, next]].concat();
            check(&readings, seconds, rate);
        };
        // One more in the 100 ms after: 4 in 200 ms.
        after((200, 3, true), (300, 4, true), 0.2, 20.0);
        after((200, 1104, true), (300, 1105, true), 0.2, 20.0);
        after((90, 200, true), (190, 201, true), 0.2, 20.0);
        after((100, 200, true), (200, 201, true), 0.2, 20.0);
        after((1101, 200, true), (1201, 201, true), 0.2, 20.0);
        // At the limits: 3 + 1000 in 200 ms, and 3 + 1 in 1.1 s.
        let at_most = [&begin[..], &[(200, 1103, true)]].concat();
        check(&at_most, 0.2, 5015.0);
        let at_most = [&begin[..], &[(1100, 104, true)]].concat();
        check(&at_most, 1.1, 4.0 / 1.1);
        check(&[(0, u32::MAX, true), (100, 2, true)], 0.1, 30.0);
        check(&[(0, 5, true), (0, 5, true), (100, 8, true)], 0.1, 30.0);
    }

    /// The least and the most that is drawn.
    #[track_caller]
    fn drawn(mut of: impl FnMut(&mut Draws) -> u32) -> (u32, u32) {
        let mut draws = Draws::new(1);
        let drawn: Vec<u32> = (0..2000).map(|_| of(&mut draws)).collect();
        (*drawn.iter().min().unwrap(), *drawn.iter().max().unwrap())
    }

    #[test]
    fn a_client_comes_back_when_what_is_ahead_has_ended_and_up_to_half_as_much_later() {
        let known = |rate| DrainRate {
            rate,
            seconds: if rate > 0.0 { 1.0 } else { 10.0 },
            ..DrainRate::default()
        };
        for (rate, ahead, expected) in [
            (2.0, 8.0, (4, 6)),
            (2.0, 8.1, (5, 8)),
            (10.0, 20.0, (2, 3)),
            (10.0, 1.0, (1, 2)),
            (10.0, 0.0, (1, 2)),
            (0.5, 19.0, (38, 57)),
            (0.5, 19.5, (39, 59)),
            (0.5, 1e9, (39, 59)),
            (0.5, f64::INFINITY, (39, 59)),
            (0.0, 1.0, (39, 59)),
        ] {
            let range = drawn(|draws| known(rate).retry_after(ahead, draws));
            assert_eq!(range, expected, "{ahead} ahead at {rate}");
        }
    }

    #[test]
    fn without_a_rate_it_is_some_seconds() {
        for (rate, seconds) in [(0.0, 0.0), (100.0, 0.9), (0.0, 9.9)] {
            let drain = DrainRate {
                rate,
                seconds,
                ..DrainRate::default()
            };
            let range = drawn(|draws| drain.retry_after(1000.0, draws));
            assert_eq!(range, (5, 8), "{rate} over {seconds} s");
        }
    }
}
