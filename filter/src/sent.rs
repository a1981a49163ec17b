//! A request on its way to an endpoint, from the choice to the end.

use picker_core::{
    Answered, Destination, LoadReport, Pick, PublicName, ResponseKind, ResponseReader, Shape, Stat,
    Ticket, Timestamp, Timing, Verdict, push_decimal,
};

use crate::heads::AnswerHead;
use crate::host::{self, Buffer, HeaderMap, Headers, Host};
use crate::verdict;
use crate::waiting::Settled;
use crate::worker::Worker;

/// A request that is counted for an endpoint of the pool until it ends.
pub(crate) struct Sent {
    pub(crate) pool: usize,
    ticket: Ticket,
    /// The chosen endpoint, as Envoy writes addresses.
    destination: String,
    reader: ResponseReader,
    /// The name of the model that the answer is to show.
    public_name: Option<PublicName>,
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

/// Whose request is sent.
pub(crate) struct Sender<'a> {
    /// The number by which the host knows its stream.
    pub(crate) context: u32,
    /// The API that was called, if known.
    pub(crate) shape: Option<Shape>,
    /// The name of its model that the answer is to show, where it has another.
    pub(crate) public_name: Option<&'a str>,
}

impl Worker {
    /// Sends a request where `pick` says, and takes note of it where it may be ended for others. Its
    /// stream has to be the host's effective context.
    pub(crate) fn send(
        &mut self,
        index: usize,
        pick: Pick,
        of: &Sender<'_>,
        now: Timestamp,
    ) -> Settled {
        if let (Some(run), Some(pool)) = (pick.ticket.run(), self.pools.get_mut(index)) {
            pool.waiters.run(run, of.context, of.shape);
            pool.waiters.listen(pool.pool.name(), pool.pool.slot());
        }
        let mut sent = Sent::begin(self, index, pick, now);
        if let (Some(sent), Some(name)) = (&mut sent, of.public_name) {
            sent.show_model(name);
        }
        sent.map_or(Settled::Passed, Settled::Sent)
    }
}

impl Sent {
    /// Tells Envoy where the request goes; `None` when it does not want to know, and the route
    /// decides.
    fn begin(worker: &mut Worker, index: usize, pick: Pick, now: Timestamp) -> Option<Box<Self>> {
        let mut destination = String::with_capacity(TEXT_BYTES);
        for address in &pick.destinations {
            if !destination.is_empty() {
                destination.push(',');
            }
            address.write_to(&mut destination);
        }
        let length = destination.find(',').unwrap_or(destination.len());
        let first = destination.get(..length).unwrap_or_default();
        let pool = worker.pools.get_mut(index)?;
        let set = match &worker.config.destination {
            Destination::Header(name) => host::set_request_header(name, &destination),
            Destination::FilterState { .. } => host::set_original_destination(first),
        };
        if let Err(error) = set {
            log::error!("picker: the host refused the destination: {error:?}");
            let mut ticket = pick.ticket;
            pool.pool
                .on_done(&Host, &mut ticket, Answered::default(), now);
            pool.stats.add(Stat::FailedOpen, 1);
            return None;
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
        let said = said_of(pool.pool.name(), first, &pick);
        destination.truncate(length);
        Some(Box::new(Self {
            pool: index,
            ticket: pick.ticket,
            destination,
            reader: ResponseReader::new(ResponseKind::Other),
            public_name: None,
            is_begun: false,
            has_ended: false,
            answered: false,
            timing: Timing::new(now),
            said,
        }))
    }

    /// Lets the answer show this name of the model; to be called before the request goes on.
    fn show_model(&mut self, name: &str) {
        self.public_name = Some(PublicName::new(name));
        // What is compressed cannot be renamed. An endpoint that does so unasked is counted.
        let _ = host::remove_request_header("accept-encoding");
    }

    /// Adds to what the access log says.
    pub(crate) fn say(&mut self, name: &str, number: u64) {
        self.said.push(' ');
        self.said.push_str(name);
        self.said.push('=');
        push_decimal(&mut self.said, number);
    }

    /// The headers of the answer are there; `ends` when there is no more.
    pub(crate) fn on_headers(&mut self, worker: &mut Worker, ends: bool) {
        let Some(pool) = worker.pools.get_mut(self.pool) else {
            return;
        };
        let other = if pool.pool.asks_who_serves(&self.ticket) {
            let served = host::text_property(&["upstream", "address"]);
            served.filter(|served| *served != self.destination)
        } else {
            None
        };
        if let Some(address) = other.and_then(|address| address.parse().ok()) {
            let ticket = &mut self.ticket;
            let chosen = pool.pool.on_served_by(&Host, ticket, address, host::now());
            pool.stats.add(Stat::OverrideMissed, u64::from(!chosen));
        }
        let headers = HeaderMap::of(Headers::Response);
        let AnswerHead {
            status,
            media_type,
            encoding,
            length,
            report,
        } = AnswerHead::of(&headers);
        if let Some(verdict) = status.and_then(verdict::of_status) {
            pool.pool
                .on_verdict(&Host, &self.ticket, verdict, host::now());
            self.is_begun = verdict == Verdict::Begun;
        }
        if let Some(Ok(report)) = report.map(LoadReport::parse) {
            pool.pool.on_load_report(&self.ticket, report, host::now());
        }
        for (name, value) in pool.pool.answer_headers(&self.ticket) {
            if let Err(error) = host::set_header(Headers::Response, &name, &value) {
                log::error!("picker: the host refused the header {name}: {error:?}");
            }
        }
        self.has_ended = ends;
        let kind = ResponseKind::of_headers(media_type, encoding);
        let is_coded = kind == ResponseKind::Coded;
        pool.stats.add(Stat::CodedAnswers, u64::from(is_coded));
        self.reader = ResponseReader::new(kind);
        if self.public_name.is_some() {
            pool.stats
                .add(Stat::UnrenamedAnswers, u64::from(is_coded && !ends));
            // Where there is no body the length is that of what another method would get.
            let is_renamed = !ends && self.reader.is_wanted();
            if !is_renamed || length.is_some() && !forget_length() {
                self.public_name = None;
            }
        }
        // A document begins when all of it is computed. It ends at once, and its prefill with it.
        self.answered = kind != ResponseKind::EventStream;
    }

    /// A chunk of the answer is there. `size` is that of this chunk alone: nothing of a response is
    /// held.
    pub(crate) fn on_chunk(
        &mut self,
        worker: &std::cell::RefCell<Worker>,
        size: usize,
        ends: bool,
    ) {
        self.has_ended = ends;
        if size == 0 || !self.reader.is_wanted() {
            return;
        }
        let chunk = host::buffer(Buffer::ResponseBody, 0, size);
        match &self.public_name {
            Some(name) => {
                let mut renamed = Vec::new();
                if self.reader.push_renaming(&chunk, name, &mut renamed)
                    && let Err(error) = host::replace_buffer(Buffer::ResponseBody, &renamed)
                {
                    log::error!("picker: the host refused the name of a model: {error:?}");
                    self.public_name = None;
                }
            }
            None => self.reader.push(&chunk),
        }
        if !self.answered && self.reader.has_output() {
            self.answered = true;
            let now = host::now();
            self.timing.on_token(now);
            if let Some(pool) = worker.borrow_mut().pools.get_mut(self.pool) {
                pool.pool.on_first_byte(&Host, &mut self.ticket, now);
            }
        }
    }

    /// The answer has trailers, which end it.
    pub(crate) fn on_trailers(&mut self) {
        self.has_ended = true;
    }

    /// Gives back what the request holds.
    pub(crate) fn end(mut self, worker: &mut Worker, now: Timestamp) {
        let Some(pool) = worker.pools.get_mut(self.pool) else {
            return;
        };
        if let Some(run) = self.ticket.run() {
            pool.waiters.end_run(run);
        }
        let answer = self.reader.finish();
        let verdict = self
            .is_begun
            .then(|| verdict::at_end(&answer, self.has_ended));
        if let Some(verdict) = verdict.flatten() {
            pool.pool.on_verdict(&Host, &self.ticket, verdict, now);
        }
        for (property, number) in pool.pool.reports(answer.usage) {
            // Like the access log's account below.
            let _ = host::set_filter_state(property, &number.to_string());
        }
        let answered = answer.into();
        pool.pool.on_done(&Host, &mut self.ticket, answered, now);
        let timed = self.timing.end(answered, now);
        for (stat, by) in timed.stats() {
            pool.stats.add(stat, by);
        }
        timed.write_to(&mut self.said);
        // Access logs are written after this; a request is not worse for lacking it there.
        let _ = host::set_filter_state("picker", &self.said);
    }
}

/// Lets the body of an answer have another length than its headers say; whether it may.
fn forget_length() -> bool {
    let removed = host::remove_header(Headers::Response, "content-length");
    if let Err(error) = removed {
        log::error!("picker: the host refused to forget a length: {error:?}");
    }
    removed.is_ok()
}

/// What the access log says of a choice.
fn said_of(pool: &str, endpoint: &str, pick: &Pick) -> String {
    let mut said = String::with_capacity(TEXT_BYTES);
    for part in ["pool=", pool, " endpoint=", endpoint, " matched="] {
        said.push_str(part);
    }
    push_decimal(&mut said, pick.matched as u64);
    said.push('/');
    push_decimal(&mut said, pick.blocks as u64);
    if let Some(prefill) = pick.prefill {
        said.push_str(" prefill=");
        prefill.write_to(&mut said);
    }
    said
}

/// Room for a destination, and for what the access log shows of a request, in one allocation.
const TEXT_BYTES: usize = 160;
