//! The document outside its plugins.

use super::Step;
use crate::config::migrate::layout::{Form, Laid};
use crate::config::migrate::sheet::{Body, Sheet};

/// The group of the version was another before the project moved, and some texts have one that
/// never was.
pub(super) fn the_version_has_a_new_name(sheet: &Sheet<'_>) -> Option<Step> {
    let version = sheet.root.get("apiVersion")?;
    let text = version.text().filter(|text| *text != VERSION)?;
    let (_, number) = text.rsplit_once('/')?;
    let is_same = VERSION.ends_with(&format!("/{number}"));
    let told = format!("apiVersion: {text} is called {VERSION} now");
    is_same.then(|| Step::new(told, vec![sheet.set(version, VERSION)]))
}

pub(super) fn an_unknown_version(sheet: &Sheet<'_>) -> Vec<String> {
    let version = sheet.root.get("apiVersion").and_then(Laid::text);
    let unknown = version.filter(|text| *text != VERSION).into_iter();
    unknown
        .map(|text| format!("apiVersion: {text} is not known; this is written for {VERSION}"))
        .collect()
}

/// What these gates switched on is always on.
pub(super) fn gates_that_are_gone_are_left_out(sheet: &Sheet<'_>) -> Option<Step> {
    let field = sheet.root.field("featureGates")?;
    let gates = &field.value;
    let name = |gate: &Laid| {
        gate.text()
            .unwrap_or_default()
            .split('=')
            .next()
            .map(String::from)
    };
    let is_gone = |gate: &&Laid| name(gate).is_some_and(|it| GATES.contains(&it.as_str()));
    let gate = gates.items().iter().find(is_gone)?;
    let edit = if gates.items().len() == 1 {
        sheet.remove(sheet.root, field)
    } else {
        sheet.remove_item(gates, gate)
    };
    let name = name(gate).unwrap_or_default();
    let told = format!("featureGates: {name} is gone; what it switched on is always on");
    Some(Step::new(told, vec![edit]))
}

/// `parser` became the first of `requestHandler.parsers`, and counts only where that is empty.
pub(super) fn the_parser_is_one_of_a_list(sheet: &Sheet<'_>) -> Option<Step> {
    let root = sheet.root;
    let field = root.field("parser")?;
    let parsers = root
        .get("requestHandler")
        .and_then(|it| it.field("parsers"));
    if parsers.is_some_and(|it| !it.value.items().is_empty()) {
        let told = "parser: has no effect beside requestHandler.parsers";
        return Some(Step::new(told, vec![sheet.remove(root, field)]));
    }
    let flow = format!("\"parsers\": [{}]", sheet.flow(&field.value));
    let block = if field.value.form() == Form::Block {
        let value = sheet.renamed(root, field, "").block;
        // The lines below `parser:` as the element of a list.
        let (head, lines) = value.split_once('\n').unwrap_or_default();
        let margin = lines.len() - lines.trim_start_matches(' ').len();
        let mut lines = lines
            .lines()
            .map(|line| line.get(margin..).unwrap_or_default());
        let mut list = format!("parsers{head}\n- {}", lines.next().unwrap_or_default());
        lines.for_each(|line| list.push_str(&format!("\n  {line}")));
        list
    } else {
        format!("parsers: [{}]", sheet.flow(&field.value))
    };
    let edits = sheet.nest(root, field, "requestHandler", &Body { block, flow });
    Some(Step::new(
        "parser: is one of requestHandler.parsers now",
        edits,
    ))
}

pub(super) fn the_detector_belongs_to_flow_control(sheet: &Sheet<'_>) -> Option<Step> {
    let root = sheet.root;
    let field = root.field(DETECTOR)?;
    let own = root.get("flowControl").and_then(|it| it.get(DETECTOR));
    if own.is_some() {
        let told = "saturationDetector: has no effect beside flowControl.saturationDetector";
        return Some(Step::new(told, vec![sheet.remove(root, field)]));
    }
    let body = sheet.renamed(root, field, DETECTOR);
    let edits = sheet.nest(root, field, "flowControl", &body);
    Some(Step::new(
        "saturationDetector: belongs to flowControl now",
        edits,
    ))
}

/// The version of the document.
const VERSION: &str = "llm-d.ai/v1alpha1";

/// Gates of releases before the move.
const GATES: [&str; 2] = ["dataLayer", "prepareDataPlugins"];

const DETECTOR: &str = "saturationDetector";
