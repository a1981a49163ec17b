//! The picker's own configuration, checked by the code that reads it in Envoy.

use std::collections::BTreeMap;
use std::fmt;

use picker_core::{Cause, Config, ConfigError, Role, parse_config, parse_picker};

use super::excerpt::excerpt;
use super::finding::{Finding, Level};
use super::parts::{Document, KIND, Part, Text, parts};
use super::tree::{Kind, Node};

/// What there is to say about a file.
#[derive(Debug)]
pub(super) struct Checked {
    /// Every mistake and every warning, in the order of the file.
    pub(super) findings: Vec<Told>,
    /// What each document without mistakes says, in a line or two.
    pub(super) summaries: Vec<String>,
}

impl Checked {
    /// How many findings have to be mended.
    pub(super) fn mistakes(&self) -> usize {
        let findings = self.findings.iter();
        findings
            .filter(|it| it.finding.level == Level::Error)
            .count()
    }
}

/// A finding with the line it is about.
#[derive(Debug)]
pub(super) struct Told {
    /// What is to say.
    pub(super) finding: Finding,
    /// The line with a mark; empty where there is none.
    pub(super) excerpt: String,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { finding, excerpt } = self;
        let end = if excerpt.is_empty() { "" } else { "\n" };
        write!(f, "{finding}{end}{excerpt}")
    }
}

/// Checks the documents of a file; `None` when it has none.
///
/// See [`parts`] for what `file`, its name, may tell.
pub(super) fn check(file: &str, text: &str) -> Option<Checked> {
    let mut checked = Checked {
        findings: Vec::new(),
        summaries: Vec::new(),
    };
    let parts = parts(file, text);
    for part in &parts {
        let (mut findings, summary) = check_part(part);
        findings.sort_by_key(|finding| (finding.line, finding.column));
        checked.findings.extend(findings.into_iter().map(|finding| {
            let excerpt = show(&part.text, &finding);
            Told { finding, excerpt }
        }));
        let name = &part.text.name;
        checked
            .summaries
            .extend(summary.map(|it| format!("{name}: accepted: {it}")));
    }
    (!parts.is_empty()).then_some(checked)
}

/// What is wrong with a document or, when nothing is, what it says.
fn check_part(part: &Part) -> (Vec<Finding>, Option<String>) {
    let file = &part.text.name;
    let (node, parsed) = match &part.document {
        Document::NotYaml(error) => return (vec![not_yaml(&part.text, error)], None),
        Document::NotJson => {
            let errors = parse_config(part.text.text.as_bytes()).err();
            let places = Places::default();
            let mistakes = errors.iter().flatten().map(|it| places.mistake(file, it));
            return (mistakes.collect(), None);
        }
        Document::Filter(node) => {
            let is_empty = matches!(node.kind, Kind::Null);
            let bytes = if is_empty {
                Vec::new()
            } else {
                node.to_bytes()
            };
            let parsed = parse_config(&bytes);
            let parsed = parsed.map(|role| (summary(&role), warnings(&role)));
            (node, parsed)
        }
        Document::EndpointPicker(node) => {
            let parsed = parse_picker(&node.to_bytes());
            let parsed = parsed.map(|(_, warnings)| {
                let warnings = warnings.iter().map(ToString::to_string);
                (endpoint_picker(node), warnings.collect())
            });
            (node, parsed)
        }
    };
    let places = Places::of(node);
    match parsed {
        Ok((summary, warnings)) => {
            let warnings = warnings.iter();
            let warnings = warnings.map(|it| places.find(file, Level::Warning, it));
            (warnings.collect(), Some(summary))
        }
        Err(errors) => {
            let mistakes = errors.iter().map(|error| places.mistake(file, error));
            (mistakes.collect(), None)
        }
    }
}

fn not_yaml(text: &Text, error: &serde_saphyr::Error) -> Finding {
    let place = error.location().map(|it| (it.line(), it.column()));
    let place = place.unwrap_or((1, 1));
    let error = error.without_snippet();
    let is_template = text.text.contains("{{");
    let fix = if is_template {
        "render the template first, with `helm template`"
    } else {
        "mend this place"
    };
    let words = format!("configuration: neither JSON nor YAML: {error}. Fix: {fix}.");
    finding(&text.name, place, Level::Error, words)
}

/// The line of a finding and, for a text inside a file, where in the file it is.
fn show(text: &Text, finding: &Finding) -> String {
    let mut shown = excerpt(&text.text, finding.line, finding.column).unwrap_or_default();
    if let Some(outer) = &text.outer {
        let place = match text.outer_line(finding.line) {
            Some(line) => format!("\n  --> {}:{line}", outer.text.name),
            None => format!("\n  --> in the text at {}:{}", outer.text.name, outer.line),
        };
        shown.push_str(&place);
    }
    shown
}

fn finding(file: &str, (line, column): (u64, u64), level: Level, text: String) -> Finding {
    Finding {
        level,
        file: file.to_owned(),
        line,
        column,
        path: String::new(),
        text,
    }
}

/// What was read differently from what is written.
pub(super) fn warnings(role: &Role) -> Vec<String> {
    match role {
        Role::Filter(config) => config.warnings.iter().map(ToString::to_string).collect(),
        Role::Page | Role::Service => Vec::new(),
    }
}

fn summary(role: &Role) -> String {
    match role {
        Role::Service => "empty: collects metrics for the pools of others, picks nothing".into(),
        Role::Page => "serves the picker's pages, picks nothing".into(),
        Role::Filter(config) => filter(config),
    }
}

fn filter(config: &Config) -> String {
    let pools = config.pools.iter().map(|pool| {
        let (name, engine) = (&pool.name, pool.engine.name());
        let endpoints = match (pool.discovery.is_some(), pool.endpoints.len()) {
            (true, _) => "discovered endpoints".to_owned(),
            (false, 1) => "1 endpoint".to_owned(),
            (false, count) => format!("{count} endpoints"),
        };
        format!("pool {name}: {endpoints}, {engine}")
    });
    pools.collect::<Vec<_>>().join("; ")
}

fn endpoint_picker(node: &Node) -> String {
    let count = |key: &str, what: &str| {
        let count = match node.get(key).map(|it| &it.kind) {
            Some(Kind::List(nodes)) => nodes.len(),
            _ => 0,
        };
        let s = if count == 1 { "" } else { "s" };
        format!("{count} {what}{s}")
    };
    let (plugins, profiles) = (
        count("plugins", "plugin"),
        count("schedulingProfiles", "profile"),
    );
    format!("{KIND}: {plugins}, {profiles}")
}

/// Where the values of a document stand, by the paths that mistakes give.
#[derive(Default)]
struct Places {
    values: BTreeMap<String, (u64, u64)>,
    names: BTreeMap<String, (u64, u64)>,
}

impl Places {
    fn of(tree: &Node) -> Self {
        let mut places = Self::default();
        places.locate(tree, String::new());
        places
    }

    fn mistake(&self, file: &str, error: &ConfigError) -> Finding {
        let text = error.to_string();
        let place = match &error.cause {
            Cause::Syntax { line, column, .. } => Some((*line as u64, *column as u64)),
            // The name is wrong, not what stands there.
            Cause::Unknown { what: "key", .. } => self.names.get(&error.path).copied(),
            _ => None,
        };
        match place {
            Some(place) => finding(file, place, Level::Error, text),
            None => self.find(file, Level::Error, &text),
        }
    }

    /// A line that begins with a path, at its place or at that of what should have it.
    fn find(&self, file: &str, level: Level, text: &str) -> Finding {
        let mut path = text.split(": ").next().unwrap_or_default();
        let place = loop {
            match self.values.get(path) {
                Some(place) => break *place,
                None => path = path.rfind(['.', '[']).map_or("", |end| &path[..end]),
            }
            if path.is_empty() {
                break self.values.get("").copied().unwrap_or((1, 1));
            }
        };
        finding(file, place, level, text.to_owned())
    }

    fn locate(&mut self, node: &Node, path: String) {
        match &node.kind {
            Kind::List(nodes) => {
                for (index, node) in nodes.iter().enumerate() {
                    self.locate(node, format!("{path}[{index}]"));
                }
            }
            Kind::Object(fields) => {
                for field in fields {
                    let path = field.path_in(&path);
                    self.names.insert(path.clone(), (field.line, field.column));
                    self.locate(&field.node, path);
                }
            }
            _ => {}
        }
        self.values.insert(path, (node.line, node.column));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings as `line:column text`.
    fn check_text(file: &str, text: &str) -> Vec<String> {
        let findings = check(file, text).unwrap().findings.into_iter();
        findings
            .map(|it| it.finding)
            .map(|it| format!("{}:{} {} {}", it.line, it.column, it.level, it.text))
            .collect()
    }

    const GOOD: &str = "pools:\n- name: llm\n  endpoints:\n  - address: 10.0.0.1:8000\n";

    #[test]
    fn a_good_document_is_summed_up_in_either_language() {
        let json = Node::parse(GOOD).unwrap().to_json().to_string();
        for (file, text) in [("a.yaml", GOOD), ("a.json", &json), ("a", &json)] {
            let checked = check(file, text).unwrap();
            assert!(checked.findings.is_empty(), "{checked:?}");
            let expected = format!("{file}: accepted: pool llm: 1 endpoint, vllm");
            assert_eq!(checked.summaries, [expected]);
        }
    }

    #[test]
    fn every_mistake_is_told_with_its_place_and_in_the_words_of_the_filter() {
        let text = format!(
            "{GOOD}  - address: gpu1:8000\n  enginee: vllm\n  labels.x: 1\n  scrape: {{interval: fast}}\n"
        );
        let found = check_text("a.yaml", &text);
        let json = Node::parse(&text).unwrap().to_json().to_string();
        let words = parse_config(json.as_bytes()).unwrap_err();
        assert_eq!(found.len(), 4, "{found:?}");
        for (place, path) in [
            ("5:14", "pools[0].endpoints[1].address"),
            ("8:22", "pools[0].scrape.interval"),
            ("6:3", "pools[0].enginee"),
            ("7:3", "pools[0][\"labels.x\"]"),
        ] {
            let error = words.iter().find(|it| it.path == path).unwrap();
            assert!(
                found.contains(&format!("{place} error {error}")),
                "{error} {found:?}"
            );
        }
    }

    #[test]
    fn what_is_missing_is_told_where_it_belongs() {
        let found = check_text("a.yaml", "pools:\n- engine: vllm\n  endpoints: []\n");
        assert!(
            found[0].starts_with("2:3 error pools[0].name: "),
            "{found:?}"
        );
        assert!(
            found[1].starts_with("3:14 error pools[0].endpoints: "),
            "{found:?}"
        );
    }

    #[test]
    fn a_document_that_cannot_be_read_says_where() {
        let found = check_text("a.json", "{\"pools\": [\n}");
        assert!(
            found[0].starts_with("2:1 error configuration: not JSON"),
            "{found:?}"
        );
        let found = check_text("a.yaml", "pools:\n- name: x\n name: y\n");
        assert!(
            found[0].starts_with("3:2 error configuration: neither JSON nor YAML"),
            "{found:?}"
        );
        // Envoy hands over bytes, not YAML.
        let found = check_text("a.json", GOOD);
        assert!(found[0].contains("this is not JSON"), "{found:?}");
    }

    #[test]
    fn a_warning_is_no_mistake() {
        let text = format!("{GOOD}  scrape: {{interval: 10ms}}\n");
        let checked = check("a.yaml", &text).unwrap();
        let warning = &checked.findings[0].finding;
        assert_eq!((warning.level, warning.line), (Level::Warning, 5));
        assert_eq!(checked.summaries.len(), 1);
    }

    #[test]
    fn pages_and_the_service_are_configurations_too() {
        for (text, words) in [
            ("serve: page", "pages"),
            ("# nothing\n", "collects"),
            ("", "collects"),
        ] {
            let checked = check("a.yaml", text).unwrap();
            assert!(checked.summaries[0].contains(words), "{text:?}");
        }
    }

    #[test]
    fn a_document_of_the_reference_picker_is_checked_by_itself() {
        let text = "\
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: queue-scorer
- type: queu-scorer
  nmae: a
";
        let found = check_text("a.yaml", text);
        let starts = [
            "4:3 error plugins[1]: ",
            "5:9 error plugins[2].type: ",
            "6:3 error plugins[2].nmae: \"nmae\" is no known key. Fix: write \"name\".",
        ];
        assert_eq!(found.len(), starts.len(), "{found:?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(found.starts_with(start), "{found}");
        }
        let checked = check("a.yaml", "plugins:\n- type: queue-scorer\n").unwrap();
        let expected = "a.yaml: accepted: EndpointPickerConfig: 1 plugin, 0 profiles";
        assert_eq!(checked.summaries, [expected]);
        assert!(check("a.yaml", "kind: Service\n").is_none());
    }

    #[test]
    fn every_document_of_a_file_is_checked_at_its_place() {
        let text = "plugins: 1\n---\npools: []\n---\nplugins:\n- type: x\n---\nplugins: [\n";
        let found = check_text("a.yaml", text);
        let starts = [
            "1:10 error plugins: 1 is not a list",
            "3:8 error pools: ",
            "6:9 error plugins[0].type: ",
            "8:10 error configuration: neither JSON nor YAML",
        ];
        assert_eq!(found.len(), starts.len(), "{found:?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(found.starts_with(start), "{found}");
        }
    }

    #[test]
    fn a_text_inside_a_file_has_lines_of_its_own_and_says_where_it_stands() {
        let inner = "kind: EndpointPickerConfig\nplugins:\n- type: queue-scorer\n  weight: 2\n";
        let block = format!("data:\n  a: |\n    {}", inner.replace('\n', "\n    "));
        let quoted = format!("data:\n  a: {inner:?}\n");
        for (text, place) in [(block, "--> f:6"), (quoted, "--> in the text at f:2")] {
            let checked = check("f", &text).unwrap();
            let told = &checked.findings[0];
            let shown = told.finding.to_string();
            assert!(
                shown.starts_with("f#data.a:4:3: error: plugins[0].weight: "),
                "{shown}"
            );
            let expected = format!("  4 |   weight: 2\n    |   ^\n  {place}");
            assert_eq!(told.excerpt, expected);
        }
    }

    #[test]
    fn a_template_is_to_be_rendered_first() {
        let found = check_text("a.yaml", "plugins: {{ .Values.plugins }\n");
        assert!(found[0].contains("helm template"), "{found:?}");
    }
}
