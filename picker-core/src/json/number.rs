//! JSON numbers, one byte at a time.

/// A number that is being read.
#[derive(Default)]
pub(super) struct Number {
    step: Step,
    /// The value so far; `None` once it is no non-negative integer below 2^64.
    value: Option<u64>,
}

/// What a byte meant.
pub(super) enum Read {
    /// The byte is part of the number.
    Taken,
    /// The number ended before the byte. The value is there for a non-negative integer below
    /// 2^64 that is written without fraction and exponent.
    Ended(Option<u64>),
    /// No number goes on like this.
    Bad,
}

#[derive(Clone, Copy, Default)]
enum Step {
    #[default]
    Start,
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

impl Number {
    #[inline]
    pub(super) fn read(&mut self, byte: u8) -> Read {
        let next = match (self.step, byte) {
            (Step::Integer, b'0'..=b'9') => {
                self.digit(byte);
                return Read::Taken;
            }
            (Step::Start, b'-') => Step::Minus,
            (Step::Start, b'0') => {
                self.value = Some(0);
                Step::Zero
            }
            (Step::Start, b'1'..=b'9') => {
                self.value = Some(0);
                self.digit(byte);
                Step::Integer
            }
            (Step::Minus, b'0') => Step::Zero,
            (Step::Minus, b'1'..=b'9') => Step::Integer,
            (Step::Zero | Step::Integer, b'.') => self.no_integer(Step::Point),
            (Step::Zero | Step::Integer | Step::Fraction, b'e' | b'E') => {
                self.no_integer(Step::Exponent)
            }
            (Step::Point | Step::Fraction, b'0'..=b'9') => Step::Fraction,
            (Step::Exponent, b'+' | b'-') => Step::ExponentSign,
            (Step::Exponent | Step::ExponentSign | Step::ExponentDigits, b'0'..=b'9') => {
                Step::ExponentDigits
            }
            (Step::Zero, b'0'..=b'9') => return Read::Bad,
            (Step::Zero | Step::Integer | Step::Fraction | Step::ExponentDigits, _) => {
                return Read::Ended(self.value);
            }
            _ => return Read::Bad,
        };
        self.step = next;
        Read::Taken
    }

    fn digit(&mut self, byte: u8) {
        let digit = u64::from(byte & 0x0F);
        self.value = self
            .value
            .and_then(|value| value.checked_mul(10)?.checked_add(digit));
    }

    fn no_integer(&mut self, next: Step) -> Step {
        self.value = None;
        next
    }
}
