//! One Envoy: the picker's own code, a pool for each worker, and shared data between them.
//!
//! All calls of the picker are in this file.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use picker_core::{
    Answered, Arrived, Asking, Draws, LocalData, Pick, Pool, PoolOptions, Refusal, Request,
    Scraper, Shape, Snapshot, Ticket, Turn, Verdict, WaitId,
};
use serde_json::Value;

use super::traffic::Asked;
use crate::routing::dice::Dice;
use crate::routing::job::Job;
use crate::routing::wire;

/// One Envoy.
pub struct Envoy {
    shared: LocalData,
    scraper: Scraper,
    workers: Vec<Worker>,
}

/// A worker and its requests, by the numbers that the simulation gives them.
struct Worker {
    pool: Pool,
    draws: Draws,
    /// Those on their way.
    tickets: HashMap<usize, Ticket>,
    /// Those that wait, and by what the pool calls them.
    waiting: HashMap<usize, WaitId>,
    held: BTreeMap<WaitId, (usize, Request)>,
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reply {
    /// It goes to this server.
    Sent(usize),
    /// It waits.
    Waits,
    /// It is answered by the picker.
    Refused(Refusal),
}

/// What came of a look at whose turn it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Looked {
    /// This request does not wait any more.
    Started(usize, Reply),
    /// It is the turn of a request in another worker, which is to be woken.
    Wakes(usize),
    /// Nothing can be done now.
    Idle,
}

impl Envoy {
    /// An Envoy in front of so many servers, with a `picker` for its pool; `None` when that cannot be
    /// read.
    pub fn new(workers: usize, servers: usize, picker: &Value, seed: u64) -> Option<Self> {
        let servers: Vec<usize> = (0..servers).collect();
        let config = wire::config(&servers, Some(picker))?;
        let snapshot = Snapshot::unknown(config.endpoints.iter().map(|it| it.address));
        let mut dice = Dice::new(seed, ENVOY_STREAM);
        let worker = |owner| Worker {
            pool: Pool::new(PoolOptions::of(&config, None), snapshot.clone(), owner),
            draws: Draws::new(dice.number()),
            tickets: HashMap::new(),
            waiting: HashMap::new(),
            held: BTreeMap::new(),
        };
        Some(Self {
            workers: (1..=workers as u64).map(worker).collect(),
            shared: LocalData::default(),
            scraper: Scraper::new(config, None),
        })
    }

    /// Request `number` comes to a worker.
    pub fn arrive(
        &mut self,
        worker: usize,
        (number, job, asked): (usize, &Job, &Asked),
        now: Duration,
    ) -> Reply {
        let Some(worker) = self.workers.get_mut(worker) else {
            return Reply::Refused(Refusal::NoEndpoint);
        };
        let request = request(job, asked);
        let now = wire::timestamp(now);
        let asking = Asking {
            bytes: request.prompts.iter().map(|it| it.bytes).sum(),
            received_at: now,
        };
        let (pool, draws) = (&mut worker.pool, &mut worker.draws);
        match pool.arrive(&self.shared, (&request, asking), draws, now) {
            Ok(Arrived::Sent(pick)) => worker.sent(number, pick),
            Ok(Arrived::Waits(id)) => {
                worker.waiting.insert(number, id);
                worker.held.insert(id, (number, request));
                Reply::Waits
            }
            Err(refusal) => Reply::Refused(refusal),
        }
    }

    /// A worker looks whose turn it is, and starts its request when it is one of its own.
    pub fn look(&mut self, number: usize, now: Duration) -> Looked {
        let slots: Vec<Option<u8>> = self.workers.iter().map(|it| it.pool.slot()).collect();
        let Some(worker) = self.workers.get_mut(number) else {
            return Looked::Idle;
        };
        let now = wire::timestamp(now);
        match worker.pool.turn(&self.shared, now) {
            Turn::Nobody => Looked::Idle,
            Turn::Of(slot) => {
                let place = slots.iter().position(|it| *it == Some(slot));
                place.map_or(Looked::Idle, Looked::Wakes)
            }
            Turn::Mine(id) => {
                let Some((number, request)) = worker.held.get(&id) else {
                    return Looked::Idle;
                };
                let number = *number;
                let (pool, draws) = (&mut worker.pool, &mut worker.draws);
                match pool.start(&self.shared, (id, request), draws, now) {
                    Ok(None) => Looked::Idle,
                    Ok(Some(pick)) => {
                        worker.let_go(id);
                        Looked::Started(number, worker.sent(number, pick))
                    }
                    Err(refusal) => {
                        worker.let_go(id);
                        Looked::Started(number, Reply::Refused(refusal))
                    }
                }
            }
        }
    }

    /// The requests of a worker that have waited too long, each with what it is answered.
    pub fn expired(&mut self, worker: usize, now: Duration) -> Vec<(usize, Refusal)> {
        let Some(worker) = self.workers.get_mut(worker) else {
            return Vec::new();
        };
        let expired = worker.pool.expired(&self.shared, wire::timestamp(now));
        let number = |(id, refusal)| Some((worker.let_go(id)?, refusal));
        expired.into_iter().filter_map(number).collect()
    }

    /// How many requests wait in a worker.
    pub fn waiting(&self, worker: usize) -> usize {
        self.workers.get(worker).map_or(0, |it| it.pool.waiting())
    }

    /// The first token of a request came.
    pub fn first_token(&mut self, worker: usize, number: usize, now: Duration) {
        if let Some(worker) = self.workers.get_mut(worker)
            && let Some(ticket) = worker.tickets.get_mut(&number)
        {
            let now = wire::timestamp(now);
            worker
                .pool
                .on_verdict(&self.shared, ticket, Verdict::Served, now);
            worker.pool.on_first_byte(&self.shared, ticket, now);
        }
    }

    /// A request has ended, whether it was sent or left while it waited.
    pub fn done(&mut self, worker: usize, number: usize, answered: Answered, now: Duration) {
        let Some(worker) = self.workers.get_mut(worker) else {
            return;
        };
        let now = wire::timestamp(now);
        if let Some(mut ticket) = worker.tickets.remove(&number) {
            let pool = &mut worker.pool;
            pool.on_done(&self.shared, &mut ticket, answered, now);
        }
        if let Some(id) = worker.waiting.get(&number).copied() {
            worker.let_go(id);
            worker.pool.leave(&self.shared, id, now);
        }
    }

    /// The collector reads the pages of all servers.
    pub fn scrape(&mut self, page: impl Fn(usize) -> Option<String>, now: Duration) {
        wire::scrape(&mut self.scraper, &self.shared, page, now);
        self.scraper.publish(&self.shared, true);
    }

    /// A tenth of a second has passed.
    pub fn tick(&mut self, now: Duration) {
        for worker in &mut self.workers {
            worker.pool.tick(&self.shared, wire::timestamp(now));
        }
    }
}

impl Worker {
    /// Keeps what is to be given back for a request that is sent.
    fn sent(&mut self, number: usize, pick: Pick) -> Reply {
        let address = pick.destinations.first().copied();
        self.tickets.insert(number, pick.ticket);
        let server = address.and_then(wire::pod_at);
        server.map_or(Reply::Refused(Refusal::NoEndpoint), Reply::Sent)
    }

    /// Forgets a request that does not wait any more; its number.
    fn let_go(&mut self, id: WaitId) -> Option<usize> {
        let (number, _) = self.held.remove(&id)?;
        self.waiting.remove(&number);
        Some(number)
    }
}

fn request(job: &Job, asked: &Asked) -> Request {
    Request {
        shape: Some(Shape::ChatCompletions),
        priority: asked.priority,
        fairness_id: Some(format!("tenant-{}", asked.tenant)),
        ..wire::request(job)
    }
}

/// Which random numbers of a seed are the workers'.
const ENVOY_STREAM: u64 = 5;
