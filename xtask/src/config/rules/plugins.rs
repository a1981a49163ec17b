//! How Envoy treats the module.

use picker_core::{Config, Destination};

use crate::config::finding::Finding;
use crate::config::model::Model;
use crate::config::place::Place;
use crate::config::plugin::Plugin;

/// The copies among HTTP filters.
fn filters<'m, 'a>(model: &'m Model<'a>) -> impl Iterator<Item = &'m Plugin<'a>> {
    model.managers.iter().flat_map(|manager| manager.plugins())
}

/// Without the flag a pause in the header phase never sees the body.
pub(super) fn headers_wait_for_the_body(model: &Model<'_>) -> Vec<Finding> {
    let holding = filters(model).filter(|it| it.config().is_none_or(holds_headers));
    let flags = holding.map(|it| it.place.field("allow_on_headers_stop_iteration"));
    let unset = flags.filter(|flag| !flag.is_true());
    unset
        .map(|flag| {
            flag.warn(
                "not set",
                "A request with a body hangs until a timer ends it: the headers wait for a body \
                 that Envoy does not hand over",
                "allow_on_headers_stop_iteration: true",
            )
        })
        .collect()
}

fn holds_headers(config: &Config) -> bool {
    let releases = Destination::FilterState {
        holds_headers: false,
    };
    config.destination != releases
}

/// Envoy's default leaves a worker without the picker after its first trap.
pub(super) fn a_trap_is_survived(model: &Model<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for plugin in filters(model) {
        let policy = plugin.place.field("failure_policy");
        if policy.text() == Some("FAIL_RELOAD") || policy.number() == Some(1) {
            continue;
        }
        let old = plugin.place.field("fail_open");
        let (place, what, why) = if old.is_given() && !policy.is_given() {
            (
                &old,
                "the deprecated form of failure_policy",
                "After a trap a worker never picks again: its requests pass unpicked with true, and \
                 are refused with false",
            )
        } else if policy.text() == Some("FAIL_OPEN") {
            (
                &policy,
                "FAIL_OPEN",
                "After a trap a worker never picks again, and its requests pass unpicked",
            )
        } else {
            (
                &policy,
                policy.text().unwrap_or("not set, which is FAIL_CLOSED"),
                "After a trap a worker answers 503 to every request until Envoy restarts",
            )
        };
        let fix = "failure_policy: FAIL_RELOAD, with reload_config: { backoff: { base_interval: \
                   0.5s, max_interval: 2s } }";
        findings.push(place.warn(what, why, fix));
    }
    findings
}

/// Envoy itself calls fetching of code unstable.
pub(super) fn code_is_local(model: &Model<'_>) -> Vec<Finding> {
    let codes = model
        .plugins()
        .map(|it| it.place.get("vm_config.code.remote"));
    let remote = codes.filter(Place::is_given);
    remote
        .map(|code| {
            code.warn(
                "the module is fetched over HTTP",
                "Until it has come requests are refused, a failed fetch is not tried again for \
                 10 s, and with nack_on_code_cache_miss a static configuration does not start",
                "put the module beside Envoy and name it: code: { local: { filename: … } }",
            )
        })
        .collect()
}
