//! One run in virtual time: requests in, servers, routers, and what is measured.

use std::collections::BTreeMap;
use std::time::Duration;

use picker_core::Features;

use super::dice::Dice;
use super::job::{Job, Planned};
use super::policies::{Fleet, Policy, Seen, TICK};
use super::scenario::{Change, Setup};
use super::summary::{Record, Summary};
use super::workload::Workload;
use crate::profile::Profile;
use crate::virtual_server::{Outcome, OutcomeKind, VirtualServer, soonest};

/// Runs `setup` to its end behind the routers that `start` makes, each from a seed of its own.
pub fn run(setup: Setup, start: &dyn Fn(u64) -> Box<dyn Policy>, seed: u64) -> Summary {
    let mut driver = Driver::new(setup, start, seed);
    driver.run();
    driver.summary()
}

/// Does the same, and gives every request in the order of their ends.
pub fn records(setup: Setup, start: &dyn Fn(u64) -> Box<dyn Policy>, seed: u64) -> Vec<Record> {
    let mut driver = Driver::new(setup, start, seed);
    driver.run();
    driver.records
}

struct Driver {
    workload: Workload,
    scrape_interval: Duration,
    changes: Vec<(Duration, Change)>,
    poison: Vec<Planned>,
    herded: u64,
    dice: Dice,
    now: Duration,
    /// What happens outside of the servers, by time, then by the order in which it was planned.
    events: BTreeMap<(Duration, u64), Event>,
    events_planned: u64,
    servers: Vec<VirtualServer>,
    profiles: Vec<Profile>,
    /// Which request each ticket of a server belongs to.
    tickets: Vec<Vec<usize>>,
    outcomes: Vec<Outcome>,
    listed: Vec<usize>,
    routers: Vec<Router>,
    running: Vec<Option<Running>>,
    records: Vec<Record>,
    sent: u64,
    /// Requests that are planned or on their way.
    unfinished: usize,
    refused: usize,
}

/// An Envoy, or another proxy.
struct Router {
    policy: Box<dyn Policy>,
    seen: Vec<Seen>,
}

/// A request on its way.
struct Running {
    job: Job,
    router: usize,
    pod: usize,
    arrival: Duration,
    first_token: Duration,
    cached_tokens: usize,
    missing_tokens: usize,
    known: Features,
}

enum Event {
    Send(Box<Planned>),
    Scrape(usize),
    Tick,
    Change(Change),
}

impl Driver {
    fn new(setup: Setup, start: &dyn Fn(u64) -> Box<dyn Policy>, seed: u64) -> Self {
        let routers = (0..setup.envoys.max(1)).map(|router| Router {
            policy: start(seed.wrapping_mul(ROUTERS) + router as u64),
            seen: Vec::new(),
        });
        let mut driver = Self {
            routers: routers.collect(),
            workload: setup.workload,
            scrape_interval: setup.scrape_interval,
            changes: setup.changes,
            poison: setup.poison,
            herded: setup.herded as u64,
            dice: Dice::new(seed, DRIVER_STREAM),
            now: Duration::ZERO,
            events: BTreeMap::new(),
            events_planned: 0,
            servers: Vec::new(),
            profiles: Vec::new(),
            tickets: Vec::new(),
            outcomes: Vec::new(),
            listed: Vec::new(),
            running: Vec::new(),
            records: Vec::new(),
            sent: 0,
            unfinished: 0,
            refused: 0,
        };
        for profile in setup.pods {
            driver.add_pod(profile);
        }
        driver
    }

    /// Lets the routers see requests that the servers do not have in their caches.
    ///
    /// They were served in turn by all pods before these were started again.
    fn poison(&mut self) {
        (0..self.routers.len()).for_each(|router| self.scrape(router));
        for (number, planned) in std::mem::take(&mut self.poison).into_iter().enumerate() {
            let job = Job::new(POISON_IDS + number as u64, planned);
            let pod = self.listed[number % self.listed.len()];
            let routers = self.routers.len();
            let router = &mut self.routers[number % routers];
            let fleet = Fleet {
                now: self.now,
                listed: &self.listed,
                candidates: &[pod],
                pods: &router.seen,
                servers: &self.servers,
            };
            router.policy.choose(&job, &fleet);
            router.policy.placed(&job, pod, &fleet);
            router.policy.first_token(&job, pod, self.now);
            router.policy.done(&job, pod, None, self.now);
        }
    }

    fn run(&mut self) {
        self.poison();
        for router in 0..self.routers.len() {
            // Envoys are not started at the same moment: their scrapes are spread over an interval.
            let offset = self.scrape_interval * router as u32 / self.routers.len() as u32;
            self.plan(offset, Event::Scrape(router));
        }
        self.plan(TICK, Event::Tick);
        for (at, change) in std::mem::take(&mut self.changes) {
            self.plan(at, Event::Change(change));
        }
        for (at, planned) in self.workload.initial() {
            self.unfinished += 1;
            self.plan(at, Event::Send(Box::new(planned)));
        }
        while self.unfinished > 0 && self.step() {}
    }

    /// Lives through whatever happens next; false when nothing does.
    fn step(&mut self) -> bool {
        let planned = self.events.first_key_value().map(|it| it.0.0);
        let Some((at, server)) = soonest(&self.servers, planned) else {
            return false;
        };
        self.now = at;
        if let Some(server) = server {
            self.advance(server);
        } else if let Some((_, event)) = self.events.pop_first() {
            self.handle(event);
        }
        true
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Send(planned) => self.send(*planned),
            Event::Scrape(router) => {
                self.scrape(router);
                self.plan(self.now + self.scrape_interval, Event::Scrape(router));
            }
            Event::Tick => {
                for router in &mut self.routers {
                    router.policy.tick(self.now);
                }
                self.plan(self.now + TICK, Event::Tick);
            }
            Event::Change(Change::Remove(pod)) => {
                self.listed.retain(|&listed| listed != pod);
                self.observe_all();
            }
            Event::Change(Change::Add(profile)) => {
                self.add_pod(*profile);
                self.observe_all();
            }
        }
    }

    fn send(&mut self, planned: Planned) {
        let job = Job::new(self.sent, planned);
        self.sent += 1;
        let number = self.dice.below(self.routers.len());
        let router = &mut self.routers[number];
        let is_herded = self.sent <= self.herded;
        let candidates = if is_herded {
            &self.listed[..1]
        } else {
            &self.listed
        };
        let fleet = Fleet {
            now: self.now,
            listed: &self.listed,
            candidates,
            pods: &router.seen,
            servers: &self.servers,
        };
        let pod = router.policy.choose(&job, &fleet);
        let matched_tokens = router.policy.matched_tokens(&job, pod, &fleet);
        let known = router.seen[pod].features(&job, matched_tokens);
        let missing_tokens = job.prompt.len().saturating_sub(matched_tokens);
        router.policy.placed(&job, pod, &fleet);
        let seen = &mut router.seen[pod];
        seen.in_flight += 1;
        seen.prefill_tokens += missing_tokens;
        let scale = 1.0 + self.dice.uniform(-FRONT_END_NOISE, FRONT_END_NOISE);
        let pushed = self.servers[pod].push_scaled(self.now, job.engine_request(), scale);
        let running = Running {
            job,
            router: number,
            pod,
            arrival: self.now,
            first_token: self.now,
            cached_tokens: 0,
            missing_tokens,
            known,
        };
        if pushed.is_some() {
            self.tickets[pod].push(self.running.len());
            self.running.push(Some(running));
        } else {
            self.refused += 1;
            self.let_go(running);
        }
    }

    /// Advances one server to now.
    fn advance(&mut self, pod: usize) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        outcomes.extend(self.servers[pod].advance(self.now));
        for outcome in outcomes.drain(..) {
            let index = self.tickets[pod][outcome.ticket as usize];
            let Some(running) = &mut self.running[index] else {
                continue;
            };
            match outcome.kind {
                OutcomeKind::FirstToken { cached_tokens } => {
                    running.first_token = outcome.at;
                    running.cached_tokens = cached_tokens;
                    let router = &mut self.routers[running.router];
                    router.policy.first_token(&running.job, pod, outcome.at);
                    router.seen[pod].prefill_tokens -= running.missing_tokens;
                }
                OutcomeKind::Finished => {
                    let Some(running) = self.running[index].take() else {
                        continue;
                    };
                    self.records.push(Record {
                        arrival: running.arrival,
                        first_token: running.first_token + RETURN,
                        done: running.now_done(outcome.at),
                        prompt_tokens: running.job.prompt.len(),
                        output_tokens: running.job.output_tokens(),
                        cached_tokens: running.cached_tokens,
                        pod,
                        known: running.known,
                    });
                    self.let_go(running);
                }
            }
        }
        self.outcomes = outcomes;
    }

    /// A request is finished: its router hears of it, and its client may send another.
    fn let_go(&mut self, running: Running) {
        let router = &mut self.routers[running.router];
        let cached = Some(running.cached_tokens);
        router.seen[running.pod].in_flight -= 1;
        router
            .policy
            .done(&running.job, running.pod, cached, self.now);
        self.unfinished -= 1;
        if let Some((after, planned)) = self.workload.next(running.job.planned.connection) {
            self.unfinished += 1;
            self.plan(self.now + RETURN + after, Event::Send(Box::new(planned)));
        }
    }

    fn scrape(&mut self, number: usize) {
        let adapters: Vec<Vec<u32>> = self.servers.iter().map(VirtualServer::adapters).collect();
        let router = &mut self.routers[number];
        for (((seen, server), profile), adapters) in router
            .seen
            .iter_mut()
            .zip(&self.servers)
            .zip(&self.profiles)
            .zip(adapters)
        {
            seen.scraped_at = Some(self.now);
            // Fresher than any page, in favour of routers that go by queues.
            seen.gauges = server.gauges_now();
            seen.counters = server.counters();
            seen.adapters = adapters;
            seen.adapters_max = profile.engine.max_adapters;
        }
        self.observe(number);
    }

    fn observe_all(&mut self) {
        (0..self.routers.len()).for_each(|router| self.observe(router));
    }

    fn observe(&mut self, number: usize) {
        let router = &mut self.routers[number];
        router.policy.observe(&Fleet {
            now: self.now,
            listed: &self.listed,
            candidates: &self.listed,
            pods: &router.seen,
            servers: &self.servers,
        });
    }

    fn add_pod(&mut self, profile: Profile) {
        self.listed.push(self.servers.len());
        self.servers.push(VirtualServer::new(&profile));
        self.tickets.push(Vec::new());
        for router in &mut self.routers {
            router.seen.push(Seen {
                started: self.now,
                blocks: (
                    u64::from(profile.blocks_reported),
                    profile.engine.block_size as u32,
                ),
                ..Seen::default()
            });
        }
        self.profiles.push(profile);
    }

    fn plan(&mut self, at: Duration, event: Event) {
        self.events_planned += 1;
        self.events.insert((at, self.events_planned), event);
    }

    fn summary(&self) -> Summary {
        let preemptions = self.servers.iter().map(|it| it.counters().preemptions);
        let mut summary = Summary::of(&self.records, self.servers.len());
        summary.preemptions = preemptions.sum();
        summary.refused = self.refused;
        summary
    }
}

impl Running {
    /// When the client has the last token that left the server at `at`.
    fn now_done(&self, at: Duration) -> Duration {
        at.max(self.first_token) + RETURN
    }
}

/// The way back from a server to its client.
const RETURN: Duration = Duration::from_millis(2);

/// By what fraction the time in the front end varies, so that runs do not fall into step.
const FRONT_END_NOISE: f64 = 0.03;

/// Routers a run may have, for the seeds of their random numbers.
const ROUTERS: u64 = 64;

/// The numbers of requests that were before all others begin here.
const POISON_IDS: u64 = 1 << 40;

/// Which random numbers of a seed are the driver's.
const DRIVER_STREAM: u64 = 2;
