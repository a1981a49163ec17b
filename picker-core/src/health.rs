//! Failing fast is not being idle.
//!
//! An endpoint that fails request after request is left alone for a while, longer each time it
//! fails again, and gets one request at a time to prove itself after that: more as soon as it has
//! begun to answer one, but only an answer to the end is forgiveness. One that says it is full is
//! left alone for a moment, longer each time it says so again. What the client did wrong says
//! nothing about the endpoint.

use crate::bytes::{Reader, Writer};
use crate::{Span, Timestamp};

/// What an answer says about the endpoint that gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It has begun to answer well.
    Begun,
    /// It failed, by a 5xx or by cutting the exchange.
    Failed,
    /// It said that it is full: 429 or 503.
    Full,
    /// It served the request to the end.
    Served,
    /// Nothing listens at its address.
    Unreachable,
}

/// How an endpoint has done lately.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// Failures since it served a request.
    failures: u32,
    /// How often in a row it said that it is full.
    fulls: u32,
    /// Whether it has begun to answer since it failed or said that it is full.
    begun: bool,
    /// Until when it is left alone.
    until: Timestamp,
}

impl Verdict {
    /// What a status says; `None` when it says nothing about the endpoint.
    pub fn of_status(status: u16) -> Option<Self> {
        match status {
            200..400 => Some(Self::Begun),
            429 | 503 => Some(Self::Full),
            500.. => Some(Self::Failed),
            _ => None,
        }
    }

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Full => 2,
            Self::Served => 3,
            Self::Unreachable => 4,
            Self::Begun => 5,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        let all = [
            Self::Begun,
            Self::Failed,
            Self::Full,
            Self::Served,
            Self::Unreachable,
        ];
        all.into_iter().find(|verdict| verdict.code() == code)
    }
}

impl Health {
    /// Takes in a verdict.
    pub(crate) fn judge(&mut self, verdict: Verdict, at: Timestamp) {
        let alone = self.is_alone(at);
        match verdict {
            Verdict::Begun => {
                (self.begun, self.fulls, self.until) = (true, 0, Timestamp::default());
            }
            // One that began before it failed is no sign that it serves again.
            Verdict::Served if !self.begun => {}
            Verdict::Served => *self = Self::default(),
            Verdict::Full if alone => self.until = self.until.max(at.after(FULL_FOR)),
            Verdict::Full => {
                self.until = at.after(doubled(FULL_FOR, self.fulls).min(FULL_FOR_MAX));
                (self.fulls, self.begun) = (self.fulls.saturating_add(1), false);
            }
            // What was sent before it was left alone fails too, and says nothing new.
            Verdict::Failed | Verdict::Unreachable if alone && self.failures > 0 => {}
            Verdict::Failed => self.fail(self.failures.saturating_add(1), at),
            Verdict::Unreachable => {
                self.fail(self.failures.max(FAILURES - 1).saturating_add(1), at)
            }
        }
    }

    fn fail(&mut self, failures: u32, at: Timestamp) {
        (self.failures, self.begun) = (failures, false);
        if let Some(again) = failures.checked_sub(FAILURES) {
            self.until = at.after(doubled(FAILED_FOR, again).min(FAILED_FOR_MAX));
        }
    }

    /// Whether a request may go there, given how many are there.
    pub(crate) fn may_serve(self, in_flight: u32, now: Timestamp) -> bool {
        !self.is_alone(now) && (self.failures < FAILURES || self.begun || in_flight == 0)
    }

    /// Nobody is left alone for longer than the longest time: such a moment is from before the
    /// clock stepped back.
    fn is_alone(self, now: Timestamp) -> bool {
        now < self.until && self.until.since(now) <= FAILED_FOR_MAX
    }

    pub(crate) fn encode(self, writer: &mut Writer<'_>) {
        writer.u32(self.failures);
        writer.u32(self.fulls);
        writer.u8(u8::from(self.begun));
        writer.u64(self.until.0);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let (failures, fulls) = (reader.u32()?, reader.u32()?);
        Some(Self {
            failures,
            fulls,
            begun: reader.u8()? == 1,
            until: Timestamp(reader.u64()?),
        })
    }

    /// Whether a verdict would change anything.
    pub(crate) fn is_news(self, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Begun => !self.begun && self != Self::default(),
            Verdict::Served => self.begun,
            Verdict::Failed | Verdict::Full | Verdict::Unreachable => true,
        }
    }
}

/// `span`, twice as long for each of `times`.
fn doubled(span: Span, times: u32) -> Span {
    Span(span.0 << times.min(10))
}

/// Failures in a row before an endpoint is left alone: one bad request may be the request's own
/// fault.
const FAILURES: u32 = 3;

/// How long it is left alone at first; twice as long each time.
const FAILED_FOR: Span = Span::from_millis(500);

/// How long it is left alone at most.
const FAILED_FOR_MAX: Span = Span::from_millis(30_000);

/// How long an endpoint that said it is full is left alone at first: a few steps of its scheduler.
const FULL_FOR: Span = Span::from_millis(250);

/// How long it is left alone at most, for it may have room again at any moment.
const FULL_FOR_MAX: Span = Span::from_millis(2000);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// Judges at the given milliseconds, then tells whether it may serve with so many in flight.
    #[track_caller]
    fn check(verdicts: &[(Verdict, u64)], in_flight: u32, now: u64, may_serve: bool) {
        let at = |millis: u64| Timestamp(1_000_000 + millis * 1000);
        let mut health = Health::default();
        for (verdict, millis) in verdicts {
            health.judge(*verdict, at(*millis));
        }
        assert_eq!(
            health.may_serve(in_flight, at(now)),
            may_serve,
            "{verdicts:?} at {now}"
        );
    }

    #[test]
    fn three_failures_in_a_row_leave_an_endpoint_alone() {
        use Verdict::{Begun, Failed, Served};
        check(&[(Failed, 0), (Failed, 1)], 5, 1, true);
        let between = [
            (Failed, 0),
            (Failed, 1),
            (Begun, 2),
            (Served, 2),
            (Failed, 3),
        ];
        check(&between, 5, 3, true);
        check(&[(Failed, 0), (Failed, 1), (Failed, 2)], 0, 501, false);
        check(&[(Failed, 0), (Failed, 1), (Failed, 2)], 0, 502, true);
        check(&[(Failed, 0), (Failed, 1), (Failed, 2)], 1, 502, false);
    }

    #[test]
    fn a_probe_that_fails_doubles_the_time_and_a_late_failure_does_not() {
        use Verdict::Failed;
        let failed = [(Failed, 0), (Failed, 0), (Failed, 0), (Failed, 100)];
        check(&failed, 0, 500, true);
        let probed = [(Failed, 0), (Failed, 0), (Failed, 0), (Failed, 600)];
        check(&probed, 0, 1599, false);
        check(&probed, 0, 1600, true);
    }

    #[test]
    fn one_that_begins_to_answer_gets_more_and_is_forgiven_at_the_end() {
        use Verdict::{Begun, Failed, Served};
        let failed = [(Failed, 0), (Failed, 0), (Failed, 0), (Begun, 500)];
        check(&failed, 9, 500, true);
        let cut = [&failed[..], &[(Failed, 501)]].concat();
        check(&cut, 0, 1500, false);
        check(&cut, 0, 1501, true);
        let forgiven = [&failed[..], &[(Served, 501), (Failed, 502), (Failed, 502)]].concat();
        check(&forgiven, 9, 502, true);
        let begun_before = [&failed[..3], &[(Served, 100)]].concat();
        check(&begun_before, 9, 500, false);
    }

    #[test]
    fn what_changes_nothing_is_no_news() {
        let mut health = Health::default();
        assert!(!health.is_news(Verdict::Begun) && !health.is_news(Verdict::Served));
        health.judge(Verdict::Failed, Timestamp(0));
        assert!(health.is_news(Verdict::Begun) && !health.is_news(Verdict::Served));
        health.judge(Verdict::Begun, Timestamp(0));
        assert!(!health.is_news(Verdict::Begun) && health.is_news(Verdict::Served));
        assert!(health.is_news(Verdict::Failed) && health.is_news(Verdict::Full));
    }

    #[test]
    fn a_refused_connection_counts_at_once() {
        check(&[(Verdict::Unreachable, 0)], 0, 499, false);
        check(&[(Verdict::Unreachable, 0)], 0, 500, true);
    }

    #[test]
    fn being_full_is_short_and_longer_when_it_goes_on() {
        use Verdict::{Begun, Full};
        check(&[(Full, 0)], 9, 249, false);
        check(&[(Full, 0)], 9, 250, true);
        check(&[(Full, 0), (Full, 100)], 9, 350, true);
        check(&[(Full, 0), (Full, 250)], 9, 749, false);
        check(&[(Full, 0), (Full, 250)], 9, 750, true);
        check(&[(Full, 0), (Full, 250), (Begun, 300)], 9, 300, true);
        check(
            &[(Full, 0), (Full, 250), (Begun, 300), (Full, 301)],
            9,
            551,
            true,
        );
        let ever: Vec<_> = (0..20).map(|again| (Full, again * 2000)).collect();
        check(&ever, 9, 39_999, false);
        check(&ever, 9, 40_000, true);
    }

    #[test]
    fn failures_have_no_end() {
        let mut health = Health {
            failures: u32::MAX,
            fulls: u32::MAX,
            ..Health::default()
        };
        for verdict in [Verdict::Unreachable, Verdict::Failed] {
            health.judge(verdict, Timestamp(1));
            assert!(!health.may_serve(0, Timestamp(2)), "{verdict:?}");
        }
    }

    #[test]
    fn the_time_alone_is_bounded() {
        let mut health = Health::default();
        let mut now = Timestamp(0);
        for _ in 0..200 {
            health.judge(Verdict::Failed, now);
            now = now.max(health.until);
        }
        health.judge(Verdict::Failed, now);
        assert_eq!(health.until.since(now), FAILED_FOR_MAX);
    }

    #[test]
    fn what_the_client_did_wrong_says_nothing() {
        for status in [400, 401, 404, 413, 422] {
            assert_eq!(Verdict::of_status(status), None, "{status}");
        }
        assert_eq!(Verdict::of_status(200), Some(Verdict::Begun));
        assert_eq!(Verdict::of_status(503), Some(Verdict::Full));
        assert_eq!(Verdict::of_status(500), Some(Verdict::Failed));
    }
}
