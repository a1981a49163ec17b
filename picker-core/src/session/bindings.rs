//! Where sessions are, as all workers know it: buckets in shared data, each a short list with the
//! session that was used last in front.
//!
//! A bucket that is full forgets the session that was not used for longest, which then begins
//! anew.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::bytes::{Reader, Writer};
use crate::shared::SharedData;
use crate::tally::WRITES_MAX;
use crate::{EndpointId, Span, Timestamp};

/// A session and its endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Binding {
    /// The hash of the session's name.
    pub(super) session: u64,
    pub(super) endpoint: EndpointId,
    /// When it was used last, as far as that was noted.
    pub(super) used: Timestamp,
}

impl Binding {
    fn is_live(&self, lifetime: Span, now: Timestamp) -> bool {
        now.apart(self.used) <= lifetime
    }
}

/// The binding of a session that was used within `lifetime`.
pub(super) fn find(
    shared: &impl SharedData,
    pool: &str,
    session: u64,
    (lifetime, now): (Span, Timestamp),
) -> Option<Binding> {
    let mut value = Vec::new();
    shared.get(&key(pool, session), &mut value);
    bindings(&value).find(|it| it.session == session && it.is_live(lifetime, now))
}

/// Writes `binding`, unless another worker has bound the session to an endpoint since `before` was
/// found: then that holds.
pub(super) fn bind(
    shared: &impl SharedData,
    pool: &str,
    (before, binding): (Option<Binding>, Binding),
    lifetime: Span,
) {
    let key = key(pool, binding.session);
    let mut value = Vec::new();
    for _ in 0..WRITES_MAX {
        let version = shared.get(&key, &mut value);
        let (own, others): (Vec<Binding>, Vec<Binding>) =
            bindings(&value).partition(|it| it.session == binding.session);
        let found = own.first().filter(|it| it.is_live(lifetime, binding.used));
        let known = before.map(|it| it.endpoint);
        if found.is_some_and(|it| Some(it.endpoint) != known) {
            return;
        }
        value.clear();
        let mut writer = Writer(&mut value);
        writer.u8(FORMAT);
        for it in [binding].iter().chain(&others).take(BINDINGS_MAX) {
            writer.u64(it.session);
            writer.u32(it.endpoint.0);
            writer.u64(it.used.0);
        }
        if shared.set_if(&key, &value, version) {
            return;
        }
    }
}

/// The bindings of a bucket; none in one of another release, and none after a cut.
fn bindings(value: &[u8]) -> impl Iterator<Item = Binding> {
    let mut reader = Reader(value);
    let is_known = reader.u8() == Some(FORMAT);
    core::iter::from_fn(move || {
        Some(Binding {
            session: reader.u64()?,
            endpoint: EndpointId(reader.u32()?),
            used: Timestamp(reader.u64()?),
        })
        .filter(|_| is_known)
    })
    .take(BINDINGS_MAX)
}

fn key(pool: &str, session: u64) -> String {
    format!("picker/{pool}/session/{}", session % BUCKETS)
}

/// Buckets of a pool. Shared data forgets no key, so their number is fixed.
pub(super) const BUCKETS: u64 = 4096;

/// Sessions in a bucket: 1.3 KB to copy for a request that has one. All buckets together hold a
/// quarter of a million, in 5 MB.
pub(super) const BINDINGS_MAX: usize = 64;

/// The first byte of a bucket; raised when the layout changes.
const FORMAT: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::LocalData;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const LIFETIME: Span = Span(100);

    /// Sessions that share a bucket.
    fn binding(number: u64, endpoint: u32, used: u64) -> Binding {
        Binding {
            session: 7 + number * BUCKETS,
            endpoint: EndpointId(endpoint),
            used: Timestamp(used),
        }
    }

    fn found(shared: &LocalData, number: u64, now: u64) -> Option<Binding> {
        let session = binding(number, 0, 0).session;
        find(shared, "llm", session, (LIFETIME, Timestamp(now)))
    }

    fn put(shared: &LocalData, before: Option<Binding>, binding: Binding) {
        bind(shared, "llm", (before, binding), LIFETIME);
    }

    #[test]
    fn a_binding_lasts_as_long_as_it_is_used_whichever_way_the_clock_goes() {
        let shared = LocalData::default();
        assert_eq!(found(&shared, 0, 1000), None);
        let first = binding(0, 1, 1000);
        put(&shared, None, first);
        for (now, expected) in [
            (1000, Some(first)),
            (1100, Some(first)),
            (900, Some(first)),
            (1101, None),
            (899, None),
        ] {
            assert_eq!(found(&shared, 0, now), expected, "at {now}");
        }
        put(&shared, Some(first), binding(0, 1, 1090));
        assert_eq!(found(&shared, 0, 1190), Some(binding(0, 1, 1090)));
        assert_eq!(found(&shared, 1, 1190), None, "another of the bucket");
    }

    #[test]
    fn of_two_who_bind_a_session_the_first_prevails() {
        let shared = LocalData::default();
        let first = binding(0, 1, 1000);
        put(&shared, None, first);
        put(&shared, None, binding(0, 2, 1001));
        assert_eq!(found(&shared, 0, 1001), Some(first));
        let moved = binding(0, 3, 1002);
        put(&shared, Some(first), moved);
        put(&shared, Some(first), binding(0, 4, 1003));
        assert_eq!(found(&shared, 0, 1003), Some(moved));
        let late = binding(0, 5, 1200);
        put(&shared, None, late);
        assert_eq!(found(&shared, 0, 1200), Some(late), "the other is void");
    }

    #[test]
    fn a_full_bucket_forgets_the_session_that_was_not_used_for_longest() {
        let shared = LocalData::default();
        let count = BINDINGS_MAX as u64;
        for number in 0..count {
            put(&shared, None, binding(number, 1, 1000));
        }
        put(&shared, Some(binding(0, 1, 1000)), binding(0, 1, 1001));
        assert!((0..count).all(|number| found(&shared, number, 1001).is_some()));
        put(&shared, None, binding(count, 1, 1002));
        let lost: Vec<u64> = (0..=count)
            .filter(|number| found(&shared, *number, 1002).is_none())
            .collect();
        assert_eq!(lost, [1]);
    }
}
