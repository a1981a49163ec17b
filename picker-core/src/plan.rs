//! What an `EndpointPickerConfig` says, ready to run.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use serde_json::Value;

use crate::handler::Handler;
use crate::profile::Profile;

/// What an `EndpointPickerConfig` says, ready to run.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Which profiles are run.
    pub handler: Handler,
    /// How endpoints are chosen; at least one profile, each with a name of its own.
    pub profiles: Vec<Profile>,
    /// The names, in lower case, of request headers that plugins read.
    pub headers: Vec<String>,
    /// The document with every default filled in.
    pub document: Value,
}

impl Plan {
    /// One profile and nothing else, as from no document.
    pub fn of(profile: Profile) -> Self {
        Self {
            handler: Handler::Single,
            profiles: vec![profile],
            headers: Vec::new(),
            document: Value::Null,
        }
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self::of(Profile::default())
    }
}
