//! Values of prompts that are plain text or token ids.

use super::super::features::Features;
use super::super::fields::{Field, Place};
use super::super::prompts::Item;
use super::{Reader, Taking, Target, step_over, wrong_type};
use crate::json::lexer::Token;
use crate::request::RequestFault;
use crate::shape::Shape;

impl Reader {
    /// Takes a prompt, a list of prompts, one of its items, or a text that stands before them.
    pub(super) fn prompt_value(&mut self, field: Field, token: Token) -> Taking {
        let has_other_names = matches!(self.shape, Shape::Score | Shape::SglangGenerate);
        let item = match (field, token) {
            // The member that is meant may have stood before this one.
            (Field::Prompt | Field::Query, Token::Null) if has_other_names => {
                return Taking::Tokens;
            }
            (Field::Query | Field::QueryItem, _) => return self.query_value(field, token),
            (Field::DocumentText, Token::String) => return Taking::Text(Target::DocumentText),
            (Field::DocumentText, _) => return step_over(token),
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
            (Field::PromptItem, Token::Object) if self.takes_documents() => Item::Text,
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
            Token::Object => self.enter(Place::Document),
            Token::Number(Some(id)) if let Ok(id) = u32::try_from(id) => {
                self.token_id(id);
                Taking::TokenIds
            }
            _ => self.mixed_prompts(token),
        }
    }

    /// Takes what is said of images and the like among token ids.
    pub(super) fn feature_value(&mut self, field: Field, token: Token) -> Taking {
        match (field, token) {
            (Field::Features, _) => {
                self.features = Features::default();
                if token == Token::Object {
                    return self.enter(Place::Features);
                }
            }
            (Field::FeatureHashes, _) => {
                self.features.begin_hashes();
                if token == Token::Object {
                    return self.enter(Place::FeatureHashes);
                }
            }
            (Field::FeatureSpans, _) => {
                self.features.begin_places();
                if token == Token::Object {
                    return self.enter(Place::FeatureSpans);
                }
            }
            (Field::FeatureHashList, Token::Array) => {
                self.features.begin_list(self.key.as_bytes());
                return self.enter(Place::FeatureHashList);
            }
            (Field::FeatureSpanList, Token::Array) => {
                self.features.begin_list(self.key.as_bytes());
                return self.enter(Place::FeatureSpanList);
            }
            (Field::FeatureHash, Token::String) => {
                self.media_hash.get_or_insert_default().reset();
                return Taking::Text(Target::FeatureHash);
            }
            (Field::FeatureSpan, Token::Object) => {
                self.features.begin_place();
                return self.enter(Place::FeatureSpan);
            }
            (Field::FeatureOffset, Token::Number(Some(offset))) => self.features.set_offset(offset),
            _ => {}
        }
        step_over(token)
    }

    /// What stands before each prompt; where it is not text, no prompt is known.
    fn query_value(&mut self, field: Field, token: Token) -> Taking {
        if field == Field::Query {
            self.prompts.begin_query();
            self.messages_fault = None;
        }
        match (field, token) {
            (_, Token::String) => return Taking::Text(Target::Query),
            (Field::Query, Token::Array) => return self.enter(Place::Queries),
            (Field::Query, Token::Null) => {}
            _ => self.messages_fault = Some(RequestFault::PromptMixed),
        }
        step_over(token)
    }

    fn takes_documents(&self) -> bool {
        matches!(self.shape, Shape::Rerank | Shape::Score)
    }

    fn begin_prompts(&mut self, fault: Option<RequestFault>) {
        self.prompts.begin();
        self.prompt_fault = fault;
    }

    fn mixed_prompts(&mut self, token: Token) -> Taking {
        self.prompt_fault = Some(RequestFault::PromptMixed);
        step_over(token)
    }
}
