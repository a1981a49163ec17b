//! One request and its response.

use std::cell::RefCell;
use std::rc::Rc;

use picker_core::{
    Answered, Course, Destination, FailureMode, LoadReport, Pick, Refusal, Request, ResponseKind,
    ResponseReader, Shape, Stat, Ticket, Timestamp, Timing, Verdict, push_decimal,
};
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use crate::heads::{AnswerHead, asked, read_head};
use crate::host::{self, Buffer, HeaderMap, Headers, Host};
use crate::reading::{Encoding, Reading, Unread};
use crate::verdict;
use crate::worker::Worker;

/// One request and its response.
pub(crate) struct Stream {
    worker: Rc<RefCell<Worker>>,
    phase: Phase,
    /// The headers that plans ask for, until the decision.
    asked: Vec<(String, String)>,
    /// Whether only an endpoint that holds some of the prompt is to answer.
    only_cached: bool,
}

enum Phase {
    /// Not ours, not yet or not any more.
    Passing,
    /// The headers are held while the body comes. Boxed, for most streams are in another phase most
    /// of the time.
    Reading(Box<Reading>),
    /// Counted for an endpoint of the pool until it ends.
    Sent(Box<Sent>),
}

struct Sent {
    pool: usize,
    ticket: Ticket,
    /// The chosen endpoint, as Envoy writes addresses.
    destination: String,
    reader: ResponseReader,
    /// Whether the endpoint has begun to answer well.
    is_begun: bool,
    /// Whether its answer is complete.
    has_ended: bool,
    /// Whether tokens have arrived and the endpoint's prefill is given back, or is to be given back at the end.
    answered: bool,
    timing: Timing,
    /// What the access log says of the choice.
    said: String,
}

impl Stream {
    pub(crate) fn new(worker: Rc<RefCell<Worker>>) -> Self {
        Self {
            worker,
            phase: Phase::Passing,
            asked: Vec::new(),
            only_cached: false,
        }
    }
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _: usize, ends: bool) -> Action {
        #[cfg(feature = "test-build")]
        crate::test_hooks::on_request();
        let headers = HeaderMap::of(Headers::Request);
        let (course, encoding) = {
            let worker = self.worker.borrow();
            let (head, encoding) = read_head(&worker, &headers, ends);
            self.asked = asked(&worker, &headers);
            self.only_cached = head.only_cached;
            (worker.config.course(&head), encoding)
        };
        match course {
            Course::Pass => Action::Continue,
            Course::Decide(pool) => {
                let is_unreadable = !ends && encoding == Encoding::Unknown;
                self.count_unreadable(pool, is_unreadable);
                self.decide(pool, Request::bodiless())
            }
            Course::Refuse(pool, refusal, shape) => self.refuse(pool, refusal, shape),
            Course::Read(pool, shape) => {
                let limit = self.worker.borrow().config.pools[pool].limits;
                let reading = Reading::new(pool, shape, encoding, limit.request_body_bytes);
                self.phase = Phase::Reading(Box::new(reading));
                Action::Pause
            }
        }
    }

    /// `size` is all that is buffered, which is the whole body so far.
    fn on_http_request_body(&mut self, size: usize, ends: bool) -> Action {
        let Phase::Reading(reading) = &mut self.phase else {
            return Action::Continue;
        };
        if let Err(unread) = reading.read(size) {
            let (pool, shape) = (reading.pool, reading.shape());
            return self.go_unread(pool, shape, &unread);
        }
        if ends {
            self.decide_read()
        } else {
            Action::Pause
        }
    }

    /// A body followed by trailers never ends in the body callback.
    fn on_http_request_trailers(&mut self, _: usize) -> Action {
        self.decide_read()
    }

    fn on_http_response_headers(&mut self, _: usize, ends: bool) -> Action {
        let Phase::Sent(sent) = &mut self.phase else {
            return Action::Continue;
        };
        let worker = &mut *self.worker.borrow_mut();
        let Some(pool) = worker.pools.get_mut(sent.pool) else {
            return Action::Continue;
        };
        let other = if pool.pool.asks_who_serves(&sent.ticket) {
            let served = host::text_property(&["upstream", "address"]);
            served.filter(|served| *served != sent.destination)
        } else {
            None
        };
        if let Some(address) = other.and_then(|address| address.parse().ok()) {
            let ticket = &mut sent.ticket;
            let chosen = pool.pool.on_served_by(&Host, ticket, address, host::now());
            pool.stats.add(Stat::OverrideMissed, u64::from(!chosen));
        }
        let headers = HeaderMap::of(Headers::Response);
        let AnswerHead {
            status,
            media_type,
            encoding,
            report,
        } = AnswerHead::of(&headers);
        if let Some(verdict) = status.and_then(verdict::of_status) {
            pool.pool
                .on_verdict(&Host, &sent.ticket, verdict, host::now());
            sent.is_begun = verdict == Verdict::Begun;
        }
        if let Some(Ok(report)) = report.map(LoadReport::parse) {
            pool.pool.on_load_report(&sent.ticket, report, host::now());
        }
        for (name, value) in pool.pool.answer_headers(&sent.ticket) {
            if let Err(error) = host::set_header(Headers::Response, &name, &value) {
                log::error!("picker: the host refused the header {name}: {error:?}");
            }
        }
        sent.has_ended = ends;
        let kind = ResponseKind::of_headers(media_type, encoding);
        let is_coded = kind == ResponseKind::Coded;
        pool.stats.add(Stat::CodedAnswers, u64::from(is_coded));
        sent.reader = ResponseReader::new(kind);
        // A document begins when all of it is computed. It ends at once, and its prefill with it.
        sent.answered = kind != ResponseKind::EventStream;
        Action::Continue
    }

    /// `size` is that of this chunk alone: nothing of a response is held.
    fn on_http_response_body(&mut self, size: usize, ends: bool) -> Action {
        let Phase::Sent(sent) = &mut self.phase else {
            return Action::Continue;
        };
        sent.has_ended = ends;
        if size == 0 || !sent.reader.is_wanted() {
            return Action::Continue;
        }
        sent.reader
            .push(&host::buffer(Buffer::ResponseBody, 0, size));
        if !sent.answered && sent.reader.has_output() {
            sent.answered = true;
            let now = host::now();
            sent.timing.on_token(now);
            let worker = &mut *self.worker.borrow_mut();
            if let Some(pool) = worker.pools.get_mut(sent.pool) {
                pool.pool.on_first_byte(&Host, &mut sent.ticket, now);
            }
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _: usize) -> Action {
        if let Phase::Sent(sent) = &mut self.phase {
            sent.has_ended = true;
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
    /// Decides with the body that was read; does nothing when the stream is not waiting for that.
    fn decide_read(&mut self) -> Action {
        let Phase::Reading(reading) = std::mem::replace(&mut self.phase, Phase::Passing) else {
            return Action::Continue;
        };
        let (pool, shape) = (reading.pool, reading.shape());
        let Some(seed) = self.worker.borrow().pools.get(pool).map(|pool| pool.seed) else {
            return Action::Continue;
        };
        match reading.finish(seed) {
            Ok(request) => self.decide_with(pool, request),
            Err(unread) => self.go_unread(pool, shape, &unread),
        }
    }

    /// Goes on without the body, which may still be coming.
    fn go_unread(&mut self, pool: usize, shape: Shape, unread: &Unread) -> Action {
        match unread {
            Unread::Refused(refusal) => self.refuse(pool, *refusal, Some(shape)),
            Unread::Undecodable(fault) => {
                self.phase = Phase::Passing;
                self.decide_with(pool, Request::unread(shape, *fault))
            }
        }
    }

    /// Decides with what was read of the body, unless that is to be refused.
    fn decide_with(&mut self, pool: usize, request: Request) -> Action {
        self.count_unreadable(pool, !request.faults.is_empty());
        let refusal = self.worker.borrow().config.refusal(&request);
        match refusal {
            Some(refusal) => self.refuse(pool, refusal, request.shape),
            None => self.decide(pool, request),
        }
    }

    fn count_unreadable(&self, pool: usize, is_unreadable: bool) {
        if let Some(pool) = self.worker.borrow_mut().pools.get_mut(pool) {
            pool.stats
                .add(Stat::UnreadableBodies, u64::from(is_unreadable));
        }
    }

    fn decide(&mut self, index: usize, mut request: Request) -> Action {
        request.headers = std::mem::take(&mut self.asked);
        request.only_cached = self.only_cached;
        let now = host::now();
        let picked = {
            let worker = &mut *self.worker.borrow_mut();
            let Some(pool) = worker.pools.get_mut(index) else {
                return Action::Continue;
            };
            worker.last_request = Some(now);
            pool.pool.pick(&Host, &request, &mut worker.draws, now)
        };
        match picked {
            Ok(pick) => self.send(index, pick, now),
            Err(refusal) => {
                let closed =
                    self.worker.borrow().config.pools[index].failure_mode == FailureMode::Closed;
                if closed || !refusal.may_fail_open() {
                    return self.refuse(index, refusal, request.shape);
                }
                let worker = &mut *self.worker.borrow_mut();
                worker.pools[index].stats.add(Stat::FailedOpen, 1);
                Action::Continue
            }
        }
    }

    fn send(&mut self, index: usize, pick: Pick, now: Timestamp) -> Action {
        let mut destination = String::with_capacity(TEXT_BYTES);
        for address in &pick.destinations {
            if !destination.is_empty() {
                destination.push(',');
            }
            address.write_to(&mut destination);
        }
        let length = destination.find(',').unwrap_or(destination.len());
        let first = destination.get(..length).unwrap_or_default();
        let worker = &mut *self.worker.borrow_mut();
        let pool = &mut worker.pools[index];
        let set = match &worker.config.destination {
            Destination::Header(name) => host::set_request_header(name, &destination),
            Destination::FilterState => host::set_original_destination(first),
        };
        if let Err(error) = set {
            log::error!("picker: the host refused the destination: {error:?}");
            let mut ticket = pick.ticket;
            pool.pool
                .on_done(&Host, &mut ticket, Answered::default(), now);
            pool.stats.add(Stat::FailedOpen, 1);
            return Action::Continue;
        }
        for (name, value) in &pick.headers {
            if let Err(error) = host::set_request_header(name, value) {
                log::error!("picker: the host refused the header {name}: {error:?}");
            }
        }
        if !pick.scores.is_empty() {
            // Like the access log's account: a request is not worse for lacking it.
            let _ = host::set_filter_state("picker.scores", &pick.scores);
        }
        pool.stats.add(Stat::Picks, 1);
        if let Some(division) = pick.division {
            pool.stats.add(Stat::Divided(division), 1);
        }
        pool.stats.add(Stat::PromptBlocks, pick.blocks as u64);
        pool.stats.add(Stat::MatchedBlocks, pick.matched as u64);
        let mut said = String::with_capacity(TEXT_BYTES);
        for part in ["pool=", pool.pool.name(), " endpoint=", first, " matched="] {
            said.push_str(part);
        }
        push_decimal(&mut said, pick.matched as u64);
        said.push('/');
        push_decimal(&mut said, pick.blocks as u64);
        if let Some(prefill) = pick.prefill {
            said.push_str(" prefill=");
            prefill.write_to(&mut said);
        }
        destination.truncate(length);
        self.phase = Phase::Sent(Box::new(Sent {
            pool: index,
            ticket: pick.ticket,
            destination,
            reader: ResponseReader::new(ResponseKind::Other),
            is_begun: false,
            has_ended: false,
            answered: false,
            timing: Timing::new(now),
            said,
        }));
        Action::Continue
    }

    fn refuse(&mut self, index: usize, refusal: Refusal, shape: Option<Shape>) -> Action {
        self.phase = Phase::Passing;
        let worker = &mut *self.worker.borrow_mut();
        let pool = &mut worker.pools[index];
        let reason = refusal.reason();
        pool.stats.add(Stat::Refusals(reason), 1);
        let _ = host::set_filter_state(
            "picker",
            &format!("pool={} refused={reason}", pool.pool.name()),
        );
        let headers = [("content-type", "application/json"), (REASON, reason)];
        let details = format!("picker_{}", reason.replace('-', "_"));
        if host::reply(refusal.status(), &details, &headers, &refusal.body(shape)).is_err() {
            log::error!("picker: the host did not take our answer; the route decides");
            return Action::Continue;
        }
        Action::Pause
    }

    /// Gives back what the stream holds, once.
    fn end(&mut self) {
        let phase = std::mem::replace(&mut self.phase, Phase::Passing);
        if let Phase::Sent(sent) = phase
            && let Ok(mut worker) = self.worker.try_borrow_mut()
            && let Some(pool) = worker.pools.get_mut(sent.pool)
        {
            let (mut sent, now) = (*sent, host::now());
            let answer = sent.reader.finish();
            let verdict = sent
                .is_begun
                .then(|| verdict::at_end(&answer, sent.has_ended));
            if let Some(verdict) = verdict.flatten() {
                pool.pool.on_verdict(&Host, &sent.ticket, verdict, now);
            }
            for (property, number) in pool.pool.reports(answer.usage) {
                // Like the access log's account below.
                let _ = host::set_filter_state(property, &number.to_string());
            }
            let answered = answer.into();
            pool.pool.on_done(&Host, &mut sent.ticket, answered, now);
            let timed = sent.timing.end(answered, now);
            for (stat, by) in timed.stats() {
                pool.stats.add(stat, by);
            }
            timed.write_to(&mut sent.said);
            // Access logs are written after this; a request is not worse for lacking it there.
            let _ = host::set_filter_state("picker", &sent.said);
        }
    }
}

/// Room for a destination, and for what the access log shows of a request, in one allocation.
const TEXT_BYTES: usize = 160;

/// Names the reason of a refusal to the client, as the reference picker does.
const REASON: &str = "x-llm-d-request-dropped-reason";
