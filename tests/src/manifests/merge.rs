//! How control planes change what they generate: protobuf's merge, and JSON Patch.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use serde_json_path::JsonPath;

/// Merges a message into another: fields of the second win, messages are merged, lists are appended.
pub fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(from)) => into.extend(from.iter().cloned()),
        (into, from) => *into = from.clone(),
    }
}

/// Applies an operation as an EnvoyPatchPolicy has it: a JSON Path finds places, and `path` goes on
/// from each of them.
///
/// # Errors
///
/// When nothing is found, or the operation is none of `add`, `replace` and `remove`.
pub fn patch(document: &mut Value, operation: &Value) -> Result<()> {
    let tail = operation["path"].as_str().unwrap_or_default();
    let places = match operation["jsonPath"].as_str() {
        None => vec![String::new()],
        Some(path) => {
            let parsed = JsonPath::parse(path).with_context(|| path.to_owned())?;
            let located = parsed.query_located(document);
            let places: Vec<String> = located.locations().map(|it| it.to_json_pointer()).collect();
            if places.is_empty() {
                bail!("nothing is at {path}");
            }
            places
        }
    };
    for place in places {
        let pointer = format!("{place}{tail}");
        apply(document, &pointer, operation).with_context(|| pointer.clone())?;
    }
    Ok(())
}

fn apply(document: &mut Value, pointer: &str, operation: &Value) -> Result<()> {
    let (parent, key) = pointer.rsplit_once('/').context("no place in a document")?;
    let key = key.replace("~1", "/").replace("~0", "~");
    let parent = document.pointer_mut(parent).context("no such parent")?;
    let value = operation["value"].clone();
    let op = operation["op"].as_str().unwrap_or_default();
    match (parent, op) {
        (Value::Object(fields), "add") => {
            fields.insert(key, value);
        }
        (Value::Object(fields), "replace") => {
            *fields.get_mut(&key).context("nothing to replace")? = value;
        }
        (Value::Object(fields), "remove") => {
            fields.remove(&key).context("nothing to remove")?;
        }
        (Value::Array(items), "add") => {
            let at = match key.as_str() {
                "-" => items.len(),
                index => index.parse()?,
            };
            if at > items.len() {
                bail!("there are only {} items", items.len());
            }
            items.insert(at, value);
        }
        (Value::Array(items), "remove") => {
            let at: usize = key.parse()?;
            if at >= items.len() {
                bail!("there are only {} items", items.len());
            }
            items.remove(at);
        }
        (_, op) => bail!("{op} is not possible there"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_are_merged_lists_appended_and_scalars_replaced() {
        let mut into = json!({"a": {"b": 1, "c": 2}, "list": [1], "kept": true});
        merge(
            &mut into,
            &json!({"a": {"b": 3, "d": 4}, "list": [2], "new": {"x": 1}}),
        );
        let merged = json!({
            "a": {"b": 3, "c": 2, "d": 4}, "list": [1, 2], "kept": true, "new": {"x": 1},
        });
        assert_eq!(into, merged);
    }

    #[test]
    fn an_operation_goes_on_from_every_place_that_the_path_finds() {
        let document = json!({"deep": {"filters": [{"name": "a"}, {"name": "b", "x": {}}]}});
        for (operation, place, found) in [
            (
                json!({"op": "add", "jsonPath": "$..filters[?(@.name=='b')].x", "path": "/on",
                       "value": true}),
                "/deep/filters/1/x/on",
                json!(true),
            ),
            (
                json!({"op": "add", "jsonPath": "$.deep.filters[*]", "path": "/on", "value": 1}),
                "/deep/filters/0/on",
                json!(1),
            ),
            (
                json!({"op": "add", "path": "/deep/filters/0", "value": {"name": "c"}}),
                "/deep/filters/0/name",
                json!("c"),
            ),
            (
                json!({"op": "replace", "path": "/deep/filters/0/name", "value": "d"}),
                "/deep/filters/0/name",
                json!("d"),
            ),
        ] {
            let mut changed = document.clone();
            patch(&mut changed, &operation).unwrap();
            assert_eq!(changed.pointer(place), Some(&found), "{operation}");
        }
    }

    #[test]
    fn an_operation_that_finds_nothing_says_so() {
        for (operation, fault) in [
            (
                json!({"op": "add", "jsonPath": "$..x", "path": "/y", "value": 1}),
                "$..x",
            ),
            (json!({"op": "replace", "path": "/y", "value": 1}), "/y"),
            (json!({"op": "remove", "path": "/list/3"}), "/list/3"),
            (json!({"op": "add", "path": "/a/b", "value": 1}), "/a/b"),
            (json!({"op": "test", "path": "/list", "value": 1}), "test"),
        ] {
            let error = patch(&mut json!({"list": [1]}), &operation).unwrap_err();
            assert!(format!("{error:#}").contains(fault), "{error:#}");
        }
    }
}
