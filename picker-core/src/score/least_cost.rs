//! The endpoint where the request costs least, itself and the others there, is best.
//!
//! With `n` requests in flight at an endpoint, a prompt token computed there delays `n + 1`
//! requests, so the cost of going there is, in tokens,
//!
//! ```text
//! (n + 1) * (missing + base + overflow_weight * overflow) + backlog_weight * backlog
//! ```
//!
//! where `missing` are the prompt tokens that the endpoint's cache does not hold, `overflow` the KV
//! blocks of 16 tokens by which the prompts and answers in flight would exceed its cache, and
//! `backlog` the prompt tokens before ours in its queue. `base` stands for decoding the answer. No
//! constant of any GPU is in it. Loading a LoRA adapter and waiting for one of its slots cost more.
//! The score is the least cost over the candidate's: 1 for the cheapest.
//!
//! Where other Envoys send to the same endpoints and share nothing with ours, they meet at the home
//! of a group of requests, which all of them compute alike: there most of what is missing here is
//! taken to be held already.

use alloc::string::ToString;
use alloc::vec::Vec;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::BlockHash;
use crate::adapter::AdapterFit;
use crate::candidate::{Candidate, Context, SHARE_ALONE};
use crate::score::Score;

/// The parameters of the rule.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LeastCost {
    /// Prompt tokens whose computation costs as much as what a request costs besides its prompt.
    pub base_tokens: f64,
    /// Tokens that a KV block without room costs.
    pub overflow_weight: f64,
    /// What a prompt token before ours costs.
    pub backlog_weight: f64,
}

impl Default for LeastCost {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl LeastCost {
    /// The values that did best over all simulated workloads.
    pub const DEFAULT: Self = Self {
        base_tokens: 256.0,
        overflow_weight: 12.0,
        backlog_weight: 1.67,
    };

    pub(super) fn score(self, cx: &Context<'_>, scores: &mut [Score]) {
        let home = home(cx);
        let cost = |(place, candidate)| self.cost(cx, candidate, home == Some(place));
        let costs: Vec<f64> = cx.candidates.iter().enumerate().map(cost).collect();
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        for (cost, score) in costs.iter().zip(scores) {
            *score = Score::new(least / cost);
        }
    }

    fn cost(self, cx: &Context<'_>, candidate: &Candidate<'_>, is_home: bool) -> f64 {
        let (others, prompt) = (candidate.requests(), cx.prompt_tokens as f64);
        let mut missing = cx.missing_tokens(candidate) as f64;
        if is_home {
            let hoped = missing.min(HOME_MISSING * prompt);
            missing += HOME_TRUST * (hoped - missing);
        }
        let own =
            missing + self.base_tokens + self.overflow_weight * overflow_blocks(cx, candidate);
        let backlog = self.backlog_weight * f64::from(candidate.load.prefill_tokens);
        (others + 1.0) * own + backlog + adapter_cost(candidate.adapter, others)
    }
}

/// The place of the candidate where all Envoys expect the request's group: the one whose hash with
/// it is largest.
///
/// Nowhere, unless some endpoint is known to be used by others too.
fn home(cx: &Context<'_>) -> Option<usize> {
    let BlockHash(group) = cx.group?;
    cx.candidates
        .iter()
        .find(|candidate| candidate.share() < SHARE_ALONE)?;
    let rank = |candidate: &Candidate<'_>| {
        xxh3_64_with_seed(candidate.endpoint.address.to_string().as_bytes(), group)
    };
    let ranked = cx
        .candidates
        .iter()
        .enumerate()
        .map(|(place, it)| (rank(it), place));
    ranked.max().map(|(_, place)| place)
}

/// What the request's adapter costs at an endpoint with so many `others`.
fn adapter_cost(adapter: Option<AdapterFit>, others: f64) -> f64 {
    let Some(AdapterFit {
        loads,
        evicts,
        waits,
    }) = adapter
    else {
        return 0.0;
    };
    let loading = if loads {
        (others + 1.0) * ADAPTER_LOAD
    } else {
        0.0
    };
    let waiting = if waits {
        (others + 1.0) * ADAPTER_SWAP + ADAPTER_WAIT
    } else {
        0.0
    };
    let evicting = if evicts { ADAPTER_LOSS } else { 0.0 };
    loading + evicting + waiting
}

/// KV blocks of 16 tokens that would be missing with this request on top of those in flight.
///
/// Bounded, so that of several endpoints without room the one with the least work is still told
/// apart.
fn overflow_blocks(cx: &Context<'_>, candidate: &Candidate<'_>) -> f64 {
    let Some(capacity) = candidate.capacity_tokens else {
        return 0.0;
    };
    let prompt = cx.prompt_tokens as f64;
    let own = prompt - candidate.held.pinned as f64 * cx.block_tokens + cx.output_tokens;
    let demand = cx.tokens_in_use(candidate) + own;
    let most = 4.0 * prompt + 2048.0;
    (demand - CAPACITY_FILLED * capacity as f64).clamp(0.0, most) / 16.0
}

/// Of what is missing at a group's home, how much another Envoy is trusted to have sent there
/// already.
const HOME_TRUST: f64 = 0.9;

/// The part of the prompt that is missing at home even then: what is the request's own.
const HOME_MISSING: f64 = 0.1;

/// Prompt tokens whose computation takes as long as loading an adapter.
const ADAPTER_LOAD: f64 = 3000.0;

/// The same for loading an adapter again that made room.
const ADAPTER_LOSS: f64 = 1000.0;

/// The same for making room among adapters in use.
const ADAPTER_SWAP: f64 = 6000.0;

/// The same for the request's own wait until a slot is free.
const ADAPTER_WAIT: f64 = 30_000.0;

/// How full a cache may be planned to get.
const CAPACITY_FILLED: f64 = 0.97;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Load;
    use crate::snapshot::EndpointState;
    use crate::twin::Held;
    use crate::{EndpointId, Timestamp};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// A candidate by requests and prefill tokens in flight, matched blocks, and pinned blocks.
    type Row = (u32, u32, usize, usize);

    /// The costs for a prompt of 2,176 tokens, 34 blocks, at endpoints with room for 160,000
    /// tokens.
    #[track_caller]
    fn check(rows: &[Row], expected: &[f64]) {
        let endpoint = EndpointState::unknown(EndpointId(1), "1.1.1.1:1".parse().unwrap());
        let candidate = |(requests, prefill_tokens, matched, pinned): &Row| Candidate {
            endpoint: &endpoint,
            fresh: endpoint.is_fresh(Timestamp(0), crate::Span(0)),
            load: Load {
                requests: *requests,
                prefill_tokens: *prefill_tokens,
                ..Load::default()
            },
            held: Held {
                matched: *matched,
                pinned: 0,
            },
            pinned: *pinned,
            capacity_tokens: Some(160_000),
            ..Candidate::idle(&endpoint)
        };
        let candidates: Vec<Candidate<'_>> = rows.iter().map(candidate).collect();
        let cx = Context {
            candidates: &candidates,
            request: &crate::Request::default(),
            blocks: 34,
            media: 0,
            prompt_tokens: 2176,
            block_tokens: 64.0,
            output_tokens: 128.0,
            group: None,
            pinned: &[],
            peer: None,
        };
        let rule = LeastCost {
            base_tokens: 512.0,
            overflow_weight: 48.0,
            backlog_weight: 4.0,
        };
        let costs: Vec<f64> = candidates
            .iter()
            .map(|it| rule.cost(&cx, it, false))
            .collect();
        assert_eq!(costs, expected);
    }

    #[test]
    fn an_idle_endpoint_costs_what_is_missing_and_the_base() {
        check(
            &[(0, 0, 0, 0), (0, 0, 32, 0)],
            &[2176.0 + 512.0, 128.0 + 512.0],
        );
    }

    #[test]
    fn the_last_block_of_a_prompt_is_always_computed() {
        check(&[(0, 0, 34, 0)], &[16.0 + 512.0]);
    }

    #[test]
    fn every_request_in_flight_is_delayed_by_what_is_missing() {
        check(
            &[(3, 0, 32, 0), (0, 1000, 32, 0)],
            &[4.0 * 640.0, 640.0 + 4000.0],
        );
    }

    #[test]
    fn what_does_not_fit_costs_more_up_to_a_bound() {
        // 2,400 pinned blocks are 153,600 tokens; the prompt and one answer bring them 704 over
        // 155,200.
        check(&[(0, 0, 0, 2400)], &[2688.0 + 48.0 * (704.0 / 16.0)]);
        check(
            &[(0, 0, 0, 9000)],
            &[2688.0 + 48.0 * ((4.0 * 2176.0 + 2048.0) / 16.0)],
        );
    }

    #[test]
    fn an_adapter_to_load_or_to_wait_for_costs_more() {
        let fit = |loads, evicts, waits| AdapterFit {
            loads,
            evicts,
            waits,
        };
        assert_eq!(adapter_cost(None, 2.0), 0.0);
        for (fit, others, cost) in [
            (fit(false, false, false), 2.0, 0.0),
            (fit(true, false, false), 2.0, 9000.0),
            (fit(true, true, false), 2.0, 9000.0 + 1000.0),
            (
                fit(true, true, true),
                0.0,
                3000.0 + 1000.0 + 6000.0 + 30_000.0,
            ),
        ] {
            assert_eq!(adapter_cost(Some(fit), others), cost, "{fit:?}");
        }
    }

    #[test]
    fn envoys_that_share_nothing_meet_at_a_home_that_all_compute_alike() {
        let endpoints: Vec<EndpointState> = (1..=4)
            .map(|host| {
                let address = alloc::format!("10.0.0.{host}:80").parse().unwrap();
                EndpointState {
                    share: Some(0.5),
                    ..EndpointState::unknown(EndpointId(host), address)
                }
            })
            .collect();
        fn candidate(endpoint: &EndpointState) -> Candidate<'_> {
            Candidate {
                fresh: false,
                ..Candidate::idle(endpoint)
            }
        }
        let home_of = |group: u64, endpoints: &[EndpointState]| {
            let candidates: Vec<Candidate<'_>> = endpoints.iter().map(candidate).collect();
            let group = Some(BlockHash(group));
            let (prompt_tokens, output_tokens) = (2176, 128.0);
            let cx = Context {
                candidates: &candidates,
                request: &crate::Request::default(),
                blocks: 34,
                media: 0,
                prompt_tokens,
                block_tokens: 64.0,
                output_tokens,
                group,
                pinned: &[],
                peer: None,
            };
            let mut scores = [Score::new(0.0); 4];
            LeastCost::DEFAULT.score(&cx, &mut scores[..endpoints.len()]);
            (0..endpoints.len()).find(|place| scores[*place].value() == 1.0)
        };
        let mut used = [0; 4];
        for group in 0..100 {
            let home = home_of(group, &endpoints).unwrap();
            used[home] += 1;
            let fewer = home_of(group, &endpoints[..3]).unwrap();
            assert!(
                home == 3 || home == fewer,
                "only the homes of the one that left move"
            );
        }
        assert!(
            used.iter().all(|groups| (10..=45).contains(groups)),
            "{used:?}"
        );
        let alone: Vec<EndpointState> = endpoints
            .iter()
            .map(|it| EndpointState {
                share: None,
                ..it.clone()
            })
            .collect();
        assert_eq!(
            home_of(1, &alone),
            Some(0),
            "all cost the same where nobody else sends"
        );
    }
}
