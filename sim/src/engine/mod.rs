//! The scheduler and block pool of a vLLM engine, one step at a time and without a clock.
//!
//! Running requests come first, each with as many tokens as the budget allows; one that finds no
//! block takes the place of the newest. When nobody lost a place, waiting requests follow, and the
//! first that does not fit stops all behind it. Blocks get their hash when they are scheduled, so
//! a request can hit blocks that another one got in the same step.

mod adapters;
mod allocate;
mod config;
mod pool;
mod request;
mod step;
mod waiting;

pub use config::{Config, Policy};
pub use request::Request;
pub use step::{Admission, Event, Sample, Step, Work};

use adapters::Adapters;
use pool::BlockPool;
use request::{Entry, Status};
use waiting::{Slot, Waiting};

/// One engine: its requests, its blocks and its counters.
pub struct Engine {
    config: Config,
    pool: BlockPool,
    entries: Vec<Option<Entry>>,
    vacant: Vec<Slot>,
    waiting: Waiting,
    adapters: Adapters,
    /// In the order of admission.
    running: Vec<Slot>,
    /// What this step computes, before it is told in the step's own terms.
    scheduled: Vec<(Slot, usize)>,
    step: Step,
    next_id: u64,
    counters: Counters,
}

/// A request in one engine; never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Totals since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Prompt tokens looked up in the cache, counted when a request is first admitted.
    pub queries: u64,
    /// Those of them that were found.
    pub hits: u64,
    /// Places lost for want of blocks.
    pub preemptions: u64,
}

impl Engine {
    /// An engine with an empty cache.
    pub fn new(config: Config) -> Self {
        Self {
            pool: BlockPool::new(config.num_blocks),
            waiting: Waiting::new(config.policy),
            adapters: Adapters::default(),
            config: Config {
                block_size: config.block_size.max(1),
                ..config
            },
            entries: Vec::new(),
            vacant: Vec::new(),
            running: Vec::new(),
            scheduled: Vec::new(),
            step: Step::default(),
            next_id: 0,
            counters: Counters::default(),
        }
    }

    /// Puts a request behind those that wait.
    ///
    /// One that needs more blocks than there are waits forever and holds up all behind it: ask
    /// [`tokens_max`](Self::tokens_max) first.
    pub fn add(&mut self, request: Request) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let entry = Entry::new(id, request);
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as Slot - 1
        });
        self.waiting.push(slot, &entry);
        self.entries[slot as usize] = Some(entry);
        id
    }

    /// Drops a request and frees its blocks; `false` when it is not here, or not any more.
    pub fn abort(&mut self, id: RequestId) -> bool {
        let is_it = |entry: &Option<Entry>| entry.as_ref().is_some_and(|entry| entry.id == id);
        let Some(slot) = self.entries.iter().position(is_it) else {
            return false;
        };
        let Some(entry) = self.entries[slot].take() else {
            return false;
        };
        let slot = slot as Slot;
        match entry.status {
            Status::Waiting => self.waiting.remove(slot, &entry),
            Status::Running => self.running.retain(|&other| other != slot),
        }
        self.pool.release(&entry.blocks);
        self.vacant.push(slot);
        true
    }

    /// Forgets all cached blocks; `false` when a block is in use, and then nothing changes.
    pub fn reset_prefix_cache(&mut self) -> bool {
        self.pool.forget_all()
    }

    /// Schedules one step and processes its output.
    ///
    /// A caller that keeps time shows the result when the step's duration has passed.
    pub fn step(&mut self) -> &Step {
        self.step.clear();
        self.scheduled.clear();
        let budget = self.schedule_running(self.config.max_num_batched_tokens);
        if self.step.preempted.is_empty() {
            self.schedule_waiting(budget);
        }
        self.step.running = self.running.len();
        self.step.waiting = self.waiting.len();
        self.step.free_blocks = self.pool.free();
        self.step.work.blocks = self.pool.usable() - self.pool.free();
        self.process_output();
        &self.step
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.len() == 0
    }

    /// How many requests run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The adapters of the requests that run, in order, each once.
    pub fn adapters_running(&self) -> Vec<u32> {
        let entries = self
            .running
            .iter()
            .map(|&slot| &self.entries[slot as usize]);
        let mut adapters: Vec<u32> = entries.flatten().filter_map(|it| it.adapter).collect();
        adapters.sort_unstable();
        adapters.dedup();
        adapters
    }

    /// How many blocks can be taken, cached ones included.
    pub fn free_blocks(&self) -> usize {
        self.pool.free()
    }

    /// The share of blocks held by requests, `0..=1`.
    pub fn usage(&self) -> f64 {
        1.0 - self.pool.free() as f64 / self.pool.usable().max(1) as f64
    }

    /// Most tokens of a request, prompt and output together, that can ever be served.
    pub fn tokens_max(&self) -> usize {
        self.config
            .max_model_len
            .min(self.pool.usable() * self.config.block_size)
    }

    /// How many leading tokens of a prompt would be found in the cache if it were admitted now.
    pub fn cached_tokens(&self, prompt: &[u32], root: u64) -> usize {
        let block_size = self.config.block_size;
        let blocks_max = prompt.len().saturating_sub(1) / block_size;
        let mut last = root;
        let held = prompt.chunks_exact(block_size).take(blocks_max);
        let held = held.take_while(|block| {
            last = request::block_hash(last, block);
            self.pool.oldest(last).is_some()
        });
        held.count() * block_size
    }

    /// Totals since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What the engine was started with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Gives every running request its tokens, and returns what is left of the budget.
    fn schedule_running(&mut self, mut budget: usize) -> usize {
        let mut position = 0;
        while budget > 0 {
            let Some(&slot) = self.running.get(position) else {
                break;
            };
            let Some(entry) = &self.entries[slot as usize] else {
                break;
            };
            let room = (self.config.max_model_len - 1).saturating_sub(entry.computed);
            let tokens = self.chunk(entry.known - entry.computed, budget).min(room);
            if tokens == 0 {
                position += 1;
                continue;
            }
            let mut fits = self.grow(slot, tokens);
            while !fits {
                let Some(victim) = self.victim() else { break };
                let place = self.preempt(victim, &mut budget);
                position -= usize::from(place < position);
                if victim == slot {
                    break;
                }
                fits = self.grow(slot, tokens);
            }
            if fits {
                self.scheduled.push((slot, tokens));
                budget -= tokens;
                position += 1;
            } else if self.config.policy == Policy::Fcfs {
                break;
            }
        }
        budget
    }

    /// Admits waiting requests until one does not fit.
    fn schedule_waiting(&mut self, mut budget: usize) {
        while budget > 0 && self.running.len() < self.config.max_num_seqs {
            let Some(slot) = self.next_waiting() else {
                break;
            };
            let hit = self.lookup(slot);
            let Some(entry) = &self.entries[slot as usize] else {
                break;
            };
            let cached_tokens = hit.len() * self.config.block_size;
            let tokens = self.chunk(entry.known - cached_tokens, budget);
            if !self.admit(slot, tokens, &hit) {
                break;
            }
            let Some(entry) = &mut self.entries[slot as usize] else {
                break;
            };
            self.waiting.remove(slot, entry);
            self.running.push(slot);
            if let (Some(adapter), 1..) = (entry.adapter, self.config.max_adapters) {
                let loaded = self.adapters.load(adapter, self.config.max_adapters);
                self.step.work.adapters_loaded += usize::from(loaded);
            }
            entry.status = Status::Running;
            entry.computed = cached_tokens;
            let resumed = entry.preemptions > 0;
            self.step.admitted.push(Admission {
                id: entry.id,
                cached_tokens,
                resumed,
            });
            if self.config.prefix_caching && !resumed {
                self.counters.queries += entry.known as u64;
                self.counters.hits += cached_tokens as u64;
            }
            self.scheduled.push((slot, tokens));
            budget -= tokens;
        }
    }

    /// The waiting request that may be admitted next.
    ///
    /// One whose adapter has no place beside those that run lets the others pass.
    fn next_waiting(&self) -> Option<Slot> {
        if self.config.max_adapters == 0 {
            return self.waiting.peek();
        }
        let running = self.adapters_running();
        let has_place = running.len() < self.config.max_adapters;
        let fits = |slot: &Slot| {
            let entry = self.entries[*slot as usize].as_ref();
            let adapter = entry.and_then(|entry| entry.adapter);
            adapter.is_none_or(|adapter| has_place || running.contains(&adapter))
        };
        self.waiting.iter().find(fits)
    }

    /// Counts the tokens as computed, samples, and lets finished requests go.
    fn process_output(&mut self) {
        let mut finished = false;
        for &(slot, tokens) in &self.scheduled {
            let Some(entry) = &mut self.entries[slot as usize] else {
                continue;
            };
            let is_decode = tokens == 1
                && entry.computed >= entry.prompt_len
                && entry.computed + 1 == entry.known;
            self.step.scheduled.push((entry.id, tokens));
            self.step.work.add(tokens, entry.computed, is_decode);
            entry.computed += tokens;
            if entry.computed < entry.known {
                continue;
            }
            let token = entry.tokens.get(entry.known).copied().unwrap_or_default();
            entry.known += 1;
            let is_last = entry.is_complete(self.config.max_model_len);
            finished |= is_last;
            self.step.sampled.push(Sample {
                id: entry.id,
                token,
                finished: is_last,
            });
            if is_last {
                self.pool.release(&entry.blocks);
                self.entries[slot as usize] = None;
                self.vacant.push(slot);
            }
        }
        if finished {
            let entries = &self.entries;
            self.running
                .retain(|&slot| entries[slot as usize].is_some());
        }
    }

    /// How many of `wanted` tokens one request may compute now.
    fn chunk(&self, wanted: usize, budget: usize) -> usize {
        let threshold = self.config.long_prefill_token_threshold;
        let is_alone = self.running.len() + self.waiting.len() <= 1;
        let wanted = if threshold > 0 && !is_alone {
            wanted.min(threshold)
        } else {
            wanted
        };
        wanted.min(budget)
    }

    /// The running request that must give up its blocks.
    fn victim(&self) -> Option<Slot> {
        if self.config.policy == Policy::Fcfs {
            return self.running.last().copied();
        }
        let rank = |slot: Slot| {
            let entry = self.entries[slot as usize].as_ref();
            entry.map(|entry| (entry.priority, entry.arrival))
        };
        // `max_by_key` returns the last of equal ones; the first in admission order is wanted.
        self.running
            .iter()
            .rev()
            .copied()
            .max_by_key(|&slot| rank(slot))
    }

    /// Takes a running request's place and blocks; returns where in the running list it was.
    fn preempt(&mut self, slot: Slot, budget: &mut usize) -> usize {
        let place = self
            .running
            .iter()
            .rposition(|&it| it == slot)
            .unwrap_or_default();
        self.running.remove(place);
        if let Some(index) = self.scheduled.iter().position(|it| it.0 == slot) {
            *budget += self.scheduled.remove(index).1;
        }
        if let Some(entry) = &mut self.entries[slot as usize] {
            self.pool.release(&entry.blocks);
            entry.blocks.clear();
            entry.computed = 0;
            entry.hashed = 0;
            entry.preemptions += 1;
            entry.status = Status::Waiting;
            self.waiting.push_preempted(slot, entry);
            self.step.preempted.push(entry.id);
            self.counters.preemptions += 1;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(usable: u32, policy: Policy) -> Engine {
        let (num_blocks, block_size) = (usable + 1, 4);
        Engine::new(Config {
            num_blocks,
            block_size,
            policy,
            ..Config::default()
        })
    }

    fn request(first: u32, prompt: u32, output: usize, priority: i64) -> Request {
        let prompt = (first..first + prompt).collect();
        Request {
            prompt,
            output: vec![7; output],
            priority,
            ..Request::default()
        }
    }

    #[test]
    fn a_step_that_preempts_admits_nobody() {
        let mut engine = engine(4, Policy::Priority);
        engine.add(request(0, 4, 10, 0));
        let big = engine.add(request(100, 11, 5, 2));
        engine.step();
        let small = engine.add(request(200, 2, 1, 1));
        let step = engine.step();
        assert_eq!((&step.preempted, &step.admitted), (&vec![big], &vec![]));
        assert_eq!(engine.step().admitted.first().map(|it| it.id), Some(small));
    }

    #[test]
    fn an_aborted_request_gives_back_its_place_and_its_blocks() {
        let mut engine = engine(8, Policy::Fcfs);
        let running = engine.add(request(0, 8, 10, 0));
        engine.step();
        let waiting = engine.add(request(100, 8, 10, 0));
        assert_eq!(
            (engine.running(), engine.waiting(), engine.usage()),
            (1, 1, 0.25)
        );
        assert!(!engine.reset_prefix_cache());
        assert!(engine.abort(waiting) && engine.abort(running));
        assert!(!engine.abort(running));
        assert!(engine.is_idle());
        assert_eq!(engine.usage(), 0.0);
        // The slot is used again, the id is not.
        assert!(engine.add(request(0, 9, 1, 0)) > waiting);
        assert_eq!(engine.step().admitted[0].cached_tokens, 8);
        assert!(engine.reset_prefix_cache());
        engine.add(request(0, 9, 1, 0));
        assert_eq!(engine.step().admitted[0].cached_tokens, 0);
    }

    #[test]
    fn a_request_without_output_gets_one_token() {
        let mut engine = engine(8, Policy::Fcfs);
        let id = engine.add(request(0, 3, 0, 0));
        assert_eq!(
            engine.step().sampled,
            [Sample {
                id,
                token: 0,
                finished: true
            }]
        );
    }
}
