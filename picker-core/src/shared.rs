//! Bytes under keys, seen by every worker: all that workers share.
//!
//! In Envoy this is the host's shared data. It has no delete and no listing, so keys are a fixed
//! set.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;

/// The state of a key at the moment it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version(pub u32);

impl Version {
    /// The version of a key that nobody has written.
    ///
    /// Envoy lets any compare-and-swap on a missing key through and compares once the key exists,
    /// so a version that the host's counter does not reach makes creation atomic too: the second
    /// creator is refused.
    pub const ABSENT: Self = Self(u32::MAX);
}

/// Bytes under keys, shared by all workers of one Envoy.
pub trait SharedData {
    /// Puts the value of `key` into `value` and returns its version; empties `value` when nobody
    /// has written it.
    fn get(&self, key: &str, value: &mut Vec<u8>) -> Version;

    /// Writes `value` unless someone has written the key since `version` was read; tells whether it
    /// did.
    fn set_if(&self, key: &str, value: &[u8], version: Version) -> bool;

    /// Writes `value` whatever is there.
    fn set(&self, key: &str, value: &[u8]);
}

/// Shared data inside one thread: the twin of the host's for tests and simulations.
#[derive(Default)]
pub struct LocalData {
    values: RefCell<BTreeMap<String, (Vec<u8>, u32)>>,
    writes: RefCell<u32>,
}

impl LocalData {
    /// How often any key was written.
    #[cfg(test)]
    pub(crate) fn writes(&self) -> u32 {
        *self.writes.borrow()
    }

    fn next_version(&self) -> u32 {
        *self.writes.borrow_mut() += 1;
        *self.writes.borrow()
    }
}

impl SharedData for LocalData {
    fn get(&self, key: &str, value: &mut Vec<u8>) -> Version {
        value.clear();
        match self.values.borrow().get(key) {
            None => Version::ABSENT,
            Some((bytes, version)) => {
                value.extend_from_slice(bytes);
                Version(*version)
            }
        }
    }

    fn set_if(&self, key: &str, value: &[u8], version: Version) -> bool {
        let current = self.values.borrow().get(key).map(|(_, version)| *version);
        if current.is_some_and(|current| current != version.0) {
            return false;
        }
        self.set(key, value);
        true
    }

    fn set(&self, key: &str, value: &[u8]) {
        let version = self.next_version();
        self.values
            .borrow_mut()
            .insert(key.to_string(), (value.to_vec(), version));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn of_two_who_read_the_same_version_one_writes() {
        let shared = LocalData::default();
        let mut value = Vec::new();
        let absent = shared.get("key", &mut value);
        assert_eq!(absent, Version::ABSENT);
        assert!(shared.set_if("key", b"first", absent));
        assert!(
            !shared.set_if("key", b"second", absent),
            "creation must be atomic"
        );
        let version = shared.get("key", &mut value);
        assert_eq!(value, b"first");
        assert!(shared.set_if("key", b"third", version));
        assert!(!shared.set_if("key", b"fourth", version));
    }
}
