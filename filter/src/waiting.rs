//! Requests that wait for their turn, and whose turn it is.
//!
//! A stream can only be resumed on its own thread. So a worker that finds the turn with another one
//! wakes it by its queue, and while something waits here it looks every few milliseconds by itself.

use std::cell::RefCell;
use std::rc::Rc;

use picker_core::{
    FailureMode, Pools, Refusal, Request, RunId, Shape, SortedMap, Span, Stat, Timestamp, Turn,
    WaitId,
};

use crate::host::{self, Host, HostError};
use crate::reading::{Encoding, Read, Reading, Unread};
use crate::sent::{Sender, Sent};
use crate::worker::Worker;

/// A request that waits, known to its stream and to its worker.
pub(crate) struct Waiting {
    pub(crate) pool: usize,
    pub(crate) id: WaitId,
    /// The number by which the host knows its stream.
    context: u32,
    /// What is known of it; of a long one not its prompts.
    request: Request,
    /// How to read its body again, where it is too long to be kept twice.
    again: Option<(Shape, Encoding)>,
    public_name: Option<Box<str>>,
    since: Timestamp,
    /// What became of it, until its stream learns of it.
    outcome: Option<Settled>,
}

/// What became of a request.
pub(crate) enum Settled {
    /// It goes to an endpoint.
    Sent(Box<Sent>),
    /// The route decides.
    Passed,
    /// We have answered it.
    Refused,
}

/// The requests of one pool that wait in this worker.
#[derive(Default)]
pub(crate) struct Waiters {
    all: SortedMap<WaitId, Rc<RefCell<Waiting>>>,
    /// The number under which this worker is woken, once it listens.
    slot: Option<u8>,
    /// Queues of other workers.
    others: SortedMap<u8, u32>,
    /// Requests on their way that may be ended for others, with the numbers of their streams and
    /// the APIs they are of.
    running: SortedMap<RunId, (u32, Option<Shape>)>,
}

impl Waiting {
    /// A request of the stream that the host knows as `context`, which waits as `id`.
    pub(crate) fn new(
        (pool, id): (usize, WaitId),
        context: u32,
        request: Request,
        read: Option<Read>,
    ) -> Self {
        let blocks = request.prompts.iter().map(|it| it.blocks.len());
        let is_long = blocks.sum::<usize>() + request.media.len() > KEPT_HASHES_MAX;
        let read_as = read.as_ref().map(|it| it.encoding);
        let mut waiting = Self {
            pool,
            id,
            context,
            again: request.shape.zip(read_as).filter(|_| is_long),
            public_name: read.and_then(|it| it.public_name),
            request: Request::default(),
            since: host::now(),
            outcome: None,
        };
        waiting.keep(request);
        waiting
    }

    /// Keeps what is known of the request, but for what can be read again.
    fn keep(&mut self, request: Request) {
        self.request = request;
        if self.again.is_some() {
            self.request.prompts = Vec::new();
            self.request.media = Vec::new();
        }
    }

    /// What became of it, for its stream.
    pub(crate) fn settled(&mut self) -> Option<Settled> {
        self.outcome.take()
    }

    /// The request as it came. Its stream has to be the host's effective context.
    fn request(&mut self, worker: &Worker) -> Request {
        let request = std::mem::take(&mut self.request);
        let Some((shape, encoding)) = self.again else {
            return request;
        };
        let pool = worker.config.pools.get(self.pool);
        let seed = worker.pools.get(self.pool).map(|it| it.seed);
        let limit = pool.map_or(0, |it| it.limits.request_body_bytes);
        let mut reading = Reading::new(Pools::default(), shape, encoding, limit);
        let read = reading.read_all().and_then(|()| reading.complete());
        let read = read.map(|()| seed.map_or_else(Request::bodiless, |it| reading.finish(it)));
        match read {
            Ok(read) => Request {
                prompts: read.prompts,
                media: read.media,
                group: read.group,
                ..request
            },
            // It could be read before. Load alone decides, as for others that cannot be read.
            Err(Unread::Refused(_) | Unread::Undecodable(_)) => request,
        }
    }
}

impl Waiters {
    /// Adds a request.
    pub(crate) fn insert(&mut self, waiting: &Rc<RefCell<Waiting>>) {
        let id = waiting.borrow().id;
        self.all.insert(id, Rc::clone(waiting));
    }

    /// Listens for others that find the turn to be here.
    pub(crate) fn listen(&mut self, pool: &str, slot: Option<u8>) {
        if let Some(slot) = slot.filter(|_| slot != self.slot)
            && host::register_queue(&queue_name(pool, slot)).is_ok()
        {
            self.slot = Some(slot);
        }
    }

    /// Takes note of a request of the stream `context` that is on its way and may be ended.
    pub(crate) fn run(&mut self, run: RunId, context: u32, shape: Option<Shape>) {
        self.running.insert(run, (context, shape));
    }

    /// Takes note of its end.
    pub(crate) fn end_run(&mut self, run: RunId) {
        self.running.remove(&run);
    }

    /// Wakes the worker that listens under `slot`. It looks by itself soon where that fails.
    fn wake(&mut self, pool: &str, slot: u8) {
        let known = self.others.get(&slot).copied();
        let queue = known.or_else(|| host::resolve_queue(&queue_name(pool, slot)));
        if let Some(queue) = queue {
            self.others.insert(slot, queue);
            if host::enqueue(queue, &[]).is_err() {
                self.others.remove(&slot);
            }
        }
    }
}

impl Worker {
    /// Starts the requests of pool `index` whose turn it is, in this worker or by waking another;
    /// `own` is the context that the host has called, where it is a stream's.
    pub(crate) fn run_turns(&mut self, index: usize, own: Option<u32>, now: Timestamp) {
        let (mut effective, mut has_started) = (own, false);
        while let Some(pool) = self.pools.get_mut(index) {
            let id = match pool.pool.turn(&Host, now) {
                Turn::Mine(id) => id,
                Turn::Of(slot) => {
                    let name = pool.pool.name().to_owned();
                    pool.waiters.wake(&name, slot);
                    break;
                }
                Turn::Nobody => break,
            };
            let Some(waiting) = pool.waiters.all.get(&id).map(Rc::clone) else {
                pool.pool.leave(&Host, id, now);
                continue;
            };
            let context = waiting.borrow().context;
            if effective != Some(context) {
                if host::set_effective_context(context).is_err() {
                    // The host knows nothing of this stream any more.
                    pool.waiters.all.remove(&id);
                    pool.pool.leave(&Host, id, now);
                    continue;
                }
                effective = Some(context);
            }
            if !self.start(&waiting, own, now) {
                break;
            }
            has_started = true;
        }
        let has_evicted = self.evict(index, now);
        if has_evicted || effective != own {
            // Back to the one that the host has called.
            let _ = host::set_effective_context(own.unwrap_or_default());
        }
        // Nearly always nobody waited: who begins to, or leaves, shows that by itself.
        if has_started {
            self.show_waiting(index, now);
        }
    }

    /// Sends a request whose turn it is; `false` when it goes on waiting.
    fn start(&mut self, waiting: &Rc<RefCell<Waiting>>, own: Option<u32>, now: Timestamp) -> bool {
        let mut waiting = waiting.borrow_mut();
        let (index, id) = (waiting.pool, waiting.id);
        let request = waiting.request(self);
        let Some(pool) = self.pools.get_mut(index) else {
            return false;
        };
        self.last_request = Some(now);
        let started = pool.pool.start(&Host, (id, &request), &mut self.draws, now);
        let outcome = match started {
            Ok(Some(pick)) => {
                let of = Sender {
                    context: waiting.context,
                    shape: request.shape,
                    public_name: waiting.public_name.as_deref(),
                };
                let mut sent = self.send(index, pick, &of, now);
                if let Settled::Sent(sent) = &mut sent {
                    sent.say("queued_ms", now.since(waiting.since).as_millis());
                }
                sent
            }
            Ok(None) => {
                waiting.keep(request);
                return false;
            }
            Err(refusal) => self.settle_refused(index, refusal, request.shape),
        };
        self.settle(&mut waiting, outcome, own);
        true
    }

    /// Ends the waiting of those that have waited long enough.
    pub(crate) fn expire(&mut self, index: usize, now: Timestamp) {
        let Some(pool) = self.pools.get_mut(index) else {
            return;
        };
        let over = pool.pool.expired(&Host, now);
        self.refuse_waiting(index, over, now);
    }

    /// Ends running requests that make room for others, and leaves the last of their streams as the
    /// host's effective context; whether there was one.
    fn evict(&mut self, index: usize, now: Timestamp) -> bool {
        let Some(pool) = self.pools.get_mut(index) else {
            return false;
        };
        let evicted = pool.pool.evictions(now);
        for run in &evicted {
            let running = self.pools.get_mut(index).map(|it| &mut it.waiters.running);
            let Some((context, shape)) = running.and_then(|it| it.remove(run)) else {
                continue;
            };
            if host::set_effective_context(context).is_ok() {
                // An answer that has begun is cut off by this.
                let _ = self.refuse(index, Refusal::Evicted, shape);
            }
        }
        !evicted.is_empty()
    }

    /// Ends the waiting of all, for the configuration is gone.
    pub(crate) fn close(&mut self, now: Timestamp) {
        for index in 0..self.pools.len() {
            let all = self
                .pools
                .get_mut(index)
                .map(|it| it.pool.close(&Host, now));
            self.refuse_waiting(index, all.unwrap_or_default(), now);
        }
    }

    fn refuse_waiting(&mut self, index: usize, refused: Vec<(WaitId, Refusal)>, now: Timestamp) {
        if refused.is_empty() {
            return;
        }
        for (id, refusal) in refused {
            let Some(pool) = self.pools.get_mut(index) else {
                return;
            };
            let Some(waiting) = pool.waiters.all.remove(&id) else {
                continue;
            };
            let mut waiting = waiting.borrow_mut();
            if host::set_effective_context(waiting.context).is_ok() {
                let outcome = self.settle_refused(index, refusal, waiting.request.shape);
                self.settle(&mut waiting, outcome, None);
            }
        }
        let _ = host::set_effective_context(0);
        self.show_waiting(index, now);
    }

    /// Lets the stream of a request go on, unless it is the one that was called.
    fn settle(&mut self, waiting: &mut Waiting, outcome: Settled, own: Option<u32>) {
        let is_own = own == Some(waiting.context);
        if !matches!(outcome, Settled::Refused)
            && !is_own
            && let Err(error) = host::resume_request()
        {
            log::error!("picker: the host did not resume a stream: {error:?}");
        }
        waiting.outcome = Some(outcome);
        if let Some(pool) = self.pools.get_mut(waiting.pool) {
            pool.waiters.all.remove(&waiting.id);
        }
    }

    /// Answers the current stream with `refusal`, unless that leaves it to the route.
    pub(crate) fn settle_refused(
        &mut self,
        index: usize,
        refusal: Refusal,
        shape: Option<Shape>,
    ) -> Settled {
        // What is discovered with the endpoints counts.
        let discovered = self.pools.get(index).and_then(|it| it.pool.failure_mode());
        let configured = self.config.pools.get(index).map(|it| it.failure_mode);
        let closed = discovered.or(configured) == Some(FailureMode::Closed);
        if refusal.may_fail_open() && !closed {
            if let Some(pool) = self.pools.get_mut(index) {
                pool.stats.add(Stat::FailedOpen, 1);
            }
            return Settled::Passed;
        }
        match self.refuse(index, refusal, shape) {
            Ok(()) => Settled::Refused,
            Err(HostError(_)) => Settled::Passed,
        }
    }

    /// The client of a request that waits has left.
    pub(crate) fn leave(&mut self, waiting: &Waiting, now: Timestamp) {
        let Some(pool) = self.pools.get_mut(waiting.pool) else {
            return;
        };
        pool.waiters.all.remove(&waiting.id);
        pool.pool.leave(&Host, waiting.id, now);
        pool.stats.add(Stat::Refusals(LEFT), 1);
        let queued = now.since(waiting.since).as_millis();
        let said = format!(
            "pool={} refused={LEFT} queued_ms={queued}",
            pool.pool.name()
        );
        // Like the account of an answer.
        let _ = host::set_filter_state("picker", &said);
        self.show_waiting(waiting.pool, now);
    }
}

fn queue_name(pool: &str, slot: u8) -> String {
    format!("picker/{pool}/wake/{slot}")
}

/// The reason of a request whose client has left, for the access log alone; the reference picker's.
const LEFT: &str = "rejected-context-cancelled";

/// Hashes of a request that are kept while it waits. The body of a longer one, which stays with
/// Envoy, is read again.
const KEPT_HASHES_MAX: usize = 64;

/// How often a worker in which something waits looks whose turn it is: as often as the host's
/// timers go off.
pub(crate) const FAST: Span = Span::from_millis(4);
