//! Plugin types that have another name now, or none.

use super::Step;
use crate::config::migrate::layout::Laid;
use crate::config::migrate::sheet::{Body, Edit, Sheet, kind_of, quoted};

pub(super) fn types_have_new_names(sheet: &Sheet<'_>) -> Option<Step> {
    sheet.plugins().find_map(|(index, plugin)| {
        let renamed = RENAMED.iter().find(|(old, _)| *old == kind_of(plugin));
        let (old, new) = renamed?;
        let told = format!("plugins[{index}].type: {old} is called {new} now");
        Some(Step::new(told, rename(sheet, plugin, new)?))
    })
}

/// Plugins that wrote headers before the profile handler did.
pub(super) fn headers_are_set_by_the_handler(sheet: &Sheet<'_>) -> Option<Step> {
    let list = sheet.root.get("plugins")?;
    let mut plugins = sheet.plugins();
    let (index, plugin) = plugins.find(|(_, it)| HEADER_WRITERS.contains(&kind_of(it)))?;
    let kind = kind_of(plugin);
    let told = format!("plugins[{index}]: {kind} is gone; disagg-profile-handler sets the headers");
    Some(Step::new(told, vec![sheet.remove_item(list, plugin)]))
}

/// Another type for a plugin, under its old name where another has the new one; else with all
/// that refer to it.
pub(super) fn rename(sheet: &Sheet<'_>, plugin: &Laid, new: &str) -> Option<Vec<Edit>> {
    let kind = plugin.field("type")?;
    let old = kind.value.text()?;
    let mut edits = vec![sheet.set(&kind.value, new)];
    if plugin.get("name").is_some() {
        return Some(edits);
    }
    if sheet.has_name(new) {
        let block = format!("name: {old}");
        let flow = format!("\"name\": {}", quoted(old));
        edits.push(sheet.add(plugin, &Body { block, flow }));
        return Some(edits);
    }
    let mut references = Vec::new();
    collect(sheet.root, ("", ""), old, &mut references);
    edits.extend(references.into_iter().map(|it| sheet.set(it, new)));
    Some(edits)
}

/// Collects the values that refer to a plugin, told by their keys and those around them.
fn collect<'a>(
    value: &'a Laid,
    (parent, key): (&str, &str),
    name: &str,
    references: &mut Vec<&'a Laid>,
) {
    let is_reference = ["Ref", "ProducerName", "PluginName"]
        .iter()
        .any(|end| key.ends_with(end))
        || parent == "deciders";
    if is_reference && value.text() == Some(name) {
        references.push(value);
    }
    for item in value.items() {
        collect(item, (parent, key), name, references);
    }
    for field in value.fields() {
        collect(&field.value, (key, &field.name), name, references);
    }
}

pub(super) fn a_tokenizer_of_its_own(sheet: &Sheet<'_>) -> Vec<String> {
    let key = "udsTokenizerConfig";
    let has = |it: &Laid| it.get("parameters").is_some_and(|it| it.get(key).is_some());
    let plugins = sheet.plugins().filter(|(_, it)| has(it));
    plugins
        .map(|(index, _)| {
            format!(
                "plugins[{index}].parameters.{key}: tokenizers on a socket are deprecated; remove \
                 it for estimates"
            )
        })
        .collect()
}

/// Types and what they are called now.
const RENAMED: [(&str, &str); 4] = [
    ("by-label-selector", "label-selector-filter"),
    ("pd-profile-handler", "disagg-profile-handler"),
    ("prefix-cache-plugin", "prefix-cache-scorer"),
    ("tokenizer", "token-producer"),
];

const HEADER_WRITERS: [&str; 2] = ["disagg-headers-handler", "prefill-header-handler"];
