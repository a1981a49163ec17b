use super::*;
use crate::config::document;

/// What becomes of a document, and that doing it again changes nothing.
fn migrated(text: &str) -> Migrated {
    let migrated = migrate("f", text).unwrap();
    let again = migrate("f", &migrated.text).unwrap();
    assert_eq!(again.text, migrated.text);
    assert_eq!(again.changes, Vec::<String>::new());
    migrated
}

/// Checks a document before and after, with nothing left to do and no mistake in the result.
fn check(old: &str, new: &str) {
    let migrated = migrated(old);
    assert_eq!(migrated.text, new, "\n{}", migrated.text);
    assert_eq!(migrated.left, Vec::<String>::new(), "{old}");
    let checked = document::check("f", new).unwrap();
    let mut findings = checked.findings.iter();
    assert!(
        findings.all(|it| it.finding.text.contains(NOT_HERE)),
        "{:#?}",
        checked.findings
    );
}

/// What is said of a plugin that this picker lacks; no migration mends that.
const NOT_HERE: &str = "is not registered";

fn check_each(cases: &[(&str, &str)]) {
    for (old, new) in cases {
        check(old, new);
    }
}

#[test]
fn what_is_up_to_date_stays_as_it_is() {
    let text = "kind: EndpointPickerConfig # mine\nplugins: [{type: \"queue-scorer\"}]\n";
    assert_eq!(migrated(text).text, text);
    assert_eq!(migrated(text).changes, Vec::<String>::new());
    assert_eq!(migrate("f", "kind: Service\n"), None);
}

#[test]
fn the_version_gets_its_name() {
    for old in [
        "inference.networking.x-k8s.io/v1alpha1",
        "config.x-k8s.io/v1alpha1",
        "config.apix.x/v1alpha1",
    ] {
        check(
            &format!("# a\napiVersion: {old}   # b\nplugins: []\n"),
            "# a\napiVersion: llm-d.ai/v1alpha1   # b\nplugins: []\n",
        );
    }
    check(
        "{\"apiVersion\": \"config.x-k8s.io/v1alpha1\", \"plugins\": []}",
        "{\"apiVersion\": \"llm-d.ai/v1alpha1\", \"plugins\": []}",
    );
    let left = migrated("apiVersion: llm-d.ai/v2\nplugins: []\n").left;
    assert!(
        left[0].starts_with("f: apiVersion: llm-d.ai/v2 is not known"),
        "{left:?}"
    );
}

#[test]
fn gates_that_are_gone_go() {
    check_each(&[
        (
            "featureGates:\n- dataLayer\n# queues\n- flowControl # on\n- prepareDataPlugins=true\nplugins: []\n",
            "featureGates:\n# queues\n- flowControl # on\nplugins: []\n",
        ),
        ("featureGates: [dataLayer]\nplugins: []\n", "plugins: []\n"),
        (
            "featureGates: [dataLayer, flowControl]\nplugins: []",
            "featureGates: [flowControl]\nplugins: []",
        ),
        (
            "{\"plugins\": [], \"featureGates\": [\"flowControl\", \"dataLayer\"]}",
            "{\"plugins\": [], \"featureGates\": [\"flowControl\"]}",
        ),
        (
            "plugins: []\nfeatureGates:\n  - prepareDataPlugins",
            "plugins: []\n",
        ),
    ]);
}

#[test]
fn the_parser_joins_the_parsers() {
    check_each(&[
        (
            "parser: # first\n  # second\n  pluginRef: openai-parser # third\nplugins: []\n",
            "requestHandler:\n  parsers: # first\n  - # second\n    pluginRef: openai-parser # third\nplugins: []\n",
        ),
        (
            "parser:\n  pluginRef: openai-parser\nplugins: []",
            "requestHandler:\n  parsers:\n  - pluginRef: openai-parser\nplugins: []",
        ),
        (
            "plugins: []\nparser: {pluginRef: openai-parser}",
            "plugins: []\nrequestHandler:\n  parsers: [{\"pluginRef\": openai-parser}]\n",
        ),
        (
            "parser: {pluginRef: openai-parser}\nrequestHandler:\n  parsers:\n  - pluginRef: vllmhttp-parser\n",
            "requestHandler:\n  parsers:\n  - pluginRef: vllmhttp-parser\n",
        ),
        (
            "parser: {pluginRef: openai-parser}\nrequestHandler: {}\nplugins: []\n",
            "requestHandler:\n  parsers: [{\"pluginRef\": openai-parser}]\nplugins: []\n",
        ),
    ]);
}

#[test]
fn the_detector_joins_flow_control() {
    check_each(&[
        (
            "plugins: []\nsaturationDetector: # a\n    # b\n    pluginRef: utilization-detector # c\n# d\n",
            "plugins: []\nflowControl:\n  saturationDetector: # a\n      # b\n      pluginRef: utilization-detector # c\n# d\n",
        ),
        (
            "saturationDetector:\n  pluginRef: utilization-detector\nflowControl:\n    enableEviction: false # x\nplugins: []\n",
            "flowControl:\n    enableEviction: false # x\n    saturationDetector:\n      pluginRef: utilization-detector\nplugins: []\n",
        ),
        (
            "saturationDetector: {pluginRef: utilization-detector}\nflowControl: {enableEviction: false}\n",
            "flowControl: {enableEviction: false, \"saturationDetector\": {\"pluginRef\": utilization-detector}}\n",
        ),
        (
            "saturationDetector: {pluginRef: a}\nflowControl: {saturationDetector: {pluginRef: utilization-detector}}\n",
            "flowControl: {saturationDetector: {pluginRef: utilization-detector}}\n",
        ),
        (
            "{\"saturationDetector\": {\"pluginRef\": \"utilization-detector\"}, \"plugins\": []}",
            "{\"flowControl\": {\"saturationDetector\": {\"pluginRef\": \"utilization-detector\"}}, \"plugins\": []}",
        ),
    ]);
}

#[test]
fn a_new_name_of_a_type_reaches_all_that_refer_to_it() {
    check_each(&[
        (
            "plugins:\n- type: 'by-label-selector' # old\n  parameters:\n    matchLabels: {a: b}\nschedulingProfiles:\n- name: by-label-selector\n  plugins:\n  - pluginRef: by-label-selector\n",
            "plugins:\n- type: \"label-selector-filter\" # old\n  parameters:\n    matchLabels: {a: b}\nschedulingProfiles:\n- name: by-label-selector\n  plugins:\n  - pluginRef: label-selector-filter\n",
        ),
        (
            "plugins:\n- name: mine\n  type: by-label-selector\nschedulingProfiles:\n- name: a\n  plugins: [{pluginRef: mine}]\n",
            "plugins:\n- name: mine\n  type: label-selector-filter\nschedulingProfiles:\n- name: a\n  plugins: [{pluginRef: mine}]\n",
        ),
        // The new name is taken.
        (
            "plugins:\n- type: prefix-cache-scorer\n- type: prefix-cache-plugin\n# end\n",
            "plugins:\n- type: prefix-cache-scorer\n- type: prefix-cache-scorer\n  name: prefix-cache-plugin\n# end\n",
        ),
        (
            "plugins: [{type: tokenizer}]\n",
            "plugins: [{type: token-producer}]\n",
        ),
    ]);
    let left = migrated(
        "plugins:\n- type: tokenizer\n  parameters: {udsTokenizerConfig: {socketFile: /a}}\n",
    );
    assert!(
        left.left[0].contains("plugins[0].parameters.udsTokenizerConfig"),
        "{left:?}"
    );
}

#[test]
fn one_label_becomes_a_selector() {
    check_each(&[
        (
            "plugins:\n- type: by-label\n  parameters:\n    label: llm-d.ai/role # which\n    validValues:\n    - decode # one\n    - both\n    allowsNoLabel: false\n",
            "plugins:\n- type: label-selector-filter\n  parameters:\n    matchExpressions:\n    - key: llm-d.ai/role # which\n      operator: In\n      values:\n      - decode # one\n      - both\n",
        ),
        (
            "plugins:\n- type: by-label\n  name: x\n  parameters: {validValues: [decode], label: a}\n",
            "plugins:\n- type: label-selector-filter\n  name: x\n  parameters: {\"matchExpressions\": [{\"key\": a, \"operator\": \"In\", \"values\": [decode]}]}\n",
        ),
    ]);
    let left = migrated(
        "plugins:\n- type: by-label\n  parameters: {label: a, validValues: [b], allowsNoLabel: true}\n",
    );
    assert!(left.left[0].contains("plugins[0]: no selector"), "{left:?}");
}

#[test]
fn a_producer_takes_over_what_the_scorer_hashed() {
    check_each(&[
        (
            "plugins:\n- type: prefix-cache-scorer\n  # how\n  parameters: # what\n    # size\n    blockSizeTokens: 16 # tokens\n    lruCapacityPerServer: 31250\n- type: queue-scorer\n",
            "plugins:\n- type: prefix-cache-scorer\n  # how\n- type: approx-prefix-cache-producer\n  parameters: # what\n    # size\n    blockSizeTokens: 16 # tokens\n    lruCapacityPerServer: 31250\n- type: queue-scorer\n",
        ),
        (
            "plugins:\n  - type: prefix-cache-scorer\n    parameters:\n      matchLengthWeight: 0.5\n      hashBlockSize: 64 # bytes\n      maxPrefixBlocksToMatch: 256\n",
            "plugins:\n  - type: prefix-cache-scorer\n    parameters:\n      matchLengthWeight: 0.5\n  - type: approx-prefix-cache-producer\n    parameters:\n      blockSizeTokens: 16 # bytes\n",
        ),
        (
            "plugins: [{\"type\": \"prefix-cache-plugin\", \"parameters\": {\"hashBlockSize\": 5, \"matchLengthWeight\": 0, \"autoTune\": true}}]\n",
            "plugins: [{\"type\": \"prefix-cache-scorer\", \"parameters\": {\"matchLengthWeight\": 0}}, {\"type\": \"approx-prefix-cache-producer\", \"parameters\": {\"blockSizeTokens\": 2, \"autoTune\": true}}]\n",
        ),
        (
            "plugins:\n- parameters: {maxPrefixBlocksToMatch: 10, maxPrefixTokensToMatch: 0}\n  type: prefix-cache-scorer",
            "plugins:\n- type: prefix-cache-scorer\n- type: approx-prefix-cache-producer\n  parameters: {maxPrefixTokensToMatch: 640}",
        ),
        (
            "plugins:\n- type: approx-prefix-cache-producer\n  parameters:\n    maxPrefixBlocksToMatch: 10\n- type: approx-prefix-cache-producer\n  name: b\n  parameters: {blockSize: 16}\n",
            "plugins:\n- type: approx-prefix-cache-producer\n- type: approx-prefix-cache-producer\n  name: b\n  parameters: {blockSizeTokens: 16}\n",
        ),
    ]);
    let text = "plugins:\n- type: prefix-cache-scorer\n  parameters: {hashBlockSize: 5}\n- type: approx-prefix-cache-producer\n";
    let left = migrated(text);
    assert_eq!(left.text, text);
    assert!(
        left.left[0].contains("plugins[0].parameters: how prompts are hashed"),
        "{left:?}"
    );
}

#[test]
fn what_needs_events_goes_by_answers() {
    check_each(&[
        (
            "plugins:\n- type: precise-prefix-cache-scorer\n  parameters:\n    indexerConfig: {}\nschedulingProfiles:\n- name: a\n  plugins:\n  - pluginRef: precise-prefix-cache-scorer\n    weight: 3\n",
            "plugins:\n- type: prefix-cache-scorer\nschedulingProfiles:\n- name: a\n  plugins:\n  - pluginRef: prefix-cache-scorer\n    weight: 3\n",
        ),
        (
            "plugins:\n- type: precise-prefix-cache-producer\n- type: prefix-cache-scorer\n  parameters:\n    prefixMatchInfoProducerName: precise-prefix-cache-producer\n",
            "plugins:\n- type: approx-prefix-cache-producer\n- type: prefix-cache-scorer\n  parameters:\n    prefixMatchInfoProducerName: approx-prefix-cache-producer\n",
        ),
    ]);
}

/// A document with two profiles and these plugins.
fn disaggregated(plugins: &str) -> String {
    format!(
        "plugins:\n{plugins}- type: prefill-filter\n- type: decode-filter\nschedulingProfiles:\n- name: \
         prefill\n  plugins:\n  - pluginRef: prefill-filter\n- name: decode\n  plugins:\n  - pluginRef: \
         decode-filter\n"
    )
}

#[test]
fn the_handler_of_two_stages_becomes_that_of_all() {
    for (old, new) in [
        (
            "- type: prefill-header-handler\n- type: prefix-based-pd-decider\n  parameters:\n    nonCachedTokens: 16\n- type: pd-profile-handler\n  parameters:\n    deciderPluginName: prefix-based-pd-decider # who\n",
            "- type: prefix-based-pd-decider\n  parameters:\n    nonCachedTokens: 16\n- type: disagg-profile-handler\n  parameters:\n    deciders:\n      prefill: prefix-based-pd-decider # who\n",
        ),
        (
            "- type: pd-profile-handler\n",
            "- type: disagg-profile-handler\n  parameters:\n    deciders:\n      prefill: always-disagg-pd-decider\n- type: always-disagg-pd-decider\n",
        ),
        (
            "- type: pd-profile-handler\n  parameters:\n    threshold: 0 # always\n    hashBlockSize: 5\n",
            "- type: disagg-profile-handler\n  parameters:\n    deciders:\n      prefill: always-disagg-pd-decider\n- type: always-disagg-pd-decider\n",
        ),
        (
            "- type: pd-profile-handler\n  parameters:\n    threshold: 10\n",
            "- type: disagg-profile-handler\n  parameters:\n    deciders:\n      prefill: prefix-based-pd-decider\n- type: prefix-based-pd-decider\n  parameters:\n    nonCachedTokens: 3\n",
        ),
        (
            "- type: prefix-based-pd-decider\n- type: pd-profile-handler\n  parameters: {decodeProfile: decode}\n",
            "- type: prefix-based-pd-decider\n- type: disagg-profile-handler\n  parameters: {\"profiles\": {\"decode\": decode}, \"deciders\": {\"prefill\": \"prefix-based-pd-decider\"}}\n",
        ),
        (
            "- type: always-disagg-pd-decider\n- type: disagg-profile-handler\n  parameters:\n    decodeProfile: decode # d\n    # then\n    prefillProfile: prefill # p\n    deciderPluginName: always-disagg-pd-decider\n",
            "- type: always-disagg-pd-decider\n- type: disagg-profile-handler\n  parameters:\n    profiles:\n      decode: decode # d\n      prefill: prefill # p\n    # then\n    deciders:\n      prefill: always-disagg-pd-decider\n",
        ),
    ] {
        check(&disaggregated(old), &disaggregated(new));
    }
    let text = disaggregated("- type: pd-profile-handler\n  parameters: {primaryPort: 8000}\n");
    let left = migrated(&text).left;
    assert!(left[0].contains("parameters.primaryPort: "), "{left:?}");
}

#[test]
fn documents_are_migrated_wherever_they_stand() {
    let (old, new) = ("config.x-k8s.io/v1alpha1", "llm-d.ai/v1alpha1");
    for frame in [
        "# first\nkind: Service\n---\napiVersion: VERSION # here\nplugins: []\n---\nplugins: []\napiVersion: VERSION\n",
        "pools:\n- name: a\n  picker:\n    apiVersion: VERSION\n    plugins: []\n  endpoints: [{address: '10.0.0.1:80'}]\n",
        "epp:\n  pluginsCustomConfig:\n    # deep\n    a.yaml: |\n      # é\n\n      apiVersion: VERSION\n\n\n      kind: EndpointPickerConfig\n      # end\n\n    b: 1\n",
        "data:\n  a: |2-\n\n    apiVersion: VERSION # a\n    kind: EndpointPickerConfig\n",
        "data:\n  a: \"apiVersion: VERSION\\nkind: EndpointPickerConfig\\n\" # quoted\n",
        "data:\n  b: |\n    kind: EndpointPickerConfig\n  a: |\n    apiVersion: VERSION\n    kind: EndpointPickerConfig",
        "kind: List\nitems:\n- config:\n    kind: EndpointPickerConfig\n    apiVersion: VERSION\n",
    ] {
        let new_text = frame.replace("VERSION", new);
        check(&frame.replace("VERSION", old), &new_text);
    }
    let folded = "data:\n  a: >\n    {apiVersion: config.x-k8s.io/v1alpha1,\n    kind: EndpointPickerConfig}\n";
    let left = migrated(folded);
    assert_eq!((left.text.as_str(), left.changes.len()), (folded, 0));
    assert!(
        left.left[0].starts_with("f#data.a: the text is folded"),
        "{left:?}"
    );
}

#[test]
fn what_cannot_be_read_is_left_alone() {
    let text = "plugins: [\n";
    let left = migrated(text);
    assert_eq!(left.text, text);
    assert!(
        left.left[0].starts_with("f: this cannot be read: "),
        "{left:?}"
    );
}

#[test]
fn every_change_is_told_with_its_place_and_reason() {
    let text = "apiVersion: config.x-k8s.io/v1alpha1\nfeatureGates: [dataLayer]\nplugins:\n- type: tokenizer\n";
    assert_eq!(
        migrated(text).changes,
        [
            "f: apiVersion: config.x-k8s.io/v1alpha1 is called llm-d.ai/v1alpha1 now",
            "f: featureGates: dataLayer is gone; what it switched on is always on",
            "f: plugins[0].type: tokenizer is called token-producer now",
        ]
    );
}

#[test]
fn the_diff_is_that_of_lines() {
    assert_eq!(diff("f", "a\nb\n", "a\nb\n"), "");
    let expected = "--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n";
    assert_eq!(diff("f", "a\nb\n", "a\nc\n"), expected);
}
