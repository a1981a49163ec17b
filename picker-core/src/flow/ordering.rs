//! Which request of a flow is next.

use crate::{Span, Timestamp};

/// An ordering policy, named as in the reference picker's configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ordering {
    /// `fcfs-ordering-policy`: who came first.
    Fcfs,
    /// `edf-ordering-policy`: whose time to wait ends first.
    Edf,
    /// `slo-deadline-ordering-policy`: who wants the first token first.
    SloDeadline,
}

/// What orders a request that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// When its headers came.
    pub received_at: Timestamp,
    /// When it began to wait.
    pub queued_at: Timestamp,
    /// How long it may wait; `None` for as long as it likes.
    pub ttl: Option<Span>,
    /// The time to its first token that it asks for.
    pub ttft: Option<Span>,
}

/// The place of a request among those of its band: the least is next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rank {
    /// What the policy goes by, in microseconds since the epoch.
    pub due: u64,
    /// When the request came, for those that are equal, in the same unit.
    pub came: u64,
}

impl Rank {
    /// The place where all times are earlier by `span`.
    pub(crate) fn before(self, span: Span) -> Self {
        // What is never due stays so.
        let earlier = |it: u64| {
            if it == u64::MAX {
                it
            } else {
                it.saturating_sub(span.0)
            }
        };
        Self {
            due: earlier(self.due),
            came: earlier(self.came),
        }
    }
}

impl Ordering {
    /// The place of a request that came like this.
    pub fn rank(self, arrival: &Arrival) -> Rank {
        let Arrival {
            received_at,
            queued_at,
            ttl,
            ttft,
        } = *arrival;
        let after = |from: Timestamp, span: Option<Span>| {
            span.map_or(u64::MAX, |it| from.0.saturating_add(it.0))
        };
        let (due, came) = match self {
            Self::Fcfs => (queued_at.0, queued_at.0),
            Self::Edf => (after(queued_at, ttl), queued_at.0),
            Self::SloDeadline => (after(received_at, ttft), received_at.0),
        };
        Rank { due, came }
    }
}

/// The time to the first token that a header asks for, a whole number of milliseconds; `None` for
/// what is no such number.
pub fn wanted_ttft(header: &str) -> Option<Span> {
    let is_number = !header.is_empty() && header.bytes().all(|it| it.is_ascii_digit());
    let millis: u64 = header.parse().ok().filter(|_| is_number)?;
    // As there, where nanoseconds are counted in 63 bits.
    let fits = millis <= i64::MAX as u64 / 1_000_000;
    fits.then(|| Span::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn arrival(received: u64, queued: u64, ttl: Option<u64>, ttft: Option<u64>) -> Arrival {
        Arrival {
            received_at: Timestamp(received),
            queued_at: Timestamp(queued),
            ttl: ttl.map(Span),
            ttft: ttft.map(Span),
        }
    }

    #[track_caller]
    fn check(ordering: Ordering, arrivals: &[Arrival], expected: &[usize]) {
        let mut places: Vec<usize> = (0..arrivals.len()).collect();
        places.sort_by_key(|place| ordering.rank(&arrivals[*place]));
        assert_eq!(places, expected, "{ordering:?}");
    }

    use alloc::vec::Vec;

    #[test]
    fn each_policy_goes_by_its_own_time() {
        let arrivals = [
            arrival(5, 12, Some(10), None),
            arrival(1, 11, Some(30), Some(40)),
            arrival(2, 13, None, Some(2)),
            arrival(3, 10, Some(40), Some(38)),
        ];
        check(Ordering::Fcfs, &arrivals, &[3, 1, 0, 2]);
        // 22, 41, never, 50
        check(Ordering::Edf, &arrivals, &[0, 1, 3, 2]);
        // never, 41, 4, 41: of two that are due together who was received first
        check(Ordering::SloDeadline, &arrivals, &[2, 1, 3, 0]);
    }

    #[test]
    fn far_times_do_not_wrap() {
        let far = arrival(u64::MAX - 1, u64::MAX - 1, Some(u64::MAX), Some(5));
        for ordering in [Ordering::Edf, Ordering::SloDeadline] {
            assert_eq!(ordering.rank(&far).due, u64::MAX);
        }
    }

    #[test]
    fn what_is_never_due_stays_so_when_all_times_are_earlier() {
        let rank = |due, came| Rank { due, came };
        let before = |it: Rank| it.before(Span(10));
        assert_eq!(before(rank(25, 15)), rank(15, 5));
        assert_eq!(before(rank(u64::MAX, 9)), rank(u64::MAX, 0));
    }

    #[test]
    fn only_a_whole_number_of_milliseconds_is_a_time() {
        for (text, expected) in [
            ("0", Some(0)),
            ("250", Some(250_000)),
            ("9223372036854", Some(9_223_372_036_854_000)),
            ("9223372036855", None),
            ("99999999999999999999", None),
            ("-1", None),
            ("+1", None),
            ("0x10", None),
            ("1.5", None),
            ("", None),
            ("abc", None),
        ] {
            assert_eq!(wanted_ttft(text), expected.map(Span), "{text}");
        }
    }
}
