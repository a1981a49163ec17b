//! The way of a pick from the filter to a connection.

use picker_core::{Destination, FailureMode};

use super::cluster::{is_original_dst, original_dst_header};
use crate::config::finding::Finding;
use crate::config::model::{Manager, Model};
use crate::config::place::Place;
use crate::config::plugin::Plugin;
use crate::config::route::Route;

/// A pick that nobody reads is a request balanced by chance.
pub(super) fn a_cluster_reads_the_destination(model: &Model<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manager in &model.managers {
        let names = manager.picked_routes().flat_map(|route| route.clusters());
        let clusters: Option<Vec<_>> = names.map(|name| model.cluster(name)).collect();
        // One that is not here may be the one.
        let Some(clusters) = clusters.filter(|clusters| !clusters.is_empty()) else {
            continue;
        };
        for plugin in manager.pickers() {
            findings.extend(unread(manager, plugin, &clusters));
        }
    }
    findings
}

fn unread(manager: &Manager<'_>, plugin: &Plugin<'_>, clusters: &[&Place<'_>]) -> Option<Finding> {
    let why = "Picks have no effect: Envoy balances as if there were no picker, or answers 503";
    let Some(header) = plugin.header() else {
        if clusters.iter().any(|cluster| is_original_dst(cluster)) {
            return None;
        }
        let what = "via: filterState, but no route leads to a cluster of type ORIGINAL_DST";
        let fix = "type: ORIGINAL_DST with lb_policy: CLUSTER_PROVIDED, or via: header";
        return Some(plugin.place.get("configuration.value").warn(what, why, fix));
    };
    let read: Vec<(Place<'_>, &str)> = clusters
        .iter()
        .flat_map(|cluster| headers_read(cluster))
        .collect();
    let is_read = read.iter().any(|(_, it)| it.eq_ignore_ascii_case(header));
    if is_read || clusters.iter().any(|it| is_bridged(manager, it, header)) {
        return None;
    }
    if let Some((place, other)) = read.first() {
        let what = format!("the cluster reads {other}, the picker writes {header}");
        return Some(place.warn(what, why, format!("name {header}")));
    }
    let names = clusters.iter().filter_map(|it| it.field("name").text());
    let what = format!(
        "the picker writes {header}, which none of the clusters {} reads",
        names.collect::<Vec<_>>().join(", ")
    );
    let fix = format!(
        "original_dst_lb_config: {{ use_http_header: true, http_header_name: {header} }} on a \
         cluster of type ORIGINAL_DST, or override_host_sources: [{{ header: {header} }}]"
    );
    Some(clusters.first()?.warn(what, why, fix))
}

/// The headers by which a cluster is told an endpoint.
fn headers_read<'a>(cluster: &Place<'a>) -> Vec<(Place<'a>, &'a str)> {
    let sources = override_host_sources(cluster).into_iter();
    let sources = sources.map(|source| source.field("header"));
    let sources = sources.filter_map(|header| Some((header.clone(), header.text()?)));
    original_dst_header(cluster)
        .into_iter()
        .chain(sources)
        .collect()
}

fn override_host_sources<'a>(cluster: &Place<'a>) -> Vec<Place<'a>> {
    let policies = cluster.list("load_balancing_policy.policies").into_iter();
    let policies = policies.map(|it| it.get("typed_extension_config.typed_config").message());
    let policies = policies.filter(|policy| policy.kind == "OverrideHost");
    policies
        .flat_map(|policy| policy.place.list("override_host_sources"))
        .collect()
}

/// Whether a filter copies the header into the metadata that a cluster reads.
fn is_bridged(manager: &Manager<'_>, cluster: &Place<'_>, header: &str) -> bool {
    let of_sources = override_host_sources(cluster).into_iter();
    let of_sources = of_sources.map(|source| source.field("metadata"));
    let key = cluster.get("original_dst_lb_config.metadata_key");
    let mut keys = of_sources.chain([key]).filter(Place::is_given);
    let bridges = manager
        .filters
        .iter()
        .filter(|filter| filter.kind == "Config");
    let rules = bridges.flat_map(|filter| filter.config.list("request_rules"));
    let copied: Vec<Place<'_>> = rules
        .filter(|rule| rule.field("header").text() == Some(header))
        .map(|rule| rule.field("on_header_present"))
        .collect();
    keys.any(|key| {
        let path = key.list("path");
        let last = path.first().map(|it| it.field("key"));
        copied.iter().any(|to| {
            to.field("metadata_namespace").text() == key.field("key").text()
                && to.field("key").text() == last.as_ref().and_then(Place::text)
        })
    })
}

/// A request without a pick needs a route that serves it: before the pick all are such.
pub(super) fn a_route_is_left_without_a_pick(model: &Model<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manager in &model.managers {
        for plugin in manager.pickers() {
            for route in manager.picked_routes() {
                findings.extend(match plugin.header().filter(|header| route.needs(header)) {
                    Some(header) => beside(manager, route, header),
                    None => strands(model, plugin, route),
                });
            }
        }
    }
    findings
}

/// Whether the routes around one for picked requests take the others, and only those.
fn beside(manager: &Manager<'_>, picked: &Route<'_>, header: &str) -> Option<Finding> {
    let routes = manager.routes.as_deref().unwrap_or_default();
    let mut others = routes
        .iter()
        .enumerate()
        .filter(|(_, other)| !other.needs(header) && other.covers(picked));
    let Some((first, other)) = others.next() else {
        return Some(no_fallback(picked, header));
    };
    let own = routes
        .iter()
        .position(|it| it.place.path == picked.place.path);
    own.is_some_and(|own| first < own).then(|| {
        picked.place.warn(
            format!("behind {}, which takes every request", other.place.path),
            "Envoy takes the first route that fits, so picks have no effect",
            format!("put the route that matches {header} first"),
        )
    })
}

fn no_fallback(route: &Route<'_>, header: &str) -> Finding {
    route.place.field("match").warn(
        format!("asks for {header}, and no route serves a request without it"),
        "Before the pick a request has no route, and one that the picker leaves alone is answered \
         404",
        "add a route with the same path behind it that leads to a cluster of the same servers",
    )
}

/// A route that takes requests without a pick to a cluster that cannot serve them.
fn strands(model: &Model<'_>, plugin: &Plugin<'_>, route: &Route<'_>) -> Option<Finding> {
    let config = plugin.config()?;
    let mut pools = route.pools(config);
    if !pools.any(|pool| pool.failure_mode == FailureMode::Open) {
        return None;
    }
    let clusters = route.clusters().into_iter();
    let mut clusters = clusters.filter_map(|name| model.cluster(name));
    let by_header = |it: &&Place<'_>| original_dst_header(it).is_some();
    let by_state = |it: &&Place<'_>| {
        matches!(config.destination, Destination::FilterState { .. }) && is_original_dst(it)
    };
    let cluster = clusters.find(|it| by_header(it) || by_state(it))?;
    let name = cluster.field("name").text().unwrap_or_default();
    let fix = match plugin.header() {
        Some(header) => format!(
            "let this route match {header} with present_match: true, and add one behind it that \
             leads to an ordinary cluster of the same servers; or failureMode: FailClose"
        ),
        None => "failureMode: FailClose, or via: header with a route for either case".to_owned(),
    };
    Some(route.place.warn(
        format!("takes requests without a pick to {name}, which has no endpoint for them"),
        "A request that the picker leaves alone is answered 503, in spite of failureMode: FailOpen",
        fix,
    ))
}

/// Envoy removes what a route says before it chooses the host.
pub(super) fn the_header_reaches_the_cluster(model: &Model<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manager in &model.managers {
        let headers: Vec<&str> = manager.pickers().filter_map(Plugin::header).collect();
        for route in manager.picked_routes() {
            let owners = [&route.place, &route.host, &route.table];
            let removed = owners
                .iter()
                .flat_map(|owner| owner.list("request_headers_to_remove"));
            let ours = removed.filter(|it| it.text().is_some_and(|it| headers.contains(&it)));
            findings.extend(ours.map(|place| {
                place.warn(
                    format!("removes {}", place.text().unwrap_or_default()),
                    "Envoy removes it before it chooses the host, so the pick has no effect",
                    "leave it out: the model servers ignore the header",
                )
            }));
        }
    }
    findings
}
