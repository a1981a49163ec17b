//! Our picker: the code that runs in Envoy, one [`Pool`] for each worker, shared data between them.
//!
//! All calls of the picker are in this file. Pods are scraped as in Envoy too: the collector's
//! [`Scraper`] reads their pages and publishes what it read.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

use picker_core::{
    Address, Answer, Answered, BlockHash, Draws, LeastCost, LocalData, Plan, Pool, PoolConfig,
    PoolOptions, Profile, Prompt, Request, Role, ScorerKind, Scraper, Snapshot, Span, Ticket,
    Timestamp, Verdict, WeightedScorer, parse_config, publish, stored,
};

use super::{Dice, Fleet, Job, Policy, Seen};
use crate::routing::job::BLOCK_TOKENS;

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
        let Some(config) = config(listed) else {
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
        let now = timestamp(fleet.now);
        while let Some(scrape) = scraper.poll_scrape(&self.shared, now) {
            let seen = pod_at(scrape.address).and_then(|pod| fleet.pods.get(pod));
            let page = seen.map(page);
            let answer = match &page {
                Some(page) => Answer::Response {
                    status: 200,
                    body: page.as_bytes(),
                },
                None => Answer::Nothing,
            };
            scraper.handle_answer(scrape, answer, now);
        }
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

/// The request as the filter hands it to the pool.
fn request(job: &Job) -> Request {
    let prompt = Prompt {
        bytes: job.prompt.len() as u64 * BYTES_PER_TOKEN,
        blocks: job.blocks.clone(),
    };
    let group = match job.planned.conversation {
        Some(conversation) => Some(BlockHash(conversation)),
        None => job.blocks.iter().take(GROUP_BLOCKS).next_back().copied(),
    };
    Request {
        model: job.planned.adapter.map(adapter_name),
        stream: true,
        prompts: vec![prompt],
        group,
        ..Request::default()
    }
}

/// The page of a pod as vLLM writes it, as far as the picker reads it.
fn page(seen: &Seen) -> String {
    let (blocks, block_size) = seen.blocks;
    let mut page = format!(
        "vllm:num_requests_running {}\n\
         vllm:num_requests_waiting {}\n\
         vllm:kv_cache_usage_perc {}\n\
         vllm:prefix_cache_queries_total {}\n\
         vllm:prefix_cache_hits_total {}\n\
         vllm:cache_config_info{{block_size=\"{block_size}\",enable_prefix_caching=\"True\",\
         num_gpu_blocks=\"{blocks}\"}} 1\n\
         process_start_time_seconds {}\n",
        seen.gauges.running,
        seen.gauges.waiting,
        seen.gauges.kv_usage,
        seen.counters.queries,
        seen.counters.hits,
        timestamp(seen.started).0 as f64 / 1e6,
    );
    if seen.adapters_max > 0 {
        let adapters: Vec<String> = seen.adapters.iter().copied().map(adapter_name).collect();
        let at = timestamp(seen.scraped_at.unwrap_or_default()).0 as f64 / 1e6;
        let _ = writeln!(
            page,
            "vllm:lora_requests_info{{max_lora=\"{}\",running_lora_adapters=\"{}\",\
             waiting_lora_adapters=\"\"}} {at}",
            seen.adapters_max,
            adapters.join(","),
        );
    }
    page
}

fn adapter_name(adapter: u32) -> String {
    format!("adapter-{adapter}")
}

/// The configuration of a pool of these pods, everything else as it is by default.
fn config(listed: &[usize]) -> Option<PoolConfig> {
    let endpoints = listed
        .iter()
        .map(|pod| format!(r#"{{"address":"{}"}}"#, address(*pod)));
    let endpoints: Vec<String> = endpoints.collect();
    let json = format!(
        r#"{{"pools":[{{"name":"{POOL}","endpoints":[{}]}}]}}"#,
        endpoints.join(",")
    );
    let Ok(Role::Filter(config)) = parse_config(json.as_bytes()) else {
        return None;
    };
    let mut config = config.pools.into_iter().next()?;
    // When to scrape is the simulation's business.
    config.scrape.interval = Span::from_millis(1);
    Some(config)
}

/// Where a pod listens.
fn address(pod: usize) -> String {
    format!("10.0.{}.{}:{PORT}", pod / 250, pod % 250 + 1)
}

/// The pod that listens there.
fn pod_at(address: Address) -> Option<usize> {
    let ip: std::net::Ipv4Addr = address.ip().parse().ok()?;
    let [_, _, high, low] = ip.octets();
    (usize::from(high) * 250 + usize::from(low)).checked_sub(1)
}

fn timestamp(since_start: Duration) -> Timestamp {
    Timestamp(START_MICROS + since_start.as_micros() as u64)
}

/// The pool's name, as in the shipped configurations.
const POOL: &str = "llm";

/// Where model servers usually listen.
const PORT: u16 = 8000;

/// Blocks that say which requests belong together: 2,048 tokens.
const GROUP_BLOCKS: usize = 32;

/// Bytes of text that stand for a token here, as the picker assumes.
const BYTES_PER_TOKEN: u64 = 4;

/// Simulations begin at this time, in microseconds since the epoch: 2025-01-01.
const START_MICROS: u64 = 1_735_689_600_000_000;
