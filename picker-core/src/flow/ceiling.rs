//! How full the endpoints may be for each band.

use alloc::vec::Vec;

/// A usage-limit policy, named as in the reference picker's configuration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum UsageLimit {
    /// `static-usage-limit-policy`: this for all.
    Static(f64),
    /// `priority-holdback-policy`: the most for the highest priority, the least for the lowest, and
    /// in between by the line from one to the other.
    Holdback {
        /// For the lowest.
        least: f64,
        /// For the highest.
        most: f64,
        /// Whether the line is over the numbers of the priorities, not over their ranks.
        by_value: bool,
    },
    /// `soft-reflective-ceiling-policy`: the fuller the endpoints, the less for lower bands, which
    /// get a turn now and then all the same.
    SoftReflective,
}

impl UsageLimit {
    /// How full the endpoints may be for each of `priorities`, the highest first; a request of that
    /// band is sent while they are less full than that.
    ///
    /// `cycle` counts up with every call.
    pub fn ceilings(&self, saturation: f64, priorities: &[i32], cycle: u64) -> Vec<f64> {
        let last = priorities.len().saturating_sub(1);
        let ceiling = |(place, priority): (usize, &i32)| match *self {
            Self::Static(limit) => limit,
            Self::Holdback {
                least,
                most,
                by_value,
            } => {
                let (part, whole) = if by_value {
                    below_highest(priorities, *priority)
                } else {
                    (place as f64, last as f64)
                };
                most - (most - least) * if whole > 0.0 { part / whole } else { 0.0 }
            }
            Self::SoftReflective => reflected(saturation, (place, last), cycle),
        };
        priorities.iter().enumerate().map(ceiling).collect()
    }
}

/// How far `priority` is below the highest, and how far the lowest is.
fn below_highest(priorities: &[i32], priority: i32) -> (f64, f64) {
    let highest = priorities.first().copied().map_or(0.0, f64::from);
    let lowest = priorities.last().copied().map_or(0.0, f64::from);
    (highest - f64::from(priority), highest - lowest)
}

fn reflected(saturation: f64, (place, last): (usize, usize), cycle: u64) -> f64 {
    if place == 0 || last == 0 {
        return 1.0;
    }
    if saturation >= 1.0 {
        return 0.0;
    }
    let ceiling = 1.0 - place as f64 * saturation / last as f64;
    if saturation < ceiling {
        return ceiling;
    }
    // Open for one cycle of this many.
    let cycles = nearest(saturation / (1.0 - saturation)).max(1);
    if cycle.is_multiple_of(cycles) {
        1.0
    } else {
        ceiling
    }
}

/// The nearest whole number of one that is not negative.
fn nearest(number: f64) -> u64 {
    (number + 0.5) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[track_caller]
    fn check(limit: UsageLimit, saturation: f64, priorities: &[i32], expected: &[f64]) {
        let ceilings = limit.ceilings(saturation, priorities, 1);
        assert_eq!(ceilings, expected, "{limit:?} at {saturation}");
    }

    #[test]
    fn a_static_limit_is_the_same_for_all() {
        check(UsageLimit::Static(0.75), 0.5, &[5, 0, -5], &[0.75; 3]);
    }

    #[test]
    fn holdback_leaves_room_for_who_matters_more() {
        let holdback = |by_value| UsageLimit::Holdback {
            least: 0.5,
            most: 1.0,
            by_value,
        };
        check(holdback(false), 0.0, &[10, 9, 0], &[1.0, 0.75, 0.5]);
        // 1 of 10 below the highest: 1 - 0.5 / 10
        check(holdback(true), 0.0, &[10, 9, 0], &[1.0, 0.95, 0.5]);
        check(holdback(false), 0.0, &[3], &[1.0]);
        check(holdback(true), 0.0, &[3], &[1.0]);
        check(holdback(false), 0.0, &[], &[]);
        // Priorities can be as far apart as there are.
        check(holdback(true), 0.0, &[i32::MAX, i32::MIN], &[1.0, 0.5]);
    }

    #[test]
    fn lower_bands_have_less_the_fuller_it_is() {
        let soft = UsageLimit::SoftReflective;
        check(soft, 0.25, &[2, 1, 0], &[1.0, 0.875, 0.75]);
        check(soft, 1.0, &[2, 1, 0], &[1.0, 0.0, 0.0]);
        check(soft, 2.0, &[2], &[1.0]);
        // 1 - 0.75 is less than 0.75, so the lowest is gated, but not in one cycle of
        // round(0.75 / 0.25) = 3.
        for (cycle, lowest) in [(0, 1.0), (1, 0.25), (2, 0.25), (3, 1.0)] {
            let ceilings = soft.ceilings(0.75, &[2, 1, 0], cycle);
            assert_eq!(ceilings[0], 1.0);
            assert_eq!(ceilings[2], lowest, "{cycle}");
        }
    }
}
