//! Sessions in a decision: what is known before it, and what it leaves behind.

use alloc::string::String;
use alloc::vec::Vec;

use super::Pool;
use super::decide::{Decision, Known};
use crate::draw::Draws;
use crate::request::Request;
use crate::session::{Pin, Went};
use crate::shared::SharedData;
use crate::ticket::Ticket;
use crate::{Address, EndpointId, Timestamp};

impl Pool {
    /// The headers to set on the answer, in place of all of their names: what sends the client to
    /// the same endpoint the next time.
    ///
    /// To be asked once it is known who answers.
    pub fn answer_headers(&self, ticket: &Ticket) -> Vec<(String, String)> {
        let Some(sessions) = &self.sessions else {
            return Vec::new();
        };
        let address = |id: EndpointId| -> Option<Address> {
            let endpoint = self.view.snapshot().endpoint(id);
            endpoint.map(|it| it.address)
        };
        sessions.answer_headers(
            ticket.endpoint.and_then(address),
            ticket.prefill.and_then(address),
        )
    }

    pub(super) fn has_tokens(&self) -> bool {
        self.sessions.as_ref().is_some_and(|it| it.has_tokens())
    }

    /// What is known of the sessions of `request`.
    pub(super) fn pins(
        &mut self,
        shared: &impl SharedData,
        request: &Request,
        draws: &mut Draws,
        now: Timestamp,
    ) -> Vec<Pin> {
        let Some(sessions) = &mut self.sessions else {
            return Vec::new();
        };
        sessions.unlock(shared, &self.view.snapshot().endpoints, draws);
        sessions.pins(shared, request, now)
    }

    /// Remembers where a session is.
    pub(super) fn bind(
        &self,
        shared: &impl SharedData,
        known: &Known<'_>,
        decision: &Decision,
        now: Timestamp,
    ) {
        if let Some(sessions) = &self.sessions {
            let went = Went {
                considered: &decision.considered,
                endpoint: decision.pick.endpoint,
                prefill: decision.pick.ticket.prefill,
            };
            sessions.bind(shared, &known.pins, &went, now);
        }
    }
}
