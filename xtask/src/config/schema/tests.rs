use std::fs;

use jsonschema::Validator;
use picker_core::{parse_config, parse_picker};
use serde_json::{Value, json};

use super::*;
use crate::config::tree::Node;
use crate::workspace::root;

const FILES: [(&str, bool); 2] = [
    ("docs/schema/picker.json", false),
    ("docs/schema/endpoint-picker-config.json", true),
];

fn validator(is_picker: bool) -> Validator {
    let schema: Value = serde_json::from_str(&text(is_picker)).unwrap();
    jsonschema::meta::validate(&schema).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

#[test]
fn the_published_schemas_are_those_of_this_picker() {
    for (file, is_picker) in FILES {
        let published = fs::read_to_string(root().join(file)).unwrap();
        let picker = if is_picker { " --picker" } else { "" };
        assert!(
            published == text(is_picker),
            "{file} is old: cargo xtask config schema{picker} > {file}"
        );
    }
}

#[test]
fn shipped_documents_name_their_schema() {
    let mut directories = vec![root().to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !NOT_OURS.contains(&name.as_str()) {
                directories.push(path);
                continue;
            }
            let is_yaml = name.ends_with(".yaml") || name.ends_with(".yml");
            if is_yaml && is_document(&fs::read_to_string(&path).unwrap()) {
                let text = fs::read_to_string(&path).unwrap();
                let header = "# yaml-language-server: $schema=";
                assert!(text.starts_with(header), "no schema in {}", path.display());
            }
        }
    }
}

/// Whether the text is a document of the picker by itself.
fn is_document(text: &str) -> bool {
    let keys = ["pools", "plugins", "schedulingProfiles"];
    let node = Node::parse(text).ok();
    node.is_some_and(|node| keys.iter().any(|key| node.get(key).is_some()))
}

/// Directories with files of others, or that have mistakes on purpose.
const NOT_OURS: [&str; 4] = [".git", "fixtures", "node_modules", "target"];

/// Checks that schema and reader agree on a document.
fn check(document: &Value, is_good: bool) {
    let bytes = document.to_string().into_bytes();
    let is_picker = document.get("pools").is_none() && document.get("serve").is_none();
    let read = if is_picker {
        parse_picker(&bytes).map(drop)
    } else {
        parse_config(&bytes).map(drop)
    };
    assert_eq!(read.is_ok(), is_good, "{document} {read:?}");
    let errors: Vec<String> = validator(is_picker)
        .iter_errors(document)
        .map(|it| it.to_string())
        .collect();
    assert_eq!(errors.is_empty(), is_good, "{document} {errors:?}");
}

/// A filter's configuration with one pool that has also these fields.
fn pool(fields: &str) -> Value {
    let text = format!("pools: [{{name: a, endpoints: [{{address: '10.0.0.1:80'}}], {fields}}}]");
    Node::parse(&text).unwrap().to_json()
}

#[test]
fn schema_and_reader_agree_on_pools() {
    for (fields, is_good) in [
        ("", true),
        (
            "scrape: {interval: 1.5s, timeout: 1m30s}, match: {hosts: [a.b], pathPrefixes: [/v1]}",
            true,
        ),
        ("scrape: {interval: fast}", false),
        ("scrape: {interval: 100}", false),
        ("scrape: {path: metrics}", false),
        ("scrape: {path: '/a?b'}", false),
        (
            "cache: {capacityTokens: auto}, limits: {requestBodyBytes: 32Mi}",
            true,
        ),
        (
            "cache: {capacityTokens: 100000}, limits: {requestBodyBytes: 1000}",
            true,
        ),
        ("cache: {capacityTokens: 0}", false),
        ("cache: {capacityTokens: lots}", false),
        ("limits: {requestBodyBytes: 32Mb}", false),
        ("limits: {requestBodyBytes: 0}", false),
        ("engine: sglang, failureMode: FailClose", true),
        ("emitScores: true", true),
        ("emitScores: 1", false),
        ("engine: vlm", false),
        ("failureMode: Open", false),
        ("match: {hosts: ['*.a']}", false),
        ("labels: {}", false),
        ("picker: {plugins: [{type: queue-scorer}]}", true),
        ("picker: {plugins: [{type: queue-score}]}", false),
    ] {
        check(&pool(fields), is_good);
    }
}

#[test]
fn schema_and_reader_agree_on_what_is_around_pools() {
    let with = |key: &str, value: Value| {
        let mut document = pool("");
        document[key] = value;
        document
    };
    for (document, is_good) in [
        (with("strict", json!(true)), true),
        (with("strict", json!("yes")), false),
        (with("sessionKey", json!("0123456789abcdef")), true),
        (with("sessionKey", json!("0123456789abcde")), false),
        (with("sessionKey", json!(1_234_567_890_123_456_u64)), false),
        (
            json!({"serve": "page", "sessionKey": "0123456789abcdef"}),
            false,
        ),
        (with("destination", json!({"via": "filterState"})), true),
        (with("destination", json!({"header": "x-a"})), true),
        (
            with(
                "destination",
                json!({"via": "filterState", "header": "x-a"}),
            ),
            false,
        ),
        (with("destination", json!({"via": "metadata"})), false),
        (
            with("paths", json!({"prefixes": ["/openai"], "admin": []})),
            true,
        ),
        (with("paths", json!({"prefixes": ["openai"]})), false),
        (with("serve", json!("page")), false),
        (with("polls", json!([])), false),
        (json!({"serve": "page"}), true),
        (json!({"serve": "pages"}), false),
        (json!({"pools": []}), false),
        (
            json!({"pools": [{"name": "A", "endpoints": [{"address": "10.0.0.1:80"}]}]}),
            false,
        ),
        (json!({"pools": [{"name": "a", "endpoints": []}]}), false),
        (
            json!({"pools": [{"name": "a", "endpoints": [{"address": "[::1]:80"}]}]}),
            true,
        ),
        (
            json!({"pools": [{"name": "a", "endpoints": [{"address": "gpu1:80"}]}]}),
            false,
        ),
        (
            json!({"pools": [{"name": "a", "endpoints": [{"address": "10.0.0.1"}]}]}),
            false,
        ),
        (
            json!({"pools": [{"endpoints": [{"address": "10.0.0.1:80"}]}]}),
            false,
        ),
    ] {
        check(&document, is_good);
    }
}

#[test]
fn schema_and_reader_agree_on_documents_of_the_reference_picker() {
    let version = "inference.networking.x-k8s.io/v1alpha1";
    for (document, is_good) in [
        (json!({"plugins": []}), true),
        (
            json!({"kind": "EndpointPickerConfig", "apiVersion": version}),
            true,
        ),
        (json!({"kind": "EndpointPicker"}), false),
        (json!({"apiVersion": "v1"}), false),
        (
            json!({"featureGates": ["flowControl", "haPopulateNonLeaderDatastore=false"]}),
            true,
        ),
        (json!({"featureGates": ["dataLayer"]}), false),
        (json!({"plugins": [{"name": "a"}]}), false),
        (
            json!({"plugins": [{"type": "queue-scorer", "nmae": "a"}]}),
            false,
        ),
        (
            json!({"plugins": [{"type": "queue-scorer", "parameters": {"a": 1}}]}),
            false,
        ),
        (json!({"schedulingProfiles": []}), false),
        (
            json!({"flowControl": {"maxBytes": "1Gi", "defaultRequestTTL": "1m30s"}}),
            true,
        ),
        (json!({"flowControl": {"maxBytes": "1 GB"}}), false),
        (
            json!({"flowControl": {"priorityBands": [{"maxRequests": 1}]}}),
            false,
        ),
        (json!({"saturationDetector": {}}), false),
    ] {
        check(&document, is_good);
    }
}

/// Every plugin type, and whether it can be left without parameters.
fn types() -> Vec<(String, bool)> {
    let schema = picker_schema();
    let mut types = Vec::new();
    for of_type in schema["properties"]["plugins"]["items"]["allOf"]
        .as_array()
        .unwrap()
    {
        let is_bare = of_type["then"].get("required").is_none();
        let names = of_type["if"]["properties"]["type"]["enum"]
            .as_array()
            .unwrap();
        types.extend(
            names
                .iter()
                .map(|it| (it.as_str().unwrap().to_owned(), is_bare)),
        );
    }
    types
}

#[test]
fn a_plugin_is_judged_by_its_type() {
    let validator = validator(true);
    let mut bare = 0;
    for (name, is_bare) in types() {
        let refused = |plugin: Value| {
            let document = json!({"plugins": [plugin]});
            let schema = !validator.is_valid(&document);
            let read = parse_picker(&document.to_string().into_bytes());
            (schema, read.is_err())
        };
        let plugin = json!({"type": name});
        assert_eq!(refused(plugin).0, !is_bare, "{name} without parameters");
        if !is_bare {
            assert_eq!(refused(json!({"type": name})), (true, true), "{name}");
        }
        bare += usize::from(is_bare);
        let unknown = json!({"type": name, "parameters": {"no such key": 1}});
        assert_eq!(refused(unknown), (true, true), "{name} with an unknown key");
        let unknown = json!({"type": name, "parameter": {}});
        assert_eq!(refused(unknown), (true, true), "{name} misspelt");
    }
    assert!(bare > 30, "{bare} types need no parameters");
}

#[test]
fn a_mistake_is_told_where_it_is_and_once() {
    let plugin = |plugin| json!({"plugins": [{"type": "max-score-picker"}, plugin]});
    for (document, place, words) in [
        (
            plugin(json!({"type": "queue-score"})),
            "/plugins/1/type",
            "\"queue-score\" is not one of",
        ),
        (
            plugin(json!({"type": "queue-scorer", "weight": 2})),
            "/plugins/1",
            "('weight' was unexpected)",
        ),
        (
            plugin(json!({"type": "load-aware-scorer", "parameters": {"treshold": 5}})),
            "/plugins/1/parameters",
            "('treshold' was unexpected)",
        ),
        (
            plugin(json!({"type": "load-aware-scorer", "parameters": {"threshold": "5"}})),
            "/plugins/1/parameters/threshold",
            "is not of type \"integer\"",
        ),
        (
            plugin(
                json!({"type": "header-label-affinity-scorer", "parameters": {"labelKey": "a"}}),
            ),
            "/plugins/1/parameters",
            "\"headerName\" is a required property",
        ),
        (
            plugin(json!({"type": "header-label-affinity-scorer"})),
            "/plugins/1",
            "\"parameters\" is a required property",
        ),
        (
            plugin(json!({"name": "a"})),
            "/plugins/1",
            "\"type\" is a required property",
        ),
    ] {
        let validator = validator(true);
        let errors: Vec<_> = validator.iter_errors(&document).collect();
        let [error] = &errors[..] else {
            panic!("{document}: {errors:?}");
        };
        assert_eq!(error.instance_path().to_string(), place, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    for (document, words) in [
        (json!({"strict": true}), "\"pools\" is a required property"),
        (json!({"serve": "page", "strict": true}), "False schema"),
    ] {
        let errors = validator(false);
        let errors: Vec<String> = errors
            .iter_errors(&document)
            .map(|it| it.to_string())
            .collect();
        assert!(
            matches!(&errors[..], [error] if error.contains(words)),
            "{errors:?}"
        );
    }
}

#[test]
fn what_is_in_effect_fits_the_schema() {
    let text = "plugins:\n- type: least-cost-scorer\n- type: max-score-picker\n";
    let (plan, _) = parse_picker(&Node::parse(text).unwrap().to_bytes()).unwrap();
    check(&plan.document, true);
    let picker_core::Role::Filter(config) =
        parse_config(&pool("").to_string().into_bytes()).unwrap()
    else {
        panic!("no filter");
    };
    check(&serde_json::from_str(&config.to_json()).unwrap(), true);
}
