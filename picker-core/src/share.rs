//! How much of an endpoint's work comes from this Envoy.
//!
//! The endpoint counts all prompt tokens, we count ours. Both are compared over windows long enough
//! that what is on its way does not matter, and the share follows the windows slowly.

/// The window that is open for one endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    /// Where the window began: tokens sent by us, and tokens counted by the endpoint.
    begin: Option<(u32, u64)>,
}

impl Share {
    /// The share, `0..=1`, given what it was, what all our workers have sent (wraps) and what the
    /// endpoint has counted.
    ///
    /// `None` until the first window is full.
    pub fn update(&mut self, known: Option<f64>, sent: u32, counted: Option<u64>) -> Option<f64> {
        let Some(counted) = counted else { return known };
        let (begin_sent, begin_counted) = *self.begin.get_or_insert((sent, counted));
        let theirs = counted.saturating_sub(begin_counted);
        let is_full = theirs >= WINDOW_TOKENS;
        if counted < begin_counted || is_full {
            self.begin = Some((sent, counted));
        }
        if !is_full {
            return known;
        }
        let ours = f64::from(sent.wrapping_sub(begin_sent));
        let seen = (ours / theirs as f64).min(1.0);
        Some(known.map_or(seen, |known| known + GAIN * (seen - known)))
    }
}

/// Prompt tokens that an endpoint counts in a window: some dozens of requests.
const WINDOW_TOKENS: u64 = 32_768;

/// How fast the share follows new windows.
const GAIN: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_share_is_known_after_a_window_and_follows_slowly() {
        let mut share = Share::default();
        assert_eq!(share.update(None, 100, Some(1000)), None);
        assert_eq!(
            share.update(None, 20_000, Some(20_000)),
            None,
            "the window is not full"
        );
        let counted = 1000 + WINDOW_TOKENS;
        let half = share.update(None, 100 + (WINDOW_TOKENS / 2) as u32, Some(counted));
        assert_eq!(half, Some(0.5));
        let all = (WINDOW_TOKENS / 2 + WINDOW_TOKENS) as u32 + 100;
        let more = share.update(half, all, Some(counted + WINDOW_TOKENS));
        assert_eq!(more, Some(0.5 + GAIN * 0.5));
        assert_eq!(share.update(more, all, None), more, "the page does not say");
    }

    #[test]
    fn counters_that_fall_begin_a_new_window_and_ours_may_wrap() {
        let mut share = Share::default();
        share.update(None, u32::MAX - 99, Some(5_000_000));
        assert_eq!(share.update(None, u32::MAX - 99, Some(0)), None);
        let sent = (u32::MAX - 99).wrapping_add(WINDOW_TOKENS as u32);
        assert_eq!(share.update(None, sent, Some(WINDOW_TOKENS)), Some(1.0));
    }
}
