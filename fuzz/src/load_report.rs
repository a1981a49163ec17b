//! The load report of a response's header: what is read can be true, in either form.

use std::io;

use picker_core::LoadReport;
use serde_json::{Map, Value, json};

/// The header's value.
pub fn check(input: &[u8]) {
    let header = String::from_utf8_lossy(input);
    let Ok(report) = LoadReport::parse(&header) else {
        return;
    };
    let is_count = |gauge: Option<f64>| gauge.is_none_or(|it| it.is_finite() && it >= 0.0);
    assert!(
        is_count(report.running) && is_count(report.waiting),
        "{report:?}"
    );
    let is_fraction = |gauge: Option<f64>| gauge.is_none_or(|it| (0.0..=1.0).contains(&it));
    assert!(is_fraction(report.kv_usage), "{report:?}");
    for text in both_forms(report) {
        assert_eq!(LoadReport::parse(&text), Ok(report), "{text}");
    }
}

/// One header of each form, and what is wrong in many ways.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let texts = [
        "TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=3.0",
        "TEXT named_metrics.num_requests_running=1,named_metrics.num_requests_running=2.5e0",
        "TEXT cpu_utilization=0.3, named_metrics.kv_cache_usage_perc=7, x, num_requests_waiting=NaN",
        r#"JSON {"named_metrics":{"kv_cache_usage_perc":0.4,"num_requests_running":2}}"#,
        r#"JSON {"named_metrics":{"num_requests_waiting":1e308},"mem_utilization":-1}"#,
        "BIN CgA=",
    ];
    Ok(texts.map(|text| text.as_bytes().to_vec()).to_vec())
}

/// The report as a server would write it.
fn both_forms(report: LoadReport) -> [String; 2] {
    let values = [
        ("num_requests_running", report.running),
        ("num_requests_waiting", report.waiting),
        ("kv_cache_usage_perc", report.kv_usage),
    ];
    let known = values
        .iter()
        .filter_map(|(name, value)| Some((*name, (*value)?)));
    let pairs: Vec<String> = known
        .clone()
        .map(|(name, value)| format!("named_metrics.{name}={value}"))
        .collect();
    let object: Map<String, Value> = known
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    let text = format!("TEXT {}", pairs.join(","));
    // Blanks at the end are cut off, and with them the form that says nothing.
    let text = if pairs.is_empty() {
        "TEXT x".into()
    } else {
        text
    };
    [text, format!("JSON {}", json!({"named_metrics": object}))]
}
