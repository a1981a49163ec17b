//! Our picker: the code that runs in Envoy, one [`Pool`] for each worker, shared data between them.
//!
//! All calls of the picker's pool are in this file.

use std::collections::HashMap;
use std::time::Duration;

use picker_core::{
    Address, Answered, BlockHash, Draws, EndpointMetrics, Ledger, LocalData, Pool, PoolOptions,
    Profile, Prompt, Request, Share, Snapshot, Span, Ticket, Timestamp, ledger_key, publish,
};

use super::{Dice, Fleet, Job, Policy, Seen};

/// One Envoy.
pub(super) struct Ours {
    profile: Profile,
    dice: Dice,
    shared: LocalData,
    workers: Vec<(Pool, Draws)>,
    workers_wanted: usize,
    /// As published last.
    snapshot: Snapshot,
    /// Which pods could be chosen then.
    candidates: Vec<usize>,
    shares: HashMap<u32, Share>,
    /// The worker and the ticket of each request on its way.
    tickets: HashMap<u64, (usize, Ticket)>,
}

impl Ours {
    /// The reference picker's scorers and weights for prefixes.
    pub(super) fn compatible(dice: Dice, workers: usize) -> Self {
        Self::new(Profile::default(), dice, workers)
    }

    /// Our own rule.
    pub(super) fn least_cost(dice: Dice, workers: usize) -> Self {
        Self::new(Profile::least_cost(), dice, workers)
    }

    fn new(profile: Profile, dice: Dice, workers: usize) -> Self {
        Self {
            profile,
            dice,
            shared: LocalData::default(),
            workers: Vec::new(),
            workers_wanted: workers.max(1),
            snapshot: Snapshot::default(),
            candidates: Vec::new(),
            shares: HashMap::new(),
            tickets: HashMap::new(),
        }
    }

    /// Starts the workers with the pods that are there at the beginning.
    fn start(&mut self, pods: usize) {
        self.snapshot = Snapshot::unknown((0..pods).filter_map(address));
        for owner in 1..=self.workers_wanted as u64 {
            let options = PoolOptions {
                name: POOL.into(),
                profile: self.profile.clone(),
                staleness_threshold: STALENESS_THRESHOLD,
                capacity_tokens: None,
            };
            let pool = Pool::new(options, self.snapshot.clone(), owner);
            self.workers.push((pool, Draws::new(self.dice.number())));
        }
    }

    /// Brings the snapshot up to what was seen, and publishes it.
    fn publish(&mut self, fleet: &Fleet<'_>) {
        if self.workers.is_empty() {
            self.start(fleet.pods.len());
        }
        while (self.snapshot.next_id as usize) <= fleet.pods.len() {
            let Some(address) = address(self.snapshot.next_id as usize - 1) else {
                break;
            };
            self.snapshot.add(address);
        }
        let mut bytes = Vec::new();
        picker_core::SharedData::get(&self.shared, &ledger_key(POOL), &mut bytes);
        let ledger = Ledger::decode(&bytes);
        let now = timestamp(fleet.now);
        self.snapshot
            .endpoints
            .retain(|endpoint| fleet.listed.contains(&pod_of(endpoint.id.0)));
        for endpoint in &mut self.snapshot.endpoints {
            let pod = pod_of(endpoint.id.0);
            endpoint.reachable = fleet.candidates.contains(&pod);
            let Some(seen) = fleet.pods.get(pod) else {
                continue;
            };
            let scraped_at = seen.scraped_at.map(timestamp);
            if scraped_at != endpoint.scraped_at {
                endpoint.scraped_at = scraped_at;
                let load = ledger.total(endpoint.id, now);
                endpoint.sent_at_scrape = load.sent;
                endpoint.metrics = metrics(seen);
                let counted = endpoint.metrics.prefix_queries;
                let share = self.shares.entry(endpoint.id.0).or_default();
                endpoint.share = share.update(endpoint.share, load.sent_tokens, counted);
            }
        }
        self.candidates = fleet.candidates.to_vec();
        publish(&self.shared, POOL, &self.snapshot);
    }
}

impl Policy for Ours {
    fn choose(&mut self, job: &Job, fleet: &Fleet<'_>) -> usize {
        if self.candidates != fleet.candidates {
            self.publish(fleet);
        }
        let worker = self.dice.below(self.workers.len());
        let fallback = fleet.candidates.first().copied().unwrap_or_default();
        let Some((pool, draws)) = self.workers.get_mut(worker) else {
            return fallback;
        };
        let now = timestamp(fleet.now);
        match pool.pick(&self.shared, &request(job), draws, now) {
            Ok(pick) => {
                let pod = pod_of(pick.endpoint.0);
                self.tickets.insert(job.id, (worker, pick.ticket));
                pod
            }
            Err(_) => fallback,
        }
    }

    fn first_token(&mut self, job: &Job, _pod: usize, now: Duration) {
        if let Some((worker, ticket)) = self.tickets.get_mut(&job.id)
            && let Some((pool, _)) = self.workers.get_mut(*worker)
        {
            pool.on_first_byte(&self.shared, ticket, timestamp(now));
        }
    }

    fn done(&mut self, job: &Job, _pod: usize, _cached_tokens: Option<usize>, now: Duration) {
        if let Some((worker, mut ticket)) = self.tickets.remove(&job.id)
            && let Some((pool, _)) = self.workers.get_mut(worker)
        {
            let output_tokens = u32::try_from(job.output_tokens()).ok();
            let answered = Answered { output_tokens };
            pool.on_done(&self.shared, &mut ticket, answered, timestamp(now));
        }
    }

    fn observe(&mut self, fleet: &Fleet<'_>) {
        self.publish(fleet);
    }

    fn tick(&mut self, now: Duration) {
        for (pool, _) in &mut self.workers {
            pool.tick(&self.shared, timestamp(now));
        }
    }
}

/// The request as the filter hands it to the pool.
fn request(job: &Job) -> Request {
    let prompt = Prompt {
        bytes: job.prompt.len() as u64 * BYTES_PER_TOKEN,
        blocks: job.blocks.clone(),
    };
    Request {
        model: job.planned.adapter.map(adapter_name),
        group: Some(BlockHash(job.planned.group)),
        stream: true,
        prompts: vec![prompt],
        ..Request::default()
    }
}

/// The page of a pod as the collector reads it.
fn metrics(seen: &Seen) -> EndpointMetrics {
    let (blocks, block_size) = seen.blocks;
    let mut adapters: Vec<String> = seen.adapters.iter().copied().map(adapter_name).collect();
    adapters.sort_unstable();
    EndpointMetrics {
        running: Some(seen.gauges.running as f64),
        waiting: Some(seen.gauges.waiting as f64),
        kv_usage: Some(seen.gauges.kv_usage),
        kv_usage_max: Some(seen.gauges.kv_usage),
        block_size: Some(block_size),
        num_blocks: Some(blocks),
        capacity_tokens: Some(blocks * u64::from(block_size)),
        prefix_queries: Some(seen.counters.queries),
        prefix_hits: Some(seen.counters.hits),
        lora: (seen.adapters_max > 0).then(|| picker_core::Lora {
            running: adapters,
            waiting: Vec::new(),
            max: u32::try_from(seen.adapters_max).ok(),
        }),
        sleeping: Some(false),
        prefix_caching: Some(true),
        process_started: Some(timestamp(seen.started).0 as f64 / 1e6),
    }
}

fn adapter_name(adapter: u32) -> String {
    format!("adapter-{adapter}")
}

/// Where a pod would listen.
fn address(pod: usize) -> Option<Address> {
    format!("10.0.{}.{}:8000", pod / 250, pod % 250 + 1)
        .parse()
        .ok()
}

/// Pods are numbered from 0 and endpoints from 1, both in the order of their coming.
fn pod_of(endpoint: u32) -> usize {
    (endpoint as usize).saturating_sub(1)
}

fn timestamp(since_start: Duration) -> Timestamp {
    Timestamp(START_MICROS + since_start.as_micros() as u64)
}

/// The pool's name, as in the shipped configurations.
const POOL: &str = "llm";

/// The default of the picker's configuration.
const STALENESS_THRESHOLD: Span = Span::from_millis(2000);

/// Bytes of text that stand for a token here, as the picker assumes.
const BYTES_PER_TOKEN: u64 = 4;

/// Simulations begin at this time, in microseconds since the epoch: 2025-01-01.
const START_MICROS: u64 = 1_735_689_600_000_000;
