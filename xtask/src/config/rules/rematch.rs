//! What a second match of the route changes.

use picker_core::MODEL_HEADERS;

use crate::config::finding::Finding;
use crate::config::model::{Manager, Model};
use crate::config::plugin::Plugin;
use crate::config::route::Route;

/// The filters before the picker run with the settings of the route without a pick, and the
/// request goes on by the one with it.
pub(super) fn both_routes_say_the_same_to_filters(model: &Model<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manager in &model.managers {
        for written in manager.pickers().map(Plugin::written) {
            for header in &written {
                let routes = manager.routes.iter().flatten();
                let picked = routes.filter(|route| route.needs(header));
                findings.extend(picked.filter_map(|route| differs(manager, route, &written)));
            }
        }
    }
    findings
}

/// A route by a header that no request has is never taken, or only while the picker is bypassed.
pub(super) fn routes_need_what_is_written(model: &Model<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manager in model.picking() {
        let written: Vec<&str> = manager.pickers().flat_map(Plugin::written).collect();
        let never = MODEL_HEADERS.iter().filter(|it| !written.contains(it));
        for header in never {
            let routes = manager.routes.iter().flatten();
            let needing = routes.filter(|route| route.needs(header));
            findings.extend(needing.map(|route| {
                route.place.get("match.headers").warn(
                    format!("wants {header}, which no request has"),
                    "The picker removes what clients say there, and writes it only where it is told to",
                    "modelHeaders: {} in the picker's configuration",
                )
            }));
        }
    }
    findings
}

fn differs(manager: &Manager<'_>, picked: &Route<'_>, written: &[&str]) -> Option<Finding> {
    let header = written.iter().find(|it| picked.needs(it))?;
    let routes = manager.routes.as_deref().unwrap_or_default();
    let is_before = |other: &&Route<'_>| !written.iter().any(|it| other.needs(it));
    let before = routes
        .iter()
        .find(|other| is_before(other) && other.covers(picked))?;
    let (settings, others) = (picked.place.field(SETTINGS), before.place.field(SETTINGS));
    if settings.node().to_json() == others.node().to_json() {
        return None;
    }
    Some(settings.warn(
        format!("differs from that of {}", before.place.path),
        &format!(
            "Envoy matches the route again when the picker sets {header}: what filters do by route, \
             authorization above all, is then that of another route than the one they asked"
        ),
        "the same for both routes, or via: filterState without modelHeaders and modelRewrites, after \
         which no route is matched",
    ))
}

/// Where a route has its settings for filters.
const SETTINGS: &str = "typed_per_filter_config";
