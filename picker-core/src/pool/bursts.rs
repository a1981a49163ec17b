//! Requests that are held for a moment to be placed together.

use alloc::vec::Vec;

use super::Pool;
use super::decide::Known;
use crate::burst::Gathered;
use crate::candidate::Candidate;
use crate::draw::Draws;
use crate::flow::WaitId;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::shared::SharedData;
use crate::sort::sort_by;
use crate::ticket::Pick;
use crate::{EndpointId, Timestamp};

impl Pool {
    /// Holds a request until its batch is placed; `None` for one that is decided by itself, for
    /// bursts are not asked for or it has no prompt by which it could be placed with others.
    pub(super) fn gather(
        &mut self,
        shared: &impl SharedData,
        request: &Request,
        now: Timestamp,
    ) -> Option<WaitId> {
        let burst = self.options.plan.producers.burst?;
        // Whoever asks for what is held already is not placed anywhere else.
        if request.shape.is_none() || request.only_cached {
            return None;
        }
        let mut gathered = burst.gathered(self.desk.queues.issue(), request)?;
        if let Some(lead) = burst.lead_of(request) {
            self.catch_up(shared, now);
            let endpoints = self.view.snapshot().endpoints.iter().map(|it| it.id);
            let holds = |it: &EndpointId| self.twins().held(*it, lead).matched == lead.len();
            gathered.holders = endpoints.filter(holds).collect();
        }
        let id = gathered.id;
        self.batch.push(gathered, now);
        Some(id)
    }

    /// The next request of a batch that is placed.
    pub(super) fn next_gathered(
        &mut self,
        shared: &impl SharedData,
        now: Timestamp,
    ) -> Option<WaitId> {
        let burst = self.options.plan.producers.burst?;
        if self.batch.is_due(&burst, now) {
            self.catch_up(shared, now);
            self.tally.read(shared);
            let endpoints = self.by_requests(now);
            self.batch.place(&burst, &endpoints);
        }
        self.batch.next()
    }

    /// Chooses an endpoint for a request of a batch, as if the one that it is to go to held its
    /// prompts and no other did.
    pub(super) fn pick_gathered(
        &mut self,
        shared: &impl SharedData,
        (gathered, request): (&Gathered, &Request),
        draws: &mut Draws,
        now: Timestamp,
    ) -> Result<Pick, Refusal> {
        self.catch_up(shared, now);
        let known = Known {
            home: gathered.endpoint,
            ..self.known(request)
        };
        self.pick_known(shared, known, draws, now)
    }

    /// The endpoints that serve, those with the fewest requests first; of equal ones by address.
    fn by_requests(&self, now: Timestamp) -> Vec<EndpointId> {
        let request = Request::bodiless();
        let candidates = self.candidates(&self.known(&request), now);
        let able = candidates.iter().filter(|it| it.is_ready() && it.may_serve);
        let mut able: Vec<&Candidate<'_>> = able.collect();
        sort_by(&mut able, |one, other| {
            let requests = one.requests().total_cmp(&other.requests());
            requests.then(one.endpoint.address.cmp(&other.endpoint.address))
        });
        able.iter().map(|it| it.endpoint.id).collect()
    }
}

#[cfg(test)]
mod tests;
