//! Kinds that controllers bring along, checked by schemas of our own in `fixtures/kinds`.
//!
//! They are written from the controllers' API types: what must be there, what a field may be, and
//! no field that is not named. What a schema leaves open is written out as open.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, anyhow};
use serde_json::{Map, Value, json};
use xtask::workspace::root;

use super::Manifest;

/// The schemas, by kind with group and version.
#[derive(Debug)]
pub struct Kinds(BTreeMap<String, Value>);

impl Kinds {
    /// Reads all of `fixtures/kinds`.
    pub fn read() -> Result<Self> {
        let mut definitions = Map::new();
        let mut specs = BTreeMap::new();
        for entry in fs::read_dir(root().join("tests/fixtures/kinds"))? {
            let file = entry?.path();
            let text = fs::read_to_string(&file)?;
            let kinds: Map<String, Value> = serde_saphyr::from_str(&text)
                .map_err(|error| anyhow!("{}: {error}", file.display()))?;
            for (name, schema) in kinds {
                match name.contains('/') {
                    true => drop(specs.insert(name, closed(schema))),
                    false => drop(definitions.insert(name, closed(schema))),
                }
            }
        }
        let resource = |(kind, spec): (String, Value)| {
            let schema = json!({
                "type": "object",
                "required": ["apiVersion", "kind", "metadata", "spec"],
                "properties": {
                    "apiVersion": {},
                    "kind": {},
                    "metadata": {"$ref": "#/$defs/metadata"},
                    "spec": spec,
                },
                "additionalProperties": false,
                "$defs": definitions.clone(),
            });
            (kind, schema)
        };
        Ok(Self(specs.into_iter().map(resource).collect()))
    }

    /// What is wrong in a manifest.
    pub fn faults(&self, manifest: &Manifest) -> Result<Vec<String>> {
        let kind = manifest.kind();
        let schema = self.0.get(&kind);
        let name = &manifest.name;
        let schema = schema.with_context(|| format!("{name}: there is no schema of {kind}"))?;
        let validator = jsonschema::options()
            .should_validate_formats(true)
            .build(schema)
            .with_context(|| kind.clone())?;
        let errors = validator.iter_errors(&manifest.value);
        Ok(errors
            .map(|error| format!("{name}: {}: {error}", error.instance_path()))
            .collect())
    }
}

/// A schema in which objects have no fields but those that are named, conditions aside.
fn closed(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(fields) => {
            let names_fields = fields.get("properties").is_some_and(Value::is_object);
            let parts = fields.iter_mut();
            for (_, value) in parts.filter(|(key, _)| !CONDITIONS.contains(&key.as_str())) {
                *value = closed(value.take());
            }
            if names_fields && !fields.contains_key("additionalProperties") {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
        }
        Value::Array(items) => {
            for item in items {
                *item = closed(item.take());
            }
        }
        _ => {}
    }
    schema
}

/// Keywords whose schemas look at an object that another schema describes.
const CONDITIONS: [&str; 7] = ["if", "then", "else", "oneOf", "anyOf", "allOf", "not"];
