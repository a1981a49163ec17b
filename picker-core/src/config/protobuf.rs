//! A serialized `google.protobuf.Struct` as the tree that the same document in JSON gives.
//!
//! Fields that the message does not have are skipped, as protobuf asks. Of a repeated key the last
//! value counts.
#![deny(clippy::indexing_slicing)]

use alloc::string::String;
use alloc::vec::Vec;

use serde_json::{Map, Number, Value};

/// Where in the bytes the fault is.
type Fault = usize;

/// Decodes a `Struct`; at a fault, where it is. Nesting has a limit.
pub(super) fn decode(bytes: &[u8]) -> Result<Value, Fault> {
    let reader = Reader { bytes, at: 0 };
    Ok(Value::Object(reader.object(DEPTH_MAX)?))
}

/// One message, or the rest of it.
#[derive(Clone, Copy)]
struct Reader<'a> {
    bytes: &'a [u8],
    /// Where the bytes stand in the whole document.
    at: usize,
}

/// The content of a field, by wire type.
enum Content<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(Reader<'a>),
    Fixed32,
}

impl<'a> Reader<'a> {
    /// `Struct`: entries with a key and a value.
    fn object(mut self, depth: usize) -> Result<Map<String, Value>, Fault> {
        let mut map = Map::new();
        while let Some((field, content)) = self.field()? {
            let (1, Content::Bytes(mut entry)) = (field, content) else {
                continue;
            };
            let (mut key, mut value) = (String::new(), Value::Null);
            while let Some((field, content)) = entry.field()? {
                match (field, content) {
                    (1, Content::Bytes(text)) => key = text.text()?,
                    (2, Content::Bytes(message)) => value = message.value(depth)?,
                    _ => {}
                }
            }
            map.insert(key, value);
        }
        Ok(map)
    }

    /// `Value`: one of six kinds; the last one given counts, none is null.
    fn value(mut self, depth: usize) -> Result<Value, Fault> {
        let at = self.at;
        let deeper = depth.checked_sub(1).ok_or(at);
        let mut value = Value::Null;
        while let Some((field, content)) = self.field()? {
            value = match (field, content) {
                (1, Content::Varint(_)) => Value::Null,
                (2, Content::Fixed64(bits)) => number(f64::from_bits(bits)).ok_or(at)?,
                (3, Content::Bytes(text)) => Value::String(text.text()?),
                (4, Content::Varint(bit)) => Value::Bool(bit != 0),
                (5, Content::Bytes(message)) => Value::Object(message.object(deeper?)?),
                (6, Content::Bytes(message)) => Value::Array(message.list(deeper?)?),
                _ => value,
            };
        }
        Ok(value)
    }

    /// `ListValue`.
    fn list(mut self, depth: usize) -> Result<Vec<Value>, Fault> {
        let mut values = Vec::new();
        while let Some((field, content)) = self.field()? {
            if let (1, Content::Bytes(message)) = (field, content) {
                values.push(message.value(depth)?);
            }
        }
        Ok(values)
    }

    fn text(self) -> Result<String, Fault> {
        let text = core::str::from_utf8(self.bytes);
        text.map(String::from)
            .map_err(|error| self.at + error.valid_up_to())
    }

    /// The next field's number and content; `None` at the end.
    fn field(&mut self) -> Result<Option<(u64, Content<'a>)>, Fault> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let at = self.at;
        let tag = self.varint()?;
        let content = match tag & 7 {
            0 => Content::Varint(self.varint()?),
            1 => {
                let bytes = self.take(8)?.bytes;
                Content::Fixed64(u64::from_le_bytes(bytes.try_into().map_err(|_| at)?))
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| at)?;
                Content::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Content::Fixed32
            }
            _ => return Err(at),
        };
        Ok(Some((tag >> 3, content)))
    }

    fn varint(&mut self) -> Result<u64, Fault> {
        let at = self.at;
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?.bytes.first().copied().ok_or(at)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(at)
    }

    fn take(&mut self, count: usize) -> Result<Self, Fault> {
        let (head, rest) = self.bytes.split_at_checked(count).ok_or(self.at)?;
        let taken = Self {
            bytes: head,
            at: self.at,
        };
        self.bytes = rest;
        self.at += count;
        Ok(taken)
    }
}

/// The number as JSON would have it: whole ones without a fraction; `None` for those JSON does not
/// have.
fn number(value: f64) -> Option<Value> {
    let integer = value as i64;
    let number = if integer as f64 == value && integer.unsigned_abs() <= INTEGER_MAX {
        Number::from(integer)
    } else {
        Number::from_f64(value)?
    };
    Some(Value::Number(number))
}

/// Objects and lists within one another: several times what a configuration has, and little enough
/// for any stack.
const DEPTH_MAX: usize = 64;

/// The largest whole number that a double holds exactly.
const INTEGER_MAX: u64 = 1 << 53;
