//! Server-sent events, as far as a load client needs them.

use serde_json::Value;

use super::report::Usage;

/// Finds the data of events in a stream that comes in pieces.
#[derive(Default)]
pub(super) struct EventReader {
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
}

impl EventReader {
    /// Takes the next bytes, and shows `each` the data of every event line that ends in them.
    pub(super) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let (head, tail) = rest.split_at(end);
            self.line.extend_from_slice(head);
            if let Some(data) = self.line.strip_prefix(b"data:") {
                each(data.trim_ascii());
            }
            self.line.clear();
            rest = tail.split_first().map(|it| it.1).unwrap_or_default();
        }
        self.line.extend_from_slice(rest);
    }
}

/// The usage that a JSON answer or event carries.
pub(super) fn usage(json: &[u8]) -> Option<Usage> {
    // Most events have none, and reading all of them would cost more than the rest.
    if !json.windows(USAGE.len()).any(|window| window == USAGE) {
        return None;
    }
    let answer: Value = serde_json::from_slice(json).ok()?;
    let usage = answer.get("usage")?;
    let count = |value: Option<&Value>| value.and_then(Value::as_u64).unwrap_or_default();
    let details = usage.get("prompt_tokens_details");
    Some(Usage {
        prompt_tokens: usage.get("prompt_tokens")?.as_u64()?,
        completion_tokens: count(usage.get("completion_tokens")),
        cached_tokens: count(details.and_then(|details| details.get("cached_tokens"))),
    })
}

/// What an object with usage contains.
const USAGE: &[u8] = b"\"usage\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_the_stream_is_cut() {
        let stream =
            b": hi\r\n\r\ndata: {\"a\":1}\r\n\r\nevent: x\ndata:two\n\ndata: [DONE]\n\nrest";
        for size in 1..=stream.len() {
            let mut reader = EventReader::default();
            let mut seen = Vec::new();
            for piece in stream.chunks(size) {
                reader.push(piece, |event| {
                    seen.push(String::from_utf8_lossy(event).into_owned())
                });
            }
            assert_eq!(seen, ["{\"a\":1}", "two", "[DONE]"], "pieces of {size}");
        }
    }

    #[test]
    fn usage_is_read_where_it_is_and_nowhere_else() {
        let found = Usage {
            prompt_tokens: 7,
            completion_tokens: 2,
            cached_tokens: 5,
        };
        for (json, expected) in [
            (
                r#"{"usage":{"prompt_tokens":7,"completion_tokens":2,
                    "prompt_tokens_details":{"cached_tokens":5}}}"#,
                Some(found),
            ),
            (
                r#"{"usage":{"prompt_tokens":7,"prompt_tokens_details":null}}"#,
                Some(Usage {
                    prompt_tokens: 7,
                    ..Usage::default()
                }),
            ),
            (r#"{"content":"\"usage\":{\"prompt_tokens\":9}"}"#, None),
            (r#"{"usage":null}"#, None),
            ("[DONE]", None),
        ] {
            assert_eq!(usage(json.as_bytes()), expected, "{json}");
        }
    }
}
