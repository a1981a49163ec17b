//! JSON in pieces: tokens from chunks that may be cut anywhere.
//!
//! The lexer checks the grammar and keeps one bit for each open bracket. It has no recursion and
//! no buffer: the inside of a string is handed on as slices of the chunk. It does not check the
//! bytes inside strings (control characters, invalid UTF-8), for nothing here depends on them
//! and it would cost a second pass.

use super::number::{Number, Read};
use super::search::{next_integer, without_blanks};
use super::skip::Skip;
use super::text::Text;

/// A step through a JSON document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Token {
    /// A list begins. May be followed by [`Lexer::rest`] or [`Lexer::skip`].
    Array,
    /// A list or an object ends.
    End,
    /// `false`
    False,
    /// The name of a member begins. Has to be followed by [`Lexer::text`].
    Key,
    /// `null`
    Null,
    /// A number; with its value when it is a non-negative integer below 2^64.
    Number(Option<u64>),
    /// An object begins. May be followed by [`Lexer::rest`] or [`Lexer::skip`].
    Object,
    /// A string begins. Has to be followed by [`Lexer::text`].
    String,
    /// `true`
    True,
}

/// Why the bytes are no JSON object that is read here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LexerFault {
    Malformed,
    NotAnObject,
    TooDeep,
    TrailingBytes,
}

/// Reads one JSON object from chunks.
///
/// The methods take bytes from the front of `input`. They stop at the end of the chunk, and go on
/// with the next, or for good at the first [`fault`](Self::fault), before the byte at fault.
#[derive(Default)]
pub(crate) struct Lexer {
    expect: Expect,
    /// Open brackets, the innermost in the lowest bit: 1 is an object, 0 a list.
    objects: u128,
    depth: u32,
    number: Number,
    /// What is left of the word or byte order mark that has begun.
    word: &'static [u8],
    /// What the word means.
    word_token: Option<Token>,
    text: Text,
    skip: Skip,
    fault: Option<LexerFault>,
    byte_order_mark: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Expect {
    /// The object, or a byte order mark before it.
    #[default]
    Document,
    /// The rest of a byte order mark.
    InMark,
    Key,
    KeyOrEnd,
    Colon,
    Value,
    ValueOrEnd,
    CommaOrEnd,
    InKey,
    InString,
    InNumber,
    InWord,
    /// Only blanks: the object has ended.
    Nothing,
}

impl Lexer {
    /// Reads up to the next token; `None` at the end of the chunk and at a fault.
    #[inline]
    pub(crate) fn next(&mut self, input: &mut &[u8]) -> Option<Token> {
        loop {
            self.skip_blanks(input);
            let token = self.step(input);
            if token.is_some() || input.is_empty() || self.fault.is_some() {
                return token;
            }
        }
    }

    /// Hands `out` the text of the string or key that has begun, unescaped, in pieces.
    ///
    /// `true` once it has ended; until then call again with the next chunk.
    #[inline]
    pub(crate) fn text(&mut self, input: &mut &[u8], mut out: impl FnMut(&[u8])) -> bool {
        let Ok(has_ended) = self.text.read(input, &mut out) else {
            self.fault = Some(LexerFault::Malformed);
            return false;
        };
        if has_ended {
            self.expect = match self.expect {
                Expect::InKey => Expect::Colon,
                _ => Expect::CommaOrEnd,
            };
        }
        has_ended
    }

    /// Hands `out` the rest of the list or object that has begun, without the blanks between its
    /// tokens and otherwise as written, in pieces; the closing bracket is the last byte.
    ///
    /// `depth` is [`depth`](Self::depth) right after the opening bracket. `true` once it has
    /// ended; until then call again with the next chunk.
    pub(crate) fn rest(
        &mut self,
        input: &mut &[u8],
        depth: u32,
        mut out: impl FnMut(&[u8]),
    ) -> bool {
        let mut run = *input;
        loop {
            if matches!(self.expect, Expect::InKey | Expect::InString) {
                self.text(input, |_| {});
            } else {
                let blanks = *input;
                if self.skip_blanks(input) {
                    out(taken(run, blanks));
                    run = *input;
                }
                self.step(input);
            }
            let has_ended = self.depth < depth;
            if has_ended || input.is_empty() || self.fault.is_some() {
                out(taken(run, input));
                return has_ended;
            }
        }
    }

    /// Steps over the rest of the list or object that has begun, however deep, and does not check
    /// what is in it.
    ///
    /// `true` once it has ended; until then call again with the next chunk.
    pub(crate) fn skip(&mut self, input: &mut &[u8]) -> bool {
        let has_ended = self.skip.read(input);
        if has_ended {
            self.close();
        }
        has_ended
    }

    /// Hands `out` the integers that follow in a list, after one was read, while all is plain: a
    /// comma, at most nine digits, and the byte after them in the same chunk.
    ///
    /// What is not plain is left to [`next`](Self::next).
    pub(crate) fn integers(&mut self, input: &mut &[u8], mut out: impl FnMut(u32)) {
        if self.expect != Expect::CommaOrEnd {
            return;
        }
        while let Some((value, rest)) = next_integer(input) {
            out(value);
            *input = rest;
        }
    }

    /// How many brackets are open.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// What is wrong with the bytes, as soon as something is.
    #[inline]
    pub(crate) fn fault(&self) -> Option<LexerFault> {
        self.fault
    }

    /// Whether the document began with a byte order mark, which JSON does not allow.
    pub(crate) fn has_byte_order_mark(&self) -> bool {
        self.byte_order_mark
    }

    /// Whether the object is complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.expect == Expect::Nothing && self.fault.is_none()
    }

    /// Skips white space between tokens and says whether there was any.
    #[inline]
    fn skip_blanks(&mut self, input: &mut &[u8]) -> bool {
        // A number or a word that goes on in this chunk ends at a blank and has to see it.
        if matches!(
            self.expect,
            Expect::InMark | Expect::InNumber | Expect::InWord
        ) {
            return false;
        }
        let rest = without_blanks(input);
        let has_blanks = rest.len() < input.len();
        *input = rest;
        has_blanks
    }

    /// Reads one token or one mark of punctuation; `None` for the latter, and as in `next`.
    #[inline]
    fn step(&mut self, input: &mut &[u8]) -> Option<Token> {
        let (&byte, rest) = input.split_first()?;
        match self.expect {
            Expect::InNumber => return self.read_number(input),
            Expect::InWord => return self.read_word(input),
            Expect::Value | Expect::ValueOrEnd if byte != b']' => {
                return self.begin_value(byte, input);
            }
            _ => {}
        }
        let token = self.punctuation(byte);
        if self.fault.is_none() {
            *input = rest;
        }
        token
    }

    fn punctuation(&mut self, byte: u8) -> Option<Token> {
        match (self.expect, byte) {
            (Expect::CommaOrEnd, b',') => {
                self.expect = if self.in_object() {
                    Expect::Key
                } else {
                    Expect::Value
                };
            }
            (Expect::Colon, b':') => self.expect = Expect::Value,
            (Expect::Key | Expect::KeyOrEnd, b'"') => {
                self.expect = Expect::InKey;
                return Some(Token::Key);
            }
            (Expect::CommaOrEnd | Expect::KeyOrEnd, b'}') if self.in_object() => {
                return self.close();
            }
            (Expect::CommaOrEnd | Expect::ValueOrEnd, b']') if !self.in_object() => {
                return self.close();
            }
            (Expect::Document, b'{') => return self.open(Token::Object),
            (Expect::Document, 0xEF) => {
                self.expect = Expect::InMark;
                self.word = &[0xBB, 0xBF];
            }
            (Expect::InMark, _) if self.word.first() == Some(&byte) => {
                self.word = self.word.get(1..).unwrap_or_default();
                if self.word.is_empty() {
                    self.byte_order_mark = true;
                    self.expect = Expect::Document;
                }
            }
            (Expect::Document | Expect::InMark, _) => self.fault = Some(LexerFault::NotAnObject),
            (Expect::Nothing, _) => self.fault = Some(LexerFault::TrailingBytes),
            _ => self.fault = Some(LexerFault::Malformed),
        }
        None
    }

    #[inline]
    fn begin_value(&mut self, byte: u8, input: &mut &[u8]) -> Option<Token> {
        let token = match byte {
            b'"' => {
                self.expect = Expect::InString;
                Some(Token::String)
            }
            b'{' => self.open(Token::Object),
            b'[' => self.open(Token::Array),
            b't' => return self.begin_word(Token::True, b"true", input),
            b'f' => return self.begin_word(Token::False, b"false", input),
            b'n' => return self.begin_word(Token::Null, b"null", input),
            b'-' | b'0'..=b'9' => {
                self.expect = Expect::InNumber;
                self.number = Number::default();
                return self.read_number(input);
            }
            _ => {
                self.fault = Some(LexerFault::Malformed);
                None
            }
        };
        if token.is_some() {
            *input = input.get(1..).unwrap_or_default();
        }
        token
    }

    fn begin_word(
        &mut self,
        token: Token,
        word: &'static [u8],
        input: &mut &[u8],
    ) -> Option<Token> {
        self.expect = Expect::InWord;
        self.word = word;
        self.word_token = Some(token);
        self.read_word(input)
    }

    fn read_number(&mut self, input: &mut &[u8]) -> Option<Token> {
        while let Some((&byte, rest)) = input.split_first() {
            match self.number.read(byte) {
                Read::Taken => *input = rest,
                Read::Ended(value) => {
                    self.expect = Expect::CommaOrEnd;
                    return Some(Token::Number(value));
                }
                Read::Bad => {
                    self.fault = Some(LexerFault::Malformed);
                    return None;
                }
            }
        }
        None
    }

    fn read_word(&mut self, input: &mut &[u8]) -> Option<Token> {
        while let [expected, word @ ..] = self.word {
            let (byte, rest) = input.split_first()?;
            if byte != expected {
                self.fault = Some(LexerFault::Malformed);
                return None;
            }
            *input = rest;
            self.word = word;
        }
        self.expect = Expect::CommaOrEnd;
        self.word_token
    }

    fn open(&mut self, token: Token) -> Option<Token> {
        if self.depth == NESTING_MAX {
            self.fault = Some(LexerFault::TooDeep);
            return None;
        }
        let is_object = token == Token::Object;
        self.depth += 1;
        self.objects = self.objects << 1 | u128::from(is_object);
        self.expect = if is_object {
            Expect::KeyOrEnd
        } else {
            Expect::ValueOrEnd
        };
        Some(token)
    }

    fn close(&mut self) -> Option<Token> {
        self.depth = self.depth.saturating_sub(1);
        self.objects >>= 1;
        self.expect = if self.depth == 0 {
            Expect::Nothing
        } else {
            Expect::CommaOrEnd
        };
        Some(Token::End)
    }

    fn in_object(&self) -> bool {
        self.objects & 1 == 1
    }
}

/// What was taken from the front of `run` to leave `rest`.
#[inline]
fn taken<'a>(run: &'a [u8], rest: &[u8]) -> &'a [u8] {
    run.get(..run.len().saturating_sub(rest.len()))
        .unwrap_or_default()
}

/// Brackets that may be open at once.
///
/// Bodies in use stay below 30, tool schemas included; the bits of the open brackets fill one
/// `u128`.
pub(crate) const NESTING_MAX: u32 = u128::BITS;
