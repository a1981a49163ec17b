//! One copy of the picker in an Envoy: filter, pages or service.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use picker_core::{Config, ConfigError, Destination, MODEL_HEADERS, Role, parse_config};

use super::place::Place;

/// The picker's plugin configuration in one place.
#[derive(Debug)]
pub(super) struct Plugin<'a> {
    /// Envoy's `PluginConfig`.
    pub(super) place: Place<'a>,
    /// What the picker's own configuration says.
    pub(super) read: Result<Role, Unusable>,
}

/// Why the picker would not take its configuration.
#[derive(Debug)]
pub(super) enum Unusable {
    /// Its mistakes.
    Mistakes(Vec<ConfigError>),
    /// It is a message of this type, which the picker does not know.
    Type(String),
}

impl<'a> Plugin<'a> {
    /// The picker, if it is that: by its names, its module or its configuration.
    pub(super) fn read(place: &Place<'a>) -> Option<Self> {
        let configuration = place.field("configuration");
        let value = configuration.field("value");
        let read = match configuration.message().kind {
            "" if !configuration.is_given() => Ok(Vec::new()),
            "StringValue" => Ok(value.text().unwrap_or_default().into()),
            "BytesValue" => {
                let bytes = STANDARD.decode(value.text().unwrap_or_default());
                bytes.map_err(|_| Unusable::Type("bytes that are not base64".to_owned()))
            }
            "Struct" => Ok(value.node().to_json().to_string().into_bytes()),
            other => Err(Unusable::Type(other.to_owned())),
        };
        // With mistakes in it, it is known by what it is about.
        let key = b"\"pools\"";
        let mut windows = read
            .iter()
            .flat_map(|bytes: &Vec<u8>| bytes.windows(key.len()));
        let is_about_pools = windows.any(|window| window == key);
        let read = read.and_then(|bytes| parse_config(&bytes).map_err(Unusable::Mistakes));
        let is_named = [place.field("root_id"), place.get("vm_config.vm_id")]
            .iter()
            .any(|name| name.text() == Some("picker"));
        let module = place.get("vm_config.code.local.filename").text();
        let is_module = module.is_some_and(|name| name.ends_with("picker.wasm"));
        let is_read = matches!(read, Ok(Role::Filter(_) | Role::Page));
        (is_named || is_module || is_read || is_about_pools).then(|| Self {
            place: place.clone(),
            read,
        })
    }

    /// The configuration, where this copy picks.
    pub(super) fn config(&self) -> Option<&Config> {
        match &self.read {
            Ok(Role::Filter(config)) => Some(config),
            _ => None,
        }
    }

    /// The header in which this copy names its picks.
    pub(super) fn header(&self) -> Option<&str> {
        match &self.config()?.destination {
            Destination::Header(header) => Some(header),
            Destination::FilterState { .. } => None,
        }
    }

    /// The headers by which this copy can make Envoy take another route.
    pub(super) fn written(&self) -> Vec<&str> {
        let tells_model = self.config().is_some_and(|it| it.model_headers.is_some());
        let of_model = MODEL_HEADERS.into_iter().filter(|_| tells_model);
        self.header().into_iter().chain(of_model).collect()
    }
}
