//! One JSON object of a response: the body, or the data of an event.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use super::ResponseError;
use super::facts::{Counts, Facts, name};
use super::fields::{Field, KEY_BYTES_MAX, Place};
use super::renaming::Renaming;
use crate::json::lexer::{Lexer, Token};
use crate::json::short::Short;

/// An object that is being read, and the next one after [`end`](Self::end).
#[derive(Default)]
pub(super) struct Document {
    lexer: Lexer,
    taking: Taking,
    /// The objects and lists entered, the innermost last. Kept, so that it is allocated once.
    places: Vec<Place>,
    key: Short<KEY_BYTES_MAX>,
    field: Option<Field>,
    text: Short<TEXT_BYTES_MAX>,
    model: Vec<u8>,
    counts: Counts,
    kind: Short<TEXT_BYTES_MAX>,
    is_chunk: bool,
    error: Error,
}

/// What says that a document is an error.
#[derive(Default)]
struct Error {
    is_there: bool,
    code: Option<u64>,
    kind: Short<TEXT_BYTES_MAX>,
}

/// How the bytes that follow are to be taken.
#[derive(Clone, Copy, Default)]
enum Taking {
    #[default]
    Tokens,
    Key,
    /// The name of a model that has yet to begin.
    Model,
    /// The inside of a string.
    Text(Field),
    /// A list or object that is stepped over.
    Rest,
}

impl Document {
    /// Reads on. After a fault in the JSON nothing more is read until the next document.
    pub(super) fn push(
        &mut self,
        chunk: &[u8],
        facts: &mut Facts,
        mut renaming: Option<&mut Renaming<'_>>,
    ) {
        let mut input = chunk;
        while !input.is_empty() && self.lexer.fault().is_none() {
            match self.taking {
                Taking::Tokens => {
                    if let Some(token) = self.lexer.next(&mut input) {
                        self.taking = self.token(token, facts);
                    }
                }
                Taking::Key => {
                    if self.lexer.text(&mut input, |text| self.key.push(text)) {
                        let place = self.places.last();
                        self.field = place.map(|it| it.member(self.key.as_bytes()));
                        self.taking = Taking::Tokens;
                    }
                }
                Taking::Text(Field::Ignored) => {
                    if self.lexer.text(&mut input, |_| {}) {
                        self.taking = Taking::Tokens;
                    }
                }
                Taking::Model => {
                    let field = match &mut renaming {
                        Some(renaming) => {
                            renaming.insert(input.len());
                            Field::Model
                        }
                        None if facts.model.is_some() => Field::Ignored,
                        None => Field::Model,
                    };
                    self.taking = Taking::Text(field);
                }
                Taking::Text(Field::Model) => {
                    let (before, is_known) = (input.len(), facts.model.is_some());
                    let model = &mut self.model;
                    let has_ended = self.lexer.text(&mut input, |text| {
                        if !is_known {
                            push_model(model, text);
                        }
                    });
                    if let Some(renaming) = &mut renaming {
                        // The quote stays.
                        renaming.leave_out(before, input.len() + usize::from(has_ended));
                    }
                    if has_ended {
                        self.end_model(facts);
                        self.taking = Taking::Tokens;
                    }
                }
                Taking::Text(field) => {
                    if self.lexer.text(&mut input, |text| self.text.push(text)) {
                        self.end_text(field, facts);
                        self.taking = Taking::Tokens;
                    }
                }
                Taking::Rest => {
                    if self.lexer.skip(&mut input) {
                        self.taking = Taking::Tokens;
                    }
                }
            }
        }
    }

    /// Whether the object has ended.
    pub(super) fn is_complete(&self) -> bool {
        self.lexer.is_complete()
    }

    /// Whether more of the object would have to follow.
    pub(super) fn is_cut(&self) -> bool {
        let has_begun = !self.places.is_empty();
        has_begun && self.lexer.fault().is_none() && !self.is_complete()
    }

    /// Ends the document, complete or not, and begins the next.
    pub(super) fn end(&mut self, facts: &mut Facts) {
        let is_complete = self.is_complete();
        let kind = self.kind.as_bytes();
        if is_complete {
            let has_output = self.is_chunk || kind == OUTPUT_EVENT || kind.ends_with(b".delta");
            facts.chunks = facts.chunks.saturating_add(u64::from(has_output));
            facts.ended |= LAST_EVENTS.contains(&kind);
        }
        if is_complete && self.error.is_there {
            // Where there is no error object, the document itself is it, and its type the kind.
            let own = [self.error.kind.as_bytes(), kind].into_iter();
            let mut own = own.filter(|it| *it != b"error");
            let error = ResponseError {
                code: self.error.code,
                kind: own.find_map(name).map(str::to_owned),
            };
            facts.error.get_or_insert(error);
        }
        self.lexer = Lexer::default();
        self.taking = Taking::Tokens;
        self.places.clear();
        self.field = None;
        self.text.clear();
        self.model.clear();
        self.counts = Counts::default();
        self.kind.clear();
        self.is_chunk = false;
        self.error.is_there = false;
        self.error.code = None;
        self.error.kind.clear();
    }

    fn token(&mut self, token: Token, facts: &mut Facts) -> Taking {
        let Some(&place) = self.places.last() else {
            return self.enter(Place::Root);
        };
        match token {
            Token::End => {
                self.places.pop();
                if let Place::Usage { first } = place {
                    facts.merge(&mut self.counts, first);
                }
                return Taking::Tokens;
            }
            Token::Key => {
                self.key.clear();
                return Taking::Key;
            }
            _ => {}
        }
        let field = match place {
            Place::Choices => Field::Choice,
            _ => self.field.unwrap_or(Field::Ignored),
        };
        match token {
            Token::String => self.string(field),
            Token::Array | Token::Object => self.bracket(place, field, token),
            Token::Number(Some(value)) => {
                match field {
                    Field::Count(count) => self.counts.set(count, value),
                    Field::Code => self.error.code = Some(value),
                    _ => {}
                }
                Taking::Tokens
            }
            _ => Taking::Tokens,
        }
    }

    fn string(&mut self, field: Field) -> Taking {
        self.text.clear();
        match field {
            // Its text is the message, which is nobody's business.
            Field::Error | Field::Detail => {
                self.error.is_there = true;
                Taking::Text(Field::Ignored)
            }
            Field::Model => Taking::Model,
            Field::Code
            | Field::ErrorKind
            | Field::Finish
            | Field::Object
            | Field::Status
            | Field::Type => Taking::Text(field),
            _ => Taking::Text(Field::Ignored),
        }
    }

    fn bracket(&mut self, place: Place, field: Field, token: Token) -> Taking {
        let place = match (field, token) {
            (Field::Choice, Token::Object) => {
                self.is_chunk = true;
                Place::Choice
            }
            (Field::Choices, Token::Array) => Place::Choices,
            (Field::Delta, Token::Object) => Place::Delta,
            (Field::Details, Token::Object) => Place::Details,
            (Field::Error, Token::Object) => {
                self.error.is_there = true;
                Place::Error
            }
            (Field::Finish, Token::Object) => Place::Finish,
            (Field::Message, Token::Object) => Place::Message,
            (Field::MetaInfo, Token::Object) => {
                self.is_chunk = true;
                Place::Usage { first: false }
            }
            (Field::Response, Token::Object) => Place::Response,
            (Field::Usage, Token::Object) => Place::Usage {
                first: place == Place::Message,
            },
            (Field::Detail, _) => {
                self.error.is_there = true;
                return Taking::Rest;
            }
            _ => return Taking::Rest,
        };
        self.enter(place)
    }

    fn enter(&mut self, place: Place) -> Taking {
        self.places.push(place);
        Taking::Tokens
    }

    fn end_text(&mut self, field: Field, facts: &mut Facts) {
        let text = self.text.as_bytes();
        match field {
            Field::Code => {
                // The code may be a number in quotes, or the only name that the error has.
                self.error.code = str::from_utf8(text).ok().and_then(|it| it.parse().ok());
                if self.error.code.is_none() && self.error.kind.as_bytes().is_empty() {
                    self.error.kind.push(text);
                }
            }
            Field::ErrorKind => {
                self.error.kind.clear();
                self.error.kind.push(text);
            }
            Field::Finish => facts.set_finish(text),
            Field::Object if text == b"error" => self.error.is_there = true,
            Field::Status if !GOING_ON.contains(&text) => facts.set_finish(text),
            Field::Type => {
                self.kind.clear();
                self.kind.push(text);
                self.error.is_there |= text == b"error";
            }
            _ => {}
        }
    }

    fn end_model(&mut self, facts: &mut Facts) {
        let model = mem::take(&mut self.model);
        if !model.is_empty() && model.len() <= MODEL_BYTES_MAX {
            facts.model = String::from_utf8(model).ok();
        }
    }
}

fn push_model(model: &mut Vec<u8>, text: &[u8]) {
    let room = (MODEL_BYTES_MAX + 1).saturating_sub(model.len());
    model.extend(text.iter().take(room));
}

/// The events that carry output in the Anthropic API; those of the Responses API end in `.delta`.
const OUTPUT_EVENT: &[u8] = b"content_block_delta";

/// The events that nothing follows, in the Anthropic and the Responses API.
const LAST_EVENTS: [&[u8]; 5] = [
    b"error",
    b"message_stop",
    b"response.completed",
    b"response.failed",
    b"response.incomplete",
];

/// What the status of a response says before its end.
const GOING_ON: [&[u8]; 2] = [b"in_progress", b"queued"];

/// Bytes of a reason to finish, of a type and of the name of an error; those in use have at most
/// half as many.
const TEXT_BYTES_MAX: usize = 64;

/// Bytes of a model's name; longer ones are refused in requests.
const MODEL_BYTES_MAX: usize = 1024;
