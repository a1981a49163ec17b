//! Request bodies of a given length.

use serde_json::json;

use crate::draw::Draw;

/// A chat of exactly `bytes` bytes: turns of some 2,000 bytes of prose in short lines.
///
/// Other seeds give chats that differ from the first word on. Below 500 bytes it gets longer.
pub(super) fn chat(bytes: usize, seed: u64, stream: bool) -> Vec<u8> {
    let mut draw = Draw::new(seed);
    let mut messages = vec![json!({"role": "system", "content": text(&mut draw, 300)})];
    let body = |messages: &[serde_json::Value]| {
        json!({"model": MODEL, "stream": stream, "max_tokens": 16, "messages": messages})
            .to_string()
    };
    while body(&messages).len() + TURN_BYTES < bytes {
        let role = ["user", "assistant"][messages.len() % 2];
        messages.push(json!({"role": role, "content": text(&mut draw, TURN_BYTES - 200)}));
    }
    messages.push(json!({"role": "user", "content": ""}));
    let missing = bytes.saturating_sub(body(&messages).len());
    // No line ends here: in JSON one takes two bytes, and the length is to be exact.
    let mut last = draw.prose(missing);
    last.truncate(missing);
    messages.pop();
    messages.push(json!({"role": "user", "content": last}));
    body(&messages).into_bytes()
}

/// A chat of exactly `bytes` bytes that is little more than one inline image.
pub(super) fn image(bytes: usize, seed: u64) -> Vec<u8> {
    let mut draw = Draw::new(seed);
    let body = |data: &str| {
        let url = format!("data:image/png;base64,{data}");
        let image = json!({"type": "image_url", "image_url": {"url": url}});
        let question = json!({"type": "text", "text": "What does the image show?"});
        json!({"model": MODEL, "messages": [{"role": "user", "content": [question, image]}]})
            .to_string()
    };
    let missing = bytes.saturating_sub(body("").len());
    let digit = |_| char::from(BASE64[draw.below(BASE64.len())]);
    body(&(0..missing).map(digit).collect::<String>()).into_bytes()
}

/// Prose in lines of some 80 characters.
fn text(draw: &mut Draw, bytes: usize) -> String {
    let mut text = String::new();
    while text.len() < bytes {
        text.push_str(&draw.prose(70));
        text.push('\n');
    }
    text
}

/// The model that all of them ask for.
pub(super) const MODEL: &str = "meta-llama/Llama-3.1-8B-Instruct";

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A long turn of a conversation, or a retrieved passage.
const TURN_BYTES: usize = 2000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chat_is_json_of_the_length_asked_for() {
        for bytes in [1024, 10_240, 102_400] {
            let body = chat(bytes, 7, false);
            assert_eq!(body.len(), bytes);
            let read: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert!(read["messages"].as_array().unwrap().len() > 1);
            assert_ne!(body, chat(bytes, 8, false));
            assert_eq!(image(bytes, 7).len(), bytes);
        }
    }
}
