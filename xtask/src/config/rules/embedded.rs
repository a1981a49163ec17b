//! The picker's own configuration inside Envoy's.

use picker_core::Role;

use crate::config::document::warnings;
use crate::config::finding::{Finding, Level};
use crate::config::model::Model;
use crate::config::plugin::{Plugin, Unusable};

/// Repeats what the picker would say of its configuration.
pub(super) fn the_configuration_is_good(model: &Model<'_>) -> Vec<Finding> {
    let filters = model.managers.iter().flat_map(|it| it.plugins());
    let empty = filters.filter(|plugin| matches!(plugin.read, Ok(Role::Service)));
    let empty = empty.map(|plugin| {
        plugin.place.field("configuration").warn(
            "an HTTP filter without configuration",
            "It collects metrics and picks nothing",
            "give it `pools`, or `serve: page`",
        )
    });
    model.plugins().flat_map(of_one).chain(empty).collect()
}

fn of_one(plugin: &Plugin<'_>) -> Vec<Finding> {
    let configuration = plugin.place.field("configuration");
    let place = if configuration.field("value").is_given() {
        configuration.field("value")
    } else {
        configuration
    };
    match &plugin.read {
        Ok(role) => warnings(role)
            .into_iter()
            .map(|warning| place.find(Level::Warning, warning))
            .collect(),
        Err(Unusable::Mistakes(mistakes)) => mistakes
            .iter()
            .map(|mistake| place.find(Level::Error, mistake.to_string()))
            .collect(),
        Err(Unusable::Type(kind)) => {
            let kind = if kind.is_empty() { "no `@type`" } else { kind };
            let text = format!(
                "the picker cannot read {kind}. Fix: use type.googleapis.com/google.protobuf.\
                 StringValue with the JSON as its `value`, or google.protobuf.Struct."
            );
            vec![place.find(Level::Error, text)]
        }
    }
}
