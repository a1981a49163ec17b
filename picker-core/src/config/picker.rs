//! The reference picker's `EndpointPickerConfig`.
//!
//! The order of the lists has no meaning, but for filters and parsers. What is not given is filled
//! in as the reference picker does, in the same order. What would be settled there by chance is a
//! mistake here.

mod flow;
mod gather;
mod parts;
mod plugins;
mod profiles;
mod stages;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Map, Value, json};

use super::PICKER_API_VERSION;
use super::error::{Cause, ConfigWarning};
use super::nearest::nearest;
use super::node::{Node, Object, Report};
use crate::flow::{FlowControl, Ordering};
use crate::latency::OBJECTIVE_HEADERS;
use crate::plan::Plan;
use crate::sort::sort;
use crate::sources::DataSources;
pub(super) use flow::{BAND, FLOW_CONTROL};
use parts::Parts;
use plugins::Plugins;

/// The plan that `picker` of a pool describes, the default one when it is left out. Where requests
/// wait there is a band for each of `priorities`.
pub(super) fn plan(pool: &mut Object<'_>, priorities: &[i32]) -> Plan {
    let document = |it: &mut Object<'_>| document(it, priorities);
    match pool.key("picker") {
        Some(picker) => picker.object(document).unwrap_or_default(),
        None => default_plan(),
    }
}

/// What holds without a document: the endpoint where a request costs least.
fn default_plan() -> Plan {
    let value = json!({"plugins": [{"type": "least-cost-scorer"}]});
    let report = Report::new();
    let plan = Node::root(&value, &report).object(|it| document(it, &[]));
    plan.unwrap_or_default()
}

/// Reads a whole document, for a pool in which requests have these priorities.
pub(super) fn document(document: &mut Object<'_>, priorities: &[i32]) -> Plan {
    if let Some(version) = document.key("apiVersion") {
        api_version(&version);
    }
    if let Some(kind) = document.key("kind") {
        kind.choice("kind of document", &[("EndpointPickerConfig", ())]);
    }
    // Kubernetes tools add it; nothing in it has a meaning here.
    document.key("metadata");
    let gates = feature_gates(document);
    let mut plugins = Plugins::read(document);
    let profiles = profiles::read(document, &mut plugins);
    let is_on = gates.get(GATE) == Some(&Value::Bool(true));
    let mut parts = Parts::read(document, &mut plugins, is_on, priorities);
    if parts.flow.is_set && !is_on {
        document.warn_at("flowControl", ConfigWarning::gate_off);
    }
    plugins.add_producers();
    let identities = plugins.identities();
    let unsaid = plugins.unsaid(&identities);
    if let Some(unsaid) = unsaid {
        document.fail_at("plugins", unsaid);
    }
    let sources = plugins.sources(&parts.sources).unwrap_or_else(|cause| {
        document.fail_at("dataLayer.sources", cause);
        DataSources::default()
    });
    let producers = plugins.producers();
    if is_on && producers.burst.is_some() {
        document.fail_at("featureGates", both_hold());
    }
    let mut headers = plugins.headers();
    let control = parts.flow.control.take();
    if control.as_ref().is_some_and(goes_by_wishes) {
        let [name, old_name, ..] = OBJECTIVE_HEADERS;
        headers.extend([name, old_name].map(String::from));
        sort(&mut headers);
        headers.dedup();
    }
    Plan {
        handler: stages::handler(document, &plugins, &profiles.profiles),
        kv_source: plugins.kv_source(),
        headers,
        identities,
        admitters: plugins.admitters(),
        producers,
        foretelling: plugins.foretelling(),
        reports: plugins.reports(),
        detector: parts.flow.detector,
        flow: control,
        sources,
        document: effective(&gates, &plugins, &profiles.document, parts),
        profiles: profiles.profiles,
    }
}

fn both_hold() -> Cause {
    Cause::told(
        alloc::format!("the gate '{GATE}' and burst-prefix-cache-producer both hold requests"),
        "keep one of them".into(),
    )
}

/// Whether the time to the first token that a request asks for decides when it has its turn.
fn goes_by_wishes(flow: &FlowControl) -> bool {
    let mut bands = flow.bands.iter();
    bands.any(|it| it.ordering == Ordering::SloDeadline)
}

/// Accepts the version there is and the name it had before.
fn api_version(version: &Node<'_>) {
    let accepted = [PICKER_API_VERSION, OLD_API_VERSION];
    if let Some(text) = version.text()
        && !accepted.contains(&text)
    {
        version.fail(Cause::ApiVersion(text.into()));
    }
}

/// The feature gates, each with its default where it is not given.
fn feature_gates(document: &mut Object<'_>) -> Map<String, Value> {
    let mut gates: Map<String, Value> = FEATURE_GATES
        .iter()
        .map(|(name, default)| ((*name).to_string(), Value::Bool(*default)))
        .collect();
    let list = document.key("featureGates");
    let list: Vec<Node<'_>> = list.map(|it| it.list(GATES_MAX)).unwrap_or_default();
    for node in list {
        let Some(text) = node.text() else { continue };
        let (name, value) = text.split_once('=').unwrap_or((text, "true"));
        let value = match value.to_ascii_lowercase().as_str() {
            "true" | "t" | "1" => true,
            "false" | "f" | "0" => false,
            _ => {
                node.fail(Cause::told(
                    alloc::format!("the feature gate {name:?} is neither on nor off"),
                    alloc::format!("write {name}=true or {name}=false"),
                ));
                continue;
            }
        };
        match gates.get_mut(name) {
            Some(gate) => *gate = Value::Bool(value),
            None => node.fail(unknown_gate(name)),
        }
    }
    gates
}

fn unknown_gate(name: &str) -> Cause {
    let known = FEATURE_GATES.map(|(it, _)| it);
    let fix = match (name, nearest(name, &known)) {
        // Gates of releases before the move; what they switched on is always on.
        ("dataLayer" | "prepareDataPlugins", _) => {
            "remove it; what it switched on is always on".into()
        }
        (_, Some(nearest)) => alloc::format!("write {nearest}"),
        (_, None) => alloc::format!("use one of {}", known.join(", ")),
    };
    Cause::told(
        alloc::format!("feature gate '{name}' is unknown or unregistered"),
        fix,
    )
}

/// The document with every default filled in.
fn effective(
    gates: &Map<String, Value>,
    plugins: &Plugins,
    profiles: &[Value],
    parts: Parts,
) -> Value {
    let gates = gates
        .iter()
        .map(|(name, value)| alloc::format!("{name}={value}"));
    let mut document = json!({
        "apiVersion": PICKER_API_VERSION,
        "kind": "EndpointPickerConfig",
        "featureGates": gates.collect::<Vec<String>>(),
        "plugins": plugins.to_values(),
        "schedulingProfiles": profiles,
    });
    if let Some(document) = document.as_object_mut() {
        document.extend(parts.document);
    }
    document
}

/// Feature gates and their defaults.
pub(super) const FEATURE_GATES: [(&str, bool); 2] =
    [(GATE, false), ("haPopulateNonLeaderDatastore", true)];

/// The gate of queues before the choice.
const GATE: &str = "flowControl";

/// Entries of the list of feature gates: each could be there a few times.
const GATES_MAX: usize = 16;

/// The name of the version before the project moved; many documents still have it.
pub(super) const OLD_API_VERSION: &str = "inference.networking.x-k8s.io/v1alpha1";

#[cfg(test)]
pub(super) mod tests;
