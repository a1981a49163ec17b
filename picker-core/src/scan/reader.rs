//! From tokens to a [`Request`]: what each value of a body means.

use alloc::boxed::Box;
use alloc::vec::Vec;

use xxhash_rust::xxh3::Xxh3;

use super::fields::{Field, KEY_BYTES_MAX, Mark, OutputCap, Place};
use super::names::{CACHE_SALT_BYTES_MAX, MODEL_BYTES_MAX, Name, NameFault};
use super::prompts::{Item, PromptList, Section, Sections, group_of};
use crate::block::HashSeed;
use crate::json::lexer::Token;
use crate::json::short::Short;
use crate::request::{MEDIA_MAX, Media, MediaKind, Request, RequestFault};
use crate::shape::Shape;

/// Collects a request from the tokens of its body.
pub(super) struct Reader {
    shape: Shape,
    /// The lists and objects entered, the innermost last.
    places: Vec<Place>,
    key: Short<KEY_BYTES_MAX>,
    field: Field,
    model: Name,
    cache_salt: Name,
    stream: bool,
    output_cap_preferred: Option<u64>,
    output_cap_other: Option<u64>,
    sections: Sections,
    prompts: PromptList,
    prompt_fault: Option<RequestFault>,
    role: Short<{ USER.len() }>,
    /// Whether the content being read has a part already.
    has_part: bool,
    media: Vec<Media>,
    media_hash: Option<Box<Xxh3>>,
}

/// How the bytes that follow are to be taken.
#[derive(Clone, Copy)]
pub(super) enum Taking {
    /// Token by token.
    Tokens,
    /// Token ids as long as there are some, then token by token.
    TokenIds,
    /// The inside of the string or key that has begun.
    Text(Target),
    /// The rest of the list or object that has begun, as it is written.
    Rest(Option<Section>),
}

/// Where text goes.
#[derive(Clone, Copy)]
pub(super) enum Target {
    CacheSalt,
    Key,
    Media(MediaKind),
    Model,
    Nowhere,
    Prompt,
    /// The role of a message, which is part of its text.
    Role,
    Section(Section),
}

impl Reader {
    pub(super) fn new(shape: Shape) -> Self {
        Self {
            shape,
            places: Vec::new(),
            key: Short::default(),
            field: Field::Ignored,
            model: Name::default(),
            cache_salt: Name::default(),
            stream: false,
            output_cap_preferred: None,
            output_cap_other: None,
            sections: Sections::default(),
            prompts: PromptList::default(),
            prompt_fault: None,
            role: Short::default(),
            has_part: false,
            media: Vec::new(),
            media_hash: None,
        }
    }

    /// Takes a token and says how to go on.
    pub(super) fn token(&mut self, token: Token) -> Taking {
        let Some(&place) = self.places.last() else {
            return self.enter(Place::Body(self.shape));
        };
        match token {
            Token::End => {
                self.places.pop();
                self.leave(place);
                Taking::Tokens
            }
            Token::Key => {
                self.key.clear();
                Taking::Text(Target::Key)
            }
            _ => match place.item().unwrap_or(self.field) {
                field @ (Field::Prompt | Field::PromptItem | Field::TokenId) => {
                    self.prompt_value(field, token)
                }
                field @ (Field::CacheSalt
                | Field::Messages
                | Field::Model
                | Field::OutputCap(_)
                | Field::Stream
                | Field::Tools) => self.body_value(field, token),
                field => self.message_value(field, token),
            },
        }
    }

    /// Takes a piece of text.
    #[inline]
    pub(super) fn text(&mut self, target: Target, text: &[u8]) {
        match target {
            Target::CacheSalt => self.cache_salt.push(text, CACHE_SALT_BYTES_MAX),
            Target::Key => self.key.push(text),
            Target::Media(_) => {
                if let Some(hash) = &mut self.media_hash {
                    hash.update(text);
                }
            }
            Target::Model => self.model.push(text, MODEL_BYTES_MAX),
            Target::Nowhere => {}
            Target::Prompt => self.prompts.push(text),
            Target::Role => {
                self.role.push(text);
                self.sections.push(Section::Messages, text);
            }
            Target::Section(section) => self.sections.push(section, text),
        }
    }

    /// Takes a piece of a list or object as it is written.
    pub(super) fn verbatim_text(&mut self, section: Option<Section>, text: &[u8]) {
        if let Some(section) = section {
            self.sections.push(section, text);
        }
    }

    /// Takes a token id that stands in a list after another one.
    #[inline]
    pub(super) fn token_id(&mut self, id: u32) {
        self.prompts.push(&id.to_le_bytes());
    }

    /// Says that the text for `target` has ended.
    pub(super) fn end_text(&mut self, target: Target) {
        match target {
            Target::Key => {
                let place = self.places.last();
                self.field = place.map_or(Field::Ignored, |it| it.member(self.key.as_bytes()));
            }
            Target::Media(kind) => self.end_media(kind),
            Target::CacheSalt => self.cache_salt.end(),
            Target::Model => self.model.end(),
            Target::Prompt => self.prompts.close(),
            Target::Nowhere | Target::Role | Target::Section(_) => {}
        }
    }

    /// The request; `fault` is what kept the body from being read to its end.
    pub(super) fn finish(self, seed: HashSeed, fault: Option<RequestFault>) -> Request {
        let mut faults: Vec<RequestFault> = fault.into_iter().collect();
        let model = self.model.finish().unwrap_or_else(|fault| {
            faults.push(match fault {
                NameFault::NotText => RequestFault::ModelNotText,
                NameFault::Unusable => RequestFault::ModelUnusable,
            });
            None
        });
        let cache_salt = self.cache_salt.finish().unwrap_or_else(|fault| {
            // A salt of another type is left to the server, which refuses it.
            faults.extend(match fault {
                NameFault::NotText => None,
                NameFault::Unusable => Some(RequestFault::CacheSaltUnusable),
            });
            None
        });
        faults.extend(self.prompt_fault);
        let (mut prompts, mut group) = (Vec::new(), None);
        if !faults.iter().any(RequestFault::hides_prompts) {
            let ignored = self.prompts.ignored();
            if 0 < ignored {
                faults.push(RequestFault::PromptsOverMax { ignored });
            }
            let origin = seed.origin(model.as_deref(), cache_salt.as_deref());
            prompts = self.prompts.finish(origin);
            group = prompts.first().and_then(group_of);
            if let Some((prompt, its_group)) = self.sections.finish(origin) {
                prompts.push(prompt);
                group = its_group;
            }
        }
        Request {
            shape: Some(self.shape),
            model,
            stream: self.stream,
            output_cap: self.output_cap_preferred.or(self.output_cap_other),
            cache_salt,
            prompts,
            group,
            media: self.media,
            faults,
        }
    }

    fn body_value(&mut self, field: Field, token: Token) -> Taking {
        match (field, token) {
            (Field::CacheSalt, Token::String) => {
                self.cache_salt = Name::begin();
                return Taking::Text(Target::CacheSalt);
            }
            (Field::CacheSalt, _) => self.cache_salt = no_name(token),
            (Field::Messages, Token::Array) => {
                self.begin_messages();
                return self.enter(Place::Messages);
            }
            (Field::Messages, _) => {
                self.begin_messages();
                self.sections.remove(Section::Messages);
                self.prompt_fault = wrong_type(token);
            }
            (Field::Model, Token::String) => {
                self.model = Name::begin();
                return Taking::Text(Target::Model);
            }
            (Field::Model, _) => self.model = no_name(token),
            (Field::OutputCap(cap), _) => {
                let cap = match cap {
                    OutputCap::Preferred => &mut self.output_cap_preferred,
                    OutputCap::Other => &mut self.output_cap_other,
                };
                *cap = if let Token::Number(value) = token {
                    value
                } else {
                    None
                };
            }
            (Field::Stream, _) => self.stream = token == Token::True,
            (Field::Tools, Token::Array | Token::Object) => {
                self.sections.begin(Section::Tools);
                return self.verbatim(Section::Tools, token);
            }
            (Field::Tools, _) => self.sections.remove(Section::Tools),
            _ => {}
        }
        step_over(token)
    }

    fn message_value(&mut self, field: Field, token: Token) -> Taking {
        match (field, token) {
            (Field::Message, Token::Object) => {
                self.role.clear();
                return self.enter(Place::Message);
            }
            (Field::Message, _) => self.prompt_fault = Some(RequestFault::PromptOfWrongType),
            (Field::Content, Token::String) => return self.message_text(Mark::Content),
            (Field::Content, Token::Array) => {
                self.frame(Mark::Content);
                self.has_part = false;
                return self.enter(Place::Parts);
            }
            (Field::Text(Mark::Role), Token::String) => {
                self.role.clear();
                self.frame(Mark::Role);
                return Taking::Text(Target::Role);
            }
            (Field::Text(mark), Token::String) => return self.message_text(mark),
            (Field::Verbatim(mark), Token::Array | Token::Object) => {
                self.frame(mark);
                return self.verbatim(Section::Messages, token);
            }
            (Field::Part, Token::Object) => {
                self.begin_part();
                return self.enter(Place::Part);
            }
            (Field::Part, Token::String) => {
                self.begin_part();
                return Taking::Text(Target::Section(Section::Messages));
            }
            (Field::PartText, Token::String) => {
                return Taking::Text(Target::Section(Section::Messages));
            }
            (Field::Media(kind), Token::Object) => return self.enter(Place::Media(kind)),
            (Field::Media(kind) | Field::MediaSource(kind), Token::String) => {
                self.media_hash.get_or_insert_default().reset();
                return Taking::Text(Target::Media(kind));
            }
            _ => {}
        }
        step_over(token)
    }

    fn prompt_value(&mut self, field: Field, token: Token) -> Taking {
        let item = match (field, token) {
            (Field::Prompt, Token::String | Token::Array) => {
                self.begin_prompts(None);
                if token == Token::Array {
                    return self.enter(Place::Prompts);
                }
                Item::Text
            }
            (Field::Prompt, _) => {
                self.begin_prompts(wrong_type(token));
                return step_over(token);
            }
            (Field::PromptItem, Token::String) => Item::Text,
            (Field::PromptItem, Token::Number(_)) => Item::TokenId,
            (Field::PromptItem, Token::Array) => Item::TokenIds,
            (Field::TokenId, Token::Number(_)) => Item::TokenIds,
            _ => return self.mixed_prompts(token),
        };
        if self.prompt_fault.is_some() || !self.prompts.admits(item) {
            return self.mixed_prompts(token);
        }
        if field != Field::TokenId {
            self.prompts.open();
        }
        match token {
            Token::String => Taking::Text(Target::Prompt),
            Token::Array => self.enter(Place::TokenIds),
            Token::Number(Some(id)) if let Ok(id) = u32::try_from(id) => {
                self.token_id(id);
                Taking::TokenIds
            }
            _ => self.mixed_prompts(token),
        }
    }

    fn leave(&mut self, place: Place) {
        match place {
            Place::Message => {
                self.frame(Mark::End);
                if self.role.as_bytes() == USER {
                    self.sections.end_user_message();
                }
            }
            Place::Prompts | Place::TokenIds => self.prompts.close(),
            Place::Body(_) | Place::Media(_) | Place::Messages | Place::Part | Place::Parts => {}
        }
    }

    fn enter(&mut self, place: Place) -> Taking {
        self.places.push(place);
        Taking::Tokens
    }

    fn begin_messages(&mut self) {
        self.sections.begin(Section::Messages);
        self.prompt_fault = None;
        self.media.clear();
    }

    fn begin_prompts(&mut self, fault: Option<RequestFault>) {
        self.prompts = PromptList::default();
        self.prompt_fault = fault;
    }

    fn mixed_prompts(&mut self, token: Token) -> Taking {
        self.prompt_fault = Some(RequestFault::PromptMixed);
        step_over(token)
    }

    fn begin_part(&mut self) {
        if self.has_part {
            self.frame(Mark::Part);
        }
        self.has_part = true;
    }

    fn message_text(&mut self, mark: Mark) -> Taking {
        self.frame(mark);
        Taking::Text(Target::Section(Section::Messages))
    }

    fn verbatim(&mut self, section: Section, opening: Token) -> Taking {
        let bracket = if opening == Token::Object { b"{" } else { b"[" };
        self.sections.push(section, bracket);
        Taking::Rest(Some(section))
    }

    fn frame(&mut self, mark: Mark) {
        self.sections.frame(Section::Messages, &[mark as u8]);
    }

    /// Puts the hash of a part that is not text in its place, so that what follows is chained to
    /// it.
    fn end_media(&mut self, kind: MediaKind) {
        let hash = self.media_hash.as_ref().map_or(0, |hash| hash.digest());
        self.frame(Mark::Media);
        self.sections.frame(Section::Messages, &[kind as u8]);
        self.sections.frame(Section::Messages, &hash.to_le_bytes());
        if self.media.len() < MEDIA_MAX {
            self.media.push(Media { kind, hash });
        }
    }
}

fn step_over(token: Token) -> Taking {
    match token {
        Token::Array | Token::Object => Taking::Rest(None),
        Token::String => Taking::Text(Target::Nowhere),
        _ => Taking::Tokens,
    }
}

fn no_name(token: Token) -> Name {
    match token {
        Token::Null => Name::Absent,
        _ => Name::NotText,
    }
}

/// `null` is the same as absent; another type is a fault.
fn wrong_type(token: Token) -> Option<RequestFault> {
    (token != Token::Null).then_some(RequestFault::PromptOfWrongType)
}

/// The role of the user's messages.
const USER: &[u8] = b"user";
