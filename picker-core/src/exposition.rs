//! The Prometheus text format, read as bytes and line by line.
//!
//! A caller names the families it wants by looking at [`Unread::name`] and asks for the sample only
//! then: most lines of a page belong to histograms nobody reads. A bad line costs itself and never
//! the page. Nothing is copied.
#![deny(clippy::indexing_slicing)]

use alloc::borrow::Cow;
use alloc::string::String;

use memchr::{Memchr, memchr_iter, memchr2, memchr3, memrchr};

/// The lines of a page, without their line ends.
pub(crate) struct Lines<'a> {
    page: &'a [u8],
    start: usize,
    ends: Memchr<'a>,
}

/// What one line of a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Line<'a> {
    /// Blank, a comment, or metadata (`# HELP`, `# TYPE`).
    Comment,
    /// `# EOF`: what follows is not part of the page.
    End,
    /// No sample can start like this.
    Bad,
    /// A sample, as far as its first bytes tell.
    Sample(Unread<'a>),
}

/// A sample of which only the name has been looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unread<'a> {
    /// The whole name: `x_total` and `x_created` are two names.
    pub(crate) name: &'a [u8],
    rest: &'a [u8],
    in_braces: bool,
}

/// One sample of a page.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Sample<'a> {
    /// The labels in the order of the page.
    pub(crate) labels: Labels<'a>,
    /// The number; `None` where something else stands in its place. It may be infinite or not a
    /// number.
    pub(crate) value: Option<f64>,
}

/// The labels of a sample: pairs of a name and a value with its escapes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Labels<'a> {
    rest: &'a [u8],
}

impl<'a> Lines<'a> {
    /// The lines of `page`; without the last one when the body is not `complete` and the line has
    /// no end.
    ///
    /// Half a number is a number too: `0.` of `0.97` would make a full server look empty.
    pub(crate) fn new(page: &'a [u8], complete: bool) -> Self {
        let page = page.strip_prefix(BYTE_ORDER_MARK).unwrap_or(page);
        let whole = if complete {
            page.len()
        } else {
            memrchr(b'\n', page).map_or(0, |end| end + 1)
        };
        let page = page.get(..whole).unwrap_or_default();
        Self {
            page,
            start: 0,
            ends: memchr_iter(b'\n', page),
        }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        // After the last line end comes no empty line.
        if self.start >= self.page.len() {
            return None;
        }
        let end = self.ends.next().unwrap_or(self.page.len());
        let line = self.page.get(self.start..end)?;
        self.start = end + 1;
        Some(line)
    }
}

impl<'a> Line<'a> {
    /// Sorts a line by its first bytes.
    pub(crate) fn new(line: &'a [u8]) -> Self {
        let line = trim_start(line);
        match line {
            [] | [b'\r'] => Self::Comment,
            [b'#', ..] if line.trim_ascii_end() == b"# EOF" => Self::End,
            [b'#', ..] => Self::Comment,
            [b'{', inside @ ..] => Self::quoted(inside),
            [b'a'..=b'z' | b'A'..=b'Z' | b'_' | b':', ..] => {
                let end = memchr3(b'{', b' ', b'\t', line).unwrap_or(line.len());
                match line.split_at_checked(end) {
                    Some((name, rest)) => Self::Sample(Unread {
                        name,
                        rest,
                        in_braces: false,
                    }),
                    None => Self::Bad,
                }
            }
            _ => Self::Bad,
        }
    }

    /// A name outside the old alphabet stands first among the labels: `{"a.b",engine="0"} 1`.
    fn quoted(inside: &'a [u8]) -> Self {
        match quoted(trim_start(inside)) {
            Some((name, rest)) => Self::Sample(Unread {
                name,
                rest,
                in_braces: true,
            }),
            None => Self::Bad,
        }
    }
}

impl<'a> Unread<'a> {
    /// The labels and the value; `None` when the line is bad.
    ///
    /// A timestamp and an exemplar may follow the value; neither says anything about it.
    pub(crate) fn sample(&self) -> Option<Sample<'a>> {
        let rest = trim_start(self.rest.trim_ascii_end());
        let (labels, rest) = match rest {
            _ if self.in_braces => Labels::split(rest)?,
            [b'{', inside @ ..] => Labels::split(inside)?,
            _ => (Labels { rest: &[] }, rest),
        };
        let (value, rest) = token(rest);
        if value.is_empty() {
            return None;
        }
        let (time, rest) = token(rest);
        let tail_is_good = match time {
            [] | [b'#', ..] => true,
            _ => number(time).is_some() && matches!(trim_start(rest), [] | [b'#', ..]),
        };
        tail_is_good.then(|| Sample {
            labels,
            value: number(value),
        })
    }
}

impl<'a> Labels<'a> {
    /// The labels up to the closing brace and what follows it; `None` when they are malformed.
    fn split(inside: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let labels = Self { rest: inside };
        let mut rest = labels;
        while rest.next().is_some() {}
        match trim_start(rest.rest) {
            [b'}', rest @ ..] => Some((labels, rest)),
            _ => None,
        }
    }

    /// The value of the label `name`, with its escapes; the first one when the name repeats.
    pub(crate) fn value(mut self, name: &[u8]) -> Option<&'a [u8]> {
        self.find(|(label, _)| *label == name)
            .map(|(_, value)| value)
    }
}

impl<'a> Iterator for Labels<'a> {
    type Item = (&'a [u8], &'a [u8]);

    /// The next pair. At the closing brace, and at a fault, `None`, and nothing is consumed any
    /// more.
    fn next(&mut self) -> Option<Self::Item> {
        let rest = match trim_start(self.rest) {
            [b',', rest @ ..] => trim_start(rest),
            rest => rest,
        };
        if let [b'}', ..] = rest {
            self.rest = rest;
            return None;
        }
        let (name, rest) = match rest {
            [b'"', ..] => quoted(rest)?,
            _ => rest.split_at_checked(memchr2(b'=', b'}', rest)?)?,
        };
        let rest = trim_start(rest).strip_prefix(b"=")?;
        let (value, rest) = quoted(trim_start(rest))?;
        // Only a comma or the end may follow; anything else would glue two labels together.
        if !matches!(trim_start(rest), [b',' | b'}', ..]) {
            return None;
        }
        self.rest = rest;
        Some((name.trim_ascii_end(), value))
    }
}

/// The text of a label value: escapes undone, bytes that are not UTF-8 replaced.
///
/// An escape the format does not know stays as it is written.
pub(crate) fn unescape(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    if !text.contains('\\') {
        return Cow::into_owned(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            plain.push(char);
            continue;
        }
        match chars.next() {
            Some('n') => plain.push('\n'),
            Some(it @ ('\\' | '"')) => plain.push(it),
            Some(it) => plain.extend(['\\', it]),
            None => plain.push('\\'),
        }
    }
    plain
}

/// The decimal number `text` is; `None` for hexadecimal, underscores and everything else.
pub(crate) fn number(text: &[u8]) -> Option<f64> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

/// The content of the quoted string that `text` starts with, escapes kept, and what follows it.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let mut at = 0;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        if text.get(at) == Some(&b'"') {
            return Some((text.get(..at)?, text.get(at + 1..)?));
        }
        at += 2;
    }
}

/// The first word of `text` and what follows it.
fn token(text: &[u8]) -> (&[u8], &[u8]) {
    let text = trim_start(text);
    let end = text.iter().position(|byte| matches!(byte, b' ' | b'\t'));
    text.split_at_checked(end.unwrap_or(text.len()))
        .unwrap_or((text, &[]))
}

/// `text` without the blanks in front.
fn trim_start(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    text
}

/// What some tools put in front of a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use std::format;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// The line as a text: `name a=b,c=d value`, `bad`, or nothing for a comment.
    fn show(line: &[u8]) -> String {
        let unread = match Line::new(line) {
            Line::Comment => return String::new(),
            Line::End => return "end".into(),
            Line::Bad => return "bad".into(),
            Line::Sample(unread) => unread,
        };
        let Some(sample) = unread.sample() else {
            return "bad".into();
        };
        let labels: Vec<String> = sample
            .labels
            .map(|(name, value)| format!("{}={}", String::from_utf8_lossy(name), unescape(value)))
            .collect();
        let value = sample
            .value
            .map_or_else(|| "?".into(), |value| format!("{value}"));
        let name = String::from_utf8_lossy(unread.name);
        format!("{name} {} {value}", labels.join(","))
    }

    fn check(lines: &[(&str, &str)]) {
        for (line, expected) in lines {
            assert_eq!(show(line.as_bytes()), *expected, "{line:?}");
        }
    }

    #[test]
    fn a_sample_is_a_name_labels_and_a_number() {
        check(&[
            ("a 1", "a  1"),
            ("a{} 1", "a  1"),
            ("a{b=\"c\"} 1.5", "a b=c 1.5"),
            ("a{b=\"c\"}1", "a b=c 1"),
            (" \t a{ b = \"c\" , d=\"\",}\t-2e+003\t", "a b=c,d= -2000"),
            ("a:b_1 {c=\"d\"} NaN", "a:b_1 c=d NaN"),
            ("a +Inf", "a  inf"),
            ("a -0", "a  -0"),
            ("a 1e999", "a  inf"),
            ("a 3\r", "a  3"),
        ]);
    }

    #[test]
    fn what_is_in_quotes_is_data() {
        check(&[
            ("a{b=\"x # } , = {y\"} 1", "a b=x # } , = {y 1"),
            (r#"a{b="\\\"\n"} 1"#, "a b=\\\"\n 1"),
            (r#"a{b="\q\"} 1"#, "bad"),
            (r#"a{b="\q"} 1"#, "a b=\\q 1"),
            ("a{\"b.c\"=\"d\"} 1", "a b.c=d 1"),
            ("{\"a.b\",c=\"d\"} 1", "a.b c=d 1"),
            ("{ \"a.b\" } 1", "a.b  1"),
        ]);
    }

    #[test]
    fn timestamps_and_exemplars_are_not_the_value() {
        check(&[
            ("a 5 1764400000000", "a  5"),
            ("a 5 1764400000.123", "a  5"),
            ("a 5 -1", "a  5"),
            ("a 5 # {trace_id=\"x\"} 1 1.0", "a  5"),
            ("a 5 17 # {} 1", "a  5"),
            ("a 5 x", "bad"),
            ("a 5 6 7", "bad"),
        ]);
    }

    #[test]
    fn a_number_is_decimal() {
        check(&[
            ("a 0x1p3", "a  ?"),
            ("a 1_000", "a  ?"),
            ("a 1,5", "a  ?"),
            ("a 14.0\0", "a  ?"),
            ("a gauge", "a  ?"),
        ]);
    }

    #[test]
    fn comments_are_nothing_and_only_eof_ends_the_page() {
        check(&[
            ("", ""),
            (" \t", ""),
            ("\r", ""),
            ("# HELP a b", ""),
            ("#", ""),
            ("# EOF ", "end"),
            ("# EOF\r", "end"),
            ("# EOFS", ""),
        ]);
    }

    #[test]
    fn a_malformed_line_is_bad() {
        check(&[
            ("a", "bad"),
            ("a ", "bad"),
            ("a{b=\"c\"}", "bad"),
            ("a{b=\"c\" 5", "bad"),
            ("a{b=\"c 5", "bad"),
            ("a{b=c} 5", "bad"),
            ("a{b} 5", "bad"),
            ("a{b=\"c\"d=\"e\"} 5", "bad"),
            ("a } 5", "a  ?"),
            ("{}{}{}", "bad"),
            ("{\"a\" 5", "bad"),
            ("}", "bad"),
            ("= 4", "bad"),
            ("<html>", "bad"),
            ("[{\"a\": 1}]", "bad"),
        ]);
    }

    #[test]
    fn a_truncated_last_line_is_thrown_away() {
        let lines = |page: &'static [u8], complete| Lines::new(page, complete).collect::<Vec<_>>();
        assert_eq!(lines(b"a 1\nb 0.", false), [&b"a 1"[..]]);
        assert_eq!(lines(b"a 1\nb 0.", true), [&b"a 1"[..], b"b 0."]);
        assert_eq!(lines(b"a 1", false), [&b""[..]; 0][..]);
        assert_eq!(lines(b"\xef\xbb\xbfa 1\n", false), [&b"a 1"[..]]);
    }
}
