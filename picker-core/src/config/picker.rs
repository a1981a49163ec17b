//! The reference picker's `EndpointPickerConfig`: plugins, and a profile that refers to them.
//!
//! The order of the lists has no meaning. What is not given is filled in as the reference picker
//! does: a profile of all plugins, a weight of 1, `max-score-picker`. What would be settled there
//! by chance is a mistake here.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::error::{Cause, Wanted};
use super::nearest::unknown;
use super::node::{Node, Object};
use super::{DESTINATIONS_MAX, PICKER_API_VERSION, PLUGINS_MAX};
use crate::profile::{Profile, WeightedScorer};
use crate::score::{LeastCost, ScorerKind};

/// The profile that `picker` of a pool describes, the default one when it is left out.
pub(super) fn profile(pool: &mut Object<'_>) -> Profile {
    let profile = pool
        .key("picker")
        .and_then(|picker| picker.object(document));
    profile.unwrap_or_default()
}

/// A plugin of the list.
struct Plugin {
    name: String,
    path: String,
    kind: PluginKind,
}

/// What a plugin does.
#[derive(Clone, Copy, PartialEq)]
enum PluginKind {
    Scorer(ScorerKind),
    /// Names the best candidates, so many of them.
    MaxScore(usize),
    /// Runs the one profile there is.
    SingleProfile,
}

fn document(document: &mut Object<'_>) -> Profile {
    if let Some(version) = document.key("apiVersion") {
        api_version(&version);
    }
    if let Some(kind) = document.key("kind") {
        kind.choice("kind of document", &[("EndpointPickerConfig", ())]);
    }
    let plugins = plugins(document);
    let handlers = plugins
        .iter()
        .filter(|it| it.kind == PluginKind::SingleProfile);
    refuse_several(document, "plugins", "profile handlers", handlers);
    let profiles = document.key("schedulingProfiles");
    let profiles = profiles.map(|it| it.filled_list(PLUGINS_MAX, Wanted::List));
    match profiles {
        None => all_of(document, &plugins),
        Some(profiles) => one_of(document, &plugins, &profiles),
    }
}

/// Accepts the version there is and the name it had before.
fn api_version(version: &Node<'_>) {
    let accepted = [PICKER_API_VERSION, OLD_API_VERSION];
    if let Some(text) = version.text()
        && !accepted.contains(&text)
    {
        version.fail(Cause::ApiVersion(text.into()));
    }
}

fn plugins(document: &mut Object<'_>) -> Vec<Plugin> {
    let list = document.key("plugins").map(|it| it.list(PLUGINS_MAX));
    let mut plugins: Vec<Plugin> = Vec::new();
    for node in list.into_iter().flatten() {
        let Some(plugin) = node.object(|it| plugin(it, node.path())).flatten() else {
            continue;
        };
        if let Some(first) = plugins.iter().find(|it| it.name == plugin.name) {
            node.fail(Cause::Duplicate {
                what: "name",
                value: plugin.name.clone(),
                first: first.path.clone(),
            });
        }
        plugins.push(plugin);
    }
    plugins
}

fn plugin(plugin: &mut Object<'_>, path: &str) -> Option<Plugin> {
    let kind = plugin.needed("type", Wanted::PluginType);
    let named = kind.and_then(|it| Some((it.text()?, it.choice("plugin type", &PLUGIN_TYPES)?)));
    let name = plugin.key("name");
    let name = name.and_then(|it| it.text_that(Wanted::Name, |it| !it.is_empty()));
    let Some((type_name, mut kind)) = named else {
        // What its parameters may be is not known either.
        plugin.key("parameters");
        return None;
    };
    plugin.section("parameters", |parameters| {
        if let PluginKind::MaxScore(destinations_max) = &mut kind {
            let given = parameters.key("maxNumOfEndpoints");
            *destinations_max = given.and_then(|it| destinations(&it)).unwrap_or(1);
        }
        if let PluginKind::Scorer(ScorerKind::LeastCost(rule)) = &mut kind {
            for (key, value) in rule.parameters_mut() {
                let given = parameters.key(key);
                *value = given.as_ref().and_then(weight).unwrap_or(*value);
            }
        }
    });
    Some(Plugin {
        name: name.unwrap_or(type_name).to_string(),
        path: path.to_string(),
        kind,
    })
}

/// How many endpoints to name: the reference picker takes less than 1 for 1.
fn destinations(node: &Node<'_>) -> Option<usize> {
    if node.integer(Wanted::Integer)? <= 0 {
        return Some(1);
    }
    let count = node.integer_within(Wanted::Integer, 1, DESTINATIONS_MAX)?;
    usize::try_from(count).ok()
}

/// The profile of all plugins.
fn all_of(document: &Object<'_>, plugins: &[Plugin]) -> Profile {
    let pickers = plugins.iter().filter(|it| it.destinations_max().is_some());
    refuse_several(document, "plugins", "plugins that pick", pickers);
    Profile {
        scorers: plugins.iter().filter_map(|it| it.weighted(1.0)).collect(),
        destinations_max: plugins
            .iter()
            .find_map(Plugin::destinations_max)
            .unwrap_or(1),
    }
}

/// The only one of the profiles.
fn one_of(document: &Object<'_>, plugins: &[Plugin], profiles: &[Node<'_>]) -> Profile {
    if profiles.len() > 1 {
        document.fail_at(
            "schedulingProfiles",
            Cause::Several {
                what: "profiles",
                names: profiles.iter().map(|it| it.path().to_string()).collect(),
            },
        );
    }
    let mut read = profiles.iter().filter_map(|node| {
        node.object(|it| {
            it.needed("name", Wanted::ProfileName)
                .and_then(|it| it.text_that(Wanted::ProfileName, |it| !it.is_empty()));
            references(it, plugins)
        })
    });
    let first = read.next();
    // The others are read for their mistakes.
    read.for_each(drop);
    first.unwrap_or_default()
}

fn references(profile: &mut Object<'_>, plugins: &[Plugin]) -> Profile {
    let list = profile.key("plugins").map(|it| it.list(PLUGINS_MAX));
    let mut seen: Vec<(&Plugin, String)> = Vec::new();
    let mut scorers = Vec::new();
    for node in list.into_iter().flatten() {
        let reference = node.object(|it| reference(it, plugins)).flatten();
        let Some((plugin, weight)) = reference else {
            continue;
        };
        if let Some((_, first)) = seen.iter().find(|(it, _)| it.name == plugin.name) {
            node.fail(Cause::Duplicate {
                what: "plugin",
                value: plugin.name.clone(),
                first: first.clone(),
            });
        }
        if plugin.kind == PluginKind::SingleProfile {
            node.fail(Cause::NotForProfiles(plugin.name.clone()));
        }
        scorers.extend(plugin.weighted(weight));
        seen.push((plugin, node.path().to_string()));
    }
    let pickers = seen.iter().map(|(it, _)| *it);
    let mut pickers: Vec<&Plugin> = pickers
        .filter(|it| it.destinations_max().is_some())
        .collect();
    if pickers.is_empty() {
        pickers = plugins
            .iter()
            .filter(|it| it.destinations_max().is_some())
            .collect();
    }
    refuse_several(
        profile,
        "plugins",
        "plugins that pick",
        pickers.iter().copied(),
    );
    let picker = pickers.first().and_then(|it| it.destinations_max());
    Profile {
        scorers,
        destinations_max: picker.unwrap_or(1),
    }
}

/// The plugin that is referred to, and its weight.
fn reference<'p>(reference: &mut Object<'_>, plugins: &'p [Plugin]) -> Option<(&'p Plugin, f64)> {
    let node = reference.needed("pluginRef", Wanted::PluginRef);
    let weight_node = reference.key("weight");
    let weight = weight_node.as_ref().and_then(weight);
    let node = node?;
    let name = node.text()?;
    let plugin = plugins.iter().find(|it| it.name == name);
    let Some(plugin) = plugin else {
        let known = plugins.iter().map(|it| it.name.as_str());
        node.fail(unknown("plugin", name, known));
        return None;
    };
    if let Some(node) = weight_node.filter(|_| plugin.weighted(1.0).is_none()) {
        node.fail(Cause::WeightOfNoScorer(name.into()));
    }
    Some((plugin, weight.unwrap_or(1.0)))
}

/// A weight, or another factor that is not negative.
fn weight(node: &Node<'_>) -> Option<f64> {
    let weight = node.number()?;
    if !(0.0..=WEIGHT_MAX).contains(&weight) {
        node.out_of_range("0".to_string(), WEIGHT_MAX.to_string());
        return None;
    }
    Some(weight)
}

fn refuse_several<'p>(
    object: &Object<'_>,
    key: &str,
    what: &'static str,
    plugins: impl Iterator<Item = &'p Plugin>,
) {
    let names: Vec<String> = plugins.map(|it| it.name.clone()).collect();
    if names.len() > 1 {
        object.fail_at(key, Cause::Several { what, names });
    }
}

impl Plugin {
    fn weighted(&self, weight: f64) -> Option<WeightedScorer> {
        match self.kind {
            PluginKind::Scorer(scorer) => Some(WeightedScorer { scorer, weight }),
            _ => None,
        }
    }

    fn destinations_max(&self) -> Option<usize> {
        match self.kind {
            PluginKind::MaxScore(destinations_max) => Some(destinations_max),
            _ => None,
        }
    }
}

/// The type of the plugin that gives this score.
pub(super) fn type_of(scorer: ScorerKind) -> &'static str {
    match scorer {
        ScorerKind::Queue => "queue-scorer",
        ScorerKind::KvCacheUtilization => "kv-cache-utilization-scorer",
        ScorerKind::LeastCost(_) => "least-cost-scorer",
        ScorerKind::Prefix => "prefix-cache-scorer",
    }
}

/// The plugin types there are.
const PLUGIN_TYPES: [(&str, PluginKind); 6] = [
    ("queue-scorer", PluginKind::Scorer(ScorerKind::Queue)),
    (
        "kv-cache-utilization-scorer",
        PluginKind::Scorer(ScorerKind::KvCacheUtilization),
    ),
    (
        "least-cost-scorer",
        PluginKind::Scorer(ScorerKind::LeastCost(LeastCost::DEFAULT)),
    ),
    (
        "prefix-cache-scorer",
        PluginKind::Scorer(ScorerKind::Prefix),
    ),
    ("max-score-picker", PluginKind::MaxScore(1)),
    ("single-profile-handler", PluginKind::SingleProfile),
];

/// The name of the version before the project moved; many documents still have it.
const OLD_API_VERSION: &str = "inference.networking.x-k8s.io/v1alpha1";

/// The largest weight: totals stay far from where sums of doubles lose the small ones.
const WEIGHT_MAX: f64 = 1_000_000.0;

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec;

    use serde_json::{Value, json};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::super::tests::{check_pool, config, with_pool};
    use super::*;

    fn profile_of(picker: Value) -> Profile {
        config(&with_pool(json!({"picker": picker}))).pools[0]
            .profile
            .clone()
    }

    fn check(picker: Value, expected: &[&str]) {
        let expected: Vec<String> = expected
            .iter()
            .map(|it| format!("pools[0].picker{it}"))
            .collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check_pool(json!({"picker": picker}), &expected);
    }

    /// The profile in short: scorers with weights in the order given, then how many endpoints are
    /// named.
    fn show(profile: &Profile) -> String {
        let scorers = profile.scorers.iter();
        let mut words: Vec<String> = scorers
            .map(|it| format!("{} {}", type_of(it.scorer), it.weight))
            .collect();
        words.sort_unstable();
        format!("{} max {}", words.join(", "), profile.destinations_max)
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
            show(&profile_of(picker.clone())),
            "prefix-cache-scorer 1, queue-scorer 2 max 2"
        );
        // Order has no meaning: neither that of the plugins nor that of the references.
        for turn in 0..4 {
            let mut turned = picker.clone();
            turned["plugins"].as_array_mut().unwrap().rotate_left(turn);
            let references = &mut turned["schedulingProfiles"][0]["plugins"];
            references.as_array_mut().unwrap().rotate_left(turn % 3);
            assert_eq!(
                show(&profile_of(turned.clone())),
                show(&profile_of(picker.clone()))
            );
            turned["plugins"].as_array_mut().unwrap().reverse();
            turned["schedulingProfiles"][0]["plugins"]
                .as_array_mut()
                .unwrap()
                .reverse();
            assert_eq!(show(&profile_of(turned)), show(&profile_of(picker.clone())));
        }
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
            assert_eq!(show(&profile_of(picker.clone())), expected, "{picker}");
        }
        assert_eq!(
            config(&with_pool(json!({}))).pools[0].profile,
            Profile::default()
        );
    }

    #[test]
    fn the_version_is_the_one_there_is_or_its_older_name() {
        for version in [
            "llm-d.ai/v1alpha1",
            "inference.networking.x-k8s.io/v1alpha1",
        ] {
            profile_of(json!({"apiVersion": version}));
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
            json!({"featureGates": [], "plugins": [
                {"type": "queue-scorrer", "parameters": {"a": 1}},
                {"type": "random-picker"},
                {"name": "x"},
                {"type": "queue-scorer"},
                {
                    "type": "prefix-cache-scorer",
                    "name": "queue-scorer",
                    "parameters": {"lruCapacityPerServer": 10},
                },
                {"type": "max-score-picker", "parameters": {"maxNumOfEndpoints": 65}},
            ]}),
            &[
                ".plugins[0].type: \"queue-scorrer\" is no known plugin type. Fix: write \
                 \"queue-scorer\".",
                ".plugins[1].type: \"random-picker\" is no known plugin type. Fix: use one of \
                 queue-scorer, \
                 kv-cache-utilization-scorer, least-cost-scorer, prefix-cache-scorer, \
                 max-score-picker, \
                 single-profile-handler.",
                ".plugins[2].type: a plugin type is missing. Fix: write the type of a plugin, \
                 like queue-scorer.",
                ".plugins[4].parameters.lruCapacityPerServer: \"lruCapacityPerServer\" is no \
                 known key. \
                 Fix: remove it.",
                ".plugins[4]: the name \"queue-scorer\" is already that of \
                 pools[0].picker.plugins[3]. \
                 Fix: choose another name or remove one.",
                ".plugins[5].parameters.maxNumOfEndpoints: 65 is not between 1 and 64. \
                 Fix: choose a value from 1 to 64.",
                ".featureGates: \"featureGates\" is no known key. \
                 Fix: use one of apiVersion, kind, plugins, schedulingProfiles.",
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
                ".schedulingProfiles[0].name: a name is missing. Fix: write a text that is not \
                 empty.",
                ".schedulingProfiles[0].plugins[0].pluginRef: \"short-queues\" is no known plugin. \
                 Fix: write \"short-queue\".",
                ".schedulingProfiles[0].plugins[1].pluginRef: \"prefix-cache-scorer\" is no \
                 known plugin. \
                 Fix: use one of short-queue, max-score-picker, single-profile-handler.",
                ".schedulingProfiles[0].plugins[2].pluginRef: a reference to a plugin is missing. \
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
                ".schedulingProfiles[0].plugins[6]: \"single-profile-handler\" neither scores \
                 nor picks. \
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
        let several = "there are several plugins that pick: a, b. Fix: keep one.";
        check(
            json!({"plugins": [max("a"), max("b")]}),
            &[&format!(".plugins: {several}")],
        );
        let declared = json!([max("a"), max("b")]);
        for (references, is_good) in [(&["a"][..], true), (&[], false), (&["a", "b"], false)] {
            let mistake = format!(".schedulingProfiles[0].plugins: {several}");
            let expected = if is_good {
                vec![]
            } else {
                vec![mistake.as_str()]
            };
            check(
                json!({"plugins": declared, "schedulingProfiles": refer(references)}),
                &expected,
            );
        }
        let handler = |name: &str| json!({"type": "single-profile-handler", "name": name});
        check(
            json!({"plugins": [handler("a"), handler("b")]}),
            &[".plugins: there are several profile handlers: a, b. Fix: keep one."],
        );
        check(
            json!({"schedulingProfiles": [{"name": "p"}, {"name": "q", "x": 1}]}),
            &[
                ".schedulingProfiles: there are several profiles: \
                 pools[0].picker.schedulingProfiles[0], pools[0].picker.schedulingProfiles[1]. \
                 Fix: keep one.",
                ".schedulingProfiles[1].x: \"x\" is no known key. Fix: use one of name, plugins.",
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
            assert_eq!(profile_of(with(json!(weight))).scorers[0].weight, weight);
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
}
