//! What holds of any text: it is migrated in one go, stays readable and acceptable, and what stands
//! around it stays as it is.
//!
//! The texts are documents of every kind with mistakes drawn at random, as hands and editors make
//! them.

use std::fs;

use super::*;
use crate::config::document;
use crate::draw::Draw;
use crate::workspace::root;

#[test]
fn what_is_claimed_holds_of_damaged_documents() {
    let mut documents: Vec<String> = OUTDATED.map(String::from).to_vec();
    for directory in [
        "examples/endpoint-picker-config",
        "tests/fixtures/config/wrong",
    ] {
        let mut files: Vec<_> = fs::read_dir(root().join(directory)).unwrap().collect();
        files.sort_by_key(|file| file.as_ref().unwrap().path());
        let files = files.iter().map(|file| file.as_ref().unwrap().path());
        documents.extend(files.map(|file| fs::read_to_string(file).unwrap()));
    }
    let (mut draw, mut changed, mut accepted) = (Draw::new(8), 0, 0);
    for (number, document) in documents.iter().enumerate() {
        let rounds = if number < OUTDATED.len() { 60 } else { 1 };
        for _ in 0..rounds {
            let mut text = document.clone();
            for _ in 0..=draw.below(2) {
                text = damaged(&text, &mut draw);
            }
            let is_changed = holds(&text);
            changed += usize::from(is_changed);
            accepted += usize::from(is_changed && mistakes(&text) == 0);
        }
    }
    assert!(changed > 100, "{changed} were out of date");
    assert!(accepted > 5, "{accepted} of them were accepted");
}

fn mistakes(text: &str) -> usize {
    document::check("f", text).map_or(0, |it| it.mistakes())
}

/// Checks what holds of any text, and tells whether it was out of date.
fn holds(text: &str) -> bool {
    let Some(migrated) = migrate("f", text) else {
        return false;
    };
    let is_changed = migrated.text != text;
    assert_eq!(is_changed, !migrated.changes.is_empty(), "{text}");
    // A key that is gone may have been all that told whose document it is.
    if let Some(again) = migrate("f", &migrated.text) {
        assert_eq!(again.text, migrated.text, "{text}");
    }
    if layout::documents(text).is_ok() {
        assert!(
            layout::documents(&migrated.text).is_ok(),
            "{text}\n->\n{}",
            migrated.text
        );
    } else {
        assert!(!is_changed, "{text}");
    }
    if is_changed && mistakes(text) == 0 {
        let migrated = &migrated.text;
        assert_eq!(mistakes(migrated), 0, "{text}\n->\n{migrated}");
    }
    // What is others' stays, and changes nothing.
    let behind = migrate("f", &format!("{FOREIGN}{text}"));
    if let Some(behind) = behind.filter(|_| layout::documents(text).is_ok()) {
        assert_eq!(behind.text, format!("{FOREIGN}{}", migrated.text));
    }
    is_changed
}

/// The text with one mistake that a hand or an editor makes.
fn damaged(text: &str, draw: &mut Draw) -> String {
    let mut lines: Vec<String> = text.split_inclusive('\n').map(String::from).collect();
    let (one, other) = (draw.below(lines.len()), draw.below(lines.len()));
    match draw.below(6) {
        0 => _ = lines.remove(one),
        1 => lines.insert(other, lines[one].clone()),
        2 => lines.swap(one, other),
        3 => lines[one].insert_str(0, "  "),
        4 => lines[one] = lines[one].replacen("  ", "", 1),
        _ => {
            let mut chars: Vec<char> = lines[one].chars().collect();
            let at = draw.below(chars.len());
            let signs: Vec<char> = ":-[]{}\"'#|>&*,%!\n\t\r é".chars().collect();
            if draw.below(2) == 0 {
                chars.remove(at);
            }
            chars.insert(at.min(chars.len()), signs[draw.below(signs.len())]);
            lines[one] = chars.into_iter().collect();
        }
    }
    lines.concat()
}

const FOREIGN: &str = "kind: Service # mine\nspec: {a: [1, 2]}\n---\n";

/// Documents with much that is out of date; the first two are accepted as they are.
const OUTDATED: [&str; 6] = [
    "\
# the version
apiVersion: inference.networking.x-k8s.io/v1alpha1   # old
kind: EndpointPickerConfig
featureGates:
- flowControl # on
parser: {pluginRef: openai-parser}
saturationDetector:
  pluginRef: utilization-detector
plugins:
- type: prefix-cache-scorer # hashes
- type: by-label
  name: mine
  parameters:
    label: llm-d.ai/role
    validValues: [a, b]
- type: openai-parser
- type: utilization-detector
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: prefix-cache-scorer
    weight: 3
  - pluginRef: mine
",
    "\
kind: EndpointPickerConfig
plugins:
- type: prefill-header-handler
- type: prefill-filter
- type: decode-filter
- type: queue-scorer
- type: prefix-based-pd-decider
- type: pd-profile-handler
  parameters:
    deciderPluginName: prefix-based-pd-decider
schedulingProfiles:
- name: prefill
  plugins:
  - pluginRef: prefill-filter
- name: decode
  plugins:
  - pluginRef: decode-filter
  - pluginRef: queue-scorer
",
    "\
# the version
apiVersion: config.x-k8s.io/v1alpha1   # old
kind: EndpointPickerConfig
featureGates:
- dataLayer
- flowControl # on
parser: {pluginRef: openai-parser}
saturationDetector:
  pluginRef: utilization-detector
plugins:
- type: prefix-cache-scorer # hashes
  parameters:
    hashBlockSize: 64
    maxPrefixBlocksToMatch: 256
    lruCapacityPerServer: 31250
- type: by-label
  name: mine
  parameters:
    label: llm-d.ai/role
    validValues: [a, b]
- type: openai-parser
- type: utilization-detector
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: prefix-cache-scorer
    weight: 3
  - pluginRef: mine
",
    "\
{\"apiVersion\": \"inference.networking.x-k8s.io/v1alpha1\", \"kind\": \"EndpointPickerConfig\",
 \"featureGates\": [\"prepareDataPlugins\", \"flowControl\"],
 \"plugins\": [{\"type\": \"by-label-selector\", \"parameters\": {\"matchLabels\": {\"a\": \"b\"}}},
  {\"type\": \"precise-prefix-cache-scorer\"}],
 \"schedulingProfiles\": [{\"name\": \"p\", \"plugins\": [{\"pluginRef\": \"by-label-selector\"}]}]}
",
    "\
kind: EndpointPickerConfig
plugins:
- type: prefill-header-handler
- type: prefill-filter
- type: decode-filter
- type: queue-scorer
- type: pd-profile-handler
  parameters:
    threshold: 10
    hashBlockSize: 5
    primaryPort: 8000
schedulingProfiles:
- name: prefill
  plugins:
  - pluginRef: prefill-filter
- name: decode
  plugins:
  - pluginRef: decode-filter
  - pluginRef: queue-scorer
",
    "\
kind: ConfigMap
data:
  plugins.yaml: |
    # inside
    apiVersion: config.x-k8s.io/v1alpha1
    kind: EndpointPickerConfig
    plugins:
    - type: by-label
      parameters: {label: a, validValues: ['b']}
",
];
