//! What the documents do not have, so that nobody takes silence for approval.

use crate::config::finding::{Finding, Level};
use crate::config::model::Model;
use crate::config::place::Place;

/// Names what could not be checked, and says when there is no picker at all.
pub(super) fn what_is_not_here(model: &Model<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let note = |place: &Place<'_>, text: &str| place.find(Level::Note, text.to_owned());
    let Some(first) = model.managers.first() else {
        let root = model.bootstrap.iter().chain(&model.clusters).next();
        return root
            .map(|place| {
                place.warn(
                    "no connection manager has the picker among its HTTP filters",
                    "Nothing is picked, and nothing could be checked",
                    "add the filter as in envoy/envoy.yaml, or give the file that has the listener",
                )
            })
            .into_iter()
            .collect();
    };
    if model.bootstrap.is_none() {
        let text = "no bootstrap here: stats tags, the admin interface and the collector's \
                    service were not checked";
        findings.push(note(&first.listener, text));
    }
    if model.clusters.is_empty() {
        let text = "no clusters here: they were not checked";
        findings.push(note(&first.listener, text));
    }
    for manager in &model.managers {
        if manager.routes.is_none() {
            let text = "its routes are not here: they were not checked";
            findings.push(note(&manager.place, text));
        }
    }
    findings
}
