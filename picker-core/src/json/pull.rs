//! JSON documents that are at hand as a whole, read member by member.
//!
//! No tree is built: what nobody asks for is stepped over, and what is asked for has a limit.
#![deny(clippy::indexing_slicing)]

use alloc::string::String;
use alloc::vec::Vec;

use super::lexer::{Lexer, Token};

/// The bytes are not the document that is read here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unreadable;

/// Reads a document; what it has given out is behind it.
pub(crate) struct Pull<'a> {
    lexer: Lexer,
    input: &'a [u8],
}

impl<'a> Pull<'a> {
    /// The inside of the object that `input` begins with.
    pub(crate) fn object(input: &'a [u8]) -> Result<Self, Unreadable> {
        let lexer = Lexer::default();
        let mut pull = Self { lexer, input };
        match pull.token()? {
            Token::Object => Ok(pull),
            _ => Err(Unreadable),
        }
    }

    /// The inside of the list that `input` begins with.
    pub(crate) fn list(input: &'a [u8]) -> Result<Self, Unreadable> {
        // The lexer reads objects, so the list becomes the one member of one.
        let mut pull = Pull::object(b"{\"\":")?;
        pull.token()?;
        pull.gather(&mut Vec::new(), 0)?;
        pull.lexer.next(&mut pull.input);
        let lexer = pull.lexer;
        let mut pull = Self { lexer, input };
        match pull.token()? {
            Token::Array => Ok(pull),
            _ => Err(Unreadable),
        }
    }

    /// What follows the document, blanks in front of it left out.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.input.trim_ascii_start()
    }

    /// Has `take` take in every member of the object that has begun: its name, and how its value
    /// begins. What `take` leaves of a value must be [skipped](Self::skip).
    pub(crate) fn members(
        &mut self,
        take: &mut dyn FnMut(&mut Self, &str, Token) -> Result<(), Unreadable>,
    ) -> Result<(), Unreadable> {
        let mut name = Vec::new();
        loop {
            match self.token()? {
                Token::End => return Ok(()),
                Token::Key if self.gather(&mut name, TEXT_BYTES_MAX)? => {}
                _ => return Err(Unreadable),
            }
            let value = self.token()?;
            let name = core::str::from_utf8(&name).map_err(|_| Unreadable)?;
            take(self, name, value)?;
        }
    }

    /// Has `take` take in every entry of the list that has begun: how it begins. What `take` leaves
    /// of an entry must be [skipped](Self::skip).
    pub(crate) fn entries(
        &mut self,
        take: &mut dyn FnMut(&mut Self, Token) -> Result<(), Unreadable>,
    ) -> Result<(), Unreadable> {
        loop {
            match self.token()? {
                Token::End => return Ok(()),
                value => take(self, value)?,
            }
        }
    }

    /// The members of an object, those of none where there is null.
    pub(crate) fn members_of(
        &mut self,
        value: Token,
        take: &mut dyn FnMut(&mut Self, &str, Token) -> Result<(), Unreadable>,
    ) -> Result<(), Unreadable> {
        match value {
            Token::Object => self.members(take),
            Token::Null => Ok(()),
            _ => Err(Unreadable),
        }
    }

    /// The entries of a list, those of none where there is null.
    pub(crate) fn entries_of(
        &mut self,
        value: Token,
        take: &mut dyn FnMut(&mut Self, Token) -> Result<(), Unreadable>,
    ) -> Result<(), Unreadable> {
        match value {
            Token::Array => self.entries(take),
            Token::Null => Ok(()),
            _ => Err(Unreadable),
        }
    }

    /// The text that a value is; empty for null, which says as much as nothing.
    pub(crate) fn text(&mut self, value: Token) -> Result<String, Unreadable> {
        let mut text = Vec::new();
        match value {
            Token::String if !self.gather(&mut text, TEXT_BYTES_MAX)? => return Err(Unreadable),
            Token::String | Token::Null => {}
            _ => return Err(Unreadable),
        }
        String::from_utf8(text).map_err(|_| Unreadable)
    }

    /// The same, but `None` for a text that is too long to be kept.
    pub(crate) fn short_text(&mut self, value: Token) -> Result<Option<String>, Unreadable> {
        let mut text = Vec::new();
        if value != Token::String {
            return self.text(value).map(Some);
        }
        let is_whole = self.gather(&mut text, TEXT_BYTES_MAX)?;
        let text = String::from_utf8(text).map_err(|_| Unreadable)?;
        Ok(is_whole.then_some(text))
    }

    /// Steps over what is left of a value.
    pub(crate) fn skip(&mut self, value: Token) -> Result<(), Unreadable> {
        match value {
            Token::Array | Token::Object if !self.lexer.skip(&mut self.input) => Err(Unreadable),
            Token::String => self.gather(&mut Vec::new(), 0).map(|_| ()),
            _ => Ok(()),
        }
    }

    fn token(&mut self) -> Result<Token, Unreadable> {
        self.lexer.next(&mut self.input).ok_or(Unreadable)
    }

    /// Puts the text that has begun into `text`, unless it has more than `most` bytes; whether it has
    /// not.
    fn gather(&mut self, text: &mut Vec<u8>, most: usize) -> Result<bool, Unreadable> {
        text.clear();
        let mut is_too_long = false;
        let has_ended = self.lexer.text(&mut self.input, |piece| {
            is_too_long |= text.len() + piece.len() > most;
            if !is_too_long {
                text.extend_from_slice(piece);
            }
        });
        if is_too_long {
            text.clear();
        }
        if has_ended {
            Ok(!is_too_long)
        } else {
            Err(Unreadable)
        }
    }
}

/// Bytes of a name or a text that is kept: what a label, an address or a continuation has is far
/// below.
const TEXT_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// The texts of `list`, and the name and the text of every other member.
    fn read(document: &str) -> Result<String, Unreadable> {
        let mut found = String::new();
        let mut pull = Pull::object(document.as_bytes())?;
        pull.members(&mut |pull, name, value| match name {
            "list" => pull.entries_of(value, &mut |pull, entry| {
                found += &format!("-{}", pull.text(entry)?);
                Ok(())
            }),
            "other" => pull.skip(value),
            _ => {
                found += &format!("{name}={}", pull.text(value)?);
                Ok(())
            }
        })?;
        Ok(found)
    }

    #[test]
    fn what_is_asked_for_is_read_and_the_rest_stepped_over() {
        for (document, expected) in [
            (
                r#"{"list":["a","\u00e4",""],"other":[{"]":1}],"x":"y"}"#,
                Ok("-a-ä-x=y"),
            ),
            (r#"{"list":null,"x":null,"other":"}"}"#, Ok("x=")),
            ("{}", Ok("")),
            (r#"{"list":{}}"#, Err(Unreadable)),
            (r#"{"list":[1]}"#, Err(Unreadable)),
            (r#"{"x":[]}"#, Err(Unreadable)),
            (r#"{"x":"y""#, Err(Unreadable)),
            (r#"{"other":[}"#, Err(Unreadable)),
            (r#"[]"#, Err(Unreadable)),
            ("", Err(Unreadable)),
        ] {
            assert_eq!(read(document).as_deref(), expected.as_deref(), "{document}");
        }
        assert!(Pull::object(b"{\"a\":1}").is_ok_and(|it| it.rest() == b"\"a\":1}"));
    }

    #[test]
    fn a_list_may_be_the_document() {
        let lengths = |document: &[u8]| {
            let mut lengths = Vec::new();
            let mut pull = Pull::list(document)?;
            pull.entries(&mut |pull, value| {
                lengths.push(pull.text(value)?.len());
                Ok(())
            })?;
            Ok((lengths, pull.rest().len()))
        };
        assert_eq!(lengths(b" [\"a\", \"bc\"] \n"), Ok((alloc::vec![1, 2], 0)));
        assert_eq!(lengths(b"[] x"), Ok((alloc::vec![], 1)));
        for bad in ["{}", "", "[", "[\"a\"", "[\"a\",]", "\"a\""] {
            assert_eq!(lengths(bad.as_bytes()), Err(Unreadable), "{bad}");
        }
    }

    #[test]
    fn a_text_has_a_limit() {
        for (length, expected) in [(4096, true), (4097, false)] {
            let text = "x".repeat(length);
            let of_value = read(&format!(r#"{{"a":"{text}"}}"#));
            let of_name = read(&format!(r#"{{"{text}":""}}"#));
            assert_eq!((of_value.is_ok(), of_name.is_ok()), (expected, expected));
            assert!(read(&format!(r#"{{"other":"{text}"}}"#)).is_ok());
        }
    }
}
