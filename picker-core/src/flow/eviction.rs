//! Which running requests make room for those that matter more.
//!
//! One step at a time: some are ended, and before it is known that their room is free no others
//! are.

use alloc::vec::Vec;

use crate::sort::sort_by;
use crate::{Span, Timestamp};

/// A running request that may be ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Victim {
    /// The worker that holds it.
    pub(crate) owner: u64,
    /// Its number there.
    pub(crate) run: u64,
    /// Its priority.
    pub(crate) priority: i32,
    /// When it was sent.
    pub(crate) sent_at: Timestamp,
}

/// The step that is under way, or the last one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reclaim {
    /// Who is to end and has not yet, by worker and number there.
    pub(crate) victims: Vec<(u64, u64)>,
    /// When they were told; when there are none any more, from when on others may be.
    pub(crate) at: Timestamp,
}

impl Reclaim {
    /// Whether a step may begin.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        if self.victims.is_empty() {
            // A moment that is far off was written before the clock was set.
            now >= self.at || now.apart(self.at) > CONFIRMED_WITHIN
        } else {
            now.apart(self.at) > CONFIRMED_WITHIN
        }
    }

    /// Takes note that a request has ended; others may follow after `grace`.
    pub(crate) fn end(&mut self, victim: (u64, u64), grace: Span, now: Timestamp) {
        let before = self.victims.len();
        self.victims.retain(|it| *it != victim);
        if self.victims.is_empty() && before > 0 {
            self.at = now.after(grace);
        }
    }
}

/// Those of `running` to end for a band of `priority`: the least important first, of those the
/// latest.
pub(crate) fn choose(running: &[Victim], priority: i32, count: usize) -> Vec<(u64, u64)> {
    let mut lower: Vec<&Victim> = running.iter().filter(|it| it.priority < priority).collect();
    let key = |it: &Victim| (it.priority, core::cmp::Reverse(it.sent_at), it.owner);
    sort_by(&mut lower, |left, right| key(left).cmp(&key(right)));
    let victims = lower.iter().take(count.min(STEP_MAX));
    victims.map(|it| (it.owner, it.run)).collect()
}

/// How many of `in_flight` requests have to go until the endpoints, as full as `saturation`, are no
/// fuller than `ceiling`; at least one.
pub(crate) fn count(saturation: f64, ceiling: f64, in_flight: u32) -> usize {
    let share = saturation / f64::from(in_flight.max(1));
    let needed = (saturation - ceiling) / share;
    // As far as it has a meaning: a step ends no more than that.
    (1..STEP_MAX).take_while(|it| needed > *it as f64).count() + 1
}

/// Requests ended in one step at most.
pub(crate) const STEP_MAX: usize = 2;

/// A request that has not ended after this long is not waited for any more.
const CONFIRMED_WITHIN: Span = Span::from_millis(10_000);

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn victim(run: u64, priority: i32, sent: u64) -> Victim {
        Victim {
            owner: 1,
            run,
            priority,
            sent_at: Timestamp(sent),
        }
    }

    #[test]
    fn the_least_important_and_of_these_the_latest_goes_first() {
        let running = [
            victim(1, -1, 90),
            victim(2, -5, 10),
            victim(3, -5, 20),
            victim(4, -9, 5),
        ];
        assert_eq!(choose(&running, 0, 1), [(1, 4)]);
        assert_eq!(choose(&running, 0, 2), [(1, 4), (1, 3)]);
        assert_eq!(choose(&running, 0, 9).len(), STEP_MAX);
        assert_eq!(choose(&running, -5, 2), [(1, 4)], "only who is below");
        assert_eq!(choose(&running, -9, 2), []);
    }

    #[test]
    fn so_many_go_as_are_above_the_ceiling_and_at_most_two() {
        // Of 10 at 1.0 each is a tenth.
        for (saturation, ceiling, in_flight, expected) in [
            (1.0, 1.0, 10, 1),
            (1.0, 0.9, 10, 1),
            (1.1, 0.95, 11, 2),
            (3.0, 1.0, 30, 2),
            (1.0, 0.5, 0, 1),
            (0.0, 0.0, 5, 1),
        ] {
            assert_eq!(
                count(saturation, ceiling, in_flight),
                expected,
                "{saturation}"
            );
        }
    }

    #[test]
    fn a_step_follows_when_the_last_one_has_ended_and_its_room_shows() {
        let at = |millis: u64| Timestamp(millis * 1000);
        let grace = Span::from_millis(10);
        let mut reclaim = Reclaim::default();
        assert!(reclaim.is_over(at(1)));
        reclaim.victims = alloc::vec![(1, 2), (1, 3)];
        reclaim.at = at(100);
        assert!(!reclaim.is_over(at(10_100)));
        assert!(reclaim.is_over(at(10_101)), "they do not end");
        reclaim.end((9, 9), grace, at(110));
        reclaim.end((1, 2), grace, at(120));
        assert!(!reclaim.is_over(at(125)));
        reclaim.end((1, 3), grace, at(130));
        assert!(!reclaim.is_over(at(139)));
        assert!(reclaim.is_over(at(140)));
        reclaim.end((1, 3), grace, at(150));
        assert!(reclaim.is_over(at(150)), "an end counts once");
    }
}
