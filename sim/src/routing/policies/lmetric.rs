//! Prefill that a pod would have to do, times the blocks it works on; the caches are known.

use std::collections::HashMap;

use picker_core::BlockHash;

use super::lru::PerPod;
use super::{Dice, Fleet, Job, Policy};
use crate::routing::job::BLOCK_TOKENS;

/// The product of the two.
pub(super) struct LMetric {
    dice: Dice,
    pods: PerPod<Active>,
    /// Prefill tokens charged for each request until its first token.
    charged: HashMap<u64, usize>,
}

/// What one pod works on.
#[derive(Default)]
struct Active {
    prefill_tokens: usize,
    /// Blocks of prompts on their way, and how many prompts have them.
    blocks: HashMap<BlockHash, usize>,
}

impl LMetric {
    pub(super) fn new(dice: Dice) -> Self {
        Self {
            dice,
            pods: PerPod::new(Active::default),
            charged: HashMap::new(),
        }
    }
}

impl Policy for LMetric {
    fn choose(&mut self, job: &Job, fleet: &Fleet<'_>) -> usize {
        let pods = self.pods.cover(fleet.pods.len());
        self.dice.least(fleet.candidates, |pod| {
            let active = &pods[pod];
            let prefill = active.prefill_tokens + uncached(job, pod, fleet);
            let is_new = |block: &&BlockHash| !active.blocks.contains_key(block);
            let blocks = active.blocks.len() + job.blocks.iter().filter(is_new).count();
            prefill.max(1) as f64 * (blocks as f64 + 1.0 / BLOCKS_PER_HASH)
        })
    }

    fn placed(&mut self, job: &Job, pod: usize, fleet: &Fleet<'_>) {
        let active = &mut self.pods.cover(fleet.pods.len())[pod];
        let tokens = uncached(job, pod, fleet);
        active.prefill_tokens += tokens;
        self.charged.insert(job.id, tokens);
        for &block in &job.blocks {
            *active.blocks.entry(block).or_default() += 1;
        }
    }

    fn first_token(&mut self, job: &Job, pod: usize, _now: std::time::Duration) {
        let tokens = self.charged.remove(&job.id).unwrap_or_default();
        self.pods.cover(pod + 1)[pod].prefill_tokens -= tokens;
    }

    fn done(&mut self, job: &Job, pod: usize, _: Option<usize>, _now: std::time::Duration) {
        let active = &mut self.pods.cover(pod + 1)[pod];
        for block in &job.blocks {
            let Some(count) = active.blocks.get_mut(block) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                active.blocks.remove(block);
            }
        }
    }
}

/// Tokens of the prompt that `pod` does not hold now.
fn uncached(job: &Job, pod: usize, fleet: &Fleet<'_>) -> usize {
    let cached = fleet.servers[pod].cached_tokens(&job.prompt, job.root());
    job.prompt.len() - cached
}

/// Engine blocks of 16 tokens in one hash: the metric counts the former.
const BLOCKS_PER_HASH: f64 = BLOCK_TOKENS as f64 / 16.0;
