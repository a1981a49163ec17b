//! Request bodies that are held until they are read.
//!
//! The limit that counts is that of the route which a request matches before the pick: what is set
//! there or on its virtual host, but never less than the listener's. The newer field wins over the
//! older one wherever either stands.

use crate::config::finding::Finding;
use crate::config::model::{Manager, Model};
use crate::config::place::Place;
use crate::config::route::Route;

/// A body that the picker accepts must fit into Envoy's buffer.
pub(super) fn bodies_fit(model: &Model<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manager in &model.managers {
        for route in manager.picked_routes() {
            findings.extend(of_one(manager, route));
        }
    }
    findings
}

fn of_one(manager: &Manager<'_>, route: &Route<'_>) -> Option<Finding> {
    let mut needed = 0;
    for plugin in manager.pickers() {
        if plugin.header().is_some_and(|header| route.needs(header)) {
            return None;
        }
        let pools = plugin.config().map(|config| route.pools(config));
        let limits = pools.into_iter().flatten();
        needed = limits
            .map(|pool| pool.limits.request_body_bytes)
            .chain([needed])
            .max()?;
    }
    let listener = manager.listener.field("per_connection_buffer_limit_bytes");
    let own = limit_of(route);
    let of_listener = listener.number().unwrap_or(LISTENER_DEFAULT);
    let allowed = own
        .as_ref()
        .and_then(Place::number)
        .unwrap_or(0)
        .max(of_listener);
    if allowed >= needed {
        return None;
    }
    let place = own.unwrap_or_else(|| route.host.field("request_body_buffer_limit"));
    let what = match (place.is_given(), listener.is_given()) {
        (true, _) => format!("{allowed} bytes at most"),
        (false, true) => format!("not set, and the listener allows {allowed} bytes"),
        (false, false) => format!("not set, and a listener's default is {allowed} bytes"),
    };
    // Envoy's answer must not come before the picker's.
    let enough = needed + (1 << 20);
    Some(place.warn(
        what,
        &format!(
            "Bodies are held until they are read, and Envoy answers 413 where the picker would \
             take {needed} bytes"
        ),
        format!("request_body_buffer_limit: {enough}, or a smaller limits.requestBodyBytes"),
    ))
}

/// The limit that is set for a route.
fn limit_of<'a>(route: &Route<'a>) -> Option<Place<'a>> {
    let fields = [
        "request_body_buffer_limit",
        "per_request_buffer_limit_bytes",
    ];
    let places = fields
        .iter()
        .flat_map(|field| [route.place.field(field), route.host.field(field)]);
    places.into_iter().find(Place::is_given)
}

/// What Envoy buffers of a connection where nothing is set.
const LISTENER_DEFAULT: u64 = 1 << 20;
