//! The model of a body: its name, and where it stands.

use super::super::model_place::ModelPlace;
use super::super::names::{MODEL_BYTES_MAX, Name};
use super::{Reader, Taking, Target, no_name, step_over};
use crate::json::lexer::Token;

impl Reader {
    /// Takes note of where a member of the body begins: the offset of its first quote.
    pub(in crate::scan) fn begin_member(&mut self, offset: u64) {
        self.model_place.begin(offset);
    }

    /// Calls the model `name` from now on.
    pub(in crate::scan) fn rename_model(&mut self, name: &str) {
        self.model = Name::of(name, MODEL_BYTES_MAX);
    }

    /// The name so far.
    pub(in crate::scan) fn model(&self) -> Option<&str> {
        self.model.text()
    }

    /// Where the model stands, as far as the body was read.
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
