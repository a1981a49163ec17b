//! Latencies in a decision: what is predicted before it, and what its answer teaches.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use super::Pool;
use crate::candidate::{Candidate, Context};
use crate::latency::{Objectives, Occupancy, Prediction};
use crate::plan::Foretelling;
use crate::predict::{Features, Predictor};
use crate::shared::SharedData;
use crate::ticket::{Answered, Lesson, Pick, Ticket};
use crate::{EndpointId, Span, Timestamp};

/// What one worker knows of a pool's latencies.
#[derive(Default)]
pub(super) struct Latencies {
    predictor: Predictor,
    asked: Asked,
    shared_at: Timestamp,
}

/// What requests in flight ask of later tokens, least first for each endpoint.
///
/// The bits of positive numbers are in the order of the numbers.
#[derive(Default)]
struct Asked(Vec<(EndpointId, u64)>);

impl Asked {
    fn add(&mut self, endpoint: EndpointId, ms: f64) {
        let asked = (endpoint, ms.to_bits());
        if ms > 0.0 && self.0.len() < ASKED_MAX {
            let place = self.0.partition_point(|it| *it < asked);
            self.0.insert(place, asked);
        }
    }

    fn remove(&mut self, endpoint: EndpointId, ms: f64) {
        if let Ok(place) = self.0.binary_search(&(endpoint, ms.to_bits())) {
            self.0.remove(place);
        }
    }

    fn least(&self, endpoint: EndpointId) -> Option<f64> {
        let place = self.0.partition_point(|it| *it < (endpoint, 0));
        let least = self.0.get(place).filter(|(id, _)| *id == endpoint);
        least.map(|(_, bits)| f64::from_bits(*bits))
    }
}

impl Latencies {
    fn prediction(
        &self,
        cx: &Context<'_>,
        candidate: &Candidate<'_>,
        objectives: Objectives,
        rule: &Foretelling,
    ) -> Option<Prediction> {
        let (id, features) = (candidate.endpoint.id, features(cx, candidate));
        let ttft_ms = self.predictor.ttft(id, &features)?;
        let tpot_ms = if rule.headroom.streaming {
            self.predictor.tpot(id, &features)?
        } else {
            0.0
        };
        let role = candidate.label(&rule.role_label);
        let occupancy = Occupancy {
            dispatched: candidate.load.requests,
            tpot_least_ms: self.asked.least(id),
            is_prefill: role == Some(PREFILL),
        };
        let times = (ttft_ms, tpot_ms);
        Some(Prediction::new(times, objectives, occupancy, rule.headroom))
    }

    /// Forgets endpoints for which `is_listed` is false.
    pub(super) fn retain(&mut self, is_listed: impl Fn(EndpointId) -> bool) {
        self.predictor.retain(is_listed);
    }
}

impl Pool {
    /// What the request can expect of each candidate; empty where the plan does not ask.
    pub(super) fn foretold(&self, cx: &Context<'_>) -> Vec<Option<Prediction>> {
        let rule = self.options.plan.foretelling.as_ref();
        let (Some(latencies), Some(rule)) = (&self.latencies, rule) else {
            return Vec::new();
        };
        let objectives = Objectives::read(|name| cx.request.header(name));
        let candidates = cx.candidates.iter();
        candidates
            .map(|it| latencies.prediction(cx, it, objectives, rule))
            .collect()
    }

    /// What the answer will teach; `None` where the plan does not ask.
    pub(super) fn lesson(
        &self,
        cx: &Context<'_>,
        pick: &Pick,
        now: Timestamp,
    ) -> Option<Box<Lesson>> {
        self.latencies.as_ref()?;
        let known = |id: EndpointId| {
            let mut candidates = cx.candidates.iter();
            let candidate = candidates.find(|it| it.endpoint.id == id)?;
            Some((id, features(cx, candidate)))
        };
        Some(Box::new(Lesson {
            sent_at: now,
            first_token_at: None,
            prompt: known(pick.ticket.prefill.unwrap_or(pick.endpoint))?,
            answer: known(pick.endpoint)?,
            tpot_ms: Objectives::read(|name| cx.request.header(name)).tpot_ms,
        }))
    }

    /// Remembers what the request asks for while it is in flight.
    pub(super) fn begin_lesson(&mut self, ticket: &Ticket) {
        if let (Some(latencies), Some(lesson)) = (&mut self.latencies, &ticket.lesson) {
            latencies.asked.add(lesson.answer.0, lesson.tpot_ms);
        }
    }

    /// Learns from the first token, where it counts by itself.
    pub(super) fn learn_first_token(&mut self, ticket: &mut Ticket, now: Timestamp) {
        let streaming = self.is_streaming();
        if let (Some(latencies), Some(lesson)) = (&mut self.latencies, &mut ticket.lesson)
            && streaming
            && lesson.first_token_at.is_none()
        {
            lesson.first_token_at = Some(now);
            let (id, features) = &lesson.prompt;
            let took = now.since(lesson.sent_at);
            latencies.predictor.learn_ttft(*id, features, millis(took));
        }
    }

    /// Learns from an answer that has ended; from one without a token there is nothing to learn.
    pub(super) fn learn_answer(&mut self, ticket: &mut Ticket, answered: Answered, now: Timestamp) {
        let streaming = self.is_streaming();
        let Some((latencies, lesson)) = self.end_lesson(ticket) else {
            return;
        };
        let tokens = answered.output_tokens.unwrap_or(0);
        let (id, features) = &lesson.answer;
        if !streaming && tokens > 0 {
            let took = now.since(lesson.sent_at);
            latencies.predictor.learn_ttft(*id, features, millis(took));
        } else if let Some(first) = lesson.first_token_at.filter(|_| tokens > 1) {
            let ms = millis(now.since(first)) / f64::from(tokens - 1);
            latencies.predictor.learn_tpot(*id, features, ms);
        }
    }

    /// Ends a lesson that was not learnt.
    pub(super) fn end_lesson(
        &mut self,
        ticket: &mut Ticket,
    ) -> Option<(&mut Latencies, Box<Lesson>)> {
        let (latencies, lesson) = (self.latencies.as_deref_mut()?, ticket.lesson.take()?);
        latencies.asked.remove(lesson.answer.0, lesson.tpot_ms);
        Some((latencies, lesson))
    }

    fn is_streaming(&self) -> bool {
        let rule = self.options.plan.foretelling.as_ref();
        rule.is_some_and(|it| it.headroom.streaming)
    }

    /// Tells the other workers now and then what this one has learnt, and hears what they have.
    pub(super) fn share_latencies(&mut self, shared: &impl SharedData, now: Timestamp) {
        let Some(latencies) = &mut self.latencies else {
            return;
        };
        if now.apart(latencies.shared_at) < SHARED_EVERY {
            return;
        }
        latencies.shared_at = now;
        let key = |slot: u8| format!("picker/{}/latency/{slot}", self.options.name);
        if let Some(slot) = self.tally.slot() {
            let mut bytes = Vec::new();
            latencies.predictor.encode(&mut bytes);
            shared.set(&key(slot), &bytes);
        }
        let others = self.tally.other_slots(now).into_iter().map(|slot| {
            let mut bytes = Vec::new();
            shared.get(&key(slot), &mut bytes);
            bytes
        });
        let others: Vec<Vec<u8>> = others.collect();
        latencies.predictor.hear(others.iter().map(Vec::as_slice));
    }
}

/// What is known of `candidate` where the request may be sent there. What its metrics do not tell
/// counts as nothing.
fn features(cx: &Context<'_>, candidate: &Candidate<'_>) -> Features {
    let metrics = &candidate.endpoint.metrics;
    let fresh = |gauge: Option<f64>| gauge.filter(|_| candidate.fresh).unwrap_or(0.0);
    let (prompt, missing) = (cx.prompt_tokens, cx.missing_tokens(candidate));
    Features {
        input_tokens: prompt as f64,
        prefix_ratio: prompt.saturating_sub(missing) as f64 / prompt.max(1) as f64,
        waiting: fresh(metrics.waiting),
        running: f64::from(candidate.load.requests),
        kv_usage: fresh(metrics.kv_usage),
        prefill_tokens: f64::from(candidate.load.prefill_tokens),
    }
}

fn millis(span: Span) -> f64 {
    span.0 as f64 / 1000.0
}

/// What the label of a role says of an endpoint that only computes prompts.
const PREFILL: &str = "prefill";

/// Requests in flight of which it is remembered what they ask of later tokens: more than a worker
/// has streams.
const ASKED_MAX: usize = 16_384;

/// How often workers tell one another what they have learnt: rare beside requests, soon beside what
/// changes in a pool.
const SHARED_EVERY: Span = Span::from_millis(2000);

#[cfg(test)]
mod tests;
