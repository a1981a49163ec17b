//! The reference picker: weighted scores of queue, KV cache and prefix, the largest sum wins.
//!
//! What a pod holds is guessed from what was sent there, by blocks of 64 tokens. Pods advertise
//! their blocks of 16 tokens, and as many entries are kept, so the guess is four times too large.

use super::lru::{Lru, PerPod};
use super::{Dice, Fleet, Job, Policy};

/// The reference picker with some weights.
pub(super) struct Scored {
    dice: Dice,
    queue: f64,
    kv: f64,
    prefix: f64,
    adapter: f64,
    /// Whether the caches are known and not guessed.
    precise: bool,
    held: PerPod<Lru>,
}

impl Scored {
    pub(super) fn gaie(dice: Dice) -> Self {
        Self {
            dice,
            queue: 1.0,
            kv: 1.0,
            prefix: 1.0,
            adapter: 0.0,
            precise: false,
            held: PerPod::new(|| Lru::new(ENTRIES)),
        }
    }

    pub(super) fn gaie_lora(dice: Dice) -> Self {
        Self {
            adapter: 3.0,
            ..Self::gaie(dice)
        }
    }

    pub(super) fn llm_d(dice: Dice) -> Self {
        Self {
            queue: 2.0,
            kv: 2.0,
            prefix: 3.0,
            ..Self::gaie(dice)
        }
    }

    pub(super) fn llm_d_precise(dice: Dice) -> Self {
        Self {
            precise: true,
            ..Self::llm_d(dice)
        }
    }

    /// The share of the prompt that `pod` holds.
    fn held(&mut self, job: &Job, pod: usize, fleet: &Fleet<'_>) -> f64 {
        if self.precise {
            let cached = fleet.servers[pod].cached_tokens(&job.prompt, job.root());
            return cached as f64 / job.prompt.len().max(1) as f64;
        }
        let held = self.held.cover(fleet.pods.len());
        held[pod].matched(&job.blocks) as f64 / job.blocks.len().max(1) as f64
    }
}

impl Policy for Scored {
    fn choose(&mut self, job: &Job, fleet: &Fleet<'_>) -> usize {
        let waiting = |pod: usize| fleet.pods[pod].gauges.waiting as f64;
        let queues = fleet.candidates.iter().map(|&pod| waiting(pod));
        let (longest, shortest) = queues.fold((f64::MIN, f64::MAX), |(max, min), queue| {
            (max.max(queue), min.min(queue))
        });
        let totals: Vec<f64> = fleet
            .candidates
            .iter()
            .map(|&pod| {
                let queue = if longest > shortest {
                    (longest - waiting(pod)) / (longest - shortest)
                } else {
                    1.0
                };
                let room = 1.0 - fleet.pods[pod].gauges.kv_usage;
                self.queue * queue
                    + self.kv * room
                    + self.prefix * self.held(job, pod, fleet)
                    + self.adapter * adapter_score(job, pod, fleet)
            })
            .collect();
        let places: Vec<usize> = (0..totals.len()).collect();
        fleet.candidates[self.dice.least(&places, |place| -totals[place])]
    }

    fn placed(&mut self, job: &Job, pod: usize, fleet: &Fleet<'_>) {
        if !self.precise {
            self.held.cover(fleet.pods.len())[pod].add(&job.blocks);
        }
    }
}

/// 1 where the adapter runs, 0.8 where there is a place for it.
fn adapter_score(job: &Job, pod: usize, fleet: &Fleet<'_>) -> f64 {
    let Some(adapter) = job.planned.adapter else {
        return 0.0;
    };
    let seen = &fleet.pods[pod];
    if seen.adapters.contains(&adapter) {
        1.0
    } else if seen.adapters.len() < seen.adapters_max {
        0.8
    } else {
        0.0
    }
}

/// Entries for each pod: as many as the blocks that the measured pods advertised.
const ENTRIES: usize = 10_217;
