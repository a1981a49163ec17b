//! The end of a request, and of what endpoints do before its destination answers.

use super::Pool;
use crate::Timestamp;
use crate::response::Usage;
use crate::ring::Done;
use crate::shared::SharedData;
use crate::ticket::{Answered, Ticket};

impl Pool {
    /// The endpoint has begun to answer: its prefill is done.
    pub fn on_first_byte(&mut self, shared: &impl SharedData, ticket: &mut Ticket, now: Timestamp) {
        self.learn_first_token(ticket, now);
        if self.end_prefill(shared, ticket) {
            self.tell_soon(shared, now);
        }
    }

    /// Gives back what the prompt has cost and what others had to do with it; whether there was
    /// something.
    fn end_prefill(&mut self, shared: &impl SharedData, ticket: &mut Ticket) -> bool {
        let was_prefilled = core::mem::replace(&mut ticket.is_prefilled, true);
        let Some(endpoint) = ticket.endpoint.filter(|_| !was_prefilled) else {
            return false;
        };
        let tokens = core::mem::take(&mut ticket.prefill_tokens);
        for placed in core::mem::take(&mut ticket.prefill_placed) {
            self.end_placed(
                shared,
                Done {
                    placed,
                    output_blocks: 0,
                    cached_blocks: None,
                },
            );
        }
        if let Some(encode) = ticket.encode {
            self.tally.load_mut(encode).release(0, 0);
        }
        if let Some(prefill) = ticket.prefill {
            self.tally.load_mut(prefill).release(tokens, 0);
        } else if tokens > 0 {
            let keeps = self.options.plan.producers.outputs.is_some();
            let load = self.tally.load_mut(endpoint);
            load.prefill_tokens = load.prefill_tokens.saturating_sub(tokens);
            if keeps {
                load.keep(tokens);
                ticket.kept_tokens = ticket.kept_tokens.saturating_add(tokens);
            }
        } else {
            return ticket.encode.is_some();
        }
        true
    }

    /// What is reported of an answer that used `usage`, by the property that it becomes; nothing of
    /// one whose tokens nobody counted.
    pub fn reports(&self, usage: Usage) -> impl Iterator<Item = (&str, i64)> {
        let is_counted = usage.prompt.is_some() || usage.output.is_some();
        let reports = self.options.plan.reports.iter().filter(move |_| is_counted);
        reports.filter_map(move |it| Some((it.property.as_str(), it.number.of(&usage)?)))
    }

    fn end_placed(&mut self, shared: &impl SharedData, done: Done) {
        self.replica.end(done);
        if self.replica.is_full() {
            self.replica.tell(shared, |_| None);
        }
    }

    /// The request has ended, whatever ended it. Only the first call for a ticket counts.
    ///
    /// The others learn of it at once or, when there is very much to tell, with the next pick or
    /// [`tick`](Self::tick).
    pub fn on_done(
        &mut self,
        shared: &impl SharedData,
        ticket: &mut Ticket,
        answered: Answered,
        now: Timestamp,
    ) {
        self.end_prefill(shared, ticket);
        let Some(endpoint) = ticket.endpoint.take() else {
            return;
        };
        let load = self.tally.load_mut(endpoint);
        load.release(0, ticket.kept_tokens);
        // Where the prompt came from another endpoint the answer says nothing of this one's cache.
        let cached_tokens = answered.cached_tokens.filter(|_| ticket.prefill.is_none());
        if let Some(cached) = cached_tokens {
            load.checked_tokens = load.checked_tokens.wrapping_add(ticket.matched_tokens);
            load.cached_tokens = load.cached_tokens.wrapping_add(cached);
        }
        self.means.learn(ticket.bytes, answered);
        if ticket.run.is_some() {
            self.end_run(shared, ticket, now);
        }
        if ticket.flow.is_some() {
            self.attain(shared, ticket, answered, now);
        }
        self.learn_answer(ticket, answered, now);
        // The last token has no KV: nothing was computed from it.
        let output = answered.output_tokens.unwrap_or(0).saturating_sub(1);
        let cached_blocks = cached_tokens
            .filter(|_| ticket.placed.len() == 1)
            .map(|tokens| self.means.blocks(tokens));
        for placed in core::mem::take(&mut ticket.placed) {
            self.end_placed(
                shared,
                Done {
                    placed,
                    output_blocks: self.means.blocks(output),
                    cached_blocks,
                },
            );
        }
        self.tell_soon(shared, now);
    }
}
