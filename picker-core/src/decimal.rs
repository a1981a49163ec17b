//! Numbers as text, without the machinery of formatting: every request writes a few.

use alloc::string::String;

/// Appends `number` in decimal digits.
pub fn push_decimal(text: &mut String, number: u64) {
    let mut digits = [0; DIGITS_MAX];
    let mut rest = number;
    let mut begin = DIGITS_MAX;
    for (place, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        begin = place;
        if rest == 0 {
            break;
        }
    }
    let digits = digits.iter().skip(begin);
    text.extend(digits.map(|digit| char::from(*digit)));
}

/// Digits of the largest number.
const DIGITS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_number_is_written_as_it_is_displayed() {
        for number in [0, 9, 10, 1023, 65_535, u64::from(u32::MAX), u64::MAX] {
            let mut text = String::from("a");
            push_decimal(&mut text, number);
            assert_eq!(text, "a".to_string() + &number.to_string());
        }
    }
}
