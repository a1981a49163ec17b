//! Times and sizes as people write them.

use alloc::format;
use alloc::string::{String, ToString};

use crate::time::Span;

/// The time that `text` is: numbers with units, `100ms`, `1.5s`, `1m30s`, or a plain `0`, as Go
/// writes times; `None` for anything else. Below a microsecond it is cut.
pub(super) fn duration(text: &str) -> Option<Span> {
    if text == "0" {
        return Some(Span(0));
    }
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (number, unit) = split_number(rest)?;
        let (fraction, unit) = match unit.strip_prefix('.') {
            Some(digits) => split_fraction(digits)?,
            None => (0, unit),
        };
        let end = unit.find(|it: char| it.is_ascii_digit());
        let (unit, after) = unit.split_at(end.unwrap_or(unit.len()));
        let (_, micros) = DURATION_UNITS.iter().find(|(name, _)| *name == unit)?;
        let part = fraction * micros / BILLION;
        total = total.checked_add(number.checked_mul(*micros)?.checked_add(part)?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(Span(total))
}

/// The digits after a point as billionths, and what follows; further digits are cut.
fn split_fraction(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|it: char| !it.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    let places = digits.bytes().map(|it| u64::from(it - b'0'));
    let places = places.chain(core::iter::repeat(0)).take(9);
    let billionths = places.fold(0, |sum, digit| sum * 10 + digit);
    (!digits.is_empty()).then_some((billionths, rest))
}

/// The number of bytes that `text` is: `32Mi`, `500M`, `4096`; `None` for anything else.
pub(super) fn size(text: &str) -> Option<u64> {
    let (number, unit) = split_number(text)?;
    let (_, bytes) = SIZE_UNITS.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*bytes)
}

/// `duration` in the largest unit that leaves a whole number.
pub(super) fn show_duration(duration: Span) -> String {
    show(duration.0, &DURATION_UNITS)
}

/// `size` in the largest power-of-two unit that leaves a whole number.
pub(super) fn show_size(size: u64) -> String {
    show(size, &SIZE_UNITS[..SIZE_UNITS_SHOWN])
}

/// The digits that `text` starts with, as a number, and what follows.
fn split_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|it: char| !it.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    Some((digits.parse().ok()?, rest))
}

fn show(value: u64, units: &[(&str, u64)]) -> String {
    let whole = |(_, unit): &&(&str, u64)| value > 0 && value.is_multiple_of(*unit);
    match units.iter().find(whole) {
        Some((name, unit)) => format!("{}{name}", value / unit),
        None => value.to_string(),
    }
}

/// Parts that fractions are counted in: with the microseconds of an hour it makes 3.6e18, which
/// fits.
const BILLION: u64 = 1_000_000_000;

/// Units of time in microseconds, the largest first.
const DURATION_UNITS: [(&str, u64); 5] = [
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1000),
    ("us", 1),
];

/// Units of size in bytes: those that are shown, the largest first, then those that are only read.
const SIZE_UNITS: [(&str, u64); 7] = [
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
    ("", 1),
    ("k", 1000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
];

/// How many of the units of size are shown.
const SIZE_UNITS_SHOWN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_time_has_a_unit() {
        for (text, micros) in [
            ("100ms", Some(100_000)),
            ("2s", Some(2_000_000)),
            ("1m", Some(60_000_000)),
            ("1h", Some(3_600_000_000)),
            ("1m30s", Some(90_000_000)),
            ("250us", Some(250)),
            ("0s", Some(0)),
            ("", None),
            ("5", None),
            ("fast", None),
            ("ms", None),
            ("-1s", None),
            ("1.5s", Some(1_500_000)),
            ("0.25ms1.0000019s", Some(1_000_251)),
            ("1.9999999999999h", Some(7_199_999_996)),
            ("0", Some(0)),
            ("1.s", None),
            (".5s", None),
            ("1.5", None),
            ("1 s", None),
            ("1S", None),
            ("18446744073709551615h", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(duration(text), micros.map(Span), "{text}");
        }
    }

    #[test]
    fn a_size_is_a_number_with_or_without_a_unit() {
        for (text, bytes) in [
            ("32Mi", Some(32 << 20)),
            ("1Gi", Some(1 << 30)),
            ("64Ki", Some(64 << 10)),
            ("5k", Some(5000)),
            ("2M", Some(2_000_000)),
            ("1G", Some(1_000_000_000)),
            ("4096", Some(4096)),
            ("", None),
            ("Mi", None),
            ("32mi", None),
            ("32MB", None),
            ("1.5Gi", None),
            ("-1", None),
            ("99999999999Gi", None),
        ] {
            assert_eq!(size(text), bytes, "{text}");
        }
    }

    #[test]
    fn what_is_shown_is_read_back() {
        for micros in [1, 250, 1000, 100_000, 1_500_000, 60_000_000, 5_400_000_000] {
            assert_eq!(duration(&show_duration(Span(micros))), Some(Span(micros)));
        }
        for bytes in [0, 1, 1000, 1024, 1025, 32 << 20, 3 << 29, 1 << 30] {
            assert_eq!(size(&show_size(bytes)), Some(bytes));
        }
        assert_eq!(show_duration(Span(90_000_000)), "90s");
        assert_eq!(show_size(32 << 20), "32Mi");
    }
}
