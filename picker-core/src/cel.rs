//! Expressions over the token counts of an answer, in the Common Expression Language.
//!
//! `usage.prompt_tokens`, `usage.completion_tokens`, `usage.total_tokens` and
//! `usage.prompt_tokens_details.cached_tokens` are doubles, as numbers of a JSON document are in
//! CEL. Only the last one can be missing, when the server does not tell it; then the expression has
//! no value, and `has(…)` asks. The part of the language that numbers need is there: literals,
//! arithmetic, comparison, `!`, `&&`, `||`, `?:`, `has`, `int` and `double`. Whole numbers have 64
//! bits and no value when they overflow.
//!
//! Types are checked when an expression is read. In one point more is allowed than CEL does: a
//! whole number beside a double counts as a double, for `usage.prompt_tokens * 3` means what it
//! says.
#![deny(clippy::indexing_slicing)]

mod parser;

use alloc::vec::Vec;
use core::fmt;

use crate::response::Usage;

/// What is reported of an answer: a number, under a condition.
#[derive(Clone, PartialEq, Debug)]
pub struct UsageReport {
    number: Expression,
    condition: Option<Expression>,
}

/// An expression that was read and is of one type for every answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Expression {
    /// Operands stand before their operators; the last one is the whole.
    nodes: Vec<Node>,
}

/// What is wrong with an expression, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpressionError {
    /// The character at which it begins, from 1.
    pub column: usize,
    /// What.
    pub fault: ExpressionFault,
}

/// What can be wrong with an expression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpressionFault {
    /// It has more characters, operators or parentheses in one another than are read.
    TooLong,
    /// Something else belongs here.
    Expected(&'static str),
    /// No number of 64 bits.
    Number,
    /// No count of `usage`, and no function.
    UnknownName,
}

/// One operator or operand.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Node {
    Literal(Value),
    Count(Count),
    Has(Count),
    Not(Place),
    Minus(Place),
    Int(Place),
    Double(Place),
    Binary(Operator, Place, Place),
    Choice(Place, Place, Place),
}

/// Where an operand stands among the nodes.
type Place = u8;

/// What an expression is of an answer.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Value {
    Bool(bool),
    Int(i64),
    Double(f64),
}

/// A count of `usage`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Count {
    Prompt,
    Completion,
    Total,
    /// `usage.prompt_tokens_details`: nothing by itself, but it can be there.
    Details,
    Cached,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Or,
    And,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Plus,
    Minus,
    Times,
    Divide,
    Remainder,
}

impl UsageReport {
    /// Reports `number` where `condition`, if there is one, holds.
    pub fn new(number: Expression, condition: Option<Expression>) -> Self {
        Self { number, condition }
    }

    /// The number to report of an answer, without its fraction.
    ///
    /// `None` when the condition does not hold, and for 0 and -1, which stand for no number.
    pub fn of(&self, usage: &Usage) -> Option<i64> {
        let is_wanted = self.condition.as_ref().is_none_or(|it| it.holds(usage));
        let number = is_wanted.then(|| self.number.whole(usage)).flatten();
        number.filter(|number| !matches!(number, 0 | -1))
    }
}

impl Expression {
    /// Reads an expression whose value is a number.
    pub fn number(text: &str) -> Result<Self, ExpressionError> {
        parser::parse(text, false)
    }

    /// Reads an expression whose value is true or false.
    pub fn condition(text: &str) -> Result<Self, ExpressionError> {
        parser::parse(text, true)
    }

    /// Whether the condition is true; one without a value is not.
    pub fn holds(&self, usage: &Usage) -> bool {
        self.value(usage) == Some(Value::Bool(true))
    }

    /// The number without its fraction; `None` when there is none, or none of 64 bits.
    pub fn whole(&self, usage: &Usage) -> Option<i64> {
        self.value(usage)?.to_int()
    }

    fn value(&self, usage: &Usage) -> Option<Value> {
        self.at(self.nodes.len().checked_sub(1)? as Place, usage)
    }

    /// The value of the node at `place`, whose operands all stand before it.
    fn at(&self, place: Place, usage: &Usage) -> Option<Value> {
        let of = |place: Place| self.at(place, usage);
        Some(match *self.nodes.get(usize::from(place))? {
            Node::Literal(value) => value,
            Node::Count(count) => Value::Double(count.of(usage)? as f64),
            Node::Has(count) => Value::Bool(count.of(usage).is_some()),
            Node::Not(operand) => Value::Bool(!of(operand)?.is_true()?),
            Node::Minus(operand) => match of(operand)? {
                Value::Int(int) => Value::Int(int.checked_neg()?),
                value => Value::Double(-value.to_double()?),
            },
            Node::Int(operand) => Value::Int(of(operand)?.to_int()?),
            Node::Double(operand) => Value::Double(of(operand)?.to_double()?),
            Node::Binary(Operator::And, one, other) => {
                Value::Bool(!settled(false, one, other, of)?)
            }
            Node::Binary(Operator::Or, one, other) => Value::Bool(settled(true, one, other, of)?),
            Node::Binary(operator, one, other) => operator.apply(of(one)?, of(other)?)?,
            Node::Choice(condition, yes, no) => {
                of(if of(condition)?.is_true()? { yes } else { no })?
            }
        })
    }
}

impl Value {
    /// The number that a literal stands for.
    fn read(text: &str) -> Option<Self> {
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None => ("", text),
        };
        if let Some(hex) = digits
            .strip_prefix("0x")
            .or_else(|| digits.strip_prefix("0X"))
        {
            let magnitude = i128::from(u64::from_str_radix(hex, 16).ok()?);
            let int = if sign.is_empty() {
                magnitude
            } else {
                -magnitude
            };
            return i64::try_from(int).ok().map(Self::Int);
        }
        let is_int = digits.bytes().all(|it| it.is_ascii_digit());
        if is_int {
            return text.parse().ok().map(Self::Int);
        }
        // A fraction has digits, and no other names than that of the exponent.
        let is_decimal = digits
            .bytes()
            .all(|it| !it.is_ascii_alphabetic() || matches!(it, b'e' | b'E'));
        let fraction = digits.split_once('.').map_or("0", |(_, fraction)| fraction);
        let has_fraction = fraction.starts_with(|it: char| it.is_ascii_digit());
        let double: f64 = text.parse().ok().filter(|_| is_decimal && has_fraction)?;
        double.is_finite().then_some(Self::Double(double))
    }

    fn is_true(self) -> Option<bool> {
        match self {
            Self::Bool(it) => Some(it),
            _ => None,
        }
    }

    fn to_double(self) -> Option<f64> {
        match self {
            Self::Bool(_) => None,
            Self::Int(int) => Some(int as f64),
            Self::Double(double) => Some(double),
        }
    }

    fn to_int(self) -> Option<i64> {
        match self {
            Self::Bool(_) => None,
            Self::Int(int) => Some(int),
            Self::Double(double) => (double.abs() < INT_END).then_some(double as i64),
        }
    }
}

impl Count {
    /// The count; `None` when the server did not tell it and nothing stands for it.
    fn of(self, usage: &Usage) -> Option<u64> {
        let (prompt, output) = (usage.prompt.unwrap_or(0), usage.output.unwrap_or(0));
        match self {
            Self::Prompt => Some(prompt),
            Self::Completion => Some(output),
            Self::Total => Some(prompt.saturating_add(output)),
            Self::Details | Self::Cached => usage.cached,
        }
    }
}

impl Operator {
    fn apply(self, one: Value, other: Value) -> Option<Value> {
        if let (Value::Int(one), Value::Int(other)) = (one, other)
            && let Some(int) = self.of_ints(one, other)
        {
            return int.map(Value::Int);
        }
        if let (Value::Bool(one), Value::Bool(other)) = (one, other) {
            return Some(Value::Bool((one == other) == (self == Self::Equal)));
        }
        if let (Value::Int(one), Value::Int(other)) = (one, other) {
            return Some(Value::Bool(self.compares(&one, &other)));
        }
        let (one, other) = (one.to_double()?, other.to_double()?);
        Some(match self {
            Self::Plus => Value::Double(one + other),
            Self::Minus => Value::Double(one - other),
            Self::Times => Value::Double(one * other),
            Self::Divide => Value::Double(one / other),
            _ => Value::Bool(self.compares(&one, &other)),
        })
    }

    /// The result of arithmetic, which may be too large; the outer `None` for what is none.
    fn of_ints(self, one: i64, other: i64) -> Option<Option<i64>> {
        Some(match self {
            Self::Plus => one.checked_add(other),
            Self::Minus => one.checked_sub(other),
            Self::Times => one.checked_mul(other),
            Self::Divide => one.checked_div(other),
            Self::Remainder => one.checked_rem(other),
            _ => return None,
        })
    }

    fn compares<T: PartialOrd>(self, one: &T, other: &T) -> bool {
        match self {
            Self::Equal => one == other,
            Self::Unequal => one != other,
            Self::Less => one < other,
            Self::LessOrEqual => one <= other,
            Self::Greater => one > other,
            _ => one >= other,
        }
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            ExpressionFault::TooLong => f.write_str("more than is read of an expression")?,
            ExpressionFault::Expected(what) => write!(f, "{what} is expected")?,
            ExpressionFault::Number => f.write_str("no number of 64 bits")?,
            ExpressionFault::UnknownName => f.write_str("no count of usage, and no function")?,
        }
        write!(f, " at column {}", self.column)
    }
}

/// Whether one of two operands is `decisive`, so that the other one does not matter, not even when
/// it has no value.
fn settled(
    decisive: bool,
    one: Place,
    other: Place,
    of: impl Fn(Place) -> Option<Value>,
) -> Option<bool> {
    let is_decisive = |place| Some(of(place)?.is_true()? == decisive);
    match is_decisive(one) {
        Some(true) => Some(true),
        one => match is_decisive(other) {
            Some(true) => Some(true),
            Some(false) => one,
            None => None,
        },
    }
}

/// The first double that no whole number of 64 bits is.
const INT_END: f64 = (1_u64 << 63) as f64;

#[cfg(test)]
mod tests;
