//! Requests that wait for their turn.
//!
//! A request is sent at once while nobody waits and the endpoints are not too full for its band.
//! Otherwise it waits in the worker that holds its stream. Whenever something changes the workers
//! ask for the [`turn`](Pool::turn), and the one that has it [`start`](Pool::start)s the request.

use alloc::string::String;
use alloc::vec::Vec;

use super::Pool;
use super::decide::Gate;
use crate::candidate::{Candidate, Context};
use crate::draw::Draws;
use crate::flow::{Arrival, Desk, Fairness, FlowControl, QueueFull, WaitId, Waiting, wanted_ttft};
use crate::latency::OBJECTIVE_HEADERS;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::shared::SharedData;
use crate::ticket::{Answered, Pick, Ticket};
use crate::trust::DEFAULT_FLOW;
use crate::{Span, Timestamp};

/// What is known of a request that is not in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asking {
    /// Bytes of its body.
    pub bytes: u64,
    /// When its headers came.
    pub received_at: Timestamp,
}

/// What became of a request that came.
#[derive(Clone, PartialEq, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all are sent, and an allocation for each would cost more than the room"
)]
pub enum Arrived {
    /// It goes to an endpoint.
    Sent(Pick),
    /// It waits for its turn; it may have it already.
    Waits(WaitId),
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// This request's.
    Mine(WaitId),
    /// That of a request in the worker that is woken under this number.
    Of(u8),
    /// Nobody waits, or there is no room, or who has the turn knows it.
    Nobody,
}

impl Pool {
    /// Chooses an endpoint for a request that has just come, or lets it wait.
    ///
    /// With neither flow control nor bursts this is [`pick`](Self::pick). Requests of no API that
    /// is known, like those for the list of models, do not wait.
    pub fn arrive(
        &mut self,
        shared: &impl SharedData,
        (request, asking): (&Request, Asking),
        draws: &mut Draws,
        now: Timestamp,
    ) -> Result<Arrived, Refusal> {
        if let Some(id) = self.gather(shared, request, now) {
            return Ok(Arrived::Waits(id));
        }
        let Some(flow) = &self.options.plan.flow else {
            return self.pick(shared, request, draws, now).map(Arrived::Sent);
        };
        if request.shape.is_none() {
            return self.pick(shared, request, draws, now).map(Arrived::Sent);
        }
        let band = flow.band_of(request.priority);
        self.desk.read(shared);
        if self.desk.is_idle(now) {
            self.desk.cycle += 1;
            let gate = Gate {
                band,
                cycle: self.desk.cycle,
            };
            match self.pick_through(shared, (request, Some(gate)), draws, now) {
                Err(Refusal::Saturated | Refusal::NoEndpoint) => {}
                picked => return picked.map(Arrived::Sent),
            }
        }
        self.queue(shared, (request, asking), band, now)
            .map(Arrived::Waits)
    }

    fn queue(
        &mut self,
        shared: &impl SharedData,
        (request, asking): (&Request, Asking),
        band: usize,
        now: Timestamp,
    ) -> Result<WaitId, Refusal> {
        self.catch_up(shared, now);
        let has_endpoints = self.has_endpoints();
        self.desk.since_regime(has_endpoints, now);
        if !self.tally.is_claimed() {
            // The row has the number under which this worker is woken.
            self.tally.rewrite(shared, now);
        }
        let Some(flow) = &self.options.plan.flow else {
            return Err(Refusal::Saturated);
        };
        let [name, old_name, ..] = OBJECTIVE_HEADERS;
        let ttft = request.header(name).or_else(|| request.header(old_name));
        let arrival = Arrival {
            received_at: asking.received_at,
            queued_at: now,
            ttl: ttl(flow, has_endpoints),
            ttft: ttft.and_then(|it| wanted_ttft(it.trim())),
        };
        let slot = self.tally.slot().unwrap_or_default();
        let name = request.fairness_id.as_deref().unwrap_or(DEFAULT_FLOW);
        let queued = self
            .desk
            .push(shared, (flow, band, slot), (name, asking.bytes), &arrival);
        queued.map_err(|QueueFull| {
            if has_endpoints {
                Refusal::QueueFull
            } else {
                Refusal::QueueFullWithoutEndpoint
            }
        })
    }

    /// Whose turn it is now.
    ///
    /// To be asked when a request begins to wait or ends, when this worker is woken, and every few
    /// milliseconds while something waits here; and again after each request that was started.
    pub fn turn(&mut self, shared: &impl SharedData, now: Timestamp) -> Turn {
        let Some(flow) = &self.options.plan.flow else {
            let next = self.next_gathered(shared, now);
            return next.map_or(Turn::Nobody, Turn::Mine);
        };
        self.desk.tick(shared, flow, now);
        self.desk.read(shared);
        if self.desk.is_idle(now) {
            return Turn::Nobody;
        }
        // Whoever waits in another worker has to see what has ended here, however much that is.
        self.tell(shared, now);
        self.catch_up(shared, now);
        self.tally.read(shared);
        self.desk.cycle += 1;
        let Some(saturation) = self.saturation(now) else {
            return Turn::Nobody;
        };
        let Some(flow) = &self.options.plan.flow else {
            return Turn::Nobody;
        };
        let ceilings = flow.ceilings(saturation, self.desk.cycle);
        // Mostly it is too full for everyone, which does not depend on who waits.
        if !flow.evicts && ceilings.iter().all(|it| saturation >= *it) {
            return Turn::Nobody;
        }
        let board = self.desk.board(now);
        for (place, band) in flow.bands.iter().enumerate() {
            let Some(next) = board.next(band.priority, &band.fairness, now) else {
                continue;
            };
            // Lower bands do not overtake one that has to wait.
            let ceiling = ceilings.get(place).copied().unwrap_or_default();
            if saturation >= ceiling {
                let of = (&board, band.priority);
                return self.reclaim(shared, of, (saturation, ceiling), now);
            }
            if next.owner == self.tally.owner() {
                let first = self.desk.queues.first(place, &next.id);
                return first.map_or(Turn::Nobody, Turn::Mine);
            }
            return if self.desk.wakes(&next, now) {
                Turn::Of(next.slot)
            } else {
                Turn::Nobody
            };
        }
        Turn::Nobody
    }

    /// Chooses an endpoint for a request that has waited; `None` when another was faster and it goes
    /// on waiting.
    ///
    /// After a refusal it does not wait any more either.
    pub fn start(
        &mut self,
        shared: &impl SharedData,
        (id, request): (WaitId, &Request),
        draws: &mut Draws,
        now: Timestamp,
    ) -> Result<Option<Pick>, Refusal> {
        if let Some(gathered) = self.batch.remove(id) {
            let picked = self.pick_gathered(shared, (&gathered, request), draws, now);
            return picked.map(Some);
        }
        let Some((band, _)) = self.desk.queues.of(id) else {
            return Err(Refusal::ShuttingDown);
        };
        let gate = Gate {
            band,
            cycle: self.desk.cycle,
        };
        let picked = self.pick_through(shared, (request, Some(gate)), draws, now);
        let Some(flow) = &self.options.plan.flow else {
            return picked.map(Some);
        };
        match picked {
            Ok(pick) => {
                self.desk.serve(shared, flow, id, now);
                Ok(Some(pick))
            }
            Err(Refusal::Saturated | Refusal::NoEndpoint) => Ok(None),
            Err(refusal) => {
                self.desk.remove(shared, flow, &[id], now);
                Err(refusal)
            }
        }
    }

    /// The client of a request that waits has left.
    pub fn leave(&mut self, shared: &impl SharedData, id: WaitId, now: Timestamp) {
        self.batch.remove(id);
        if let Some(flow) = &self.options.plan.flow {
            self.desk.remove(shared, flow, &[id], now);
        }
    }

    /// The requests that have waited as long as they may, and keeps the others in their places; to
    /// be called every few milliseconds while something waits here.
    pub fn expired(&mut self, shared: &impl SharedData, now: Timestamp) -> Vec<(WaitId, Refusal)> {
        if self.desk.queues.is_empty() && self.desk.running.is_empty() {
            return Vec::new();
        }
        self.catch_up(shared, now);
        let has_endpoints = self.has_endpoints();
        let since = self.desk.since_regime(has_endpoints, now);
        let Some(flow) = &self.options.plan.flow else {
            return Vec::new();
        };
        let refusal = if has_endpoints {
            Refusal::WaitedTooLong
        } else {
            Refusal::WaitedWithoutEndpoint
        };
        let waiting = self.desk.queues.by_age();
        let is_over = |from: Timestamp| {
            ttl(flow, has_endpoints).is_some_and(|ttl| now.since(from.max(since)) >= ttl)
        };
        let over = waiting.take_while(|(_, queued_at)| is_over(*queued_at));
        let ids: Vec<WaitId> = over.map(|(id, _)| id).collect();
        self.desk.remove(shared, flow, &ids, now);
        self.desk.tick(shared, flow, now);
        ids.into_iter().map(|id| (id, refusal)).collect()
    }

    /// Ends the waiting of all requests, as when the configuration goes.
    pub fn close(&mut self, shared: &impl SharedData, now: Timestamp) -> Vec<(WaitId, Refusal)> {
        let mut ids: Vec<WaitId> = self.desk.queues.by_age().map(|(id, _)| id).collect();
        if let Some(flow) = &self.options.plan.flow {
            self.desk.remove(shared, flow, &ids, now);
        }
        ids.extend(self.batch.drain());
        let of = |id| (id, Refusal::ShuttingDown);
        ids.into_iter().map(of).collect()
    }

    /// How many requests wait in this worker.
    pub fn waiting(&self) -> usize {
        self.desk.queues.len() + self.batch.len()
    }

    /// What waits in all workers, by the priorities of the bands; empty without flow control.
    ///
    /// As the board was read or written last.
    pub fn waiting_by_band(&self, now: Timestamp) -> Vec<(i32, Waiting)> {
        let Some(flow) = &self.options.plan.flow else {
            return Vec::new();
        };
        let board = self.desk.board(now);
        let bands = flow.priorities();
        bands.map(|it| (it, board.waiting(Some(it)))).collect()
    }

    /// The number under which this worker is woken, once it has one.
    pub fn slot(&self) -> Option<u8> {
        self.tally.slot()
    }

    /// How full the endpoints are; `None` when there is none.
    pub fn saturation(&self, now: Timestamp) -> Option<f64> {
        let request = Request::bodiless();
        let known = self.known(&request);
        let candidates = self.candidates(&known, now);
        self.fullness(&self.context(&known, &candidates, &[]))
    }

    /// How full the candidates are; `None` when none is ready.
    ///
    /// Those that fail count only when all do, for else they get nothing.
    pub(super) fn fullness(&self, cx: &Context<'_>) -> Option<f64> {
        let ready = cx.candidates.iter().filter(|it| it.is_ready());
        ready.clone().next()?;
        let do_all_fail = !ready.clone().any(|it| it.may_serve);
        let able = ready.filter(|it| do_all_fail || it.may_serve);
        let saturation = self.options.plan.detector.saturation(cx, able.clone());
        let Some(cap) = self.options.requests_per_endpoint else {
            return Some(saturation);
        };
        // A stage of which every endpoint has as much as it may have is full.
        let is_full = |of: fn(&Candidate<'_>) -> bool| {
            let mut stage = able.clone().filter(|it| of(it)).peekable();
            stage.peek().is_some() && stage.all(|it| it.load.requests >= cap)
        };
        let is_some_full =
            is_full(|it| it.prefills()) || is_full(|it| it.decodes()) || is_full(|_| true);
        Some(if is_some_full {
            saturation.max(1.0)
        } else {
            saturation
        })
    }

    /// Whether some endpoint is ready: neither asleep nor draining nor known not to listen.
    pub fn has_endpoints(&self) -> bool {
        let mut endpoints = self.view.snapshot().endpoints.iter();
        endpoints.any(|it| Candidate::idle(it).is_ready())
    }

    /// The models that ready endpoints say they serve, as often as they say it.
    pub fn served_models(&self) -> impl Iterator<Item = &str> {
        let endpoints = self.view.snapshot().endpoints.iter();
        let ready = endpoints.filter(|it| Candidate::idle(it).is_ready());
        let models = ready.flat_map(|it| it.models.iter().flatten());
        models.map(|it| it.id.as_str())
    }

    /// Counts for a flow what its request has had.
    pub(super) fn attain(
        &mut self,
        shared: &impl SharedData,
        ticket: &mut Ticket,
        answered: Answered,
        now: Timestamp,
    ) {
        let (Some((priority, name)), Some(flow)) =
            (ticket.flow.take().map(|it| *it), &self.options.plan.flow)
        else {
            return;
        };
        let band = flow.bands.iter().find(|it| it.priority == priority);
        let Some(Fairness::ProgramAware(weights)) = band.map(|it| it.fairness) else {
            return;
        };
        let prompt = answered
            .prompt_tokens
            .map_or_else(|| self.means.tokens(ticket.bytes) as f64, f64::from);
        let output = answered.output_tokens.map_or(0.0, f64::from);
        let tokens = prompt + OUTPUT_WEIGHT * output;
        self.desk
            .attain(shared, flow, (&name, tokens, &weights), now);
    }

    /// The flow that a request of this band is counted for when it ends, where that is of use.
    pub(super) fn counted_flow(&self, gate: Gate, request: &Request) -> Option<(i32, String)> {
        let flow = self.options.plan.flow.as_ref()?;
        let band = flow.bands.get(gate.band)?;
        let is_counted = matches!(band.fairness, Fairness::ProgramAware(_));
        let name = request.fairness_id.as_deref().unwrap_or(DEFAULT_FLOW);
        is_counted.then(|| (band.priority, Desk::flow_name(name)))
    }
}

fn ttl(flow: &FlowControl, has_endpoints: bool) -> Option<Span> {
    if has_endpoints {
        flow.request_ttl
    } else {
        flow.no_endpoint_ttl
    }
}

/// What a generated token counts for, where one of the prompt is 1; the reference picker's.
const OUTPUT_WEIGHT: f64 = 2.0;

#[cfg(test)]
#[path = "turns/tests.rs"]
mod tests;
