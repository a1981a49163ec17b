//! The load that a server reports with a response: the ORCA header `endpoint-load-metrics`.
//!
//! `TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=3.0`, or `JSON`
//! and an object. The text form repeats the names for each engine behind the address. The binary
//! form is not read.

use alloc::vec::Vec;
use core::fmt;

use serde_json::Value;

/// What one server said about its load; `None` where it did not, or said what cannot be true.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LoadReport {
    /// Requests executing, summed over engines.
    pub running: Option<f64>,
    /// Requests queued, summed over engines.
    pub waiting: Option<f64>,
    /// Fraction of KV blocks in use, `0..=1`, the mean over engines.
    pub kv_usage: Option<f64>,
}

/// Why a header is no load report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownReportFormat;

impl LoadReport {
    /// Reads the value of `endpoint-load-metrics`.
    pub fn parse(header: &str) -> Result<Self, UnknownReportFormat> {
        let (format, report) = header.trim().split_once(' ').ok_or(UnknownReportFormat)?;
        let mut values = Vec::new();
        match format {
            "TEXT" => {
                let pairs = report.split(',').filter_map(|pair| pair.split_once('='));
                values.extend(pairs.filter_map(|(name, value)| {
                    Some((Gauge::named(name.trim())?, value.trim().parse().ok()?))
                }));
            }
            "JSON" => {
                let report: Value =
                    serde_json::from_str(report).map_err(|_| UnknownReportFormat)?;
                let named = report.get("named_metrics").and_then(Value::as_object);
                values.extend(
                    named
                        .into_iter()
                        .flatten()
                        .filter_map(|(name, value)| Some((Gauge::named(name)?, value.as_f64()?))),
                );
            }
            _ => return Err(UnknownReportFormat),
        }
        let of = |gauge| values.iter().filter(move |it| it.0 == gauge).map(|it| it.1);
        let sum = |gauge| of(gauge).map(known).reduce(|sum, it| Some(sum? + it?))?;
        let engines = of(Gauge::KvUsage).count();
        Ok(Self {
            running: sum(Gauge::Running),
            waiting: sum(Gauge::Waiting),
            kv_usage: sum(Gauge::KvUsage).map(|sum| (sum / engines as f64).min(1.0)),
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Gauge {
    KvUsage,
    Running,
    Waiting,
}

impl Gauge {
    fn named(name: &str) -> Option<Self> {
        match name.strip_prefix("named_metrics.").unwrap_or(name) {
            "kv_cache_usage_perc" => Some(Self::KvUsage),
            "num_requests_running" => Some(Self::Running),
            "num_requests_waiting" => Some(Self::Waiting),
            _ => None,
        }
    }
}

impl fmt::Display for UnknownReportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the load report is neither TEXT nor JSON")
    }
}

fn known(value: f64) -> Option<f64> {
    (value.is_finite() && 0.0 <= value).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn both_forms_are_read_and_engines_are_taken_together() {
        let report = |running, waiting, kv_usage| {
            Ok(LoadReport {
                running,
                waiting,
                kv_usage,
            })
        };
        for (header, expected) in [
            (
                "TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=3.0",
                report(None, Some(3.0), Some(0.4)),
            ),
            (
                "TEXT named_metrics.kv_cache_usage_perc=0.5,named_metrics.kv_cache_usage_perc=0.25,\
                 named_metrics.num_requests_waiting=1,named_metrics.num_requests_waiting=2",
                report(None, Some(3.0), Some(0.375)),
            ),
            (
                r#"JSON {"named_metrics":{"kv_cache_usage_perc":0.4,"num_requests_running":2}}"#,
                report(Some(2.0), None, Some(0.4)),
            ),
            (
                "TEXT cpu_utilization=0.3, named_metrics.kv_cache_usage_perc=7, \
                 named_metrics.num_requests_waiting=NaN, named_metrics.num_requests_running=-1, x",
                report(None, None, Some(1.0)),
            ),
            ("TEXT ", Err(UnknownReportFormat)),
            ("TEXT x", report(None, None, None)),
            ("JSON [", Err(UnknownReportFormat)),
            ("JSON []", report(None, None, None)),
            ("BIN CgA=", Err(UnknownReportFormat)),
            ("", Err(UnknownReportFormat)),
        ] {
            assert_eq!(LoadReport::parse(header), expected, "{header}");
        }
    }
}
