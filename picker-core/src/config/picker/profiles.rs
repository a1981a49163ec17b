//! `schedulingProfiles`: which plugins a profile has, and what it is filled up with.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use serde_json::{Value, json};

use super::super::error::{Cause, Wanted};
use super::super::node::{Node, Object};
use super::super::{PLUGINS_MAX, PROFILES_MAX, WEIGHT_MAX};
use super::plugins::{Plugin, Plugins};
use crate::handler::Handler;
use crate::picker::Picker;
use crate::profile::{Profile, WeightedScorer};

/// The profiles, and how they stand in the document in effect.
pub(super) struct Profiles {
    pub(super) profiles: Vec<Profile>,
    pub(super) document: Vec<Value>,
}

/// A profile before it has a picker.
struct Draft {
    profile: Profile,
    /// Its references.
    references: Vec<Value>,
    /// The name of its own picker.
    picker: Option<String>,
}

/// Reads the profiles, and adds the plugins that they need.
pub(super) fn read(document: &mut Object<'_>, plugins: &mut Plugins) -> Profiles {
    let list = document.key("schedulingProfiles");
    let nodes = list.map(|it| it.filled_list(PROFILES_MAX, Wanted::List));
    let mut drafts = match &nodes {
        None => vec![all_of(plugins)],
        Some(nodes) => each_of(nodes, plugins),
    };
    handlers(document, plugins, drafts.len());
    fill_pickers(document, plugins, &mut drafts);
    let document = drafts.iter().map(|it| {
        let mut references = it.references.clone();
        references.extend(it.picker.iter().map(|name| json!({"pluginRef": name})));
        json!({"name": it.profile.name, "plugins": references})
    });
    Profiles {
        document: document.collect(),
        profiles: drafts.into_iter().map(|it| it.profile).collect(),
    }
}

/// The profile of all plugins.
fn all_of(plugins: &Plugins) -> Draft {
    let mut draft = Draft::new("default");
    // Which picker is its own is settled when all are known.
    for plugin in plugins.list.iter().filter(|it| it.roles.picker.is_none()) {
        draft.add(plugin, 1.0);
    }
    draft
}

fn each_of(nodes: &[Node<'_>], plugins: &Plugins) -> Vec<Draft> {
    let mut drafts: Vec<Draft> = Vec::new();
    for (place, node) in nodes.iter().enumerate() {
        let Some(draft) = node.object(|it| draft(it, place, plugins)) else {
            continue;
        };
        let name = &draft.profile.name;
        if !name.is_empty() && drafts.iter().any(|it| it.profile.name == *name) {
            node.fail(Cause::told(
                format!("schedulingProfiles[{place}] has duplicate name '{name}'"),
                "give it another name".into(),
            ));
        }
        drafts.push(draft);
    }
    drafts
}

fn draft(profile: &mut Object<'_>, place: usize, plugins: &Plugins) -> Draft {
    let name = profile.key("name");
    if name.is_none() {
        profile.fail_at(
            "name",
            Cause::told(
                format!("schedulingProfiles[{place}] is missing a name"),
                "write a name, like name: default".into(),
            ),
        );
    }
    let name = name.and_then(|it| it.text_that(Wanted::ProfileName, |it| !it.is_empty()));
    let mut draft = Draft::new(name.unwrap_or_default());
    let list = profile.key("plugins").map(|it| it.list(PLUGINS_MAX));
    let mut seen: Vec<(&str, String)> = Vec::new();
    for (index, node) in list.into_iter().flatten().enumerate() {
        let by = format!("schedulingProfiles[{}]", draft.profile.name);
        let reference = node.object(|it| reference(it, (&by, index), plugins));
        let Some((plugin, weight)) = reference.flatten() else {
            continue;
        };
        if let Some((_, first)) = seen.iter().find(|(name, _)| *name == plugin.name) {
            node.fail(Cause::Duplicate {
                what: "plugin",
                value: plugin.name.clone(),
                first: first.clone(),
            });
        }
        seen.push((&plugin.name, node.path().to_string()));
        let other = draft
            .picker
            .clone()
            .filter(|_| plugin.roles.picker.is_some());
        if let Some(other) = other.filter(|it| *it != plugin.name) {
            node.fail(Cause::told(
                format!(
                    "failed to set '{}' as picker, already have a registered picker plugin \
                     '{other}'",
                    plugin.name
                ),
                "keep one".into(),
            ));
        }
        draft.add(plugin, weight);
    }
    draft
}

/// The plugin that is referred to, and its weight.
fn reference<'p>(
    reference: &mut Object<'_>,
    (by, index): (&str, usize),
    plugins: &'p Plugins,
) -> Option<(&'p Plugin, f64)> {
    let node = reference.key("pluginRef");
    let weight_node = reference.key("weight");
    let weight = weight_node.as_ref().and_then(weight);
    let Some(node) = node else {
        reference.fail_at(
            "pluginRef",
            Cause::told(
                format!("{by}.plugins[{index}] is missing a 'pluginRef'"),
                "write the name of a plugin of the list above".into(),
            ),
        );
        return None;
    };
    let name = node.text().filter(|name| !plugins.is_unusable(name))?;
    let Some(plugin) = plugins.find(name) else {
        node.fail(plugins.undefined(by, name));
        return None;
    };
    if !plugin.roles.is_for_profiles() {
        node.fail(Cause::NotForProfiles(name.into()));
    } else if let Some(node) = weight_node.filter(|_| plugin.roles.scorer.is_none()) {
        node.fail(Cause::WeightOfNoScorer(name.into()));
    }
    Some((plugin, weight.unwrap_or(1.0)))
}

fn weight(node: &Node<'_>) -> Option<f64> {
    let weight = node.number()?;
    if !(0.0..=WEIGHT_MAX).contains(&weight) {
        node.out_of_range("0".to_string(), WEIGHT_MAX.to_string());
        return None;
    }
    Some(weight)
}

/// Makes sure that one handler runs the profiles.
fn handlers(document: &Object<'_>, plugins: &mut Plugins, profiles: usize) {
    let named = plugins.list.iter().filter(|it| it.roles.handler.is_some());
    let names: Vec<String> = named.map(|it| format!("'{}'", it.name)).collect();
    if names.len() > 1 {
        document.fail_at(
            "plugins",
            Cause::told(
                format!(
                    "multiple profile handlers found ({}); only one is allowed",
                    names.join(", ")
                ),
                "keep one".into(),
            ),
        );
        return;
    }
    let cause = match plugins.handler() {
        // It may be meant to be the handler.
        Handler::Single if names.is_empty() && plugins.has_unusable() => return,
        Handler::Single if profiles > 1 && names.is_empty() => Cause::told(
            "no profile handler configured".into(),
            "declare one that runs several profiles, like disagg-profile-handler".into(),
        ),
        Handler::Single | Handler::DataParallel(_) if profiles > 1 => Cause::told(
            "SingleProfileHandler cannot support multiple scheduling profiles".into(),
            "keep one profile, or declare disagg-profile-handler".into(),
        ),
        _ => {
            if names.is_empty() {
                plugins.ensure("single-profile-handler");
            }
            return;
        }
    };
    document.fail_at("schedulingProfiles", cause);
}

/// Gives every profile a picker: its own, or the one there is.
fn fill_pickers(document: &Object<'_>, plugins: &mut Plugins, drafts: &mut [Draft]) {
    if plugins.list.iter().all(|it| it.roles.picker.is_none()) {
        plugins.ensure("max-score-picker");
    }
    let pickers = || {
        plugins
            .list
            .iter()
            .filter_map(|it| Some((it.roles.picker?, &it.name)))
    };
    let all: Vec<(Picker, &String)> = pickers().collect();
    for draft in drafts.iter_mut().filter(|it| it.picker.is_none()) {
        if let [(picker, name)] = all.as_slice() {
            draft.profile.picker = *picker;
            draft.picker = Some((*name).clone());
            continue;
        }
        // The reference picker takes any.
        document.fail_at(
            "schedulingProfiles",
            Cause::told(
                format!(
                    "the profile '{}' has no picker, and there are several: {}",
                    draft.profile.name,
                    all.iter()
                        .map(|(_, it)| it.as_str())
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
                "refer to one of them in the profile, or keep one".into(),
            ),
        );
    }
}

impl Draft {
    fn new(name: &str) -> Self {
        Self {
            profile: Profile {
                name: name.to_string(),
                filters: Vec::new(),
                scorers: Vec::new(),
                picker: Picker::default(),
            },
            references: Vec::new(),
            picker: None,
        }
    }

    fn add(&mut self, plugin: &Plugin, weight: f64) {
        let roles = &plugin.roles;
        self.profile.filters.extend(roles.filter.clone());
        let scorer = roles.scorer.clone();
        self.profile
            .scorers
            .extend(scorer.map(|scorer| WeightedScorer { scorer, weight }));
        if let Some(picker) = roles.picker {
            self.profile.picker = picker;
            self.picker = Some(plugin.name.clone());
        } else if roles.scorer.is_some() {
            let reference = json!({"pluginRef": plugin.name, "weight": weight});
            self.references.push(reference);
        } else if roles.filter.is_some() {
            self.references.push(json!({"pluginRef": plugin.name}));
        }
    }
}
