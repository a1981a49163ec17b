//! A small Envoy without Envoy: workers, two roots that may collect, servers that always answer,
//! and a clock that a test can set.

use picker_core::{
    Affirmed, Answer, Answered, BlockHash, Collector, Draws, Eagerness, Lease, LocalData,
    PERIOD_MAX, Pick, Pool, PoolConfig, PoolOptions, Prompt, Request, Role, Snapshot, Span, Ticket,
    Timestamp, affirm, generation, lease_length, page, parse_config,
};
use serde_json::Value;

/// Everything that shares one shared data.
pub(crate) struct World {
    pub(crate) shared: LocalData,
    pub(crate) now: Timestamp,
    pub(crate) workers: Vec<Worker>,
    roots: Vec<Root>,
    /// Addresses that answer no scrape.
    pub(crate) silent: Vec<String>,
}

/// One worker and its requests in flight.
pub(crate) struct Worker {
    pub(crate) pool: Pool,
    draws: Draws,
    configured_at: Timestamp,
    document: String,
    in_flight: Vec<Ticket>,
    prompts: u64,
}

/// A root that collects while it holds the lease.
struct Root {
    eagerness: Eagerness,
    lease: Lease,
    collector: Collector,
    is_alive: bool,
}

impl World {
    /// Two workers with three endpoints, started one after the other in `shared`.
    pub(crate) fn new(shared: LocalData) -> Self {
        let root = |number, eagerness| Root {
            eagerness,
            lease: Lease::new(number, lease_length(PERIOD_MAX)),
            collector: Collector::default(),
            is_alive: true,
        };
        let mut world = Self {
            shared,
            now: Timestamp(1_800_000_000_000_000),
            workers: Vec::new(),
            roots: vec![root(71, Eagerness::Service), root(72, Eagerness::Busy)],
            silent: Vec::new(),
        };
        world.start_worker(1, &HOSTS);
        world.start_worker(2, &HOSTS);
        world
    }

    /// A worker configured now for the endpoints at `hosts`.
    pub(crate) fn start_worker(&mut self, owner: u64, hosts: &[u8]) {
        let config = config(hosts);
        let options = PoolOptions::of(&config, None);
        let addresses = config.endpoints.iter().map(|endpoint| endpoint.address);
        self.workers.push(Worker {
            pool: Pool::new(options, Snapshot::unknown(addresses), owner),
            draws: Draws::new(owner),
            configured_at: self.now,
            document: config.to_document(),
            in_flight: Vec::new(),
            prompts: 0,
        });
    }

    /// Lets the root that collects die.
    pub(crate) fn kill_collector(&mut self) {
        let holder = self.roots.iter_mut().find(|root| root.lease.is_held());
        holder.expect("a root collects").is_alive = false;
    }

    /// Lets `span` pass in ticks of 100 ms. Every worker ends what it has in flight and sends one
    /// request at each; each must be picked.
    pub(crate) fn run(&mut self, span: Span) {
        let ticks = span.0 / PERIOD_MAX.0;
        for _ in 0..ticks {
            self.now = self.now.after(PERIOD_MAX);
            for worker in &mut self.workers {
                worker.tick(&self.shared, self.now);
                worker.end_all(&self.shared, self.now);
                worker.prompts += 1;
                let prompt = request(worker.prompts % 5);
                let pick = worker.pick(&self.shared, &prompt, self.now);
                worker.in_flight.push(pick.ticket);
            }
            let silent = &self.silent;
            for root in self.roots.iter_mut().filter(|root| root.is_alive) {
                root.tick(&self.shared, self.now, silent);
            }
        }
    }

    /// Ends all requests in flight.
    pub(crate) fn end_all(&mut self) {
        for worker in &mut self.workers {
            worker.end_all(&self.shared, self.now);
        }
    }

    /// Lets the newest worker send the request `seed` and end it.
    pub(crate) fn place(&mut self, seed: u64) -> Pick {
        let worker = self.workers.last_mut().expect("there are workers");
        worker.pool.tick(&self.shared, self.now);
        let pick = worker.pick(&self.shared, &request(seed), self.now);
        worker.in_flight.push(pick.ticket.clone());
        worker.end_all(&self.shared, self.now);
        pick
    }

    /// Checks that nothing is wrong: the pool is known and scraped, somebody collects, nothing
    /// stays in flight, and what one worker places every other finds, a newcomer too.
    #[track_caller]
    pub(crate) fn assert_healthy(&mut self, what: &str) {
        self.assert_collecting(what);
        let state = self.state();
        assert_eq!(state["collector"]["held"], true, "{what}: {state:#}");
        let endpoints = state["pools"][0]["endpoints"].as_array();
        let endpoints = endpoints.unwrap_or_else(|| panic!("{what}: no pool: {state:#}"));
        assert_eq!(endpoints.len(), HOSTS.len(), "{what}: {state:#}");
        for endpoint in endpoints {
            assert_eq!(endpoint["fresh"], true, "{what}: {state:#}");
            let age = endpoint["age_ms"].as_u64();
            assert!(age.is_some_and(|age| age <= 200), "{what}: {state:#}");
        }
        self.end_all();
        let state = self.state();
        for endpoint in state["pools"][0]["endpoints"]
            .as_array()
            .into_iter()
            .flatten()
        {
            assert_eq!(endpoint["in_flight"], 0, "{what}: {state:#}");
        }
        self.assert_common_memory(what);
    }

    #[track_caller]
    fn assert_common_memory(&mut self, what: &str) {
        let (shared, now) = (&self.shared, self.now);
        let prompt = request(1_000_000 + now.0);
        let mut homes = Vec::new();
        for (number, worker) in self.workers.iter_mut().enumerate() {
            let pick = worker.pick(shared, &prompt, now);
            let matched = if number == 0 { 0 } else { pick.blocks };
            assert_eq!(pick.matched, matched, "{what}: worker {number}");
            homes.push(pick.endpoint);
            worker.in_flight.push(pick.ticket);
            worker.end_all(shared, now);
        }
        // In two seconds every twin is written for those who come late.
        self.run(Span::from_millis(2100));
        let before = self.workers.len();
        self.start_worker(9, &HOSTS);
        let mut newcomer = self.workers.remove(before);
        newcomer.tick(&self.shared, self.now);
        let pick = newcomer.pick(&self.shared, &prompt, self.now);
        assert_eq!(pick.matched, pick.blocks, "{what}: a newcomer");
        homes.push(pick.endpoint);
        newcomer.in_flight.push(pick.ticket);
        newcomer.end_all(&self.shared, self.now);
        let same = homes.iter().all(|home| *home == homes[0]);
        assert!(same, "{what}: {homes:?}");
    }

    /// What the page of the picker says.
    pub(crate) fn state(&self) -> Value {
        serde_json::from_str(&page::state(&self.shared, self.now)).expect("the page is JSON")
    }

    /// How many endpoints the page shows.
    pub(crate) fn endpoints(&self) -> Option<usize> {
        let state = self.state();
        state["pools"][0]["endpoints"].as_array().map(Vec::len)
    }

    /// Checks that metrics are published in each of the next three ticks.
    #[track_caller]
    pub(crate) fn assert_collecting(&mut self, what: &str) {
        let before = generation(&self.shared, "llm");
        self.run(Span::from_millis(300));
        let published = generation(&self.shared, "llm") - before;
        assert!(published >= 3, "{what}: {published} in 300 ms");
    }
}

impl Worker {
    fn tick(&mut self, shared: &LocalData, now: Timestamp) {
        self.configured_at = self.configured_at.min(now);
        self.affirm(shared, now);
        self.pool.tick(shared, now);
    }

    /// Tells the pool's configuration.
    pub(crate) fn affirm(&self, shared: &LocalData, now: Timestamp) -> Affirmed {
        affirm(shared, "llm", &self.document, self.configured_at, now)
    }

    /// Picks for `request`, which must be possible.
    pub(crate) fn pick(&mut self, shared: &LocalData, request: &Request, now: Timestamp) -> Pick {
        let pick = self.pool.pick(shared, request, &mut self.draws, now);
        pick.expect("a request was refused")
    }

    fn end_all(&mut self, shared: &LocalData, now: Timestamp) {
        for mut ticket in self.in_flight.drain(..) {
            self.pool
                .on_done(shared, &mut ticket, Answered::default(), now);
        }
    }
}

impl Root {
    fn tick(&mut self, shared: &LocalData, now: Timestamp, silent: &[String]) {
        if !self.lease.try_hold(shared, self.eagerness, now) {
            self.collector = Collector::default();
            return;
        }
        self.collector.tick(shared, now);
        while let Some(scrape) = self.collector.poll_scrape(shared, now) {
            let whose = (scrape.pool.as_str(), scrape.scrape);
            if !silent.contains(&scrape.scrape.address.to_string()) {
                let answer = Answer::Response {
                    status: 200,
                    body: PAGE.as_bytes(),
                };
                self.collector.handle_answer(shared, whose, answer, now);
            }
        }
    }
}

/// A request of 20 blocks that are links of the chain `seed`.
pub(crate) fn request(seed: u64) -> Request {
    let blocks: Vec<BlockHash> = (0..20)
        .map(|block| BlockHash(seed.wrapping_mul(1_000_003).wrapping_add(block)))
        .collect();
    Request {
        prompts: vec![Prompt {
            bytes: 20 * 256,
            blocks,
        }],
        ..Request::bodiless()
    }
}

fn config(hosts: &[u8]) -> PoolConfig {
    let endpoints = hosts.iter();
    let endpoints: Vec<String> = endpoints
        .map(|host| format!(r#"{{"address":"10.0.0.{host}:8000"}}"#))
        .collect();
    let endpoints = endpoints.join(",");
    let json = format!(r#"{{"pools":[{{"name":"llm","endpoints":[{endpoints}]}}]}}"#);
    match parse_config(json.as_bytes()) {
        Ok(Role::Filter(mut config)) => config.pools.remove(0),
        other => panic!("{other:?}"),
    }
}

/// The last parts of the addresses of the endpoints.
pub(crate) const HOSTS: [u8; 3] = [1, 2, 3];

const PAGE: &str = "vllm:num_requests_running{engine=\"0\"} 0.0\n\
    vllm:num_requests_waiting{engine=\"0\"} 0.0\n\
    vllm:kv_cache_usage_perc{engine=\"0\"} 0.0\n\
    process_start_time_seconds 1.0\n";
