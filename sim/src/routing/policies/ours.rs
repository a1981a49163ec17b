//! Our picker: the code that runs in Envoy, one [`Pool`] for each worker, shared data between them.
//!
//! Pods are scraped as in Envoy too: the collector's [`Scraper`] reads their pages and publishes
//! what it read.

use std::collections::HashMap;
use std::time::Duration;

use picker_core::{
    Answered, Draws, LeastCost, LocalData, Plan, Pool, PoolConfig, PoolOptions, Profile,
    ScorerKind, Scraper, Snapshot, Ticket, Verdict, WeightedScorer, publish, stored,
};

use super::{Dice, Fleet, Job, Policy};
use crate::routing::job::BLOCK_TOKENS;
use crate::routing::wire::{self, POOL, pod_at, request, timestamp};

/// One Envoy.
pub(super) struct Ours {
    profile: Profile,
    dice: Dice,
    shared: LocalData,
    scraper: Option<Scraper>,
    workers: Vec<(Pool, Draws)>,
    workers_wanted: usize,
    /// When pages were read last.
    scraped_at: Option<Duration>,
    /// The pods that the picker knows of.
    listed: Vec<usize>,
    /// Which of them could be chosen when the snapshot was published.
    candidates: Vec<usize>,
    /// The worker and the ticket of each request on its way.
    tickets: HashMap<u64, (usize, Ticket)>,
    /// Blocks that the pod chosen last is thought to hold.
    matched: usize,
}

impl Ours {
    /// The rule that is the default.
    pub(super) fn least_cost(dice: Dice, workers: usize, rule: LeastCost) -> Self {
        let profile = Profile {
            scorers: vec![WeightedScorer {
                scorer: ScorerKind::LeastCost(rule),
                weight: 1.0,
            }],
            ..Profile::default()
        };
        Self::new(profile, dice, workers)
    }

    /// The reference picker's scorers and weights for prefixes.
    pub(super) fn compatible(dice: Dice, workers: usize) -> Self {
        Self::new(Profile::compatible(), dice, workers)
    }

    /// The same and the scorer for adapters.
    pub(super) fn compatible_lora(dice: Dice, workers: usize) -> Self {
        let mut profile = Profile::compatible();
        profile.scorers.push(WeightedScorer {
            scorer: ScorerKind::LoraAffinity,
            weight: 3.0,
        });
        Self::new(profile, dice, workers)
    }

    /// The reference picker's scorers of load alone.
    pub(super) fn queue_kv(dice: Dice, workers: usize) -> Self {
        let mut profile = Profile::compatible();
        let is_prefix = |it: &WeightedScorer| matches!(it.scorer, ScorerKind::Prefix(_));
        profile.scorers.retain(|it| !is_prefix(it));
        Self::new(profile, dice, workers)
    }

    fn new(profile: Profile, dice: Dice, workers: usize) -> Self {
        Self {
            profile,
            dice,
            shared: LocalData::default(),
            scraper: None,
            workers: Vec::new(),
            workers_wanted: workers.max(1),
            scraped_at: None,
            listed: Vec::new(),
            candidates: Vec::new(),
            tickets: HashMap::new(),
            matched: 0,
        }
    }

    /// Starts the collector and the workers with the pods that are there at the beginning.
    fn start(&mut self, config: PoolConfig) {
        let addresses = config.endpoints.iter().map(|endpoint| endpoint.address);
        let snapshot = Snapshot::unknown(addresses);
        for owner in 1..=self.workers_wanted as u64 {
            let options = PoolOptions {
                plan: Plan::of(self.profile.clone()),
                ..PoolOptions::of(&config, None)
            };
            let pool = Pool::new(options, snapshot.clone(), owner);
            self.workers.push((pool, Draws::new(self.dice.number())));
        }
        self.scraper = Some(Scraper::new(config, None));
    }

    /// Brings the list of endpoints up to date.
    fn configure(&mut self, listed: &[usize]) {
        if self.listed == listed {
            return;
        }
        self.listed = listed.to_vec();
        let Some(config) = wire::config(listed, None) else {
            return;
        };
        match &mut self.scraper {
            Some(scraper) => scraper.configure(config),
            None => self.start(config),
        }
    }

    /// Reads the pages of all pods, as they were when they were scraped.
    fn scrape(&mut self, fleet: &Fleet<'_>) {
        let Some(scraper) = &mut self.scraper else {
            return;
        };
        let page = |pod: usize| fleet.pods.get(pod).map(wire::page);
        wire::scrape(scraper, &self.shared, page, fleet.now);
    }

    /// Leaves no choice but the candidates: nothing listens at the others for now.
    fn restrict(&mut self, candidates: &[usize], now: Duration) {
        if self.candidates == candidates {
            return;
        }
        let Some(mut snapshot) = stored(&self.shared, POOL) else {
            return;
        };
        for endpoint in &mut snapshot.endpoints {
            let pod = pod_at(endpoint.address);
            endpoint.reachable = pod.is_some_and(|pod| candidates.contains(&pod));
        }
        self.candidates = candidates.to_vec();
        publish(&self.shared, POOL, &snapshot);
        self.tick(now);
    }
}

impl Policy for Ours {
    fn choose(&mut self, job: &Job, fleet: &Fleet<'_>) -> usize {
        self.restrict(fleet.candidates, fleet.now);
        let worker = self.dice.below(self.workers.len());
        let fallback = fleet.candidates.first().copied().unwrap_or_default();
        let Some((pool, draws)) = self.workers.get_mut(worker) else {
            return fallback;
        };
        let now = timestamp(fleet.now);
        let Ok(pick) = pool.pick(&self.shared, &request(job), draws, now) else {
            return fallback;
        };
        self.tickets.insert(job.id, (worker, pick.ticket));
        self.matched = pick.matched;
        let address = pick.destinations.first();
        address.copied().and_then(pod_at).unwrap_or(fallback)
    }

    fn matched_tokens(&self, _job: &Job, _pod: usize, _fleet: &Fleet<'_>) -> usize {
        self.matched * BLOCK_TOKENS
    }

    fn first_token(&mut self, job: &Job, _pod: usize, now: Duration) {
        if let Some((worker, ticket)) = self.tickets.get_mut(&job.id)
            && let Some((pool, _)) = self.workers.get_mut(*worker)
        {
            let now = timestamp(now);
            pool.on_verdict(&self.shared, ticket, Verdict::Served, now);
            pool.on_first_byte(&self.shared, ticket, now);
        }
    }

    fn done(&mut self, job: &Job, _pod: usize, cached_tokens: Option<usize>, now: Duration) {
        if let Some((worker, mut ticket)) = self.tickets.remove(&job.id)
            && let Some((pool, _)) = self.workers.get_mut(worker)
        {
            let tokens = |count: usize| u32::try_from(count).ok();
            let answered = Answered {
                output_tokens: tokens(job.output_tokens()),
                prompt_tokens: tokens(job.prompt.len()),
                cached_tokens: cached_tokens.and_then(tokens),
            };
            pool.on_done(&self.shared, &mut ticket, answered, timestamp(now));
        }
    }

    fn observe(&mut self, fleet: &Fleet<'_>) {
        self.configure(fleet.listed);
        let scraped_at = fleet.pods.iter().filter_map(|seen| seen.scraped_at).max();
        if self.scraped_at != scraped_at {
            self.scraped_at = scraped_at;
            self.scrape(fleet);
        }
        if let Some(scraper) = &mut self.scraper {
            scraper.publish(&self.shared, true);
            self.candidates = fleet.listed.to_vec();
        }
    }

    fn tick(&mut self, now: Duration) {
        for (pool, _) in &mut self.workers {
            pool.tick(&self.shared, timestamp(now));
        }
    }
}
