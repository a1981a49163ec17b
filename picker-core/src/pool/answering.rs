//! What is learnt when an endpoint begins to answer: who it is, how it does, how busy it is.

use super::Pool;
use crate::health::Verdict;
use crate::load_report::LoadReport;
use crate::ring::{Entry, Judged};
use crate::shared::SharedData;
use crate::ticket::Ticket;
use crate::{Address, EndpointId, Timestamp};

impl Pool {
    /// Whether to tell [`on_served_by`](Self::on_served_by) who gives the answer that has begun:
    /// always at first, after a surprise and where a good answer would forgive failures, else now
    /// and then.
    pub fn asks_who_serves(&mut self, ticket: &Ticket) -> bool {
        self.has_tokens()
            || self.served.is_asked()
            || ticket.endpoint.is_some_and(|it| self.may_forgive(it))
    }

    fn may_forgive(&self, endpoint: EndpointId) -> bool {
        let health = self.twins().health(endpoint);
        health.is_news(Verdict::Begun) || health.is_news(Verdict::Served)
    }

    /// Tells that `address` answers, which is another than the chosen one after a retry or a
    /// fallback.
    ///
    /// The request is then counted there. Gives whether it was the chosen one.
    pub fn on_served_by(
        &mut self,
        shared: &impl SharedData,
        ticket: &mut Ticket,
        address: Address,
        now: Timestamp,
    ) -> bool {
        let endpoints = &self.view.snapshot().endpoints;
        let served = endpoints
            .iter()
            .find(|endpoint| endpoint.address == address);
        let served = served.map(|endpoint| endpoint.id);
        let Some(chosen) = ticket.endpoint else {
            return false;
        };
        if served == Some(chosen) {
            return true;
        }
        self.served.missed();
        self.end_lesson(ticket);
        if let Some(served) = served {
            let is_own = ticket.prefill.is_none();
            let prefill = if is_own { ticket.prefill_tokens } else { 0 };
            let kept = ticket.kept_tokens;
            self.tally.load_mut(chosen).release(prefill, kept);
            self.tally.load_mut(served).take_over(prefill, kept);
            ticket.endpoint = Some(served);
            self.tell_soon(shared, now);
        }
        false
    }

    /// Tells how the endpoint that answers does. News goes to all workers.
    pub fn on_verdict(
        &mut self,
        shared: &impl SharedData,
        ticket: &Ticket,
        verdict: Verdict,
        now: Timestamp,
    ) {
        let Some(endpoint) = ticket.endpoint else {
            return;
        };
        if self.twins().health(endpoint).is_news(verdict) {
            let judged = Judged {
                endpoint,
                verdict,
                at: now,
            };
            self.replica.tell(shared, |_| Some(Entry::Judged(judged)));
        }
    }

    /// What the endpoint says of its load with its answer: newer than any page, for this worker, until
    /// the next snapshot.
    pub fn on_load_report(&mut self, ticket: &Ticket, report: LoadReport, now: Timestamp) {
        if let Some(id) = ticket.endpoint {
            let totals = self.tally.totals([id].into_iter(), now);
            let load = totals.first().copied().unwrap_or_default();
            self.view.take_in(id, report, load, now);
        }
    }
}
