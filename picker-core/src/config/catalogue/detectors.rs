//! Saturation detectors, which filter too.

use super::super::table::{Kind, Parameter, Values};
use super::{IN_FLIGHT, NUMBER_MAX, Part, PluginType, Roles, Stability, producer};
use crate::filter::Filter;
use crate::saturation::{Concurrency, Detector, TokenLoad, Utilization};

pub(super) const TYPES: &[PluginType] = &[
    PluginType {
        parameters: UTILIZATION,
        make: |values| Ok(detector(Detector::Utilization(utilization(values)))),
        ..PluginType::named("utilization-detector")
    },
    PluginType {
        parameters: CONCURRENCY,
        needs: &[IN_FLIGHT],
        make: |values| Ok(detector(Detector::Concurrency(concurrency(values)))),
        ..PluginType::named("concurrency-detector")
    },
    PluginType {
        stability: Stability::Ours,
        parameters: TOKEN_LOAD,
        make: |values| Ok(detector(Detector::TokenLoad(token_load(values)))),
        ..PluginType::named("token-load-detector")
    },
];

const UTILIZATION: &[Parameter] = &[
    Parameter::of("queueDepthThreshold", Kind::Integer(1, COUNT_MAX, Some(5))),
    Parameter::of(
        "kvCacheUtilThreshold",
        Kind::Number(RATIO_MIN, 1.0, Some(0.8)),
    ),
    // Metrics are fresh or not for all plugins alike, as the pool's scrape.stalenessThreshold says.
    Parameter::of(
        "metricsStalenessThreshold",
        Kind::Duration(1, STALENESS_MAX, Some(200)),
    ),
    HEADROOM,
];

fn utilization(values: Values<'_>) -> Utilization {
    Utilization {
        queue: values.integer("queueDepthThreshold") as f64,
        kv_usage: values.number("kvCacheUtilThreshold"),
        headroom: values.number("headroom"),
    }
}

const CONCURRENCY: &[Parameter] = &[
    Parameter::of("maxConcurrency", Kind::Integer(1, COUNT_MAX, Some(100))),
    HEADROOM,
    Parameter::of(
        "concurrencyMode",
        Kind::Choice(&["requests", "tokens", "hybrid"], Some("requests")),
    ),
    Parameter::of(
        "maxTokenConcurrency",
        Kind::Integer(1, COUNT_MAX, Some(1_000_000)),
    ),
    producer("inFlightLoadProducerName", IN_FLIGHT),
];

fn concurrency(values: Values<'_>) -> Concurrency {
    let mode = values.text("concurrencyMode");
    let limit = |key, other| (mode != other).then(|| values.integer(key) as f64);
    Concurrency {
        requests: limit("maxConcurrency", "tokens"),
        tokens: limit("maxTokenConcurrency", "requests"),
        headroom: values.number("headroom"),
    }
}

const TOKEN_LOAD: &[Parameter] = &[
    // About what an engine computes in one step, so that more would only wait there instead of here:
    // of what simulated servers can serve 1,000 costs 5 %, and 8,000 nothing but four times the wait
    // for the first token.
    Parameter::of("maxPrefillTokens", Kind::Integer(1, COUNT_MAX, Some(2048))),
    // A tenth is left for answers that are longer than most.
    Parameter::of("kvCacheThreshold", Kind::Number(RATIO_MIN, 1.0, Some(0.9))),
    HEADROOM,
];

fn token_load(values: Values<'_>) -> TokenLoad {
    TokenLoad {
        prefill_tokens: values.integer("maxPrefillTokens") as f64,
        kv_usage: values.number("kvCacheThreshold"),
        headroom: values.number("headroom"),
    }
}

fn detector(detector: Detector) -> Roles {
    Roles {
        filter: Some(Filter::HasRoom(detector)),
        detector: Some(detector),
        ..Roles::part(Part::SaturationDetector)
    }
}

const HEADROOM: Parameter = Parameter::of("headroom", Kind::Number(0.0, NUMBER_MAX, Some(0.0)));

/// The least share that can be a limit; 0 is none.
const RATIO_MIN: f64 = 1e-6;

/// More requests or tokens than any server holds; sums of them stay exact.
const COUNT_MAX: i64 = 1 << 40;

/// The longest time in milliseconds: a day.
const STALENESS_MAX: u64 = 86_400_000;
