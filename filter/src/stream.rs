//! One request and its response.

use std::cell::RefCell;
use std::rc::Rc;

use picker_core::{Arrived, Asking, Course, Destination, Refusal, Request, Shape, Stat, Timestamp};
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use crate::heads::{asked, read_head};
use crate::host::{self, HeaderMap, Headers, Host};
use crate::reading::{Encoding, Read, Reading, Unread};
use crate::sent::{Sender, Sent};
use crate::waiting::{Settled, Waiting};
use crate::worker::Worker;

/// One request and its response.
pub(crate) struct Stream {
    worker: Rc<RefCell<Worker>>,
    /// The number by which the host knows it.
    context: u32,
    phase: Phase,
    /// The headers that plans ask for, until the decision.
    asked: Vec<(String, String)>,
    /// Whether only an endpoint that holds some of the prompt is to answer.
    only_cached: bool,
    /// When its headers came.
    received_at: Timestamp,
}

enum Phase {
    /// Not ours, not yet or not any more.
    Passing,
    /// The headers are held while the body comes. Boxed, for most streams are in another phase most
    /// of the time.
    Reading(Box<Reading>),
    /// All of it is held until it is its turn.
    Waiting(Rc<RefCell<Waiting>>),
    /// Counted for an endpoint of the pool until it ends.
    Sent(Box<Sent>),
}

impl Stream {
    pub(crate) fn new(worker: Rc<RefCell<Worker>>, context: u32) -> Self {
        Self {
            worker,
            context,
            phase: Phase::Passing,
            asked: Vec::new(),
            only_cached: false,
            received_at: Timestamp(0),
        }
    }
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _: usize, ends: bool) -> Action {
        #[cfg(feature = "test-build")]
        crate::test_hooks::on_request();
        let headers = HeaderMap::of(Headers::Request);
        let (course, encoding, has_length) = {
            let worker = self.worker.borrow();
            let (head, encoding) = read_head(&worker, &headers, ends);
            self.asked = asked(&worker, &headers);
            self.only_cached = head.only_cached;
            if worker.queues {
                self.received_at = host::now();
            }
            let has_length = head.content_length.is_some();
            (worker.config.course(&head), encoding, has_length)
        };
        match course {
            Course::Pass => Action::Continue,
            Course::Decide(pool) => {
                let is_unreadable = !ends && encoding == Encoding::Unknown;
                self.count_unreadable(pool, is_unreadable);
                self.decide(pool, Request::bodiless(), None)
            }
            Course::ListModels(pools) => {
                if self.worker.borrow_mut().list_models(pools) {
                    return Action::Pause;
                }
                let pool = self.worker.borrow().config.default_pool(pools);
                match pool {
                    Some(pool) => self.decide(pool, Request::bodiless(), None),
                    None => Action::Continue,
                }
            }
            Course::Refuse(pool, refusal, shape) => self.refuse(pool, refusal, shape),
            Course::Read(pools, shape) => {
                let limit = self.worker.borrow().config.body_limit(pools);
                let mut reading = Reading::new(pools, shape, encoding, limit);
                let action = self.hold();
                if self.worker.borrow().renames {
                    reading.expect_change(has_length && action == Action::Pause);
                }
                self.phase = Phase::Reading(Box::new(reading));
                action
            }
        }
    }

    /// `size` is all that is buffered, which is the whole body so far.
    fn on_http_request_body(&mut self, size: usize, ends: bool) -> Action {
        self.settle();
        let reading = match &mut self.phase {
            Phase::Reading(reading) => reading,
            Phase::Waiting(_) => return Action::Pause,
            Phase::Passing | Phase::Sent(_) => return Action::Continue,
        };
        if let Err(unread) = reading.read(size) {
            return self.go_unread(&unread);
        }
        if ends {
            self.decide_read()
        } else {
            Action::Pause
        }
    }

    /// A body followed by trailers never ends in the body callback.
    fn on_http_request_trailers(&mut self, _: usize) -> Action {
        self.settle();
        match &self.phase {
            Phase::Reading(_) => self.decide_read(),
            Phase::Waiting(_) => Action::Pause,
            Phase::Passing | Phase::Sent(_) => Action::Continue,
        }
    }

    fn on_http_response_headers(&mut self, _: usize, ends: bool) -> Action {
        self.settle();
        if let Phase::Sent(sent) = &mut self.phase {
            sent.on_headers(&mut self.worker.borrow_mut(), ends);
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, ends: bool) -> Action {
        if let Phase::Sent(sent) = &mut self.phase {
            sent.on_chunk(&self.worker, size, ends);
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _: usize) -> Action {
        if let Phase::Sent(sent) = &mut self.phase {
            sent.on_trailers();
        }
        Action::Continue
    }

    fn on_log(&mut self) {
        self.end();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.end();
    }
}

impl Stream {
    /// Holds the headers until the body is read or, where the host cannot, leaves that to the filter
    /// behind this one.
    fn hold(&self) -> Action {
        let destination = &self.worker.borrow().config.destination;
        let Destination::FilterState {
            holds_headers: false,
        } = destination
        else {
            return Action::Pause;
        };
        // The body may change, and headers that went on cannot: the filter that holds them counts.
        let _ = host::remove_request_header("content-length");
        Action::Continue
    }

    /// Decides with the body that was read; does nothing when the stream is not waiting for that.
    fn decide_read(&mut self) -> Action {
        let Phase::Reading(mut reading) = std::mem::replace(&mut self.phase, Phase::Passing) else {
            return Action::Continue;
        };
        if let Err(unread) = reading.complete() {
            return self.go_on_unread(&reading, &unread);
        }
        let found = {
            let worker = &mut *self.worker.borrow_mut();
            worker.tell_model(reading.model());
            let whose = worker.whose(&reading, &self.asked, host::now());
            whose.and_then(|whose| {
                let Some(whose) = whose else {
                    return Ok(None);
                };
                worker.rename(&mut reading, &whose)?;
                let pool = worker.pools.get(whose.pool);
                Ok(pool.map(|it| (whose.pool, it.seed)))
            })
        };
        let (pool, seed) = match found {
            Ok(Some(found)) => found,
            Ok(None) => return Action::Continue,
            Err(refusal) => return self.refuse_read(&reading, refusal),
        };
        let read = reading.how();
        self.decide_with(pool, reading.finish(seed), read)
    }

    /// Goes on without the body, which may still be coming.
    fn go_unread(&mut self, unread: &Unread) -> Action {
        let Phase::Reading(reading) = std::mem::replace(&mut self.phase, Phase::Passing) else {
            return Action::Continue;
        };
        self.go_on_unread(&reading, unread)
    }

    fn go_on_unread(&mut self, reading: &Reading, unread: &Unread) -> Action {
        match unread {
            Unread::Refused(refusal) => self.refuse_read(reading, *refusal),
            Unread::Undecodable(fault) => {
                let pool = self.worker.borrow().config.default_pool(reading.pools);
                let Some(pool) = pool else {
                    return Action::Continue;
                };
                // What could not be read once is not read again.
                let request = Request::unread(reading.shape(), *fault);
                let read = Read {
                    encoding: Encoding::Unknown,
                    ..reading.how()
                };
                self.decide_with(pool, request, read)
            }
        }
    }

    /// Refuses a request of which it may not be known to which of its pools it belongs; one of no
    /// pool goes on.
    fn refuse_read(&mut self, reading: &Reading, refusal: Refusal) -> Action {
        let pool = self.worker.borrow().config.default_pool(reading.pools);
        match pool {
            Some(pool) => self.refuse(pool, refusal, Some(reading.shape())),
            None => Action::Continue,
        }
    }

    /// Decides with what was read of the body, unless that is to be refused.
    fn decide_with(&mut self, pool: usize, request: Request, read: Read) -> Action {
        self.count_unreadable(pool, !request.faults.is_empty());
        let refusal = self.worker.borrow().config.refusal(&request);
        match refusal {
            Some(refusal) => self.refuse(pool, refusal, request.shape),
            None => self.decide(pool, request, Some(read)),
        }
    }

    fn count_unreadable(&self, pool: usize, is_unreadable: bool) {
        if let Some(pool) = self.worker.borrow_mut().pools.get_mut(pool) {
            pool.stats
                .add(Stat::UnreadableBodies, u64::from(is_unreadable));
        }
    }

    /// Decides; `read` is what was read besides the request, if its body was.
    fn decide(&mut self, index: usize, mut request: Request, read: Option<Read>) -> Action {
        request.headers = std::mem::take(&mut self.asked);
        request.only_cached = self.only_cached;
        let now = host::now();
        let arrived = {
            let worker = &mut *self.worker.borrow_mut();
            worker.trust(index, &mut request);
            let Some(pool) = worker.pools.get_mut(index) else {
                return Action::Continue;
            };
            worker.last_request = Some(now);
            let asking = Asking {
                bytes: read.as_ref().map_or(0, |it| it.bytes),
                received_at: self.received_at,
            };
            pool.pool
                .arrive(&Host, (&request, asking), &mut worker.draws, now)
        };
        match arrived {
            Ok(Arrived::Sent(pick)) => {
                let public_name = read.and_then(|it| it.public_name);
                let of = Sender {
                    context: self.context,
                    shape: request.shape,
                    public_name: public_name.as_deref(),
                };
                let sent = self.worker.borrow_mut().send(index, pick, &of, now);
                self.go_on(sent)
            }
            Ok(Arrived::Waits(id)) => {
                let waiting = Waiting::new((index, id), self.context, request, read);
                self.wait(waiting, now)
            }
            Err(refusal) => {
                let mut worker = self.worker.borrow_mut();
                let settled = worker.settle_refused(index, refusal, request.shape);
                drop(worker);
                self.go_on(settled)
            }
        }
    }

    /// Waits for the turn, which may be at once.
    fn wait(&mut self, waiting: Waiting, now: Timestamp) -> Action {
        let index = waiting.pool;
        let waiting = Rc::new(RefCell::new(waiting));
        self.phase = Phase::Waiting(Rc::clone(&waiting));
        let mut worker = self.worker.borrow_mut();
        worker.hold(&waiting, now);
        worker.run_turns(index, Some(self.context), now);
        drop(worker);
        self.settle().unwrap_or(Action::Pause)
    }

    /// Takes note of what became of a request that has waited: what its stream does; `None` when it
    /// goes on waiting, or does not wait.
    fn settle(&mut self) -> Option<Action> {
        let Phase::Waiting(waiting) = &self.phase else {
            return None;
        };
        let settled = waiting.borrow_mut().settled()?;
        Some(self.go_on(settled))
    }

    /// What the stream does now that it is settled what becomes of its request.
    fn go_on(&mut self, settled: Settled) -> Action {
        let (phase, action) = match settled {
            Settled::Sent(sent) => (Phase::Sent(sent), Action::Continue),
            Settled::Passed => (Phase::Passing, Action::Continue),
            Settled::Refused => (Phase::Passing, Action::Pause),
        };
        self.phase = phase;
        action
    }

    fn refuse(&mut self, index: usize, refusal: Refusal, shape: Option<Shape>) -> Action {
        self.phase = Phase::Passing;
        match self.worker.borrow_mut().refuse(index, refusal, shape) {
            Ok(()) => Action::Pause,
            Err(_) => Action::Continue,
        }
    }

    /// Gives back what the stream holds, once.
    fn end(&mut self) {
        self.settle();
        let phase = std::mem::replace(&mut self.phase, Phase::Passing);
        let Ok(mut worker) = self.worker.try_borrow_mut() else {
            return;
        };
        match phase {
            Phase::Passing | Phase::Reading(_) => {}
            Phase::Sent(sent) => {
                let (pool, now) = (sent.pool, host::now());
                sent.end(&mut worker, now);
                if worker.queues {
                    worker.run_turns(pool, Some(self.context), now);
                }
            }
            Phase::Waiting(waiting) => worker.leave(&waiting.borrow(), host::now()),
        }
    }
}
