//! The configuration in effect: what a document says, with every default filled in.

use picker_core::{Role, parse_config, parse_picker};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use super::parts::{Document, Part};
use super::tree::Kind;

/// What a document without mistakes says, with every default filled in; `None` when it has some.
pub(super) fn effective(part: &Part) -> Option<Value> {
    match &part.document {
        Document::NotJson | Document::NotYaml(_) => None,
        Document::Filter(node) if matches!(node.kind, Kind::Null) => Some(json!({})),
        Document::Filter(node) => match parse_config(&node.to_bytes()).ok()? {
            Role::Filter(config) => serde_json::from_str(&config.to_json()).ok(),
            Role::Page => Some(json!({"serve": "page"})),
            Role::Service => Some(json!({})),
        },
        Document::EndpointPicker(node) => {
            let (plan, _) = parse_picker(&node.to_bytes()).ok()?;
            Some(plan.document)
        }
    }
}

/// A document as YAML, what it is called first.
pub(super) fn to_yaml(document: &Value) -> String {
    serde_saphyr::to_string(&Ordered(document)).unwrap_or_default()
}

/// A document as JSON, indented, what it is called first.
pub(super) fn to_json(document: &Value) -> String {
    serde_json::to_string_pretty(&Ordered(document)).unwrap_or_default()
}

/// A value whose objects begin with what they are and what they are called.
struct Ordered<'a>(&'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Array(values) => serializer.collect_seq(values.iter().map(Ordered)),
            Value::Object(fields) => {
                let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
                let place = |key: &str| FIRST.iter().position(|it| *it == key);
                // Those of no place keep their order behind the others.
                fields.sort_by_key(|(key, _)| place(key).unwrap_or(FIRST.len()));
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (key, value) in fields {
                    map.serialize_entry(key, &Ordered(value))?;
                }
                map.end()
            }
            value => value.serialize(serializer),
        }
    }
}

/// The keys that come first, in this order.
const FIRST: [&str; 17] = [
    "$schema",
    "title",
    "description",
    "apiVersion",
    "kind",
    "type",
    "name",
    "pluginRef",
    "priority",
    "address",
    "match",
    "engine",
    "endpoints",
    "pools",
    "featureGates",
    "plugins",
    "schedulingProfiles",
];

#[cfg(test)]
mod tests {
    use serde_json::from_str;

    use super::*;
    use crate::config::parts::parts;
    use crate::config::tree::Node;

    fn shown(text: &str) -> Vec<Value> {
        parts("f", text).iter().filter_map(effective).collect()
    }

    const POOL: &str = "pools:\n- name: a\n  endpoints: [{address: '10.0.0.1:80'}]\n";

    #[test]
    fn defaults_are_filled_in() {
        let shown = shown(POOL);
        let pool = &shown[0]["pools"][0];
        assert_eq!(pool["scrape"]["interval"], "100ms");
        assert_eq!(pool["picker"]["kind"], "EndpointPickerConfig");
        assert_eq!(shown[0]["destination"]["via"], "header");
    }

    #[test]
    fn each_document_is_shown_by_what_it_is() {
        let text = format!(
            "{POOL}---\nplugins: [{{type: queue-scorer}}]\n---\nserve: page\n---\nplugins: 1\n"
        );
        let shown = shown(&text);
        assert_eq!(shown.len(), 3);
        assert_eq!(shown[1]["plugins"][0]["name"], "queue-scorer");
        assert_eq!(shown[2], json!({"serve": "page"}));
        assert_eq!(super::tests::shown(""), [json!({})]);
    }

    #[test]
    fn what_is_shown_is_the_same_configuration() {
        for text in [POOL, "plugins: [{type: least-cost-scorer}]\n"] {
            let first = &shown(text)[0];
            for again in [to_yaml(first), to_json(first)] {
                assert_eq!(&shown(&again)[0], first, "{again}");
            }
        }
    }

    #[test]
    fn texts_that_look_like_something_else_stay_texts() {
        for text in [
            "true", "1", "0x1", "1e3", "null", "~", "", "- a", "a: b", "# a", "2s", "\"", "é\n",
        ] {
            let value = json!({"a": text, "b": [text]});
            assert_eq!(
                Node::parse(&to_yaml(&value)).unwrap().to_json(),
                value,
                "{text}"
            );
            assert_eq!(from_str::<Value>(&to_json(&value)).unwrap(), value);
        }
    }

    #[test]
    fn names_come_first() {
        let value = json!({"b": 1, "name": "x", "a": {"count": 1, "pluginRef": "mine"}});
        let expected = "name: x\na:\n  pluginRef: mine\n  count: 1\nb: 1\n";
        assert_eq!(to_yaml(&value), expected);
    }
}
