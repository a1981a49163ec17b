//! The picker among the other HTTP filters.

use crate::config::finding::Finding;
use crate::config::model::{Filter, Manager, Model};

/// The router ends the chain.
pub(super) fn the_picker_is_before_the_router(model: &Model<'_>) -> Vec<Finding> {
    let late = pickers_behind(model, |filter| filter.kind == "Router");
    late.map(|(picker, router)| {
        picker.place.warn(
            format!("behind {}", name(router)),
            "Envoy refuses filters behind the router, and none of them would see a request",
            "move the picker before the router",
        )
    })
    .collect()
}

/// The picker reads bodies as they come and holds them itself.
pub(super) fn nothing_holds_bodies_before_the_picker(model: &Model<'_>) -> Vec<Finding> {
    let late = pickers_behind(model, holds_bodies);
    late.map(|(picker, holder)| {
        picker.place.warn(
            format!("behind {}, which holds request bodies", name(holder)),
            "The picker gets a body only when all of it has come, under the other's size limit, \
             and reads what the other made of it",
            format!("move the picker before {}", name(holder)),
        )
    })
    .collect()
}

/// Each copy would undo the pick of the one before.
pub(super) fn one_copy_picks(model: &Model<'_>) -> Vec<Finding> {
    let further = model.managers.iter().flat_map(|it| it.pickers().skip(1));
    further
        .map(|plugin| {
            plugin.place.warn(
                "a second copy of the picker in one chain",
                "A request that both match is read twice, and the last copy's pick is the one that counts",
                "keep one, with all pools in its configuration",
            )
        })
        .collect()
}

/// Each picker with the first filter before it that is so.
fn pickers_behind<'m, 'a>(
    model: &'m Model<'a>,
    is_so: fn(&Filter<'a>) -> bool,
) -> impl Iterator<Item = (&'m Filter<'a>, &'m Filter<'a>)> {
    let behind = move |manager: &'m Manager<'a>| {
        let first = manager.filters.iter().position(is_so)?;
        let picks = |filter: &&Filter<'_>| {
            let picker = filter.picker.as_ref();
            picker.is_some_and(|picker| picker.config().is_some())
        };
        let picker = manager.filters[first..].iter().find(picks)?;
        Some((picker, &manager.filters[first]))
    };
    model.managers.iter().filter_map(behind)
}

fn holds_bodies(filter: &Filter<'_>) -> bool {
    match filter.kind {
        "Buffer" | "FileSystemBufferFilterConfig" | "GrpcJsonTranscoder" => true,
        "ExternalProcessor" => {
            let mode = filter.config.get("processing_mode.request_body_mode");
            matches!(mode.text(), Some("BUFFERED" | "BUFFERED_PARTIAL"))
        }
        _ => false,
    }
}

fn name<'a>(filter: &Filter<'a>) -> &'a str {
    filter.place.field("name").text().unwrap_or(filter.kind)
}
