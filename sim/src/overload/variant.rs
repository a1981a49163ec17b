//! The configurations that are compared.

use std::str::FromStr;

use serde_json::{Value, json};

use crate::routing::wire;

/// A configuration by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// No flow control: priorities below 0 are turned away while the servers are full.
    None,
    /// Flow control by what servers say of themselves, tenants in their turn.
    Utilization,
    /// The same, but who came first is first, whatever its tenant has had.
    UtilizationStrict,
    /// Flow control by the number of requests in flight, tenants in their turn.
    Concurrency,
    /// The same, with room held back for higher priorities.
    ConcurrencyHoldback,
    /// The same, with so much held back that servers answer the highest priority as if they were idle.
    ConcurrencyReserve,
    /// Flow control by tokens in flight, tenants in their turn.
    TokenLoad,
}

impl Variant {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Utilization,
        Self::UtilizationStrict,
        Self::Concurrency,
        Self::ConcurrencyHoldback,
        Self::ConcurrencyReserve,
        Self::TokenLoad,
    ];

    /// The name it is selected by.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Utilization => "utilization",
            Self::UtilizationStrict => "utilization-strict",
            Self::Concurrency => "concurrency",
            Self::ConcurrencyHoldback => "concurrency-holdback",
            Self::ConcurrencyReserve => "concurrency-reserve",
            Self::TokenLoad => "token-load",
        }
    }

    /// Whether requests wait in the picker.
    pub fn has_flow_control(self) -> bool {
        self != Self::None
    }

    /// Whether tenants are served in their turn.
    pub fn is_round_robin(self) -> bool {
        self.has_flow_control() && self != Self::UtilizationStrict
    }

    /// The `EndpointPickerConfig`, with a band for each of `priorities`; detectors have the limits they
    /// have by default, but for that of the reserve.
    pub fn picker(self, priorities: impl Iterator<Item = i32>) -> Value {
        if !self.has_flow_control() {
            return json!({"plugins": [{"type": "least-cost-scorer"}]});
        }
        let detector = match self {
            Self::Concurrency | Self::ConcurrencyHoldback | Self::ConcurrencyReserve => {
                "concurrency-detector"
            }
            Self::TokenLoad => "token-load-detector",
            Self::None | Self::Utilization | Self::UtilizationStrict => "utilization-detector",
        };
        let fairness = if self.is_round_robin() {
            "round-robin-fairness-policy"
        } else {
            "global-strict-fairness-policy"
        };
        let ceiling = match self {
            Self::ConcurrencyHoldback => Some(CEILING_LEAST),
            Self::ConcurrencyReserve => Some(RESERVE_CEILING),
            _ => None,
        };
        let limit = match ceiling {
            Some(ceiling) => json!({
                "type": "priority-holdback-policy",
                "parameters": {"minCeiling": ceiling},
            }),
            None => json!({"type": "static-usage-limit-policy"}),
        };
        let parameters = match self {
            Self::ConcurrencyReserve => json!({"maxConcurrency": RESERVE_REQUESTS}),
            _ => json!({}),
        };
        let band = |priority| json!({"priority": priority, "fairnessPolicyRef": fairness});
        let bands: Vec<Value> = priorities.map(band).collect();
        json!({
            "featureGates": ["flowControl"],
            "plugins": [
                {"type": "least-cost-scorer"},
                {"type": fairness},
                {"type": detector, "parameters": parameters},
                limit,
            ],
            // By itself a detector would be a filter too.
            "schedulingProfiles": [
                {"name": "default", "plugins": [{"pluginRef": "least-cost-scorer"}]},
            ],
            "flowControl": {
                "defaultRequestTTL": REQUEST_TTL,
                "saturationDetector": {"pluginRef": detector},
                "usageLimitPolicyPluginRef": limit["type"],
                "priorityBands": bands,
            },
        })
    }

    /// Whether the picker reads the configuration.
    pub fn is_read(self) -> bool {
        wire::config(&[0], Some(&self.picker([0].into_iter()))).is_some()
    }
}

impl FromStr for Variant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|it| it.name() == text);
        named.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|it| it.name()).collect();
            format!("the variants are {}", names.join(", "))
        })
    }
}

/// How long requests wait in the picker: half of what their clients wait.
const REQUEST_TTL: &str = "30s";

/// How full the servers may be for the lowest priority, of which nothing has to be held back.
const CEILING_LEAST: f64 = 0.7;

/// Requests at a server, on average, that leave its steps short: twice what an L4 has in flight at
/// 30 % of what it can serve.
const RESERVE_REQUESTS: u32 = 12;

/// How full the servers may be then for the lowest priority.
const RESERVE_CEILING: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_is_read_and_only_one_lets_nobody_wait() {
        for variant in Variant::ALL {
            assert!(variant.is_read(), "{variant:?}");
            let config = wire::config(&[0], Some(&variant.picker([10, 0, -10].into_iter())));
            let plan = config.map(|it| it.plan).unwrap_or_default();
            let bands = plan.flow.map(|it| it.priorities().collect::<Vec<_>>());
            let expected = variant.has_flow_control().then(|| vec![10, 0, -10]);
            assert_eq!(bands, expected, "{variant:?}");
        }
    }
}
