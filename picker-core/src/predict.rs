//! How long an endpoint will take to the first token of an answer, and from one token to the next,
//! learnt from the answers that came.
//!
//! Either time is a sum over [`TERMS`] with coefficients that are never negative, times a ratio of
//! the endpoint's own. So more to do is never predicted to be quicker, and what is said of endpoints
//! that were never chosen so busy is reasonable too: it is they that the prediction is asked about,
//! while only the chosen ones teach.

mod model;
mod ratios;
mod sums;

use alloc::vec::Vec;

use crate::EndpointId;
use crate::bytes::{Reader, Writer};
use model::Model;
use ratios::Ratios;

/// What is known of a request and an endpoint when the request may be sent there.
///
/// Anything below zero and NaN counts as zero, and what is larger than can be as `FEATURE_MAX`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Features {
    /// Tokens of the request's prompts.
    pub input_tokens: f64,
    /// The share of them that the endpoint's cache holds, `0..=1`.
    pub prefix_ratio: f64,
    /// Requests that wait at the endpoint, as its metrics say.
    pub waiting: f64,
    /// Requests that were sent there and have not ended.
    pub running: f64,
    /// The share of the endpoint's KV blocks that is in use, `0..=1`.
    pub kv_usage: f64,
    /// Prompt tokens that the endpoint has to compute for requests without a first token.
    pub prefill_tokens: f64,
}

/// Predicts latencies of one pool; what one worker has learnt, and what others told it.
///
/// It learns from relative errors: a time of a second that was ten seconds teaches no more than one
/// of ten milliseconds that was a hundred.
#[derive(Clone, Default)]
pub struct Predictor {
    ttft: Latency,
    tpot: Latency,
}

/// One of the two times.
#[derive(Clone, Default)]
struct Latency {
    model: Model,
    ratios: Ratios,
}

/// What a time is composed of, in the order of [`Features::terms`].
type Terms = [f64; TERMS];

impl Features {
    fn terms(&self) -> Terms {
        let [input, ratio, waiting, running, kv_usage, prefill] = [
            self.input_tokens,
            self.prefix_ratio,
            self.waiting,
            self.running,
            self.kv_usage,
            self.prefill_tokens,
        ]
        .map(|it| if it > 0.0 { it.min(FEATURE_MAX) } else { 0.0 });
        let missing = input * (1.0 - ratio.min(1.0)) / TOKENS;
        let prefill = prefill / TOKENS;
        [
            1.0,
            missing,
            waiting,
            running,
            kv_usage,
            prefill,
            missing * running,
            prefill * running,
        ]
    }
}

impl Predictor {
    /// Learns that the first token came `ms` after the request was sent.
    ///
    /// `features` are those of the moment of the choice. What is no time is ignored.
    pub fn learn_ttft(&mut self, endpoint: EndpointId, features: &Features, ms: f64) {
        self.ttft.learn(endpoint, features, ms);
    }

    /// Learns that tokens after the first came `ms` apart, on average over the answer.
    pub fn learn_tpot(&mut self, endpoint: EndpointId, features: &Features, ms: f64) {
        self.tpot.learn(endpoint, features, ms);
    }

    /// Takes what other workers [encoded](Self::encode) in place of all that they told before; what
    /// cannot be read is left out.
    pub fn hear<'a>(&mut self, others: impl Iterator<Item = &'a [u8]>) {
        let mut heard = Self::default();
        for bytes in others {
            let mut other = Self::default();
            if other.read(bytes).is_some() {
                heard.ttft.absorb(&other.ttft);
                heard.tpot.absorb(&other.tpot);
            }
        }
        self.ttft.hear(heard.ttft);
        self.tpot.hear(heard.tpot);
    }

    /// Forgets endpoints for which `is_listed` is false.
    pub fn retain(&mut self, is_listed: impl Fn(EndpointId) -> bool) {
        self.ttft.ratios.retain(&is_listed);
        self.tpot.ratios.retain(&is_listed);
    }

    /// The time to the first token, in milliseconds; `None` until about 32 answers were seen.
    pub fn ttft(&self, endpoint: EndpointId, features: &Features) -> Option<f64> {
        self.ttft.predict(endpoint, features)
    }

    /// The time between later tokens, in milliseconds; `None` until about 32 answers were seen.
    pub fn tpot(&self, endpoint: EndpointId, features: &Features) -> Option<f64> {
        self.tpot.predict(endpoint, features)
    }

    /// Appends what this worker has learnt itself, for others to [hear](Self::hear).
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let mut writer = Writer(bytes);
        writer.u8(FORMAT);
        for latency in [&self.ttft, &self.tpot] {
            latency.model.own.encode(&mut writer);
            latency.ratios.encode(&mut writer);
        }
    }

    fn read(&mut self, bytes: &[u8]) -> Option<()> {
        let mut reader = Reader(bytes);
        if reader.u8()? != FORMAT {
            return None;
        }
        for latency in [&mut self.ttft, &mut self.tpot] {
            latency.model.own.decode(&mut reader)?;
            latency.ratios.decode(&mut reader)?;
        }
        reader.is_empty().then_some(())
    }
}

impl Latency {
    fn learn(&mut self, endpoint: EndpointId, features: &Features, ms: f64) {
        if !(0.0 < ms && ms <= MS_MAX) {
            return;
        }
        let ms = ms.max(MS_MIN);
        let terms = features.terms();
        let expected = self.model.predict(&terms);
        let ratio = expected.map(|expected| self.ratios.learn(endpoint, expected, ms));
        self.model.learn(&terms, ms / ratio.unwrap_or(1.0));
    }

    fn predict(&self, endpoint: EndpointId, features: &Features) -> Option<f64> {
        let ms = self.model.predict(&features.terms())? * self.ratios.of(endpoint);
        Some(ms.clamp(MS_MIN, MS_MAX))
    }

    /// Adds what another worker has learnt itself.
    fn absorb(&mut self, other: &Self) {
        self.model.own.absorb(&other.model.own);
        self.ratios.absorb(&other.ratios);
    }

    fn hear(&mut self, others: Self) {
        self.model.hear(others.model.own);
        self.ratios.hear(others.ratios);
    }
}

/// Terms of a sum.
///
/// Also tried were the input without its cached part taken off, the tokens of prompts that decode,
/// the running requests as metrics tell them, squares and a boosted forest: none predicts better.
const TERMS: usize = 8;

/// Tokens are counted in thousands, so that coefficients are of one order.
const TOKENS: f64 = 1000.0;

/// No count of tokens or requests is larger; sums of squares of products stay far from overflow.
const FEATURE_MAX: f64 = 1e9;

/// The shortest time learnt or predicted, in milliseconds: steps of engines take a thousand times
/// as long.
const MS_MIN: f64 = 0.001;

/// The longest time learnt or predicted, in milliseconds: an hour.
const MS_MAX: f64 = 3_600_000.0;

/// The first byte; raised when the layout or the terms change.
const FORMAT: u8 = 1;

#[cfg(test)]
mod tests;
