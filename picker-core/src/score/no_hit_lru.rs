//! Prompts that nobody holds go round: who got the last one longest ago is better.
//!
//! An endpoint that never got one comes before those that did, the first one first. Of `n`
//! endpoints the next scores 1 and each further one `1 / (n - 1)` less. When somebody holds
//! anything of the request, all score one half.

use alloc::vec::Vec;

use super::Score;
use crate::candidate::Context;
use crate::sort::{sort, sort_by};

/// `size` is how many endpoints are remembered, those that got one last.
pub(super) fn score(size: usize, cx: &Context<'_>, scores: &mut [Score]) {
    if cx.candidates.iter().any(|it| it.held.matched > 0) {
        scores.fill(Score::new(0.5));
        return;
    }
    let got = cx.candidates.iter().map(|it| it.cold_at);
    let mut remembered: Vec<u64> = got.clone().filter(|at| *at > 0).collect();
    sort(&mut remembered);
    let forgotten = remembered.len().saturating_sub(size);
    let oldest = remembered.get(forgotten).copied().unwrap_or(u64::MAX);
    let got: Vec<u64> = got.map(|at| if at < oldest { 0 } else { at }).collect();
    let mut order: Vec<usize> = (0..got.len()).collect();
    sort_by(&mut order, |one, other| got.get(*one).cmp(&got.get(*other)));
    let last = order.len().saturating_sub(1).max(1) as f64;
    for (rank, place) in order.into_iter().enumerate() {
        if let Some(score) = scores.get_mut(place) {
            *score = Score::new(1.0 - rank as f64 / last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::Candidate;
    use crate::request::Request;
    use crate::snapshot::EndpointState;
    use crate::{EndpointId, twin::Held};
    use alloc::vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// When each endpoint got the last cold request, and what they score.
    #[track_caller]
    fn check(size: usize, cold_at: &[u64], matched: usize, expected: &[f64]) {
        let endpoint = EndpointState::unknown(EndpointId(1), "1.1.1.1:1".parse().unwrap());
        let candidate = |(place, cold_at): (usize, &u64)| Candidate {
            cold_at: *cold_at,
            held: Held {
                matched: if place == 0 { matched } else { 0 },
                pinned: 0,
            },
            ..Candidate::idle(&endpoint)
        };
        let candidates: Vec<Candidate<'_>> = cold_at.iter().enumerate().map(candidate).collect();
        let request = Request::default();
        let mut scores = vec![Score::new(0.0); cold_at.len()];
        score(size, &Context::of(&candidates, &request), &mut scores);
        let scores: Vec<f64> = scores.iter().map(|it| it.value()).collect();
        assert_eq!(scores, expected, "{cold_at:?} of {size}");
    }

    #[test]
    fn the_endpoints_come_in_the_order_in_which_they_got_their_last() {
        check(1024, &[0, 0, 0, 0, 0], 0, &[1.0, 0.75, 0.5, 0.25, 0.0]);
        check(1024, &[7, 0, 9, 0, 8], 0, &[0.5, 1.0, 0.0, 0.75, 0.25]);
        check(1024, &[3, 2, 1], 0, &[0.0, 0.5, 1.0]);
        check(1024, &[5, 0], 0, &[0.0, 1.0]);
        check(1024, &[9], 0, &[1.0]);
        check(1024, &[], 0, &[]);
    }

    #[test]
    fn a_request_that_somebody_holds_gives_no_endpoint_a_lead() {
        check(1024, &[7, 0, 9], 1, &[0.5, 0.5, 0.5]);
        check(1024, &[7], 3, &[0.5]);
    }

    #[test]
    fn endpoints_past_the_size_count_as_if_they_never_got_one() {
        check(2, &[5, 7, 9], 0, &[1.0, 0.5, 0.0]);
        check(2, &[9, 5, 7], 0, &[0.0, 1.0, 0.5]);
        check(2, &[7, 0, 9, 5, 0], 0, &[0.25, 1.0, 0.0, 0.75, 0.5]);
        check(0, &[9, 5, 7], 0, &[1.0, 0.5, 0.0]);
    }
}
