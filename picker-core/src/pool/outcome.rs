//! What profiles came to, in addresses, headers and numbers.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::Value;

use super::Pool;
use crate::Address;
use crate::candidate::{Candidate, Context};
use crate::draw::Draws;
use crate::handler::Outcome;
use crate::profile::Ranked;
use crate::refusal::Refusal;
use crate::ticket::{Pick, Ticket};

impl Pool {
    /// The pick that `outcome` describes; of its ticket the bytes are left to be set.
    pub(super) fn pick_of(
        &self,
        cx: &Context<'_>,
        outcome: Outcome,
        draws: &mut Draws,
    ) -> Result<Pick, Refusal> {
        let at = |place: usize| cx.candidates.get(place);
        let places = outcome.ranked.places.iter();
        let ranked: Vec<&Candidate<'_>> = places.filter_map(|it| at(*it)).collect();
        let best = *ranked.first().ok_or(Refusal::NoEndpoint)?;
        if cx.request.only_cached && !cx.request.prompts.is_empty() && best.held.matched == 0 {
            return Err(Refusal::NotCached);
        }
        let prefill = outcome.prefill.and_then(at);
        let mut destinations: Vec<Address> = ranked.iter().map(|it| it.endpoint.address).collect();
        let mut headers = outcome.headers;
        if let Some(port) = outcome.primary_port {
            // The header names one endpoint, so that there is no fallback with another host.
            headers.push((DATA_PARALLEL_HEADER, best.endpoint.address.to_string()));
            destinations = [best.endpoint.address.with_port(port)].into();
        }
        headers.extend(self.kv_source(cx, (best, prefill), draws));
        let tokens = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let matched = cx.prompt_tokens.saturating_sub(cx.missing_tokens(best));
        Ok(Pick {
            endpoint: best.endpoint.id,
            destinations,
            matched: best.held.matched,
            blocks: cx.blocks,
            prompt_tokens: tokens(cx.prompt_tokens),
            prefill: prefill.map(|it| it.endpoint.address),
            division: outcome.division,
            scores: self.scores(cx, &outcome.ranked),
            headers,
            ticket: Ticket {
                prefill_tokens: tokens(cx.missing_tokens(prefill.unwrap_or(best))),
                matched_tokens: tokens(matched),
                endpoint: Some(best.endpoint.id),
                prefill: prefill.map(|it| it.endpoint.id),
                encode: outcome.encode.and_then(at).map(|it| it.endpoint.id),
                ..Ticket::default()
            },
        })
    }

    /// The header that names who holds blocks of the prompt, where the plan wants that.
    fn kv_source(
        &self,
        cx: &Context<'_>,
        (best, prefill): (&Candidate<'_>, Option<&Candidate<'_>>),
        draws: &mut Draws,
    ) -> Option<(&'static str, String)> {
        let plan = &self.options.plan;
        let kv_source = plan.kv_source.as_ref()?;
        let is_computing = |profile: &str| profile == kv_source.prefill_profile;
        let is_split = plan.handler.prefill_profile(plan).is_some_and(is_computing);
        let computing = prefill.filter(|_| is_split).unwrap_or(best);
        kv_source.header(cx, computing, draws)
    }

    /// The totals by address as JSON, where they are asked for.
    fn scores(&self, cx: &Context<'_>, ranked: &Ranked) -> String {
        if !self.options.emit_scores {
            return String::new();
        }
        let totals = ranked.considered.iter().zip(&ranked.totals);
        let scored = totals.filter_map(|(place, total)| {
            let candidate = cx.candidates.get(*place)?;
            Some((candidate.endpoint.address.to_string(), Value::from(*total)))
        });
        Value::Object(scored.collect()).to_string()
    }
}

/// Names the endpoint that was chosen on the host that the request goes to.
const DATA_PARALLEL_HEADER: &str = "x-data-parallel-host-port";
