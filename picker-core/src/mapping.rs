//! Engines that a user describes: which families of their pages mean which gauge.
//!
//! A mapping says what is read as the gauges that the reference picker knows, and may publish
//! further numbers as attributes of the endpoint. One that has the name of a built-in engine takes
//! the place of that engine's table for these gauges; what else the table reads stays.
#![deny(clippy::indexing_slicing)]

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::engine::{EngineKind, Family, Gauge};
use crate::exposition::{Labels, unescape};

/// What the families of a page mean.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Engine<'a> {
    /// What the table of a known engine says.
    BuiltIn(EngineKind),
    /// What a user says.
    Mapped(&'a EngineMapping),
}

/// What a user says the families of an engine's pages mean.
#[derive(Clone, PartialEq, Debug)]
pub struct EngineMapping {
    name: String,
    entries: Vec<Entry>,
    attributes: Vec<String>,
}

/// What a mapping can read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mapped {
    /// Requests queued, summed over engines.
    Waiting,
    /// Requests executing, summed over engines.
    Running,
    /// Fraction of KV blocks in use, the mean over engines.
    KvUsage,
    /// The adapters, in labels as vLLM writes them.
    Lora,
    /// Tokens in a KV block.
    BlockSize,
    /// KV blocks, summed over engines.
    NumBlocks,
}

/// Samples of a metric, those with these labels: `name` or `name{label=value,label2="value2"}`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetricSpec {
    name: String,
    labels: Vec<(String, String)>,
}

/// What is wrong with the text of a [`MetricSpec`], and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpecError {
    /// The character at which it begins, from 1.
    pub column: usize,
    /// What belongs there.
    pub expected: &'static str,
}

/// Why an attribute is not published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttributeError {
    /// Its name is empty, or has more than [`EngineMapping::ATTRIBUTE_BYTES_MAX`] bytes.
    Name,
    /// The mapping publishes [`EngineMapping::ATTRIBUTES_MAX`] already.
    TooMany,
}

/// One thing that a mapping reads.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Entry {
    pub(crate) spec: MetricSpec,
    pub(crate) meaning: Meaning,
}

/// What the samples of a [`MetricSpec`] say.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Meaning {
    /// The value is the gauge.
    Value(Gauge),
    /// The values of two labels are the block size and the number of blocks.
    CacheLabels(String, String),
    /// The labels are lists of adapters.
    Lora,
}

impl<'a> Engine<'a> {
    /// What a user says of the engine.
    pub(crate) fn mapping(self) -> Option<&'a EngineMapping> {
        match self {
            Self::BuiltIn(_) => None,
            Self::Mapped(mapping) => Some(mapping),
        }
    }

    /// What the built-in table says of the family `name`.
    pub(crate) fn family(self, name: &[u8]) -> Option<Family> {
        match self.kind() {
            Some(kind) => kind.family(name),
            None => Family::of_any_engine(name),
        }
    }

    /// KV blocks of each engine that never hold a prompt.
    pub(crate) fn reserved_blocks(self) -> u64 {
        self.kind().map_or(0, EngineKind::reserved_blocks)
    }

    fn kind(self) -> Option<EngineKind> {
        match self {
            Self::BuiltIn(kind) => Some(kind),
            Self::Mapped(mapping) => EngineKind::from_str(&mapping.name).ok(),
        }
    }
}

impl EngineMapping {
    /// Attributes of one mapping: more than any choice is made by.
    pub const ATTRIBUTES_MAX: usize = 32;

    /// Bytes of an attribute's name, which crosses with every snapshot.
    pub const ATTRIBUTE_BYTES_MAX: usize = 128;

    /// A mapping of which nothing is said yet: all gauges are unknown.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            entries: Vec::new(),
            attributes: Vec::new(),
        }
    }

    /// Reads `what` from the samples of `spec`.
    pub fn read(&mut self, what: Mapped, spec: MetricSpec) {
        let meaning = match what {
            Mapped::Waiting => Meaning::Value(Gauge::Waiting),
            Mapped::Running => Meaning::Value(Gauge::Running),
            Mapped::KvUsage => Meaning::Value(Gauge::KvUsage),
            Mapped::Lora => Meaning::Lora,
            Mapped::BlockSize => Meaning::Value(Gauge::BlockSize),
            Mapped::NumBlocks => Meaning::Value(Gauge::NumBlocks),
        };
        self.entries.push(Entry { spec, meaning });
    }

    /// Reads the block size and the number of blocks from these labels of the samples of `spec`.
    pub fn read_cache_labels(&mut self, spec: MetricSpec, block_size: &str, num_blocks: &str) {
        let meaning = Meaning::CacheLabels(block_size.into(), num_blocks.into());
        self.entries.push(Entry { spec, meaning });
    }

    /// Publishes the samples of `spec` as the attribute `name`, the mean over engines. Of an
    /// attribute that is there twice, the last one counts.
    pub fn publish(&mut self, name: &str, spec: MetricSpec) -> Result<(), AttributeError> {
        if !(1..=Self::ATTRIBUTE_BYTES_MAX).contains(&name.len()) {
            return Err(AttributeError::Name);
        }
        let known = self.attributes.iter().position(|known| known == name);
        let place = known.unwrap_or(self.attributes.len());
        if place >= Self::ATTRIBUTES_MAX {
            return Err(AttributeError::TooMany);
        }
        if known.is_none() {
            self.attributes.push(name.into());
        }
        let meaning = Meaning::Value(Gauge::Attribute(place as u8));
        self.entries.retain(|entry| entry.meaning != meaning);
        self.entries.push(Entry { spec, meaning });
        Ok(())
    }

    /// The name of the engine.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of the attributes, in the order of [`Gauge::Attribute`].
    pub(crate) fn attributes(&self) -> &[String] {
        &self.attributes
    }

    /// What is read of the family `name`.
    pub(crate) fn entries_of(&self, name: &[u8]) -> impl Iterator<Item = &Entry> {
        self.entries
            .iter()
            .filter(move |entry| entry.spec.name.as_bytes() == name)
    }
}

impl MetricSpec {
    /// Whether a sample with these labels is one of them. A label that is empty may be missing.
    pub(crate) fn selects(&self, labels: Labels<'_>) -> bool {
        self.labels.iter().all(|(name, wanted)| {
            let value = labels.value(name.as_bytes()).unwrap_or_default();
            if value.contains(&b'\\') {
                unescape(value) == *wanted
            } else {
                value == wanted.as_bytes()
            }
        })
    }

    /// Whether it says something about the label `name`.
    pub(crate) fn names(&self, label: &str) -> bool {
        self.labels.iter().any(|(name, _)| name == label)
    }
}

impl FromStr for MetricSpec {
    type Err = SpecError;

    /// Reads a selector of PromQL that compares for equality only; quotes around values may be left
    /// out.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut rest = text.trim_start();
        let fault = |rest: &str, expected| {
            let read = text.len().saturating_sub(rest.len());
            let column = text.get(..read).map_or(0, |read| read.chars().count()) + 1;
            Err(SpecError { column, expected })
        };
        if text.len() > SPEC_BYTES_MAX {
            return fault("", "an end that comes earlier");
        }
        let Some(name) = word(&mut rest, |it| it == b'_' || it == b':') else {
            return fault(rest, "the name of a metric");
        };
        let mut labels = Vec::new();
        if takes(&mut rest, '{') {
            while !takes(&mut rest, '}') {
                let Some(label) = word(&mut rest, |it| it == b'_') else {
                    return fault(rest, "a label or '}'");
                };
                if rest.starts_with("=~") || !takes(&mut rest, '=') {
                    return fault(rest, "'=' and a value");
                }
                let Some(value) = value(&mut rest) else {
                    return fault(rest, "a value, with both its quotes or none");
                };
                labels.push((label.into(), value));
                if !takes(&mut rest, ',') && !rest.starts_with('}') {
                    return fault(rest, "',' or '}'");
                }
            }
        }
        if !rest.is_empty() {
            return fault(rest, "the end");
        }
        let name = name.into();
        Ok(Self { name, labels })
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is expected at column {}", self.expected, self.column)
    }
}

impl fmt::Display for AttributeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "the name of an attribute is empty or too long",
            Self::TooMany => "more attributes than are kept",
        })
    }
}

/// The name at the beginning of `rest`, which is read: letters, digits, and what `is_other` says.
fn word<'a>(rest: &mut &'a str, is_other: impl Fn(u8) -> bool) -> Option<&'a str> {
    let is_part = |it: u8| it.is_ascii_alphanumeric() || is_other(it);
    let length = rest.bytes().take_while(|it| is_part(*it)).count();
    let (word, after) = rest.split_at_checked(length)?;
    let first = word.bytes().next()?;
    if first.is_ascii_digit() {
        return None;
    }
    *rest = after.trim_start();
    Some(word)
}

/// The value of a label at the beginning of `rest`, which is read.
fn value(rest: &mut &str) -> Option<String> {
    let quote = rest.chars().next().filter(|it| matches!(it, '"' | '\''));
    let Some(quote) = quote else {
        let is_end =
            |it: char| matches!(it, ',' | '}' | '"' | '\'' | '{' | '=') || it.is_whitespace();
        let (value, after) = rest.split_at_checked(rest.find(is_end)?)?;
        *rest = after.trim_start();
        return (!value.is_empty()).then(|| value.into());
    };
    let mut value = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                it if matches!(it, '\\' | '"') || it == quote => value.push(it),
                // As in a page, so that a spec selects the sample that it looks like.
                it => value.extend(['\\', it]),
            },
            _ if char == quote => {
                *rest = rest.get(at + 1..)?.trim_start();
                return Some(value);
            }
            _ => value.push(char),
        }
    }
    None
}

/// Reads `sign` if `rest` begins with it.
fn takes(rest: &mut &str, sign: char) -> bool {
    let after = rest.strip_prefix(sign);
    if let Some(after) = after {
        *rest = after.trim_start();
    }
    after.is_some()
}

/// A metric's name with a handful of labels.
const SPEC_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::Line;
    use alloc::format;
    use alloc::string::ToString;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// The parts of the spec after one another, or what is wrong with it.
    fn show(text: &str) -> String {
        match MetricSpec::from_str(text) {
            Ok(spec) => {
                let labels = spec.labels.iter();
                let labels = labels.map(|(name, value)| format!(" {name}={value}"));
                spec.name.clone() + &labels.collect::<String>()
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_spec_is_a_name_and_labels_with_or_without_quotes() {
        for (text, expected) in [
            ("a", "a"),
            (" vllm:num_requests_waiting ", "vllm:num_requests_waiting"),
            ("a{}", "a"),
            ("a{b=c}", "a b=c"),
            ("a{b=\"c\"}", "a b=c"),
            ("a{b='c'}", "a b=c"),
            (" a { b = c , d = \"e, }\" , } ", "a b=c d=e, }"),
            (r#"a{b="\"c\\\n"}"#, "a b=\"c\\\n"),
            (r#"a{b="\c\'"}"#, r"a b=\c\'"),
            (r#"a{b='\c\'\"'}"#, r#"a b=\c'""#),
            ("a{b=\"\"}", "a b="),
            ("a{b=1.5-x/y:z}", "a b=1.5-x/y:z"),
        ] {
            assert_eq!(show(text), expected, "{text}");
        }
    }

    #[test]
    fn a_mistake_in_a_spec_is_told_with_its_column() {
        for (text, expected) in [
            ("", "the name of a metric is expected at column 1"),
            ("{a=b}", "the name of a metric is expected at column 1"),
            ("9a", "the name of a metric is expected at column 1"),
            ("a b", "the end is expected at column 3"),
            ("a[5m]", "the end is expected at column 2"),
            ("a{b=c} offset 1m", "the end is expected at column 8"),
            ("a{", "a label or '}' is expected at column 3"),
            ("a{b:c=d}", "'=' and a value is expected at column 4"),
            ("a{b}", "'=' and a value is expected at column 4"),
            ("a{b!=c}", "'=' and a value is expected at column 4"),
            ("a{b=~c}", "'=' and a value is expected at column 4"),
            (
                "a{b=}",
                "a value, with both its quotes or none is expected at column 5",
            ),
            (
                "a{b=\"c}",
                "a value, with both its quotes or none is expected at column 5",
            ),
            (
                "a{b=c",
                "a value, with both its quotes or none is expected at column 5",
            ),
            ("a{b=\"é\" d}", "',' or '}' is expected at column 9"),
        ] {
            assert_eq!(show(text), expected, "{text}");
        }
        let long = |length| MetricSpec::from_str(&"a".repeat(length)).is_ok();
        assert!(long(1024) && !long(1025));
    }

    #[test]
    fn a_spec_selects_the_samples_that_have_its_labels() {
        for (spec, line, expected) in [
            ("a", "a 1", true),
            ("a", "a{b=\"c\"} 1", true),
            ("a{b=c}", "a{b=\"c\",d=\"e\"} 1", true),
            ("a{b=c}", "a{b=\"d\"} 1", false),
            ("a{b=c}", "a 1", false),
            ("a{b=\"\"}", "a 1", true),
            ("a{b=c,d=e}", "a{d=\"e\",b=\"c\"} 1", true),
            ("a{b=c,d=e}", "a{b=\"c\"} 1", false),
            (r#"a{b="\"c"}"#, r#"a{b="\"c"} 1"#, true),
            (r#"a{b="\ c"}"#, r#"a{b="\ c"} 1"#, true),
            (r#"a{b="\\nc"}"#, r#"a{b="\nc"} 1"#, false),
            (r#"a{b="\\nc"}"#, r#"a{b="\\nc"} 1"#, true),
        ] {
            let Line::Sample(unread) = Line::new(line.as_bytes()) else {
                panic!("{line}");
            };
            let labels = unread.sample().unwrap().labels;
            let spec = MetricSpec::from_str(spec).unwrap();
            assert_eq!(spec.selects(labels), expected, "{spec:?} {line}");
        }
    }

    #[test]
    fn attributes_are_bounded_and_the_last_of_a_name_counts() {
        let spec = |name: &str| MetricSpec::from_str(name).unwrap();
        let mut mapping = EngineMapping::new("x");
        for number in 0..EngineMapping::ATTRIBUTES_MAX {
            assert_eq!(mapping.publish(&number.to_string(), spec("a")), Ok(()));
        }
        let too_many = Err(AttributeError::TooMany);
        assert_eq!(mapping.publish("more", spec("a")), too_many);
        assert_eq!(mapping.publish("7", spec("b")), Ok(()));
        let entries = |name: &str| mapping.entries_of(name.as_bytes()).count();
        assert_eq!((entries("a"), entries("b")), (31, 1));
        let mut mapping = EngineMapping::new("x");
        for (length, published) in [
            (0, Err(AttributeError::Name)),
            (128, Ok(())),
            (129, Err(AttributeError::Name)),
        ] {
            assert_eq!(mapping.publish(&"n".repeat(length), spec("a")), published);
        }
    }
}
