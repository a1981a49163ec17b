//! The known name that somebody probably meant.

use alloc::string::String;
use alloc::vec::Vec;

use super::error::Cause;

/// The mistake of a name that is none of the `known`.
pub(super) fn unknown<'k>(
    what: &'static str,
    name: &str,
    known: impl Iterator<Item = &'k str>,
) -> Cause {
    let known: Vec<&str> = known.collect();
    Cause::Unknown {
        what,
        name: name.chars().take(NAME_BYTES_MAX).collect(),
        nearest: nearest(name, &known).map(String::from),
        known: known.into_iter().map(String::from).collect(),
    }
}

/// The one of `known` closest to `name`, the first of equals; `None` when none is close.
///
/// Close is one edit in three letters, three at most; case does not count.
pub(super) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let most = (name.len() / 3).clamp(1, 3);
    let distances = known.iter().map(|it| (distance(name, it), *it));
    let (distance, nearest) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= most).then_some(nearest)
}

/// Letters to insert, remove, replace or swap with their neighbour to get from one name to the
/// other.
fn distance(from: &str, to: &str) -> usize {
    // A long name is close to none of ours, and the time below is the product of the lengths.
    if from.len() > NAME_BYTES_MAX || to.len() > NAME_BYTES_MAX {
        return usize::MAX;
    }
    let from: Vec<char> = from.chars().map(|it| it.to_ascii_lowercase()).collect();
    let to: Vec<char> = to.chars().map(|it| it.to_ascii_lowercase()).collect();
    // Rows of the usual table: distances from the first `i` letters to every prefix of `to`.
    let mut before = Vec::new();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for (i, letter) in from.iter().enumerate() {
        let mut row = Vec::with_capacity(above.len());
        row.push(i + 1);
        for (j, other) in to.iter().enumerate() {
            let at = |row: &[usize], j: usize| row.get(j).copied().unwrap_or(usize::MAX / 2);
            let replace = at(&above, j) + usize::from(letter != other);
            let mut best = replace.min(at(&above, j + 1) + 1).min(at(&row, j) + 1);
            let swapped =
                i > 0 && j > 0 && from.get(i - 1) == Some(other) && to.get(j - 1) == Some(letter);
            if swapped {
                best = best.min(at(&before, j - 1) + 1);
            }
            row.push(best);
        }
        before = core::mem::replace(&mut above, row);
    }
    above.last().copied().unwrap_or(0)
}

/// The longest name that is compared, and how much of a longer one is repeated; our own have at
/// most 30 letters.
const NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_slip_finds_its_name() {
        let known = ["weight", "pluginRef", "name", "pathPrefixes", "hosts"];
        for (name, expected) in [
            ("wieght", Some("weight")),
            ("weigth", Some("weight")),
            ("Weight", Some("weight")),
            ("pluginref", Some("pluginRef")),
            ("plugin_ref", Some("pluginRef")),
            ("path_prefixes", Some("pathPrefixes")),
            ("host", Some("hosts")),
            ("names", Some("name")),
            ("nmae", Some("name")),
            ("nam", Some("name")),
            ("x", None),
            ("strict", None),
            ("eman", None),
            // More than three slips are another word, however long.
            ("paxthPxrefixxesx", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, &known), expected, "{name}");
        }
        assert_eq!(nearest("name", &[]), None);
        assert_eq!(nearest(&"weight".repeat(100), &known), None);
    }
}
