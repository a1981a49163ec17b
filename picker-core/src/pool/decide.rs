//! The decision: candidates, what is known of them, and what the plan makes of it.

use alloc::vec::Vec;

use super::Pool;
use crate::adapter::AdapterFit;
use crate::candidate::{Candidate, Context};
use crate::draw::Draws;
use crate::latency::Prediction;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::session::{Affinity, Pin};
use crate::sort::sort;
use crate::ticket::Pick;
use crate::twin::Held;
use crate::{EndpointId, Timestamp};

/// What is looked up once for a request, however often it is decided.
pub(super) struct Known<'r> {
    pub(super) request: &'r Request,
    /// The adapter that it needs.
    pub(super) adapter: Option<u64>,
    /// What each endpoint holds of its prompts, in the order of the snapshot.
    pub(super) held: Vec<Held>,
    /// The hashes of its media, none twice; empty where the plan does not ask for them.
    pub(super) media: Vec<u64>,
    /// A draw from 0 up to 1, below which it is to be refused; 1 where nothing refuses it.
    pub(super) luck: f64,
    /// What is known of its sessions.
    pub(super) pins: Vec<Pin>,
    /// What it has to pass, where it would wait otherwise.
    pub(super) gate: Option<Gate>,
    /// The endpoint that is to be taken for the one that holds its prompts.
    pub(super) home: Option<EndpointId>,
}

/// Whether the endpoints are too full for a band.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gate {
    /// The place of the band.
    pub(super) band: usize,
    /// Which cycle it is for the policy that says how full they may be.
    pub(super) cycle: u64,
}

/// What was decided.
pub(super) struct Decision {
    pub(super) pick: Pick,
    /// The endpoints that could have been chosen, where sessions are kept.
    pub(super) considered: Vec<EndpointId>,
    /// Whether none of them holds any of the request; only said where the plan asks for it.
    pub(super) is_cold: bool,
}

impl Pool {
    pub(super) fn decide(
        &self,
        known: &Known<'_>,
        draws: &mut Draws,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let request = known.request;
        let sessions = self.sessions.as_deref();
        let pinned = sessions.map_or_else(Vec::new, |it| it.pinned(&known.pins));
        let unforetold = self.candidates(known, now);
        let mut cx = self.context(known, &unforetold, &pinned);
        let predictions = self.foretold(&cx);
        let foretold: Vec<Candidate<'_>>;
        if !predictions.is_empty() {
            foretold = with(&unforetold, &predictions).collect();
            cx.candidates = &foretold;
        }
        self.admit(known, &cx)?;
        let mut admitters = self.options.plan.admitters.iter();
        if known.luck < 1.0 && admitters.any(|it| known.luck < it.refuses(request, cx.candidates)) {
            return Err(Refusal::NotAdmitted);
        }
        let plan = &self.options.plan;
        let mut seen = cx;
        let at_home: Vec<Candidate<'_>>;
        if let Some(home) = known.home {
            at_home = held_at(home, &cx);
            seen.candidates = &at_home;
        }
        let outcome = plan.handler.run(plan, &seen, draws)?;
        let id_at = |place: usize| cx.candidates.get(place).map(|it| it.endpoint.id);
        let places = outcome.ranked.considered.iter();
        let holds = |place: &usize| {
            let candidate = cx.candidates.get(*place);
            candidate.is_some_and(|it| it.held.matched > 0)
        };
        let is_cold = self.needs_cold_order && !places.clone().any(holds);
        let considered = places.filter_map(|place| id_at(*place));
        let considered = sessions.map_or_else(Vec::new, |_| considered.collect());
        let mut pick = self.pick_of(&cx, outcome, draws)?;
        pick.ticket.bytes = bytes_of(request);
        pick.ticket.lesson = self.lesson(&cx, &pick, now);
        let outputs = plan.producers.outputs;
        pick.ticket.kept_tokens =
            outputs.map_or(0, |it| it.tokens(cx.prompt_tokens, request.output_cap));
        Ok(Decision {
            pick,
            is_cold,
            considered,
        })
    }

    pub(super) fn context<'a>(
        &self,
        known: &'a Known<'_>,
        candidates: &'a [Candidate<'a>],
        pinned: &'a [(&'a Affinity, EndpointId)],
    ) -> Context<'a> {
        let request = known.request;
        let producers = self.options.plan.producers;
        let prompts = request.prompts.iter();
        let blocks = prompts.map(|prompt| producers.counted(prompt.blocks.len()));
        Context {
            candidates,
            request,
            blocks: blocks.sum(),
            media: known.media.len(),
            prompt_tokens: self.means.tokens(bytes_of(request)),
            block_tokens: self.means.block_tokens(),
            output_tokens: request.output_cap.map_or(self.means.output_tokens, |cap| {
                self.means.output_tokens.min(cap as f64)
            }),
            group: request.group,
            pinned,
            peer: None,
        }
    }

    /// What this worker knows of `request` without asking for more.
    pub(super) fn known<'r>(&self, request: &'r Request) -> Known<'r> {
        Known {
            request,
            adapter: self.adapters.needed_by(request),
            held: self.held(request),
            media: self.media(request),
            luck: 1.0,
            pins: Vec::new(),
            gate: None,
            home: None,
        }
    }

    /// Whether the endpoints have room for the request.
    ///
    /// Without flow control they have for whoever matters as much as others do; the rest is turned
    /// away when they are full.
    fn admit(&self, known: &Known<'_>, cx: &Context<'_>) -> Result<(), Refusal> {
        let plan = &self.options.plan;
        let mut ready = cx.candidates.iter().filter(|it| it.is_ready()).peekable();
        let is_nobody_ready = ready.peek().is_none();
        if !is_nobody_ready && ready.all(|it| it.is_full) {
            return Err(Refusal::Saturated);
        }
        if let (Some(gate), Some(flow)) = (known.gate, &plan.flow) {
            let saturation = self.fullness(cx).ok_or(Refusal::NoEndpoint)?;
            let ceilings = flow.ceilings(saturation, gate.cycle);
            let ceiling = ceilings.get(gate.band).copied().unwrap_or_default();
            return if saturation < ceiling {
                Ok(())
            } else {
                Err(Refusal::Saturated)
            };
        }
        let is_sheddable = known.request.priority < 0 && known.request.shape.is_some();
        if is_sheddable
            && plan.flow.is_none()
            && self
                .fullness(cx)
                .is_some_and(|saturation| saturation >= 1.0)
        {
            return Err(Refusal::Saturated);
        }
        Ok(())
    }

    fn media(&self, request: &Request) -> Vec<u64> {
        if self.options.plan.producers.media_max == 0 {
            return Vec::new();
        }
        let mut media: Vec<u64> = request.media.iter().map(|it| it.hash).collect();
        sort(&mut media);
        media.dedup();
        media
    }

    fn media_held(&self, endpoint: EndpointId, media: &[u64]) -> usize {
        if media.is_empty() {
            return 0;
        }
        self.twins().media_held(endpoint, media)
    }

    /// All endpoints that take requests, with what is known of them, in the order of the snapshot.
    pub(super) fn candidates(&self, known: &Known<'_>, now: Timestamp) -> Vec<Candidate<'_>> {
        let Known {
            adapter,
            held,
            media,
            ..
        } = known;
        let endpoints = &self.view.snapshot().endpoints;
        let loads = self.tally.totals(endpoints.iter().map(|it| it.id), now);
        let options = &self.options;
        let gpus_threshold = options
            .plan
            .sources
            .gpus_threshold(options.staleness_threshold);
        // What is no call of an API takes no room there.
        let is_capped = known.request.shape.is_some();
        let known = endpoints.iter().zip(held).zip(loads).enumerate();
        // Whoever is about to end gets nothing new, not even when there is no other.
        known
            .filter(|(_, ((endpoint, _), _))| !endpoint.draining)
            .map(|(place, ((endpoint, held), load))| Candidate {
                endpoint,
                labels: self.labels_of(place),
                may_serve: self
                    .twins()
                    .health(endpoint.id)
                    .may_serve(load.requests, now),
                fresh: endpoint.is_fresh(now, self.options.staleness_threshold),
                is_full: is_capped
                    && options
                        .requests_per_endpoint
                        .is_some_and(|cap| load.requests >= cap),
                load,
                held: *held,
                media_held: self.media_held(endpoint.id, media),
                pinned: self.twins().pinned(endpoint.id),
                capacity_tokens: self.capacity_tokens(endpoint),
                cold_at: if self.needs_cold_order {
                    self.twins().cold_at(endpoint.id)
                } else {
                    0
                },
                gpu_usage: gpus_threshold.and_then(|it| endpoint.gpu_usage(now, it)),
                adapter: (*adapter).and_then(|adapter| self.adapter_fit(endpoint.id, adapter)),
                prediction: None,
            })
            .collect()
    }

    /// What each endpoint holds of the request's prompts, in the order of the snapshot.
    fn held(&self, request: &Request) -> Vec<Held> {
        let of_endpoint = |id| {
            let held = request.prompts.iter().map(|prompt| {
                let held = self.twins().held(id, &prompt.blocks);
                self.options.plan.producers.counted_of(held)
            });
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

/// `candidates`, each with what is predicted of it.
fn with<'a>(
    candidates: &'a [Candidate<'a>],
    predictions: &'a [Option<Prediction>],
) -> impl Iterator<Item = Candidate<'a>> {
    let both = candidates.iter().zip(predictions);
    both.map(|(candidate, prediction)| Candidate {
        prediction: prediction.as_ref(),
        ..*candidate
    })
}

/// The candidates of `cx` as if `home` held all of the request and the others nothing.
fn held_at<'a>(home: EndpointId, cx: &Context<'a>) -> Vec<Candidate<'a>> {
    let mut candidates = cx.candidates.to_vec();
    for it in &mut candidates {
        it.held.matched = if it.endpoint.id == home { cx.blocks } else { 0 };
        it.held.pinned = it.held.pinned.min(it.held.matched);
    }
    candidates
}

/// Bytes of all prompts.
fn bytes_of(request: &Request) -> u64 {
    request.prompts.iter().map(|prompt| prompt.bytes).sum()
}
