//! An `EndpointPickerConfig` in its text, and changes of the text that leave all else as it is.

use std::ops::Range;

use granit_parser::ScalarStyle;

use super::layout::{Field, Form, Kind, Laid};

/// An `EndpointPickerConfig` in its text.
#[derive(Clone, Copy)]
pub(super) struct Sheet<'a> {
    /// The whole text.
    pub(super) text: &'a str,
    /// The object in it.
    pub(super) root: &'a Laid,
}

/// What is to stand in place of some bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Edit {
    /// The bytes.
    pub(super) range: Range<usize>,
    /// The text in their place.
    pub(super) text: String,
}

/// Something to write, in the two forms that it may need.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Body {
    /// Lines that begin at the column where they are to stand.
    pub(super) block: String,
    /// The same between brackets and commas.
    pub(super) flow: String,
}

/// The text after the edits, which must not overlap; those at one place keep their order.
pub(super) fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| edit.range.start);
    let mut edited = String::with_capacity(text.len());
    let mut end = 0;
    for edit in edits {
        edited.push_str(text.get(end..edit.range.start).unwrap_or_default());
        edited.push_str(&edit.text);
        end = end.max(edit.range.end);
    }
    edited.push_str(text.get(end..).unwrap_or_default());
    edited
}

impl<'a> Sheet<'a> {
    /// The plugins, with their places in the list.
    pub(super) fn plugins(&self) -> impl Iterator<Item = (usize, &'a Laid)> + use<'a> {
        let list = self.root.get("plugins").map_or(&[][..], Laid::items);
        list.iter().enumerate()
    }

    /// The first plugin of this type.
    pub(super) fn plugin(&self, kind: &str) -> Option<(usize, &'a Laid)> {
        self.plugins().find(|(_, it)| kind_of(it) == kind)
    }

    /// Whether a plugin goes by this name.
    pub(super) fn has_name(&self, name: &str) -> bool {
        self.plugins().any(|(_, it)| name_of(it) == name)
    }

    /// Another value without parts, in the quotes that the old one has.
    pub(super) fn set(&self, value: &Laid, text: &str) -> Edit {
        let is_plain = matches!(value.kind, Kind::Scalar(_, ScalarStyle::Plain));
        let text = if is_plain {
            text.to_owned()
        } else {
            quoted(text)
        };
        let range = value.span.clone();
        Edit { range, text }
    }

    /// Another name of a field.
    pub(super) fn rename(&self, field: &Field, name: &str) -> Edit {
        let is_quoted = self.slice(field.key.clone()).starts_with(['"', '\'']);
        let text = if is_quoted {
            quoted(name)
        } else {
            name.to_owned()
        };
        let range = field.key.clone();
        Edit { range, text }
    }

    /// Takes a field out; the last one leaves an empty object.
    pub(super) fn remove(&self, object: &Laid, field: &Field) -> Edit {
        let parts = object.fields().iter();
        let parts: Vec<Range<usize>> = parts.map(|it| it.key.start..it.end()).collect();
        self.take_out(object, &parts, field.key.start, "{}")
    }

    /// Takes an element out of a list; the last one leaves an empty list.
    pub(super) fn remove_item(&self, list: &Laid, item: &Laid) -> Edit {
        let items = list.items().iter();
        let parts = items.map(|it| self.start_of(list, it)..it.span.end);
        let parts: Vec<Range<usize>> = parts.collect();
        self.take_out(list, &parts, self.start_of(list, item), "[]")
    }

    /// Puts an element behind another.
    pub(super) fn insert_item(&self, list: &Laid, after: &Laid, item: &Body) -> Edit {
        if list.form() == Form::Flow {
            let range = after.span.end..after.span.end;
            let text = format!(", {{{}}}", item.flow);
            return Edit { range, text };
        }
        let column = self.column(self.start_of(list, after));
        let lines = format!("- {}", indented(&item.block, 2));
        self.insert_lines(after.span.end, column, &lines)
    }

    /// Puts a field at the end of an object that has some.
    pub(super) fn add(&self, object: &Laid, body: &Body) -> Edit {
        let end = object.fields().last().map_or(object.span.end, Field::end);
        if object.form() == Form::Flow {
            let text = format!(", {}", body.flow);
            let range = end..end;
            return Edit { range, text };
        }
        let start = object.fields().first().map_or(end, |it| it.key.start);
        self.insert_lines(end, self.column(start), &body.block)
    }

    /// Puts something in the place of a field.
    pub(super) fn replace(&self, object: &Laid, field: &Field, body: &Body) -> Edit {
        if object.form() == Form::Flow {
            let range = field.key.start..field.end();
            let text = body.flow.clone();
            return Edit { range, text };
        }
        let column = self.column(field.key.start);
        let range = field.key.start..self.line_end(field.end());
        let text = format!("{}\n", indented(&body.block, column));
        Edit { range, text }
    }

    /// Moves a field of an object, as `body` says it anew, into another field of the same object,
    /// which is made where there is none.
    pub(super) fn nest(
        &self,
        object: &Laid,
        field: &Field,
        parent: &str,
        body: &Body,
    ) -> Vec<Edit> {
        let nested = Body {
            block: format!("{parent}:\n  {}", indented(&body.block, 2)),
            flow: format!("{}: {{{}}}", quoted(parent), body.flow),
        };
        match object.field(parent) {
            None => vec![self.replace(object, field, &nested)],
            Some(found) if found.value.fields().is_empty() => {
                vec![
                    self.remove(object, field),
                    self.replace(object, found, &nested),
                ]
            }
            Some(found) => vec![self.remove(object, field), self.add(&found.value, body)],
        }
    }

    /// A field under another name, with the comment behind it where it has lines of its own.
    pub(super) fn renamed(&self, object: &Laid, field: &Field, name: &str) -> Body {
        let flow = format!("{}: {}", quoted(name), self.flow(&field.value));
        let block = match object.form() {
            Form::Flow => format!("{name}: {}", self.flow(&field.value)),
            Form::Block => {
                let lines = self.slice(field.key.end..self.line_end(field.end()));
                let column = self.column(field.key.start);
                format!("{name}{}", dedented(lines.trim_end(), column))
            }
        };
        Body { block, flow }
    }

    /// A value in one line, between brackets and commas.
    pub(super) fn flow(&self, value: &Laid) -> String {
        match &value.kind {
            Kind::Scalar(text, ScalarStyle::Literal | ScalarStyle::Folded) => quoted(text),
            Kind::Scalar(..) | Kind::Alias => self.slice(value.span.clone()).to_owned(),
            Kind::List(_, items) => {
                let items: Vec<String> = items.iter().map(|it| self.flow(it)).collect();
                format!("[{}]", items.join(", "))
            }
            Kind::Object(_, fields) => {
                let field = |it: &Field| format!("{}: {}", quoted(&it.name), self.flow(&it.value));
                let fields: Vec<String> = fields.iter().map(field).collect();
                format!("{{{}}}", fields.join(", "))
            }
        }
    }

    fn take_out(&self, whole: &Laid, parts: &[Range<usize>], start: usize, empty: &str) -> Edit {
        let index = parts.iter().position(|it| it.start == start);
        let index = index.unwrap_or_default();
        let end = parts.get(index).map_or(start, |it| it.end);
        let (before, after) = (
            index.checked_sub(1).and_then(|it| parts.get(it)),
            parts.get(index + 1),
        );
        let (range, text) = match (before, after) {
            (None, None) if whole.form() == Form::Flow => (whole.span.clone(), empty.to_owned()),
            // It may begin at the column of the name before it.
            (None, None) => (
                whole.span.start.min(start)..whole.span.end,
                format!("  {empty}"),
            ),
            _ if whole.form() == Form::Block => (self.whole_lines(start, end), String::new()),
            (_, Some(next)) => (start..next.start, String::new()),
            (Some(last), None) => (last.end..end, String::new()),
        };
        Edit { range, text }
    }

    /// The lines of a part or, where it begins behind a dash, all up to what follows it.
    fn whole_lines(&self, start: usize, end: usize) -> Range<usize> {
        let (line, end) = (self.line_start(start), self.line_end(end));
        if self.slice(line..start).trim().is_empty() {
            return line..end;
        }
        let rest = self.slice(end..self.text.len());
        start..end + (rest.len() - rest.trim_start().len())
    }

    /// Where an element of a list begins: at its dash, if it has one.
    fn start_of(&self, list: &Laid, item: &Laid) -> usize {
        if list.form() == Form::Flow {
            return item.span.start;
        }
        // An anchor may stand between, and may have dashes in its name.
        let before = self.slice(0..item.span.start);
        let mut dashes = before.rmatch_indices('-').map(|(at, _)| at);
        let is_mark = |at: &usize| before[at + 1..].starts_with([' ', '\n', '\r', '\t']);
        dashes.find(is_mark).unwrap_or(item.span.start)
    }

    fn insert_lines(&self, after: usize, column: usize, lines: &str) -> Edit {
        let end = self.line_end(after);
        let lines = format!("{}{}", " ".repeat(column), indented(lines, column));
        let text = if self.slice(0..end).ends_with('\n') {
            format!("{lines}\n")
        } else {
            format!("\n{lines}")
        };
        Edit {
            range: end..end,
            text,
        }
    }

    fn slice(&self, range: Range<usize>) -> &'a str {
        self.text.get(range).unwrap_or_default()
    }

    fn line_start(&self, at: usize) -> usize {
        self.slice(0..at).rfind('\n').map_or(0, |end| end + 1)
    }

    /// Behind the line feed that ends the line.
    fn line_end(&self, at: usize) -> usize {
        let rest = self.slice(at..self.text.len());
        rest.find('\n').map_or(self.text.len(), |end| at + end + 1)
    }

    fn column(&self, at: usize) -> usize {
        self.slice(self.line_start(at)..at).chars().count()
    }
}

/// The type of a plugin; empty where it has none.
pub(super) fn kind_of(plugin: &Laid) -> &str {
    plugin.get("type").and_then(Laid::text).unwrap_or_default()
}

/// What a plugin goes by.
pub(super) fn name_of(plugin: &Laid) -> &str {
    let name = plugin.get("name").and_then(Laid::text);
    name.unwrap_or_else(|| kind_of(plugin))
}

/// A text as it reads in JSON, and so in YAML.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Lines with all but the first moved to the right.
pub(super) fn indented(lines: &str, columns: usize) -> String {
    let mut lines = lines.lines();
    let mut text = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        text.push('\n');
        if !line.is_empty() {
            text.push_str(&" ".repeat(columns));
        }
        text.push_str(line);
    }
    text
}

/// Lines with all but the first moved to the left, as far as there is space.
fn dedented(lines: &str, columns: usize) -> String {
    let mut lines = lines.lines();
    let mut text = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        let space = line.len() - line.trim_start_matches(' ').len();
        text.push('\n');
        text.push_str(line.get(space.min(columns)..).unwrap_or_default());
    }
    text
}
