//! Plugins that score.

use super::super::WEIGHT_MAX;
use super::super::table::{Kind, Parameter, Values};
use super::{PluginType, Roles};
use crate::score::{LeastCost, PrefixShare, ScorerKind};

pub(super) const TYPES: &[PluginType] = &[
    PluginType {
        make: |_| Ok(Roles::scorer(ScorerKind::Queue)),
        ..PluginType::named("queue-scorer")
    },
    PluginType {
        make: |_| Ok(Roles::scorer(ScorerKind::KvCacheUtilization)),
        ..PluginType::named("kv-cache-utilization-scorer")
    },
    PluginType {
        parameters: LEAST_COST,
        make: |values| Ok(Roles::scorer(ScorerKind::LeastCost(least_cost(values)))),
        ..PluginType::named("least-cost-scorer")
    },
    PluginType {
        make: |_| Ok(Roles::scorer(ScorerKind::Prefix(PrefixShare::DEFAULT))),
        ..PluginType::named("prefix-cache-scorer")
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

fn least_cost(values: Values<'_>) -> LeastCost {
    LeastCost {
        base_tokens: values.number("baseTokens"),
        overflow_weight: values.number("overflowWeight"),
        backlog_weight: values.number("backlogWeight"),
    }
}
