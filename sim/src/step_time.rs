//! How long a step of the engine takes on a given accelerator and model.

use std::time::Duration;

use crate::engine::Work;

/// A model of step durations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepTime {
    /// Coefficients fitted to measured runs.
    Fitted(Fitted),
    /// Bandwidth and compute limits of the hardware.
    Roofline(Roofline),
}

impl StepTime {
    /// The duration of a step that does `work`.
    pub fn duration(&self, work: &Work) -> Duration {
        let millis = match self {
            Self::Fitted(fitted) => fitted.millis(work),
            Self::Roofline(roofline) => roofline.millis(work),
        };
        Duration::from_nanos((millis * 1e6) as u64)
    }
}

impl StepTime {
    /// Steps that take `factor` times as long.
    #[must_use]
    pub fn slowed(self, factor: f64) -> Self {
        match self {
            Self::Fitted(fitted) => Self::Fitted(Fitted {
                base: fitted.base * factor,
                sequence: fitted.sequence * factor,
                prefill_token: fitted.prefill_token * factor,
                context_factor: fitted.context_factor,
                block: fitted.block * factor,
            }),
            Self::Roofline(roofline) => Self::Roofline(Roofline {
                base: roofline.base * factor,
                bandwidth: roofline.bandwidth / factor,
                flops: roofline.flops / factor,
                ..roofline
            }),
        }
    }
}

/// A linear model whose coefficients come from measured runs; all in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fitted {
    /// Any step.
    pub base: f64,
    /// Per request in the step.
    pub sequence: f64,
    /// Per prefill token.
    pub prefill_token: f64,
    /// By how much a prefill token gets dearer per token before it, as a fraction.
    pub context_factor: f64,
    /// Per block in use; one shared by several requests is read once.
    pub block: f64,
}

impl Fitted {
    fn millis(&self, work: &Work) -> f64 {
        let prefill = work.prefill_tokens as f64 + self.context_factor * work.prefill_pairs;
        self.base
            + self.sequence * work.sequences as f64
            + self.prefill_token * prefill
            + self.block * work.blocks as f64
    }
}

/// What the hardware allows: weights are read once per step, attention reads the KV blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Host work and launches of any step, in milliseconds.
    pub base: f64,
    /// Bytes of the weights.
    pub weight_bytes: f64,
    /// Parameters that multiply every token.
    pub parameters: f64,
    /// The attention layers.
    pub attention: Attention,
    /// Bytes per second that memory delivers in practice.
    pub bandwidth: f64,
    /// Operations per second reached in practice.
    pub flops: f64,
}

/// The shape of a model's attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Layers.
    pub layers: f64,
    /// Query heads per layer.
    pub query_heads: f64,
    /// Key and value heads per layer.
    pub kv_heads: f64,
    /// Numbers per head.
    pub head_size: f64,
}

impl Roofline {
    fn millis(&self, work: &Work) -> f64 {
        let Attention {
            layers,
            query_heads,
            kv_heads,
            head_size,
        } = self.attention;
        let kv_bytes_per_token = 2.0 * layers * kv_heads * head_size * KV_ELEMENT_BYTES;
        let weights = self.weight_bytes / self.bandwidth;
        let multiply = 2.0 * self.parameters * work.tokens as f64 / self.flops;
        let kv = kv_bytes_per_token * work.decode_context as f64 / self.bandwidth;
        let pairs = 4.0 * layers * query_heads * head_size * work.prefill_pairs;
        let attention = pairs / (ATTENTION_EFFICIENCY * self.flops);
        self.base + 1e3 * (weights.max(multiply) + kv + attention)
    }
}

/// Bytes of one key or value element: 16-bit floats.
const KV_ELEMENT_BYTES: f64 = 2.0;

/// Share of the matrix throughput that prefill attention reaches.
const ATTENTION_EFFICIENCY: f64 = 0.6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    fn check(profile: &str, work: Work, millis: std::ops::Range<f64>) {
        let profile = Profile::named(profile).unwrap();
        let duration = profile.step_time.duration(&work).as_secs_f64() * 1e3;
        assert!(
            millis.contains(&duration),
            "{}: {duration} ms",
            profile.name
        );
    }

    fn decode(sequences: usize, context: usize) -> Work {
        Work {
            sequences,
            tokens: sequences,
            decode_context: sequences * context,
            ..Work::default()
        }
    }

    fn prefill(chunk: usize) -> Work {
        Work {
            sequences: 1,
            tokens: chunk,
            prefill_tokens: chunk,
            prefill_pairs: (chunk * chunk) as f64 / 2.0,
            ..Work::default()
        }
    }

    #[test]
    fn a_fitted_step_adds_up_its_terms() {
        let work = Work {
            sequences: 10,
            blocks: 1000,
            ..prefill(1000)
        };
        // 5.19 + 10 · 0.2766 + 0.0203 · (1000 + 1.9e-4 · 500,000) + 1000 · 0.00568
        check("l4", work, 35.864..35.865);
        check(
            "l4",
            Work {
                sequences: 1,
                ..Work::default()
            },
            5.466..5.467,
        );
    }

    #[test]
    fn roofline_steps_agree_with_the_published_table() {
        check("h100-8b", decode(1, 1000), 7.9..8.2);
        check("h100-8b", decode(256, 1000), 21.5..22.5);
        check("h100-8b", prefill(2048), 64.0..70.0);
        check("h100-8b", prefill(8192), 280.0..312.0);
        check("h100x4-70b", decode(32, 2000), 19.5..20.5);
        check("h100x4-70b", prefill(2048), 173.0..183.0);
        check("h100x8-70b", decode(256, 1000), 20.5..21.5);
        check("h100x8-70b", prefill(8192), 420.0..458.0);
    }
}
