//! What several rules ask of a cluster.

use crate::config::model::Model;
use crate::config::place::Place;

/// The clusters that the requests of pools go to, one as often as routes lead to it.
pub(super) fn destinations<'m, 'a>(model: &'m Model<'a>) -> impl Iterator<Item = &'m Place<'a>> {
    let routes = model.managers.iter().flat_map(|it| it.picked_routes());
    let names = routes.flat_map(|route| route.clusters());
    names.filter_map(|name| model.cluster(name))
}

/// An option for all of HTTP, from where it belongs or from where it was before.
pub(super) fn protocol_option<'a>(cluster: &Place<'a>, option: &str) -> Place<'a> {
    let options = cluster
        .field("typed_extension_protocol_options")
        .field("envoy.extensions.upstreams.http.v3.HttpProtocolOptions");
    let new = options
        .message()
        .place
        .field("common_http_protocol_options");
    let old = cluster.field("common_http_protocol_options").field(option);
    if old.is_given() {
        old
    } else {
        new.field(option)
    }
}

/// The circuit breakers that allow less than `needed`: each with what it allows.
pub(super) fn tight_breakers<'a>(cluster: &Place<'a>, needed: u64) -> Vec<(Place<'a>, u64)> {
    let mut thresholds = cluster.list("circuit_breakers.thresholds").into_iter();
    let is_default = |it: &Place<'_>| {
        let priority = it.field("priority");
        !priority.is_given() || priority.text() == Some("DEFAULT")
    };
    let threshold = thresholds.find(is_default);
    let threshold = threshold.unwrap_or_else(|| cluster.field("circuit_breakers"));
    ["max_connections", "max_pending_requests", "max_requests"]
        .into_iter()
        .map(|field| threshold.field(field))
        .map(|place| (place.number().unwrap_or(BREAKER_DEFAULT), place))
        .filter(|(allowed, _)| *allowed < needed)
        .map(|(allowed, place)| (place, allowed))
        .collect()
}

/// The header by which an `ORIGINAL_DST` cluster is told an address, with the place that names it.
pub(super) fn original_dst_header<'a>(cluster: &Place<'a>) -> Option<(Place<'a>, &'a str)> {
    let config = cluster.field("original_dst_lb_config");
    let is_so = is_original_dst(cluster) && config.field("use_http_header").is_true();
    let name = config.field("http_header_name");
    let text = name.text().filter(|name| !name.is_empty());
    is_so.then(|| (name, text.unwrap_or(ORIGINAL_DST_HEADER)))
}

/// Whether the cluster connects to whatever address it is told.
pub(super) fn is_original_dst(cluster: &Place<'_>) -> bool {
    let kind = cluster.field("type");
    kind.text() == Some("ORIGINAL_DST") || kind.number() == Some(4)
}

/// What Envoy allows a cluster where nothing is set.
const BREAKER_DEFAULT: u64 = 1024;

/// The header of an `ORIGINAL_DST` cluster that names none.
const ORIGINAL_DST_HEADER: &str = "x-envoy-original-dst-host";
