//! Whether answers come from the endpoints that were chosen.
//!
//! After a retry or a fallback they come from another one, and only the host can tell. To ask it
//! costs more than a decision, and where the destination leaves no choice the answer is always the
//! same.

/// What was learnt of where answers come from.
#[derive(Default)]
pub(crate) struct Served {
    /// Answers since one came from elsewhere.
    since_missed: u32,
}

impl Served {
    /// Whether to ask who gives the answer that has begun.
    pub(crate) fn is_asked(&mut self) -> bool {
        self.since_missed = self.since_missed.saturating_add(1);
        self.since_missed <= ASKED_ALWAYS || self.since_missed.is_multiple_of(ASKED_EVERY)
    }

    /// An answer came from another endpoint than the chosen one.
    pub(crate) fn missed(&mut self) {
        self.since_missed = 0;
    }
}

/// Answers about which the host is asked, all of them, before it is trusted to obey.
const ASKED_ALWAYS: u32 = 64;

/// One of so many is asked about after that, so that retries to a failing endpoint are noticed
/// within a few requests.
const ASKED_EVERY: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn asked(served: &mut Served, answers: u32) -> usize {
        (0..answers).filter(|_| served.is_asked()).count()
    }

    #[test]
    fn a_host_that_obeys_is_asked_ever_less_until_it_does_not() {
        let mut served = Served::default();
        assert_eq!(asked(&mut served, ASKED_ALWAYS), 64);
        assert_eq!(asked(&mut served, 800), 100);
        served.missed();
        assert_eq!(asked(&mut served, ASKED_ALWAYS), 64);
        assert_eq!(asked(&mut served, 80), 10);
        served.since_missed = u32::MAX;
        assert_eq!(asked(&mut served, 8), 0, "rare enough not to matter");
    }
}
