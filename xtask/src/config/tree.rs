//! A document of YAML or JSON that remembers where each value stands.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Error, Spanned, budget, from_str_with_options, options};

/// A value and the place of its first character.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// The line, from 1; of what an alias stands for, where that is written.
    pub(super) line: u64,
    /// The column, from 1.
    pub(super) column: u64,
    /// The value.
    pub(super) kind: Kind,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    /// In the order of the document.
    Object(Vec<Field>),
}

/// A value with its name, and the place of the name.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// The name.
    pub(super) name: String,
    /// The line of the name, from 1.
    pub(super) line: u64,
    /// The column of the name, from 1.
    pub(super) column: u64,
    /// The value.
    pub(super) node: Node,
}

impl Node {
    /// Reads one document; JSON is read as the YAML that it is.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let options = options! {
            // The defaults are too few for the dump of a mesh.
            budget: budget! { max_nodes: NODES_MAX, max_events: 4 * NODES_MAX },
        };
        from_str_with_options(text, options)
    }

    /// The field of an object.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        match &self.kind {
            Kind::Object(fields) => fields.iter().find(|field| field.name == key),
            _ => None,
        }
        .map(|field| &field.node)
    }

    /// The text.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value as the bytes of JSON.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.to_json().to_string().into_bytes()
    }

    /// The value without its places.
    pub(super) fn to_json(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(it) => Value::Bool(*it),
            Kind::Number(it) => Value::Number(it.clone()),
            Kind::Text(it) => Value::String(it.clone()),
            Kind::List(nodes) => nodes.iter().map(Self::to_json).collect(),
            Kind::Object(fields) => {
                let fields = fields.iter();
                let fields = fields.map(|it| (it.name.clone(), it.node.to_json()));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Kind>::deserialize(deserializer)?;
        Ok(Self {
            line: spanned.defined.line(),
            column: spanned.defined.column(),
            kind: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KindVisitor)
    }
}

struct KindVisitor;

impl<'de> Visitor<'de> for KindVisitor {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON has too")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Kind, E> {
        Ok(Kind::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Kind, E> {
        Ok(Kind::Number(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Kind, E> {
        Ok(Kind::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Kind, E> {
        let number = Number::from_f64(value);
        let number = number.ok_or_else(|| E::custom(format!("{value} is no number of JSON")))?;
        Ok(Kind::Number(number))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Kind, E> {
        Ok(Kind::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Kind, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = access.next_element()? {
            nodes.push(node);
        }
        Ok(Kind::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Kind, A::Error> {
        let mut fields = Vec::new();
        while let Some((name, node)) = access.next_entry::<Spanned<String>, _>()? {
            fields.push(Field {
                line: name.defined.line(),
                column: name.defined.column(),
                name: name.value,
                node,
            });
        }
        Ok(Kind::Object(fields))
    }
}

/// Values of one document: as many as a dump of 100 MB has.
const NODES_MAX: usize = 5_000_000;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_know_their_places_in_yaml_and_json() {
        for text in [
            "a: 1\nlist:\n- {b: true}\n- text\n",
            "{\"a\": 1,\n\"list\":\n[{\"b\": true},\n\"text\"]}",
        ] {
            let node = Node::parse(text).unwrap();
            assert_eq!(
                node.to_json(),
                json!({"a": 1, "list": [{"b": true}, "text"]})
            );
            let Kind::Object(fields) = &node.kind else {
                panic!("no object in {text}");
            };
            assert_eq!([fields[0].line, fields[1].line], [1, 2], "{text}");
            let Kind::List(list) = &node.get("list").unwrap().kind else {
                panic!("no list in {text}");
            };
            assert_eq!([list[0].line, list[1].line], [3, 4], "{text}");
        }
    }

    #[test]
    fn an_alias_leads_to_what_it_stands_for() {
        let node = Node::parse("a: &it\n  b: 1\nc: *it\n").unwrap();
        assert_eq!(node.get("c").unwrap().line, 2);
    }

    #[test]
    fn null_numbers_and_texts_are_what_they_look_like() {
        let node = Node::parse("[null, ~, -1, 0.5, '1', 32Mi, 100ms]").unwrap();
        let wanted = json!([null, null, -1, 0.5, "1", "32Mi", "100ms"]);
        assert_eq!(node.to_json(), wanted);
    }

    #[test]
    fn what_is_no_document_is_refused_with_its_line() {
        for text in ["a: [1, 2\nb: 3", "a: 1\na: 2", "a:\n\t- 1"] {
            let error = Node::parse(text).unwrap_err();
            assert_eq!(error.location().unwrap().line(), 2, "{error}");
        }
    }
}
