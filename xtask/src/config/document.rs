//! The picker's own configuration, checked by the code that reads it in Envoy.

use std::collections::BTreeMap;

use picker_core::{Cause, Config, ConfigError, Role, parse_config};

use super::finding::{Finding, Level};
use super::tree::{Kind, Node};

/// What there is to say about a document.
#[derive(Debug)]
pub(super) struct Checked {
    /// Every mistake, or every warning.
    pub(super) findings: Vec<Finding>,
    /// What a document without mistakes says, in a line or two.
    pub(super) summary: Option<String>,
}

/// Checks a document of YAML or JSON; `file` is its name, and one that ends with `.json` must be
/// JSON as Envoy hands it over.
pub(super) fn check(file: &str, text: &str) -> Checked {
    let tree = Node::parse(text);
    let is_json = file.ends_with(".json") || text.trim_ascii_start().starts_with('{');
    let parsed = match &tree {
        Ok(tree) if !file.ends_with(".json") => {
            let is_empty = matches!(tree.kind, Kind::Null);
            let json = if is_empty {
                String::new()
            } else {
                tree.to_json().to_string()
            };
            parse_config(json.as_bytes())
        }
        Err(error) if !is_json => return not_yaml(file, error),
        _ => parse_config(text.as_bytes()),
    };
    let places = Places::of(tree.ok().as_ref());
    match parsed {
        Ok(role) => Checked {
            findings: warnings(&role)
                .iter()
                .map(|warning| places.find(file, Level::Warning, warning))
                .collect(),
            summary: Some(summary(&role)),
        },
        Err(errors) => Checked {
            findings: errors
                .iter()
                .map(|error| places.mistake(file, error))
                .collect(),
            summary: None,
        },
    }
}

fn not_yaml(file: &str, error: &serde_saphyr::Error) -> Checked {
    let place = error.location().map(|it| (it.line(), it.column()));
    let error = error.without_snippet();
    let text = format!("configuration: neither JSON nor YAML: {error}. Fix: mend this place.");
    Checked {
        findings: vec![finding(file, place.unwrap_or((1, 1)), Level::Error, text)],
        summary: None,
    }
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
        let endpoints = pool.endpoints.len();
        let s = if endpoints == 1 { "" } else { "s" };
        let (name, engine) = (&pool.name, pool.engine.name());
        format!("pool {name}: {endpoints} endpoint{s}, {engine}")
    });
    pools.collect::<Vec<_>>().join("; ")
}

/// Where the values of a document stand, by the paths that mistakes give.
struct Places(BTreeMap<String, (u64, u64)>);

impl Places {
    fn of(tree: Option<&Node>) -> Self {
        let mut places = BTreeMap::new();
        if let Some(tree) = tree {
            locate(tree, String::new(), &mut places);
        }
        Self(places)
    }

    fn mistake(&self, file: &str, error: &ConfigError) -> Finding {
        match error.cause {
            Cause::Syntax { line, column, .. } => {
                let place = (line as u64, column as u64);
                finding(file, place, Level::Error, error.to_string())
            }
            _ => self.find(file, Level::Error, &error.to_string()),
        }
    }

    /// A line that begins with a path, at its place or at that of what should have it.
    fn find(&self, file: &str, level: Level, text: &str) -> Finding {
        let mut path = text.split(": ").next().unwrap_or_default();
        let place = loop {
            match self.0.get(path) {
                Some(place) => break *place,
                None => path = path.rfind(['.', '[']).map_or("", |end| &path[..end]),
            }
            if path.is_empty() {
                break self.0.get("").copied().unwrap_or((1, 1));
            }
        };
        finding(file, place, level, text.to_owned())
    }
}

fn locate(node: &Node, path: String, places: &mut BTreeMap<String, (u64, u64)>) {
    match &node.kind {
        Kind::List(nodes) => {
            for (index, node) in nodes.iter().enumerate() {
                locate(node, format!("{path}[{index}]"), places);
            }
        }
        Kind::Object(fields) => {
            for (name, node) in fields {
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
                let step = match (path.is_empty(), name.bytes().all(is_plain)) {
                    (true, true) => name.clone(),
                    (false, true) => format!("{path}.{name}"),
                    (_, false) => format!("{path}[{name:?}]"),
                };
                locate(node, step, places);
            }
        }
        _ => {}
    }
    places.insert(path, (node.line, node.column));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings as `line:column text`.
    fn check_text(file: &str, text: &str) -> Vec<String> {
        let findings = check(file, text).findings.into_iter();
        findings
            .map(|it| format!("{}:{} {} {}", it.line, it.column, it.level, it.text))
            .collect()
    }

    const GOOD: &str = "pools:\n- name: llm\n  endpoints:\n  - address: 10.0.0.1:8000\n";

    #[test]
    fn a_good_document_is_summed_up_in_either_language() {
        let json = Node::parse(GOOD).unwrap().to_json().to_string();
        for (file, text) in [("a.yaml", GOOD), ("a.json", &json), ("a", &json)] {
            let checked = check(file, text);
            assert_eq!(checked.findings, []);
            assert_eq!(checked.summary.unwrap(), "pool llm: 1 endpoint, vllm");
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
        for (place, error) in ["5:14", "8:22", "6:12", "7:13"].iter().zip(words) {
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
        let checked = check("a.yaml", &format!("{GOOD}  scrape: {{interval: 10ms}}\n"));
        assert_eq!(checked.findings[0].level, Level::Warning);
        assert_eq!(
            (checked.findings[0].line, checked.summary.is_some()),
            (5, true)
        );
    }

    #[test]
    fn pages_and_the_service_are_configurations_too() {
        for (text, words) in [
            ("serve: page", "pages"),
            ("# nothing\n", "collects"),
            ("", "collects"),
        ] {
            let checked = check("a.yaml", text);
            assert!(checked.summary.unwrap().contains(words), "{text:?}");
        }
    }
}
