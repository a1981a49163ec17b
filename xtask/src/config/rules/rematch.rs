//! What a second match of the route changes.

use crate::config::finding::Finding;
use crate::config::model::{Manager, Model};
use crate::config::plugin::Plugin;
use crate::config::route::Route;

/// The filters before the picker run with the settings of the route without a pick, and the
/// request goes on by the one with it.
pub(super) fn both_routes_say_the_same_to_filters(model: &Model<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manager in &model.managers {
        for header in manager.pickers().filter_map(Plugin::header) {
            let picked = manager.picked_routes().filter(|route| route.needs(header));
            findings.extend(picked.filter_map(|route| differs(manager, route, header)));
        }
    }
    findings
}

fn differs(manager: &Manager<'_>, picked: &Route<'_>, header: &str) -> Option<Finding> {
    let routes = manager.routes.as_deref().unwrap_or_default();
    let before = routes
        .iter()
        .find(|other| !other.needs(header) && other.covers(picked))?;
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
        "the same for both routes, or via: filterState, after which no route is matched",
    ))
}

/// Where a route has its settings for filters.
const SETTINGS: &str = "typed_per_filter_config";
