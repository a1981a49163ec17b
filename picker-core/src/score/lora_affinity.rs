//! An endpoint where the request's adapter is loaded is best, then one with a free slot, then one
//! where requests wait for it.
//!
//! A model that is no adapter has the same score everywhere, unless slots are full. A page names
//! only adapters with live requests; one that our own requests loaded counts as loaded. A
//! candidate without fresh metrics has the mean of the others.

use crate::candidate::{Candidate, Context};
use crate::measure::mean;
use crate::score::{Score, each};

pub(super) fn score(cx: &Context<'_>, scores: &mut [Score]) {
    let model = cx.request.model.as_deref().unwrap_or_default();
    let known = |it: &Candidate<'_>| it.fresh.then(|| affinity(it, model));
    let average = mean(cx.candidates.iter().filter_map(known)).unwrap_or(0.0);
    each(cx, scores, &|it| known(it).unwrap_or(average));
}

/// The order matters: an adapter that waits although there are free slots is about to be loaded.
fn affinity(candidate: &Candidate<'_>, model: &str) -> f64 {
    let Some(lora) = &candidate.endpoint.metrics.lora else {
        return 0.0;
    };
    let names = |list: &[alloc::string::String]| list.iter().any(|it| it == model);
    let is_waiting = names(&lora.waiting);
    let is_remembered = candidate.adapter.is_some_and(|it| !it.loads) && !is_waiting;
    let taken = lora.running.len() + lora.waiting.len();
    if names(&lora.running) || is_remembered {
        LOADED
    } else if lora.max.is_some_and(|max| taken < max as usize) {
        HAS_SLOT
    } else if is_waiting {
        WAITING
    } else {
        0.0
    }
}

/// The reference picker's scores.
const LOADED: f64 = 1.0;
const HAS_SLOT: f64 = 0.8;
const WAITING: f64 = 0.6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::AdapterFit;
    use crate::metrics::Lora;
    use crate::snapshot::EndpointState;
    use crate::{EndpointId, Request};
    use alloc::vec;
    use alloc::vec::Vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// What runs and what waits, slots, and whether our own requests loaded it.
    type Row = (&'static [&'static str], &'static [&'static str], u32, bool);

    fn endpoint((running, waiting, max, _): &Row) -> EndpointState {
        let mut endpoint = EndpointState::unknown(EndpointId(1), "1.1.1.1:1".parse().unwrap());
        let names = |names: &[&str]| names.iter().map(|it| (*it).into()).collect();
        endpoint.metrics.lora = Some(Lora {
            running: names(running),
            waiting: names(waiting),
            max: Some(*max),
        });
        endpoint
    }

    #[track_caller]
    fn check(model: &str, rows: &[Row], unknown: bool, expected: &[f64]) {
        let mut endpoints: Vec<EndpointState> = rows.iter().map(endpoint).collect();
        if unknown {
            endpoints.push(endpoint(&(&["a"], &[], 9, false)));
        }
        let candidate = |(place, endpoint): (usize, _)| {
            let is_remembered = rows.get(place).is_some_and(|it| it.3);
            let (loads, waits, evicts) = (false, false, false);
            Candidate {
                fresh: place < rows.len(),
                adapter: is_remembered.then_some(AdapterFit {
                    loads,
                    waits,
                    evicts,
                }),
                ..Candidate::idle(endpoint)
            }
        };
        let candidates: Vec<Candidate<'_>> = endpoints.iter().enumerate().map(candidate).collect();
        let request = Request {
            model: Some(model.into()),
            ..Request::default()
        };
        let mut scores = vec![Score::new(0.0); candidates.len()];
        score(&Context::of(&candidates, &request), &mut scores);
        let scores: Vec<f64> = scores.iter().map(|it| it.value()).collect();
        assert_eq!(scores, expected);
    }

    #[test]
    fn a_loaded_adapter_is_better_than_a_free_slot_and_that_than_a_wait() {
        let rows: [Row; 5] = [
            (&["a"], &[], 1, false),
            (&["b"], &["a"], 3, false),
            (&["b"], &["a"], 2, false),
            (&["b"], &["c"], 2, false),
            (&[], &[], 0, false),
        ];
        check("a", &rows, false, &[1.0, 0.8, 0.6, 0.0, 0.0]);
    }

    #[test]
    fn what_our_requests_loaded_is_loaded_unless_it_waits() {
        let rows: [Row; 2] = [(&["b"], &[], 1, true), (&["b"], &["a"], 2, true)];
        check("a", &rows, false, &[1.0, 0.6]);
    }

    #[test]
    fn an_endpoint_that_tells_nothing_is_an_average_one() {
        let rows: [Row; 2] = [(&["a"], &[], 1, false), (&["b"], &["a"], 2, false)];
        check("a", &rows, true, &[1.0, 0.6, 0.8]);
        check("a", &[], true, &[0.0]);
    }
}
