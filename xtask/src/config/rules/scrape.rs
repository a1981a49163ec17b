//! The collector's way to the endpoints.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cluster::{is_original_dst, original_dst_header, tight_breakers};
use crate::config::finding::Finding;
use crate::config::model::Model;
use crate::config::plugin::Plugin;

/// The cluster takes the address from a header.
pub(super) fn the_cluster_reaches_any_endpoint(model: &Model<'_>) -> Vec<Finding> {
    if model.clusters.is_empty() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (name, (plugin, _)) in clusters(model) {
        let Some(cluster) = model.cluster(name) else {
            findings.push(plugin.place.get("configuration.value").warn(
                format!("the pools' scrape.cluster {name} is no cluster here"),
                WHY,
                format!("add the cluster {name} as {SCRAPE_CLUSTER}"),
            ));
            continue;
        };
        let config = cluster.field("original_dst_lb_config");
        if !is_original_dst(cluster) {
            let what = format!("the pools' scrape.cluster is not {SCRAPE_CLUSTER}");
            findings.push(cluster.field("type").warn(what, WHY, "type: ORIGINAL_DST"));
        } else if let Some((place, header)) = original_dst_header(cluster) {
            if !header.eq_ignore_ascii_case(HEADER) {
                let what = format!("reads {header}, the collector writes {HEADER}");
                findings.push(place.warn(what, WHY, format!("http_header_name: {HEADER}")));
            }
        } else {
            let fix = format!("use_http_header: true, http_header_name: {HEADER}");
            findings.push(config.field("use_http_header").warn("not set", WHY, fix));
        }
    }
    findings
}

/// One scrape of every endpoint may be under way at the same time.
pub(super) fn the_cluster_takes_all_scrapes(model: &Model<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, (_, endpoints)) in clusters(model) {
        let Some(cluster) = model.cluster(name) else {
            continue;
        };
        for (place, allowed) in tight_breakers(cluster, endpoints) {
            findings.push(place.warn(
                format!("{allowed}, for the scrapes of {endpoints} endpoints"),
                "Scrapes above the limit fail, and an endpoint without metrics is picked by what \
                 was sent to it alone",
                "40000, as in envoy/envoy.yaml",
            ));
        }
        let connect = cluster.field("connect_timeout");
        if connect.duration().is_some_and(|time| time < CONNECT_MIN) {
            findings.push(connect.warn(
                connect.text().unwrap_or_default(),
                "A busy server accepts a connection later than that, and its metrics are missing \
                 when they matter",
                "connect_timeout: 0.5s",
            ));
        }
    }
    findings
}

/// The clusters that pools are scraped through: a copy that uses it, and how many endpoints.
fn clusters<'m, 'a>(model: &'m Model<'a>) -> BTreeMap<&'m str, (&'m Plugin<'a>, u64)> {
    let mut clusters = BTreeMap::new();
    for plugin in model.managers.iter().flat_map(|it| it.pickers()) {
        let pools = plugin.config().map(|config| &config.pools);
        for pool in pools.into_iter().flatten() {
            let entry = clusters.entry(pool.scrape.cluster.as_str());
            entry.or_insert((plugin, 0)).1 += pool.endpoints.len() as u64;
        }
    }
    clusters
}

const WHY: &str = "No metrics are read: every endpoint is unknown and picked by what was sent to it \
                   alone";

/// What the cluster must be.
const SCRAPE_CLUSTER: &str = "one of type ORIGINAL_DST with use_http_header";

/// The header in which the collector names the endpoint.
const HEADER: &str = "x-gateway-destination-endpoint";

/// A round trip across a continent.
const CONNECT_MIN: Duration = Duration::from_millis(50);
