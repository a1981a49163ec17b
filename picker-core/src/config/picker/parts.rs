//! The parts of the document beside plugins, profiles and flow control: parsers and data layer.
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
use super::super::node::Object;
use super::flow::Flow;
use super::plugins::Plugins;
use crate::sources::{METRICS_EXTRACTOR, Target};

/// What the parts say.
pub(super) struct Parts {
    /// Them in the document in effect.
    pub(super) document: Map<String, Value>,
    /// How full the pool is, and how requests wait.
    pub(super) flow: Flow,
    /// The data sources that are in use.
    pub(super) sources: Vec<Used>,
}

/// A data source in use, by name, and what reads its answers.
pub(super) struct Used {
    pub(super) source: String,
    pub(super) extractors: Vec<String>,
}

impl Parts {
    /// Reads the parts, and adds the plugins that they need. Where requests wait, which `waits`
    /// tells, there is a band for each of `priorities`.
    pub(super) fn read(
        document: &mut Object<'_>,
        plugins: &mut Plugins,
        waits: bool,
        priorities: &[i32],
    ) -> Self {
        let mut parts = Map::new();
        Flow::add_policies(plugins);
        parts.insert("requestHandler".into(), request_handler(document, plugins));
        let mut flow = Flow::read(document, plugins, waits, priorities);
        parts.insert("flowControl".into(), flow.document.take());
        let (data_layer, sources) = data_layer(document, plugins);
        parts.insert("dataLayer".into(), data_layer);
        Self {
            document: parts,
            flow,
            sources,
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
            ("discovery", "pools[].endpoints or pools[].discovery"),
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

/// The plugin that `pluginRef` names.
pub(super) fn referred(
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

/// The parsers of a document that names none.
const PARSERS: [&str; 4] = [
    "openai-parser",
    "anthropic-parser",
    "vllmhttp-parser",
    "passthrough-parser",
];

const METRICS_SOURCE: &str = "metrics-data-source";
