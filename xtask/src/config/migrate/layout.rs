//! Documents of YAML or JSON as they are laid out: which bytes each value and each name takes.

use std::ops::Range;

use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StructureStyle};

/// A value in its document.
#[derive(Clone, Debug)]
pub(super) struct Laid {
    /// The line of the first character, from 1.
    pub(super) line: u64,
    /// The column of the first character, from 1.
    pub(super) column: u64,
    /// The bytes it takes, without white space behind it.
    pub(super) span: Range<usize>,
    /// What it is.
    pub(super) kind: Kind,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// A text, a number or anything else without parts; as it reads without quotes.
    Scalar(String, ScalarStyle),
    /// What stands elsewhere.
    Alias,
    List(Form, Vec<Laid>),
    Object(Form, Vec<Field>),
}

/// How the parts of a value are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// By lines and their indentation.
    Block,
    /// By brackets and commas.
    Flow,
}

/// A named part of an object.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// The name.
    pub(super) name: String,
    /// The bytes of the name.
    pub(super) key: Range<usize>,
    /// The value.
    pub(super) value: Laid,
}

/// Reads all documents of a text.
pub(super) fn documents(text: &str) -> Result<Vec<Laid>, ScanError> {
    let mut reader = Reader {
        text,
        events: Parser::new_from_str(text),
    };
    let mut documents = Vec::new();
    while let Some((event, span)) = reader.next()? {
        if event.is_node() {
            documents.push(reader.value(event, span)?);
        }
    }
    Ok(documents)
}

struct Reader<'a> {
    text: &'a str,
    events: Parser<'a, granit_parser::StrInput<'a>>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, ScanError> {
        self.events.next_event().transpose()
    }

    fn value(&mut self, event: Event<'a>, span: Span) -> Result<Laid, ScanError> {
        let (start, mut end) = (offset(span.start), offset(span.end));
        let kind = match event {
            Event::Scalar(text, style, ..) => {
                // The span of a block goes on to the next token.
                let written = self.text.get(start..end).unwrap_or_default();
                end = start + written.trim_end().len();
                let is_nothing = start == end && style == ScalarStyle::Plain;
                let text = if is_nothing {
                    String::new()
                } else {
                    text.into_owned()
                };
                Kind::Scalar(text, style)
            }
            Event::SequenceStart(style, ..) => {
                let (items, close) = self.items()?;
                end = items.last().map_or(end, |item| item.span.end);
                if style == StructureStyle::Flow {
                    end = close;
                }
                Kind::List(form(style), items)
            }
            Event::MappingStart(style, ..) => {
                let (fields, close) = self.fields()?;
                end = fields.last().map_or(end, Field::end);
                if style == StructureStyle::Flow {
                    end = close;
                }
                Kind::Object(form(style), fields)
            }
            _ => Kind::Alias,
        };
        Ok(Laid {
            line: span.start.line() as u64,
            column: span.start.col() as u64 + 1,
            span: start..end,
            kind,
        })
    }

    /// The values up to the end of a list, and the offset of that.
    fn items(&mut self) -> Result<(Vec<Laid>, usize), ScanError> {
        let mut items = Vec::new();
        while let Some((event, span)) = self.next()? {
            match event {
                Event::SequenceEnd => return Ok((items, offset(span.end))),
                event if event.is_node() => items.push(self.value(event, span)?),
                _ => {}
            }
        }
        Ok((items, self.text.len()))
    }

    /// The fields up to the end of an object, and the offset of that.
    fn fields(&mut self) -> Result<(Vec<Field>, usize), ScanError> {
        let mut fields = Vec::new();
        let mut name: Option<Laid> = None;
        while let Some((event, span)) = self.next()? {
            if matches!(event, Event::MappingEnd) {
                return Ok((fields, offset(span.end)));
            }
            if !event.is_node() {
                continue;
            }
            let value = self.value(event, span)?;
            name = match name.take() {
                None => Some(value),
                Some(key) => {
                    let name = key.text().unwrap_or_default().to_owned();
                    let key = key.span;
                    fields.push(Field { name, key, value });
                    None
                }
            };
        }
        Ok((fields, self.text.len()))
    }
}

fn offset(marker: Marker) -> usize {
    marker.byte_offset().unwrap_or_default()
}

fn form(style: StructureStyle) -> Form {
    match style {
        StructureStyle::Block => Form::Block,
        StructureStyle::Flow => Form::Flow,
    }
}

impl Laid {
    /// The text of a value without parts.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar(text, _) => Some(text),
            _ => None,
        }
    }

    /// The parts of a list; none where it is no list.
    pub(super) fn items(&self) -> &[Self] {
        match &self.kind {
            Kind::List(_, items) => items,
            _ => &[],
        }
    }

    /// The parts of an object; none where it is no object.
    pub(super) fn fields(&self) -> &[Field] {
        match &self.kind {
            Kind::Object(_, fields) => fields,
            _ => &[],
        }
    }

    /// A part of an object.
    pub(super) fn field(&self, name: &str) -> Option<&Field> {
        self.fields().iter().find(|field| field.name == name)
    }

    /// The value of a part of an object.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        self.field(name).map(|field| &field.value)
    }

    /// How its parts are told apart; flow where it has none.
    pub(super) fn form(&self) -> Form {
        match &self.kind {
            Kind::List(form, _) | Kind::Object(form, _) => *form,
            _ => Form::Flow,
        }
    }

    /// The value of this kind that begins at a place, here or below.
    pub(super) fn at(&self, place: (u64, u64), is_kind: fn(&Kind) -> bool) -> Option<&Self> {
        if (self.line, self.column) == place && is_kind(&self.kind) {
            return Some(self);
        }
        let items = self.items().iter();
        let values = self.fields().iter().map(|field| &field.value);
        items.chain(values).find_map(|it| it.at(place, is_kind))
    }
}

impl Field {
    /// Where it ends: behind its value, or behind the colon where there is none.
    pub(super) fn end(&self) -> usize {
        self.value.span.end.max(self.key.end + 1)
    }
}
