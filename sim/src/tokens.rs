//! Text as tokens: four bytes each, so that token counts follow from lengths.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Appends the tokens of `text`; the last one may stand for fewer than four bytes.
pub fn push_text(tokens: &mut Vec<u32>, text: &[u8]) {
    for chunk in text.chunks(TOKEN_BYTES) {
        let mut bytes = [0; TOKEN_BYTES];
        for (slot, &byte) in bytes.iter_mut().zip(chunk) {
            *slot = byte;
        }
        tokens.push(u32::from_le_bytes(bytes));
    }
}

/// The answer to a prompt: `len` tokens that depend on nothing else.
///
/// Sent back as text and cut into tokens again, they are the same tokens.
pub fn answer(prompt: &[u32], root: u64, len: usize) -> Vec<u32> {
    let bytes: Vec<u8> = prompt
        .iter()
        .flat_map(|token| token.to_le_bytes())
        .collect();
    let mut state = xxh3_64_with_seed(&bytes, root);
    let mut tokens = Vec::with_capacity(len);
    for _ in 0..len {
        state = xxh3_64_with_seed(&state.to_le_bytes(), root);
        let [a, b, c, ..] = state.to_le_bytes();
        let letter = |byte: u8, letters: &[u8]| {
            letters
                .get(usize::from(byte) % letters.len())
                .copied()
                .unwrap_or(b'e')
        };
        let word = [
            letter(a, CONSONANTS),
            letter(b, VOWELS),
            letter(c, CONSONANTS),
            b' ',
        ];
        tokens.push(u32::from_le_bytes(word));
    }
    tokens
}

/// The text of a token of an [`answer`].
pub fn text(token: u32) -> String {
    String::from_utf8_lossy(&token.to_le_bytes()).into_owned()
}

/// Bytes of text per token.
const TOKEN_BYTES: usize = 4;

/// Every answer token is a word of three letters and a space.
const CONSONANTS: &[u8] = b"bcdfghjklmnprstvwz";

/// The middle letter of a word.
const VOWELS: &[u8] = b"aeiou";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_sent_back_as_text_is_the_same_tokens() {
        let answer = answer(&[1, 2, 3], 7, 20);
        let text: String = answer.iter().map(|&token| text(token)).collect();
        let mut tokens = Vec::new();
        push_text(&mut tokens, text.as_bytes());
        assert_eq!(tokens, answer);
        assert_eq!(text.len(), 80);
    }

    #[test]
    fn an_answer_depends_on_prompt_and_root() {
        let first = answer(&[1, 2, 3], 7, 4);
        assert_eq!(first, answer(&[1, 2, 3], 7, 4));
        assert_ne!(first, answer(&[1, 2, 4], 7, 4));
        assert_ne!(first, answer(&[1, 2, 3], 8, 4));
    }

    #[test]
    fn four_bytes_are_a_token_and_a_rest_is_one_too() {
        for (text, count) in [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2)] {
            let mut tokens = Vec::new();
            push_text(&mut tokens, text.as_bytes());
            assert_eq!(tokens.len(), count, "{text}");
        }
    }
}
