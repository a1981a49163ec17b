//! What a filter cannot see of the Envoy it runs in, and what hurts there.
//!
//! A rule is a function from the whole configuration to findings. It says nothing about what the
//! documents do not have; `seen` says that.

mod buffers;
mod chain;
mod cluster;
mod destination;
mod discovery;
mod embedded;
mod exposure;
mod headers;
mod plugins;
mod rematch;
mod scrape;
mod seen;
mod sharing;
mod stats;
mod timers;
mod upstream;

use super::finding::Finding;
use super::model::Model;

/// Everything the rules find, in their order, each finding once.
pub(super) fn findings(model: &Model<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for finding in RULES.iter().flat_map(|rule| rule(model)) {
        // Several ways lead to one cluster.
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    findings
}

type Rule = fn(&Model<'_>) -> Vec<Finding>;

const RULES: [Rule; 30] = [
    seen::what_is_not_here,
    embedded::the_configuration_is_good,
    plugins::headers_wait_for_the_body,
    plugins::a_trap_is_survived,
    plugins::code_is_local,
    chain::the_picker_is_before_the_router,
    chain::nothing_holds_bodies_before_the_picker,
    chain::one_copy_picks,
    sharing::one_vm_id,
    sharing::one_configuration_of_a_pool,
    sharing::a_collector_of_its_own,
    headers::owned_headers_are_stripped,
    buffers::bodies_fit,
    timers::routes_wait,
    timers::streams_may_be_silent,
    timers::uploads_have_time,
    timers::clusters_wait,
    destination::a_cluster_reads_the_destination,
    destination::a_route_is_left_without_a_pick,
    destination::the_header_reaches_the_cluster,
    rematch::both_routes_say_the_same_to_filters,
    rematch::routes_need_what_is_written,
    upstream::connections_close_before_the_engines_close_them,
    upstream::resets_are_retried,
    upstream::breakers_are_above_what_engines_take,
    scrape::the_cluster_reaches_any_endpoint,
    scrape::the_cluster_takes_all_scrapes,
    discovery::the_cluster_is_there,
    stats::labels_become_labels,
    exposure::what_shows_state_is_on_loopback,
];
