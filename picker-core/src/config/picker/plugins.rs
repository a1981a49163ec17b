//! The list of plugins, and those that are added to it.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Map, Value, json};

use super::super::PLUGINS_MAX;
use super::super::catalogue::{
    self, Note, Noted, Part, PluginType, Roles, Stability, TOPOLOGY_PRODUCER,
};
use super::super::error::{Cause, ConfigWarning, Wanted};
use super::super::nearest::nearest;
use super::super::node::{Node, Object};
use super::super::table::{self, Kind, Parameter, Values};

/// A plugin with a name.
pub(super) struct Plugin {
    pub(super) name: String,
    /// Where it stands; empty for one that was added.
    pub(super) path: String,
    pub(super) kind: &'static PluginType,
    pub(super) parameters: Map<String, Value>,
    pub(super) roles: Roles,
}

/// All plugins of a document, each with a name of its own.
pub(super) struct Plugins {
    pub(super) list: Vec<Plugin>,
    /// The names of those whose types mean nothing here. That is one mistake, not one for each
    /// reference.
    unusable: Vec<String>,
}

impl Plugins {
    /// Reads `plugins`.
    pub(super) fn read(document: &mut Object<'_>) -> Self {
        let list = document.key("plugins").map(|it| it.list(PLUGINS_MAX));
        let mut plugins: Vec<Plugin> = Vec::new();
        let mut nodes = Vec::new();
        let (mut alpha, mut unusable) = (Vec::new(), Vec::new());
        for node in list.into_iter().flatten() {
            let Some(read) = node.object(|it| plugin(it, node.path())) else {
                continue;
            };
            let plugin = match read {
                Ok(plugin) => plugin,
                Err(name) => {
                    unusable.push(name);
                    continue;
                }
            };
            if let Some(first) = plugins.iter().find(|it| it.name == plugin.name) {
                node.fail(duplicate(&plugin.name, &first.path));
            }
            match plugin.kind.stability {
                Stability::Alpha => alpha.push(plugin.name.clone()),
                Stability::Beta | Stability::Ours => {}
                Stability::Deprecated(instead) => node.warn(ConfigWarning::Deprecated {
                    path: node.path().to_string(),
                    name: plugin.kind.name.into(),
                    instead: instead.into(),
                }),
            }
            plugins.push(plugin);
            nodes.push(node);
        }
        if !alpha.is_empty() {
            document.warn_at("plugins", |path| ConfigWarning::Alpha {
                path,
                plugins: alpha,
            });
        }
        let mut plugins = Self {
            list: plugins,
            unusable,
        };
        plugins.check_references(&nodes);
        plugins.share_topologies();
        plugins.find_attribute_producers();
        plugins
    }

    /// Checks that the plugins that parameters name are there.
    fn check_references(&self, nodes: &[Node<'_>]) {
        for (plugin, node) in self.list.iter().zip(nodes) {
            for Parameter { key, kind } in plugin.kind.parameters {
                let Kind::PluginRef(part, default) = kind else {
                    continue;
                };
                let name = Values(&plugin.parameters).text(key);
                let is_part = |it: &Plugin| it.roles.part == Some(*part);
                let cause = match self.find(name) {
                    Some(plugin) if is_part(plugin) => continue,
                    Some(_) => not_for(name, *part),
                    None if name == *default || self.is_unusable(name) => continue,
                    None if added(name).is_some_and(|it| is_part(&it)) => continue,
                    None => self.undefined(&plugin.name, name),
                };
                node.fail_below(&format!("parameters.{key}"), cause);
            }
        }
    }

    /// Gives the plugins that compare places the labels of the extractor that they name.
    fn share_topologies(&mut self) {
        let extractors = self.list.iter();
        let extractors =
            extractors.filter_map(|it| Some((it.name.clone(), it.roles.topology.clone()?)));
        for (name, topology) in extractors.collect::<Vec<_>>() {
            for plugin in &mut self.list {
                if Values(&plugin.parameters).text(TOPOLOGY_PRODUCER) == name {
                    plugin.roles.set_topology(&topology);
                }
            }
        }
    }

    /// Lets plugins that read a number of an endpoint know the type of the one that makes it.
    fn find_attribute_producers(&mut self) {
        let extractors = self.list.iter().filter(|it| it.roles.data.is_some());
        let extractors: Vec<(String, &str)> = extractors
            .map(|it| (it.name.clone(), it.kind.name))
            .collect();
        for plugin in &mut self.list {
            let Some(producer) = plugin.roles.attribute_producer() else {
                continue;
            };
            if let Some((_, kind)) = extractors.iter().find(|(name, _)| name == producer) {
                *producer = (*kind).into();
            }
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<&Plugin> {
        self.list.iter().find(|it| it.name == name)
    }

    /// Whether a plugin is declared by this name that is none here.
    pub(super) fn is_unusable(&self, name: &str) -> bool {
        self.unusable.iter().any(|it| it == name)
    }

    /// The name of a plugin of this type, which is added with its defaults where there is none.
    pub(super) fn ensure(&mut self, kind: &str) -> Option<&Plugin> {
        let found = self.list.iter().position(|it| it.kind.name == kind);
        let place = match found {
            Some(place) => place,
            None => {
                self.list.push(added(kind)?);
                self.list.len() - 1
            }
        };
        self.list.get(place)
    }

    /// The plugin that `node` names, which is added with its defaults when it is not declared but
    /// has the name of a type, and is one for `part`.
    pub(super) fn referred(&mut self, node: &Node<'_>, by: &str, part: Part) -> Option<String> {
        let name = node.text().filter(|name| !self.is_unusable(name))?;
        if self.find(name).is_none() {
            self.list
                .extend(added(name).filter(|it| it.roles.part == Some(part)));
        }
        let Some(plugin) = self.find(name) else {
            let types = catalogue::all().filter(|it| {
                let roles = (it.make)(Values(&table::defaults(it.parameters)));
                roles.is_ok_and(|roles| roles.part == Some(part))
            });
            let mut known: Vec<&str> = types.map(|it| it.name).collect();
            for plugin in self.list.iter().filter(|it| it.roles.part == Some(part)) {
                if !known.contains(&plugin.name.as_str()) {
                    known.push(&plugin.name);
                }
            }
            node.fail(undefined(by, name, known.into_iter()));
            return None;
        };
        if plugin.roles.part != Some(part) {
            node.fail(not_for(name, part));
            return None;
        }
        Some(name.to_string())
    }

    /// The mistake of a reference of a profile to no plugin.
    pub(super) fn undefined(&self, by: &str, name: &str) -> Cause {
        let usable = self.list.iter().filter(|it| it.roles.is_for_profiles());
        undefined(by, name, usable.map(|it| it.name.as_str()))
    }

    /// Whether a plugin is declared that is none here.
    pub(super) fn has_unusable(&self) -> bool {
        !self.unusable.is_empty()
    }

    /// Adds what others need to know about requests and that nobody declared, until nothing is
    /// missing.
    pub(super) fn add_producers(&mut self) {
        let mut place = 0;
        while let Some(plugin) = self.list.get(place) {
            let needed = plugin.kind.needs.iter().chain(plugin.roles.needs);
            for needed in needed.copied().collect::<Vec<&str>>() {
                self.ensure(needed);
            }
            place += 1;
        }
    }

    pub(super) fn to_values(&self) -> Vec<Value> {
        let value = |it: &Plugin| {
            let mut value = json!({"type": it.kind.name, "name": it.name});
            if !it.parameters.is_empty() {
                value["parameters"] = it.parameters.clone().into();
            }
            value
        };
        self.list.iter().map(value).collect()
    }
}

fn warn_of(parameters: &Object<'_>, kind: &PluginType, notes: &[Note]) {
    for Note { key, what } in notes {
        parameters.warn_at(key, |path| match *what {
            Noted::Deprecated(instead) => ConfigWarning::Deprecated {
                path,
                name: format!("{key} of {}", kind.name),
                instead: instead.into(),
            },
            Noted::NoEffect(why) => ConfigWarning::NoEffect { path, why },
        });
    }
}

/// A plugin that nobody declared; `None` when the name is that of no type.
fn added(kind: &str) -> Option<Plugin> {
    let kind = catalogue::plugin_type(kind)?;
    let parameters = table::defaults(kind.parameters);
    Some(Plugin {
        name: kind.name.to_string(),
        path: String::new(),
        kind,
        roles: (kind.make)(Values(&parameters)).ok()?,
        parameters,
    })
}

/// A plugin; the name of one whose type means nothing here.
fn plugin(plugin: &mut Object<'_>, path: &str) -> Result<Plugin, String> {
    let type_node = plugin.key("type");
    let name_node = plugin.key("name");
    let name = name_node
        .as_ref()
        .and_then(|it| it.text_that(Wanted::Name, |it| !it.is_empty()));
    let Some(type_node) = type_node else {
        plugin.key("parameters");
        plugin.fail_at(
            "type",
            Cause::told(
                format!("plugin '{}' is missing a type", name.unwrap_or_default()),
                "write the type of a plugin, like type: queue-scorer".into(),
            ),
        );
        return Err(name.unwrap_or_default().into());
    };
    let type_name = type_node.text();
    let Some(kind) = type_name.and_then(catalogue::plugin_type) else {
        // What its parameters may be is not known either.
        plugin.key("parameters");
        if let Some(type_name) = type_name {
            type_node.fail(unregistered(type_name));
        }
        return Err(name.or(type_name).unwrap_or_default().into());
    };
    let mut roles = None;
    let parameters = plugin.section("parameters", |section| {
        let before = section.mistakes();
        let parameters = table::read(section, kind.parameters);
        if section.mistakes() == before {
            match (kind.make)(Values(&parameters)) {
                Ok(made) => {
                    warn_of(section, kind, &made.notes);
                    roles = Some(made);
                }
                Err(unfit) if unfit.key.is_empty() => section.fail(unfit.cause),
                Err(unfit) => section.fail_at(&unfit.key, unfit.cause),
            }
        }
        parameters
    });
    // References to a plugin with a mistake are no mistakes of their own.
    let of_defaults = || (kind.make)(Values(&table::defaults(kind.parameters))).ok();
    Ok(Plugin {
        name: name.or(type_name).unwrap_or_default().to_string(),
        path: path.to_string(),
        kind,
        roles: roles.or_else(of_defaults).unwrap_or_default(),
        parameters,
    })
}

/// The mistake of a reference to no plugin, where these are.
pub(super) fn undefined<'k>(by: &str, name: &str, known: impl Iterator<Item = &'k str>) -> Cause {
    let known: Vec<&str> = known.collect();
    let fix = match (catalogue::elsewhere(name), nearest(name, &known)) {
        (Some(instead), _) => instead.to_string(),
        (None, Some(nearest)) => format!("write {nearest:?}"),
        (None, None) if known.is_empty() => "declare it in plugins".to_string(),
        (None, None) => format!("declare it in plugins, or use one of {}", known.join(", ")),
    };
    Cause::told(format!("{by} references undefined plugin '{name}'"), fix)
}

/// The mistake of a reference to a plugin for something else.
fn not_for(name: &str, part: Part) -> Cause {
    let (interface, word) = part.names();
    Cause::told(
        format!("the plugin {name:?} is not {interface}"),
        format!("refer to {word}"),
    )
}

fn unregistered(name: &str) -> Cause {
    if let Some(instead) = catalogue::elsewhere(name) {
        return Cause::told(
            format!("plugin type '{name}' cannot work here"),
            instead.into(),
        );
    }
    // All types there are would fill a screen; those of its kind have its last word.
    let mut known: Vec<&str> = catalogue::all().map(|it| it.name).collect();
    let kind = name.rsplit('-').next();
    let fix = match nearest(name, &known) {
        Some(nearest) => format!("write {nearest:?}"),
        None => {
            known.retain(|it| it.rsplit('-').next() == kind);
            if known.is_empty() {
                "docs/plugins.md has all types".to_string()
            } else {
                format!("use one of {}", known.join(", "))
            }
        }
    };
    Cause::told(format!("plugin type '{name}' is not registered"), fix)
}

fn duplicate(name: &str, first: &str) -> Cause {
    Cause::told(
        format!("duplicate plugin name '{name}', which is that of {first}"),
        "give one of them another name, or remove it".into(),
    )
}
