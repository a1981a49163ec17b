//! `by-label`, which a label selector can say as well.

use super::Step;
use super::plugins::rename;
use crate::config::migrate::layout::{Form, Laid};
use crate::config::migrate::sheet::{Body, Edit, Sheet, kind_of};

/// One label and its values are an expression of a label selector.
pub(super) fn one_label_is_a_selector(sheet: &Sheet<'_>) -> Option<Step> {
    sheet.plugins().find_map(|(index, plugin)| {
        let parameters = plugin.get("parameters")?;
        if kind_of(plugin) != OLD || may_be_missing(parameters) {
            return None;
        }
        let mut edits = rename(sheet, plugin, NEW)?;
        edits.extend(selector(sheet, parameters)?);
        let told = format!("plugins[{index}]: {OLD} is a {NEW} with matchExpressions now");
        Some(Step::new(told, edits))
    })
}

fn selector(sheet: &Sheet<'_>, parameters: &Laid) -> Option<Vec<Edit>> {
    let (label, values) = (parameters.field("label")?, parameters.field("validValues")?);
    let key = sheet.renamed(parameters, label, "key");
    let listed = sheet.renamed(parameters, values, "values");
    let lines = |text: &str| text.replace('\n', "\n  ");
    let body = Body {
        block: format!(
            "matchExpressions:\n- {}\n  operator: In\n  {}",
            lines(&key.block),
            lines(&listed.block)
        ),
        flow: format!(
            "\"matchExpressions\": [{{{}, \"operator\": \"In\", {}}}]",
            key.flow, listed.flow
        ),
    };
    if parameters.form() == Form::Flow {
        let text = format!("{{{}}}", body.flow);
        let range = parameters.span.clone();
        return Some(vec![Edit { range, text }]);
    }
    let mut edits = vec![
        sheet.replace(parameters, label, &body),
        sheet.remove(parameters, values),
    ];
    let may_lack = parameters.field("allowsNoLabel");
    edits.extend(may_lack.map(|it| sheet.remove(parameters, it)));
    Some(edits)
}

pub(super) fn a_label_that_may_be_missing(sheet: &Sheet<'_>) -> Vec<String> {
    let plugins = sheet.plugins().filter(|(_, it)| kind_of(it) == OLD);
    plugins
        .map(|(index, _)| {
            format!(
                "plugins[{index}]: no selector takes some values of a label and its absence; for \
                 the label llm-d.ai/role write decode-filter, else label all endpoints"
            )
        })
        .collect()
}

fn may_be_missing(parameters: &Laid) -> bool {
    parameters.get("allowsNoLabel").and_then(Laid::text) == Some("true")
}

const OLD: &str = "by-label";
const NEW: &str = "label-selector-filter";
