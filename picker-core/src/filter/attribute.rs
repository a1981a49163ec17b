//! Limits on a number that an endpoint's pages tell.

use alloc::string::String;

use crate::candidate::Candidate;

/// What a number from an endpoint's pages must be.
#[derive(Clone, PartialEq, Debug)]
pub struct AttributeLimit {
    /// The plugin that makes the number; empty when it has no producer.
    pub producer: String,
    /// The number's name.
    pub name: String,
    /// How it is compared with `value`.
    pub operator: Operator,
    /// What it is compared with.
    pub value: f64,
    /// Whether an endpoint passes that does not tell it.
    pub passes_unknown: bool,
    /// Whether all pass when none does.
    pub falls_back: bool,
}

/// A comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// Less.
    LessThan,
    /// Less or the same.
    LessThanOrEqual,
    /// More.
    GreaterThan,
    /// More or the same.
    GreaterThanOrEqual,
    /// The same.
    Equal,
    /// Not the same.
    NotEqual,
}

impl AttributeLimit {
    pub(super) fn holds(&self, candidate: &Candidate<'_>) -> bool {
        let number = candidate.attribute(&self.producer, &self.name);
        number.map_or(self.passes_unknown, |it| {
            self.operator.holds(it, self.value)
        })
    }
}

impl Operator {
    /// Every operator by the name it has in configurations.
    pub const ALL: [(&'static str, Self); 6] = [
        ("LessThan", Self::LessThan),
        ("LessThanOrEqual", Self::LessThanOrEqual),
        ("GreaterThan", Self::GreaterThan),
        ("GreaterThanOrEqual", Self::GreaterThanOrEqual),
        ("Equal", Self::Equal),
        ("NotEqual", Self::NotEqual),
    ];

    fn holds(self, number: f64, value: f64) -> bool {
        match self {
            Self::LessThan => number < value,
            Self::LessThanOrEqual => number <= value,
            Self::GreaterThan => number > value,
            Self::GreaterThanOrEqual => number >= value,
            Self::Equal => number == value,
            Self::NotEqual => number != value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_number_is_compared_as_the_operator_says() {
        for ((name, operator), expected) in Operator::ALL.into_iter().zip([
            [true, false, false],
            [true, true, false],
            [false, false, true],
            [false, true, true],
            [false, true, false],
            [true, false, true],
        ]) {
            assert_eq!(
                [1.0, 2.0, 3.0].map(|it| operator.holds(it, 2.0)),
                expected,
                "{name}"
            );
        }
    }
}
