//! Plugins that filter.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::super::table::{Kind, Parameter, Unfit, Values};
use super::latency::LATENCY_PRODUCER;
use super::{IN_FLIGHT, NUMBER_MAX, PluginType, Roles, Stability, producer};
use crate::filter::{
    AttributeLimit, Filter, LabelSelector, Operator, PrefixAffinity, Requirement, TtftSource,
    UsageLimits,
};
use crate::measure::Measure;
use crate::role::{DECODES, ENCODES, PREFILLS, ROLE_LABEL};

pub(super) const TYPES: &[PluginType] = &[
    PluginType {
        parameters: SELECTOR,
        make: selector,
        ..PluginType::named("label-selector-filter")
    },
    PluginType {
        stability: Stability::Deprecated("label-selector-filter"),
        parameters: SELECTOR,
        make: selector,
        ..PluginType::named("by-label-selector")
    },
    PluginType {
        stability: Stability::Deprecated("label-selector-filter"),
        parameters: BY_LABEL,
        make: by_label,
        ..PluginType::named("by-label")
    },
    PluginType {
        make: |_| Ok(role(DECODES, true)),
        ..PluginType::named("decode-filter")
    },
    PluginType {
        make: |_| Ok(role(PREFILLS, false)),
        ..PluginType::named("prefill-filter")
    },
    PluginType {
        make: |_| Ok(role(ENCODES, false)),
        ..PluginType::named("encode-filter")
    },
    PluginType {
        parameters: PREFIX_AFFINITY,
        needs: &["approx-prefix-cache-producer", IN_FLIGHT],
        make: prefix_affinity,
        ..PluginType::named("prefix-cache-affinity-filter")
    },
    PluginType {
        stability: Stability::Alpha,
        parameters: USAGE,
        needs: &[IN_FLIGHT],
        make: usage,
        ..PluginType::named("utilization-filter")
    },
    PluginType {
        stability: Stability::Alpha,
        parameters: ATTRIBUTE,
        make: attribute,
        ..PluginType::named("endpoint-attribute-filter")
    },
];

const SELECTOR: &[Parameter] = &[
    Parameter::of("matchLabels", Kind::Labels),
    Parameter::of(
        "matchExpressions",
        Kind::Sections(&[
            Parameter::of("key", Kind::NeededText),
            Parameter::of(
                "operator",
                Kind::NeededChoice(&["In", "NotIn", "Exists", "DoesNotExist"]),
            ),
            Parameter::of("values", Kind::Texts),
        ]),
    ),
];

fn selector(values: Values<'_>) -> Result<Roles, Unfit> {
    let labels = values.labels("matchLabels").into_iter();
    let mut requirements: Vec<Requirement> = labels
        .map(|(label, value)| Requirement {
            label,
            values: [value].into(),
            is_negated: false,
            fits_without: false,
        })
        .collect();
    for expression in values.sections("matchExpressions") {
        let (key, operator) = (expression.text("key"), expression.text("operator"));
        let values = expression.texts("values");
        let wants_values = matches!(operator, "In" | "NotIn");
        if values.is_empty() == wants_values {
            let what = if wants_values {
                format!("{operator} of {key:?} needs values")
            } else {
                format!("{operator} of {key:?} takes no values")
            };
            let fix = if wants_values {
                "write those that it compares with in values"
            } else {
                "remove values, or use In or NotIn"
            };
            return Err(Unfit::because("matchExpressions", &what, fix));
        }
        requirements.push(Requirement {
            label: key.to_string(),
            values,
            is_negated: matches!(operator, "NotIn" | "Exists"),
            fits_without: matches!(operator, "NotIn" | "DoesNotExist"),
        });
    }
    Ok(Roles::filter(Filter::Labels(LabelSelector {
        requirements,
    })))
}

const BY_LABEL: &[Parameter] = &[
    Parameter::of("label", Kind::NeededText),
    Parameter::of("validValues", Kind::Texts),
    Parameter::of("allowsNoLabel", Kind::Boolean(false)),
];

fn by_label(values: Values<'_>) -> Result<Roles, Unfit> {
    let (valid, fits_without) = (values.texts("validValues"), values.is("allowsNoLabel"));
    if valid.is_empty() && !fits_without {
        return Err(Unfit::because(
            "validValues",
            "no endpoint passes without a valid value",
            "list values, or set allowsNoLabel: true",
        ));
    }
    let requirement = Requirement {
        label: values.text("label").to_string(),
        values: valid,
        is_negated: false,
        fits_without,
    };
    Ok(Roles::filter(Filter::Labels(LabelSelector {
        requirements: [requirement].into(),
    })))
}

fn role(roles: &[&str], fits_without: bool) -> Roles {
    let requirement = Requirement {
        label: ROLE_LABEL.to_string(),
        values: roles.iter().map(ToString::to_string).collect(),
        is_negated: false,
        fits_without,
    };
    Roles::filter(Filter::Labels(LabelSelector {
        requirements: [requirement].into(),
    }))
}

const PREFIX_AFFINITY: &[Parameter] = &[
    Parameter::of("affinityThreshold", Kind::Number(0.0, 1.0, Some(0.8))),
    Parameter::of("explorationProbability", Kind::Number(0.0, 1.0, Some(0.0))),
    Parameter::of(
        "maxTTFTPenaltyMs",
        Kind::Number(0.0, NUMBER_MAX, Some(18_000.0)),
    ),
    Parameter::of(
        "ttftSource",
        Kind::Choice(
            &[PREFILL_THROUGHPUT, LATENCY_PREDICTOR],
            Some(PREFILL_THROUGHPUT),
        ),
    ),
    Parameter::of(
        "peakPrefillThroughput",
        Kind::Number(0.0, NUMBER_MAX, Some(15_928.0)),
    ),
    producer(
        "prefixMatchInfoProducerName",
        "approx-prefix-cache-producer",
    ),
    producer("latencyPredictionInfoProducerName", LATENCY_PRODUCER),
    producer("inFlightLoadProducerName", IN_FLIGHT),
];

fn prefix_affinity(values: Values<'_>) -> Result<Roles, Unfit> {
    let penalty_max_ms = values.number("maxTTFTPenaltyMs");
    let throughput = values.number("peakPrefillThroughput");
    let source = match values.text("ttftSource") {
        LATENCY_PREDICTOR => TtftSource::Prediction,
        _ if throughput <= 0.0 && penalty_max_ms > 0.0 => {
            return Err(Unfit::because(
                "peakPrefillThroughput",
                "no time follows from a throughput of 0",
                "write tokens per second, or set maxTTFTPenaltyMs: 0 so that no time matters",
            ));
        }
        _ => TtftSource::PrefillThroughput(throughput),
    };
    let rule = PrefixAffinity {
        threshold: values.number("affinityThreshold"),
        exploration: values.number("explorationProbability"),
        penalty_max_ms,
        source,
    };
    let needs: &[&str] = match source {
        TtftSource::Prediction => &[LATENCY_PRODUCER],
        TtftSource::PrefillThroughput(_) => &[],
    };
    Ok(Roles {
        needs,
        ..Roles::filter(Filter::PrefixAffinity(rule))
    })
}

const USAGE: &[Parameter] = &[
    Parameter::of(
        "conditions",
        Kind::Sections(&[
            Parameter::of(
                "metric",
                Kind::NeededChoice(&[
                    "active-requests",
                    "running-requests",
                    "waiting-queue",
                    KV_USAGE,
                ]),
            ),
            Parameter::of("maxValue", Kind::NeededNumber(0.0, NUMBER_MAX)),
        ]),
    ),
    FALLS_BACK,
    producer("inFlightLoadProducerName", IN_FLIGHT),
];

fn usage(values: Values<'_>) -> Result<Roles, Unfit> {
    let mut limits = Vec::new();
    for condition in values.sections("conditions") {
        let (metric, most) = (condition.text("metric"), condition.number("maxValue"));
        if metric == KV_USAGE && most > 1.0 {
            return Err(Unfit::because(
                "conditions",
                &format!("{KV_USAGE} is a fraction, and maxValue is {most}"),
                "write a maxValue between 0 and 1",
            ));
        }
        let measure = match metric {
            "running-requests" => Measure::RunningRequests,
            "waiting-queue" => Measure::WaitingQueue,
            KV_USAGE => Measure::KvCacheUtilization,
            _ => Measure::ActiveRequests,
        };
        limits.push((measure, most));
    }
    Ok(Roles::filter(Filter::Usage(UsageLimits {
        limits,
        falls_back: values.is("fallbackOnEmpty"),
    })))
}

const ATTRIBUTE: &[Parameter] = &[
    Parameter::of("attribute", Kind::NeededText),
    Parameter::of("producer", Kind::Text(None)),
    Parameter::of("onMissing", Kind::Choice(&["Pass", "Fail"], Some("Pass"))),
    FALLS_BACK,
    Parameter::of(
        "algorithm",
        Kind::Section(&[
            Parameter::of("type", Kind::NeededChoice(&["threshold"])),
            Parameter::of(
                "threshold",
                Kind::Section(&[
                    Parameter::of(
                        "operator",
                        Kind::NeededChoice(&[
                            "LessThan",
                            "LessThanOrEqual",
                            "GreaterThan",
                            "GreaterThanOrEqual",
                            "Equal",
                            "NotEqual",
                        ]),
                    ),
                    Parameter::of("value", Kind::NeededNumber(-NUMBER_MAX, NUMBER_MAX)),
                ]),
            ),
        ]),
    ),
];

fn attribute(values: Values<'_>) -> Result<Roles, Unfit> {
    let (producer, name) = super::attribute(values, "attribute")?;
    let algorithm = values.section("algorithm");
    let threshold = algorithm.and_then(|it| it.section("threshold"));
    let operator = threshold.map_or("", |it| it.text("operator"));
    let known = Operator::ALL.into_iter().find(|(it, _)| *it == operator);
    Ok(Roles::filter(Filter::Attribute(AttributeLimit {
        producer,
        name,
        operator: known.map_or(Operator::LessThan, |(_, operator)| operator),
        value: threshold.map_or(0.0, |it| it.number("value")),
        passes_unknown: values.text("onMissing") != "Fail",
        falls_back: values.is("fallbackOnEmpty"),
    })))
}

const FALLS_BACK: Parameter = Parameter::of("fallbackOnEmpty", Kind::Boolean(false));

const KV_USAGE: &str = "kv-cache-utilization";
const PREFILL_THROUGHPUT: &str = "prefillThroughput";
const LATENCY_PREDICTOR: &str = "latencyPredictor";
