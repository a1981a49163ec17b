//! The decision: candidates, what is known of them, and what the plan makes of it.

use alloc::vec::Vec;

use super::Pool;
use crate::adapter::AdapterFit;
use crate::candidate::{Candidate, Context};
use crate::draw::Draws;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::ticket::{Pick, Ticket};
use crate::twin::Held;
use crate::{EndpointId, Timestamp};

impl Pool {
    pub(super) fn decide(
        &self,
        (request, adapter): (&Request, Option<u64>),
        held: &[Held],
        draws: &mut Draws,
        now: Timestamp,
    ) -> Result<Pick, Refusal> {
        let candidates = self.candidates(adapter, held, now);
        let bytes: u64 = request.prompts.iter().map(|prompt| prompt.bytes).sum();
        let blocks = request.prompts.iter().map(|prompt| prompt.blocks.len());
        let cx = Context {
            candidates: &candidates,
            request,
            blocks: blocks.sum(),
            prompt_tokens: self.means.tokens(bytes),
            block_tokens: self.means.block_tokens(),
            output_tokens: request.output_cap.map_or(self.means.output_tokens, |cap| {
                self.means.output_tokens.min(cap as f64)
            }),
            group: request.group,
        };
        let plan = &self.options.plan;
        let outcome = plan.handler.run(plan, &cx, draws)?;
        let places = outcome.ranked.places.iter();
        let ranked: Vec<&Candidate<'_>> = places.filter_map(|it| candidates.get(*it)).collect();
        let best = ranked.first().ok_or(Refusal::NoEndpoint)?;
        let endpoint = best.endpoint.id;
        let missing = cx.missing_tokens(best);
        let matched_tokens = cx.prompt_tokens.saturating_sub(missing);
        let prefill_tokens = u32::try_from(missing).unwrap_or(u32::MAX);
        Ok(Pick {
            endpoint,
            destinations: ranked.iter().map(|it| it.endpoint.address).collect(),
            matched: best.held.matched,
            blocks: cx.blocks,
            prompt_tokens: u32::try_from(cx.prompt_tokens).unwrap_or(u32::MAX),
            headers: outcome.headers,
            ticket: Ticket {
                prefill_tokens,
                matched_tokens: u32::try_from(matched_tokens).unwrap_or(u32::MAX),
                bytes,
                placed: Vec::new(),
                endpoint: Some(endpoint),
            },
        })
    }

    /// All endpoints with what is known of them, in the order of the snapshot.
    fn candidates(
        &self,
        adapter: Option<u64>,
        held: &[Held],
        now: Timestamp,
    ) -> Vec<Candidate<'_>> {
        let endpoints = &self.view.snapshot().endpoints;
        let loads = self.tally.totals(endpoints.iter().map(|it| it.id), now);
        let known = endpoints.iter().zip(held).zip(loads).enumerate();
        known
            .map(|(place, ((endpoint, held), load))| Candidate {
                endpoint,
                labels: self.labels_of(place),
                may_serve: self
                    .twins()
                    .health(endpoint.id)
                    .may_serve(load.requests, now),
                fresh: endpoint.is_fresh(now, self.options.staleness_threshold),
                load,
                held: *held,
                pinned: self.twins().pinned(endpoint.id),
                capacity_tokens: self.capacity_tokens(endpoint),
                adapter: adapter.and_then(|adapter| self.adapter_fit(endpoint.id, adapter)),
            })
            .collect()
    }

    /// What each endpoint holds of the request's prompts, in the order of the snapshot.
    pub(super) fn held(&self, request: &Request) -> Vec<Held> {
        let of_endpoint = |id| {
            let held = request
                .prompts
                .iter()
                .map(|prompt| self.twins().held(id, &prompt.blocks));
            held.fold(Held::default(), Held::plus)
        };
        self.view
            .snapshot()
            .endpoints
            .iter()
            .map(|endpoint| of_endpoint(endpoint.id))
            .collect()
    }

    fn adapter_fit(&self, endpoint: EndpointId, adapter: u64) -> Option<AdapterFit> {
        let listed = self.adapters.of(endpoint)?;
        Some(self.twins().adapters(endpoint)?.fit(adapter, listed))
    }
}
