//! A keyed hash, for what clients see or choose: they cannot compute it, nor find two texts that
//! have the same.

use alloc::format;
use alloc::vec::Vec;
use core::fmt;

use crate::bytes::{Reader, Writer};
use crate::draw::Draws;
use crate::shared::SharedData;

/// The key of session tokens. Who has it can make tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SessionKey(u64, u64);

impl SessionKey {
    /// The key that a configured text stands for: equal texts, equal keys, in every Envoy.
    pub fn new(text: &str) -> Self {
        // Two hashes of the text under two keys that differ and are nobody's.
        let half = |number| Self(number, 0).hash(&[text.as_bytes()]);
        Self(half(1), half(2))
    }

    /// The key of this Envoy process, which the first worker that needs it draws.
    ///
    /// `None` when it can be neither read nor written, which the next request tries again.
    pub(super) fn shared(shared: &impl SharedData, pool: &str, draws: &mut Draws) -> Option<Self> {
        let name = format!("picker/{pool}/session-key");
        let mut value = Vec::new();
        let version = shared.get(&name, &mut value);
        if let Some(key) = Self::decode(&value) {
            return Some(key);
        }
        let drawn = Self(draws.next_draw(), draws.next_draw());
        value.clear();
        let mut writer = Writer(&mut value);
        writer.u8(FORMAT);
        writer.u64(drawn.0);
        writer.u64(drawn.1);
        if shared.set_if(&name, &value, version) {
            return Some(drawn);
        }
        shared.get(&name, &mut value);
        Self::decode(&value)
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let mut reader = Reader(value);
        (reader.u8()? == FORMAT).then_some(())?;
        let key = Self(reader.u64()?, reader.u64()?);
        reader.is_empty().then_some(key)
    }

    /// SipHash-2-4 of the parts in a row; the caller keeps them apart.
    pub(super) fn hash(self, parts: &[&[u8]]) -> u64 {
        let mut state = [
            self.0 ^ 0x736f_6d65_7073_6575,
            self.1 ^ 0x646f_7261_6e64_6f6d,
            self.0 ^ 0x6c79_6765_6e65_7261,
            self.1 ^ 0x7465_6462_7974_6573,
        ];
        let (mut word, mut length) = (0, 0_u64);
        for byte in parts.iter().copied().flatten() {
            word |= u64::from(*byte) << (length % 8 * 8);
            length += 1;
            if length % 8 == 0 {
                absorb(&mut state, word);
                word = 0;
            }
        }
        absorb(&mut state, word | length << 56);
        state[2] ^= 0xff;
        (0..4).for_each(|_| round(&mut state));
        state.iter().fold(0, |hash, part| hash ^ part)
    }
}

/// A secret is never shown.
impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey")
    }
}

fn absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    round(state);
    state[0] ^= word;
}

fn round(state: &mut [u64; 4]) {
    let [mut a, mut b, mut c, mut d] = *state;
    a = a.wrapping_add(b);
    b = b.rotate_left(13) ^ a;
    c = c.wrapping_add(d);
    d = d.rotate_left(16) ^ c;
    a = a.rotate_left(32).wrapping_add(d);
    d = d.rotate_left(21) ^ a;
    c = c.wrapping_add(b);
    b = b.rotate_left(17) ^ c;
    c = c.rotate_left(32);
    *state = [a, b, c, d];
}

/// The first byte of a key in shared data; raised when the layout changes.
const FORMAT: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::LocalData;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// The values of the reference implementation for the key 00 01 … 0f and the text 00 01 ….
    #[test]
    fn the_hash_is_siphash_2_4() {
        let key = SessionKey(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let text: Vec<u8> = (0..15).collect();
        for (length, expected) in [
            (0, 0x726f_db47_dd0e_0e31),
            (8, 0x93f5_f579_9a93_2462),
            (15, 0xa129_ca61_49be_45e5),
        ] {
            assert_eq!(key.hash(&[&text[..length]]), expected, "{length}");
        }
        assert_eq!(key.hash(&[&text[..3], &text[3..]]), key.hash(&[&text]));
    }

    #[test]
    fn workers_share_the_key_that_one_of_them_draws() {
        let shared = LocalData::default();
        let key = |seed| SessionKey::shared(&shared, "llm", &mut Draws::new(seed));
        let first = key(1);
        assert!(first.is_some());
        assert_eq!(key(2), first);
        let other = SessionKey::shared(&shared, "other", &mut Draws::new(2));
        assert_ne!(other, first, "pools have keys of their own");
        shared.set("picker/llm/session-key", b"\x01short");
        assert_ne!(key(3), first, "what cannot be read is replaced");
        assert_eq!(key(4), key(3));
    }

    #[test]
    fn a_text_gives_the_same_key_everywhere_and_no_other_text_does() {
        assert_eq!(SessionKey::new("a"), SessionKey::new("a"));
        assert_ne!(SessionKey::new("a"), SessionKey::new("b"));
        assert_eq!(alloc::format!("{:?}", SessionKey::new("a")), "SessionKey");
    }
}
