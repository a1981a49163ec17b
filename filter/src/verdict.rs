//! What a response says about the endpoint, and Envoy about the response.

use picker_core::{ResponseSummary, Verdict};

use crate::host;

/// What the status says, whoever wrote it.
pub(crate) fn of_status(status: &str) -> Option<Verdict> {
    let verdict = Verdict::of_status(status.parse().ok()?)?;
    if verdict == Verdict::Begun {
        return Some(verdict);
    }
    let details = host::text_property(&["response", "code_details"]).unwrap_or_default();
    if details == "via_upstream" {
        Some(verdict)
    } else {
        blame(&details)
    }
}

/// What the end of an answer that began well says; `has_ended` when it is complete.
///
/// A stream that fails has said 200 before, and tells by an event of its own.
pub(crate) fn at_end(answer: &ResponseSummary, has_ended: bool) -> Option<Verdict> {
    if let Some(error) = &answer.error {
        let status = u16::try_from(error.code?).ok()?;
        return Verdict::of_status(status).filter(|verdict| *verdict != Verdict::Begun);
    }
    if has_ended {
        return Some(Verdict::Served);
    }
    let details = host::text_property(&["response", "code_details"])?;
    blame(&details).filter(|verdict| *verdict == Verdict::Failed)
}

/// What Envoy's own account of a response says about the endpoint; `None` where Envoy, another
/// filter or the client has ended it for a reason of its own.
fn blame(details: &str) -> Option<Verdict> {
    if details.contains("connection_failure") || details.contains("connection_timeout") {
        Some(Verdict::Unreachable)
    } else if details.starts_with("upstream") || details.starts_with("response_timeout") {
        Some(Verdict::Failed)
    } else {
        None
    }
}
