//! Plugins that go by how long endpoints are predicted to take.

use alloc::string::ToString;

use super::super::WEIGHT_MAX;
use super::super::table::{Kind, Parameter, Unfit, Values};
use super::{IN_FLIGHT, NUMBER_MAX, Note, Noted, Part, PluginType, Roles, producer};
use crate::admitter::Admitter;
use crate::filter::Filter;
use crate::latency::{Composite, HeadroomRule, LatencyScoring, OBJECTIVE_HEADERS};
use crate::plan::Foretelling;
use crate::score::ScorerKind;

pub(super) const TYPES: &[PluginType] = &[
    PluginType {
        parameters: PRODUCER,
        needs: &[PREFIX_PRODUCER, IN_FLIGHT],
        make: foretelling,
        ..PluginType::named(LATENCY_PRODUCER)
    },
    PluginType {
        parameters: SCORER,
        needs: &[LATENCY_PRODUCER],
        make: |values| Ok(Roles::scorer(ScorerKind::Latency(scoring(values)))),
        ..PluginType::named("latency-scorer")
    },
    PluginType {
        parameters: &[
            Parameter::of("epsilonExploreNeg", Kind::Number(0.0, 1.0, Some(0.01))),
            PREDICTIONS,
        ],
        needs: &[LATENCY_PRODUCER],
        make: |values| {
            let exploration = values.number("epsilonExploreNeg");
            Ok(Roles::filter(Filter::Headroom(exploration)))
        },
        ..PluginType::named("slo-headroom-tier-filter")
    },
    PluginType {
        parameters: &[PREDICTIONS],
        needs: &[LATENCY_PRODUCER],
        make: |_| {
            Ok(Roles {
                admitter: Some(Admitter::Objectives),
                ..Roles::part(Part::Hook)
            })
        },
        ..PluginType::named("latency-slo-admitter")
    },
];

const PRODUCER: &[Parameter] = &[
    Parameter::of("samplingMean", Kind::Number(FACTOR_MIN, NUMBER_MAX, None)),
    Parameter::of(
        "maxDecodeTokenSamplesForPrediction",
        Kind::Integer(0, SAMPLES_MAX, None),
    ),
    Parameter::of(
        "sloBufferFactor",
        Kind::Number(FACTOR_MIN, FACTOR_MAX, Some(1.0)),
    ),
    Parameter::of("contextTTL", Kind::Any),
    Parameter::of("streamingMode", Kind::Boolean(false)),
    Parameter::of("endpointRoleLabel", Kind::Text(Some(""))),
    Parameter::of("predictInProduce", Kind::Boolean(true)),
    Parameter::of("useEncoderCacheFeatures", Kind::Boolean(false)),
    producer("prefixMatchInfoProducerName", PREFIX_PRODUCER),
    producer("inFlightLoadProducerName", IN_FLIGHT),
];

fn foretelling(values: Values<'_>) -> Result<Roles, Unfit> {
    let rule = Foretelling {
        headroom: HeadroomRule {
            buffer_factor: values.number("sloBufferFactor"),
            streaming: values.is("streamingMode"),
        },
        role_label: values.text("endpointRoleLabel").to_string(),
    };
    let is_given = |key: &str| match key {
        ENCODER_FEATURES => values.is(key),
        _ => values.has(key),
    };
    let notes = WITHOUT_EFFECT.iter().filter(|(key, _)| is_given(key));
    let note = |(key, why): &(&'static str, &'static str)| Note {
        key,
        what: Noted::NoEffect(why),
    };
    let predicts = values.is("predictInProduce");
    let headers = OBJECTIVE_HEADERS.iter().filter(|_| predicts);
    Ok(Roles {
        notes: notes.map(note).collect(),
        headers: headers.map(ToString::to_string).collect(),
        // What is learnt stays here, so that without predictions there is nothing to learn for.
        foretelling: predicts.then_some(rule),
        ..Roles::part(Part::Producer)
    })
}

const SCORER: &[Parameter] = &[
    weight("ttftWeight", 0.8),
    weight("tpotWeight", 0.2),
    Parameter::of(
        "headroomSelectionStrategy",
        Kind::Choice(&["least", "most"], Some("least")),
    ),
    weight("compositeKVWeight", 1.0),
    weight("compositeQueueWeight", 1.0),
    weight("compositePrefixWeight", 1.0),
    PREDICTIONS,
    producer("prefixMatchInfoProducerName", PREFIX_PRODUCER),
];

fn scoring(values: Values<'_>) -> LatencyScoring {
    LatencyScoring {
        ttft_weight: values.number("ttftWeight"),
        tpot_weight: values.number("tpotWeight"),
        prefers_most: values.text("headroomSelectionStrategy") == "most",
        composite: Composite {
            kv_weight: values.number("compositeKVWeight"),
            queue_weight: values.number("compositeQueueWeight"),
            prefix_weight: values.number("compositePrefixWeight"),
        },
    }
}

const fn weight(key: &'static str, default: f64) -> Parameter {
    Parameter::of(key, Kind::Number(0.0, WEIGHT_MAX, Some(default)))
}

const PREDICTIONS: Parameter = producer("latencyPredictionInfoProducerName", LATENCY_PRODUCER);

/// The producer of predicted latencies.
pub(super) const LATENCY_PRODUCER: &str = "predicted-latency-producer";

const PREFIX_PRODUCER: &str = "approx-prefix-cache-producer";

const ENCODER_FEATURES: &str = "useEncoderCacheFeatures";

/// Parameters of the producer that mean nothing here, and why.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("samplingMean", NO_SAMPLES),
    ("maxDecodeTokenSamplesForPrediction", NO_SAMPLES),
    (
        "contextTTL",
        "what is known of a request is kept until its answer ends",
    ),
    (
        ENCODER_FEATURES,
        "latencies are predicted from tokens and load, media counted as tokens",
    ),
];

const NO_SAMPLES: &str = "every answer teaches, with the mean time between its tokens";

/// The least factor: with none, no objective could be met.
const FACTOR_MIN: f64 = 0.001;

/// The largest factor: with more, any objective would be.
const FACTOR_MAX: f64 = 1000.0;

/// More samples than tokens of any answer.
const SAMPLES_MAX: i64 = 1 << 30;

#[cfg(test)]
mod tests;
