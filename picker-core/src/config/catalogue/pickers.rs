//! Plugins that pick: how many of the best are named, and how ties and chances go.

use super::super::DESTINATIONS_MAX;
use super::super::table::{Kind, Parameter, Unfit, Values};
use super::{PluginType, Roles};
use crate::picker::{Picker, PickerKind};

pub(super) const TYPES: &[PluginType] = &[
    PluginType {
        parameters: PARAMETERS,
        make: |values| make(PickerKind::MaxScore, values),
        ..PluginType::named("max-score-picker")
    },
    PluginType {
        parameters: PARAMETERS,
        make: |values| make(PickerKind::Random, values),
        ..PluginType::named("random-picker")
    },
    PluginType {
        parameters: PARAMETERS,
        make: |values| make(PickerKind::WeightedRandom, values),
        ..PluginType::named("weighted-random-picker")
    },
];

const PARAMETERS: &[Parameter] = &[Parameter {
    key: "maxNumOfEndpoints",
    kind: Kind::Count(DESTINATIONS_MAX, 1),
}];

fn make(kind: PickerKind, values: Values<'_>) -> Result<Roles, Unfit> {
    let destinations_max = usize::try_from(values.integer("maxNumOfEndpoints")).unwrap_or(1);
    Ok(Roles::picker(Picker {
        kind,
        destinations_max,
    }))
}
