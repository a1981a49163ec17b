//! A map that takes little room in the module.
//!
//! Each type that a tree is used for costs the module seven kilobytes. What holds a few thousand
//! entries at most is as fast in a list.

use alloc::vec::Vec;

/// A map in the order of its keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SortedMap<K, V>(Vec<(K, V)>);

impl<K: Ord, V> SortedMap<K, V> {
    /// Entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        let place = self.place(key).ok()?;
        self.0.get(place).map(|(_, value)| value)
    }

    /// The value of a key, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.place(key).ok()?;
        self.0.get_mut(place).map(|(_, value)| value)
    }

    /// Sets the value of a key.
    pub fn insert(&mut self, key: K, value: V) {
        match self.place(&key) {
            Ok(place) => {
                if let Some(entry) = self.0.get_mut(place) {
                    entry.1 = value;
                }
            }
            Err(place) => self.0.insert(place, (key, value)),
        }
    }

    /// Adds a key, unless it is there already; whether it was added.
    pub fn add(&mut self, key: K, value: V) -> bool {
        let place = self.place(&key);
        if let Err(place) = place {
            self.0.insert(place, (key, value));
        }
        place.is_err()
    }

    /// Takes a key out; its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.place(key).ok()?;
        Some(self.0.remove(place).1)
    }

    /// The first entry.
    pub fn first(&self) -> Option<&(K, V)> {
        self.0.first()
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.0.iter()
    }

    /// All entries in order, to be changed; the keys must not be.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.0.iter_mut().map(|(key, value)| (&*key, value))
    }

    fn place(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(it, _)| it.cmp(key))
    }
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draws;
    use alloc::collections::BTreeMap;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn it_does_as_a_tree_does() {
        let (mut ours, mut theirs) = (SortedMap::default(), BTreeMap::new());
        let mut draws = Draws::new(3);
        for number in 0..5000 {
            let key = draws.below(200);
            match draws.below(4) {
                0 => assert_eq!(ours.remove(&key), theirs.remove(&key)),
                1 => {
                    if let (Some(our), Some(their)) = (ours.get_mut(&key), theirs.get_mut(&key)) {
                        *our += 1;
                        *their += 1;
                    }
                }
                _ => {
                    ours.insert(key, number);
                    theirs.insert(key, number);
                }
            }
            assert_eq!(ours.get(&key), theirs.get(&key));
            assert_eq!(ours.len(), theirs.len());
            assert_eq!(ours.is_empty(), theirs.is_empty());
            let first = ours.first().map(|(key, value)| (key, value));
            assert_eq!(first, theirs.first_key_value());
        }
        assert!(ours.iter().map(|(key, value)| (key, value)).eq(&theirs));
    }
}
