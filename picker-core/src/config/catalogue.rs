//! The plugin types there are: their names, their parameters and what they become.

mod data;
mod detectors;
mod elsewhere;
mod filters;
mod flow;
mod handlers;
mod latency;
mod others;
mod pickers;
mod producers;
mod reports;
mod scorers;
mod sessions;
mod topology;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::is_header_name;
use super::table::{Kind, Parameter, Unfit, Values};
use crate::admitter::Admitter;
use crate::filter::Filter;
use crate::flow::{Fairness, Ordering, UsageLimit};
use crate::handler::{Decider, Handler};
use crate::identity::Source;
use crate::kv_source::KvSource;
use crate::picker::Picker;
use crate::plan::{Foretelling, Report};
use crate::producers::Producers;
use crate::saturation::Detector;
use crate::score::ScorerKind;
use crate::sources::{DataSource, Engines, METRICS_EXTRACTOR, Target};
use crate::topology::Topology;
pub(super) use elsewhere::elsewhere;
pub(super) use topology::TOPOLOGY_PRODUCER;

/// A plugin type.
pub(super) struct PluginType {
    /// Its name in the reference picker's configuration.
    pub(super) name: &'static str,
    /// Names it had before.
    pub(super) old_names: &'static [&'static str],
    /// How settled it is there.
    pub(super) stability: Stability,
    /// What may be set.
    pub(super) parameters: &'static [Parameter],
    /// Types of plugins whose knowledge of requests it reads; they are added where none is declared.
    pub(super) needs: &'static [&'static str],
    /// What it becomes, given its parameters.
    pub(super) make: fn(Values<'_>) -> Result<Roles, Unfit>,
}

/// How settled a plugin type is in the reference picker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stability {
    /// May change or go; there it needs a flag, here it loads with a warning.
    Alpha,
    /// Settled.
    Beta,
    /// Replaced by what the text names.
    Deprecated(&'static str),
    /// It is not there.
    Ours,
}

/// What a plugin does, which may be several things.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Roles {
    /// Narrows the candidates.
    pub(super) filter: Option<Filter>,
    /// Ranks them.
    pub(super) scorer: Option<ScorerKind>,
    /// Chooses among them.
    pub(super) picker: Option<Picker>,
    /// Chooses the profiles to run.
    pub(super) handler: Option<Handler>,
    /// Something that the document may refer to and that has its place elsewhere.
    pub(super) part: Option<Part>,
    /// Tells how full the pool is.
    pub(super) detector: Option<Detector>,
    /// Says which request of a flow is next.
    pub(super) ordering: Option<Ordering>,
    /// Says which flow is next.
    pub(super) fairness: Option<Fairness>,
    /// Says how full the pool may be.
    pub(super) usage_limit: Option<UsageLimit>,
    /// Tells where endpoints are.
    pub(super) topology: Option<Topology>,
    /// Names of request headers that it reads.
    pub(super) headers: Vec<String>,
    /// What it says of requests.
    pub(super) says: Option<Said>,
    /// What it wants to be known.
    pub(super) producers: Producers,
    /// How it predicts latencies.
    pub(super) foretelling: Option<Foretelling>,
    /// Types whose knowledge it reads besides those that its type needs.
    pub(super) needs: &'static [&'static str],
    /// Says whether a stage of a request has an endpoint of its own.
    pub(super) decider: Option<Decider>,
    /// Names who holds blocks of a prompt.
    pub(super) kv_source: Option<KvSource>,
    /// What it refers to, by name.
    pub(super) references: Vec<Reference>,
    /// What a request has to pass.
    pub(super) admitter: Option<Admitter>,
    /// What it asks endpoints for, or makes of their answers.
    pub(super) data: Option<Data>,
    /// What it reports of answers.
    pub(super) report: Option<Report>,
    /// What was read differently from what is written.
    pub(super) notes: Vec<Note>,
}

/// What a plugin has to do with what endpoints are asked for.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Data {
    /// Asks for this there.
    Source(Target, DataSource),
    /// Says what metrics pages mean.
    Engines(Engines),
    /// Reads this.
    Extractor(Target),
}

/// A name of something else in the document among the parameters of a profile handler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Reference {
    /// Where it stands, below `parameters`.
    pub(super) key: &'static str,
    /// The name.
    pub(super) name: String,
    /// Of what.
    pub(super) to: Referred,
}

/// What a profile handler may refer to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Referred {
    /// The profile of a stage; whether there need not be one.
    Profile(Stage, bool),
    /// The decider of a stage.
    Decider(Stage),
}

/// A stage of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The answer is decoded, or whatever has no stage of its own.
    Decode,
    /// Images and the like are encoded.
    Encode,
    /// The prompt is computed.
    Prefill,
}

/// A parameter that was read differently from what is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Note {
    /// Where, below `parameters`.
    pub(super) key: &'static str,
    /// How.
    pub(super) what: Noted,
}

/// How a parameter was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Noted {
    /// As this parameter, which takes its place.
    Deprecated(&'static str),
    /// Not at all, for this reason.
    NoEffect(&'static str),
}

/// What a plugin says of requests.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Said {
    /// What it is called.
    pub(super) attribute: &'static str,
    /// Where it is found; the first that is there counts.
    pub(super) sources: Vec<Source>,
}

/// A part of the document that plugins may be given for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// What a request or an endpoint is known by, made for others to read.
    Producer,
    /// `requestHandler.parsers`.
    Parser,
    /// `dataLayer.sources`.
    Source,
    /// `dataLayer.sources[].extractors`.
    Extractor,
    /// `saturationDetector`.
    SaturationDetector,
    /// `flowControl.priorityBands[].orderingPolicyRef`.
    OrderingPolicy,
    /// `flowControl.priorityBands[].fairnessPolicyRef`.
    FairnessPolicy,
    /// `flowControl.usageLimitPolicyPluginRef`.
    UsageLimitPolicy,
    /// Runs before or after the choice, wherever it is declared.
    Hook,
}

/// The plugin type of this name, or that had this name before.
pub(super) fn plugin_type(name: &str) -> Option<&'static PluginType> {
    all().find(|it| it.name == name || it.old_names.contains(&name))
}

/// Every plugin type.
pub(super) fn all() -> impl Iterator<Item = &'static PluginType> {
    [
        filters::TYPES,
        detectors::TYPES,
        scorers::TYPES,
        topology::TYPES,
        pickers::TYPES,
        producers::TYPES,
        sessions::TYPES,
        handlers::TYPES,
        latency::TYPES,
        data::TYPES,
        reports::TYPES,
        others::TYPES,
        flow::TYPES,
    ]
    .into_iter()
    .flatten()
}

/// The header that `key` names, in lower case.
fn header_name(key: &'static str, name: &str) -> Result<String, Unfit> {
    if is_header_name(name) {
        return Ok(name.to_ascii_lowercase());
    }
    Err(Unfit::because(
        key,
        &alloc::format!("{name:?} is no header name"),
        "write the name of a header that is not Host, like x-session-id",
    ))
}

/// A parameter that names a data producer.
const fn producer(key: &'static str, default: &'static str) -> Parameter {
    let kind = Kind::PluginRef(Part::Producer, default);
    Parameter { key, kind }
}

/// The producer and the name of a number from the endpoints' pages, which is named in `key`.
fn attribute(values: Values<'_>, key: &'static str) -> Result<(String, String), Unfit> {
    let name = values.text(key).to_string();
    if values.has("producer") {
        return Ok((values.text("producer").to_string(), name));
    }
    if name.contains('/') {
        return Err(Unfit::because(
            key,
            "a name with a slash does not tell who makes the number",
            "name its producer in producer, or set producer: \"\" when it has none",
        ));
    }
    Ok((METRICS_EXTRACTOR.to_string(), name))
}

/// The producer of what is in flight.
const IN_FLIGHT: &str = "inflight-load-producer";

/// The bound of numbers that have no other: beyond it they are no longer exact.
const NUMBER_MAX: f64 = 1e15;

impl Part {
    /// What a plugin for this part is to the reference picker, and in a word.
    pub(super) fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Producer => ("a data producer", "a data producer"),
            Self::Parser => ("a parser plugin", "a parser"),
            Self::Source => ("a fwkdl.DataSource", "a data source"),
            Self::Extractor => ("an extractor", "an extractor"),
            Self::SaturationDetector => ("a fwkfc.SaturationDetector", "a saturation detector"),
            Self::OrderingPolicy => ("an ordering policy", "an ordering policy"),
            Self::FairnessPolicy => ("a fairness policy", "a fairness policy"),
            Self::UsageLimitPolicy => ("a usage limit policy", "a usage limit policy"),
            Self::Hook => ("a hook", "a hook"),
        }
    }
}

impl Roles {
    pub(super) fn filter(filter: Filter) -> Self {
        Self {
            filter: Some(filter),
            ..Self::default()
        }
    }

    pub(super) fn scorer(scorer: ScorerKind) -> Self {
        Self {
            scorer: Some(scorer),
            ..Self::default()
        }
    }

    pub(super) fn picker(picker: Picker) -> Self {
        Self {
            picker: Some(picker),
            ..Self::default()
        }
    }

    pub(super) fn handler(handler: Handler) -> Self {
        Self {
            handler: Some(handler),
            ..Self::default()
        }
    }

    pub(super) fn part(part: Part) -> Self {
        Self {
            part: Some(part),
            ..Self::default()
        }
    }

    /// Whether a profile can refer to it.
    pub(super) fn is_for_profiles(&self) -> bool {
        self.filter.is_some() || self.scorer.is_some() || self.picker.is_some()
    }
}

#[cfg(test)]
mod tests;
