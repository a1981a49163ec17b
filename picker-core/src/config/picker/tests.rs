use alloc::format;
use alloc::vec;

use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::super::tests::{check_pool, config, with_pool};
use super::*;
use crate::profile::Profile;

pub(in crate::config) fn plan_of(picker: Value) -> Plan {
    config(&with_pool(json!({"picker": picker}))).pools[0]
        .plan
        .clone()
}

pub(in crate::config) fn check(picker: Value, expected: &[&str]) {
    let expected: Vec<String> = expected
        .iter()
        .map(|it| format!("pools[0].picker{it}"))
        .collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check_pool(json!({"picker": picker}), &expected);
}

/// The first profile in short: scorers with weights, then how many endpoints are named.
fn show(plan: &Plan) -> String {
    let types = |name: &Value| {
        let plugins = plan.document["plugins"].as_array().unwrap();
        let plugin = plugins.iter().find(|it| it["name"] == *name).unwrap();
        plugin["type"].as_str().unwrap().to_string()
    };
    let references = plan.document["schedulingProfiles"][0]["plugins"].as_array();
    let weighted = references.unwrap().iter().filter_map(|it| {
        let weight = it.get("weight")?.as_f64().unwrap();
        Some(format!("{} {weight}", types(&it["pluginRef"])))
    });
    let mut words: Vec<String> = weighted.collect();
    words.sort_unstable();
    let picker = plan.profiles[0].picker;
    format!("{} max {}", words.join(", "), picker.destinations_max)
}

#[test]
fn a_document_of_the_reference_picker_is_read() {
    let picker = json!({
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [
            {"type": "single-profile-handler"},
            {"type": "queue-scorer", "name": "short-queue", "parameters": {}},
            {"type": "prefix-cache-scorer", "parameters": null},
            {"type": "max-score-picker", "parameters": {"maxNumOfEndpoints": 2}},
        ],
        "schedulingProfiles": [{
            "name": "default",
            "plugins": [
                {"pluginRef": "max-score-picker"},
                {"pluginRef": "short-queue", "weight": 2},
                {"pluginRef": "prefix-cache-scorer"},
            ],
        }],
    });
    assert_eq!(
        show(&plan_of(picker.clone())),
        "prefix-cache-scorer 1, queue-scorer 2 max 2"
    );
    // Order has no meaning: neither that of the plugins nor that of the references.
    let expected = show(&plan_of(picker.clone()));
    for plugins in orders(picker["plugins"].as_array().unwrap()) {
        let references = picker["schedulingProfiles"][0]["plugins"].as_array();
        for references in orders(references.unwrap()) {
            let mut turned = picker.clone();
            turned["plugins"] = plugins.clone().into();
            turned["schedulingProfiles"][0]["plugins"] = references.into();
            assert_eq!(show(&plan_of(turned)), expected);
        }
    }
}

/// `items` in every order.
fn orders(items: &[Value]) -> Vec<Vec<Value>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let with_first = |place: usize| {
        let mut rest = items.to_vec();
        let first = rest.remove(place);
        orders(&rest)
            .into_iter()
            .map(move |rest| [vec![first.clone()], rest].concat())
    };
    (0..items.len()).flat_map(with_first).collect()
}

#[test]
fn what_is_left_out_is_filled_in() {
    let queue = json!({"type": "queue-scorer"});
    let max = |count: i64| {
        let parameters = json!({"maxNumOfEndpoints": count});
        json!({"type": "max-score-picker", "parameters": parameters})
    };
    let of_queue = json!([{"name": "p", "plugins": [{"pluginRef": "queue-scorer"}]}]);
    for (picker, expected) in [
        (json!({}), " max 1"),
        (json!({"plugins": [queue]}), "queue-scorer 1 max 1"),
        (json!({"plugins": [queue, max(3)]}), "queue-scorer 1 max 3"),
        (json!({"plugins": [queue, max(0)]}), "queue-scorer 1 max 1"),
        (json!({"plugins": [queue, max(-5)]}), "queue-scorer 1 max 1"),
        (
            json!({"plugins": [queue, max(64)]}),
            "queue-scorer 1 max 64",
        ),
        // A picker that no profile refers to is every profile's.
        (
            json!({"plugins": [queue, max(3)], "schedulingProfiles": of_queue}),
            "queue-scorer 1 max 3",
        ),
        (
            json!({
                "plugins": [queue, {"type": "prefix-cache-scorer"}],
                "schedulingProfiles": of_queue,
            }),
            "queue-scorer 1 max 1",
        ),
    ] {
        assert_eq!(show(&plan_of(picker.clone())), expected, "{picker}");
    }
    assert_eq!(
        config(&with_pool(json!({}))).pools[0].plan.profiles,
        [Profile::default()]
    );
}

#[test]
fn the_version_is_the_one_there_is_or_its_older_name() {
    for version in [
        "llm-d.ai/v1alpha1",
        "inference.networking.x-k8s.io/v1alpha1",
    ] {
        plan_of(json!({"apiVersion": version}));
    }
    for version in ["config.x-k8s.io/v1alpha1", "v1"] {
        check(
            json!({"apiVersion": version, "kind": "EndpointPickerConfg"}),
            &[
                &format!(
                    ".apiVersion: {version:?} is not the version of this document. \
                     Fix: write llm-d.ai/v1alpha1."
                ),
                ".kind: \"EndpointPickerConfg\" is no known kind of document. \
                 Fix: write \"EndpointPickerConfig\".",
            ],
        );
    }
}

#[test]
fn a_plugin_is_known_and_has_a_name_of_its_own() {
    check(
        json!({"featureGates": ["flowControl=1", "dataLayer", "x", "flowControl=y"], "plugins": [
            {"type": "queue-scorrer", "parameters": {"a": 1}},
            {"type": "beam-picker"},
            {"name": "x"},
            {"type": "queue-scorer"},
            {
                "type": "kv-cache-utilization-scorer",
                "name": "queue-scorer",
                "parameters": {"lruCapacityPerServer": 10},
            },
            {"type": "max-score-picker", "parameters": {"maxNumOfEndpoints": 65}},
            {"type": "precise-prefix-cache-producer"},
        ]}),
        &[
            ".featureGates[1]: feature gate 'dataLayer' is unknown or unregistered. Fix: remove \
             it; what it switched on is always on.",
            ".featureGates[2]: feature gate 'x' is unknown or unregistered. Fix: use one of \
             flowControl, haPopulateNonLeaderDatastore.",
            ".featureGates[3]: the feature gate \"flowControl\" is neither on nor off. Fix: write \
             flowControl=true or flowControl=false.",
            ".plugins[0].type: plugin type 'queue-scorrer' is not registered. Fix: write \
             \"queue-scorer\".",
            ".plugins[1].type: plugin type 'beam-picker' is not registered. Fix: use one of \
             max-score-picker, random-picker, weighted-random-picker.",
            ".plugins[2].type: plugin 'x' is missing a type. Fix: write the type of a plugin, \
             like type: queue-scorer.",
            ".plugins[4].parameters.lruCapacityPerServer: \"lruCapacityPerServer\" is no \
             known key. Fix: remove it.",
            ".plugins[4]: duplicate plugin name 'queue-scorer', which is that of \
             pools[0].picker.plugins[3]. Fix: give one of them another name, or remove it.",
            ".plugins[5].parameters.maxNumOfEndpoints: 65 is not between 1 and 64. \
             Fix: choose a value from 1 to 64.",
            ".plugins[6].type: plugin type 'precise-prefix-cache-producer' cannot work here. Fix: \
             KV events come over ZMQ, which a proxy does not speak; use \
             approx-prefix-cache-producer or least-cost-scorer, which learn from the engines' \
             answers.",
        ],
    );
}

#[test]
fn a_reference_leads_to_a_plugin() {
    check(
        json!({
            "plugins": [
                {"type": "queue-scorer", "name": "short-queue"},
                {"type": "max-score-picker"},
                {"type": "single-profile-handler"},
            ],
            "schedulingProfiles": [{"plugins": [
                {"pluginRef": "short-queues"},
                {"pluginRef": "prefix-cache-scorer"},
                {"weight": 1},
                {"pluginRef": "short-queue", "wieght": 2},
                {"pluginRef": "short-queue", "weight": "2"},
                {"pluginRef": "max-score-picker", "weight": 1},
                {"pluginRef": "single-profile-handler"},
            ]}],
        }),
        &[
            ".schedulingProfiles[0].name: schedulingProfiles[0] is missing a name. Fix: write a \
             name, like name: default.",
            ".schedulingProfiles[0].plugins[0].pluginRef: schedulingProfiles[] references undefined \
             plugin 'short-queues'. \
             Fix: write \"short-queue\".",
            ".schedulingProfiles[0].plugins[1].pluginRef: schedulingProfiles[] references undefined \
             plugin 'prefix-cache-scorer'. Fix: declare it in plugins, or use one of short-queue, max-score-picker.",
            ".schedulingProfiles[0].plugins[2].pluginRef: schedulingProfiles[].plugins[2] is missing \
             a 'pluginRef'. \
             Fix: write the name of a plugin of the list above.",
            ".schedulingProfiles[0].plugins[3].wieght: \"wieght\" is no known key. Fix: \
             write \"weight\".",
            ".schedulingProfiles[0].plugins[4].weight: \"2\" is not a number. \
             Fix: write a number without quotes.",
            ".schedulingProfiles[0].plugins[4]: the plugin \"short-queue\" is already that of \
             pools[0].picker.schedulingProfiles[0].plugins[3]. \
             Fix: choose another plugin or remove one.",
            ".schedulingProfiles[0].plugins[5].weight: \"max-score-picker\" is no scorer and \
             has no weight. \
             Fix: remove the weight.",
            ".schedulingProfiles[0].plugins[6].pluginRef: \"single-profile-handler\" neither \
             filters, scores nor picks. \
             Fix: remove the reference.",
        ],
    );
}

#[test]
fn what_chance_would_settle_is_refused() {
    let max = |name: &str| json!({"type": "max-score-picker", "name": name});
    let refer = |names: &[&str]| {
        let references: Vec<Value> = names.iter().map(|it| json!({"pluginRef": it})).collect();
        json!([{"name": "p", "plugins": references}])
    };
    let none = |profile: &str| {
        format!(
            ".schedulingProfiles: the profile '{profile}' has no picker, and there are several: a, \
             b. Fix: refer to one of them in the profile, or keep one."
        )
    };
    check(
        json!({"plugins": [max("a"), max("b")]}),
        &[&none("default")],
    );
    let declared = json!([max("a"), max("b")]);
    let two = ".schedulingProfiles[0].plugins[1]: failed to set 'b' as picker, already have a \
               registered picker plugin 'a'. Fix: keep one.";
    for (references, expected) in [
        (&["a"][..], vec![]),
        (&[], vec![none("p")]),
        (&["a", "b"], vec![two.to_string()]),
    ] {
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(
            json!({"plugins": declared, "schedulingProfiles": refer(references)}),
            &expected,
        );
    }
    let handler = |name: &str| json!({"type": "single-profile-handler", "name": name});
    check(
        json!({"plugins": [handler("a"), handler("b")]}),
        &[
            ".plugins: multiple profile handlers found ('a', 'b'); only one is allowed. Fix: keep one.",
        ],
    );
    check(
        json!({"schedulingProfiles": [{"name": "p"}, {"name": "p", "x": 1}]}),
        &[
            ".schedulingProfiles[1].x: \"x\" is no known key. Fix: use one of name, plugins.",
            ".schedulingProfiles[1]: schedulingProfiles[1] has duplicate name 'p'. Fix: give it \
             another name.",
            ".schedulingProfiles: no profile handler configured. Fix: declare one that runs \
             several profiles, like disagg-profile-handler.",
        ],
    );
    check(
        json!({
            "plugins": [handler("a")],
            "schedulingProfiles": [{"name": "p"}, {"name": "q"}],
        }),
        &[
            ".schedulingProfiles: SingleProfileHandler cannot support multiple scheduling \
             profiles. Fix: keep one profile, or declare disagg-profile-handler.",
        ],
    );
}

#[test]
fn a_weight_is_a_number_from_zero_up() {
    let with = |weight: Value| {
        json!({
            "plugins": [{"type": "queue-scorer"}],
            "schedulingProfiles": [{
                "name": "p",
                "plugins": [{"pluginRef": "queue-scorer", "weight": weight}],
            }],
        })
    };
    for weight in [0.0, 0.5, 1e6] {
        assert_eq!(
            plan_of(with(json!(weight))).profiles[0].scorers[0].weight,
            weight
        );
    }
    for weight in ["-1", "1000001"] {
        check(
            with(weight.parse().unwrap()),
            &[&format!(
                ".schedulingProfiles[0].plugins[0].weight: {weight} is not between 0 and \
                 1000000. \
                 Fix: choose a value from 0 to 1000000."
            )],
        );
    }
}
