//! Values of messages, of their parts and of what is rendered before them.

use super::super::fields::{Field, Mark, Place};
use super::super::prompts::Section;
use super::{Reader, Taking, Target, USER, step_over, wrong_type};
use crate::json::lexer::Token;
use crate::request::{MEDIA_MAX, Media, MediaKind, RequestFault};
use crate::shape::Shape;

impl Reader {
    /// Takes a member of the body that is a section of the prompt, or a block of one.
    pub(super) fn section_value(&mut self, field: Field, token: Token) -> Taking {
        match (field, token) {
            (Field::Messages, Token::Array) => {
                self.begin_messages();
                return self.enter(Place::Messages);
            }
            (Field::Messages, Token::String) if self.shape == Shape::Responses => {
                self.begin_messages();
                self.frame(Mark::Role);
                self.sections.push(Section::Messages, USER);
                self.frame(Mark::Content);
                return Taking::Text(Target::OnlyMessage);
            }
            (Field::Messages, _) => {
                self.begin_messages();
                self.sections.remove(Section::Messages);
                self.messages_fault = wrong_type(token);
            }
            (Field::Previous, Token::String) => {
                self.sections.begin(Section::Previous);
                return Taking::Text(Target::Section(Section::Previous));
            }
            (Field::Previous, Token::Object) => {
                self.sections.begin(Section::Previous);
                return self.verbatim(Section::Previous, token);
            }
            // The member that is meant may have stood before this one.
            (Field::Previous, Token::Null) => {}
            (Field::Previous, _) => self.sections.remove(Section::Previous),
            (Field::System, Token::String) => {
                self.sections.begin(Section::System);
                return self.system_text();
            }
            (Field::System, Token::Array) => {
                self.sections.begin(Section::System);
                return self.enter(Place::SystemBlocks);
            }
            (Field::System, _) => self.sections.remove(Section::System),
            (Field::SystemBlock, Token::Object) => return self.enter(Place::SystemBlock),
            (Field::SystemText, Token::String) => return self.system_text(),
            (Field::Tools, Token::Array | Token::Object) => {
                self.sections.begin(Section::Tools);
                return self.verbatim(Section::Tools, token);
            }
            (Field::Tools, _) => self.sections.remove(Section::Tools),
            _ => {}
        }
        step_over(token)
    }

    /// Takes a value of a message or of one of its parts.
    pub(super) fn message_value(&mut self, field: Field, token: Token) -> Taking {
        match (field, token) {
            (Field::Message, Token::Object) => {
                self.role.clear();
                return self.enter(Place::Message);
            }
            (Field::Message, _) => self.messages_fault = Some(RequestFault::PromptOfWrongType),
            (Field::Content(mark), Token::String) => return self.message_text(mark),
            (Field::Content(mark), Token::Array) => {
                self.frame(mark);
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
            (Field::MediaItems(kind), Token::Array) => return self.enter(Place::MediaItems(kind)),
            (Field::Media(kind) | Field::MediaItems(kind), Token::Object) => {
                return self.enter(Place::Media(kind));
            }
            (
                Field::Media(kind) | Field::MediaItems(kind) | Field::MediaSource(kind),
                Token::String,
            ) => {
                self.media_hash.get_or_insert_default().reset();
                return Taking::Text(Target::Media(kind));
            }
            _ => {}
        }
        step_over(token)
    }

    fn begin_messages(&mut self) {
        self.sections.begin(Section::Messages);
        self.messages_fault = None;
        self.media.clear();
    }

    fn system_text(&mut self) -> Taking {
        if self.shape == Shape::Responses {
            return Taking::Text(Target::Section(Section::System));
        }
        self.billing.begin();
        Taking::Text(Target::System)
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

    /// Puts the hash of a part that is not text in its place, as often as the part is long, so that
    /// what follows is chained to it.
    pub(super) fn end_media(&mut self, kind: MediaKind) {
        let hash = self.media_hash.as_ref().map_or(0, |hash| hash.digest());
        self.frame(Mark::Media);
        self.sections.frame(Section::Messages, &[kind as u8]);
        self.sections.frame(Section::Messages, &hash.to_le_bytes());
        if self.media.len() < MEDIA_MAX {
            self.media.push(Media { kind, hash });
            let run = [hash.to_le_bytes(); 32];
            let run = run.as_flattened();
            let mut left = kind.placeholder_bytes();
            while let Some(piece) = run.get(..left.min(run.len())).filter(|_| 0 < left) {
                self.sections.push(Section::Messages, piece);
                left -= piece.len();
            }
        }
    }
}
