//! Workers in virtual time, each step of which is compared with the twin.

use picker_core::{
    Answered, Arrived, Asking, Band, Draws, EndpointId, Fairness, Ledger, LocalData, Pick, Pool,
    Refusal, Request, SharedData, Snapshot, Span, Ticket, Timestamp, Turn, WaitId, ledger_key,
    publish,
};

use crate::rules::{POOL, Rules, WEIGHTS, request};
use crate::twin::{Twin, Waiter, rank};

/// Workers over one shared data.
pub(crate) struct House {
    shared: LocalData,
    pub(crate) draws: Draws,
    now: Timestamp,
    snapshot: Snapshot,
    pub(crate) workers: Vec<Worker>,
    /// One to which nothing comes, and that sees all.
    observer: Pool,
    twin: Twin,
    running: Vec<Running>,
    ticked_at: Timestamp,
    /// Until when a worker that died may still be counted.
    unsure_until: Timestamp,
    owners: u64,
    pub(crate) ends: Ends,
}

/// One configuration in one worker.
pub(crate) struct Worker {
    pool: Pool,
    draws: Draws,
    owner: u64,
    rules: Rules,
    /// Whether requests come to it, for no later one has taken over.
    takes: bool,
    requests: Vec<(WaitId, Request)>,
}

/// A request on its way.
struct Running {
    owner: u64,
    endpoint: EndpointId,
    ticket: Ticket,
    /// What its tokens are counted for.
    counted: Option<String>,
}

/// What has become of all requests.
#[derive(Default, Debug)]
pub(crate) struct Ends {
    pub(crate) came: usize,
    pub(crate) sent: usize,
    pub(crate) started: usize,
    pub(crate) refused: usize,
    pub(crate) expired: usize,
    pub(crate) closed: usize,
    pub(crate) left: usize,
    pub(crate) lost: usize,
}

impl House {
    /// `workers` that keep the same rules, with some endpoints.
    pub(crate) fn new(workers: usize, seed: u64) -> Self {
        let mut draws = Draws::new(seed);
        let (now, rules) = (Timestamp(1_796_000_000_000_000), Rules::drawn(&mut draws));
        let observer = Rules::of_all_bands().options();
        let mut house = Self {
            shared: LocalData::default(),
            draws,
            now,
            snapshot: Snapshot::unknown([]),
            workers: Vec::new(),
            observer: Pool::new(observer, Snapshot::unknown([]), 1_000_000),
            twin: Twin::default(),
            running: Vec::new(),
            ticked_at: now,
            unsure_until: now,
            owners: 0,
            ends: Ends::default(),
        };
        house.change_endpoints();
        (0..workers).for_each(|_| house.start_worker(rules.clone()));
        house
    }

    /// Something happens.
    pub(crate) fn step(&mut self) {
        let worker = self.draws.below(self.workers.len() as u32) as usize;
        match self.draws.below(100) {
            0..40 => self.arrive(worker),
            40..60 => self.end_one(),
            60..68 => self.leave(worker),
            68..71 => self.change_endpoints(),
            71..73 => self.change_rules(worker),
            73 if self.draws.below(8) == 0 => self.die(worker),
            _ => self.wait(),
        }
        if self.is_unsure() {
            self.wait();
        }
        self.run_turns();
        self.compare_counts();
    }

    /// Whether a worker that died may still be counted.
    fn is_unsure(&self) -> bool {
        self.now <= self.unsure_until
    }

    fn start_worker(&mut self, rules: Rules) {
        self.owners += 1;
        let owner = self.owners;
        self.workers.push(Worker {
            pool: Pool::new(rules.options(), self.snapshot.clone(), owner),
            draws: Draws::new(owner),
            owner,
            rules,
            takes: true,
            requests: Vec::new(),
        });
    }

    fn arrive(&mut self, place: usize) {
        let (request, bytes) = (request(&mut self.draws), self.draws.below(100).into());
        let received_at = Timestamp(self.now.0 - u64::from(self.draws.below(5000)));
        let expected = self.expected(place, &request, bytes);
        let (is_unsure, worker) = (self.is_unsure(), &mut self.workers[place]);
        if !worker.takes {
            return;
        }
        self.ends.came += 1;
        let asked = (&request, Asking { bytes, received_at });
        let draws = &mut worker.draws;
        let arrived = worker.pool.arrive(&self.shared, asked, draws, self.now);
        let found = match &arrived {
            Ok(Arrived::Sent(_)) => Expected::Sent,
            Ok(Arrived::Waits(_)) => Expected::Waits,
            Err(refusal) => Expected::Refused(*refusal),
        };
        assert!(
            is_unsure || found == expected,
            "{found:?} for {expected:?}: {:?} {:?} {:?} {:?} {:?} {:?}",
            self.twin.saturation(&worker.rules),
            worker.rules,
            self.twin.ready,
            self.twin.running,
            request,
            self.now.since(self.unsure_until)
        );
        match arrived {
            Ok(Arrived::Sent(pick)) => {
                self.ends.sent += 1;
                self.sent(place, &request, pick);
            }
            Ok(Arrived::Waits(id)) => self.waits(place, (id, request), (bytes, received_at)),
            Err(_) => self.ends.refused += 1,
        }
    }

    fn expected(&self, place: usize, request: &Request, bytes: u64) -> Expected {
        let rules = &self.workers[place].rules;
        let band = rules.flow.band_of(request.priority);
        if self.twin.waiting.is_empty() && self.twin.has_room(rules, band) {
            return Expected::Sent;
        }
        if self.twin.may_wait(rules, band, bytes) {
            return Expected::Waits;
        }
        Expected::Refused(if self.twin.ready.is_empty() {
            Refusal::QueueFullWithoutEndpoint
        } else {
            Refusal::QueueFull
        })
    }

    fn waits(
        &mut self,
        place: usize,
        (id, request): (WaitId, Request),
        (bytes, received_at): (u64, Timestamp),
    ) {
        let Worker {
            owner,
            rules,
            requests,
            ..
        } = &mut self.workers[place];
        let band_place = rules.flow.band_of(request.priority);
        assert!(self.twin.may_wait(rules, band_place, bytes), "a full queue");
        let band = rules.flow.bands[band_place];
        let ttl = if self.twin.ready.is_empty() {
            rules.flow.no_endpoint_ttl
        } else {
            rules.flow.request_ttl
        };
        let ttft = request.headers.first().map(|(_, millis)| {
            let millis = millis.parse().expect("a number");
            Span::from_millis(millis)
        });
        self.twin.waiting.push(Waiter {
            owner: *owner,
            id,
            priority: band.priority,
            flow: flow_of(&request),
            bytes,
            rank: rank(&band, (received_at, self.now), (ttl, ttft)),
            queued_at: self.now,
        });
        requests.push((id, request));
    }

    fn sent(&mut self, place: usize, request: &Request, pick: Pick) {
        let Worker { rules, owner, .. } = &self.workers[place];
        let Band { fairness, .. } = rules.flow.bands[rules.flow.band_of(request.priority)];
        let is_counted = matches!(fairness, Fairness::ProgramAware(_));
        let there = self
            .running
            .iter()
            .filter(|it| it.endpoint == pick.endpoint);
        let cap = rules.cap.map_or(usize::MAX, |it| it as usize);
        assert!(there.count() < cap, "more than an endpoint may have");
        assert!(self.twin.ready.contains(&pick.endpoint), "it is not ready");
        self.running.push(Running {
            owner: *owner,
            endpoint: pick.endpoint,
            ticket: pick.ticket,
            counted: is_counted.then(|| flow_of(request)),
        });
        self.twin.running.push(pick.endpoint);
    }

    fn end_one(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let place = self.draws.below(self.running.len() as u32) as usize;
        let mut running = self.running.remove(place);
        self.twin.running.remove(place);
        let (prompt, output) = (self.draws.below(300), self.draws.below(300));
        let answered = Answered {
            prompt_tokens: Some(prompt),
            output_tokens: Some(output),
            ..Answered::default()
        };
        let worker = self.worker_of(running.owner);
        let (shared, now) = (&self.shared, self.now);
        let pool = &mut self.workers[worker].pool;
        pool.on_done(shared, &mut running.ticket, answered, now);
        // Should it end too many at once, the others are told with the next tick.
        pool.tick(shared, now);
        if let Some(flow) = running.counted {
            let tokens = f64::from(prompt + 2 * output);
            self.twin.attain(&flow, tokens, &WEIGHTS, now);
        }
    }

    fn worker_of(&self, owner: u64) -> usize {
        let mut all = self.workers.iter();
        all.position(|it| it.owner == owner).expect("it lives")
    }

    fn leave(&mut self, place: usize) {
        let worker = &mut self.workers[place];
        if worker.requests.is_empty() {
            return;
        }
        let leaver = self.draws.below(worker.requests.len() as u32) as usize;
        let (id, request) = worker.requests.remove(leaver);
        worker.pool.leave(&self.shared, id, self.now);
        self.twin.take(worker.owner, id).expect("it waits");
        self.ends.left += 1;
        let draws = &mut worker.draws;
        let started = worker
            .pool
            .start(&self.shared, (id, &request), draws, self.now);
        assert!(started.is_err(), "who left is started");
    }

    /// Endpoints come, go, and get ready or not.
    fn change_endpoints(&mut self) {
        for _ in 0..=self.draws.below(3) {
            let number = self.snapshot.endpoints.len() as u32;
            match self.draws.below(4) {
                0 | 1 if number < 4 => {
                    let address = format!("10.0.0.{}:80", self.snapshot.next_id);
                    self.snapshot.add(address.parse().expect("an address"));
                }
                2 if number > 0 => {
                    let gone = self.draws.below(number) as usize;
                    self.snapshot.endpoints.remove(gone);
                }
                _ if number > 0 => {
                    let changed = self.draws.below(number) as usize;
                    let endpoint = &mut self.snapshot.endpoints[changed];
                    endpoint.reachable = !endpoint.reachable;
                }
                _ => {}
            }
        }
        publish(&self.shared, POOL, &self.snapshot);
        let ready = self.snapshot.endpoints.iter().filter(|it| it.reachable);
        let ready: Vec<EndpointId> = ready.map(|it| it.id).collect();
        // Workers look again after this long.
        self.now = self.now.after(Span::from_millis(10));
        if ready.is_empty() != self.twin.ready.is_empty() {
            self.twin.since = self.now;
        }
        self.twin.ready = ready;
        self.tick();
        self.expire();
    }

    /// A worker is configured anew; that it was closes, or goes on until nothing waits in it.
    fn change_rules(&mut self, place: usize) {
        if !self.workers[place].takes {
            return;
        }
        let rules = if self.draws.below(2) == 0 {
            Rules::drawn(&mut self.draws)
        } else {
            self.workers
                .last()
                .expect("there are workers")
                .rules
                .clone()
        };
        self.start_worker(rules);
        let old = &mut self.workers[place];
        old.takes = false;
        if self.draws.below(2) == 0 {
            let mut closed = old.pool.close(&self.shared, self.now);
            closed.sort_unstable_by_key(|(id, _)| *id);
            let mut expected: Vec<_> = old.requests.iter().map(|(id, _)| *id).collect();
            expected.sort_unstable();
            let expected = expected.into_iter().map(|id| (id, Refusal::ShuttingDown));
            assert_eq!(closed, Vec::from_iter(expected));
            self.ends.closed += old.requests.len();
            old.requests.clear();
            let owner = old.owner;
            self.twin.waiting.retain(|it| it.owner != owner);
        }
    }

    /// A worker is gone with all that it had.
    fn die(&mut self, place: usize) {
        if self.workers.len() < 2 {
            return;
        }
        let Worker {
            owner,
            rules,
            takes,
            requests,
            ..
        } = self.workers.remove(place);
        self.ends.lost += requests.len();
        self.twin.waiting.retain(|it| it.owner != owner);
        let mut running = self.running.iter();
        self.twin
            .running
            .retain(|_| running.next().is_some_and(|it| it.owner != owner));
        self.running.retain(|it| it.owner != owner);
        self.unsure_until = self.now.after(Span::from_millis(2000));
        if takes {
            self.start_worker(rules);
        }
    }

    /// Time passes.
    fn wait(&mut self) {
        let longest = if self.is_unsure() { 90_000 } else { 20_000 };
        self.now = self.now.after(Span(self.draws.below(longest).into()));
        if self.now.since(self.ticked_at) >= Span::from_millis(100) {
            self.tick();
        }
        self.expire();
        let (running, twin) = (&self.running, &self.twin);
        self.workers.retain(|it| {
            let runs = running.iter().any(|run| run.owner == it.owner);
            let waits = twin.waiting.iter().any(|waiter| waiter.owner == it.owner);
            it.takes || runs || waits
        });
    }

    fn tick(&mut self) {
        self.ticked_at = self.now;
        for worker in &mut self.workers {
            worker.pool.tick(&self.shared, self.now);
        }
        self.observer.tick(&self.shared, self.now);
    }

    fn expire(&mut self) {
        for worker in &mut self.workers {
            let mut expected = self.twin.expired(worker.owner, &worker.rules, self.now);
            let mut found = worker.pool.expired(&self.shared, self.now);
            expected.sort_unstable_by_key(|(id, _)| *id);
            found.sort_unstable_by_key(|(id, _)| *id);
            assert_eq!(found, expected);
            for (id, _) in found {
                self.twin.take(worker.owner, id);
                worker.requests.retain(|(it, _)| *it != id);
                self.ends.expired += 1;
            }
        }
    }

    /// Workers ask whose turn it is until nobody is started any more.
    fn run_turns(&mut self) {
        loop {
            let before = self.ends.started;
            let first = self.draws.below(self.workers.len() as u32) as usize;
            for place in 0..self.workers.len() {
                let place = (first + place) % self.workers.len();
                while self.turn(place) {}
            }
            if self.ends.started == before {
                break;
            }
        }
        if self.is_unsure() {
            return;
        }
        let mut all = self.workers.iter();
        let is_common = all.all(|it| it.rules == self.workers[0].rules);
        for Worker { rules, owner, .. } in &self.workers {
            let next = self.twin.next(rules, self.now);
            // One of another worker may have less room by the rules of that.
            let is_own = is_common || next.iter().all(|it| it.owner == *owner);
            assert!(
                next.is_empty() || !is_own,
                "there is room, and {next:?} waits"
            );
        }
    }

    /// A worker asks whose turn it is; whether it starts somebody.
    fn turn(&mut self, place: usize) -> bool {
        let is_unsure = self.is_unsure();
        let Worker {
            pool, owner, rules, ..
        } = &mut self.workers[place];
        let (next, owner) = (self.twin.next(rules, self.now), *owner);
        let turn = pool.turn(&self.shared, self.now);
        match turn {
            Turn::Mine(id) => {
                let is_next = next.iter().any(|it| (it.owner, it.id) == (owner, id));
                assert!(is_unsure || is_next, "{id:?} of {owner}, not {next:?}");
                self.start(place, id);
                return true;
            }
            Turn::Of(slot) if !is_unsure => {
                let slots = next.iter().map(|it| self.worker_of(it.owner));
                let mut slots = slots.map(|it| self.workers[it].pool.slot());
                assert!(slots.any(|it| it == Some(slot)), "{slot}, not {next:?}");
            }
            Turn::Of(_) => {}
            Turn::Nobody => {
                let is_own = next.iter().all(|it| it.owner == owner) && !next.is_empty();
                assert!(is_unsure || !is_own, "nobody instead of {next:?}");
            }
        }
        false
    }

    fn start(&mut self, place: usize, id: WaitId) {
        let worker = &mut self.workers[place];
        let mut requests = worker.requests.iter();
        let at = requests.position(|(it, _)| *it == id).expect("it waits");
        let (_, request) = worker.requests.remove(at);
        let draws = &mut worker.draws;
        let asked = (id, &request);
        let started = worker.pool.start(&self.shared, asked, draws, self.now);
        let pick = started.ok().flatten().expect("it is its turn");
        let band = worker.rules.flow.band_of(request.priority);
        assert!(self.twin.has_room(&worker.rules, band), "there is no room");
        self.twin.serve(worker.owner, id);
        self.ends.started += 1;
        self.sent(place, &request, pick);
    }

    /// What workers say of all that waits and runs is so.
    fn compare_counts(&mut self) {
        let (twin, now) = (&self.twin, self.now);
        for worker in &self.workers {
            let own = twin.waiting.iter().filter(|it| it.owner == worker.owner);
            assert_eq!(worker.pool.waiting(), own.count());
        }
        let waiting = self.ends.came - self.ends.gone();
        assert_eq!(twin.waiting.len(), waiting, "{:?}", self.ends);
        if self.is_unsure() {
            return;
        }
        self.observer.turn(&self.shared, now);
        for (priority, found) in self.observer.waiting_by_band(now) {
            let numbers = (found.requests, found.bytes);
            assert_eq!(numbers, twin.waiting(Some(priority)), "{priority}");
            assert_eq!(found.since, twin.waiting_since(priority), "{priority}");
        }
        let mut bytes = Vec::new();
        self.shared.get(&ledger_key(POOL), &mut bytes);
        let ledger = Ledger::decode(&bytes);
        for id in (1..self.snapshot.next_id).map(EndpointId) {
            let running = twin.running.iter().filter(|it| **it == id).count();
            assert_eq!(ledger.total(id, now).requests as usize, running, "{id:?}");
        }
    }
}

impl Ends {
    /// Those that wait no more.
    fn gone(&self) -> usize {
        self.sent + self.started + self.refused + self.expired + self.closed + self.left + self.lost
    }
}

/// What becomes of a request that comes.
#[derive(PartialEq, Debug)]
enum Expected {
    Sent,
    Waits,
    Refused(Refusal),
}

fn flow_of(request: &Request) -> String {
    let name = request.fairness_id.as_deref();
    name.unwrap_or("default-flow").into()
}
