//! Random numbers of the shapes that workloads and policies need; equal seeds give equal numbers.

use picker_core::Draws;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Dice(Draws);

impl Dice {
    /// The stream of `seed` for one `purpose`; streams of other purposes are unlike it.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut outer = Draws::new(seed.wrapping_mul(STREAMS).wrapping_add(purpose));
        Self(Draws::new(outer.next_draw()))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0.next_draw()
    }

    /// A number below `bound`; 0 when the bound is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0
            .below(u32::try_from(bound.max(1)).unwrap_or(u32::MAX)) as usize
    }

    /// A number in `0..1`.
    pub fn unit(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number in `low..high`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// A whole number in `low..=high`.
    pub fn whole(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// The time to the next of events that come at `rate` per unit.
    pub fn exponential(&mut self, rate: f64) -> f64 {
        -(1.0 - self.unit()).ln() / rate
    }

    /// A number whose logarithm is normal with `mean` and `deviation`.
    pub fn log_normal(&mut self, mean: f64, deviation: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.unit()).cos();
        (mean + deviation * normal).exp()
    }

    /// Puts `items` in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// The one of `pods` with the least `cost`, each of several equal ones as likely as the others.
    ///
    /// Zero when there are no pods.
    pub fn least(&mut self, pods: &[usize], mut cost: impl FnMut(usize) -> f64) -> usize {
        let (mut best, mut least, mut ties) = (0, f64::INFINITY, 0);
        for &pod in pods {
            let cost = cost(pod);
            if cost < least - TIE || ties == 0 {
                (best, least, ties) = (pod, cost, 1);
            } else if cost <= least + TIE {
                ties += 1;
                if self.below(ties) == 0 {
                    best = pod;
                }
            }
        }
        best
    }
}

/// Chooses among things of unequal weight.
#[derive(Clone, Debug)]
pub struct Weighted {
    /// The sum of weights up to and including each thing.
    sums: Vec<f64>,
}

impl Weighted {
    /// Things of which the k-th, counted from 1, has the weight `1 / k^exponent`.
    pub fn zipf(count: usize, exponent: f64) -> Self {
        Self::of((1..=count).map(|rank| (rank as f64).powf(-exponent)))
    }

    /// Things of these weights.
    pub fn of(weights: impl IntoIterator<Item = f64>) -> Self {
        let sums = weights.into_iter().scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self {
            sums: sums.collect(),
        }
    }

    /// One of the things, by number from 0.
    pub fn choose(&self, dice: &mut Dice) -> usize {
        let total = self.sums.last().copied().unwrap_or_default();
        let drawn = dice.unit() * total;
        let place = self.sums.partition_point(|&sum| sum <= drawn);
        place.min(self.sums.len().saturating_sub(1))
    }
}

/// Streams a seed may have.
const STREAMS: u64 = 1024;

/// Costs this close are equal: far above rounding, far below what any cost means.
const TIE: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_the_means_they_should() {
        let mean = |mut draw: Box<dyn FnMut(&mut Dice) -> f64>| {
            let mut dice = Dice::new(1, 2);
            (0..40_000).map(|_| draw(&mut dice)).sum::<f64>() / 40_000.0
        };
        let zipf = Weighted::zipf(3, 1.0);
        let check = |name: &str, mean: f64, expected: f64| {
            assert!((mean / expected - 1.0).abs() < 0.03, "{name}: {mean}");
        };
        check("unit", mean(Box::new(Dice::unit)), 0.5);
        check(
            "uniform",
            mean(Box::new(|dice| dice.uniform(2.0, 4.0))),
            3.0,
        );
        check("whole", mean(Box::new(|dice| dice.whole(3, 5) as f64)), 4.0);
        check(
            "exponential",
            mean(Box::new(|dice| dice.exponential(4.0))),
            0.25,
        );
        let log_normal = (2.0_f64 + 0.125).exp();
        check(
            "log-normal",
            mean(Box::new(|dice| dice.log_normal(2.0, 0.5))),
            log_normal,
        );
        // Weights 6, 3 and 2 of 11.
        check(
            "zipf",
            mean(Box::new(move |dice| zipf.choose(dice) as f64)),
            7.0 / 11.0,
        );
    }

    #[test]
    fn the_least_is_chosen_and_ties_are_settled_evenly() {
        let mut dice = Dice::new(1, 1);
        let costs = [3.0, 1.0 + 1e-12, 1.0, 2.0];
        let mut counts = [0; 4];
        for _ in 0..4000 {
            counts[dice.least(&[0, 1, 2, 3], |pod| costs[pod])] += 1;
        }
        assert_eq!((counts[0], counts[3]), (0, 0));
        assert!((1800..2200).contains(&counts[1]), "{counts:?}");
        assert_eq!(dice.least(&[3, 0], |pod| costs[pod]), 3);
    }
}
