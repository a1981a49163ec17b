//! The JSON Schema of the picker's configuration, as files.

use picker_core::{config_schema, picker_schema};

use super::show::to_json;

/// The schema of the filter's configuration or, with `is_picker`, of an `EndpointPickerConfig` by
/// itself.
pub(super) fn text(is_picker: bool) -> String {
    let schema = if is_picker {
        picker_schema()
    } else {
        config_schema()
    };
    format!("{}\n", to_json(&schema))
}

#[cfg(test)]
mod tests;
