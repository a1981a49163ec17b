//! Whether a request that may be shed is denied because no endpoint can meet its objectives.

use super::{Objectives, Prediction};

/// What is known of one endpoint, whatever else may be sent there.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prospect {
    /// What the request can expect; `None` when nothing can be said.
    pub prediction: Option<Prediction>,
    /// Requests that run, as its metrics say; `None` counts as none.
    pub running: Option<f64>,
    /// The share of its KV blocks in use, as its metrics say; `None` counts as none.
    pub kv_usage: Option<f64>,
}

/// Whether a request of this priority is denied.
///
/// Only one of a priority below 0 that asks for something is, and only when something is predicted
/// and no endpoint will meet its objectives, is idle, or has too little in its cache for predictions
/// to be believed.
pub fn is_denied(priority: i32, objectives: Objectives, prospects: &[Prospect]) -> bool {
    if priority >= 0 || !objectives.is_some() {
        return false;
    }
    let is_predicted = prospects.iter().any(|it| it.prediction.is_some());
    is_predicted && !prospects.iter().any(Prospect::gives_hope)
}

impl Prospect {
    fn gives_hope(&self) -> bool {
        let is_idle = self.running.unwrap_or(0.0) <= 0.0;
        let is_cold = self.kv_usage.unwrap_or(0.0) < KV_USAGE_COLD;
        let is_valid = self.prediction.is_some_and(|it| it.is_valid());
        is_valid || is_idle || is_cold
    }
}

/// Below this share of the KV blocks in use an endpoint has served too little, as in the reference
/// picker.
const KV_USAGE_COLD: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// A busy endpoint, of which it is known whether it will meet objectives, or nothing.
    fn busy(is_valid: Option<bool>) -> Prospect {
        Prospect {
            prediction: is_valid.map(|ttft_valid| Prediction {
                ttft_valid,
                tpot_valid: true,
                ..Prediction::default()
            }),
            running: Some(3.0),
            kv_usage: Some(0.5),
        }
    }

    fn check(priority: i32, ttft_ms: f64, prospects: &[Prospect], denied: bool) {
        let objectives = Objectives {
            ttft_ms,
            tpot_ms: 0.0,
        };
        assert_eq!(is_denied(priority, objectives, prospects), denied);
    }

    #[test]
    fn only_what_may_be_shed_and_asks_for_something_is_denied() {
        let late = [busy(Some(false)), busy(Some(false))];
        check(-1, 200.0, &late, true);
        check(0, 200.0, &late, false);
        check(-1, 0.0, &late, false);
    }

    #[test]
    fn one_endpoint_with_hope_is_enough() {
        let late = busy(Some(false));
        let idle = Prospect {
            running: Some(0.0),
            ..late
        };
        let unknown = Prospect {
            running: None,
            ..late
        };
        let cold = Prospect {
            kv_usage: Some(0.0199),
            ..late
        };
        for hope in [busy(Some(true)), idle, unknown, cold] {
            check(-1, 200.0, &[late, hope], false);
        }
        let warm = Prospect {
            kv_usage: Some(0.02),
            ..late
        };
        check(-1, 200.0, &[late, warm], true);
    }

    #[test]
    fn nothing_is_denied_where_nothing_is_predicted() {
        check(-1, 200.0, &[busy(None), busy(None)], false);
        check(-1, 200.0, &[], false);
        check(-1, 200.0, &[busy(None), busy(Some(false))], true);
    }
}
