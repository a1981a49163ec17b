//! Reads the body of a request while it arrives.
//!
//! One pass over chunks that may be cut anywhere, without a tree: a [lexer] turns bytes into
//! tokens, [`reader`] follows them with the tables of [`fields`], [`prompts`] hashes what belongs
//! to a prompt. Work is O(bytes); memory is 8 bytes for each block hashed and a constant.
//!
//! # What is hashed
//!
//! The text of a chat is its tools, then its messages in body order.
//! - *Tools*: the JSON as written, without the blanks between its tokens. Key order counts, for
//!   templates render it.
//! - *Messages*: for each message, its texts in the order of its keys, each after a [mark]: role,
//!   content, name, refusal, reasoning, `tool_call_id`; `tool_calls` and `function_call` as
//!   written, like tools. Then the mark of its end. The marks occur in no text, so a text divided
//!   differently among messages or fields is a different text. A role after the content is hashed
//!   after it: a client that changes the order of its keys between turns loses the match.
//! - *Content*: a string; or parts, a mark between them, so a string and a list of one text part
//!   are equal. For a part that is not text the hash of its address or data stands after its mark and
//!   kind, and then again for as many bytes as such a part usually has, four a token. A `uuid` of a
//!   part is a name. `null` is nothing.
//!
//! The next turn of a conversation appends messages and so begins with all full blocks of the turn
//! before.
//!
//! Other APIs add to that:
//! - *System*: `system` of the Anthropic API and `instructions` of the Responses API stand between
//!   tools and messages; the blocks of a list are one text.
//! - *Blocks and items*: calls of tools, what these gave, and thoughts are texts of a message like
//!   those above, each after its mark.
//! - *Previous*: `previous_response_id` and `conversation` stand before all else, for what they name
//!   is not known here.
//! - *Query*: what a server puts before each document to sort stands before each of these prompts.
//! - *Features*: the hash of an image among token ids changes the block in which it begins; images
//!   whose place is not known change all blocks.
//!
//! A request that leaves nothing in a server's cache has prompts without blocks.
//!
//! Strings are hashed unescaped, so it does not matter how a client escapes. The text of a
//! completion is its string. Token ids are hashed as little-endian `u32`, 64 in a block.
//!
//! When a member occurs twice in the body the last one counts, as in the engines. Within a message
//! both are hashed.
//!
//! [lexer]: crate::json
//! [mark]: fields::Mark

mod billing;
mod features;
mod fields;
mod form;
mod model_place;
#[cfg(test)]
mod naive;
mod names;
mod prompts;
mod reader;

use self::form::Form;
pub use self::model_place::{MODELS_MAX, ModelPlace, RenameFault};
use self::reader::{Reader, Taking, Target};
use alloc::boxed::Box;

use crate::block::HashSeed;
use crate::json::lexer::{Lexer, LexerFault};
use crate::request::{Request, RequestFault};
use crate::shape::Shape;

/// Reads one body.
///
/// Call [`push`](Self::push) for each chunk and [`finish`](Self::finish) after the last. The chunks
/// have to be the JSON, or the form, itself: a body with a content coding other than `identity` is
/// not for this scanner.
pub struct RequestScanner {
    lexer: Lexer,
    reader: Reader,
    taking: Taking,
    /// Open brackets when `taking` began.
    depth: u32,
    bytes: u64,
    fault: Option<RequestFault>,
    /// Reads the body in place of all the others, where it is a form.
    form: Option<Box<Form>>,
}

impl RequestScanner {
    /// A scanner for the body of an API.
    pub fn new(shape: Shape) -> Self {
        Self {
            lexer: Lexer::default(),
            reader: Reader::new(shape),
            taking: Taking::Tokens,
            depth: 0,
            bytes: 0,
            fault: None,
            form: (shape == Shape::Transcriptions).then(|| Box::new(Form::new())),
        }
    }

    /// Reads the next chunk, of any length. After the first fault in the JSON bytes are only
    /// counted.
    pub fn push(&mut self, chunk: &[u8]) {
        if let Some(form) = &mut self.form {
            return form.push(chunk);
        }
        self.bytes = self.bytes.saturating_add(chunk.len() as u64);
        let mut input = chunk;
        while !input.is_empty() && self.fault.is_none() {
            self.step(&mut input);
            if let Some(fault) = self.lexer.fault() {
                let offset = self.bytes.saturating_sub(input.len() as u64);
                self.fault = Some(at(fault, offset));
            }
        }
    }

    /// The API whose body this is.
    pub fn shape(&self) -> Shape {
        self.reader.shape()
    }

    /// Bytes pushed so far.
    pub fn bytes(&self) -> u64 {
        self.form.as_ref().map_or(self.bytes, |form| form.bytes())
    }

    /// The model or adapter asked for, as far as the body was read; `None` as in [`Request`].
    pub fn model(&self) -> Option<&str> {
        let form = self.form.as_ref().map(|form| form.model());
        form.unwrap_or_else(|| self.reader.model())
    }

    /// Where the model stands, once the body is complete; `None` when it was not read to its end.
    pub fn model_place(&self) -> Option<&ModelPlace> {
        if let Some(form) = &self.form {
            return form.model_place();
        }
        let is_read = self.lexer.is_complete() && !self.lexer.has_byte_order_mark();
        is_read.then(|| self.reader.model_place())
    }

    /// Says that the body goes to the server with another model, so its blocks are of that.
    pub fn rename_model(&mut self, name: &str) {
        match &mut self.form {
            Some(form) => form.rename_model(name),
            None => self.reader.rename_model(name),
        }
    }

    /// The request, its blocks named under `seed`.
    pub fn finish(self, seed: HashSeed) -> Request {
        if let Some(form) = self.form {
            return form.finish();
        }
        let fault = if self.lexer.has_byte_order_mark() {
            Some(RequestFault::ByteOrderMark)
        } else if self.fault.is_none() && !self.lexer.is_complete() {
            Some(RequestFault::Truncated { offset: self.bytes })
        } else {
            self.fault
        };
        self.reader.finish(seed, fault)
    }

    #[inline]
    fn step(&mut self, input: &mut &[u8]) {
        let reader = &mut self.reader;
        match self.taking {
            Taking::Tokens => {
                if let Some(token) = self.lexer.next(input) {
                    self.taking = reader.token(token);
                    self.depth = self.lexer.depth();
                }
            }
            Taking::OuterKey => {
                let inside = self.bytes.saturating_sub(input.len() as u64);
                reader.begin_member(inside.saturating_sub(1));
                self.taking = Taking::Text(Target::Key);
            }
            Taking::TokenIds => {
                self.lexer.integers(input, |id| reader.token_id(id));
                self.taking = Taking::Tokens;
            }
            Taking::Text(target) => {
                if self.lexer.text(input, |text| reader.text(target, text)) {
                    reader.end_text(target);
                    self.taking = Taking::Tokens;
                }
            }
            Taking::Rest(section) => {
                if self.lexer.rest(input, self.depth, |text| {
                    reader.verbatim_text(section, text)
                }) {
                    self.taking = Taking::Tokens;
                }
            }
        }
    }
}

fn at(fault: LexerFault, offset: u64) -> RequestFault {
    match fault {
        LexerFault::Malformed => RequestFault::Malformed { offset },
        LexerFault::NotAnObject => RequestFault::NotAnObject { offset },
        LexerFault::TooDeep => RequestFault::TooDeep { offset },
        LexerFault::TrailingBytes => RequestFault::TrailingBytes { offset },
    }
}

#[cfg(test)]
mod tests;
