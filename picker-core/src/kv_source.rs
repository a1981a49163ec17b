//! Who is named to the endpoint that computes a prompt, as one that holds blocks of it.
//!
//! The reference picker's `p2p-source-producer`. Of the endpoints that hold the most, within a
//! block, one with a short queue is more likely; the request's id decides, so that a request that
//! is sent again has the same source.

use alloc::string::{String, ToString};

use crate::candidate::{Candidate, Context};
use crate::draw::Draws;

/// When a source is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KvSource {
    /// The least prompt tokens that it holds and the computing endpoint does not.
    pub gain_tokens: u64,
    /// The profile that chooses who computes prompts, where that is not the destination.
    pub prefill_profile: String,
}

impl KvSource {
    /// The header that names a source for what `computing` lacks; `None` when nobody holds enough.
    pub(crate) fn header(
        &self,
        cx: &Context<'_>,
        computing: &Candidate<'_>,
        draws: &mut Draws,
    ) -> Option<(&'static str, String)> {
        let most = cx.candidates.iter().map(|it| it.held.matched).max()?;
        let near = || {
            let holders = cx.candidates.iter().filter(|it| it.held.matched > 0);
            holders.filter(move |it| it.held.matched + 1 >= most)
        };
        let whole: f64 = near().map(weight).sum();
        let drawn = match cx.request.header(ID_HEADER) {
            Some(id) => f64::from(fnv_1a(id.as_bytes())) / TWO_TO_32,
            None => draws.unit(),
        };
        let mut rest = drawn * whole;
        let chosen = near().find(|it| {
            rest -= weight(it);
            rest < 0.0
        });
        let source = chosen.or_else(|| near().next_back())?;
        let tokens = |it: &Candidate<'_>| (it.held.matched as f64 * cx.block_tokens) as u64;
        let gain = tokens(source).saturating_sub(tokens(computing));
        let is_other = source.endpoint.id != computing.endpoint.id;
        (is_other && gain >= self.gain_tokens)
            .then(|| (SOURCE_HEADER, source.endpoint.address.to_string()))
    }
}

/// How likely a source is: less where requests wait. Of an endpoint without fresh metrics all that
/// this Envoy has sent there waits.
fn weight(candidate: &Candidate<'_>) -> f64 {
    let waiting = candidate.endpoint.metrics.waiting;
    let waiting = waiting.filter(|_| candidate.fresh);
    1.0 / (1.0
        + waiting
            .unwrap_or_else(|| f64::from(candidate.load.requests))
            .max(0.0))
}

/// The hash FNV-1a of 32 bits.
fn fnv_1a(bytes: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(16_777_619);
    bytes.iter().fold(2_166_136_261, step)
}

const TWO_TO_32: f64 = 4_294_967_296.0;

/// Names the source.
const SOURCE_HEADER: &str = "x-kv-cache-source-host-port";

/// What a request is called; Envoy gives it a name when the client has not.
pub(crate) const ID_HEADER: &str = "x-request-id";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OWNED_HEADERS;
    use crate::request::Request;
    use crate::snapshot::{EndpointState, Snapshot};
    use crate::twin::Held;
    use alloc::format;
    use alloc::vec::Vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// The number of the source named to the first endpoint, given blocks held and queues.
    fn source(known: &[(usize, f64)], gain_tokens: u64, id: &str) -> Option<usize> {
        let address = |host: usize| format!("10.0.0.{}:8000", host + 1).parse().unwrap();
        let mut snapshot = Snapshot::unknown((0..known.len()).map(address));
        for (endpoint, (_, waiting)) in snapshot.endpoints.iter_mut().zip(known) {
            endpoint.metrics.waiting = Some(*waiting);
        }
        let candidate = |(endpoint, (matched, _)): (_, &(usize, f64))| Candidate {
            held: Held {
                matched: *matched,
                pinned: 0,
            },
            ..Candidate::idle(endpoint)
        };
        let endpoints: core::slice::Iter<'_, EndpointState> = snapshot.endpoints.iter();
        let candidates: Vec<Candidate<'_>> = endpoints.zip(known).map(candidate).collect();
        let request = Request {
            headers: [(ID_HEADER.to_string(), id.to_string())].into(),
            ..Request::default()
        };
        let cx = Context::of(&candidates, &request);
        let kv_source = KvSource {
            gain_tokens,
            prefill_profile: String::new(),
        };
        let named = kv_source.header(&cx, &candidates[0], &mut Draws::new(1));
        let (name, value) = named?;
        assert!(OWNED_HEADERS.contains(&name));
        (0..known.len()).find(|it| address(*it).to_string() == value)
    }

    #[test]
    fn the_endpoint_that_holds_most_is_named_where_that_gains_enough() {
        // Blocks of 64 tokens.
        for (known, gain_tokens, expected) in [
            (&[(0, 0.0), (5, 0.0), (2, 0.0)][..], 1, Some(1)),
            (&[(0, 0.0), (5, 9.0), (2, 0.0)], 1, Some(1)),
            (&[(3, 0.0), (5, 0.0), (2, 0.0)], 128, Some(1)),
            (&[(3, 0.0), (5, 0.0), (2, 0.0)], 129, None),
            // It holds most itself.
            (&[(5, 0.0), (3, 0.0)], 1, None),
            // Nobody holds anything, although all are within one block of the most.
            (&[(0, 0.0), (0, 0.0)], 1, None),
        ] {
            assert_eq!(source(known, gain_tokens, "a"), expected, "{known:?}");
        }
    }

    #[test]
    fn of_those_within_a_block_the_id_chooses_by_the_queues() {
        // FNV-1a of "a" is 0xE40C292C and of "" 0x811C9DC5: 0.8908 and 0.5043 of all.
        assert_eq!((fnv_1a(b"a"), fnv_1a(b"")), (0xE40C_292C, 0x811C_9DC5));
        for (second, third, id, expected) in [
            // Weights 1 and 1: half and half.
            (0.0, 0.0, "", 2),
            (0.0, 0.0, "a", 2),
            // Weights 1 and 1/4: the second has 0.8.
            (0.0, 3.0, "", 1),
            (0.0, 3.0, "a", 2),
            // Weights 1 and 1/10: the second has 0.909.
            (0.0, 9.0, "a", 1),
            (9.0, 0.0, "", 2),
        ] {
            let known = [(0, 0.0), (5, second), (4, third)];
            assert_eq!(source(&known, 1, id), Some(expected), "{known:?} {id}");
        }
    }
}
