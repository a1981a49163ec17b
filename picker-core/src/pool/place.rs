//! What all workers are told of a decision.

use alloc::vec::Vec;

use super::Pool;
use super::decide::{Decision, Known};
use crate::ring::{Entry, MediaSent, Placed};
use crate::shared::SharedData;
use crate::twin::Twins;
use crate::{BlockHash, EndpointId};

impl Pool {
    /// Tells all workers that the picked endpoint, and the one that computes the prompts for it, hold
    /// the request's prompts from now on, and its adapter.
    pub(super) fn place(
        &mut self,
        shared: &impl SharedData,
        known: &Known<'_>,
        decision: &mut Decision,
    ) {
        if !known.media.is_empty() {
            let sent = Entry::Media(MediaSent {
                endpoint: decision.pick.endpoint,
                media: known.media.clone(),
            });
            self.replica.tell(shared, |_| Some(sent.clone()));
        }
        let is_cold = decision.is_cold;
        let (endpoint, ticket) = (decision.pick.endpoint, &mut decision.pick.ticket);
        ticket.placed = self.place_at(shared, known, endpoint, is_cold);
        if let Some(prefill) = ticket.prefill {
            ticket.prefill_placed = self.place_at(shared, known, prefill, is_cold);
        }
    }

    /// Places the prompts at `endpoint`; the numbers of the entries to be ended.
    fn place_at(
        &mut self,
        shared: &impl SharedData,
        known: &Known<'_>,
        endpoint: EndpointId,
        is_cold: bool,
    ) -> Vec<u64> {
        let mut adapter = known.adapter;
        let mut chains: Vec<&[BlockHash]> = known
            .request
            .prompts
            .iter()
            .map(|prompt| prompt.blocks.as_slice())
            .collect();
        chains.retain(|blocks| !blocks.is_empty());
        if chains.is_empty() && (adapter.is_some() || is_cold) {
            chains.push(&[]);
        }
        let mut all = Vec::new();
        for blocks in chains {
            let of = (endpoint, adapter.take());
            let placed = self.tell_placed(shared, of, blocks, is_cold);
            // What takes no room is not given back.
            let takes_room = !blocks.is_empty() || of.1.is_some();
            all.extend(placed.filter(|_| takes_room));
        }
        all
    }

    fn tell_placed(
        &mut self,
        shared: &impl SharedData,
        (endpoint, adapter): (EndpointId, Option<u64>),
        blocks: &[BlockHash],
        is_cold: bool,
    ) -> Option<u64> {
        let owner = self.tally.owner();
        let place = |twins: &Twins| {
            let placed = twins.placement(endpoint, blocks, (owner, adapter));
            Some(Entry::Placed(Placed { is_cold, ..placed }))
        };
        self.replica.tell(shared, place)
    }
}
