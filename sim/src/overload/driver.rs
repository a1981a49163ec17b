//! A run in virtual time: requests in, an Envoy, servers, and what became of each request.

use std::collections::BTreeMap;
use std::time::Duration;

use picker_core::{Answered, Refusal};
use serde_json::Value;

use super::envoy::{Envoy, Looked, Reply};
use super::traffic::{Asked, Requests};
use crate::profile::Profile;
use crate::routing::dice::Dice;
use crate::routing::job::Job;
use crate::routing::policies::{Seen, TICK};
use crate::routing::wire;
use crate::virtual_server::{OutcomeKind, VirtualServer, soonest};

/// What a run begins with.
pub struct Setup {
    /// The requests.
    pub load: Load,
    /// The servers.
    pub servers: Vec<Profile>,
    /// Workers of the Envoy.
    pub workers: usize,
    /// The `EndpointPickerConfig` of its pool.
    pub picker: Value,
    /// The same seed gives the same figures.
    pub seed: u64,
}

/// When requests are sent.
pub enum Load {
    /// At these times.
    Open(Vec<(Duration, Asked)>),
    /// By so many clients, each of which sends another as soon as it has an answer, until then.
    Closed {
        /// What they ask.
        requests: Requests,
        /// How many they are.
        clients: usize,
        /// When they stop.
        until: Duration,
    },
}

/// What came of a run.
#[derive(Default)]
pub struct Outcome {
    /// The requests, in the order of their ends.
    pub records: Vec<Record>,
    /// Places in servers that requests lost for want of blocks.
    pub preemptions: u64,
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Record {
    /// How much it mattered.
    pub priority: i32,
    /// Who asked.
    pub tenant: usize,
    /// When it was asked.
    pub asked_at: Duration,
    /// When it was sent to a server.
    pub sent_at: Option<Duration>,
    /// When its client had the first token.
    pub first_token_at: Option<Duration>,
    /// When it ended.
    pub ended_at: Duration,
    /// How it ended.
    pub end: End,
    /// Tokens of the answer, had to the end or not.
    pub output_tokens: usize,
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// With the last token.
    Answered,
    /// Its client left.
    Left,
    /// The picker answered.
    Refused(Refusal),
}

/// Runs `setup` until every request has ended; `None` when its configuration cannot be read.
pub fn run(setup: Setup) -> Option<Outcome> {
    let envoy = Envoy::new(
        setup.workers,
        setup.servers.len(),
        &setup.picker,
        setup.seed,
    )?;
    let mut driver = Driver::new(envoy, &setup);
    driver.begin(setup.load);
    while driver.unfinished > 0 && driver.step() {}
    let preemptions = driver.servers.iter().map(|it| it.counters().preemptions);
    Some(Outcome {
        preemptions: preemptions.sum(),
        records: driver.records,
    })
}

struct Driver {
    envoy: Envoy,
    /// Of every worker, whether it looks again in a few milliseconds.
    ticking: Vec<bool>,
    servers: Vec<VirtualServer>,
    profiles: Vec<Profile>,
    /// Which request each ticket of a server belongs to.
    tickets: Vec<Vec<usize>>,
    dice: Dice,
    now: Duration,
    /// What happens outside of the servers, by time, then by the order in which it was planned.
    events: BTreeMap<(Duration, u64), Event>,
    events_planned: u64,
    /// What clients ask who have just had an answer, and until when.
    next: Option<(Requests, Duration)>,
    /// The requests that have come and not ended, by number.
    running: Vec<Option<Running>>,
    records: Vec<Record>,
    /// Requests that are planned or have not ended.
    unfinished: usize,
}

/// A request that has come and not ended.
struct Running {
    job: Job,
    asked: Asked,
    asked_at: Duration,
    worker: usize,
    sent_at: Option<Duration>,
    first_token_at: Option<Duration>,
    /// The server and its ticket there.
    server: Option<(usize, u64)>,
    cached_tokens: usize,
}

enum Event {
    Ask(Box<Asked>),
    /// The client of a request has waited for its first token as long as it does.
    Leave(usize),
    Scrape,
    Tick,
    /// A worker looks whose turn it is, for it was woken or, when that is said, because a few
    /// milliseconds have passed.
    Look(usize, bool),
}

impl Driver {
    fn new(envoy: Envoy, setup: &Setup) -> Self {
        Self {
            envoy,
            ticking: vec![false; setup.workers],
            servers: setup.servers.iter().map(VirtualServer::new).collect(),
            profiles: setup.servers.clone(),
            tickets: vec![Vec::new(); setup.servers.len()],
            dice: Dice::new(setup.seed, DRIVER_STREAM),
            now: Duration::ZERO,
            events: BTreeMap::new(),
            events_planned: 0,
            next: None,
            running: Vec::new(),
            records: Vec::new(),
            unfinished: 0,
        }
    }

    /// Plans what is known of at the beginning.
    fn begin(&mut self, load: Load) {
        self.plan(Duration::ZERO, Event::Scrape);
        self.plan(TICK, Event::Tick);
        match load {
            Load::Open(requests) => {
                for (at, asked) in requests {
                    self.plan_ask(at, asked);
                }
            }
            Load::Closed {
                mut requests,
                clients,
                until,
            } => {
                for (client, asked) in requests.by_ref().take(clients).enumerate() {
                    self.plan_ask(FIRST_ASKED_APART * client as u32, asked);
                }
                self.next = Some((requests, until));
            }
        }
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
            Event::Ask(asked) => self.ask(*asked),
            Event::Leave(number) => self.leave(number),
            Event::Scrape => {
                self.scrape();
                self.plan(self.now + SCRAPE_INTERVAL, Event::Scrape);
            }
            Event::Tick => {
                self.envoy.tick(self.now);
                self.plan(self.now + TICK, Event::Tick);
            }
            Event::Look(worker, is_tick) => {
                if is_tick {
                    self.ticking[worker] = false;
                    for (number, refusal) in self.envoy.expired(worker, self.now) {
                        self.end(number, End::Refused(refusal));
                    }
                }
                self.look(worker);
            }
        }
    }

    /// A worker starts what may start now, and looks again soon while something waits there.
    fn look(&mut self, worker: usize) {
        loop {
            match self.envoy.look(worker, self.now) {
                Looked::Started(number, reply) => self.follow(number, reply),
                Looked::Wakes(other) => {
                    self.plan(self.now + WAKE, Event::Look(other, false));
                    break;
                }
                Looked::Idle => break,
            }
        }
        if self.envoy.waiting(worker) > 0 && !self.ticking[worker] {
            self.ticking[worker] = true;
            self.plan(self.now + FAST_TICK, Event::Look(worker, true));
        }
    }

    fn ask(&mut self, asked: Asked) {
        let number = self.running.len();
        let job = Job::new(number as u64, asked.planned.clone());
        let worker = self.dice.below(self.ticking.len());
        let reply = self.envoy.arrive(worker, (number, &job, &asked), self.now);
        self.running.push(Some(Running {
            job,
            asked,
            asked_at: self.now,
            worker,
            sent_at: None,
            first_token_at: None,
            server: None,
            cached_tokens: 0,
        }));
        self.plan(self.now + PATIENCE, Event::Leave(number));
        self.follow(number, reply);
    }

    /// Does with a request what the Envoy says.
    fn follow(&mut self, number: usize, reply: Reply) {
        match reply {
            Reply::Waits => self.look_for(number),
            Reply::Sent(server) => self.send(number, server),
            Reply::Refused(refusal) => self.end(number, End::Refused(refusal)),
        }
    }

    /// The worker of a request that has just begun to wait looks whose turn it is.
    fn look_for(&mut self, number: usize) {
        let running = self.running.get(number).and_then(Option::as_ref);
        if let Some(worker) = running.map(|it| it.worker) {
            self.look(worker);
        }
    }

    fn send(&mut self, number: usize, server: usize) {
        let scale = 1.0 + self.dice.uniform(-FRONT_END_NOISE, FRONT_END_NOISE);
        let Some(Some(running)) = self.running.get_mut(number) else {
            return;
        };
        running.sent_at = Some(self.now);
        let request = running.job.engine_request();
        if let Some(ticket) = self.servers[server].push_scaled(self.now, request, scale) {
            running.server = Some((server, ticket));
            self.tickets[server].push(number);
        }
    }

    /// Advances one server to now.
    fn advance(&mut self, server: usize) {
        let outcomes: Vec<_> = self.servers[server].advance(self.now).collect();
        for outcome in outcomes {
            let number = self.tickets[server][outcome.ticket as usize];
            let Some(running) = &mut self.running[number] else {
                continue;
            };
            match outcome.kind {
                OutcomeKind::FirstToken { cached_tokens } => {
                    running.first_token_at = Some(outcome.at + RETURN);
                    running.cached_tokens = cached_tokens;
                    self.envoy.first_token(running.worker, number, outcome.at);
                }
                OutcomeKind::Finished => self.end(number, End::Answered),
            }
        }
    }

    fn leave(&mut self, number: usize) {
        let Some(Some(running)) = self.running.get(number) else {
            return;
        };
        if running.first_token_at.is_some() {
            return;
        }
        if let Some((server, ticket)) = running.server {
            self.servers[server].abort(ticket);
        }
        self.end(number, End::Left);
    }

    /// A request ends: the Envoy hears of it, and its client may send another.
    fn end(&mut self, number: usize, end: End) {
        let Some(running) = self.running.get_mut(number).and_then(Option::take) else {
            return;
        };
        let answered = if end == End::Answered {
            running.answered()
        } else {
            Answered::default()
        };
        self.envoy.done(running.worker, number, answered, self.now);
        self.records.push(Record {
            priority: running.asked.priority,
            tenant: running.asked.tenant,
            asked_at: running.asked_at,
            sent_at: running.sent_at,
            first_token_at: running.first_token_at,
            ended_at: self.now + RETURN,
            end,
            output_tokens: running.job.output_tokens(),
        });
        self.unfinished -= 1;
        let next = self.next.as_mut().filter(|(_, until)| self.now < *until);
        if let Some(asked) = next.and_then(|(requests, _)| requests.next()) {
            self.plan_ask(self.now + RETURN, asked);
        }
        if running.sent_at.is_some() {
            self.look(running.worker);
        }
    }

    /// The pages are as they were after the last step of each server.
    fn scrape(&mut self) {
        let page = |server: usize| {
            let profile = self.profiles.get(server)?;
            let server = self.servers.get(server)?;
            Some(wire::page(&Seen {
                gauges: server.gauges(),
                counters: server.counters(),
                blocks: (
                    u64::from(profile.blocks_reported),
                    profile.engine.block_size as u32,
                ),
                ..Seen::default()
            }))
        };
        self.envoy.scrape(page, self.now);
    }

    fn plan_ask(&mut self, at: Duration, asked: Asked) {
        self.unfinished += 1;
        self.plan(at, Event::Ask(Box::new(asked)));
    }

    fn plan(&mut self, at: Duration, event: Event) {
        self.events_planned += 1;
        self.events.insert((at, self.events_planned), event);
    }
}

impl Running {
    fn answered(&self) -> Answered {
        let tokens = |count: usize| u32::try_from(count).ok();
        Answered {
            output_tokens: tokens(self.job.output_tokens()),
            prompt_tokens: tokens(self.job.prompt.len()),
            cached_tokens: tokens(self.cached_tokens),
        }
    }
}

/// How long a client waits for its first token, before it leaves.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Between two readings of all pages, the picker's default.
const SCRAPE_INTERVAL: Duration = Duration::from_millis(100);

/// Between the first requests of the clients of a closed loop.
const FIRST_ASKED_APART: Duration = Duration::from_millis(3);

/// After which a worker that something waits in looks again.
const FAST_TICK: Duration = Duration::from_millis(4);

/// What it takes to wake another worker.
const WAKE: Duration = Duration::from_micros(500);

/// The way back from a server to its client.
const RETURN: Duration = Duration::from_millis(2);

/// By what fraction the time in a front end varies, so that runs do not fall into step.
const FRONT_END_NOISE: f64 = 0.03;

/// Which random numbers of a seed are the driver's.
const DRIVER_STREAM: u64 = 6;
