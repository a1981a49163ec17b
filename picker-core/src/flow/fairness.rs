//! Which flow of a band is next.

use crate::{Span, Timestamp};

use super::ordering::Rank;

/// A fairness policy, named as in the reference picker's configuration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fairness {
    /// `global-strict-fairness-policy`: whose request is first, whatever its flow has had.
    GlobalStrict,
    /// `round-robin-fairness-policy`: each in its turn.
    RoundRobin,
    /// `program-aware-fairness`: who has had least, with regard to how long it waits.
    ProgramAware(LeastAttained),
}

/// How what a flow has had and how long it waits are weighed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LeastAttained {
    /// The weight of how little it has had.
    pub weight_service: f64,
    /// The weight of how long its first request has waited.
    pub weight_wait: f64,
    /// When what it has had counts half.
    pub half_life: Span,
    /// When it is forgotten.
    pub forgotten_after: Span,
}

/// A flow of which something waits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Flow<'a> {
    /// Whose.
    pub id: &'a str,
    /// The place of its first request.
    pub head: Rank,
    /// When that began to wait.
    pub since: Timestamp,
    /// What it has had, in tokens that count by how long ago they were.
    pub attained: f64,
}

impl Fairness {
    /// The place of the next among `flows`, which are in the order of their names; `last` is the name
    /// of the one that was served last.
    pub fn next(&self, flows: &[Flow<'_>], last: &str, now: Timestamp) -> Option<usize> {
        let places = 0..flows.len();
        let flow = |place: &usize| flows.get(*place);
        match self {
            Self::GlobalStrict => places.min_by_key(|place| flow(place).map(|it| it.head)),
            Self::RoundRobin => {
                let after = flows.partition_point(|it| it.id <= last);
                let place = if after < flows.len() { after } else { 0 };
                flow(&place).map(|_| place)
            }
            Self::ProgramAware(weights) => weights.next(flows, now),
        }
    }
}

impl LeastAttained {
    fn next(&self, flows: &[Flow<'_>], now: Timestamp) -> Option<usize> {
        let attained = Norm::over(flows.iter().map(|it| it.attained));
        let waited = |flow: &Flow<'_>| now.since(flow.since).0 as f64;
        let wait = Norm::over(flows.iter().map(waited));
        let score = |flow: &Flow<'_>| {
            self.weight_service * (1.0 - attained.of(flow.attained))
                + self.weight_wait * wait.of(waited(flow))
        };
        let scores = flows.iter().map(score).enumerate();
        // Of equals the one whose request is first.
        let head = |place: usize| flows.get(place).map(|it| it.head);
        scores
            .max_by(|(left_place, left), (right_place, right)| {
                let by_score = left.total_cmp(right);
                by_score.then_with(|| head(*right_place).cmp(&head(*left_place)))
            })
            .map(|(place, _)| place)
    }

    /// What remains of `attained` after `span`.
    pub fn decayed(&self, attained: f64, span: Span) -> f64 {
        if self.half_life.0 == 0 || span >= self.forgotten_after {
            return 0.0;
        }
        let halves = span.0 as f64 / self.half_life.0 as f64;
        // A power of two with a broken exponent, for there is none without a library: whole halves
        // exactly, and the rest by the line between two.
        let whole = halves as i32;
        let rest = halves - f64::from(whole);
        let halved = (0..whole.min(HALVES_MAX)).fold(attained, |it, _| it / 2.0);
        halved * (1.0 - rest / 2.0)
    }
}

/// Numbers mapped onto `0..=1`, the least to 0 and the largest to 1; all to 0 when they are equal.
struct Norm {
    least: f64,
    width: f64,
}

impl Norm {
    fn over(numbers: impl Iterator<Item = f64> + Clone) -> Self {
        let least = numbers.clone().fold(f64::INFINITY, f64::min);
        let most = numbers.fold(f64::NEG_INFINITY, f64::max);
        Self {
            least,
            width: most - least,
        }
    }

    fn of(&self, number: f64) -> f64 {
        if self.width > 0.0 {
            (number - self.least) / self.width
        } else {
            0.0
        }
    }
}

/// After this many halves nothing is left that a double could tell from nothing.
const HALVES_MAX: i32 = 1100;

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn flow(id: &str, due: u64, attained: f64) -> Flow<'_> {
        Flow {
            id,
            head: Rank { due, came: due },
            since: Timestamp(due),
            attained,
        }
    }

    const WEIGHTS: LeastAttained = LeastAttained {
        weight_service: 0.8,
        weight_wait: 0.2,
        half_life: Span::from_millis(60_000),
        forgotten_after: Span::from_millis(3_600_000),
    };

    #[test]
    fn strict_takes_the_first_of_all() {
        let flows = [flow("a", 30, 0.0), flow("b", 10, 9.0), flow("c", 20, 0.0)];
        let next = Fairness::GlobalStrict.next(&flows, "b", Timestamp(100));
        assert_eq!(next, Some(1));
        assert_eq!(Fairness::GlobalStrict.next(&[], "", Timestamp(0)), None);
    }

    #[test]
    fn round_robin_goes_on_after_the_last_one_served() {
        let flows = [flow("a", 3, 0.0), flow("c", 2, 0.0), flow("e", 1, 0.0)];
        for (last, expected) in [("", 0), ("a", 1), ("b", 1), ("c", 2), ("e", 0), ("z", 0)] {
            let next = Fairness::RoundRobin.next(&flows, last, Timestamp(100));
            assert_eq!(next, Some(expected), "after {last:?}");
        }
        assert_eq!(Fairness::RoundRobin.next(&[], "a", Timestamp(0)), None);
    }

    #[test]
    fn who_has_had_least_is_next_unless_another_waits_long() {
        let next = |flows: &[Flow<'_>]| {
            let fairness = Fairness::ProgramAware(WEIGHTS);
            fairness.next(flows, "", Timestamp(1000))
        };
        // 0.8 * 0 + 0.2 * 1 = 0.2 against 0.8 * 1 + 0.2 * 0 = 0.8
        assert_eq!(next(&[flow("a", 0, 100.0), flow("b", 900, 0.0)]), Some(1));
        // a 0.2, b 0.8 * 0.1 + 0 = 0.08, c 0.8 + 0.2 * 0.1 = 0.82
        let flows = [
            flow("a", 0, 100.0),
            flow("b", 1000, 90.0),
            flow("c", 900, 0.0),
        ];
        assert_eq!(next(&flows), Some(2));
        // Nobody has had more than another: who waits longest.
        assert_eq!(next(&[flow("a", 500, 7.0), flow("b", 400, 7.0)]), Some(1));
        // Nothing tells them apart but their places.
        let mut equal = [flow("a", 5, 7.0), flow("b", 5, 7.0)];
        equal[0].head.came = 6;
        assert_eq!(next(&equal), Some(1));
        assert_eq!(next(&[]), None);
    }

    #[test]
    fn what_was_had_counts_less_with_time() {
        for (millis, expected) in [
            (0, 64.0),
            (60_000, 32.0),
            (120_000, 16.0),
            (90_000, 24.0),
            (3_600_000, 0.0),
        ] {
            let left = WEIGHTS.decayed(64.0, Span::from_millis(millis));
            assert_eq!(left, expected, "{millis}");
        }
    }
}
