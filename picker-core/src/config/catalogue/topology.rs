//! Plugins that compare where endpoints are.
//!
//! An endpoint's own labels tell. Which of them do is a parameter of the extractor.

use alloc::string::ToString;

use super::super::table::{Kind, Parameter, Values};
use super::{Part, PluginType, Roles, Stability};
use crate::filter::Filter;
use crate::score::ScorerKind;
use crate::topology::{Level, Topology};

pub(super) const TYPES: &[PluginType] = &[
    PluginType {
        stability: Stability::Alpha,
        parameters: FILTER,
        make: |values| {
            let name = values.text("minAffinity");
            let place = LEVELS.iter().position(|it| *it == name);
            let level = place.and_then(|it| Level::ALL.get(it).copied());
            let level = level.unwrap_or(Level::Host);
            Ok(Roles::filter(Filter::Near(defaults(), level)))
        },
        ..PluginType::named("topology-affinity-filter")
    },
    PluginType {
        stability: Stability::Alpha,
        parameters: SCORER,
        make: |_| Ok(Roles::scorer(ScorerKind::Topology(defaults()))),
        ..PluginType::named("topology-affinity-scorer")
    },
    PluginType {
        stability: Stability::Alpha,
        parameters: EXTRACTOR,
        make: |values| {
            Ok(Roles {
                topology: Some(topology(values)),
                ..Roles::part(Part::Extractor)
            })
        },
        ..PluginType::named(TOPOLOGY_EXTRACTOR)
    },
];

const FILTER: &[Parameter] = &[
    Parameter::of("minAffinity", Kind::Choice(&LEVELS, Some("host"))),
    PRODUCER,
];

const SCORER: &[Parameter] = &[PRODUCER];

const EXTRACTOR: &[Parameter] = &[
    label(0, "kubernetes.io/hostname"),
    label(1, "topology.kubernetes.io/rack"),
    label(2, "topology.kubernetes.io/zone"),
    label(3, "topology.kubernetes.io/region"),
];

const fn label(place: usize, default: &'static str) -> Parameter {
    Parameter::of(LABELS[place], Kind::Text(Some(default)))
}

fn topology(values: Values<'_>) -> Topology {
    Topology {
        labels: LABELS.map(|key| values.text(key).to_string()),
    }
}

/// The labels of an extractor without parameters, until it is known which extractor tells.
fn defaults() -> Topology {
    topology(Values(&super::super::table::defaults(EXTRACTOR)))
}

impl Roles {
    /// Lets it compare endpoints by the labels of `topology`.
    pub(in crate::config) fn set_topology(&mut self, topology: &Topology) {
        if let Some(Filter::Near(own, _)) = &mut self.filter {
            own.clone_from(topology);
        }
        if let Some(ScorerKind::Topology(own)) = &mut self.scorer {
            own.clone_from(topology);
        }
    }
}

const PRODUCER: Parameter = Parameter::of(
    TOPOLOGY_PRODUCER,
    Kind::PluginRef(Part::Extractor, TOPOLOGY_EXTRACTOR),
);

/// The parameter that names the extractor.
pub(in crate::config) const TOPOLOGY_PRODUCER: &str = "topologyProducerName";

const TOPOLOGY_EXTRACTOR: &str = "topology-extractor";

/// Levels, the nearest first, and the parameters that name their labels.
const LEVELS: [&str; 4] = ["host", "rack", "zone", "region"];
const LABELS: [&str; 4] = ["hostname", "rack", "zone", "region"];
