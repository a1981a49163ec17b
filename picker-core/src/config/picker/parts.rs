//! The parts of the document beside plugins and profiles: parsers, data layer, flow control.
//!
//! What is there is checked and shown. Requests are read by what their paths say, whatever the
//! parsers, and metrics are collected as the pool's `scrape` says.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Map, Value, json};

use super::super::PLUGINS_MAX;
use super::super::catalogue::Part;
use super::super::error::{Cause, ConfigWarning, Wanted};
use super::super::node::{Node, Object};
use super::super::table::{self, Kind, Parameter};
use super::plugins::Plugins;
use crate::sources::{METRICS_EXTRACTOR, Target};

/// What the parts say.
pub(super) struct Parts {
    /// Them in the document in effect.
    pub(super) document: Map<String, Value>,
    /// The data sources that are in use.
    pub(super) sources: Vec<Used>,
    /// Whether something is said about queues.
    pub(super) is_flow_control_set: bool,
}

/// A data source in use, by name, and what reads its answers.
pub(super) struct Used {
    pub(super) source: String,
    pub(super) extractors: Vec<String>,
}

impl Parts {
    /// Reads the parts, and adds the plugins that they need.
    pub(super) fn read(document: &mut Object<'_>, plugins: &mut Plugins) -> Self {
        let mut parts = Map::new();
        // The defaults of queues are there whether anything queues or not.
        for kind in POLICIES {
            plugins.ensure(kind);
        }
        parts.insert("requestHandler".into(), request_handler(document, plugins));
        let detector = document.key("saturationDetector");
        if let Some(node) = &detector {
            node.warn(ConfigWarning::Deprecated {
                path: node.path().to_string(),
                name: "saturationDetector".into(),
                instead: "flowControl.saturationDetector".into(),
            });
        }
        let detector = detector.and_then(|it| detector_of(&it, plugins));
        let (flow_control, is_flow_control_set) = flow_control(document, plugins, detector);
        let (data_layer, sources) = data_layer(document, plugins);
        parts.insert("dataLayer".into(), data_layer);
        parts.insert("flowControl".into(), flow_control);
        Self {
            document: parts,
            sources,
            is_flow_control_set,
        }
    }
}

fn request_handler(document: &mut Object<'_>, plugins: &mut Plugins) -> Value {
    let mut parsers: Vec<String> = Vec::new();
    let old = document.key("parser");
    document.section("requestHandler", |section| {
        let list = section.key("parsers").map(|it| it.list(PLUGINS_MAX));
        for node in list.into_iter().flatten() {
            let parser = node.object(|it| referred(it, plugins, ("parser", Part::Parser)));
            parsers.extend(parser.flatten());
        }
    });
    if let Some(old) = old {
        old.warn(ConfigWarning::Deprecated {
            path: old.path().to_string(),
            name: "parser".into(),
            instead: "requestHandler.parsers".into(),
        });
        let parser = old.object(|it| referred(it, plugins, ("parser", Part::Parser)));
        if parsers.is_empty() {
            parsers.extend(parser.flatten());
        }
    }
    if parsers.is_empty() {
        let added = PARSERS
            .iter()
            .filter_map(|kind| Some(plugins.ensure(kind)?.name.clone()));
        parsers = added.collect();
    }
    json!({"parsers": references(&parsers)})
}

fn data_layer(document: &mut Object<'_>, plugins: &mut Plugins) -> (Value, Vec<Used>) {
    document.section("dataLayer", |section| {
        let inject = section.key("injectDefaults").and_then(|it| it.boolean());
        let inject = inject.unwrap_or(true);
        let list = section.key("sources").map(|it| it.list(PLUGINS_MAX));
        let sources = list.into_iter().flatten();
        let sources = sources.filter_map(|node| node.object(|it| source(it, plugins)).flatten());
        let mut sources: Vec<Used> = sources.collect();
        let is_metrics = |it: &Used| plugins.target(&it.source) == Some(Target::Metrics);
        if inject && !sources.iter().any(is_metrics) {
            let mut named = |kind| plugins.ensure(kind).map(|it| it.name.clone());
            sources.extend(named(METRICS_SOURCE).map(|source| Used {
                source,
                extractors: named(METRICS_EXTRACTOR).into_iter().collect(),
            }));
        }
        for (key, what) in [
            ("discovery", "pools[].endpoints"),
            ("peerDiscovery", "nothing; every Envoy chooses by itself"),
            (
                "crossReplicaSyncerPluginRef",
                "nothing; all workers of an Envoy share their counts",
            ),
            (
                "crossReplicaSyncInterval",
                "nothing; workers learn of every choice at once",
            ),
        ] {
            if section.key(key).is_some() {
                section.fail_at(
                    key,
                    Cause::told(
                        format!("{key} cannot be used inside a proxy"),
                        format!("remove it and use {what}"),
                    ),
                );
            }
        }
        let shown = sources.iter().map(|Used { source, extractors }| {
            json!({"pluginRef": source, "extractors": references(extractors)})
        });
        let shown: Vec<Value> = shown.collect();
        let document = json!({"injectDefaults": inject, "sources": shown});
        (document, sources)
    })
}

fn source(section: &mut Object<'_>, plugins: &mut Plugins) -> Option<Used> {
    let source = referred(section, plugins, ("data source", Part::Source))?;
    let list = section.key("extractors").map(|it| it.list(PLUGINS_MAX));
    let mut extractors = Vec::new();
    for node in list.into_iter().flatten() {
        let of = ("extractor", Part::Extractor);
        let Some(name) = node.object(|it| referred(it, plugins, of)).flatten() else {
            continue;
        };
        let (asked, read) = (plugins.target(&source), plugins.reads(&name));
        if asked.is_some() && read.is_some() && asked != read {
            node.fail_below(
                "pluginRef",
                Cause::told(
                    format!("'{name}' cannot read what '{source}' asks for"),
                    "put it below a source of its own kind".into(),
                ),
            );
        }
        extractors.push(name);
    }
    Some(Used { source, extractors })
}

/// What is said about queues, and whether anything is.
fn flow_control(
    document: &mut Object<'_>,
    plugins: &mut Plugins,
    old_detector: Option<String>,
) -> (Value, bool) {
    let given = document.key("flowControl");
    let mut is_set = false;
    let mut detector = old_detector;
    let mut values = table::defaults(FLOW_CONTROL);
    values.insert(BANDS.into(), Value::Array(Vec::new()));
    let unset = values.clone();
    if let Some(section) = given {
        let read = section.object(|section| {
            let own = section.key("saturationDetector");
            detector = own
                .and_then(|it| detector_of(&it, plugins))
                .or_else(|| detector.take());
            let mut values = table::read(section, FLOW_CONTROL);
            if let Some(policy) = section.key("usageLimitPolicyPluginRef") {
                let name = plugins.referred(&policy, "flow control", Part::UsageLimitPolicy);
                values.extend(name.map(|it| ("usageLimitPolicyPluginRef".into(), it.into())));
            }
            values.insert(BANDS.into(), bands(section, plugins));
            for key in ["defaultPriorityBand", "defaultNegativePriorityBand"] {
                if let Some(band) = section.key(key) {
                    values.extend(band.object(|it| (key.into(), band_of(it, plugins))));
                }
            }
            values
        });
        values = read.unwrap_or(values);
        is_set = values != unset;
    }
    let detector = detector.or_else(|| {
        let added = plugins.ensure("utilization-detector");
        added.map(|it| it.name.clone())
    });
    values.insert("saturationDetector".into(), json!({"pluginRef": detector}));
    (values.into(), is_set)
}

fn bands(section: &mut Object<'_>, plugins: &mut Plugins) -> Value {
    let list = section.key(BANDS).map(|it| it.list(PLUGINS_MAX));
    let mut priorities: Vec<i64> = Vec::new();
    let bands = list.into_iter().flatten().filter_map(|node| {
        node.object(|band| {
            let priority = band.needed("priority", Wanted::Integer);
            let priority = priority.and_then(|it| it.integer(Wanted::Integer));
            if let Some(priority) = priority {
                if priorities.contains(&priority) {
                    band.fail_at(
                        "priority",
                        Cause::told(
                            format!("duplicate priority level {priority}"),
                            "give it another priority, or remove one".into(),
                        ),
                    );
                }
                priorities.push(priority);
            }
            let mut values = band_of(band, plugins);
            values["priority"] = priority.unwrap_or_default().into();
            values
        })
    });
    bands.collect()
}

fn band_of(band: &mut Object<'_>, plugins: &mut Plugins) -> Value {
    let mut values = table::read(band, BAND);
    for (key, part, default) in [
        (
            "fairnessPolicyRef",
            Part::FairnessPolicy,
            "global-strict-fairness-policy",
        ),
        (
            "orderingPolicyRef",
            Part::OrderingPolicy,
            "fcfs-ordering-policy",
        ),
    ] {
        let node = band.key(key);
        let name = node.and_then(|it| plugins.referred(&it, "priority band", part));
        values.insert(key.into(), name.unwrap_or_else(|| default.into()).into());
    }
    values.into()
}

fn detector_of(node: &Node<'_>, plugins: &mut Plugins) -> Option<String> {
    let of = ("saturation detector", Part::SaturationDetector);
    node.object(|it| referred(it, plugins, of)).flatten()
}

/// The plugin that `pluginRef` names.
fn referred(
    object: &mut Object<'_>,
    plugins: &mut Plugins,
    (by, part): (&str, Part),
) -> Option<String> {
    let node = object.needed("pluginRef", Wanted::PluginRef)?;
    plugins.referred(&node, by, part)
}

fn references(names: &[String]) -> Vec<Value> {
    names
        .iter()
        .map(|name| json!({"pluginRef": name}))
        .collect()
}

/// The numbers of flow control; the references are read one by one.
pub(in crate::config) const FLOW_CONTROL: &[Parameter] = &[
    Parameter {
        key: "maxBytes",
        kind: Kind::Size(0, SIZE_MAX, None),
    },
    Parameter {
        key: "maxRequests",
        kind: Kind::Size(0, SIZE_MAX, None),
    },
    Parameter {
        key: "defaultRequestTTL",
        kind: Kind::Duration(0, TTL_MAX, Some(60_000)),
    },
    Parameter {
        key: "noEndpointRequestTTL",
        kind: Kind::Duration(0, TTL_MAX, None),
    },
    Parameter {
        key: "enableEviction",
        kind: Kind::Boolean(false),
    },
];

/// The numbers of a priority band.
pub(in crate::config) const BAND: &[Parameter] = &[
    Parameter {
        key: "maxBytes",
        kind: Kind::Size(0, SIZE_MAX, Some(1_000_000_000)),
    },
    Parameter {
        key: "maxRequests",
        kind: Kind::Size(0, SIZE_MAX, Some(5000)),
    },
];

const BANDS: &str = "priorityBands";

/// Policies that there are without being declared.
const POLICIES: [&str; 3] = [
    "fcfs-ordering-policy",
    "global-strict-fairness-policy",
    "static-usage-limit-policy",
];

/// The parsers of a document that names none.
const PARSERS: [&str; 4] = [
    "openai-parser",
    "anthropic-parser",
    "vllmhttp-parser",
    "passthrough-parser",
];

const METRICS_SOURCE: &str = "metrics-data-source";

/// A limit that no number exceeds that is exact in JSON.
const SIZE_MAX: u64 = 1 << 53;

/// The longest wait in milliseconds: a day.
const TTL_MAX: u64 = 86_400_000;
