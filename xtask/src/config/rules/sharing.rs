//! What the copies of the picker share.

use std::collections::BTreeMap;

use crate::config::finding::{Finding, Level};
use crate::config::model::Model;
use crate::config::plugin::Plugin;

/// Shared data belongs to a `vm_id`.
pub(super) fn one_vm_id(model: &Model<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let pickers: Vec<&Plugin<'_>> = model.managers.iter().flat_map(|it| it.pickers()).collect();
    let first = pickers.iter().find_map(|it| id(it)).unwrap_or("picker");
    for plugin in model.plugins() {
        let place = plugin.place.get("vm_config.vm_id");
        let Some(own) = id(plugin) else {
            findings.push(place.warn(
                "empty",
                "Copies of the picker share data by it, and every other module without one shares \
                 the same data",
                format!("vm_id: {first}"),
            ));
            continue;
        };
        // Of two that differ the second is told.
        let own_place = pickers
            .iter()
            .position(|it| it.place.path == plugin.place.path);
        let others = pickers[..own_place.unwrap_or(pickers.len())].iter();
        let others = others.filter(|it| has_part_in(plugin, it));
        let mut others = others.filter_map(|it| id(it)).peekable();
        if others.peek().is_some() && others.all(|other| other != own) {
            findings.push(place.warn(
                format!("{own}, while another copy of the picker has {first}"),
                "They share nothing: metrics, requests in flight and what is cached are known to \
                 one and not to the other",
                format!("vm_id: {first}"),
            ));
        }
    }
    findings
}

/// Whether two copies are about the same pool; pages and services are about all.
fn has_part_in(plugin: &Plugin<'_>, picker: &Plugin<'_>) -> bool {
    let names = |it: &Plugin<'_>| -> Vec<String> {
        let pools = it.config().map(|config| config.pools.iter());
        pools
            .into_iter()
            .flatten()
            .map(|pool| pool.name.clone())
            .collect()
    };
    let ours = names(plugin);
    ours.is_empty() || names(picker).iter().any(|name| ours.contains(name))
}

fn id<'a>(plugin: &Plugin<'a>) -> Option<&'a str> {
    let id = plugin.place.get("vm_config.vm_id").text();
    id.filter(|id| !id.is_empty())
}

/// A pool's name is the key of its state.
pub(super) fn one_configuration_of_a_pool(model: &Model<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen: BTreeMap<(Option<&str>, &str), (String, &str)> = BTreeMap::new();
    for plugin in model.plugins() {
        let pools = plugin.config().map(|config| config.pools.iter());
        for pool in pools.into_iter().flatten() {
            let document = pool.to_document();
            let place = plugin.place.get("configuration.value");
            match seen.get(&(id(plugin), pool.name.as_str())) {
                Some((first, path)) if *first != document => findings.push(place.warn(
                    format!("the pool {} is another one at {path}", pool.name),
                    "Both write the state of one pool: endpoints and settings of either are used \
                     by turns",
                    "give the pools different names, or the same configuration",
                )),
                Some(_) => {}
                None => {
                    let key = (id(plugin), pool.name.as_str());
                    seen.insert(key, (document, plugin.place.path.as_str()));
                }
            }
        }
    }
    findings
}

/// A service is optional, and one is enough.
pub(super) fn a_collector_of_its_own(model: &Model<'_>) -> Vec<Finding> {
    let Some(bootstrap) = model.picking_bootstrap() else {
        return Vec::new();
    };
    if model.services.is_empty() {
        let text = "no service of the picker: a worker that holds the lease collects the metrics, \
                    beside its requests";
        let place = bootstrap.field("bootstrap_extensions");
        return vec![place.find(Level::Note, text.to_owned())];
    }
    Vec::new()
}
