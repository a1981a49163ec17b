//! From text to an expression: precedence climbing, types checked on the way.

use alloc::vec::Vec;

use super::{Count, Expression, ExpressionError, ExpressionFault, Node, Operator, Place, Value};

/// Reads an expression, which is to be a condition or a number.
pub(super) fn parse(text: &str, is_condition: bool) -> Result<Expression, ExpressionError> {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
        nodes: Vec::new(),
    };
    if text.len() > BYTES_MAX {
        return Err(parser.fault_at(BYTES_MAX, ExpressionFault::TooLong));
    }
    parser.skip_blanks();
    let start = parser.at;
    let whole = parser.expression()?;
    if parser.at < text.len() {
        return Err(parser.expected("an operator or the end"));
    }
    let nodes = core::mem::take(&mut parser.nodes);
    match (is_condition, whole.kind) {
        (true, Kind::Bool) | (false, Kind::Int | Kind::Double) => Ok(Expression { nodes }),
        (true, _) => Err(parser.fault_at(start, CONDITION)),
        (false, _) => Err(parser.fault_at(start, NUMBER)),
    }
}

struct Parser<'a> {
    text: &'a str,
    /// The bytes that are read; always at a character.
    at: usize,
    depth: u32,
    nodes: Vec<Node>,
}

/// A part that was read.
#[derive(Clone, Copy)]
struct Part {
    place: Place,
    kind: Kind,
    /// The byte at which it begins.
    start: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Int,
    Double,
}

type Parsed = Result<Part, ExpressionError>;

impl<'a> Parser<'a> {
    /// An alternative or what is one by itself.
    fn expression(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.fault_at(self.at, ExpressionFault::TooLong));
        }
        let mut part = self.operation(0)?;
        if self.takes("?") {
            self.is_of(part, Kind::Bool)?;
            let yes = self.operation(0)?;
            self.needs(":", "':'")?;
            let no = self.expression()?;
            if yes.kind == Kind::Bool || no.kind == Kind::Bool {
                self.is_of(yes, Kind::Bool)?;
                self.is_of(no, Kind::Bool)?;
            }
            let kind = common(yes.kind, no.kind);
            part = self.add(
                Node::Choice(part.place, yes.place, no.place),
                kind,
                part.start,
            )?;
        }
        self.depth -= 1;
        Ok(part)
    }

    /// Operations that bind at least as tightly as `level` says.
    fn operation(&mut self, level: u8) -> Parsed {
        let mut left = self.operand()?;
        while let Some((sign, operator, binds)) = self.operator()
            && binds >= level
        {
            self.advance(sign.len());
            let right = self.operation(binds + 1)?;
            let kind = self.result(operator, left, right)?;
            let node = Node::Binary(operator, left.place, right.place);
            left = self.add(node, kind, left.start)?;
        }
        Ok(left)
    }

    fn operator(&self) -> Option<(&'static str, Operator, u8)> {
        let rest = self.rest();
        OPERATORS
            .into_iter()
            .find(|(sign, ..)| rest.starts_with(sign))
    }

    /// The type of an operation, whose operands fit it.
    fn result(&self, operator: Operator, left: Part, right: Part) -> Result<Kind, ExpressionError> {
        use Operator::*;
        let both = |kind| {
            self.is_of(left, kind)?;
            self.is_of(right, kind)
        };
        match operator {
            And | Or => both(Kind::Bool).map(|()| Kind::Bool),
            Equal | Unequal if left.kind == Kind::Bool => {
                self.is_of(right, Kind::Bool).map(|()| Kind::Bool)
            }
            Remainder => both(Kind::Int).map(|()| Kind::Int),
            _ => {
                self.is_number(left)?;
                self.is_number(right)?;
                Ok(match operator {
                    Plus | Minus | Times | Divide => common(left.kind, right.kind),
                    _ => Kind::Bool,
                })
            }
        }
    }

    /// A literal, a count, a call, or something in parentheses; signs before it.
    fn operand(&mut self) -> Parsed {
        let start = self.at;
        let starts_number =
            |rest: &str| rest.starts_with(|it: char| it.is_ascii_digit() || it == '.');
        let rest = self.rest();
        if starts_number(rest.strip_prefix('-').unwrap_or(rest)) {
            return self.literal();
        }
        let is_not = rest.starts_with('!');
        if is_not || rest.starts_with('-') {
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                return Err(self.fault_at(start, ExpressionFault::TooLong));
            }
            self.advance(1);
            let operand = self.operand()?;
            self.depth -= 1;
            if is_not {
                self.is_of(operand, Kind::Bool)?;
                return self.add(Node::Not(operand.place), Kind::Bool, start);
            }
            self.is_number(operand)?;
            return self.add(Node::Minus(operand.place), operand.kind, start);
        }
        if self.takes("(") {
            let part = self.expression()?;
            self.needs(")", CLOSE)?;
            return Ok(Part { start, ..part });
        }
        self.named()
    }

    fn literal(&mut self) -> Parsed {
        let start = self.at;
        let rest = self.rest();
        let sign = usize::from(rest.starts_with('-'));
        let bytes = rest.as_bytes();
        let digits = rest.get(sign..).unwrap_or_default();
        let is_hex = digits.starts_with("0x") || digits.starts_with("0X");
        let mut end = sign;
        while let Some(byte) = bytes.get(end) {
            // The sign of an exponent belongs to the number.
            let is_signed = matches!(byte, b'+' | b'-')
                && end > sign
                && matches!(bytes.get(end - 1), Some(b'e' | b'E'))
                && !is_hex;
            if !byte.is_ascii_alphanumeric() && *byte != b'.' && !is_signed {
                break;
            }
            end += 1;
        }
        let text = rest.get(..end).unwrap_or_default();
        let value =
            Value::read(text).ok_or_else(|| self.fault_at(start, ExpressionFault::Number))?;
        self.advance(end);
        let kind = match value {
            Value::Double(_) => Kind::Double,
            _ => Kind::Int,
        };
        self.add(Node::Literal(value), kind, start)
    }

    /// What begins with a name.
    fn named(&mut self) -> Parsed {
        let start = self.at;
        match self.name() {
            "true" => self.add(Node::Literal(Value::Bool(true)), Kind::Bool, start),
            "false" => self.add(Node::Literal(Value::Bool(false)), Kind::Bool, start),
            "has" => {
                self.needs("(", "'('")?;
                let at = self.at;
                let count = if self.name() == "usage" {
                    self.count(at)?
                } else {
                    return Err(self.fault_at(at, ExpressionFault::Expected("a count of usage")));
                };
                self.needs(")", CLOSE)?;
                self.add(Node::Has(count), Kind::Bool, start)
            }
            name @ ("int" | "double") => {
                let (node, kind): (fn(Place) -> Node, _) = match name {
                    "int" => (Node::Int, Kind::Int),
                    _ => (Node::Double, Kind::Double),
                };
                self.needs("(", "'('")?;
                let operand = self.expression()?;
                self.is_number(operand)?;
                self.needs(")", CLOSE)?;
                self.add(node(operand.place), kind, start)
            }
            "usage" => match self.count(start)? {
                Count::Details => Err(self.fault_at(start, NUMBER)),
                count => self.add(Node::Count(count), Kind::Double, start),
            },
            "" => Err(self.expected("a number, a count or '('")),
            _ => Err(self.fault_at(start, ExpressionFault::UnknownName)),
        }
    }

    /// The members behind `usage`, which began at `start`.
    fn count(&mut self, start: usize) -> Result<Count, ExpressionError> {
        if !self.takes(".") {
            return Err(self.fault_at(start, NUMBER));
        }
        let count = match self.name() {
            "prompt_tokens" => Count::Prompt,
            "completion_tokens" => Count::Completion,
            "total_tokens" => Count::Total,
            "prompt_tokens_details" if self.takes(".") => match self.name() {
                "cached_tokens" => Count::Cached,
                _ => return Err(self.fault_at(start, ExpressionFault::UnknownName)),
            },
            "prompt_tokens_details" => Count::Details,
            _ => return Err(self.fault_at(start, ExpressionFault::UnknownName)),
        };
        Ok(count)
    }

    fn add(&mut self, node: Node, kind: Kind, start: usize) -> Parsed {
        let place = self.nodes.len();
        if place >= NODES_MAX {
            return Err(self.fault_at(start, ExpressionFault::TooLong));
        }
        self.nodes.push(node);
        let place = place as Place;
        Ok(Part { place, kind, start })
    }

    /// Reads `sign`, which must stand here, as `what` says.
    fn needs(&mut self, sign: &str, what: &'static str) -> Result<(), ExpressionError> {
        if self.takes(sign) {
            return Ok(());
        }
        Err(self.expected(what))
    }

    fn is_of(&self, part: Part, kind: Kind) -> Result<(), ExpressionError> {
        let fault = match kind {
            _ if part.kind == kind => return Ok(()),
            Kind::Bool => CONDITION,
            Kind::Int => WHOLE_NUMBER,
            Kind::Double => NUMBER,
        };
        Err(self.fault_at(part.start, fault))
    }

    fn is_number(&self, part: Part) -> Result<(), ExpressionError> {
        match part.kind {
            Kind::Bool => Err(self.fault_at(part.start, NUMBER)),
            Kind::Int | Kind::Double => Ok(()),
        }
    }

    /// The name that stands here, which is read; empty when there is none.
    fn name(&mut self) -> &'a str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
        let end = rest.find(|it| !is_part(it)).unwrap_or(rest.len());
        self.advance(end);
        rest.get(..end).unwrap_or_default()
    }

    /// Reads `sign` if it stands here.
    fn takes(&mut self, sign: &str) -> bool {
        let stands = self.rest().starts_with(sign);
        if stands {
            self.advance(sign.len());
        }
        stands
    }

    fn advance(&mut self, bytes: usize) {
        self.at += bytes;
        self.skip_blanks();
    }

    /// Passes over white space, and over comments up to the end of their line.
    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with("//") {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn expected(&self, what: &'static str) -> ExpressionError {
        self.fault_at(self.at, ExpressionFault::Expected(what))
    }

    fn fault_at(&self, byte: usize, fault: ExpressionFault) -> ExpressionError {
        let chars = self.text.char_indices();
        let column = chars.take_while(|(at, _)| *at < byte).count() + 1;
        ExpressionError { column, fault }
    }
}

/// The type of two numbers, or of two conditions.
fn common(one: Kind, other: Kind) -> Kind {
    if one == other { one } else { Kind::Double }
}

pub(super) const NUMBER: ExpressionFault = ExpressionFault::Expected("a number");

const CONDITION: ExpressionFault = ExpressionFault::Expected("a condition");

const WHOLE_NUMBER: ExpressionFault =
    ExpressionFault::Expected("a whole number, such as int(usage.prompt_tokens),");

const CLOSE: &str = "an operator or ')'";

/// How operators are written and how tightly they bind; a sign stands before those it begins with.
const OPERATORS: [(&str, Operator, u8); 13] = [
    ("||", Operator::Or, 0),
    ("&&", Operator::And, 1),
    ("==", Operator::Equal, 2),
    ("!=", Operator::Unequal, 2),
    ("<=", Operator::LessOrEqual, 2),
    (">=", Operator::GreaterOrEqual, 2),
    ("<", Operator::Less, 2),
    (">", Operator::Greater, 2),
    ("+", Operator::Plus, 3),
    ("-", Operator::Minus, 3),
    ("*", Operator::Times, 4),
    ("/", Operator::Divide, 4),
    ("%", Operator::Remainder, 4),
];

/// An expression is a few lines that a person wrote.
const BYTES_MAX: usize = 1024;

/// Operators and operands, with all that depends on it for an answer: a chain of them is as deep.
const NODES_MAX: usize = 128;

/// Parentheses, signs and alternatives in one another: a dozen is the least that CEL asks for.
const DEPTH_MAX: u32 = 16;
