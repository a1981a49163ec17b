//! A request in stages, each at an endpoint of its own: images are encoded, the prompt is computed,
//! the answer is decoded.
//!
//! The request goes to the endpoint that decodes. A program beside it reads in headers who does the
//! rest, and asks them first.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Outcome, nobody};
use crate::candidate::{Candidate, Context};
use crate::draw::Draws;
use crate::plan::Plan;
use crate::profile::Ranked;
use crate::refusal::Refusal;

/// Which profile chooses for which stage, and when a stage has an endpoint of its own.
///
/// Profiles are places in the plan. A stage without a profile or without a decider is never apart,
/// but for the prompt where it comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stages {
    /// Whether the endpoint that computes the prompt is chosen first, and always.
    pub prefill_first: bool,
    /// The profile of the destination.
    pub decode: usize,
    /// The profile of who computes the prompt.
    pub prefill: Option<usize>,
    /// The profile of who encodes.
    pub encode: Option<usize>,
    /// When the prompt is computed elsewhere.
    pub prefill_decider: Option<Decider>,
    /// When images and the like are encoded elsewhere.
    pub encode_decider: Option<Decider>,
    /// The port of the destination's host that requests go to, when it is not the destination's own.
    pub primary_port: Option<u16>,
}

/// Whether a stage has an endpoint of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decider {
    /// `always-disagg-pd-decider`: always.
    Always,
    /// `always-disagg-multimodal-decider`: when there is something in the prompt that is not text.
    Multimodal,
    /// `prefix-based-pd-decider`: when enough of the prompt is not in the destination's cache.
    Uncached {
        /// The least tokens that are not; never when 0.
        uncached_tokens: u64,
        /// The least tokens of the prompt.
        prompt_tokens: u64,
    },
}

impl Stages {
    pub(super) fn run(
        &self,
        plan: &Plan,
        cx: &Context<'_>,
        draws: &mut Draws,
    ) -> Result<Outcome, Refusal> {
        let rank = |profile: Option<usize>, cx: &Context<'_>, draws: &mut Draws| {
            let profile = profile.and_then(|it| plan.profiles.get(it));
            profile.map_or_else(Ranked::default, |it| it.rank(cx, draws))
        };
        let at = |ranked: &Ranked| ranked.places.first().and_then(|it| cx.candidates.get(*it));
        let [mut prefill, mut encode] = [Ranked::default(), Ranked::default()];
        // What is no call of an API that is known has no prompt to compute apart.
        let is_divisible = cx.request.shape.is_some();
        let mut decode_cx = *cx;
        if self.prefill_first && is_divisible {
            prefill = rank(self.prefill, cx, draws);
            if is_apart(self.encode_decider, cx, None) {
                encode = rank(self.encode, cx, draws);
            }
            decode_cx.peer = at(&prefill);
        }
        let decode = rank(Some(self.decode), &decode_cx, draws);
        let Some(best) = at(&decode) else {
            return Err(nobody(cx, Refusal::NoDecode));
        };
        if !self.prefill_first && is_divisible {
            if is_apart(self.encode_decider, cx, Some(best)) {
                encode = rank(self.encode, cx, draws);
            }
            if is_apart(self.prefill_decider, cx, Some(best)) {
                let mut prefill_cx = *cx;
                prefill_cx.peer = Some(best);
                prefill = rank(self.prefill, &prefill_cx, draws);
            }
        }
        // An endpoint need not ask itself.
        if prefill.places.first() == decode.places.first() {
            prefill = Ranked::default();
        }
        Ok(self.outcome(cx, decode, [prefill, encode]))
    }

    fn outcome(&self, cx: &Context<'_>, decode: Ranked, others: [Ranked; 2]) -> Outcome {
        let [prefill, encode] = others.map(|it| it.places);
        let address = |place: &usize, text: &mut String| {
            if let Some(candidate) = cx.candidates.get(*place) {
                candidate.endpoint.address.write_to(text);
            }
        };
        let mut headers = Vec::new();
        if let Some(place) = prefill.first() {
            let mut text = String::new();
            address(place, &mut text);
            headers.push((PREFILL_HEADER, text));
        }
        if !encode.is_empty() {
            let mut text = String::new();
            for place in &encode {
                if !text.is_empty() {
                    text.push(',');
                }
                address(place, &mut text);
            }
            headers.push((ENCODE_HEADER, text));
        }
        Outcome {
            division: Some(match (encode.is_empty(), prefill.is_empty()) {
                (true, true) => "decode-only",
                (true, false) => "prefill-decode",
                (false, true) => "encode-decode",
                (false, false) => "encode-prefill-decode",
            }),
            prefill: prefill.first().copied(),
            encode: encode.first().copied(),
            ranked: decode,
            primary_port: self.primary_port,
            headers,
        }
    }
}

/// What `decider` says of a request whose destination is `decode`, where that is settled.
fn is_apart(decider: Option<Decider>, cx: &Context<'_>, decode: Option<&Candidate<'_>>) -> bool {
    match decider {
        None => false,
        Some(Decider::Always) => true,
        Some(Decider::Multimodal) => !cx.request.media.is_empty(),
        Some(Decider::Uncached {
            uncached_tokens,
            prompt_tokens,
        }) => {
            let Some(decode) = decode else { return false };
            let held = decode.held.matched as f64 * cx.block_tokens;
            let uncached = cx.prompt_tokens.saturating_sub(held as u64);
            uncached_tokens > 0 && cx.prompt_tokens >= prompt_tokens && uncached >= uncached_tokens
        }
    }
}

/// Names who computes the prompt.
pub(super) const PREFILL_HEADER: &str = "x-prefiller-host-port";

/// Names those who encode, separated by commas.
pub(super) const ENCODE_HEADER: &str = "x-encoder-hosts-ports";
