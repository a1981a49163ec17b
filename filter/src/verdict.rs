//! What the status of a response says about the endpoint, and Envoy about the status.

use picker_core::Verdict;

use crate::host;

/// What the response says about the endpoint, whoever wrote it.
pub(crate) fn verdict(status: &str) -> Option<Verdict> {
    let verdict = Verdict::of_status(status.parse().ok()?)?;
    if verdict == Verdict::Served {
        return Some(verdict);
    }
    let details = host::text_property(&["response", "code_details"]).unwrap_or_default();
    if details == "via_upstream" {
        Some(verdict)
    } else if details.contains("connection_failure") || details.contains("connection_timeout") {
        Some(Verdict::Unreachable)
    } else if details.starts_with("upstream") || details.starts_with("response_timeout") {
        Some(Verdict::Failed)
    } else {
        // Envoy or another filter answered for a reason of its own.
        None
    }
}
