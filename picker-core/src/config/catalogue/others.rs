//! Plugins that other parts of the document refer to.

use super::super::table::{Kind, Parameter, Unfit, Values};
use super::{Part, PluginType, Roles, Stability};

/// A type without parameters that is there to be referred to.
macro_rules! part {
    ($name:literal, $part:ident) => {
        PluginType {
            make: |_| Ok(Roles::part(Part::$part)),
            ..PluginType::named($name)
        }
    };
}

pub(super) const TYPES: &[PluginType] = &[
    part!("openai-parser", Parser),
    part!("anthropic-parser", Parser),
    part!("vllmhttp-parser", Parser),
    part!("sglanghttp-parser", Parser),
    part!("passthrough-parser", Parser),
    part!("fcfs-ordering-policy", OrderingPolicy),
    part!("edf-ordering-policy", OrderingPolicy),
    part!("slo-deadline-ordering-policy", OrderingPolicy),
    part!("global-strict-fairness-policy", FairnessPolicy),
    part!("round-robin-fairness-policy", FairnessPolicy),
    PluginType {
        parameters: PROGRAM_AWARE,
        make: |_| Ok(Roles::part(Part::FairnessPolicy)),
        ..PluginType::named("program-aware-fairness")
    },
    PluginType {
        parameters: STATIC_LIMIT,
        make: |_| Ok(Roles::part(Part::UsageLimitPolicy)),
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
        make: |_| Ok(Roles::part(Part::UsageLimitPolicy)),
        ..PluginType::named("soft-reflective-ceiling-policy")
    },
];

const PROGRAM_AWARE: &[Parameter] = &[
    Parameter::of("strategy", Kind::Choice(&["las"], Some("las"))),
    Parameter::of("lasWeightService", Kind::Number(0.0, 1.0, Some(0.8))),
    Parameter::of("lasWeightHeadWait", Kind::Number(0.0, 1.0, Some(0.2))),
    Parameter::of("lasHalfLifeSeconds", seconds(60)),
    Parameter::of("evictionTtlSeconds", seconds(3600)),
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
    Ok(Roles::part(Part::UsageLimitPolicy))
}

const fn seconds(default: i64) -> Kind {
    Kind::Integer(1, SECONDS_MAX, Some(default))
}

/// The longest time in seconds: a week.
const SECONDS_MAX: i64 = 604_800;

impl PluginType {
    /// A settled type of this name that does nothing yet.
    pub(super) const fn named(name: &'static str) -> Self {
        const NONE: &[Parameter] = &[];
        Self {
            name,
            old_names: &[],
            stability: Stability::Beta,
            parameters: NONE,
            needs: &[],
            make: |_| Ok(Roles::default()),
        }
    }
}
