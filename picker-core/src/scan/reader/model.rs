//! The model of a body: its name, and where it stands.

use super::super::model_place::ModelPlace;
use super::super::names::{MODEL_BYTES_MAX, Name};
use super::{Reader, Taking, Target, no_name, step_over};
use crate::json::lexer::Token;

impl Reader {
    /// Takes note of where a token stands that leaves at most one bracket open; `end` is the offset
    /// of what follows its first byte, or all of a token that has no inside.
    pub(in crate::scan) fn outer_token(&mut self, token: Token, end: u64) {
        let begins = end.saturating_sub(1);
        match token {
            Token::Key => self.model_place.begin(begins),
            Token::Object => self.model_place.open(end),
            // That of a member comes for those alone that are entered, and a model is not.
            Token::End => self.model_place.end(begins),
            _ => {}
        }
    }

    /// Calls the model `name` from now on.
    pub(in crate::scan) fn rename_model(&mut self, name: &str) {
        self.model = Name::of(name, MODEL_BYTES_MAX);
    }

    /// The name so far.
    pub(in crate::scan) fn model(&self) -> Option<&str> {
        self.model.text()
    }

    /// Where the model stands; all of it only once the body has ended.
    pub(in crate::scan) fn model_place(&self) -> &ModelPlace {
        &self.model_place
    }

    pub(super) fn model_value(&mut self, token: Token) -> Taking {
        self.model_place.found(self.key.as_bytes().len());
        if token == Token::String {
            self.model = Name::begin();
            return Taking::Text(Target::Model);
        }
        self.model = no_name(token);
        step_over(token)
    }
}
