//! Scraping, while this root holds the lease.

use picker_core::{
    Answer, Collector, DiscoveryFailure, DiscoveryOutcome, DiscoveryStatus, Eagerness, Lease,
    PERIOD_MAX, PoolScrape, Scrape, ScrapeOutcome, SortedMap, Span, Stat, Timestamp, lease_length,
};

use crate::host::{self, Buffer, Headers, Host};
use crate::stats::Stats;

/// One root's part in collecting.
pub(crate) struct Collecting {
    lease: Lease,
    collector: Collector,
    /// Each call on its way and its pool, by the number of the call.
    calls: SortedMap<u32, (String, Asked)>,
    stats: Vec<(String, Stats)>,
    logged_at: Option<Timestamp>,
}

/// What a call asks for.
enum Asked {
    Scrape(Scrape),
    /// The endpoints, under this number of the collector's.
    Endpoints(u32),
}

impl Collecting {
    pub(crate) fn new() -> Self {
        Self {
            lease: Lease::new(host::random(), lease_length(PERIOD_MAX)),
            collector: Collector::default(),
            calls: SortedMap::default(),
            stats: Vec::new(),
            logged_at: None,
        }
    }

    /// Holds or takes the lease where due, and scrapes while this root has it.
    /// Gives the time to the next tick.
    pub(crate) fn tick(&mut self, eagerness: Eagerness, now: Timestamp) -> Span {
        self.stats.iter_mut().for_each(|(_, it)| it.tell());
        let held = self.lease.is_held();
        if !self.lease.try_hold(&Host, eagerness, now) {
            if held {
                // Whoever holds it now goes on from what is published, and so shall this root if it
                // gets it back.
                self.collector = Collector::default();
            }
            return PERIOD_MAX;
        }
        if !held {
            log::info!("picker: collecting metrics ({eagerness:?} root)");
        }
        #[cfg(feature = "test-build")]
        crate::test_hooks::on_collect();
        self.collector.tick(&Host, now);
        self.show_discoveries(now);
        self.discover(now);
        while let Some(scrape) = self.collector.poll_scrape(&Host, now) {
            self.send(scrape, now);
        }
        self.collector.period()
    }

    /// Takes the answer of call `token`; a call without headers brought none.
    pub(crate) fn on_answer(&mut self, token: u32, headers: usize, body_size: usize) {
        let Some(whose) = self.calls.remove(&token) else {
            return;
        };
        let status = host::header(Headers::CallResponse, ":status").filter(|_| headers > 0);
        let status = status.and_then(|status| std::str::from_utf8(&status).ok()?.parse().ok());
        let body = host::buffer(Buffer::CallResponseBody, 0, body_size);
        let answer = match status {
            Some(status) => Answer::Response {
                status,
                body: &body,
            },
            None => Answer::Nothing,
        };
        let now = host::now();
        match whose {
            (pool, Asked::Scrape(scrape)) => self.take_in(&(pool, scrape), answer, now),
            (pool, Asked::Endpoints(id)) => {
                self.take_endpoints((&pool, id), answer, now);
                self.discover(now);
            }
        }
    }

    fn send(&mut self, scrape: PoolScrape, now: Timestamp) {
        let address = scrape.scrape.address.to_string();
        let headers = vec![
            (":method", "GET"),
            (":path", scrape.path.as_str()),
            (":authority", address.as_str()),
            (DESTINATION, address.as_str()),
        ];
        let whose = (scrape.pool, scrape.scrape);
        match host::http_call(&scrape.cluster, headers, scrape.timeout) {
            Some(token) => {
                let (pool, scrape) = whose;
                self.calls.insert(token, (pool, Asked::Scrape(scrape)));
            }
            None => self.take_in(&whose, Answer::NotSent, now),
        }
    }

    /// Asks for endpoints where that is due.
    fn discover(&mut self, now: Timestamp) {
        while let Some(call) = self.collector.poll_discovery(now) {
            let headers = vec![
                (":method", "GET"),
                (":path", call.path.as_str()),
                (":authority", call.host.as_str()),
                ("accept", "application/json"),
            ];
            match host::http_call(&call.cluster, headers, call.timeout) {
                Some(token) => self
                    .calls
                    .insert(token, (call.pool, Asked::Endpoints(call.id))),
                None => self.take_endpoints((&call.pool, call.id), Answer::NotSent, now),
            }
        }
    }

    /// Takes in an answer that tells endpoints; only what is new is logged.
    fn take_endpoints(&mut self, call: (&str, u32), answer: Answer<'_>, now: Timestamp) {
        let (pool, _) = call;
        match self.collector.handle_discovery(&Host, call, answer, now) {
            DiscoveryOutcome::Failed { failure, is_news } => {
                let reason = failure.reason();
                if let Some(stats) = self.stats_of(pool) {
                    stats.add(Stat::DiscoveryFailures(reason), 1);
                }
                if is_news {
                    log::warn!(
                        "picker: pool={pool} discovery failed: {failure}; the endpoints stay as \
                         they are"
                    );
                }
            }
            DiscoveryOutcome::Read(news) => {
                if news.recovered {
                    log::info!("picker: pool={pool} discovery works again");
                }
                if let Some((before, now)) = news.shrunk {
                    let held = if news.is_held {
                        "; doubted for discovery.hold"
                    } else {
                        ""
                    };
                    log::warn!("picker: pool={pool} has {now} of {before} endpoints left{held}");
                }
            }
            DiscoveryOutcome::Unlisted => {}
        }
    }

    /// Lets the host show how discovery stands.
    fn show_discoveries(&mut self, now: Timestamp) {
        let standing = self.collector.discoveries(now);
        let standing: Vec<(String, DiscoveryStatus)> =
            standing.map(|(pool, it)| (pool.to_owned(), it)).collect();
        for (pool, status) in standing {
            let Some(stats) = self.stats_of(&pool) else {
                continue;
            };
            for reason in DiscoveryFailure::REASONS {
                stats.show(Stat::DiscoveryFailures(reason));
            }
            for (stat, value) in [
                (Stat::DiscoveredEndpoints, status.endpoints as u64),
                (Stat::DiscoveryAge, status.age.as_millis()),
                (Stat::DiscoveryHeld, u64::from(status.is_held)),
            ] {
                stats.set(stat, value);
            }
        }
    }

    fn take_in(&mut self, whose: &(String, Scrape), answer: Answer<'_>, now: Timestamp) {
        let (pool, scrape) = whose;
        let endpoint = scrape.endpoint.0;
        let outcome = self
            .collector
            .handle_answer(&Host, (pool, *scrape), answer, now);
        let Some(stats) = self.stats_of(pool) else {
            return;
        };
        match outcome {
            ScrapeOutcome::Unlisted => {}
            ScrapeOutcome::Read(_) => stats.add(Stat::Scrapes, 1),
            ScrapeOutcome::Restarted => {
                stats.add(Stat::Scrapes, 1);
                stats.add(Stat::Restarts, 1);
                log::info!("picker: pool={pool} endpoint={endpoint} has restarted");
            }
            ScrapeOutcome::Failed(failure) => {
                stats.add(Stat::ScrapeFailures(failure), 1);
                if self.logged_at.is_none_or(|at| now.apart(at) >= LOG_EVERY) {
                    self.logged_at = Some(now);
                    log::warn!(
                        "picker: pool={pool} endpoint={endpoint} scrape of {:?} failed: {failure}; \
                         more of the kind are only counted for a while",
                        scrape.target
                    );
                }
            }
        }
    }

    fn stats_of(&mut self, pool: &str) -> Option<&mut Stats> {
        let known = self.stats.iter().position(|(it, _)| it == pool);
        let place = known.unwrap_or(self.stats.len());
        if known.is_none() {
            self.stats.push((pool.to_owned(), Stats::new(pool)));
        }
        self.stats.get_mut(place).map(|(_, stats)| stats)
    }
}

/// Where the scrape cluster, an `ORIGINAL_DST` one, finds the address.
const DESTINATION: &str = "x-gateway-destination-endpoint";

/// Failed scrapes are logged once in this time.
const LOG_EVERY: Span = Span::from_millis(30_000);
