//! The documents of the picker that a file has, wherever they stand in it.
//!
//! A file may be one document or several with `---` between them, and each of them the picker's
//! own, or a ConfigMap, the values of a Helm chart or another resource that has one inside, as an
//! object or as a text. Places in such a text count from where the text begins, as an editor shows
//! it when it is a file again.

use std::rc::Rc;

use serde::de::IgnoredAny;
use serde_saphyr::Error;

use super::tree::{Field, Kind, Node};

/// One document of the picker.
#[derive(Debug)]
pub(super) struct Part {
    /// What it stands in.
    pub(super) text: Rc<Text>,
    /// What it says.
    pub(super) document: Document,
}

/// What the places of a document count from: a file, or a text inside one.
#[derive(Debug)]
pub(super) struct Text {
    /// The name of the file, with the way to the text where it is inside.
    pub(super) name: String,
    /// All of it.
    pub(super) text: String,
    /// Where it stands; `None` for a file.
    pub(super) outer: Option<Outer>,
}

/// Where a text stands in the text around it.
#[derive(Debug)]
pub(super) struct Outer {
    /// The text around it.
    pub(super) text: Rc<Text>,
    /// The line of its first character there, from 1.
    pub(super) line: u64,
    /// The column of its first character there, from 1.
    pub(super) column: u64,
}

/// A document, as far as it can be read.
#[derive(Debug)]
pub(super) enum Document {
    /// The configuration of the filter, or nothing at all.
    Filter(Node),
    /// An `EndpointPickerConfig` by itself.
    EndpointPicker(Node),
    /// The text has to be JSON and is not.
    NotJson,
    /// The text has to be YAML and is not.
    NotYaml(Error),
}

/// The documents in a file; none when it has to do with something else.
///
/// A file whose name ends with `.json` must be JSON, as Envoy hands it over.
pub(super) fn parts(file: &str, text: &str) -> Vec<Part> {
    let text = Rc::new(Text {
        name: file.to_owned(),
        text: text.to_owned(),
        outer: None,
    });
    let mut parts = Vec::new();
    collect(&text, true, &mut parts);
    parts
}

/// Collects the documents of a text; one that is not known to be the picker's has to say so.
fn collect(text: &Rc<Text>, is_ours: bool, parts: &mut Vec<Part>) {
    let part = |document| Part {
        text: Rc::clone(text),
        document,
    };
    let must_be_json = text.outer.is_none() && text.name.ends_with(".json");
    if must_be_json && serde_json::from_str::<IgnoredAny>(&text.text).is_err() {
        parts.push(part(Document::NotJson));
        return;
    }
    let sources = split(&text.text);
    let is_alone = sources.len() == 1;
    for source in sources {
        let is_json = source.trim_ascii_start().starts_with('{');
        match Node::parse(&source) {
            Err(_) if !is_ours => {}
            Err(_) if is_json => parts.push(part(Document::NotJson)),
            Err(error) => parts.push(part(Document::NotYaml(error))),
            Ok(node) if is_ours && is_picker(&node) => {
                parts.push(part(Document::EndpointPicker(node)));
            }
            Ok(node) if is_ours && is_filter(&node) => parts.push(part(Document::Filter(node))),
            Ok(node) => {
                let before = parts.len();
                find(&node, String::new(), text, parts);
                let is_file = text.outer.is_none() && !is_resource(&node);
                if parts.len() == before && is_alone && is_file {
                    parts.push(part(Document::Filter(node)));
                }
            }
        }
    }
}

/// The documents of a text, each with empty lines for what stands before it.
fn split(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    let mut has_content = false;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let mark = line.trim_end();
        let is_mark = mark == "---" || line.starts_with("--- ");
        // Comments and directives before a mark belong to what comes after it.
        if is_mark && has_content {
            documents.push("\n".repeat(index));
            has_content = false;
        }
        let is_content = !is_mark && !mark.is_empty() && !line.starts_with(['#', '%']);
        has_content |= is_content || line.starts_with("--- ");
        if let Some(document) = documents.last_mut() {
            document.push_str(line);
        }
    }
    if !has_content && documents.len() > 1 {
        documents.pop();
    }
    documents
}

/// Finds documents of the picker at a value and below it, where much else may be.
fn find(node: &Node, path: String, text: &Rc<Text>, parts: &mut Vec<Part>) {
    let found = if says_what_it_is(node) {
        Some(Document::EndpointPicker(node.clone()))
    } else if is_filter(node) && has_endpoints(node) {
        Some(Document::Filter(node.clone()))
    } else {
        None
    };
    if let Some(document) = found {
        let text = Rc::clone(text);
        parts.push(Part { text, document });
        return;
    }
    match &node.kind {
        Kind::List(nodes) => {
            for (index, node) in nodes.iter().enumerate() {
                find(node, format!("{path}[{index}]"), text, parts);
            }
        }
        Kind::Object(fields) => {
            for field in fields {
                find(&field.node, field.path_in(&path), text, parts);
            }
        }
        // A text in a text is nobody's configuration.
        Kind::Text(inner) if text.outer.is_none() && inner.contains(':') => {
            let is_ours = path.contains(HELM_KEY) || inner.lines().any(is_kind);
            let inner = Rc::new(Text {
                name: format!("{}#{path}", text.name),
                text: inner.clone(),
                outer: Some(Outer {
                    text: Rc::clone(text),
                    line: node.line,
                    column: node.column,
                }),
            });
            collect(&inner, is_ours, parts);
        }
        _ => {}
    }
}

/// Whether the object is an `EndpointPickerConfig`, whatever mistakes it has.
fn is_picker(node: &Node) -> bool {
    let has = |key| node.get(key).is_some();
    says_what_it_is(node) || (!has("pools") && KEYS.into_iter().any(has))
}

fn says_what_it_is(node: &Node) -> bool {
    node.get("kind").and_then(Node::text) == Some(KIND)
}

/// Whether the object is the configuration of the filter, whatever mistakes it has.
fn is_filter(node: &Node) -> bool {
    let pools = node.get("pools").map(|it| &it.kind);
    let page = node.get("serve").and_then(Node::text);
    matches!(pools, Some(Kind::List(_))) || page == Some("page")
}

/// Whether a pool has endpoints or says who is asked for them, as pools of other things do not.
fn has_endpoints(node: &Node) -> bool {
    let has = |pool: &Node| {
        ["endpoints", "discovery"]
            .iter()
            .any(|it| pool.get(it).is_some())
    };
    let pools = node.get("pools").map(|it| &it.kind);
    matches!(pools, Some(Kind::List(pools)) if pools.iter().any(has))
}

/// Whether the document is one of Kubernetes.
fn is_resource(node: &Node) -> bool {
    ["apiVersion", "kind", "metadata"]
        .iter()
        .any(|key| node.get(key).is_some())
}

/// Whether the line says that the text is an `EndpointPickerConfig`.
fn is_kind(line: &str) -> bool {
    let words = line.split(|it: char| !it.is_ascii_alphanumeric());
    words.filter(|word| !word.is_empty()).eq(["kind", KIND])
}

impl Field {
    /// The path of the field of an object that has this path, as the picker writes it.
    pub(super) fn path_in(&self, path: &str) -> String {
        let name = &self.name;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        match (path.is_empty(), name.bytes().all(is_plain)) {
            (true, true) => name.clone(),
            (false, true) => format!("{path}.{name}"),
            (_, false) => format!("{path}[{name:?}]"),
        }
    }
}

impl Text {
    /// The line of the file that is this line of a text inside it, where there is one.
    pub(super) fn outer_line(&self, line: u64) -> Option<u64> {
        let outer = self.outer.as_ref()?;
        // A block begins where its first line that is not empty does.
        let first = self.text.lines().position(|line| !line.trim().is_empty())?;
        let line_there = (outer.line + line).checked_sub(u64::try_from(first).ok()? + 1)?;
        let there = nth_line(&outer.text.text, line_there)?;
        (there.trim() == nth_line(&self.text, line)?.trim()).then_some(line_there)
    }
}

/// A line of a text, from 1.
pub(super) fn nth_line(text: &str, line: u64) -> Option<&str> {
    let index = usize::try_from(line).ok()?.checked_sub(1)?;
    text.lines().nth(index)
}

/// What an `EndpointPickerConfig` says of itself.
pub(super) const KIND: &str = "EndpointPickerConfig";

/// The keys that an `EndpointPickerConfig` has at its top, and the filter's configuration has not.
const KEYS: [&str; 8] = [
    "dataLayer",
    "featureGates",
    "flowControl",
    "parser",
    "plugins",
    "requestHandler",
    "saturationDetector",
    "schedulingProfiles",
];

/// The key in the values of the reference picker's charts below which its configuration stands.
const HELM_KEY: &str = "pluginsCustomConfig";

#[cfg(test)]
mod tests {
    use super::*;

    /// The documents as `name kind first-line`.
    fn found(file: &str, text: &str) -> Vec<String> {
        let parts = parts(file, text);
        let show = |part: &Part| {
            let (kind, line) = match &part.document {
                Document::Filter(node) => ("filter", node.line),
                Document::EndpointPicker(node) => ("picker", node.line),
                Document::NotJson => ("not-json", 0),
                Document::NotYaml(error) => ("not-yaml", error.location().unwrap().line()),
            };
            format!("{} {kind} {line}", part.text.name)
        };
        parts.iter().map(show).collect()
    }

    fn check(text: &str, expected: &[&str]) {
        assert_eq!(found("f", text), expected, "{text}");
    }

    #[test]
    fn a_document_is_known_by_its_keys() {
        for text in ["", "# nothing\n", "serve: page", "pools: []", "polls: []"] {
            assert!(found("f", text)[0].contains("filter"), "{text}");
        }
        for text in [
            "kind: EndpointPickerConfig\npools: []",
            "kind: EndpointPickerConfg\nplugins: []",
            "schedulingProfiles: []",
            "{\"plugins\": []}",
        ] {
            check(text, &["f picker 1"]);
        }
        check("kind: Service\nmetadata: {name: a}", &[]);
    }

    #[test]
    fn several_documents_stand_in_one_file() {
        let text = "# first\n---\nplugins: []\n---\n\npools: []\n---\nkind: Service\n---\n# end\n";
        check(text, &["f picker 3", "f filter 6"]);
        check("%YAML 1.2\n---\nplugins: []\n...\n", &["f picker 3"]);
        check("a: [\n---\nplugins: []\n", &["f not-yaml 1", "f picker 3"]);
        check(
            "--- {pools: []}\n--- {plugins: []}\n",
            &["f filter 1", "f picker 2"],
        );
    }

    #[test]
    fn documents_stand_in_resources() {
        check(
            "kind: ConfigMap\ndata:\n  a.yaml: |\n    # two\n    kind: EndpointPickerConfig\n  b: |\n    plugins: [\n",
            &["f#data[\"a.yaml\"] picker 2"],
        );
        check(
            "epp:\n  pluginsCustomConfig:\n    x.yaml: \"kind: [\"\n    y.yaml: |\n      plugins: []\n",
            &[
                "f#epp.pluginsCustomConfig[\"x.yaml\"] not-yaml 1",
                "f#epp.pluginsCustomConfig[\"y.yaml\"] picker 1",
            ],
        );
        check(
            "kind: WasmPlugin\nspec:\n  pools:\n  - name: a\n  pluginConfig:\n    pools:\n    - endpoints: []\n",
            &["f filter 6"],
        );
        check(
            "kind: EnvoyFilter\nspec:\n  value: |\n    {\"pools\": [{\"discovery\": {}}]}\n",
            &["f#spec.value filter 1"],
        );
        check(
            "kind: List\nitems:\n- config:\n    kind: EndpointPickerConfig\n- plugins: []\n",
            &["f picker 4"],
        );
    }

    #[test]
    fn what_must_be_json_is_told_apart() {
        assert_eq!(found("f.json", "pools: []"), ["f.json not-json 0"]);
        assert_eq!(found("f.json", "{\"pools\": []}"), ["f.json filter 1"]);
        check("{\"pools\": [}", &["f not-json 0"]);
        check("pools: [", &["f not-yaml 1"]);
    }

    #[test]
    fn the_line_of_the_file_is_known_where_the_text_keeps_its_lines() {
        for (text, expected) in [
            (
                "data:\n  a: |\n\n    # b\n    kind: EndpointPickerConfig\n",
                [Some(4), Some(5)],
            ),
            (
                "data:\n  a: \"# b\\nkind: EndpointPickerConfig\"\n",
                [None, None],
            ),
        ] {
            let parts = parts("f", text);
            let inner = &parts[0].text;
            let first = if inner.text.starts_with('\n') { 2 } else { 1 };
            let lines = [first, first + 1].map(|line| inner.outer_line(line));
            assert_eq!(lines, expected, "{text}");
        }
    }
}
