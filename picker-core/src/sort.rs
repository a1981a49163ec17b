//! Sorting that takes little room in the module.
//!
//! Each type that the library's sorts are used for costs the module five kilobytes, for the sake of
//! speed on long lists. Here one function sorts places, whatever stands there.

use alloc::vec::Vec;
use core::cmp::Ordering;

/// Sorts by the order of the items. Equal ones stay as they were.
pub(crate) fn sort<T: Ord>(items: &mut [T]) {
    sort_by(items, T::cmp);
}

/// Sorts by `compare`. Those that it calls equal stay as they were.
pub(crate) fn sort_by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let is_after = |left: usize, right: usize| match (items.get(left), items.get(right)) {
        (Some(left), Some(right)) => compare(left, right).is_gt(),
        _ => false,
    };
    let mut order = order(items.len(), &is_after);
    // What belongs to a place is found where it was put when that place was filled.
    for place in 0..order.len() {
        let mut from = order.get(place).copied().unwrap_or(place);
        while from < place {
            from = order.get(from).copied().unwrap_or(place);
        }
        items.swap(place, from);
        if let Some(known) = order.get_mut(place) {
            *known = from;
        }
    }
}

/// The places from 0 up to `count` in order: merges runs of one, then of two, of four and so on.
fn order(count: usize, is_after: &dyn Fn(usize, usize) -> bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut width = 1;
    while width < count {
        let mut merged = Vec::with_capacity(count);
        for runs in order.chunks(width.saturating_mul(2)) {
            let (mut left, mut right) = runs.split_at(width.min(runs.len()));
            while let (Some(one), Some(other)) = (left.first(), right.first()) {
                let from = if is_after(*one, *other) {
                    &mut right
                } else {
                    &mut left
                };
                merged.extend(from.split_off_first().copied());
            }
            merged.extend(left);
            merged.extend(right);
        }
        order = merged;
        width = width.saturating_mul(2);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draws;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn any_list_is_sorted_as_the_library_sorts_it() {
        let mut draws = Draws::new(7);
        for length in 0..200 {
            for values in [2, 10, 1 << 30] {
                let list: Vec<(u64, usize)> = (0..length)
                    .map(|place| (draws.below(values) as u64, place))
                    .collect();
                let (mut ours, mut theirs) = (list.clone(), list);
                sort_by(&mut ours, |left, right| left.0.cmp(&right.0));
                theirs.sort_by_key(|it| it.0);
                assert_eq!(ours, theirs);
                sort(&mut ours);
                theirs.sort();
                assert_eq!(ours, theirs);
            }
        }
    }
}
