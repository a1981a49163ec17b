//! Two generations of a router that keeps a tree of prompts for each pod.
//!
//! The trees forget by their own size and not by the pods', so here they are lists of the last
//! blocks sent: a tree of four million tokens holds more than any of these workloads sends.

use super::lru::{Lru, PerPod};
use super::{Dice, Fleet, Job, Policy};

/// The older one: the best match, until the loads are out of balance.
pub(super) struct CacheAware {
    dice: Dice,
    /// Loads are out of balance when they differ by more than this...
    absolute: f64,
    /// ... and the largest is more than so many times the smallest.
    relative: f64,
    trees: PerPod<Lru>,
}

/// The newer one: of those with the best match the least loaded, unless it is far above the mean.
pub(super) struct Smg {
    dice: Dice,
    trees: PerPod<Lru>,
}

impl CacheAware {
    pub(super) fn new(dice: Dice, absolute: f64, relative: f64) -> Self {
        Self {
            dice,
            absolute,
            relative,
            trees: PerPod::new(|| Lru::new(TREE_BLOCKS)),
        }
    }
}

impl Policy for CacheAware {
    fn choose(&mut self, job: &Job, fleet: &Fleet<'_>) -> usize {
        let load = |pod: usize| fleet.pods[pod].in_flight as f64;
        let loads = fleet.candidates.iter().map(|&pod| load(pod));
        let (most, least) = loads.fold((f64::MIN, f64::MAX), |(max, min), load| {
            (max.max(load), min.min(load))
        });
        if most - least > self.absolute && most > least * self.relative {
            return self.dice.least(fleet.candidates, load);
        }
        let trees = self.trees.cover(fleet.pods.len());
        let (share, best) = best_match(job, fleet, trees);
        if share > THRESHOLD_OLD {
            return best[self.dice.below(best.len())];
        }
        self.dice
            .least(fleet.candidates, |pod| trees[pod].len() as f64)
    }

    fn placed(&mut self, job: &Job, pod: usize, fleet: &Fleet<'_>) {
        self.trees.cover(fleet.pods.len())[pod].add(&job.blocks);
    }
}

impl Smg {
    pub(super) fn new(dice: Dice) -> Self {
        let trees = PerPod::new(|| Lru::new(TREE_BLOCKS));
        Self { dice, trees }
    }
}

impl Policy for Smg {
    fn choose(&mut self, job: &Job, fleet: &Fleet<'_>) -> usize {
        let load = |pod: usize| fleet.pods[pod].in_flight as f64;
        let trees = self.trees.cover(fleet.pods.len());
        let (share, best) = best_match(job, fleet, trees);
        if share > THRESHOLD_NEW {
            let holder = self.dice.least(&best, load);
            let total: f64 = fleet.candidates.iter().map(|&pod| load(pod)).sum();
            let mean = total / fleet.candidates.len() as f64;
            if load(holder) <= mean * SPILL_RELATIVE || load(holder) <= mean + SPILL_ABSOLUTE {
                return holder;
            }
        }
        self.dice.least(fleet.candidates, load)
    }

    fn placed(&mut self, job: &Job, pod: usize, fleet: &Fleet<'_>) {
        self.trees.cover(fleet.pods.len())[pod].add(&job.blocks);
    }
}

/// The largest share of the prompt that a tree holds, and the pods whose trees hold it.
fn best_match(job: &Job, fleet: &Fleet<'_>, trees: &[Lru]) -> (f64, Vec<usize>) {
    let matched = |pod: usize| trees[pod].matched(&job.blocks);
    let candidates = fleet.candidates;
    let most = candidates.iter().map(|&pod| matched(pod)).max();
    let most = most.unwrap_or_default();
    let holders = candidates.iter().copied();
    let share = most as f64 / job.blocks.len().max(1) as f64;
    (share, holders.filter(|&pod| matched(pod) == most).collect())
}

/// Four million tokens in blocks of 64.
const TREE_BLOCKS: usize = 62_500;

/// Share of a prompt that must match, as the published test set it.
const THRESHOLD_OLD: f64 = 0.3;

/// Share of a prompt that must match, the newer router's default.
const THRESHOLD_NEW: f64 = 0.5;

/// A holder may have so many times the mean load...
const SPILL_RELATIVE: f64 = 1.1;

/// ... or so many requests more than the mean, whichever is larger.
const SPILL_ABSOLUTE: f64 = 32.0;
