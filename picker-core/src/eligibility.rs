//! Which endpoints may be chosen.
//!
//! One that sleeps, at whose address nothing listens or that fails is left out as long as there is
//! another. When all are, all are tried: the request is better sent to an endpoint that may have
//! come back than refused. Missing or stale metrics do not exclude anyone.

use alloc::vec::Vec;

use crate::snapshot::EndpointState;

/// The places of the eligible endpoints, in order; empty only when `endpoints` is.
///
/// `may_serve` tells for a place whether the endpoint there has not failed lately.
pub(crate) fn eligible(
    endpoints: &[EndpointState],
    may_serve: impl Fn(usize) -> bool,
) -> Vec<usize> {
    let all: Vec<usize> = (0..endpoints.len()).collect();
    let is_ready = |place: &usize| endpoints.get(*place).is_some_and(is_ready);
    let ready = kept_or_all(all, is_ready);
    kept_or_all(ready, |place| may_serve(*place))
}

/// Those of `places` that are fit; all when none is.
fn kept_or_all(mut places: Vec<usize>, is_fit: impl Fn(&usize) -> bool) -> Vec<usize> {
    if places.iter().any(&is_fit) {
        places.retain(is_fit);
    }
    places
}

fn is_ready(endpoint: &EndpointState) -> bool {
    endpoint.reachable && endpoint.metrics.sleeping != Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Snapshot;
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
