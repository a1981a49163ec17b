//! The picker's counters, which carry their labels in their names.

use crate::config::finding::Finding;
use crate::config::model::Model;

/// Each label needs a rule that takes it out of the name.
pub(super) fn labels_become_labels(model: &Model<'_>) -> Vec<Finding> {
    let Some(bootstrap) = model.picking_bootstrap() else {
        return Vec::new();
    };
    let tags = bootstrap.list("stats_config.stats_tags");
    let has = |label: &str| {
        let mut regexes = tags.iter().filter_map(|tag| tag.field("regex").text());
        regexes.any(|regex| regex.contains(&format!(";{label}=")))
    };
    let missing = LABELS.iter().filter(|label| !has(label));
    missing
        .map(|label| {
            bootstrap.get("stats_config.stats_tags").warn(
                format!("no tag for `;{label}=`"),
                &format!(
                    "Prometheus gets names like picker_refusals_total_{label}_x, one metric for \
                     each value"
                ),
                format!("{{ tag_name: {label}, regex: '(;{label}=([^;]+))' }}"),
            )
        })
        .collect()
}

/// What a name may carry.
const LABELS: [&str; 5] = [
    "pool",
    "decision_type",
    "reason",
    "inference_pool",
    "priority",
];
