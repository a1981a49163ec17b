//! Names of models: which a pool serves, and which others they get.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::error::{Cause, Wanted};
use super::nearest::unknown;
use super::node::{Node, Object};
use super::pool::{is_name, is_new};
use super::{
    BASE_MODELS_MAX, BaseModel, Fallback, MODELS_MAX, PoolConfig, REWRITE_MATCHES_MAX,
    REWRITE_TARGETS_MAX, REWRITE_WEIGHT_MAX, REWRITES_MAX, is_header_name,
};
use crate::rewrite::{RewriteRule, RewriteTarget};

/// The names and patterns of the models that a pool serves.
pub(super) fn models(pool: &mut Object<'_>) -> Vec<String> {
    let list = pool.key("models").map(|it| it.list(MODELS_MAX));
    let mut known = Vec::new();
    let models = list.into_iter().flatten().filter_map(|node| {
        let name = node.text_that(Wanted::Name, is_name)?;
        if name.find('*').is_some_and(|at| at + 1 < name.len()) {
            node.fail(Cause::told(
                "a * may only stand at the end".into(),
                format!("write {}", name.replace('*', "") + "*"),
            ));
        }
        is_new(&mut known, name, &node).then(|| name.to_string())
    });
    models.collect()
}

/// The rules by which models get other names.
pub(super) fn rewrites(pool: &mut Object<'_>) -> Vec<RewriteRule> {
    let Some(list) = pool.key("modelRewrites") else {
        return Vec::new();
    };
    // The name `*` stands for every one, which no model has.
    let mut known = Vec::new();
    let rules = list.list(REWRITES_MAX).into_iter().filter_map(|node| {
        let rule = node.object(|it| rule(it, &mut known))?;
        if rule.models.is_empty() {
            is_new(&mut known, "*", &node);
        }
        Some(rule)
    });
    let rules: Vec<RewriteRule> = rules.collect();
    if let Some(rule) = looped(&rules).and_then(|it| rules.get(it)) {
        list.fail(Cause::told(
            format!(
                "the targets of {:?} lead back to it",
                rule.models.join(", ")
            ),
            "name the model at the servers: a name is rewritten only once".into(),
        ));
    }
    rules
}

fn rule(rule: &mut Object<'_>, known: &mut Vec<(String, String)>) -> RewriteRule {
    let matches = rule
        .key("matches")
        .map(|it| it.list(REWRITE_MATCHES_MAX))
        .unwrap_or_default();
    let models = matches.into_iter().filter_map(|node| {
        let model = node.object(|it| it.section("model", model)).flatten()?;
        is_new(known, &model, &node).then_some(model)
    });
    let models = models.collect();
    let targets = rule
        .needed("targets", Wanted::Targets)
        .map_or_else(Vec::new, |it| targets(&it));
    let header = rule.key("stickyHeader");
    let header = header.and_then(|it| it.text_that(Wanted::HeaderName, is_header_name));
    RewriteRule {
        models,
        targets,
        sticky_header: header.map(str::to_ascii_lowercase),
    }
}

fn model(model: &mut Object<'_>) -> Option<String> {
    if let Some(kind) = model.key("type") {
        kind.choice("type of match", &[("Exact", ())]);
    }
    let value = model.needed("value", Wanted::Name)?;
    value.text_that(Wanted::Name, is_name).map(String::from)
}

fn targets(list: &Node<'_>) -> Vec<RewriteTarget> {
    let nodes = list.filled_list(REWRITE_TARGETS_MAX, Wanted::Targets);
    let targets: Vec<(Option<String>, Option<u32>)> =
        nodes.iter().filter_map(|it| it.object(target)).collect();
    let weighted = targets.iter().filter(|(_, weight)| weight.is_some());
    if (1..targets.len()).contains(&weighted.count()) {
        list.fail(Cause::told(
            "some targets have a weight and others have none".into(),
            "give all of them one, or none; 0 is for a target that gets nothing".into(),
        ));
    } else if !targets.is_empty() && targets.iter().all(|(_, weight)| *weight == Some(0)) {
        list.fail(Cause::told(
            "all targets have weight 0".into(),
            "give one of them a weight, or remove the rule".into(),
        ));
    }
    let target = |(model, weight): (Option<String>, Option<u32>)| RewriteTarget {
        model: model.unwrap_or_default(),
        weight: weight.unwrap_or(1),
    };
    targets.into_iter().map(target).collect()
}

fn target(target: &mut Object<'_>) -> (Option<String>, Option<u32>) {
    let model = target.needed("modelRewrite", Wanted::Name);
    let model = model.and_then(|it| it.text_that(Wanted::Name, is_name));
    let weight = target.key("weight");
    let weight = weight.and_then(|it| it.integer_within(Wanted::Integer, 0, REWRITE_WEIGHT_MAX));
    (
        model.map(String::from),
        weight.and_then(|it| u32::try_from(it).ok()),
    )
}

/// The place of a rule whose targets lead through other rules back to it.
fn looped(rules: &[RewriteRule]) -> Option<usize> {
    let of = |(place, rule): (usize, &RewriteRule)| {
        let named = |target: &RewriteTarget| {
            let found = rules
                .iter()
                .position(|it| it.models.contains(&target.model));
            // A target that stays as it is leads nowhere.
            found.filter(|it| *it != place)
        };
        rule.targets.iter().filter_map(named).collect()
    };
    reaching_itself(&rules.iter().enumerate().map(of).collect::<Vec<_>>())
}

/// The first place that leads back to itself, where each leads to those of its list.
fn reaching_itself(next: &[Vec<usize>]) -> Option<usize> {
    let reaches = |start: &usize| {
        let (mut seen, mut open) = (vec![false; next.len()], vec![*start]);
        while let Some(from) = open.pop() {
            for place in next.get(from).into_iter().flatten() {
                match seen.get_mut(*place) {
                    Some(is_seen) if !*is_seen => *is_seen = true,
                    _ => continue,
                }
                open.push(*place);
            }
        }
        seen.get(*start).copied().unwrap_or_default()
    };
    (0..next.len()).find(reaches)
}

/// What another pool does for one that has no endpoint.
pub(super) fn fallback(pool: &mut Object<'_>) -> Option<Fallback> {
    pool.key("fallback")?.object(|it| {
        let other = it.needed("pool", Wanted::PoolName);
        let model = it.key("model");
        Some(Fallback {
            pool: other?.text_that(Wanted::PoolName, is_name)?.to_string(),
            model: model
                .and_then(|it| it.text_that(Wanted::Name, is_name))
                .map(String::from),
        })
    })?
}

/// Fails fallbacks that lead nowhere, or in a circle; `pools` with where they stand.
pub(super) fn check_fallbacks(pools: &[(&Node<'_>, &PoolConfig)]) {
    let names = || pools.iter().map(|(_, it)| it.name.as_str());
    let other = |(node, pool): &(&Node<'_>, &PoolConfig)| -> Vec<usize> {
        let Some(fallback) = &pool.fallback else {
            return Vec::new();
        };
        let place = names().position(|it| it == fallback.pool);
        if place.is_none() {
            node.fail_below("fallback.pool", unknown("pool", &fallback.pool, names()));
        }
        place.into_iter().collect()
    };
    let next: Vec<Vec<usize>> = pools.iter().map(other).collect();
    if let Some((node, pool)) = reaching_itself(&next).and_then(|it| pools.get(it)) {
        let what = format!("the fallbacks of {} lead back to it", pool.name);
        let fix = "remove one of them".into();
        node.fail_below("fallback.pool", Cause::told(what, fix));
    }
}

/// What routes are told besides the model of a request: the base models of adapters.
pub(super) fn base_models(section: &mut Object<'_>) -> Vec<BaseModel> {
    let list = section.key("baseModels").map(|it| it.list(BASE_MODELS_MAX));
    let mut known = Vec::new();
    let bases = list.into_iter().flatten().filter_map(|node| {
        let base = node.object(|it| {
            let model = it.needed("baseModel", Wanted::Name);
            let mut name = |node: &Node<'_>| {
                let name = node.text_that(Wanted::Name, is_name)?;
                is_new(&mut known, name, node).then(|| name.to_string())
            };
            let adapters = it.key("adapters").map(|it| it.list(MODELS_MAX));
            let adapters = adapters.into_iter().flatten();
            Some(BaseModel {
                adapters: adapters.filter_map(|it| name(&it)).collect(),
                model: name(&model?)?,
            })
        });
        base.flatten()
    });
    bases.collect()
}
