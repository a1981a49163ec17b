//! A value of an Envoy configuration, or the lack of one, with the way to it.
//!
//! Protobuf's JSON has two spellings of each field and two ways to wrap a typed message; here they
//! look alike. A place that nothing stands in has the line of what is around it, so that a finding
//! about a missing field leads to where the field belongs.

use std::time::Duration;

use super::finding::{Finding, Level};
use super::tree::{Kind, Node};

/// Where one looks in a document.
#[derive(Clone, Debug)]
pub(super) struct Place<'a> {
    /// The name of the document.
    pub(super) file: &'a str,
    /// The way from the document's root; elements that have a name go by it.
    pub(super) path: String,
    /// The line, from 1.
    pub(super) line: u64,
    /// The column, from 1.
    pub(super) column: u64,
    node: &'a Node,
}

/// A message that says of what type it is.
#[derive(Clone, Debug)]
pub(super) struct Message<'a> {
    /// The last part of the type's name; empty when there is none.
    pub(super) kind: &'a str,
    /// Its fields.
    pub(super) place: Place<'a>,
}

impl<'a> Place<'a> {
    /// The whole document.
    pub(super) fn root(file: &'a str, node: &'a Node) -> Self {
        Self {
            file,
            path: String::new(),
            line: node.line,
            column: node.column,
            node,
        }
    }

    /// The field at the end of a way like `route.timeout`.
    pub(super) fn get(&self, way: &str) -> Self {
        way.split('.')
            .fold(self.clone(), |place, field| place.field(field))
    }

    /// The field of this name, whichever spelling the document uses.
    pub(super) fn field(&self, field: &str) -> Self {
        let node = self
            .node
            .get(field)
            .or_else(|| self.node.get(&camel(field)));
        let step = match (field.contains('.'), self.path.is_empty()) {
            (true, _) => format!("[{field}]"),
            (false, true) => field.to_owned(),
            (false, false) => format!(".{field}"),
        };
        self.child(step, node.unwrap_or(&NOTHING))
    }

    /// The elements of the list at the end of a way.
    pub(super) fn list(&self, way: &str) -> Vec<Self> {
        let list = self.get(way);
        let Kind::List(nodes) = &list.node.kind else {
            return Vec::new();
        };
        let element = |(index, node)| match name(node) {
            Some(name) => list.child(format!("[{name}]"), node),
            None => list.child(format!("[{index}]"), node),
        };
        nodes.iter().enumerate().map(element).collect()
    }

    /// Every field of an object, by its name.
    pub(super) fn fields(&self) -> Vec<(&'a str, Self)> {
        match &self.node.kind {
            Kind::Object(fields) => fields
                .iter()
                .map(|field| (field.name.as_str(), self.field(&field.name)))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The message that stands here, out of its wrapping.
    pub(super) fn message(&self) -> Message<'a> {
        let kind = last_part(self.field("@type").text());
        if kind != "TypedStruct" {
            let place = self.clone();
            return Message { kind, place };
        }
        Message {
            kind: last_part(self.field("type_url").text()),
            place: self.field("value"),
        }
    }

    /// Whether anything stands here; null is as good as nothing.
    pub(super) fn is_given(&self) -> bool {
        !matches!(self.node.kind, Kind::Null)
    }

    /// The text.
    pub(super) fn text(&self) -> Option<&'a str> {
        match &self.node.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number; large ones are written as texts.
    pub(super) fn number(&self) -> Option<u64> {
        match &self.node.kind {
            Kind::Number(number) => number.as_u64(),
            Kind::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// Whether true stands here.
    pub(super) fn is_true(&self) -> bool {
        matches!(self.node.kind, Kind::Bool(true))
    }

    /// The time, written like `1.5s`.
    pub(super) fn duration(&self) -> Option<Duration> {
        let seconds = self.text()?.strip_suffix('s')?.parse().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// The value.
    pub(super) fn node(&self) -> &'a Node {
        self.node
    }

    /// Something here that will hurt: what, why, and what to write.
    pub(super) fn warn(&self, what: impl AsRef<str>, why: &str, fix: impl AsRef<str>) -> Finding {
        let (what, fix) = (what.as_ref(), fix.as_ref());
        self.find(Level::Warning, format!("{what}. {why}. Fix: {fix}."))
    }

    /// Something to say about this place.
    pub(super) fn find(&self, level: Level, text: String) -> Finding {
        Finding {
            level,
            file: self.file.to_owned(),
            line: self.line,
            column: self.column,
            path: self.path.clone(),
            text,
        }
    }

    fn child(&self, step: String, node: &'a Node) -> Self {
        let (line, column) = match node.line {
            0 => (self.line, self.column),
            line => (line, node.column),
        };
        Self {
            file: self.file,
            path: format!("{}{step}", self.path),
            line,
            column,
            node,
        }
    }
}

/// A field's name as protobuf's JSON prefers it.
fn camel(field: &str) -> String {
    let mut camel = String::with_capacity(field.len());
    let mut is_start = false;
    for letter in field.chars() {
        match letter {
            '_' => is_start = true,
            letter if is_start => {
                camel.push(letter.to_ascii_uppercase());
                is_start = false;
            }
            letter => camel.push(letter),
        }
    }
    camel
}

/// What an element of a list is called: by itself, or in a dump by what it holds.
fn name(node: &Node) -> Option<&str> {
    let held = ["listener", "cluster", "route_config", "ecds_filter"];
    let held = held.iter().filter_map(|key| node.get(key)?.get("name"));
    let name = node.get("name").into_iter().chain(held).next()?;
    let Kind::Text(name) = &name.kind else {
        return None;
    };
    // Extensions are called by all of where they come from.
    let is_extension = ["typed_config", "typedConfig"]
        .iter()
        .any(|key| node.get(key).is_some());
    let short = name.rsplit('.').next().filter(|_| is_extension);
    Some(short.unwrap_or(name))
}

fn last_part(type_url: Option<&str>) -> &str {
    let mut parts = type_url.unwrap_or_default().rsplit(['.', '/']);
    parts.next().unwrap_or_default()
}

/// What stands where nothing does.
static NOTHING: Node = Node {
    line: 0,
    column: 0,
    kind: Kind::Null,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str, check: impl FnOnce(Place<'_>)) {
        let node = Node::parse(text).unwrap();
        check(Place::root("file", &node));
    }

    #[test]
    fn both_spellings_of_a_field_are_found() {
        for text in ["route: {idle_timeout: 1.5s}", "route: {idleTimeout: 1.5s}"] {
            with(text, |root| {
                let time = root.get("route.idle_timeout");
                assert_eq!(time.duration(), Some(Duration::from_millis(1500)));
                assert_eq!(time.path, "route.idle_timeout");
            });
        }
    }

    #[test]
    fn a_missing_field_has_the_line_of_what_is_around_it() {
        with("a: 1\nlist:\n- name: one\n- {}\n", |root| {
            let list = root.list("list");
            let missing = list[0].get("route.timeout");
            assert!(!missing.is_given());
            assert_eq!(missing.path, "list[one].route.timeout");
            assert_eq!((missing.line, list[1].path.as_str()), (3, "list[1]"));
        });
    }

    #[test]
    fn a_message_is_found_in_either_wrapping() {
        for text in [
            "{'@type': type.googleapis.com/a.b.Wasm, config: {name: x}}",
            "{'@type': type.googleapis.com/udpa.type.v1.TypedStruct, type_url: a.b.Wasm, value: {config: {name: x}}}",
            "{'@type': type.googleapis.com/xds.type.v3.TypedStruct, typeUrl: t/a.b.Wasm, value: {config: {name: x}}}",
        ] {
            with(text, |root| {
                let message = root.message();
                assert_eq!(message.kind, "Wasm");
                assert_eq!(message.place.get("config.name").text(), Some("x"));
            });
        }
    }
}
