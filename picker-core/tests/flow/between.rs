//! Other workers do something between what one reads and what it writes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use picker_core::{
    Answered, Arrived, Asking, Capacity, Draws, EndpointId, Ledger, LocalData, Pick, Pool, Refusal,
    Request, SharedData, Snapshot, Span, Timestamp, Turn, Version, WaitId, ledger_key,
};

use crate::rules::{POOL, Rules, request};

/// A worker with its requests.
struct Worker {
    pool: Pool,
    draws: Draws,
    waiting: Vec<(WaitId, Request, u64)>,
    running: Vec<Pick>,
    /// Requests that came, and those that were refused, left or have ended.
    came: usize,
    gone: usize,
}

/// Shared data in which others do something after some readings.
struct Between<'a> {
    data: &'a LocalData,
    others: Vec<Rc<RefCell<Worker>>>,
    draws: RefCell<Draws>,
    now: Timestamp,
    /// Times that others have come between.
    count: Cell<usize>,
}

impl SharedData for Between<'_> {
    fn get(&self, key: &str, value: &mut Vec<u8>) -> Version {
        let version = self.data.get(key, value);
        let mut draws = self.draws.borrow_mut();
        if draws.below(3) == 0 && self.count.get() < COUNT_MAX {
            self.count.set(self.count.get() + 1);
            let other = &self.others[draws.below(self.others.len() as u32) as usize];
            step(&mut other.borrow_mut(), self.data, self.now);
        }
        version
    }

    fn set_if(&self, key: &str, value: &[u8], version: Version) -> bool {
        self.data.set_if(key, value, version)
    }

    fn set(&self, key: &str, value: &[u8]) {
        self.data.set(key, value);
    }
}

/// A worker does something.
fn step(worker: &mut Worker, shared: &impl SharedData, now: Timestamp) {
    match worker.draws.below(10) {
        0..4 => arrive(worker, shared, now),
        4..6 => end_one(worker, shared, now),
        6 => leave(worker, shared, now),
        _ => while start_next(worker, shared, now) {},
    }
}

fn arrive(worker: &mut Worker, shared: &impl SharedData, now: Timestamp) {
    let request = request(&mut worker.draws);
    let bytes = worker.draws.below(60).into();
    let received_at = now;
    let asked = (&request, Asking { bytes, received_at });
    worker.came += 1;
    match worker.pool.arrive(shared, asked, &mut worker.draws, now) {
        Ok(Arrived::Sent(pick)) => worker.running.push(pick),
        Ok(Arrived::Waits(id)) => worker.waiting.push((id, request, bytes)),
        Err(refusal) => {
            assert_eq!(refusal, Refusal::QueueFull);
            worker.gone += 1;
        }
    }
}

fn end_one(worker: &mut Worker, shared: &impl SharedData, now: Timestamp) {
    let Some(mut pick) = worker.running.pop() else {
        return;
    };
    let (ticket, answered) = (&mut pick.ticket, Answered::default());
    worker.pool.on_done(shared, ticket, answered, now);
    worker.gone += 1;
}

fn leave(worker: &mut Worker, shared: &impl SharedData, now: Timestamp) {
    if let Some((id, _, _)) = worker.waiting.pop() {
        worker.pool.leave(shared, id, now);
        worker.gone += 1;
    }
}

/// Starts whom it finds to be next; whether there is one here and room for it.
fn start_next(worker: &mut Worker, shared: &impl SharedData, now: Timestamp) -> bool {
    let Turn::Mine(id) = worker.pool.turn(shared, now) else {
        return false;
    };
    let mut waiting = worker.waiting.iter();
    let place = waiting.position(|(it, _, _)| *it == id).expect("it waits");
    let asked = (id, &worker.waiting[place].1);
    match worker.pool.start(shared, asked, &mut worker.draws, now) {
        Ok(Some(pick)) => {
            worker.waiting.remove(place);
            worker.running.push(pick);
            true
        }
        Ok(None) => false,
        Err(refusal) => panic!("{refusal:?}"),
    }
}

/// Workers that keep the same rules, with three endpoints, while nobody waits too long.
struct Crowd {
    data: LocalData,
    workers: Vec<Rc<RefCell<Worker>>>,
    rules: Rules,
    now: Timestamp,
}

impl Crowd {
    fn new(workers: u64, draws: &mut Draws) -> Self {
        let mut rules = Rules::drawn(draws);
        rules.flow.request_ttl = None;
        let addresses = || ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"].map(|it| it.parse());
        let addresses = || addresses().into_iter().flatten();
        let worker = |owner| {
            let snapshot = Snapshot::unknown(addresses());
            Rc::new(RefCell::new(Worker {
                pool: Pool::new(rules.options(), snapshot, owner),
                draws: Draws::new(owner),
                waiting: Vec::new(),
                running: Vec::new(),
                came: 0,
                gone: 0,
            }))
        };
        Self {
            data: LocalData::default(),
            workers: (1..=workers).map(worker).collect(),
            rules: rules.clone(),
            now: Timestamp(1_796_000_000_000_000),
        }
    }

    /// One of them does something, and others while it does; how often they came between.
    fn step(&mut self, draws: &mut Draws) -> usize {
        self.now = self.now.after(Span(draws.below(3000).into()));
        let mut others = self.workers.clone();
        let one = others.swap_remove(draws.below(others.len() as u32) as usize);
        let between = Between {
            data: &self.data,
            others,
            draws: RefCell::new(draws.clone()),
            now: self.now,
            count: Cell::new(0),
        };
        step(&mut one.borrow_mut(), &between, self.now);
        let count = between.count.get();
        *draws = between.draws.into_inner();
        self.look_after();
        count
    }

    /// What workers do every few milliseconds.
    fn look_after(&mut self) {
        for worker in &self.workers {
            let pool = &mut worker.borrow_mut().pool;
            assert_eq!(pool.expired(&self.data, self.now), []);
            pool.tick(&self.data, self.now);
        }
    }

    fn sum(&self, of: impl Fn(&Worker) -> usize) -> usize {
        self.workers.iter().map(|it| of(&it.borrow())).sum()
    }

    fn compare(&self) {
        let known = self.sum(|it| it.waiting.len() + it.running.len() + it.gone);
        assert_eq!(known, self.sum(|it| it.came), "somebody is lost");
        self.compare_running();
        self.compare_waiting();
    }

    /// Nobody has more than may be, and what is counted is what runs.
    fn compare_running(&self) {
        let mut bytes = Vec::new();
        self.data.get(&ledger_key(POOL), &mut bytes);
        let ledger = Ledger::decode(&bytes);
        for id in (1..=3).map(EndpointId) {
            let there = |it: &Worker| it.running.iter().filter(|it| it.endpoint == id).count();
            let running = self.sum(there);
            assert_eq!(ledger.total(id, self.now).requests as usize, running);
            assert!(self.rules.cap.is_none_or(|cap| running <= cap as usize));
        }
        let running = self.sum(|it| it.running.len());
        assert!(running <= 3 * self.rules.limit as usize, "{running} run");
    }

    /// Nothing waits that may not, and what is shown is what waits.
    fn compare_waiting(&self) {
        let flow = &self.rules.flow;
        let mut total = (0, 0);
        let mut worker = self.workers[0].borrow_mut();
        worker.pool.turn(&self.data, self.now);
        let shown = worker.pool.waiting_by_band(self.now);
        drop(worker);
        for (place, (band, shown)) in flow.bands.iter().zip(shown).enumerate() {
            let is_here = |it: &&(WaitId, Request, u64)| flow.band_of(it.1.priority) == place;
            let requests = self.sum(|it| it.waiting.iter().filter(is_here).count());
            let bytes = |it: &Worker| -> u64 {
                let here = it.waiting.iter().filter(is_here);
                here.map(|(_, _, bytes)| bytes).sum()
            };
            let found = (requests as u64, self.sum(|it| bytes(it) as usize) as u64);
            assert_eq!((shown.1.requests, shown.1.bytes), found);
            assert_within(band.capacity, found);
            total = (total.0 + found.0, total.1 + found.1);
        }
        assert_within(flow.capacity, total);
    }

    /// Until nobody is started any more; then there is room for nobody, or nobody waits.
    fn run_turns(&mut self) {
        let mut started = true;
        while std::mem::take(&mut started) {
            for worker in &self.workers {
                let mut worker = worker.borrow_mut();
                while start_next(&mut worker, &self.data, self.now) {
                    started = true;
                }
            }
        }
    }

    /// All that runs ends, until nothing waits any more.
    fn drain(&mut self) {
        while self.sum(|it| it.waiting.len() + it.running.len()) > 0 {
            for worker in &self.workers {
                while !worker.borrow().running.is_empty() {
                    end_one(&mut worker.borrow_mut(), &self.data, self.now);
                }
            }
            self.now = self.now.after(Span::from_millis(4));
            self.look_after();
            let waiting = self.sum(|it| it.waiting.len());
            self.run_turns();
            self.compare();
            let started = waiting - self.sum(|it| it.waiting.len());
            assert!(started > 0 || waiting == 0, "{waiting} wait for ever");
        }
    }
}

fn assert_within(capacity: Capacity, (requests, bytes): (u64, u64)) {
    assert!(requests <= capacity.requests, "{requests} in {capacity:?}");
    assert!(bytes <= capacity.bytes, "{bytes} bytes in {capacity:?}");
}

#[test]
fn what_others_do_in_between_exceeds_no_limit_and_loses_nobody() {
    let mut between = 0;
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let mut draws = Draws::new(seed);
        let mut crowd = Crowd::new(2 + seed % 2, &mut draws);
        for number in 0..STEPS {
            between += crowd.step(&mut draws);
            crowd.compare();
            if number % 50 == 0 {
                crowd.drain();
            }
        }
        crowd.drain();
    }
    assert!(between > 5000, "{between}");
}

const SEEDS: u64 = 40;

const STEPS: usize = 200;

/// Times that others come between during one step; a worker does not try for ever.
const COUNT_MAX: usize = 12;
