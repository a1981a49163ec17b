//! `cargo xtask config migrate`: what is out of date in a document of the reference picker,
//! replaced where it stands.
//!
//! The text is edited by the places of its tokens and never written anew, so comments, order and
//! quotes stay as they are.

mod layout;
mod rules;
mod sheet;

use granit_parser::ScalarStyle;
use similar::TextDiff;

use super::parts::{Document, Outer, Part, parts};
use super::tree;
use layout::{Kind, Laid};
use sheet::{Edit, Sheet};

/// A text and what became of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Migrated {
    /// The text as it is to be; as it was where nothing is to be done.
    pub(super) text: String,
    /// What was changed, a line each.
    pub(super) changes: Vec<String>,
    /// What only a person can change, a line each.
    pub(super) left: Vec<String>,
}

/// Migrates the documents of a file; `None` when it has none of the picker.
pub(super) fn migrate(file: &str, text: &str) -> Option<Migrated> {
    let found = parts(file, text);
    if found.is_empty() {
        return None;
    }
    let mut migrated = migrate_own(file, text);
    for part in &found {
        let Some(outer) = &part.text.outer else {
            continue;
        };
        let inner = migrate_own(&part.text.name, &part.text.text);
        migrated.left.extend(inner.left);
        if inner.text == part.text.text {
            continue;
        }
        // The text around may have moved on.
        match with_inner(&migrated.text, outer, &part.text.text, &inner.text) {
            Some(text) => {
                migrated.text = text;
                migrated.changes.extend(inner.changes);
            }
            None => migrated.left.push(format!("{}: {FOLDED}", part.text.name)),
        }
    }
    Some(migrated)
}

/// The changes between two texts of a file, as `diff -u` tells them; empty when there are none.
pub(super) fn diff(file: &str, old: &str, new: &str) -> String {
    let diff = TextDiff::from_lines(old, new);
    let mut diff = diff.unified_diff();
    diff.header(file, file).to_string()
}

/// Migrates the documents that a text has itself.
fn migrate_own(file: &str, text: &str) -> Migrated {
    let mut migrated = Migrated {
        text: text.to_owned(),
        ..Migrated::default()
    };
    for _ in 0..STEPS_MAX {
        let Some(step) = next_step(file, &migrated.text) else {
            break;
        };
        let edited = sheet::apply(&migrated.text, step.edits);
        if edited == migrated.text || layout::documents(&edited).is_err() {
            let told = step.told;
            migrated
                .left
                .push(format!("{file}: {told}; this is to be done by hand"));
            break;
        }
        migrated.text = edited;
        migrated.changes.push(format!("{file}: {}", step.told));
    }
    migrated.left.extend(left(file, &migrated.text));
    migrated
}

fn next_step(file: &str, text: &str) -> Option<rules::Step> {
    let documents = layout::documents(text).ok()?;
    let mut pickers = pickers(file, text, &documents).into_iter();
    pickers.find_map(|root| rules::next_step(&Sheet { text, root }))
}

fn left(file: &str, text: &str) -> Vec<String> {
    let documents = match layout::documents(text) {
        Ok(documents) => documents,
        Err(error) => return vec![format!("{file}: this cannot be read: {error}")],
    };
    let pickers = pickers(file, text, &documents).into_iter();
    let left = pickers.flat_map(|root| rules::left(&Sheet { text, root }));
    left.map(|it| format!("{file}: {it}")).collect()
}

/// The documents of the reference picker in a text, those of pools too.
fn pickers<'a>(file: &str, text: &str, documents: &'a [Laid]) -> Vec<&'a Laid> {
    let parts = parts(file, text);
    let own = parts.iter().filter(|part| part.text.outer.is_none());
    let places = own.flat_map(places);
    let is_object = |kind: &Kind| matches!(kind, Kind::Object(..));
    places
        .filter_map(|place| documents.iter().find_map(|it| it.at(place, is_object)))
        .collect()
}

/// Where the documents of the reference picker begin in a part.
fn places(part: &Part) -> Vec<(u64, u64)> {
    match &part.document {
        Document::EndpointPicker(node) => vec![(node.line, node.column)],
        Document::Filter(node) => match node.get("pools").map(|it| &it.kind) {
            Some(tree::Kind::List(pools)) => {
                let pickers = pools.iter().filter_map(|pool| pool.get("picker"));
                pickers.map(|it| (it.line, it.column)).collect()
            }
            _ => Vec::new(),
        },
        Document::NotJson | Document::NotYaml(_) => Vec::new(),
    }
}

/// The text around with another text inside; `None` when its form cannot hold it.
fn with_inner(text: &str, outer: &Outer, old: &str, new: &str) -> Option<String> {
    let documents = layout::documents(text).ok()?;
    let is_it = |it: &Laid| it.text() == Some(old);
    let holder = documents.iter().find_map(|it| find(it, &is_it))?;
    let Kind::Scalar(_, style) = holder.kind else {
        return None;
    };
    let text_there = match style {
        ScalarStyle::Literal => {
            let column = usize::try_from(outer.column).ok()?.checked_sub(1)?;
            sheet::indented(new.trim_start_matches('\n').trim_end(), column)
        }
        ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => sheet::quoted(new),
        _ => return None,
    };
    let edit = Edit {
        range: holder.span.clone(),
        text: text_there,
    };
    let edited = sheet::apply(text, vec![edit]);
    let documents = layout::documents(&edited).ok()?;
    let is_new = |it: &Laid| it.text() == Some(new);
    documents.iter().find_map(|it| find(it, &is_new))?;
    Some(edited)
}

fn find<'a>(value: &'a Laid, is_it: &impl Fn(&Laid) -> bool) -> Option<&'a Laid> {
    if is_it(value) {
        return Some(value);
    }
    let items = value.items().iter();
    let values = value.fields().iter().map(|field| &field.value);
    items.chain(values).find_map(|it| find(it, is_it))
}

/// What is said of a text whose lines are not those of the file.
const FOLDED: &str = "the text is folded; write it as a block behind |, and migrate again";

/// Changes of one text: no document that a person wrote has as much that is out of date.
const STEPS_MAX: usize = 1000;

#[cfg(test)]
mod damaged;
#[cfg(test)]
mod tests;
