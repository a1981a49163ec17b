//! How many times as long as its pool each endpoint takes: another accelerator, other neighbours.

use alloc::vec::Vec;

use crate::EndpointId;
use crate::bytes::{Reader, Writer};

/// Ratios by endpoint; 1 for one that nothing is known of.
#[derive(Clone, Default)]
pub(super) struct Ratios {
    /// In the order of the endpoints' numbers.
    entries: Vec<Entry>,
    /// The mean relative error of late, which is the pool's and no endpoint's.
    ///
    /// Without it all ratios would drift together, for the model follows them.
    bias: f64,
}

#[derive(Clone)]
struct Entry {
    endpoint: EndpointId,
    own: Ratio,
    others: Ratio,
}

/// A mean and how many answers made it, up to [`ANSWERS_MAX`] a worker.
#[derive(Clone, Copy)]
struct Ratio {
    value: f64,
    answers: f64,
}

impl Ratios {
    /// Learns that what the pool does in `expected` took `ms`; the ratio after that.
    pub(super) fn learn(&mut self, endpoint: EndpointId, expected: f64, ms: f64) -> f64 {
        let bias = self.bias;
        let Some(entry) = self.entry(endpoint) else {
            return 1.0;
        };
        let all = entry.own.with(entry.others);
        let predicted = all.value * expected;
        let error = (ms - predicted) / ms.max(predicted);
        let gain = (1.0 / (all.answers + ANSWERS_PRIOR)).max(GAIN);
        let own = &mut entry.own;
        let value = own.value * (1.0 + gain * (error - bias));
        own.value = value.clamp(1.0 / RATIO_MAX, RATIO_MAX);
        own.answers = (own.answers + 1.0).min(ANSWERS_MAX);
        let ratio = own.with(entry.others).value;
        self.bias += GAIN * (error - bias);
        ratio
    }

    /// Adds what another worker has learnt itself.
    pub(super) fn absorb(&mut self, other: &Self) {
        for Entry { endpoint, own, .. } in &other.entries {
            if let Some(entry) = self.entry(*endpoint) {
                entry.own = entry.own.with(*own);
            }
        }
    }

    /// Takes the sum of what others have learnt in place of all that they told before.
    pub(super) fn hear(&mut self, heard: Self) {
        for entry in &mut self.entries {
            entry.others = Ratio::UNKNOWN;
        }
        for Entry { endpoint, own, .. } in heard.entries {
            if let Some(entry) = self.entry(endpoint) {
                entry.others = own;
            }
        }
    }

    pub(super) fn retain(&mut self, is_listed: impl Fn(EndpointId) -> bool) {
        self.entries.retain(|entry| is_listed(entry.endpoint));
    }

    pub(super) fn of(&self, endpoint: EndpointId) -> f64 {
        let place = self.place(endpoint).ok();
        let entry = place.and_then(|place| self.entries.get(place));
        entry.map_or(1.0, |entry| entry.own.with(entry.others).value)
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        let known = |it: &&Entry| it.own.answers > 0.0;
        writer.u16(self.entries.iter().filter(known).count() as u16);
        for Entry { endpoint, own, .. } in self.entries.iter().filter(known) {
            writer.u32(endpoint.0);
            writer.u32((own.value as f32).to_bits());
            writer.u8(own.answers as u8);
        }
    }

    /// Reads what [`encode`](Self::encode) wrote; `None` when it is too short or no ratio.
    pub(super) fn decode(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        for _ in 0..reader.u16()? {
            let endpoint = EndpointId(reader.u32()?);
            let value = f64::from(f32::from_bits(reader.u32()?));
            let answers = f64::from(reader.u8()?);
            let is_ratio = (1.0 / RATIO_MAX..=RATIO_MAX).contains(&value);
            if !is_ratio || answers > ANSWERS_MAX {
                return None;
            }
            self.entry(endpoint)?.own = Ratio { value, answers };
        }
        Some(())
    }

    /// The entry of `endpoint`, created when missing; `None` when there are too many.
    fn entry(&mut self, endpoint: EndpointId) -> Option<&mut Entry> {
        let place = match self.place(endpoint) {
            Ok(place) => place,
            Err(_) if self.entries.len() >= ENDPOINTS_MAX => return None,
            Err(place) => {
                let entry = Entry {
                    endpoint,
                    own: Ratio::UNKNOWN,
                    others: Ratio::UNKNOWN,
                };
                self.entries.insert(place, entry);
                place
            }
        };
        self.entries.get_mut(place)
    }

    fn place(&self, endpoint: EndpointId) -> Result<usize, usize> {
        let by_number = |entry: &Entry| entry.endpoint.0;
        self.entries.binary_search_by_key(&endpoint.0, by_number)
    }
}

impl Ratio {
    const UNKNOWN: Self = Self {
        value: 1.0,
        answers: 0.0,
    };

    /// The mean of two, by their answers; either one when the other has none.
    fn with(self, other: Self) -> Self {
        let answers = self.answers + other.answers;
        let sum = self.value * self.answers + other.value * other.answers;
        let value = if answers > 0.0 {
            sum / answers
        } else {
            self.value
        };
        Self { value, answers }
    }
}

/// How fast a ratio follows once it is known well.
const GAIN: f64 = 0.005;

/// Answers after which it follows no slower; they fit into a byte.
const ANSWERS_MAX: f64 = 200.0;

/// Answers that the ratio 1 stands for at the start.
const ANSWERS_PRIOR: f64 = 20.0;

/// No endpoint is so many times slower, or faster, than its pool.
pub(super) const RATIO_MAX: f64 = 8.0;

/// Endpoints that have ratios: twice as many as a pool lists, for some come while others go.
const ENDPOINTS_MAX: usize = 4096;
