//! From tokens to a [`Request`]: what each value of a body means.

mod messages;
mod model;
mod prompt;

use alloc::boxed::Box;
use alloc::vec::Vec;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::billing::Billing;
use super::features::Features;
use super::fields::{Field, KEY_BYTES_MAX, Mark, OutputCap, Place};
use super::model_place::{ModelPlace, Syntax};
use super::names::{CACHE_SALT_BYTES_MAX, MODEL_BYTES_MAX, Name, NameFault};
use super::prompts::{PromptList, Section, Sections, group_of};
use crate::block::HashSeed;
use crate::json::lexer::Token;
use crate::json::short::Short;
use crate::request::{Media, MediaKind, Request, RequestFault};
use crate::shape::Shape;

/// Collects a request from the tokens of its body.
pub(super) struct Reader {
    shape: Shape,
    /// The lists and objects entered, the innermost last.
    places: Vec<Place>,
    key: Short<KEY_BYTES_MAX>,
    field: Field,
    model: Name,
    model_place: ModelPlace,
    cache_salt: Name,
    stream: bool,
    output_cap_preferred: Option<u64>,
    output_cap_other: Option<u64>,
    sections: Sections,
    prompts: PromptList,
    prompt_fault: Option<RequestFault>,
    messages_fault: Option<RequestFault>,
    billing: Billing,
    role: Short<{ USER.len() }>,
    /// Whether the content being read has a part already.
    has_part: bool,
    features: Features,
    media: Vec<Media>,
    media_hash: Option<Box<Xxh3>>,
}

/// How the bytes that follow are to be taken.
#[derive(Clone, Copy)]
pub(super) enum Taking {
    /// Token by token.
    Tokens,
    /// The inside of the key that has begun, of a member of the body.
    OuterKey,
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
    /// The text of a prompt that does not end with it.
    DocumentText,
    FeatureHash,
    Key,
    Media(MediaKind),
    /// The text that is the only message.
    OnlyMessage,
    Model,
    Nowhere,
    Prompt,
    Query,
    /// The role of a message, which is part of its text.
    Role,
    Section(Section),
    /// System text of the Anthropic API.
    System,
}

impl Reader {
    pub(super) fn new(shape: Shape) -> Self {
        Self {
            shape,
            places: Vec::new(),
            key: Short::default(),
            field: Field::Ignored,
            model: Name::default(),
            model_place: ModelPlace::new(Syntax::Json),
            cache_salt: Name::default(),
            stream: false,
            output_cap_preferred: None,
            output_cap_other: None,
            sections: Sections::default(),
            prompts: PromptList::default(),
            prompt_fault: None,
            messages_fault: None,
            billing: Billing::default(),
            role: Short::default(),
            has_part: false,
            features: Features::default(),
            media: Vec::new(),
            media_hash: None,
        }
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// Takes a token and says how to go on.
    pub(super) fn token(&mut self, token: Token) -> Taking {
        let Some(&place) = self.places.last() else {
            return self.enter(Place::Body);
        };
        match token {
            Token::End => {
                self.places.pop();
                self.leave(place);
                Taking::Tokens
            }
            Token::Key => {
                self.key.clear();
                match place {
                    Place::Body => Taking::OuterKey,
                    _ => Taking::Text(Target::Key),
                }
            }
            _ => match place.item().unwrap_or(self.field) {
                field @ (Field::DocumentText
                | Field::Prompt
                | Field::PromptItem
                | Field::Query
                | Field::QueryItem
                | Field::TokenId) => self.prompt_value(field, token),
                field @ (Field::CacheSalt
                | Field::Model
                | Field::OutputCap(_)
                | Field::Sampling
                | Field::Stream) => self.body_value(field, token),
                field @ (Field::Features
                | Field::FeatureHash
                | Field::FeatureHashes
                | Field::FeatureHashList
                | Field::FeatureOffset
                | Field::FeatureSpan
                | Field::FeatureSpans
                | Field::FeatureSpanList) => self.feature_value(field, token),
                field @ (Field::Messages
                | Field::Previous
                | Field::System
                | Field::SystemBlock
                | Field::SystemText
                | Field::Tools) => self.section_value(field, token),
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
            Target::FeatureHash | Target::Media(_) => {
                if let Some(hash) = &mut self.media_hash {
                    hash.update(text);
                }
            }
            Target::Model => self.model.push(text, MODEL_BYTES_MAX),
            Target::Nowhere => {}
            Target::DocumentText | Target::Prompt => self.prompts.push(text),
            Target::OnlyMessage => self.sections.push(Section::Messages, text),
            Target::Query => self.prompts.push_query(text),
            Target::Role => {
                self.role.push(text);
                self.sections.push(Section::Messages, text);
            }
            Target::Section(section) => self.sections.push(section, text),
            Target::System => {
                for text in self.billing.text(text) {
                    self.sections.push(Section::System, text);
                }
            }
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
                self.field = place.map_or(Field::Ignored, |it| {
                    it.member(self.shape, self.key.as_bytes())
                });
            }
            Target::FeatureHash => {
                let hash = self.media_hash.as_ref().map_or(0, |hash| hash.digest());
                self.features.push_hash(hash);
            }
            Target::Media(kind) => self.end_media(kind),
            Target::CacheSalt => self.cache_salt.end(),
            Target::Model => self.model.end(),
            Target::OnlyMessage => {
                self.frame(Mark::End);
                self.sections.end_user_message();
            }
            Target::Prompt => self.prompts.close(),
            Target::Query => self.prompts.end_query_text(),
            Target::System => self.sections.push(Section::System, self.billing.end()),
            Target::DocumentText | Target::Nowhere | Target::Role | Target::Section(_) => {}
        }
    }

    /// The request; `fault` is what kept the body from being read to its end.
    pub(super) fn finish(mut self, seed: HashSeed, fault: Option<RequestFault>) -> Request {
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
        if self.features.has_too_many() {
            self.messages_fault = Some(RequestFault::PromptMixed);
        }
        self.media.extend(self.features.mix(&mut self.prompts));
        faults.extend(self.prompt_fault);
        faults.extend(self.messages_fault);
        let (mut prompts, mut group) = (Vec::new(), None);
        if !faults.iter().any(RequestFault::hides_prompts) {
            let ignored = self.prompts.ignored();
            if 0 < ignored {
                faults.push(RequestFault::PromptsOverMax { ignored });
            }
            let mut origin = seed.origin(model.as_deref(), cache_salt.as_deref());
            if self.shape == Shape::SglangGenerate {
                // Where they stand among the text is not known.
                origin = self.media.iter().fold(origin, mixed);
            }
            prompts = self.prompts.finish(origin);
            group = prompts.first().and_then(group_of);
            if let Some((prompt, its_group)) = self.sections.finish(origin) {
                prompts.push(prompt);
                group = its_group;
            }
        }
        if !self.shape.is_cached() {
            prompts.iter_mut().for_each(|it| it.blocks = Vec::new());
            group = None;
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
            only_cached: false,
            priority: 0,
            fairness_id: None,
            headers: Vec::new(),
        }
    }

    fn body_value(&mut self, field: Field, token: Token) -> Taking {
        match (field, token) {
            (Field::CacheSalt, Token::String) => {
                self.cache_salt = Name::begin();
                return Taking::Text(Target::CacheSalt);
            }
            (Field::CacheSalt, _) => self.cache_salt = no_name(token),
            (Field::Model, _) => return self.model_value(token),
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
            (Field::Sampling, _) => {
                self.output_cap_other = None;
                if token == Token::Object {
                    return self.enter(Place::Sampling);
                }
            }
            (Field::Stream, _) => self.stream = token == Token::True,
            _ => {}
        }
        step_over(token)
    }

    fn leave(&mut self, place: Place) {
        match place {
            Place::Message => {
                self.frame(Mark::End);
                if self.role.as_bytes() == USER {
                    self.sections.end_user_message();
                }
            }
            Place::Document | Place::Prompts | Place::TokenIds => self.prompts.close(),
            // The parts may have been those of a part.
            Place::Parts => self.has_part = true,
            _ => {}
        }
    }

    pub(super) fn enter(&mut self, place: Place) -> Taking {
        self.places.push(place);
        Taking::Tokens
    }

    pub(super) fn frame(&mut self, mark: Mark) {
        self.sections.frame(Section::Messages, &[mark as u8]);
    }
}

pub(super) fn step_over(token: Token) -> Taking {
    match token {
        Token::Array | Token::Object => Taking::Rest(None),
        Token::String => Taking::Text(Target::Nowhere),
        _ => Taking::Tokens,
    }
}

/// Another origin, depending on `media`.
fn mixed(origin: u64, media: &Media) -> u64 {
    let parts = [origin, media.kind as u64, media.hash];
    xxh3_64(parts.map(u64::to_le_bytes).as_flattened())
}

pub(super) fn no_name(token: Token) -> Name {
    match token {
        Token::Null => Name::Absent,
        _ => Name::NotText,
    }
}

/// `null` is the same as absent; another type is a fault.
pub(super) fn wrong_type(token: Token) -> Option<RequestFault> {
    (token != Token::Null).then_some(RequestFault::PromptOfWrongType)
}

/// The role of the user's messages.
const USER: &[u8] = b"user";
