//! Which endpoints may be chosen.
//!
//! One that sleeps, at whose address nothing listens or that fails is left out as long as there is
//! another. When all are, all are tried: the request is better sent to an endpoint that may have
//! come back than refused. Missing or stale metrics do not exclude anyone.

use alloc::vec::Vec;

use crate::candidate::Candidate;

/// Leaves in `places` those of the eligible candidates, in order; all when none is.
pub(crate) fn retain_eligible(candidates: &[Candidate<'_>], places: &mut Vec<usize>) {
    let candidate = |place: &usize| candidates.get(*place);
    retain_or_leave(places, |it| candidate(it).is_some_and(Candidate::is_ready));
    retain_or_leave(places, |it| candidate(it).is_some_and(|it| it.may_serve));
}

/// Leaves those of `places` that are fit; all when none is.
fn retain_or_leave(places: &mut Vec<usize>, is_fit: impl Fn(&usize) -> bool) {
    if places.iter().any(&is_fit) {
        places.retain(is_fit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{EndpointState, Snapshot};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn check(ready: &[(bool, Option<bool>)], expected: &[usize]) {
        let addresses = ready.iter().map(|_| "10.0.0.1:80".parse().unwrap());
        let mut endpoints = Snapshot::unknown(addresses).endpoints;
        for (endpoint, (reachable, sleeping)) in endpoints.iter_mut().zip(ready) {
            endpoint.reachable = *reachable;
            endpoint.metrics.sleeping = *sleeping;
        }
        assert_eq!(eligible(&endpoints, |_| true), expected);
    }

    fn eligible(endpoints: &[EndpointState], may_serve: impl Fn(usize) -> bool) -> Vec<usize> {
        let candidate = |(place, endpoint)| {
            let mut candidate = Candidate::idle(endpoint);
            candidate.may_serve = may_serve(place);
            candidate
        };
        let candidates: Vec<Candidate<'_>> = endpoints.iter().enumerate().map(candidate).collect();
        let mut places = (0..candidates.len()).collect();
        retain_eligible(&candidates, &mut places);
        places
    }

    #[test]
    fn a_sleeping_or_unreachable_endpoint_is_left_out_while_there_is_another() {
        check(
            &[
                (true, None),
                (false, None),
                (true, Some(true)),
                (true, Some(false)),
            ],
            &[0, 3],
        );
        check(&[(false, None), (true, Some(true))], &[0, 1]);
        check(&[], &[]);
    }

    #[test]
    fn a_failing_endpoint_is_left_out_while_there_is_another_that_is_ready() {
        let addresses = [1, 2, 3].map(|_| "10.0.0.1:80".parse().unwrap());
        let mut endpoints = Snapshot::unknown(addresses).endpoints;
        assert_eq!(eligible(&endpoints, |place| place != 1), [0, 2]);
        assert_eq!(eligible(&endpoints, |_| false), [0, 1, 2]);
        endpoints[2].reachable = false;
        assert_eq!(
            eligible(&endpoints, |place| place == 2),
            [0, 1],
            "nothing listens there"
        );
    }
}
