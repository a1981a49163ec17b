//! The work of the lease holder: the scrapers of all registered pools.

use alloc::string::String;
use alloc::vec::Vec;

use crate::config::{self, PoolConfig, Role};
use crate::discovery::{Discovery, DiscoveryCall, DiscoveryOutcome, DiscoveryStatus, stored_list};
use crate::registry::{Registration, registered};
use crate::scrape::{Answer, Scrape, ScrapeOutcome, Scraper};
use crate::shared::SharedData;
use crate::snapshot::stored;
use crate::sources::Target;
use crate::{Span, Timestamp};

/// The scrapers of all registered pools, and what asks for their endpoints.
#[derive(Default)]
pub struct Collector {
    pools: Vec<Collected>,
    /// Calls for endpoints so far.
    calls: u32,
}

/// What is collected of one pool.
struct Collected {
    name: String,
    registration: Registration,
    scraper: Scraper,
    /// Where the endpoints are not listed.
    discovery: Option<Discovery>,
}

/// A scrape to send for a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolScrape {
    /// Whose scrape, to be named when the answer comes.
    pub pool: String,
    /// Whom to ask.
    pub scrape: Scrape,
    /// The Envoy cluster to ask through.
    pub cluster: String,
    /// The path of the page.
    pub path: String,
    /// How long to wait.
    pub timeout: Span,
}

impl Collector {
    /// Takes over what the filter's roots have registered since the last tick.
    pub fn tick(&mut self, shared: &impl SharedData, now: Timestamp) {
        let registered = registered(shared, now);
        self.pools
            .retain(|pool| registered.iter().any(|(listed, _)| *listed == pool.name));
        for (name, registration) in registered {
            let known = self.pools.iter_mut().find(|pool| pool.name == name);
            if let Some(known) = &known
                && known.registration.document == registration.document
            {
                continue;
            }
            let Some(config) = pool_config(&registration.document) else {
                continue;
            };
            match known {
                Some(known) => {
                    known.registration = registration;
                    known.configure(config);
                }
                None => {
                    let pool = Collected::new(shared, (name, registration), config);
                    self.pools.push(pool);
                }
            }
        }
        for pool in &mut self.pools {
            pool.scraper.follow_clock(now);
            if let Some(discovery) = &mut pool.discovery {
                discovery.follow_clock(now);
            }
            pool.scraper.publish(shared, true);
        }
    }

    /// The next call to send that asks for endpoints; to be called until `None` after every tick and
    /// every answer.
    pub fn poll_discovery(&mut self, now: Timestamp) -> Option<DiscoveryCall> {
        let id = self.calls.wrapping_add(1);
        let mut pools = self.pools.iter_mut();
        let call = pools.find_map(|pool| pool.discovery.as_mut()?.poll(&pool.name, id, now))?;
        self.calls = id;
        Some(call)
    }

    /// Takes in what came of the call `id` for the endpoints of `pool`, and publishes them if they
    /// are others.
    pub fn handle_discovery(
        &mut self,
        shared: &impl SharedData,
        (pool, id): (&str, u32),
        answer: Answer<'_>,
        now: Timestamp,
    ) -> DiscoveryOutcome {
        let Some(pool) = self.pools.iter_mut().find(|it| it.name == pool) else {
            return DiscoveryOutcome::Unlisted;
        };
        let Some(discovery) = &mut pool.discovery else {
            return DiscoveryOutcome::Unlisted;
        };
        let known = pool.scraper.config().endpoints.len();
        let (outcome, found) = discovery.handle_answer((id, answer), known, now);
        if let Some(found) = found {
            pool.scraper.take_found(found);
            pool.scraper.publish(shared, true);
        }
        outcome
    }

    /// How discovery stands, of every pool that has it.
    pub fn discoveries(&self, now: Timestamp) -> impl Iterator<Item = (&str, DiscoveryStatus)> {
        self.pools.iter().filter_map(move |pool| {
            let endpoints = pool.scraper.config().endpoints.len();
            let status = pool.discovery.as_ref()?.status(endpoints, now);
            Some((pool.name.as_str(), status))
        })
    }

    /// The next scrape to send; to be called until `None` after every tick.
    pub fn poll_scrape(&mut self, shared: &impl SharedData, now: Timestamp) -> Option<PoolScrape> {
        self.pools.iter_mut().find_map(|pool| {
            let scrape = pool.scraper.poll_scrape(shared, now)?;
            let config = pool.scraper.config();
            Some(PoolScrape {
                pool: pool.name.clone(),
                scrape,
                cluster: config.scrape.cluster.clone(),
                path: config.place(scrape.target)?.path.into(),
                timeout: config.scrape.timeout,
            })
        })
    }

    /// Takes in what came of a scrape, and publishes when it was the last of its round.
    pub fn handle_answer(
        &mut self,
        shared: &impl SharedData,
        (pool, scrape): (&str, Scrape),
        answer: Answer<'_>,
        now: Timestamp,
    ) -> ScrapeOutcome {
        let Some(pool) = self.pools.iter_mut().find(|it| it.name == pool) else {
            return ScrapeOutcome::Unlisted;
        };
        let outcome = pool.scraper.handle_answer(scrape, answer, now);
        pool.scraper.publish(shared, false);
        outcome
    }

    /// How often to tick: as often as the most eager pool wants scrapes, 100 ms at the most.
    pub fn period(&self) -> Span {
        let intervals = self.pools.iter().flat_map(|pool| {
            let places = Target::ALL.map(|target| pool.scraper.config().place(target));
            places.into_iter().flatten().map(|place| place.interval)
        });
        intervals.min().unwrap_or(PERIOD_MAX).min(PERIOD_MAX)
    }
}

impl Collected {
    /// Goes on from what was published last.
    fn new(
        shared: &impl SharedData,
        (name, registration): (String, Registration),
        mut config: PoolConfig,
    ) -> Self {
        if config.discovery.is_some() {
            let listed = stored_list(shared, &name);
            config.endpoints =
                listed.map_or_else(Vec::new, |(_, listed)| listed.into_endpoints(config.engine));
        }
        Self {
            discovery: discovery_of(&config),
            scraper: Scraper::new(config, stored(shared, &name)),
            name,
            registration,
        }
    }

    fn configure(&mut self, config: PoolConfig) {
        let before = self.scraper.config();
        // Whoever is asked already is asked on.
        if before.discovery != config.discovery || before.engine != config.engine {
            self.discovery = discovery_of(&config);
        }
        self.scraper.configure(config);
    }
}

fn discovery_of(config: &PoolConfig) -> Option<Discovery> {
    let discovery = config.discovery.clone()?;
    Some(Discovery::new(discovery, config.engine))
}

/// The pool in a registered document; `None` for the document of another release.
fn pool_config(document: &str) -> Option<PoolConfig> {
    match config::parse(document.as_bytes()) {
        Ok(Role::Filter(config)) => config.pools.into_iter().next(),
        _ => None,
    }
}

/// The tick of every root.
pub const PERIOD_MAX: Span = Span::from_millis(100);
