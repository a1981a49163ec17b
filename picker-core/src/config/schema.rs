//! The JSON Schema of an `EndpointPickerConfig`, from the tables that it is read by, and that of
//! the configuration around it.

mod discovery;
mod filter;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Map, Value, json};

use super::catalogue::{self, PluginType, Stability};
use super::picker::{BAND, FEATURE_GATES, FLOW_CONTROL, OLD_API_VERSION};
use super::table::{Kind, Parameter};
use super::{PICKER_API_VERSION, PLUGINS_MAX, PROFILES_MAX, TEXT_BYTES_MAX, WEIGHT_MAX};

pub use filter::config_schema;

/// The JSON Schema (draft 2020-12) of an `EndpointPickerConfig`.
pub fn picker_schema() -> Value {
    json!({
        "$schema": DRAFT,
        "title": "EndpointPickerConfig",
        "type": "object",
        "properties": {
            "apiVersion": {"enum": [PICKER_API_VERSION, OLD_API_VERSION]},
            "kind": {"const": "EndpointPickerConfig"},
            "metadata": {"type": "object"},
            "featureGates": {
                "type": "array",
                "items": {"type": "string", "pattern": gates()},
            },
            "plugins": {
                "type": "array",
                "maxItems": PLUGINS_MAX,
                "items": plugin(),
            },
            "schedulingProfiles": {
                "type": "array",
                "minItems": 1,
                "maxItems": PROFILES_MAX,
                "items": profile(),
            },
            "requestHandler": closed(json!({"parsers": references(&[])})),
            "parser": deprecated(reference(&[])),
            "dataLayer": closed(json!({
                "injectDefaults": {"type": "boolean", "default": true},
                "sources": references(&[("extractors", references(&[]))]),
            })),
            "flowControl": flow_control(),
            "saturationDetector": deprecated(reference(&[])),
        },
        "additionalProperties": false,
    })
}

fn gates() -> String {
    let names = FEATURE_GATES.map(|(name, _)| name).join("|");
    alloc::format!("^({names})(=(true|false))?$")
}

/// Any plugin: its type decides what its parameters are.
///
/// A choice of whole plugins would say the same, but who has one key wrong would be told that none
/// of them fits.
fn plugin() -> Value {
    let names: Vec<&str> = catalogue::all().flat_map(names).collect();
    let mut schema = closed(json!({
        "type": {"enum": names},
        "name": {"type": "string", "minLength": 1},
        "parameters": {"type": "object"},
    }));
    schema["required"] = json!(["type"]);
    schema["allOf"] = catalogue::all().map(of_type).collect();
    schema
}

/// What holds of a plugin if it is of a type.
fn of_type(kind: &'static PluginType) -> Value {
    let names: Vec<&str> = names(kind).collect();
    let parameters = object(kind.parameters);
    let is_needed = parameters.get("required").is_some();
    let mut then = json!({
        "properties": {"name": {"default": kind.name}, "parameters": parameters},
    });
    if is_needed {
        then["required"] = json!(["parameters"]);
    }
    match kind.stability {
        Stability::Alpha => then["description"] = "alpha in the reference picker".into(),
        Stability::Beta => {}
        Stability::Ours => then["description"] = "not in the reference picker".into(),
        Stability::Deprecated(instead) => {
            then["description"] = alloc::format!("use {instead}").into();
            then["deprecated"] = true.into();
        }
    }
    json!({
        "if": {"properties": {"type": {"enum": names}}, "required": ["type"]},
        "then": then,
    })
}

fn names(kind: &'static PluginType) -> impl Iterator<Item = &'static str> {
    [kind.name]
        .into_iter()
        .chain(kind.old_names.iter().copied())
}

fn profile() -> Value {
    let weight = json!({"type": "number", "minimum": 0, "maximum": WEIGHT_MAX, "default": 1});
    let mut profile = closed(json!({
        "name": {"type": "string", "minLength": 1},
        "plugins": references(&[("weight", weight)]),
    }));
    profile["required"] = json!(["name"]);
    profile
}

fn flow_control() -> Value {
    let policy = json!({"type": "string", "minLength": 1});
    let mut band = object(BAND);
    band["properties"]["fairnessPolicyRef"] = policy.clone();
    band["properties"]["orderingPolicyRef"] = policy.clone();
    let mut numbered = band.clone();
    numbered["properties"]["priority"] =
        json!({"type": "integer", "minimum": i32::MIN, "maximum": i32::MAX});
    numbered["required"] = json!(["priority"]);
    let mut schema = object(FLOW_CONTROL);
    for (key, value) in [
        ("saturationDetector", reference(&[])),
        ("usageLimitPolicyPluginRef", policy),
        ("priorityBands", json!({"type": "array", "items": numbered})),
        ("defaultPriorityBand", band.clone()),
        ("defaultNegativePriorityBand", band),
    ] {
        schema["properties"][key] = value;
    }
    schema
}

/// An object that has `pluginRef` and `others`.
fn reference(others: &[(&str, Value)]) -> Value {
    let mut schema = closed(json!({"pluginRef": {"type": "string", "minLength": 1}}));
    for (key, value) in others {
        schema["properties"][*key] = value.clone();
    }
    schema["required"] = json!(["pluginRef"]);
    schema
}

fn references(others: &[(&str, Value)]) -> Value {
    json!({"type": "array", "maxItems": PLUGINS_MAX, "items": reference(others)})
}

fn deprecated(mut schema: Value) -> Value {
    schema["deprecated"] = true.into();
    schema
}

fn closed(properties: Value) -> Value {
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

fn object(parameters: &'static [Parameter]) -> Value {
    let of_keys = parameters
        .iter()
        .map(|it| (it.key.to_string(), value(it.kind)));
    let mut schema = closed(Value::Object(of_keys.collect::<Map<String, Value>>()));
    let is_needed = |it: &&Parameter| {
        matches!(
            it.kind,
            Kind::NeededText | Kind::NeededChoice(_) | Kind::NeededNumber(..)
        )
    };
    let needed: Vec<&str> = parameters
        .iter()
        .filter(is_needed)
        .map(|it| it.key)
        .collect();
    if !needed.is_empty() {
        schema["required"] = json!(needed);
    }
    schema
}

fn value(kind: Kind) -> Value {
    let text = || json!({"type": "string", "maxLength": TEXT_BYTES_MAX});
    let mut schema = match kind {
        Kind::Any => json!({}),
        Kind::Boolean(_) => json!({"type": "boolean"}),
        Kind::Choice(names, _) | Kind::NeededChoice(names) => json!({"enum": names}),
        Kind::Duration(..) => json!({"type": "string", "pattern": DURATION}),
        Kind::Integer(least, most, _) => {
            json!({"type": "integer", "minimum": least, "maximum": most})
        }
        Kind::Count(most, _) => json!({"type": "integer", "maximum": most}),
        Kind::Labels => json!({"type": "object", "additionalProperties": text()}),
        Kind::Number(least, most, _) | Kind::NeededNumber(least, most) => {
            json!({"type": "number", "minimum": least, "maximum": most})
        }
        Kind::Section(parameters) | Kind::Optional(parameters) => object(parameters),
        Kind::Sections(parameters) => json!({"type": "array", "items": object(parameters)}),
        Kind::Size(..) => json!({"type": ["integer", "string"], "pattern": SIZE}),
        Kind::Text(_) | Kind::PluginRef(..) => text(),
        Kind::NeededText => json!({"type": "string", "minLength": 1, "maxLength": TEXT_BYTES_MAX}),
        Kind::Texts => json!({"type": "array", "items": text()}),
        Kind::Unused => json!({"description": "read and without effect"}),
    };
    if let Some(default) = super::table::default(kind)
        && !matches!(kind, Kind::Section(_))
    {
        schema["default"] = default;
    }
    schema
}

/// The version of JSON Schema.
const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// A time as it is written.
const DURATION: &str = "^(0|([0-9]+(\\.[0-9]+)?(h|m|s|ms|us))+)$";

/// A size as it is written.
const SIZE: &str = "^[0-9]+(Gi|Mi|Ki|k|M|G)?$";
