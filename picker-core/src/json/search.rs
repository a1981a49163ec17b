//! Searches over a chunk.

use memchr::memchr2;

/// A comma and an integer of at most nine digits, if something else follows it.
#[inline]
pub(super) fn next_integer(input: &[u8]) -> Option<(u32, &[u8])> {
    let [b',', rest @ ..] = without_blanks(input) else {
        return None;
    };
    let mut rest = without_blanks(rest);
    let (mut value, mut digits) = (0, 0);
    while let [digit @ b'0'..=b'9', later @ ..] = rest {
        value = value * 10 + u32::from(digit & 0x0F);
        digits += 1;
        rest = later;
        if digits == 9 {
            break;
        }
    }
    let is_plain = matches!(rest, [b',' | b']' | b' ' | b'\n', ..]);
    let has_leading_zero = 1 < digits && value < 10_u32.pow(digits - 1);
    (is_plain && 0 < digits && !has_leading_zero).then_some((value, rest))
}

/// What follows the white space of JSON.
#[inline]
pub(super) fn without_blanks(mut input: &[u8]) -> &[u8] {
    while let [b' ' | b'\n' | b'\r' | b'\t', rest @ ..] = input {
        input = rest;
    }
    input
}

/// Splits text before its first quote or backslash.
#[inline]
pub(super) fn split_at_special(text: &[u8]) -> (&[u8], &[u8]) {
    let at = memchr2(b'"', b'\\', text).unwrap_or(text.len());
    text.split_at_checked(at).unwrap_or_default()
}
