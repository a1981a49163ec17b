//! One server in virtual time: arrivals go in, first and last tokens come out.
//!
//! Nothing sleeps and nothing is read from a clock. A caller that drives several servers advances
//! whichever has the earliest [`next_event`](VirtualServer::next_event).

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::engine::{Counters, Engine, Request, RequestId};
use crate::profile::Profile;
use crate::step_time::StepTime;

/// A simulated server whose time is what its caller says it is.
///
/// All times are counted from the start of the simulation.
pub struct VirtualServer {
    engine: Engine,
    step_time: StepTime,
    adapter_load: Duration,
    front_end: FrontEnd,
    /// Requests in the front end, by the time they reach the engine, then by arrival.
    arriving: BTreeMap<(Duration, u64), Request>,
    arrivals: u64,
    in_engine: HashMap<RequestId, InEngine>,
    /// When the running step ends, if one runs.
    step_end: Option<Duration>,
    /// What the running step will have done by then.
    upcoming: Vec<Outcome>,
    outcomes: Vec<Outcome>,
    gauges: Gauges,
}

/// The time a request spends before the engine sees it: parsing and tokenizing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FrontEnd {
    /// Any request, in milliseconds.
    pub base_ms: f64,
    /// More for every request that the server holds already, in milliseconds.
    pub per_request_ms: f64,
}

impl FrontEnd {
    /// The delay of a request that finds `held` others.
    pub fn delay(&self, held: usize) -> Duration {
        let millis = self.base_ms + self.per_request_ms * held as f64;
        Duration::from_nanos((millis * 1e6) as u64)
    }
}

/// When something happens next, and at which of `servers`; `None` there for what is planned outside
/// of them for `planned`, which comes after what servers do at the same time.
pub fn soonest(
    servers: &[VirtualServer],
    planned: Option<Duration>,
) -> Option<(Duration, Option<usize>)> {
    let events = servers.iter().enumerate();
    let events = events.filter_map(|(server, it)| Some((it.next_event()?, server)));
    match (events.min(), planned) {
        (Some((at, server)), planned) if planned.is_none_or(|planned| at <= planned) => {
            Some((at, Some(server)))
        }
        (_, planned) => planned.map(|at| (at, None)),
    }
}

/// Something that a caller may want to know about one of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The number that [`VirtualServer::push`] gave the request.
    pub ticket: u64,
    /// When it happened.
    pub at: Duration,
    /// What happened.
    pub kind: OutcomeKind,
}

/// What can happen to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeKind {
    /// The first token came; `cached_tokens` of the prompt were found in the cache.
    FirstToken {
        /// Counted at the first admission.
        cached_tokens: usize,
    },
    /// The last token came. A request of one token has this right after its first.
    Finished,
}

/// What the metrics page of the server shows: the state after the last step that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Requests that run.
    pub running: usize,
    /// Requests that wait in the engine.
    pub waiting: usize,
    /// Share of blocks held by requests, `0..=1`.
    pub kv_usage: f64,
}

impl VirtualServer {
    /// A server with an empty cache.
    pub fn new(profile: &Profile) -> Self {
        Self {
            engine: Engine::new(profile.engine.clone()),
            step_time: profile.step_time,
            adapter_load: profile.adapter_load,
            front_end: profile.front_end,
            arriving: BTreeMap::new(),
            arrivals: 0,
            in_engine: HashMap::new(),
            step_end: None,
            upcoming: Vec::new(),
            outcomes: Vec::new(),
            gauges: Gauges::default(),
        }
    }

    /// Accepts a request at `at`, and returns the ticket that its outcomes will carry.
    ///
    /// `None` when it is longer than anything the server can ever hold. The caller advances the
    /// server to `at` first.
    pub fn push(&mut self, at: Duration, request: Request) -> Option<u64> {
        self.push_scaled(at, request, 1.0)
    }

    /// Does the same for a request whose time in the front end is `scale` times the usual one.
    pub fn push_scaled(&mut self, at: Duration, request: Request, scale: f64) -> Option<u64> {
        if request.prompt.len() + request.output.len().max(1) > self.engine.tokens_max() {
            return None;
        }
        let ticket = self.arrivals;
        self.arrivals += 1;
        let delay = self
            .front_end
            .delay(self.engine.running() + self.engine.waiting());
        let delay = delay.mul_f64(scale);
        self.arriving.insert((at + delay, ticket), request);
        Some(ticket)
    }

    /// Lives through everything up to and including `until`; the outcomes are in order of time.
    pub fn advance(&mut self, until: Duration) -> std::vec::Drain<'_, Outcome> {
        while let Some(at) = self.next_event().filter(|&at| at <= until) {
            if self.step_end == Some(at) {
                self.end_step();
            }
            self.admit_arrivals(at);
            if self.step_end.is_none() && !self.engine.is_idle() {
                self.start_step(at);
            }
        }
        self.outcomes.drain(..)
    }

    /// Drops a request whose client left, with what the running step would have done for it.
    ///
    /// Nothing happens to one that has finished.
    pub fn abort(&mut self, ticket: u64) {
        self.arriving.retain(|(_, other), _| *other != ticket);
        self.upcoming.retain(|outcome| outcome.ticket != ticket);
        let mut held = self.in_engine.iter();
        let held = held.find(|(_, request)| request.ticket == ticket);
        if let Some(id) = held.map(|(id, _)| *id) {
            self.in_engine.remove(&id);
            self.engine.abort(id);
        }
    }

    /// When something happens next; `None` when the server has nothing to do.
    pub fn next_event(&self) -> Option<Duration> {
        let arrival = self.arriving.first_key_value().map(|it| it.0.0);
        [self.step_end, arrival].into_iter().flatten().min()
    }

    /// What the metrics page shows now.
    pub fn gauges(&self) -> Gauges {
        self.gauges
    }

    /// The state at this moment, the running step's requests and those that came meanwhile included.
    ///
    /// A page shows these only after the step, when most of those that waited have a place.
    pub fn gauges_now(&self) -> Gauges {
        Gauges {
            running: self.engine.running(),
            waiting: self.engine.waiting(),
            kv_usage: self.engine.usage(),
        }
    }

    /// How many leading tokens of a prompt the cache holds now, those of the running step included.
    pub fn cached_tokens(&self, prompt: &[u32], root: u64) -> usize {
        self.engine.cached_tokens(prompt, root)
    }

    /// The LoRA adapters of the requests that run.
    pub fn adapters(&self) -> Vec<u32> {
        self.engine.adapters_running()
    }

    /// The counters of the metrics page.
    pub fn counters(&self) -> Counters {
        self.engine.counters()
    }

    /// Moves the requests that have passed the front end into the engine.
    fn admit_arrivals(&mut self, now: Duration) {
        while let Some(arrival) = self.arriving.first_entry().filter(|it| it.key().0 <= now) {
            let ((_, ticket), request) = arrival.remove_entry();
            let id = self.engine.add(Request {
                arrival: ticket,
                ..request
            });
            self.in_engine.insert(
                id,
                InEngine {
                    ticket,
                    cached_tokens: None,
                    tokens: 0,
                },
            );
        }
    }

    fn start_step(&mut self, now: Duration) {
        let step = self.engine.step();
        for admission in &step.admitted {
            if let Some(request) = self.in_engine.get_mut(&admission.id) {
                request.cached_tokens.get_or_insert(admission.cached_tokens);
            }
        }
        let loading = self.adapter_load * step.work.adapters_loaded as u32;
        let at = now + self.step_time.duration(&step.work) + loading;
        for sample in &step.sampled {
            let Some(request) = self.in_engine.get_mut(&sample.id) else {
                continue;
            };
            let ticket = request.ticket;
            request.tokens += 1;
            if request.tokens == 1 {
                let cached_tokens = request.cached_tokens.unwrap_or_default();
                let kind = OutcomeKind::FirstToken { cached_tokens };
                self.upcoming.push(Outcome { ticket, at, kind });
            }
            if sample.finished {
                self.in_engine.remove(&sample.id);
                self.upcoming.push(Outcome {
                    ticket,
                    at,
                    kind: OutcomeKind::Finished,
                });
            }
        }
        self.step_end = Some(at);
    }

    fn end_step(&mut self) {
        self.step_end = None;
        self.outcomes.append(&mut self.upcoming);
        self.gauges = self.gauges_now();
    }
}

/// A request that has passed the front end.
struct InEngine {
    ticket: u64,
    cached_tokens: Option<usize>,
    tokens: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(prompt: std::ops::Range<u32>, output: u32) -> Request {
        Request {
            prompt: prompt.collect(),
            output: (0..output).collect(),
            ..Request::default()
        }
    }

    /// Pushes requests at their times, and tells every outcome in tenths of a millisecond.
    fn check(requests: Vec<(u64, Request)>, expected: &[&str]) {
        let mut server = VirtualServer::new(&Profile::l4());
        let mut seen = Vec::new();
        let mut tell = |outcome: Outcome| {
            let tenths = outcome.at.as_micros() / 100;
            seen.push(match outcome.kind {
                OutcomeKind::FirstToken { cached_tokens } => {
                    format!("{tenths} {} first, {cached_tokens} cached", outcome.ticket)
                }
                OutcomeKind::Finished => format!("{tenths} {} finished", outcome.ticket),
            });
        };
        for (at, request) in requests {
            let at = Duration::from_millis(at);
            server.advance(at).for_each(&mut tell);
            assert!(server.push(at, request).is_some());
        }
        while let Some(at) = server.next_event() {
            server.advance(at).for_each(&mut tell);
        }
        assert_eq!(seen, expected);
        assert_eq!(server.gauges(), Gauges::default());
        assert!(server.in_engine.is_empty());
    }

    #[test]
    fn a_request_passes_the_front_end_the_prefill_and_each_decode_step() {
        // 16 ms; 5.19 + 0.2766 + 0.0203 · (100 + 0.95) + 7 · 0.00568; then two decode steps.
        check(
            vec![(0, request(0..100, 3))],
            &["235 0 first, 0 cached", "345 0 finished"],
        );
    }

    #[test]
    fn a_request_that_arrives_during_a_step_waits_for_its_end() {
        let requests = vec![(0, request(0..1000, 1)), (5, request(0..1000, 1))];
        check(
            requests,
            &[
                "440 0 first, 0 cached",
                "440 0 finished",
                "500 1 first, 992 cached",
                "500 1 finished",
            ],
        );
    }

    #[test]
    fn a_request_whose_client_left_takes_no_more_time_and_no_room() {
        let mut server = VirtualServer::new(&Profile::l4());
        let tickets: Vec<u64> = (0..3)
            .filter_map(|it| server.push(Duration::ZERO, request(it * 100..it * 100 + 100, 3)))
            .collect();
        // In the front end, then while its first token is computed.
        server.abort(tickets[0]);
        assert!(server.advance(Duration::from_millis(20)).next().is_none());
        server.abort(tickets[1]);
        let outcomes = server.advance(Duration::from_secs(1));
        let told: Vec<u64> = outcomes.map(|it| it.ticket).collect();
        assert_eq!(told, [tickets[2]; 2]);
        server.abort(tickets[2]);
        assert_eq!(server.gauges(), Gauges::default());
        assert!(server.in_engine.is_empty());
    }

    #[test]
    fn a_request_that_can_never_fit_is_not_accepted() {
        let mut server = VirtualServer::new(&Profile::l4());
        let tokens_max = server.engine.tokens_max() as u32;
        assert_eq!(server.push(Duration::ZERO, request(0..tokens_max, 1)), None);
        assert_eq!(
            server.push(Duration::ZERO, request(1..tokens_max, 1)),
            Some(0)
        );
    }

    /// Serves one request for each of `adapters`, all sent at once, and tells when each was done.
    fn done(adapters: &[u32]) -> Vec<(u64, u64)> {
        let mut profile = Profile::l4();
        profile.engine.max_adapters = 2;
        profile.adapter_load = Duration::from_millis(80);
        let mut server = VirtualServer::new(&profile);
        for (number, &adapter) in adapters.iter().enumerate() {
            let number = number as u32;
            let request = Request {
                adapter: Some(adapter),
                ..request(number * 100..(number + 1) * 100, 2)
            };
            server.push(Duration::ZERO, request);
        }
        let outcomes = server.advance(Duration::from_secs(10));
        let finished = outcomes.filter(|it| it.kind == OutcomeKind::Finished);
        finished
            .map(|it| (it.ticket, it.at.as_millis() as u64))
            .collect()
    }

    #[test]
    fn an_adapter_that_is_not_in_memory_is_loaded_first() {
        assert_eq!(done(&[1]), [(0, 109)]);
        assert_eq!(done(&[1, 2]), [(0, 191), (1, 191)]);
        assert_eq!(done(&[1, 1]), [(0, 111), (1, 111)]);
    }

    #[test]
    fn a_request_whose_adapter_has_no_place_lets_others_pass() {
        let order = |adapters: &[u32]| -> Vec<u64> {
            done(adapters).iter().map(|finished| finished.0).collect()
        };
        assert_eq!(order(&[1, 2, 3, 1]), [0, 1, 3, 2]);
    }

    #[test]
    fn what_the_cache_holds_is_what_an_admission_finds() {
        let mut server = VirtualServer::new(&Profile::l4());
        let prompt = |own: u32| [(0..200).collect(), vec![own; 40]].concat();
        let push = |server: &mut VirtualServer, at: u64, own: u32| {
            let request = Request {
                prompt: prompt(own),
                ..request(0..1, 3)
            };
            server.push(Duration::from_secs(at), request);
            let outcomes = server.advance(Duration::from_secs(at + 1));
            let cached = outcomes.filter_map(|it| match it.kind {
                OutcomeKind::FirstToken { cached_tokens } => Some(cached_tokens),
                OutcomeKind::Finished => None,
            });
            cached.collect::<Vec<_>>()
        };
        for (at, own, expected) in [(0, 1000, 0), (1, 1001, 192), (2, 1000, 224)] {
            assert_eq!(server.cached_tokens(&prompt(own), 0), expected, "{own}");
            assert_eq!(server.cached_tokens(&prompt(own), 1), 0);
            assert_eq!(push(&mut server, at, own), [expected], "{own}");
        }
    }
}
