//! `docs/plugins.md` has every plugin type with its parameters.
//!
//! After a change, write it anew with `UPDATE=1 cargo test -p xtask --test plugins`.

#![expect(
    clippy::unwrap_used,
    reason = "clippy takes only functions with #[test] for tests"
)]

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use picker_core::picker_schema;
use serde_json::Value;

#[test]
fn every_plugin_type_is_in_the_docs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let file = root.join("docs/plugins.md");
    let text = document(&picker_schema());
    if env::var_os("UPDATE").is_some() {
        fs::write(&file, &text).unwrap();
    }
    let found = fs::read_to_string(file).unwrap();
    let mut pairs = text.lines().zip(found.lines());
    assert_eq!(pairs.find(|(text, found)| text != found), None);
    assert_eq!(text.lines().count(), found.lines().count());
}

fn document(schema: &Value) -> String {
    let mut text = String::from(HEAD);
    let types = schema["properties"]["plugins"]["items"]["allOf"].as_array();
    let mut rows: Vec<String> = types.unwrap().iter().map(row).collect();
    rows.sort();
    rows.iter().for_each(|row| text.push_str(row));
    text
}

fn row(plugin: &Value) -> String {
    let names = plugin["if"]["properties"]["type"]["enum"].as_array();
    let names = names.unwrap();
    let plugin = &plugin["then"];
    let properties = &plugin["properties"];
    let names: Vec<String> = names
        .iter()
        .map(|it| format!("`{}`", it.as_str().unwrap()))
        .collect();
    let parameters = parameters("", &properties["parameters"]);
    let note = plugin["description"].as_str().unwrap_or_default();
    let mut row = String::new();
    writeln!(
        row,
        "| {} | {} | {note} |",
        names.join(", "),
        parameters.join(", ")
    )
    .unwrap();
    row
}

/// Each key of an object with its default, by its way from the parameters.
fn parameters(before: &str, object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in object["properties"].as_object().into_iter().flatten() {
        let way = format!("{before}{key}");
        if value["type"] == "object" && value["properties"].is_object() {
            found.extend(parameters(&format!("{way}."), value));
        } else if value["items"]["properties"].is_object() {
            found.extend(parameters(&format!("{way}[]."), &value["items"]));
        } else {
            let default = match &value["default"] {
                Value::Null => String::new(),
                default => format!(" = {default}"),
            };
            found.push(format!("`{way}{default}`"));
        }
    }
    found
}

const HEAD: &str = "\
# Plugins

Every plugin type that an `EndpointPickerConfig` may name, with its parameters and their defaults.
[differences.md](differences.md) says where one does not do quite what it does in the reference picker.

| type | parameters | |
|---|---|---|
";
