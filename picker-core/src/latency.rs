//! What predicted latencies are worth to a request that asks for limits of them.

mod admission;
mod scoring;
mod tiers;

pub use admission::{Prospect, is_denied};
pub use scoring::{Composite, LatencyScoring, Unpredicted};
pub use tiers::Tier;

/// The latencies that a request asks for, in milliseconds; 0 where it asks for none.
///
/// What it does not ask for it cannot be given: its headroom is negative.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Objectives {
    /// Time to the first token.
    pub ttft_ms: f64,
    /// Time from one token to the next.
    pub tpot_ms: f64,
}

/// How objectives and predictions become headrooms.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HeadroomRule {
    /// What an objective for later tokens is multiplied with; above 0.
    pub buffer_factor: f64,
    /// Whether later tokens count at all.
    pub streaming: bool,
}

/// What is known of an endpoint besides what is predicted.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Occupancy {
    /// Requests sent there that have not ended.
    pub dispatched: u32,
    /// The smallest objective for later tokens among them, in milliseconds; `None` when none has
    /// one.
    pub tpot_least_ms: Option<f64>,
    /// Whether it computes prompts only.
    pub is_prefill: bool,
}

/// What a request can expect of one endpoint.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Prediction {
    /// Time to the first token, in milliseconds.
    pub ttft_ms: f64,
    /// Time from one token to the next, in milliseconds.
    pub tpot_ms: f64,
    /// Objective less prediction, in milliseconds; negative when it will be missed.
    pub ttft_headroom: f64,
    /// The same for later tokens; 0 where these do not count.
    pub tpot_headroom: f64,
    /// Whether the first token will be in time.
    pub ttft_valid: bool,
    /// Whether later tokens will be in time, or do not count.
    pub tpot_valid: bool,
    /// Requests sent there that have not ended.
    pub dispatched: u32,
}

impl Objectives {
    /// Reads the objectives with `header`, which gives the value of a header of a lower-case name.
    ///
    /// The name without `llm-d` is used where the other is missing. What is no number above 0 asks
    /// for nothing.
    pub fn read<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Self {
        let [ttft, ttft_alias, tpot, tpot_alias] = OBJECTIVE_HEADERS;
        let [ttft_ms, tpot_ms] = [(ttft, ttft_alias), (tpot, tpot_alias)].map(|(name, alias)| {
            let value = header(name).or_else(|| header(alias));
            let ms: Option<f64> = value.and_then(|value| value.trim().parse().ok());
            ms.filter(|ms| ms.is_finite() && *ms > 0.0).unwrap_or(0.0)
        });
        Self { ttft_ms, tpot_ms }
    }

    /// Whether the request asks for anything.
    pub fn is_some(&self) -> bool {
        self.ttft_ms > 0.0 || self.tpot_ms > 0.0
    }
}

impl Default for HeadroomRule {
    fn default() -> Self {
        Self {
            buffer_factor: 1.0,
            streaming: false,
        }
    }
}

impl Prediction {
    /// What a request with `objectives` can expect where its first token takes `ttft_ms` and later
    /// ones `tpot_ms`.
    ///
    /// Later tokens must not come slower than a request that is there already asks for.
    pub fn new(
        (ttft_ms, tpot_ms): (f64, f64),
        objectives: Objectives,
        occupancy: Occupancy,
        rule: HeadroomRule,
    ) -> Self {
        let asked = occupancy.tpot_least_ms.filter(|ms| *ms > 0.0);
        let tpot_limit = objectives.tpot_ms.min(asked.unwrap_or(f64::MAX)) * rule.buffer_factor;
        let counts = rule.streaming && !occupancy.is_prefill;
        Self {
            ttft_ms,
            tpot_ms,
            ttft_headroom: objectives.ttft_ms - ttft_ms,
            tpot_headroom: if counts { tpot_limit - tpot_ms } else { 0.0 },
            ttft_valid: ttft_ms < objectives.ttft_ms,
            tpot_valid: !counts || tpot_ms < tpot_limit,
            dispatched: occupancy.dispatched,
        }
    }

    /// Whether all objectives will be met.
    pub fn is_valid(&self) -> bool {
        self.ttft_valid && self.tpot_valid
    }

    /// Whether neither headroom is negative.
    pub fn is_positive(&self) -> bool {
        self.ttft_headroom >= 0.0 && self.tpot_headroom >= 0.0
    }
}

/// The header with the objective for the first token and its older name, then the same for later
/// tokens.
pub(crate) const OBJECTIVE_HEADERS: [&str; 4] = [
    "x-llm-d-slo-ttft-ms",
    "x-slo-ttft-ms",
    "x-llm-d-slo-tpot-ms",
    "x-slo-tpot-ms",
];

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn objectives_are_numbers_above_zero_under_either_name() {
        for (headers, ttft_ms, tpot_ms) in [
            (
                &[("x-llm-d-slo-ttft-ms", "200"), ("x-slo-tpot-ms", "12.5")][..],
                200.0,
                12.5,
            ),
            (
                &[("x-slo-ttft-ms", "300"), ("x-llm-d-slo-ttft-ms", "200")],
                200.0,
                0.0,
            ),
            (
                &[("x-slo-ttft-ms", "300"), ("x-llm-d-slo-ttft-ms", "soon")],
                0.0,
                0.0,
            ),
            (&[("x-llm-d-slo-tpot-ms", " 1e1 ")], 0.0, 10.0),
            (
                &[("x-slo-ttft-ms", "-5"), ("x-slo-tpot-ms", "NaN")],
                0.0,
                0.0,
            ),
            (&[("x-slo-ttft-ms", "inf"), ("x-slo-tpot-ms", "")], 0.0, 0.0),
        ] {
            let header = |name: &str| {
                let found = headers.iter().find(|header| header.0 == name);
                found.map(|header| header.1)
            };
            let objectives = Objectives::read(header);
            assert_eq!(objectives, Objectives { ttft_ms, tpot_ms }, "{headers:?}");
            assert_eq!(objectives.is_some(), ttft_ms + tpot_ms > 0.0, "{headers:?}");
        }
    }

    /// Asks for 200 and 20 ms where 150 and 15 ms are predicted.
    fn check(
        (buffer_factor, streaming): (f64, bool),
        (tpot_least_ms, is_prefill): (Option<f64>, bool),
        (tpot_headroom, tpot_valid): (f64, bool),
    ) {
        let objectives = Objectives {
            ttft_ms: 200.0,
            tpot_ms: 20.0,
        };
        let occupancy = Occupancy {
            dispatched: 3,
            tpot_least_ms,
            is_prefill,
        };
        let rule = HeadroomRule {
            buffer_factor,
            streaming,
        };
        let expected = Prediction {
            ttft_ms: 150.0,
            tpot_ms: 15.0,
            ttft_headroom: 50.0,
            tpot_headroom,
            ttft_valid: true,
            tpot_valid,
            dispatched: 3,
        };
        let prediction = Prediction::new((150.0, 15.0), objectives, occupancy, rule);
        assert_eq!(prediction, expected);
    }

    #[test]
    fn later_tokens_keep_to_the_strictest_objective_on_the_endpoint() {
        let streaming = (1.0, true);
        check(streaming, (None, false), (5.0, true));
        check(streaming, (Some(30.0), false), (5.0, true));
        check(streaming, (Some(16.0), false), (1.0, true));
        check(streaming, (Some(15.0), false), (0.0, false));
        check(streaming, (Some(10.0), false), (-5.0, false));
        check(streaming, (Some(0.0), false), (5.0, true));
    }

    #[test]
    fn the_factor_stretches_what_later_tokens_may_take() {
        check((0.5, true), (None, false), (-5.0, false));
        check((2.0, true), (None, false), (25.0, true));
        check((2.0, true), (Some(10.0), false), (5.0, true));
    }

    #[test]
    fn later_tokens_do_not_count_without_streaming_or_where_none_are_made() {
        check((1.0, false), (Some(10.0), false), (0.0, true));
        check((1.0, true), (Some(10.0), true), (0.0, true));
    }

    #[test]
    fn what_is_not_asked_for_is_missed() {
        let rule = HeadroomRule {
            streaming: true,
            ..HeadroomRule::default()
        };
        let of =
            |objectives| Prediction::new((150.0, 15.0), objectives, Occupancy::default(), rule);
        let prediction = of(Objectives::default());
        assert_eq!(
            (prediction.ttft_headroom, prediction.tpot_headroom),
            (-150.0, -15.0)
        );
        assert!(!prediction.is_valid() && !prediction.is_positive());
        let exact = of(Objectives {
            ttft_ms: 150.0,
            tpot_ms: 15.0,
        });
        assert!(
            exact.is_positive(),
            "nothing is left, nor is anything missing"
        );
        let valid = (exact.ttft_valid, exact.tpot_valid);
        assert_eq!(valid, (false, false), "a limit is to stay below");
    }
}
