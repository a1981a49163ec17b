//! Parameters of plugins as tables: what may be given, and what holds when it is not.
//!
//! Reading fills every default in, so what was read is the effective configuration as well, and
//! the tables say the same to people and to editors.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Map, Value, json};

use super::catalogue::Part;
use super::error::{Cause, Wanted};
use super::node::{Node, Object};
use super::{TEXT_BYTES_MAX, units};
use crate::time::Span;

/// One parameter.
pub(super) struct Parameter {
    /// Its name.
    pub(super) key: &'static str,
    /// What it may be.
    pub(super) kind: Kind,
}

impl Parameter {
    pub(super) const fn of(key: &'static str, kind: Kind) -> Self {
        Self { key, kind }
    }
}

/// What a parameter may be, and its default; `None` where nothing holds when nothing is given.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// True or false.
    Boolean(bool),
    /// One of these texts.
    Choice(&'static [&'static str], Option<&'static str>),
    /// One of these texts, which must be given.
    NeededChoice(&'static [&'static str]),
    /// A time within bounds, in milliseconds.
    Duration(u64, u64, Option<u64>),
    /// A whole number within bounds.
    Integer(i64, i64, Option<i64>),
    /// How many, up to a bound; less than one is one.
    Count(i64, i64),
    /// Texts by name, of any names.
    Labels,
    /// A number within bounds.
    Number(f64, f64, Option<f64>),
    /// A number within bounds, which must be given.
    NeededNumber(f64, f64),
    /// A number, plain or with a unit of sizes, within bounds.
    Size(u64, u64, Option<u64>),
    /// The name of a plugin for this part; the default names one that need not be declared.
    PluginRef(Part, &'static str),
    /// An object that is there with its defaults even when it is not given.
    Section(&'static [Parameter]),
    /// An object that may be left out as a whole.
    Optional(&'static [Parameter]),
    /// A list of objects.
    Sections(&'static [Parameter]),
    /// A text.
    Text(Option<&'static str>),
    /// A text that must be given and not be empty.
    NeededText,
    /// A list of texts.
    Texts,
    /// Any value, read as it is.
    Any,
    /// Read and without effect; any value.
    Unused,
}

/// The parameters of `section` with every default filled in.
pub(super) fn read(
    section: &mut Object<'_>,
    parameters: &'static [Parameter],
) -> Map<String, Value> {
    let mut values = Map::new();
    for Parameter { key, kind } in parameters {
        if let Some(value) = read_one(section, key, *kind) {
            values.insert((*key).to_string(), value);
        }
    }
    values
}

fn read_one(section: &mut Object<'_>, key: &'static str, kind: Kind) -> Option<Value> {
    if let Kind::Section(parameters) = kind {
        return Some(Value::Object(
            section.section(key, |it| read(it, parameters)),
        ));
    }
    let wanted = match kind {
        Kind::NeededText | Kind::NeededChoice(_) => Some(Wanted::Name),
        Kind::NeededNumber(..) => Some(Wanted::Number),
        _ => None,
    };
    let node = match wanted {
        Some(wanted) => section.needed(key, wanted),
        None => section.key(key),
    };
    let value = node.and_then(|node| given(&node, kind));
    value.or_else(|| default(kind))
}

/// The value that stands there, when it is one of this kind.
fn given(node: &Node<'_>, kind: Kind) -> Option<Value> {
    match kind {
        Kind::Boolean(_) => node.boolean().map(Value::Bool),
        Kind::Choice(names, _) | Kind::NeededChoice(names) => {
            let all: Vec<(&str, &str)> = names.iter().map(|name| (*name, *name)).collect();
            node.choice("value", &all).map(Value::from)
        }
        Kind::Duration(least, most, _) => {
            let bounds = (Span::from_millis(least), Span::from_millis(most));
            let duration = node.duration_within(bounds)?;
            Some(units::show_duration(duration).into())
        }
        Kind::Integer(least, most, _) => {
            let integer = node.integer(Wanted::Integer)?;
            if !(least..=most).contains(&integer) {
                node.out_of_range(least.to_string(), most.to_string());
                return None;
            }
            Some(integer.into())
        }
        Kind::Count(most, _) => {
            let integer = node.integer(Wanted::Integer)?.max(1);
            if integer > most {
                node.out_of_range("1".to_string(), most.to_string());
                return None;
            }
            Some(integer.into())
        }
        Kind::Labels => labels(node),
        Kind::Number(least, most, _) | Kind::NeededNumber(least, most) => {
            let number = node.number()?;
            if !(least..=most).contains(&number) {
                node.out_of_range(least.to_string(), most.to_string());
                return None;
            }
            Some(number.into())
        }
        Kind::Section(parameters) | Kind::Optional(parameters) => {
            node.object(|it| read(it, parameters)).map(Value::Object)
        }
        Kind::Sections(parameters) => {
            let list = node.list(ENTRIES_MAX).into_iter();
            let sections = list.filter_map(|node| node.object(|it| read(it, parameters)));
            Some(sections.map(Value::Object).collect())
        }
        Kind::Size(least, most, _) => node.size_within(least, most).map(Value::from),
        Kind::Text(_) => node.text_that(Wanted::Text, is_short).map(Value::from),
        Kind::PluginRef(..) => {
            let name = node.text_that(Wanted::Text, is_short)?;
            Some(name).filter(|it| !it.is_empty()).map(Value::from)
        }
        Kind::NeededText => node
            .text_that(Wanted::Name, |it| !it.is_empty() && is_short(it))
            .map(Value::from),
        Kind::Texts => {
            let list = node.list(ENTRIES_MAX).into_iter();
            let texts = list.filter_map(|it| it.text_that(Wanted::Text, is_short).map(Value::from));
            Some(texts.collect())
        }
        Kind::Any => Some(node.value().clone()),
        Kind::Unused => None,
    }
}

fn labels(node: &Node<'_>) -> Option<Value> {
    let entries = node.entries(ENTRIES_MAX).into_iter();
    let labels = entries.filter_map(|(name, node)| Some((name.to_string(), node.text()?.into())));
    Some(Value::Object(labels.collect()))
}

/// What holds when nothing is given.
pub(super) fn defaults(parameters: &'static [Parameter]) -> Map<String, Value> {
    let given = parameters.iter();
    let given = given.filter_map(|it| Some((it.key.to_string(), default(it.kind)?)));
    given.collect()
}

pub(super) fn default(kind: Kind) -> Option<Value> {
    match kind {
        Kind::Boolean(default) => Some(default.into()),
        Kind::Choice(_, default) | Kind::Text(default) => default.map(Value::from),
        Kind::Duration(_, _, default) => {
            default.map(|millis| units::show_duration(Span::from_millis(millis)).into())
        }
        Kind::Integer(_, _, default) => default.map(Value::from),
        Kind::Count(_, default) => Some(default.into()),
        Kind::Number(_, _, default) => default.map(Value::from),
        Kind::Size(_, _, default) => default.map(Value::from),
        Kind::PluginRef(_, default) => Some(default.into()),
        Kind::Labels => Some(json!({})),
        Kind::Sections(_) | Kind::Texts => Some(json!([])),
        Kind::Section(parameters) => Some(Value::Object(defaults(parameters))),
        _ => None,
    }
}

fn is_short(text: &str) -> bool {
    text.len() <= TEXT_BYTES_MAX
}

/// Parameters that were read.
///
/// Asking for one that its table does not have gives nothing, zero or false.
#[derive(Clone, Copy)]
pub(super) struct Values<'a>(pub(super) &'a Map<String, Value>);

impl<'a> Values<'a> {
    /// Whether something was given, or has a default.
    pub(super) fn has(self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    pub(super) fn is(self, key: &str) -> bool {
        self.0.get(key).and_then(Value::as_bool).unwrap_or_default()
    }

    pub(super) fn text(self, key: &str) -> &'a str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn number(self, key: &str) -> f64 {
        self.0.get(key).and_then(Value::as_f64).unwrap_or_default()
    }

    pub(super) fn integer(self, key: &str) -> i64 {
        self.0.get(key).and_then(Value::as_i64).unwrap_or_default()
    }

    pub(super) fn texts(self, key: &str) -> Vec<String> {
        let texts = self.0.get(key).and_then(Value::as_array).into_iter();
        let texts = texts.flatten().filter_map(Value::as_str);
        texts.map(String::from).collect()
    }

    /// Names and texts in the order of the names.
    pub(super) fn labels(self, key: &str) -> Vec<(String, String)> {
        let labels = self.0.get(key).and_then(Value::as_object).into_iter();
        let pair = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.into()));
        labels.flatten().filter_map(pair).collect()
    }

    /// An object; `None` when it is left out.
    pub(super) fn section(self, key: &str) -> Option<Self> {
        self.0.get(key).and_then(Value::as_object).map(Values)
    }

    pub(super) fn sections(self, key: &str) -> Vec<Self> {
        let list = self.0.get(key).and_then(Value::as_array).into_iter();
        list.flatten()
            .filter_map(Value::as_object)
            .map(Values)
            .collect()
    }
}

/// A mistake that no single value shows, at the parameter that would mend it.
pub(super) struct Unfit {
    /// Where, below `parameters`, like `a` or `a[0].b`; empty for all of them.
    pub(super) key: String,
    /// What.
    pub(super) cause: Cause,
}

impl Unfit {
    /// Something that is wrong, with what to write instead.
    pub(super) fn because(key: &str, what: &str, fix: &str) -> Self {
        let cause = Cause::told(what.into(), fix.into());
        let key = key.into();
        Self { key, cause }
    }
}

/// Entries of a list or an object among the parameters: more than a person writes by hand.
const ENTRIES_MAX: usize = 256;
