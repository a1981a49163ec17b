//! vLLM's adapters: the newest of a family of lines wins.
//!
//! Each combination of running and waiting adapters there ever was keeps its line, and the line's
//! value is the time when it was last true. Several API servers add their times up, which makes an
//! old line look newest; a time far in the future is such a sum and loses to any other. Where all
//! lines are sums, the largest is the best guess.
#![deny(clippy::indexing_slicing)]

use alloc::string::String;
use alloc::vec::Vec;

use crate::exposition::{Labels, Sample, unescape};
use crate::metrics::Lora;
use crate::sort::sort;
use crate::time::Timestamp;

/// The newest of the LoRA lines, which stay on the page for every combination there ever was.
#[derive(Default)]
pub(crate) struct NewestLora<'a> {
    /// Among those whose time can be a time.
    true_time: Option<(f64, Labels<'a>)>,
    /// Among the others.
    summed: Option<(f64, Labels<'a>)>,
}

impl<'a> NewestLora<'a> {
    pub(crate) fn read(&mut self, sample: &Sample<'a>, now: Timestamp) {
        let Some(time) = sample.value.filter(|time| time.is_finite()) else {
            return;
        };
        let newest = if time <= now.0 as f64 / 1e6 + LORA_CLOCK_SKEW_SECONDS {
            &mut self.true_time
        } else {
            &mut self.summed
        };
        if newest.is_none_or(|(newest, _)| newest <= time) {
            *newest = Some((time, sample.labels));
        }
    }

    /// Whether no line has a true time, so that the newest is a guess.
    pub(crate) fn is_guess(&self) -> bool {
        self.true_time.is_none() && self.summed.is_some()
    }

    pub(crate) fn finish(self) -> Option<Lora> {
        let (_, labels) = self.true_time.or(self.summed)?;
        let adapters = |label| {
            let list = unescape(labels.value(label).unwrap_or_default());
            let names = list.split(',').map(str::trim);
            let mut names: Vec<String> = names
                .filter(|it| !it.is_empty())
                .map(String::from)
                .collect();
            sort(&mut names);
            names.dedup();
            names
        };
        Some(Lora {
            running: adapters(b"running_lora_adapters"),
            waiting: adapters(b"waiting_lora_adapters"),
            max: labels
                .value(b"max_lora")
                .and_then(|it| core::str::from_utf8(it).ok()?.trim().parse().ok()),
        })
    }
}

/// A time further ahead of our clock than this is a sum of times, which lies decades ahead. Clocks
/// of two hosts differ by minutes at worst, and a line that is new by the server's clock must not
/// lose to an old one.
const LORA_CLOCK_SKEW_SECONDS: f64 = 3600.0;
