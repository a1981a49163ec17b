//! Time as a number that crosses virtual machines and that a test can write down.

/// A moment, in microseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Timestamp(pub u64);

/// A length of time, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Span(pub u64);

impl Timestamp {
    /// The time passed since `earlier`; zero when the clock has stepped back.
    pub fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The time between this moment and `other`, whichever is earlier.
    ///
    /// What is judged by its age is judged by this where another wrote it: after the clock has
    /// stepped back, a moment from before the step is no more recent than it is old.
    pub fn apart(self, other: Self) -> Span {
        self.since(other).max(other.since(self))
    }

    /// The moment `span` after this one.
    #[must_use]
    pub fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The moment `span` before this one.
    #[must_use]
    pub fn before(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Span {
    /// A span of whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1000))
    }

    /// This span in milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_clock_that_steps_back_gives_no_time_passed() {
        assert_eq!(Timestamp(5).since(Timestamp(9)), Span(0));
        assert_eq!(Timestamp(9).since(Timestamp(5)), Span(4));
        assert_eq!(Timestamp(5).apart(Timestamp(9)), Span(4));
        assert_eq!(Timestamp(9).apart(Timestamp(5)), Span(4));
    }
}
