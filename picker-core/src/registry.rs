//! Which pools exist and how they are configured, told by the filter's roots to the collector and
//! the pages.
//!
//! The filter's configuration is the only one there is. Its roots write every pool's document under
//! the pool's name and affirm it every second. What nobody affirms any more is gone: its filter was
//! removed or configured anew. Of two roots that differ over a pool, the one configured last is
//! right.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::bytes::{Reader, Writer};
use crate::shared::SharedData;
use crate::{Span, Timestamp};

/// One pool as its filter's roots tell it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registration {
    /// When the root that wrote this was configured.
    pub configured_at: Timestamp,
    /// When a root last said that this still holds.
    pub affirmed_at: Timestamp,
    /// The pool's configuration, a document that the configuration reader takes.
    pub document: String,
}

/// What became of an affirmation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Affirmed {
    /// The registration is what was affirmed.
    Holds,
    /// This document took the place of an older one with other content.
    Replaced,
    /// A root configured later says something else.
    Superseded,
}

/// Says that `pool` is configured as `document`, by a root that was configured at `configured_at`.
pub fn affirm(
    shared: &impl SharedData,
    pool: &str,
    document: &str,
    configured_at: Timestamp,
    now: Timestamp,
) -> Affirmed {
    let mut value = Vec::new();
    let version = shared.get(&pool_key(pool), &mut value);
    let known = Registration::decode(&value);
    let mut affirmed = Affirmed::Holds;
    let mut since = configured_at;
    if let Some(known) = known {
        let differs = known.document != document;
        let is_current = now.apart(known.affirmed_at) <= LIFETIME;
        // Nobody was configured in the future: the clock has stepped back since.
        let known_since = Some(known.configured_at).filter(|since| *since <= now);
        let known_since = known_since.unwrap_or_default();
        if differs && is_current && known_since > configured_at {
            return Affirmed::Superseded;
        }
        if !differs {
            if now.apart(known.affirmed_at) < AFFIRM_EVERY && known_since >= configured_at {
                return Affirmed::Holds;
            }
            since = configured_at.max(known_since);
        } else if is_current {
            affirmed = Affirmed::Replaced;
        }
    }
    add_name(shared, pool);
    let document = document.to_string();
    let registration = Registration {
        configured_at: since,
        affirmed_at: now,
        document,
    };
    // A lost race is another root's affirmation; the next tick says it again.
    let _ = shared.set_if(&pool_key(pool), &registration.encode(), version);
    affirmed
}

/// The pools that a root has affirmed lately, in the order in which they first appeared.
pub fn registered(shared: &impl SharedData, now: Timestamp) -> Vec<(String, Registration)> {
    let mut value = Vec::new();
    let mut pools = Vec::new();
    for name in names(shared) {
        shared.get(&pool_key(&name), &mut value);
        let registration = Registration::decode(&value);
        pools.extend(
            registration
                .filter(|registration| now.apart(registration.affirmed_at) <= LIFETIME)
                .map(|registration| (name, registration)),
        );
    }
    pools
}

impl Registration {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        writer.u8(FORMAT);
        writer.u64(self.configured_at.0);
        writer.u64(self.affirmed_at.0);
        bytes.extend_from_slice(self.document.as_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        if reader.u8()? != FORMAT {
            return None;
        }
        Some(Self {
            configured_at: Timestamp(reader.u64()?),
            affirmed_at: Timestamp(reader.u64()?),
            document: core::str::from_utf8(reader.0).ok()?.to_string(),
        })
    }
}

fn names(shared: &impl SharedData) -> Vec<String> {
    let mut value = Vec::new();
    shared.get(NAMES_KEY, &mut value);
    decode_names(&value)
}

fn decode_names(bytes: &[u8]) -> Vec<String> {
    let text = core::str::from_utf8(bytes).unwrap_or_default();
    text.split('\n')
        .filter(|name| !name.is_empty())
        .map(String::from)
        .collect()
}

fn add_name(shared: &impl SharedData, pool: &str) {
    let mut value = Vec::new();
    for _ in 0..NAME_TRIES {
        let version = shared.get(NAMES_KEY, &mut value);
        let names = decode_names(&value);
        if names.len() >= NAMES_MAX || names.iter().any(|name| name == pool) {
            return;
        }
        if names.is_empty() {
            // Bytes that name nobody would hide the name.
            value.clear();
        }
        value.extend_from_slice(pool.as_bytes());
        value.push(b'\n');
        if shared.set_if(NAMES_KEY, &value, version) {
            return;
        }
    }
}

fn pool_key(pool: &str) -> String {
    format!("picker/{pool}/config")
}

/// Names of all pools that were ever affirmed, a line each; pool names have no line ends.
const NAMES_KEY: &str = "picker/pools";

/// Names kept; shared data never forgets a key, so an endless row of new pool names must end
/// somewhere.
const NAMES_MAX: usize = 256;

/// Roots that may be faster than us; each adds its name once.
const NAME_TRIES: u32 = 64;

/// How often a registration is written again.
const AFFIRM_EVERY: Span = Span::from_millis(1000);

/// A registration that nobody has affirmed for this long is gone: ten affirmations were missed.
const LIFETIME: Span = Span::from_millis(10_000);

/// The first byte of a registration; raised when the layout changes.
const FORMAT: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::LocalData;
    use alloc::vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * 1_000_000)
    }

    fn documents(shared: &LocalData, now: u64) -> Vec<(String, String)> {
        registered(shared, at(now))
            .into_iter()
            .map(|(name, pool)| (name, pool.document))
            .collect()
    }

    fn pair(name: &str, document: &str) -> (String, String) {
        (name.into(), document.into())
    }

    #[test]
    fn pools_are_known_while_they_are_affirmed() {
        let shared = LocalData::default();
        affirm(&shared, "b", "{b}", at(1), at(1));
        affirm(&shared, "a", "{a}", at(1), at(1));
        assert_eq!(documents(&shared, 2), [pair("b", "{b}"), pair("a", "{a}")]);
        affirm(&shared, "a", "{a}", at(1), at(9));
        assert_eq!(
            documents(&shared, 12),
            [pair("a", "{a}")],
            "nobody affirms b any more"
        );
        affirm(&shared, "b", "{new}", at(1), at(12));
        assert_eq!(
            documents(&shared, 12),
            [pair("b", "{new}"), pair("a", "{a}")]
        );
    }

    #[test]
    fn of_two_roots_that_differ_the_one_configured_last_is_right() {
        let shared = LocalData::default();
        assert_eq!(affirm(&shared, "a", "old", at(1), at(1)), Affirmed::Holds);
        assert_eq!(
            affirm(&shared, "a", "new", at(5), at(5)),
            Affirmed::Replaced
        );
        assert_eq!(
            affirm(&shared, "a", "old", at(1), at(6)),
            Affirmed::Superseded
        );
        assert_eq!(affirm(&shared, "a", "new", at(5), at(7)), Affirmed::Holds);
        assert_eq!(documents(&shared, 7), [pair("a", "new")]);
    }

    #[test]
    fn going_back_to_an_older_document_is_a_new_configuration() {
        let shared = LocalData::default();
        affirm(&shared, "a", "first", at(1), at(1));
        affirm(&shared, "a", "second", at(2), at(2));
        assert_eq!(
            affirm(&shared, "a", "first", at(3), at(3)),
            Affirmed::Replaced
        );
        assert_eq!(
            affirm(&shared, "a", "second", at(2), at(3)),
            Affirmed::Superseded
        );
    }

    #[test]
    fn an_affirmation_is_written_once_a_second() {
        let shared = LocalData::default();
        let version = |shared: &LocalData| shared.get("picker/a/config", &mut vec![]);
        affirm(&shared, "a", "x", at(1), at(1));
        let written = version(&shared);
        affirm(&shared, "a", "x", at(1), Timestamp(1_900_000));
        assert_eq!(version(&shared), written);
        affirm(&shared, "a", "x", at(1), at(2));
        assert_ne!(version(&shared), written);
    }
}
