//! A document as a reader that remembers where it is, what it was asked for and what was wrong.
//!
//! Reading goes on after a mistake, with a default in its place, so that one run finds all
//! mistakes. A key that nobody asked for is a mistake by itself, and the keys that were asked for
//! are the ones to suggest.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::Cell;

use serde_json::{Map, Value};

use super::error::{Cause, ConfigError, ConfigWarning, Wanted};
use super::nearest::unknown;
use super::units;
use super::{CONFIG_ERRORS_MAX, ROOT};
use crate::time::Span;

/// What was wrong so far.
pub(super) struct Report {
    errors: Cell<Vec<ConfigError>>,
    more: Cell<usize>,
    warnings: Cell<Vec<ConfigWarning>>,
    /// Stands in for sections that are left out.
    nothing: Map<String, Value>,
}

/// A value and where it stands.
#[derive(Clone)]
pub(super) struct Node<'a> {
    path: String,
    value: &'a Value,
    report: &'a Report,
}

/// An object that is being read.
pub(super) struct Object<'a> {
    path: String,
    map: &'a Map<String, Value>,
    asked: Vec<&'static str>,
    report: &'a Report,
}

impl Report {
    pub(super) fn new() -> Self {
        Self {
            errors: Cell::default(),
            more: Cell::new(0),
            warnings: Cell::default(),
            nothing: Map::new(),
        }
    }

    /// The mistakes in the order they were found, and the warnings.
    pub(super) fn finish(self) -> (Vec<ConfigError>, Vec<ConfigWarning>) {
        let mut errors = self.errors.into_inner();
        if self.more.get() > 0 {
            let path = ROOT.to_string();
            let cause = Cause::More(self.more.get());
            errors.push(ConfigError { path, cause });
        }
        (errors, self.warnings.into_inner())
    }

    fn warn(&self, warning: ConfigWarning) {
        let mut warnings = self.warnings.take();
        warnings.push(warning);
        self.warnings.set(warnings);
    }

    fn mistakes(&self) -> usize {
        let errors = self.errors.take();
        let count = errors.len() + self.more.get();
        self.errors.set(errors);
        count
    }

    fn fail(&self, path: &str, cause: Cause) {
        let mut errors = self.errors.take();
        if errors.len() < CONFIG_ERRORS_MAX {
            let path = if path.is_empty() { ROOT } else { path }.to_string();
            errors.push(ConfigError { path, cause });
        } else {
            self.more.set(self.more.get() + 1);
        }
        self.errors.set(errors);
    }
}

impl<'a> Node<'a> {
    pub(super) fn root(value: &'a Value, report: &'a Report) -> Self {
        Self {
            path: String::new(),
            value,
            report,
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn value(&self) -> &'a Value {
        self.value
    }

    pub(super) fn warn(&self, warning: ConfigWarning) {
        self.report.warn(warning);
    }

    /// How many mistakes were found in the whole document so far.
    pub(super) fn mistakes(&self) -> usize {
        self.report.mistakes()
    }

    /// Whether the value is this text.
    pub(super) fn is(&self, text: &str) -> bool {
        self.value == text
    }

    pub(super) fn fail(&self, cause: Cause) {
        self.report.fail(&self.path, cause);
    }

    /// Fails the value at `path` below this one.
    pub(super) fn fail_below(&self, path: &str, cause: Cause) {
        self.report.fail(&format!("{}.{path}", self.path), cause);
    }

    /// What `read` makes of the object; keys it does not ask for are mistakes.
    pub(super) fn object<T>(&self, read: impl FnOnce(&mut Object<'a>) -> T) -> Option<T> {
        let Value::Object(map) = self.value else {
            return self.not_a(Wanted::Object);
        };
        let mut object = Object {
            path: self.path.clone(),
            map,
            asked: Vec::new(),
            report: self.report,
        };
        let result = read(&mut object);
        object.refuse_the_rest();
        Some(result)
    }

    /// The entries of a list of at most `most`; none when it is no such list.
    pub(super) fn list(&self, most: usize) -> Vec<Self> {
        let Value::Array(values) = self.value else {
            self.not_a::<()>(Wanted::List);
            return Vec::new();
        };
        if self.has_too_many(values.len(), most) {
            return Vec::new();
        }
        let entries = values.iter().enumerate();
        entries
            .map(|(index, value)| Self {
                path: format!("{}[{index}]", self.path),
                value,
                report: self.report,
            })
            .collect()
    }

    /// The entries of a list that must have some.
    pub(super) fn filled_list(&self, most: usize, wanted: Wanted) -> Vec<Self> {
        if matches!(self.value, Value::Array(values) if values.is_empty()) {
            self.fail(Cause::Missing(wanted));
        }
        self.list(most)
    }

    /// The entries of an object of at most `most`, whatever their keys.
    pub(super) fn entries(&self, most: usize) -> Vec<(&'a str, Self)> {
        let Value::Object(map) = self.value else {
            self.not_a::<()>(Wanted::Object);
            return Vec::new();
        };
        if self.has_too_many(map.len(), most) {
            return Vec::new();
        }
        let entry = |(key, value)| {
            let node = Self {
                path: format!("{}[{key:?}]", self.path),
                value,
                report: self.report,
            };
            (String::as_str(key), node)
        };
        map.iter().map(entry).collect()
    }

    /// The text, when it is one that `is_good` accepts.
    pub(super) fn text_that(&self, wanted: Wanted, is_good: fn(&str) -> bool) -> Option<&'a str> {
        match self.value {
            Value::String(text) if is_good(text) => Some(text),
            _ => self.not_a(wanted),
        }
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        match self.value {
            Value::String(text) => Some(text),
            _ => self.not_a(Wanted::Text),
        }
    }

    /// The value that goes with the text.
    pub(super) fn choice<T: Copy>(&self, what: &'static str, all: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let chosen = all.iter().find(|(name, _)| *name == text);
        if chosen.is_none() {
            let known = all.iter().map(|(name, _)| *name);
            self.fail(unknown(what, text, known));
        }
        chosen.map(|(_, value)| *value)
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(*value),
            _ => self.not_a(Wanted::Boolean),
        }
    }

    /// A number of at most fifteen digits: those behind may be rounded by who wrote it, by JSON or
    /// by the protobuf of a `Struct`, and would make two forms of one document differ.
    pub(super) fn number(&self) -> Option<f64> {
        match self.value {
            Value::Number(number) => {
                let value = number.as_f64()?;
                format!("{value:.14e}").parse().ok()
            }
            _ => self.not_a(Wanted::Number),
        }
    }

    /// A whole number; negative ones are too.
    pub(super) fn integer(&self, wanted: Wanted) -> Option<i64> {
        let Value::Number(number) = self.value else {
            return self.not_a(wanted);
        };
        // A number beyond the limit may round to one within it.
        let exact = number.as_i64().map(i64::unsigned_abs).or(number.as_u64());
        let value = number.as_f64().unwrap_or(f64::INFINITY);
        let is_too_large = match exact {
            Some(exact) => exact > INTEGER_MAX,
            None => value.abs() > INTEGER_MAX as f64,
        };
        if is_too_large {
            self.fail(Cause::IntegerTooLarge(number.to_string()));
            return None;
        }
        let integer = value as i64;
        if integer as f64 != value {
            return self.not_a(wanted);
        }
        Some(integer)
    }

    /// A whole number of 32 bits.
    pub(super) fn small_integer(&self) -> Option<i32> {
        let integer = i32::try_from(self.integer(Wanted::Integer)?).ok();
        if integer.is_none() {
            self.out_of_range(i32::MIN.to_string(), i32::MAX.to_string());
        }
        integer
    }

    /// A whole number from `least` to `most`.
    pub(super) fn integer_within(&self, wanted: Wanted, least: u64, most: u64) -> Option<u64> {
        let integer = self.integer(wanted)?;
        let within = u64::try_from(integer).ok();
        let within = within.filter(|it| (least..=most).contains(it));
        if within.is_none() {
            self.out_of_range(least.to_string(), most.to_string());
        }
        within
    }

    /// A time from `least` to `most`.
    pub(super) fn duration_within(&self, (least, most): (Span, Span)) -> Option<Span> {
        let duration = match self.value {
            Value::String(text) => units::duration(text),
            _ => None,
        };
        let Some(duration) = duration else {
            return self.not_a(Wanted::Duration);
        };
        if duration < least || duration > most {
            self.out_of_range(units::show_duration(least), units::show_duration(most));
            return None;
        }
        Some(duration)
    }

    /// A number of bytes from `least` to `most`, plain or with a unit.
    pub(super) fn size_within(&self, least: u64, most: u64) -> Option<u64> {
        let size = match self.value {
            Value::String(text) => units::size(text),
            Value::Number(_) => match u64::try_from(self.integer(Wanted::Size)?) {
                Ok(size) => Some(size),
                Err(_) => {
                    self.out_of_range(units::show_size(least), units::show_size(most));
                    return None;
                }
            },
            _ => None,
        };
        let Some(size) = size else {
            return self.not_a(Wanted::Size);
        };
        if !(least..=most).contains(&size) {
            self.out_of_range(units::show_size(least), units::show_size(most));
            return None;
        }
        Some(size)
    }

    pub(super) fn not_a<T>(&self, wanted: Wanted) -> Option<T> {
        let found = self.found();
        self.fail(Cause::NotA { found, wanted });
        None
    }

    pub(super) fn out_of_range(&self, least: String, most: String) {
        let found = self.found();
        self.fail(Cause::OutOfRange { found, least, most });
    }

    fn has_too_many(&self, count: usize, most: usize) -> bool {
        let what = "entries";
        if count > most {
            self.fail(Cause::TooMany { what, count, most });
        }
        count > most
    }

    /// The value in a few words.
    fn found(&self) -> String {
        match self.value {
            Value::Null => "null".to_string(),
            Value::Bool(it) => it.to_string(),
            Value::Number(it) => it.to_string(),
            Value::String(it) => {
                let head: String = it.chars().take(FOUND_CHARS_MAX).collect();
                let tail = if head.len() < it.len() { "…" } else { "" };
                format!("{head:?}{tail}")
            }
            Value::Array(_) => "a list".to_string(),
            Value::Object(_) => "an object".to_string(),
        }
    }
}

impl<'a> Object<'a> {
    /// The value of `key`; null is as good as none.
    pub(super) fn key(&mut self, key: &'static str) -> Option<Node<'a>> {
        self.asked.push(key);
        let value = self.map.get(key).filter(|value| !value.is_null())?;
        Some(Node {
            path: self.path_of(key),
            value,
            report: self.report,
        })
    }

    /// The value of `key`, which must be there.
    pub(super) fn needed(&mut self, key: &'static str, wanted: Wanted) -> Option<Node<'a>> {
        let node = self.key(key);
        if node.is_none() {
            let path = self.path_of(key);
            self.report.fail(&path, Cause::Missing(wanted));
        }
        node
    }

    /// What `read` makes of the object `key`, or of an empty one when it is left out.
    pub(super) fn section<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Self) -> T) -> T {
        let mut section = Self {
            path: self.path_of(key),
            map: &self.report.nothing,
            asked: Vec::new(),
            report: self.report,
        };
        if let Some(node) = self.key(key) {
            match node.value {
                Value::Object(map) => section.map = map,
                _ => _ = node.not_a::<()>(Wanted::Object),
            }
        }
        let result = read(&mut section);
        section.refuse_the_rest();
        result
    }

    /// What `read` makes of the object `key`; `None` when it is left out.
    pub(super) fn section_if_given<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        self.key(key)?.object(read)
    }

    /// The texts of the list `key`, none when it is left out.
    pub(super) fn texts(
        &mut self,
        key: &'static str,
        most: usize,
        wanted: Wanted,
        is_good: fn(&str) -> bool,
    ) -> Vec<String> {
        let texts = self.texts_if_given(key, most, wanted, is_good);
        texts.unwrap_or_default()
    }

    /// The texts of the list `key`; `None` when it is left out.
    pub(super) fn texts_if_given(
        &mut self,
        key: &'static str,
        most: usize,
        wanted: Wanted,
        is_good: fn(&str) -> bool,
    ) -> Option<Vec<String>> {
        let list = self.key(key)?.list(most).into_iter();
        let texts = list.filter_map(|text| text.text_that(wanted, is_good).map(String::from));
        Some(texts.collect())
    }

    /// How many mistakes were found in the whole document so far.
    pub(super) fn mistakes(&self) -> usize {
        self.report.mistakes()
    }

    pub(super) fn warn_at(&self, key: &str, warning: impl FnOnce(String) -> ConfigWarning) {
        self.report.warn(warning(self.path_of_all(key)));
    }

    pub(super) fn fail(&self, cause: Cause) {
        self.report.fail(&self.path, cause);
    }

    /// A mistake anywhere, given the whole path.
    pub(super) fn fail_in(&self, path: &str, cause: Cause) {
        self.report.fail(path, cause);
    }

    /// `key` may be several with dots between them, one below the other, and places in lists.
    pub(super) fn fail_at(&self, key: &str, cause: Cause) {
        self.report.fail(&self.path_of_all(key), cause);
    }

    fn refuse_the_rest(&self) {
        for key in self.map.keys() {
            if !self.asked.contains(&key.as_str()) {
                let cause = unknown("key", key, self.asked.iter().copied());
                self.report.fail(&self.path_of(key), cause);
            }
        }
    }

    fn path_of_all(&self, keys: &str) -> String {
        let below = |path: String, key: &str| match key.split_once('[') {
            Some((list, place)) => path_below(&path, list) + "[" + place,
            None => path_below(&path, key),
        };
        keys.split('.').fold(self.path.clone(), below)
    }

    fn path_of(&self, key: &str) -> String {
        path_below(&self.path, key)
    }
}

fn path_below(path: &str, key: &str) -> String {
    let is_plain = !key.is_empty()
        && key
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || it == b'_');
    match (path, is_plain) {
        ("", true) => key.to_string(),
        (path, true) => format!("{path}.{key}"),
        (path, false) => format!("{path}[{key:?}]"),
    }
}

/// The largest number that is exact in JSON as most programs read it, and in a protobuf `Struct`.
const INTEGER_MAX: u64 = 1 << 53;

/// How much of a wrong text is repeated: enough to find it.
const FOUND_CHARS_MAX: usize = 60;
