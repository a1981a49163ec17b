//! Plugins that score.

use alloc::string::ToString;

use super::super::WEIGHT_MAX;
use super::super::table::{Kind, Parameter, Unfit, Values};
use super::{IN_FLIGHT, NUMBER_MAX, PluginType, Roles, Stability, header_name, producer};
use crate::context_length::ContextLength;
use crate::filter::Filter;
use crate::score::{
    ActiveRequests, AttributeRange, HeaderLabel, LeastCost, PrefixShare, ScorerKind,
};

pub(super) const TYPES: &[PluginType] = &[
    PluginType {
        make: |_| Ok(Roles::scorer(ScorerKind::Queue)),
        ..PluginType::named("queue-scorer")
    },
    PluginType {
        make: |_| Ok(Roles::scorer(ScorerKind::RunningRequests)),
        ..PluginType::named("running-requests-size-scorer")
    },
    PluginType {
        make: |_| Ok(Roles::scorer(ScorerKind::KvCacheUtilization)),
        ..PluginType::named("kv-cache-utilization-scorer")
    },
    PluginType {
        stability: Stability::Ours,
        parameters: LEAST_COST,
        make: |values| Ok(Roles::scorer(ScorerKind::LeastCost(least_cost(values)))),
        ..PluginType::named("least-cost-scorer")
    },
    PluginType {
        parameters: &[Parameter {
            key: "producerName",
            kind: Kind::Text(None),
        }],
        needs: &["mm-embeddings-cache-producer"],
        make: |_| Ok(Roles::scorer(ScorerKind::Media)),
        ..PluginType::named("mm-embeddings-cache-scorer")
    },
    PluginType {
        parameters: NO_HIT_LRU,
        needs: &[PREFIX_PRODUCER],
        make: |values| {
            let size = usize::try_from(values.integer("lruSize")).unwrap_or(usize::MAX);
            Ok(Roles::scorer(ScorerKind::NoHitLru(size)))
        },
        ..PluginType::named("no-hit-lru-scorer")
    },
    PluginType {
        parameters: PREFIX,
        needs: &[PREFIX_PRODUCER],
        make: prefix,
        ..PluginType::named("prefix-cache-scorer")
    },
    PluginType {
        make: |_| Ok(Roles::scorer(ScorerKind::LoraAffinity)),
        ..PluginType::named("lora-affinity-scorer")
    },
    PluginType {
        parameters: LOAD_AWARE,
        make: |values| {
            let most = positive(values, "threshold", QUEUE_THRESHOLD);
            Ok(Roles::scorer(ScorerKind::LoadAware(most)))
        },
        ..PluginType::named("load-aware-scorer")
    },
    PluginType {
        parameters: ACTIVE_REQUESTS,
        needs: &[IN_FLIGHT],
        make: |values| {
            Ok(Roles::scorer(ScorerKind::ActiveRequests(ActiveRequests {
                idle: u32::try_from(values.integer("idleThreshold")).unwrap_or(u32::MAX),
                busy_most: values.number("maxBusyScore"),
            })))
        },
        ..PluginType::named("active-request-scorer")
    },
    PluginType {
        parameters: TOKEN_LOAD,
        needs: &[IN_FLIGHT],
        make: |values| {
            let most = positive(values, "queueThresholdTokens", TOKENS_THRESHOLD);
            Ok(Roles::scorer(ScorerKind::TokenLoad(most)))
        },
        ..PluginType::named("token-load-scorer")
    },
    PluginType {
        parameters: CONTEXT_LENGTH,
        make: context_length,
        ..PluginType::named("context-length-aware")
    },
    PluginType {
        stability: Stability::Alpha,
        parameters: HEADER_LABEL,
        make: header_label,
        ..PluginType::named("header-label-affinity-scorer")
    },
    PluginType {
        stability: Stability::Alpha,
        parameters: ATTRIBUTE,
        make: attribute,
        ..PluginType::named("endpoint-attribute-scorer")
    },
];

const fn factor(key: &'static str, default: f64) -> Parameter {
    let kind = Kind::Number(0.0, WEIGHT_MAX, Some(default));
    Parameter { key, kind }
}

const LEAST_COST: &[Parameter] = &[
    factor("baseTokens", LeastCost::DEFAULT.base_tokens),
    factor("overflowWeight", LeastCost::DEFAULT.overflow_weight),
    factor("backlogWeight", LeastCost::DEFAULT.backlog_weight),
];

const NO_HIT_LRU: &[Parameter] = &[
    Parameter {
        key: "lruSize",
        kind: Kind::Integer(1, LRU_SIZE_MAX, Some(1024)),
    },
    Parameter {
        key: "prefixMatchInfoProducerName",
        kind: Kind::Text(None),
    },
    Parameter {
        key: "prefixPluginType",
        kind: Kind::Unused,
    },
    Parameter {
        key: "prefixPluginName",
        kind: Kind::Unused,
    },
];

/// Endpoints that are remembered: far more than a pool has.
const LRU_SIZE_MAX: i64 = 1 << 20;

fn least_cost(values: Values<'_>) -> LeastCost {
    LeastCost {
        base_tokens: values.number("baseTokens"),
        overflow_weight: values.number("overflowWeight"),
        backlog_weight: values.number("backlogWeight"),
    }
}

const PREFIX: &[Parameter] = &[
    producer("prefixMatchInfoProducerName", PREFIX_PRODUCER),
    Parameter::of(
        "matchLengthWeight",
        Kind::Number(0.0, 1.0, Some(PrefixShare::DEFAULT.length_weight)),
    ),
    Parameter::of(
        "matchLengthScaleTokens",
        Kind::Number(
            -NUMBER_MAX,
            NUMBER_MAX,
            Some(PrefixShare::DEFAULT.length_scale),
        ),
    ),
];

fn prefix(values: Values<'_>) -> Result<Roles, Unfit> {
    let length_weight = values.number("matchLengthWeight");
    let length_scale = values.number("matchLengthScaleTokens");
    if length_weight > 0.0 && length_scale <= 0.0 {
        return Err(Unfit::because(
            "matchLengthScaleTokens",
            "it must be more than 0 where matchLengthWeight is",
            "write how many tokens are a long match, like 8192",
        ));
    }
    Ok(Roles::scorer(ScorerKind::Prefix(PrefixShare {
        length_weight,
        length_scale,
    })))
}

const LOAD_AWARE: &[Parameter] = &[Parameter::of(
    "threshold",
    Kind::Integer(-COUNT_MAX, COUNT_MAX, Some(QUEUE_THRESHOLD)),
)];

const ACTIVE_REQUESTS: &[Parameter] = &[
    Parameter::of("idleThreshold", Kind::Integer(0, COUNT_MAX, Some(0))),
    Parameter::of("maxBusyScore", Kind::Number(0.0, 1.0, Some(1.0))),
    producer("inFlightLoadProducerName", IN_FLIGHT),
    Parameter::of("requestTimeout", Kind::Unused),
];

const TOKEN_LOAD: &[Parameter] = &[
    Parameter::of(
        "queueThresholdTokens",
        Kind::Integer(-COUNT_MAX, COUNT_MAX, Some(TOKENS_THRESHOLD)),
    ),
    producer("inFlightLoadProducerName", IN_FLIGHT),
];

/// A count, the default where it is none.
fn positive(values: Values<'_>, key: &str, default: i64) -> f64 {
    let count = values.integer(key);
    (if count > 0 { count } else { default }) as f64
}

const CONTEXT_LENGTH: &[Parameter] = &[
    Parameter::of("label", Kind::Text(Some("llm-d.ai/context-length-range"))),
    Parameter::of("enableFiltering", Kind::Boolean(false)),
];

fn context_length(values: Values<'_>) -> Result<Roles, Unfit> {
    let label = values.text("label").to_string();
    if label.is_empty() {
        return Err(Unfit::because(
            "label",
            "no label has an empty name",
            "name the label with the range, or leave it out",
        ));
    }
    let rule = ContextLength { label };
    let filter = values.is("enableFiltering").then(|| rule.clone());
    Ok(Roles {
        filter: filter.map(Filter::ContextLength),
        ..Roles::scorer(ScorerKind::ContextLength(rule))
    })
}

const HEADER_LABEL: &[Parameter] = &[
    Parameter::of("headerName", Kind::NeededText),
    Parameter::of("labelKey", Kind::NeededText),
];

fn header_label(values: Values<'_>) -> Result<Roles, Unfit> {
    let header = header_name("headerName", values.text("headerName"))?;
    let label = values.text("labelKey").to_string();
    Ok(Roles {
        headers: [header.clone()].into(),
        ..Roles::scorer(ScorerKind::HeaderLabel(HeaderLabel { header, label }))
    })
}

const ATTRIBUTE: &[Parameter] = &[
    Parameter::of("attributeKey", Kind::NeededText),
    Parameter::of("producer", Kind::Text(None)),
    Parameter::of(
        "algorithm",
        Kind::Section(&[
            Parameter::of(
                "type",
                Kind::NeededChoice(&[LOWER_IS_BETTER, "linear_higher_is_better"]),
            ),
            Parameter::of(
                "normalization",
                Kind::Section(&[
                    Parameter::of("fixedRange", Kind::Optional(&[bound("min"), bound("max")])),
                    Parameter::of("adaptiveRange", Kind::Optional(&[])),
                ]),
            ),
        ]),
    ),
];

const fn bound(key: &'static str) -> Parameter {
    let kind = Kind::Number(-NUMBER_MAX, NUMBER_MAX, Some(0.0));
    Parameter { key, kind }
}

fn attribute(values: Values<'_>) -> Result<Roles, Unfit> {
    let (producer, name) = super::attribute(values, "attributeKey")?;
    let algorithm = values.section("algorithm");
    let normalization = algorithm.and_then(|it| it.section("normalization"));
    let range = normalization.and_then(|it| it.section("fixedRange"));
    if range.is_some() && normalization.is_some_and(|it| it.has("adaptiveRange")) {
        return Err(Unfit::because(
            "algorithm",
            "normalization has both fixedRange and adaptiveRange",
            "keep one",
        ));
    }
    let range = range.map(|it| (it.number("min"), it.number("max")));
    if let Some((least, most)) = range
        && least >= most
    {
        return Err(Unfit::because(
            "algorithm",
            &alloc::format!("normalization.fixedRange goes from {least} to {most}"),
            "write a min that is less than max",
        ));
    }
    Ok(Roles::scorer(ScorerKind::Attribute(AttributeRange {
        producer,
        name,
        lower_is_better: algorithm.is_some_and(|it| it.text("type") == LOWER_IS_BETTER),
        range,
    })))
}

const LOWER_IS_BETTER: &str = "linear_lower_is_better";
const PREFIX_PRODUCER: &str = "approx-prefix-cache-producer";

/// The queue that counts as full, and the backlog in tokens, when none is given.
const QUEUE_THRESHOLD: i64 = 128;
const TOKENS_THRESHOLD: i64 = 4_194_304;

/// More requests or tokens than any server holds; sums of them stay exact.
const COUNT_MAX: i64 = 1 << 40;
