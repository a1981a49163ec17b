//! `flowControl`: how full the pool is, and how requests wait while it is full.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Map, Value, json};

use super::super::PLUGINS_MAX;
use super::super::catalogue::Part;
use super::super::error::{Cause, ConfigWarning, Wanted};
use super::super::node::{Node, Object};
use super::super::table::{self, Kind, Parameter, Values};
use super::super::units;
use super::parts::referred;
use super::plugins::{Plugin, Plugins};
use crate::flow::{Band, Capacity, FlowControl};
use crate::saturation::Detector;
use crate::sort::sort_by;
use crate::time::Span;

/// What is said about a full pool.
pub(super) struct Flow {
    /// It in the document in effect.
    pub(super) document: Value,
    /// How full the pool is.
    pub(super) detector: Detector,
    /// How requests wait; `None` where the feature gate is off.
    pub(super) control: Option<FlowControl>,
    /// Whether anything is said of that.
    pub(super) is_set: bool,
}

impl Flow {
    /// Adds the policies that hold by default, which are there whether anything waits or not.
    pub(super) fn add_policies(plugins: &mut Plugins) {
        for kind in [ORDERING, FAIRNESS, USAGE_LIMIT] {
            plugins.ensure(kind);
        }
    }

    /// Reads what is said, and adds the plugins that it needs. Where requests wait, which `waits`
    /// tells, there is a band for each of `priorities`.
    pub(super) fn read(
        document: &mut Object<'_>,
        plugins: &mut Plugins,
        waits: bool,
        priorities: &[i32],
    ) -> Self {
        let old = document.key(DETECTOR);
        if let Some(node) = &old {
            node.warn(ConfigWarning::Deprecated {
                path: node.path().to_string(),
                name: DETECTOR.into(),
                instead: "flowControl.saturationDetector".into(),
            });
        }
        let old = old.and_then(|it| detector_of(&it, plugins));
        let (mut values, detector) = document.section("flowControl", |section| {
            let own = section.key(DETECTOR);
            let own = own.and_then(|it| detector_of(&it, plugins));
            (values(section, plugins), own.or(old))
        });
        let is_set = values != unset();
        let control = waits.then(|| {
            complete(&mut values, priorities);
            control(Values(&values), plugins)
        });
        let default = || Some(plugins.ensure("utilization-detector")?.name.clone());
        let detector = detector.or_else(default).unwrap_or_default();
        values.insert(DETECTOR.into(), json!({"pluginRef": detector}));
        let detector = plugins.find(&detector).and_then(|it| it.roles.detector);
        Self {
            document: values.into(),
            detector: detector.unwrap_or_default(),
            control,
            is_set,
        }
    }
}

/// What `section` says, with all defaults but the bands that there are by themselves.
fn values(section: &mut Object<'_>, plugins: &mut Plugins) -> Map<String, Value> {
    let mut values = table::read(section, FLOW_CONTROL);
    let policy = section.key(POLICY);
    let policy =
        policy.and_then(|it| plugins.referred(&it, "flow control", Part::UsageLimitPolicy));
    values.insert(
        POLICY.into(),
        policy.as_deref().unwrap_or(USAGE_LIMIT).into(),
    );
    values.insert(BANDS.into(), bands(section, plugins));
    let mut template = |key, default: &Value| {
        let band = section.key(key);
        let band = band.and_then(|it| it.object(|it| band_of(it, plugins)));
        band.unwrap_or_else(|| default.clone())
    };
    let standard = template(STANDARD, &unset_band());
    values.insert(NEGATIVE.into(), template(NEGATIVE, &standard));
    values.insert(STANDARD.into(), standard);
    with_ttls(values)
}

/// What holds when nothing is said.
fn unset() -> Map<String, Value> {
    let mut values = table::defaults(FLOW_CONTROL);
    values.insert(POLICY.into(), USAGE_LIMIT.into());
    values.insert(BANDS.into(), json!([]));
    for key in [STANDARD, NEGATIVE] {
        values.insert(key.into(), unset_band());
    }
    with_ttls(values)
}

/// `values` in which requests wait without endpoints as long as with them, unless it is said.
fn with_ttls(mut values: Map<String, Value>) -> Map<String, Value> {
    if !values.contains_key(NO_ENDPOINT_TTL) {
        let ttl = values.get(REQUEST_TTL).cloned();
        values.insert(NO_ENDPOINT_TTL.into(), ttl.unwrap_or_default());
    }
    values
}

fn bands(section: &mut Object<'_>, plugins: &mut Plugins) -> Value {
    let list = section.key(BANDS).map(|it| it.list(PLUGINS_MAX));
    let mut known: Vec<i32> = Vec::new();
    let bands = list.into_iter().flatten().filter_map(|node| {
        node.object(|band| {
            let priority = band.needed("priority", Wanted::Integer);
            let priority = priority.and_then(|it| it.small_integer());
            if let Some(priority) = priority {
                if known.contains(&priority) {
                    band.fail_at(
                        "priority",
                        Cause::told(
                            format!("duplicate priority level {priority}"),
                            "give it another priority, or remove one".into(),
                        ),
                    );
                }
                known.push(priority);
            }
            numbered(&band_of(band, plugins), priority.unwrap_or_default())
        })
    });
    let mut bands: Vec<Value> = bands.collect();
    sort(&mut bands);
    bands.into()
}

/// One band, or what others are made from; a limit of 0 is none that is said.
fn band_of(band: &mut Object<'_>, plugins: &mut Plugins) -> Value {
    let mut values = table::read(band, BAND);
    for Parameter { key, kind } in BAND {
        if values.get(*key) == Some(&json!(0)) {
            values.extend(table::default(*kind).map(|it| ((*key).to_string(), it)));
        }
    }
    for (key, part, default) in POLICIES {
        let node = band.key(key);
        let name = node.and_then(|it| plugins.referred(&it, "priority band", part));
        values.insert(key.into(), name.as_deref().unwrap_or(default).into());
    }
    values.into()
}

fn unset_band() -> Value {
    let mut values = table::defaults(BAND);
    let policies = POLICIES.map(|(key, _, default)| (key.to_string(), default.into()));
    values.extend(policies);
    values.into()
}

fn numbered(band: &Value, priority: i32) -> Value {
    let mut band = band.clone();
    band["priority"] = priority.into();
    band
}

/// Puts the highest priority first.
fn sort(bands: &mut [Value]) {
    sort_by(bands, |left, right| {
        right["priority"].as_i64().cmp(&left["priority"].as_i64())
    });
}

/// Adds a band for each of `priorities` and for 0, where none is declared.
fn complete(values: &mut Map<String, Value>, priorities: &[i32]) {
    let templates = [STANDARD, NEGATIVE].map(|key| values.get(key).cloned());
    let Some(bands) = values.get_mut(BANDS).and_then(Value::as_array_mut) else {
        return;
    };
    for priority in priorities.iter().chain(&[0]) {
        if bands.iter().all(|it| it["priority"] != *priority) {
            let [standard, negative] = &templates;
            let template = if *priority < 0 { negative } else { standard };
            bands.extend(template.as_ref().map(|it| numbered(it, *priority)));
        }
    }
    sort(bands);
}

fn control(values: Values<'_>, plugins: &Plugins) -> FlowControl {
    let limit = |key| Some(values.integer(key) as u64).filter(|it| *it > 0);
    let ttl = |key| units::duration(values.text(key)).filter(|it| *it > Span(0));
    let policy = plugins.find(values.text(POLICY));
    let default = FlowControl::default();
    let bands = values.sections(BANDS).into_iter();
    FlowControl {
        bands: bands.map(|it| band(it, plugins)).collect(),
        capacity: Capacity {
            requests: limit("maxRequests").unwrap_or(u64::MAX),
            bytes: limit("maxBytes").unwrap_or(u64::MAX),
        },
        request_ttl: ttl(REQUEST_TTL),
        no_endpoint_ttl: ttl(NO_ENDPOINT_TTL),
        usage_limit: policy
            .and_then(|it| it.roles.usage_limit)
            .unwrap_or(default.usage_limit),
        evicts: values.is("enableEviction"),
    }
}

fn band(values: Values<'_>, plugins: &Plugins) -> Band {
    let default = Band::of(values.integer("priority") as i32);
    let plugin = |key| plugins.find(values.text(key));
    let fairness = plugin(FAIRNESS_KEY).and_then(|it: &Plugin| it.roles.fairness);
    let ordering = plugin(ORDERING_KEY).and_then(|it: &Plugin| it.roles.ordering);
    Band {
        capacity: Capacity {
            requests: values.integer("maxRequests") as u64,
            bytes: values.integer("maxBytes") as u64,
        },
        fairness: fairness.unwrap_or(default.fairness),
        ordering: ordering.unwrap_or(default.ordering),
        ..default
    }
}

fn detector_of(node: &Node<'_>, plugins: &mut Plugins) -> Option<String> {
    let of = ("saturation detector", Part::SaturationDetector);
    node.object(|it| referred(it, plugins, of)).flatten()
}

/// The numbers of flow control; the references are read one by one.
pub(in crate::config) const FLOW_CONTROL: &[Parameter] = &[
    // 0 is no limit.
    Parameter::of("maxBytes", Kind::Size(0, SIZE_MAX, Some(0))),
    Parameter::of("maxRequests", Kind::Size(0, SIZE_MAX, Some(0))),
    Parameter::of(REQUEST_TTL, Kind::Duration(0, TTL_MAX, Some(60_000))),
    Parameter::of(NO_ENDPOINT_TTL, Kind::Duration(0, TTL_MAX, None)),
    Parameter::of("enableEviction", Kind::Boolean(false)),
];

/// The numbers of a priority band.
pub(in crate::config) const BAND: &[Parameter] = &[
    Parameter::of("maxBytes", Kind::Size(0, SIZE_MAX, Some(1_000_000_000))),
    Parameter::of("maxRequests", Kind::Size(0, SIZE_MAX, Some(5000))),
];

/// The references of a priority band and what they lead to where they are left out.
const POLICIES: [(&str, Part, &str); 2] = [
    (FAIRNESS_KEY, Part::FairnessPolicy, FAIRNESS),
    (ORDERING_KEY, Part::OrderingPolicy, ORDERING),
];

const BANDS: &str = "priorityBands";
const STANDARD: &str = "defaultPriorityBand";
const NEGATIVE: &str = "defaultNegativePriorityBand";
const REQUEST_TTL: &str = "defaultRequestTTL";
const NO_ENDPOINT_TTL: &str = "noEndpointRequestTTL";
const POLICY: &str = "usageLimitPolicyPluginRef";
const DETECTOR: &str = "saturationDetector";
const FAIRNESS_KEY: &str = "fairnessPolicyRef";
const ORDERING_KEY: &str = "orderingPolicyRef";

/// The policies that hold without being declared.
const ORDERING: &str = "fcfs-ordering-policy";
const FAIRNESS: &str = "global-strict-fairness-policy";
const USAGE_LIMIT: &str = "static-usage-limit-policy";

/// A limit that no number exceeds that is exact in JSON.
const SIZE_MAX: u64 = 1 << 53;

/// The longest wait in milliseconds: a day.
const TTL_MAX: u64 = 86_400_000;

#[cfg(test)]
mod tests;
