//! Headers that only the picker may set.

use picker_core::OWNED_HEADERS;

use crate::config::finding::Finding;
use crate::config::model::{Manager, Model};
use crate::config::plugin::Plugin;

/// The picker removes them itself; while it is bypassed or being reloaded Envoy must.
pub(super) fn owned_headers_are_stripped(model: &Model<'_>) -> Vec<Finding> {
    model.picking().filter_map(of_one).collect()
}

fn of_one(manager: &Manager<'_>) -> Option<Finding> {
    let own = manager.pickers().filter_map(Plugin::header);
    let mut owned: Vec<&str> = OWNED_HEADERS.to_vec();
    owned.extend(own.filter(|header| !OWNED_HEADERS.contains(header)));

    let early = manager.place.list("early_header_mutation_extensions");
    let mutations = early.iter().flat_map(|extension| {
        let message = extension.field("typed_config").message();
        message.place.list("mutations")
    });
    let removed: Vec<&str> = mutations
        .filter_map(|it| it.field("remove").text())
        .collect();
    owned.retain(|header| !removed.iter().any(|it| it.eq_ignore_ascii_case(header)));
    if owned.is_empty() {
        return None;
    }
    let removals = owned.iter().map(|header| format!("{{ remove: {header} }}"));
    let removals = removals.collect::<Vec<_>>().join(", ");
    let place = manager.place.field("early_header_mutation_extensions");
    Some(place.warn(
        format!("does not remove {}", owned.join(", ")),
        "A client can name its destination while the picker is bypassed or being reloaded",
        format!("an envoy.http.early_header_mutation.header_mutation with mutations: [{removals}]"),
    ))
}
