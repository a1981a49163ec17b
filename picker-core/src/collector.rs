//! The work of the lease holder: the scrapers of all registered pools.

use alloc::string::String;
use alloc::vec::Vec;

use crate::config::{self, PoolConfig, Role};
use crate::registry::{Registration, registered};
use crate::scrape::{Answer, Scrape, ScrapeOutcome, Scraper};
use crate::shared::SharedData;
use crate::snapshot::stored;
use crate::sources::Target;
use crate::{Span, Timestamp};

/// The scrapers of all registered pools.
#[derive(Default)]
pub struct Collector {
    pools: Vec<(String, Registration, Scraper)>,
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
            .retain(|(name, ..)| registered.iter().any(|(listed, _)| listed == name));
        for (name, registration) in registered {
            let known = self.pools.iter_mut().find(|(known, ..)| *known == name);
            if let Some((_, known, _)) = &known
                && known.document == registration.document
            {
                continue;
            }
            let Some(config) = pool_config(&registration.document) else {
                continue;
            };
            match known {
                Some((_, known, scraper)) => {
                    scraper.configure(config);
                    *known = registration;
                }
                None => {
                    let scraper = Scraper::new(config, stored(shared, &name));
                    self.pools.push((name, registration, scraper));
                }
            }
        }
        for (.., scraper) in &mut self.pools {
            scraper.follow_clock(now);
            scraper.publish(shared, true);
        }
    }

    /// The next scrape to send; to be called until `None` after every tick.
    pub fn poll_scrape(&mut self, shared: &impl SharedData, now: Timestamp) -> Option<PoolScrape> {
        self.pools.iter_mut().find_map(|(name, _, scraper)| {
            let scrape = scraper.poll_scrape(shared, now)?;
            let config = scraper.config();
            Some(PoolScrape {
                pool: name.clone(),
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
        let Some((.., scraper)) = self.pools.iter_mut().find(|(name, ..)| name == pool) else {
            return ScrapeOutcome::Unlisted;
        };
        let outcome = scraper.handle_answer(scrape, answer, now);
        scraper.publish(shared, false);
        outcome
    }

    /// How often to tick: as often as the most eager pool wants scrapes, 100 ms at the most.
    pub fn period(&self) -> Span {
        let intervals = self.pools.iter().flat_map(|(.., scraper)| {
            let places = Target::ALL.map(|target| scraper.config().place(target));
            places.into_iter().flatten().map(|place| place.interval)
        });
        intervals.min().unwrap_or(PERIOD_MAX).min(PERIOD_MAX)
    }
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
