//! The task that owns the engine and lets its steps take their time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::shared::Shared;
use super::stats::{Adapters, Stats};
use crate::engine::{Admission, Engine, Request, RequestId, Sample};

/// What the engine is asked to do.
pub(super) enum Command {
    /// Serve a request.
    Submit(Submission),
    /// Drop the request with this ticket; it may be gone already.
    Abort(u64),
    /// Forget the cache; answers whether it did.
    ResetCache(oneshot::Sender<bool>),
    /// Start afresh and drop all requests.
    Restart,
}

/// A request and where its tokens go.
pub(super) struct Submission {
    /// Chosen by the sender, never used again.
    pub(super) ticket: u64,
    pub(super) request: Request,
    pub(super) choice: usize,
    pub(super) adapter: Option<String>,
    /// The number of the HTTP request in the log.
    pub(super) logged: u64,
    pub(super) arrived: Instant,
    pub(super) tokens: UnboundedSender<Delta>,
}

/// A token on its way to a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delta {
    pub(super) choice: usize,
    pub(super) token: u32,
    pub(super) is_last: bool,
    /// How much of the prompt came from the cache.
    pub(super) cached_tokens: usize,
}

/// Runs the engine until nobody can send commands any more.
pub(super) async fn run(shared: Arc<Shared>, mut commands: UnboundedReceiver<Command>) {
    let mut this = EngineLoop::new(shared);
    let mut deadline = Instant::now();
    loop {
        while let Ok(command) = commands.try_recv() {
            this.handle(command);
        }
        if this.engine.is_idle() {
            this.publish();
            let Some(command) = commands.recv().await else {
                return;
            };
            this.handle(command);
            deadline = Instant::now();
            continue;
        }
        // A late timer is made up for in the next step, but not a pause.
        let earliest = Instant::now().checked_sub(CATCH_UP_MAX).unwrap_or(deadline);
        deadline = deadline.max(earliest) + this.start_step();
        tokio::task::yield_now().await;
        loop {
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => this.handle(command),
                    None => return,
                },
                () = sleep_until(deadline) => break,
            }
        }
        this.end_step();
    }
}

struct EngineLoop {
    shared: Arc<Shared>,
    engine: Engine,
    requests: HashMap<RequestId, InFlight>,
    by_ticket: HashMap<u64, RequestId>,
    /// The engine's number of each adapter that was asked for.
    adapters: HashMap<String, u32>,
    arrivals: u64,
    /// What clients learn when the running step ends.
    samples: Vec<Sample>,
    step_tokens: usize,
}

/// A request in the engine.
struct InFlight {
    submission: Submission,
    prompt_tokens: usize,
    cached_tokens: Option<usize>,
    last_token: Option<Instant>,
}

impl EngineLoop {
    fn new(shared: Arc<Shared>) -> Self {
        let engine = Engine::new(shared.options.engine());
        Self {
            shared,
            engine,
            requests: HashMap::new(),
            by_ticket: HashMap::new(),
            adapters: HashMap::new(),
            arrivals: 0,
            samples: Vec::new(),
            step_tokens: 0,
        }
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Submit(submission) => self.submit(submission),
            Command::Abort(ticket) => self.abort(ticket),
            Command::ResetCache(answer) => {
                // Nobody may be left to hear it.
                let _ = answer.send(self.engine.reset_prefix_cache());
            }
            Command::Restart => *self = Self::new(Arc::clone(&self.shared)),
        }
    }

    fn submit(&mut self, mut submission: Submission) {
        let adapter = submission.adapter.as_deref();
        let request = Request {
            arrival: self.arrivals,
            adapter: adapter.map(|name| self.adapter_number(name)),
            ..std::mem::take(&mut submission.request)
        };
        self.arrivals += 1;
        let prompt_tokens = request.prompt.len();
        let id = self.engine.add(request);
        self.by_ticket.insert(submission.ticket, id);
        let in_flight = InFlight {
            submission,
            prompt_tokens,
            cached_tokens: None,
            last_token: None,
        };
        self.requests.insert(id, in_flight);
    }

    fn adapter_number(&mut self, name: &str) -> u32 {
        let next = self.adapters.len() as u32;
        *self.adapters.entry(name.to_owned()).or_insert(next)
    }

    fn abort(&mut self, ticket: u64) {
        let Some(id) = self.by_ticket.remove(&ticket) else {
            return;
        };
        self.requests.remove(&id);
        if self.engine.abort(id) {
            self.shared.stats().aborted += 1;
        }
    }

    /// Begins a step and returns how long it takes.
    fn start_step(&mut self) -> Duration {
        let step = self.engine.step();
        let profile = &self.shared.options.profile;
        let loaded = step.work.adapters_loaded;
        let duration =
            profile.step_time.duration(&step.work) + profile.adapter_load * loaded as u32;
        self.shared.stats().adapter_loads += loaded as u64;
        self.samples.clone_from(&step.sampled);
        self.step_tokens = step.work.tokens;
        let now = Instant::now();
        for admission in &step.admitted {
            if let Some(request) = self.requests.get_mut(&admission.id) {
                admit(&self.shared, request, admission, now);
            }
        }
        self.shared.scaled(duration)
    }

    /// Tells clients and counters what the step did.
    fn end_step(&mut self) {
        let now = Instant::now();
        let shared = Arc::clone(&self.shared);
        let mut stats = shared.stats();
        stats.step_tokens.add(self.step_tokens as f64);
        for sample in std::mem::take(&mut self.samples) {
            self.deliver(&sample, &mut stats, now);
        }
        drop(stats);
        self.publish();
    }

    fn deliver(&mut self, sample: &Sample, stats: &mut Stats, now: Instant) {
        let Some(request) = self.requests.get_mut(&sample.id) else {
            return;
        };
        stats.generation_tokens += 1;
        match request.last_token.replace(now) {
            Some(before) => stats.inter_token.add_duration(now - before),
            None => {
                stats.prompt_tokens += request.prompt_tokens as u64;
                stats
                    .first_token
                    .add_duration(now - request.submission.arrived);
            }
        }
        let delta = Delta {
            choice: request.submission.choice,
            token: sample.token,
            is_last: sample.finished,
            cached_tokens: request.cached_tokens.unwrap_or_default(),
        };
        // A client that has gone says so by an abort.
        let _ = request.submission.tokens.send(delta);
        if sample.finished {
            stats.finished += 1;
            stats
                .end_to_end
                .add_duration(now - request.submission.arrived);
            self.by_ticket.remove(&request.submission.ticket);
            self.requests.remove(&sample.id);
        }
    }

    /// Shows the state of the engine on the metrics page.
    fn publish(&self) {
        let adapters = self.adapters();
        let mut stats = self.shared.stats();
        stats.running = self.engine.running();
        stats.waiting = self.engine.waiting();
        stats.kv_usage = self.engine.usage();
        stats.engine = self.engine.counters();
        stats.adapters = adapters;
    }

    fn adapters(&self) -> Adapters {
        let mut adapters = Adapters {
            running: Vec::new(),
            waiting: Vec::new(),
            at: SystemTime::now(),
        };
        for request in self.requests.values() {
            let Some(adapter) = &request.submission.adapter else {
                continue;
            };
            let is_running = request.cached_tokens.is_some();
            let list = if is_running {
                &mut adapters.running
            } else {
                &mut adapters.waiting
            };
            if !list.contains(adapter) {
                list.push(adapter.clone());
            }
        }
        adapters.running.sort_unstable();
        adapters.waiting.sort_unstable();
        adapters
    }
}

/// Counts a request's hits when it gets a place for the first time.
fn admit(shared: &Shared, request: &mut InFlight, admission: &Admission, now: Instant) {
    if request.cached_tokens.is_some() {
        return;
    }
    request.cached_tokens = Some(admission.cached_tokens);
    let mut stats = shared.stats();
    stats.prompt_tokens_admitted += request.prompt_tokens as u64;
    stats.cached_tokens += admission.cached_tokens as u64;
    stats.queue.add_duration(now - request.submission.arrived);
    drop(stats);
    shared.log().update(request.submission.logged, |entry| {
        entry.cached_tokens += admission.cached_tokens;
    });
}

/// A timer may be late by some milliseconds, and a step may be shorter than that.
const CATCH_UP_MAX: Duration = Duration::from_millis(50);
