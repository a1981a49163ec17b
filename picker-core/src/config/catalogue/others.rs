//! Plugins that other parts of the document refer to.

use super::super::table::Parameter;
use super::{Part, PluginType, Roles, Stability};

/// A type without parameters that is there to be referred to.
macro_rules! part {
    ($name:literal, $part:ident) => {
        PluginType {
            make: |_| Ok(Roles::part(Part::$part)),
            ..PluginType::named($name)
        }
    };
}

pub(super) const TYPES: &[PluginType] = &[
    part!("openai-parser", Parser),
    part!("anthropic-parser", Parser),
    part!("vllmhttp-parser", Parser),
    part!("sglanghttp-parser", Parser),
    part!("passthrough-parser", Parser),
];

impl PluginType {
    /// A settled type of this name that does nothing yet.
    pub(super) const fn named(name: &'static str) -> Self {
        const NONE: &[Parameter] = &[];
        Self {
            name,
            old_names: &[],
            stability: Stability::Beta,
            parameters: NONE,
            needs: &[],
            make: |_| Ok(Roles::default()),
        }
    }
}
