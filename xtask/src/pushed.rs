//! A listener in a file of its own, which Envoy reads again when it is replaced: how a configuration
//! comes to a running Envoy.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::bootstrap::{Bootstrap, TRAFFIC};

/// The listener for clients in a file.
pub struct Pushed {
    listener: Value,
    path: PathBuf,
}

impl Pushed {
    /// Moves the listener from the configuration into a file in `directory`, which is made when
    /// missing.
    pub fn new(bootstrap: &mut Bootstrap, directory: &Path) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let path = directory.join("listeners.json");
        let root = bootstrap.value_mut();
        let listeners = root.pointer_mut("/static_resources/listeners");
        let listeners = listeners
            .and_then(Value::as_array_mut)
            .context("no listeners")?;
        let at = listeners
            .iter()
            .position(|listener| listener["name"] == TRAFFIC);
        let listener = listeners.remove(at.with_context(|| format!("no listener `{TRAFFIC}`"))?);
        root["dynamic_resources"] = json!({"lds_config": {
            "resource_api_version": "V3",
            "path_config_source": {"path": path, "watched_directory": {"path": directory}},
        }});
        let pushed = Self { listener, path };
        pushed.push(|_| {})?;
        Ok(pushed)
    }

    /// Replaces the file by one whose first pool is changed.
    pub fn push(&self, change: impl FnOnce(&mut Value)) -> Result<()> {
        let mut listener = self.listener.clone();
        listener["@type"] = json!("type.googleapis.com/envoy.config.listener.v3.Listener");
        let filters = "/filter_chains/0/filters/0/typed_config/http_filters/0";
        let text = format!("{filters}/typed_config/config/configuration/value");
        let value = listener
            .pointer_mut(&text)
            .context("no configuration of the picker")?;
        let mut document: Value = serde_json::from_str(value.as_str().unwrap_or_default())?;
        let pool = document.pointer_mut("/pools/0").context("no pool")?;
        change(pool);
        *value = json!(document.to_string());
        let next = self.path.with_extension("next");
        fs::write(&next, json!({"resources": [listener]}).to_string())?;
        fs::rename(&next, &self.path).context("cannot replace the file")
    }
}
