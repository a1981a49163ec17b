//! Policies of flow control: who is next, and how full the pool may be.

use super::super::table::{Kind, Parameter, Unfit, Values};
use super::{Part, PluginType, Roles, Stability};
use crate::flow::{Fairness, LeastAttained, Ordering, UsageLimit};
use crate::time::Span;

pub(super) const TYPES: &[PluginType] = &[
    PluginType {
        make: |_| Ok(ordering(Ordering::Fcfs)),
        ..PluginType::named("fcfs-ordering-policy")
    },
    PluginType {
        make: |_| Ok(ordering(Ordering::Edf)),
        ..PluginType::named("edf-ordering-policy")
    },
    PluginType {
        make: |_| Ok(ordering(Ordering::SloDeadline)),
        ..PluginType::named("slo-deadline-ordering-policy")
    },
    PluginType {
        make: |_| Ok(fairness(Fairness::GlobalStrict)),
        ..PluginType::named("global-strict-fairness-policy")
    },
    PluginType {
        make: |_| Ok(fairness(Fairness::RoundRobin)),
        ..PluginType::named("round-robin-fairness-policy")
    },
    PluginType {
        parameters: PROGRAM_AWARE,
        make: |values| Ok(program_aware(values)),
        ..PluginType::named("program-aware-fairness")
    },
    PluginType {
        parameters: STATIC_LIMIT,
        make: |values| Ok(usage_limit(UsageLimit::Static(values.number("threshold")))),
        ..PluginType::named("static-usage-limit-policy")
    },
    PluginType {
        stability: Stability::Alpha,
        parameters: HOLDBACK,
        make: holdback,
        ..PluginType::named("priority-holdback-policy")
    },
    PluginType {
        stability: Stability::Alpha,
        make: |_| Ok(usage_limit(UsageLimit::SoftReflective)),
        ..PluginType::named("soft-reflective-ceiling-policy")
    },
];

const PROGRAM_AWARE: &[Parameter] = &[
    Parameter::of("strategy", Kind::Choice(&["las"], Some("las"))),
    Parameter::of("lasWeightService", Kind::Number(0.0, 1.0, Some(0.8))),
    Parameter::of("lasWeightHeadWait", Kind::Number(0.0, 1.0, Some(0.2))),
    Parameter::of("lasHalfLifeSeconds", seconds(60)),
    Parameter::of("evictionTtlSeconds", seconds(3600)),
    // Nothing has to be swept: what is old counts as nothing.
    Parameter::of("evictionSweepSeconds", seconds(300)),
];

const STATIC_LIMIT: &[Parameter] = &[Parameter::of(
    "threshold",
    Kind::Number(0.0, 1.0, Some(1.0)),
)];

const HOLDBACK: &[Parameter] = &[
    Parameter::of("minCeiling", Kind::NeededNumber(0.0, 1.0)),
    Parameter::of("maxCeiling", Kind::Number(0.0, 1.0, Some(1.0))),
    Parameter::of("shape", Kind::Choice(&["linear"], Some("linear"))),
    Parameter::of("domain", Kind::Choice(&["rank", "value"], Some("rank"))),
];

fn holdback(values: Values<'_>) -> Result<Roles, Unfit> {
    if values.number("minCeiling") >= values.number("maxCeiling") {
        return Err(Unfit::because(
            "minCeiling",
            "minCeiling is not below maxCeiling",
            "choose a lower minCeiling, or a higher maxCeiling",
        ));
    }
    Ok(usage_limit(UsageLimit::Holdback {
        least: values.number("minCeiling"),
        most: values.number("maxCeiling"),
        by_value: values.text("domain") == "value",
    }))
}

fn program_aware(values: Values<'_>) -> Roles {
    let span = |key| Span(values.integer(key) as u64 * 1_000_000);
    fairness(Fairness::ProgramAware(LeastAttained {
        weight_service: values.number("lasWeightService"),
        weight_wait: values.number("lasWeightHeadWait"),
        half_life: span("lasHalfLifeSeconds"),
        forgotten_after: span("evictionTtlSeconds"),
    }))
}

fn ordering(ordering: Ordering) -> Roles {
    Roles {
        ordering: Some(ordering),
        ..Roles::part(Part::OrderingPolicy)
    }
}

fn fairness(fairness: Fairness) -> Roles {
    Roles {
        fairness: Some(fairness),
        ..Roles::part(Part::FairnessPolicy)
    }
}

fn usage_limit(limit: UsageLimit) -> Roles {
    Roles {
        usage_limit: Some(limit),
        ..Roles::part(Part::UsageLimitPolicy)
    }
}

const fn seconds(default: i64) -> Kind {
    Kind::Integer(1, SECONDS_MAX, Some(default))
}

/// The longest time in seconds: a week.
const SECONDS_MAX: i64 = 604_800;
