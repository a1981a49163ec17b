//! Which endpoints may be chosen.
//!
//! One that sleeps or at whose address nothing listens is left out as long as there is another. When all are, all are
//! tried: the request is better sent to an endpoint that may have come back than refused. Missing or stale metrics do
//! not exclude anyone.

use crate::snapshot::EndpointState;

/// The places of the eligible endpoints, in order; empty only when `endpoints` is.
pub(crate) fn eligible(endpoints: &[EndpointState]) -> impl Iterator<Item = usize> {
    let any = endpoints.iter().any(is_ready);
    let places = endpoints.iter().enumerate();
    places
        .filter(move |(_, endpoint)| !any || is_ready(endpoint))
        .map(|(place, _)| place)
}

fn is_ready(endpoint: &EndpointState) -> bool {
    endpoint.reachable && endpoint.metrics.sleeping != Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Snapshot;
    use alloc::vec::Vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn check(ready: &[(bool, Option<bool>)], expected: &[usize]) {
        let addresses = ready.iter().map(|_| "10.0.0.1:80".parse().unwrap());
        let mut endpoints = Snapshot::unknown(addresses).endpoints;
        for (endpoint, (reachable, sleeping)) in endpoints.iter_mut().zip(ready) {
            endpoint.reachable = *reachable;
            endpoint.metrics.sleeping = *sleeping;
        }
        assert_eq!(eligible(&endpoints).collect::<Vec<_>>(), expected);
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
}
