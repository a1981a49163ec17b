//! Answers of ours in place of an endpoint's.

use alloc::format;
use alloc::string::String;
use core::fmt;

use crate::request::RequestFault;
use crate::shape::Shape;

/// Why a request goes to no endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The path is one of `paths.admin`.
    AdminPath,
    /// The body is longer than the pool's `limits.requestBodyBytes`.
    BodyTooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// It was running, and made room for requests that matter more.
    Evicted,
    /// No endpoint passes the filters of the pool's plan.
    Filtered,
    /// No endpoint that decodes passes the filters of the pool's plan.
    NoDecode,
    /// It names its model in such a way that no other name can be put there.
    ModelUnclear,
    /// No endpoint of the pool can be used, and its `failureMode` is `FailClose`.
    NoEndpoint,
    /// No profile of the pool's plan is for this request.
    NoProfile,
    /// The request is only for an endpoint that holds some of its prompt, and the chosen one holds
    /// nothing of it.
    NotCached,
    /// An admitter of the pool's plan does not let it pass.
    NotAdmitted,
    /// As many requests wait as may.
    QueueFull,
    /// As many requests wait as may, and there is no endpoint.
    QueueFullWithoutEndpoint,
    /// The endpoints are full.
    Saturated,
    /// The configuration under which it waited is gone.
    ShuttingDown,
    /// No pool serves the model that it names, and the configuration has `strictModels`.
    UnknownModel,
    /// The body cannot be read, and the configuration is `strict`.
    Unreadable(RequestFault),
    /// It has waited for its turn as long as it may.
    WaitedTooLong,
    /// It has waited for an endpoint as long as it may.
    WaitedWithoutEndpoint,
}

impl Refusal {
    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::AdminPath => 403,
            Self::BodyTooLarge { .. } => 413,
            Self::NotCached => 412,
            Self::NoEndpoint
            | Self::QueueFullWithoutEndpoint
            | Self::ShuttingDown
            | Self::WaitedWithoutEndpoint => 503,
            Self::UnknownModel => 404,
            Self::ModelUnclear | Self::Unreadable(_) => 400,
            Self::Evicted
            | Self::Filtered
            | Self::NoDecode
            | Self::NoProfile
            | Self::NotAdmitted
            | Self::QueueFull
            | Self::Saturated
            | Self::WaitedTooLong => 429,
        }
    }

    /// Whether the pool's `failureMode` decides that it is none: Envoy can still serve the request.
    pub fn may_fail_open(self) -> bool {
        self == Self::NoEndpoint
    }

    /// The value of `x-llm-d-request-dropped-reason`, also told in the access log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::AdminPath => "admin-path",
            Self::BodyTooLarge { .. } => "rejected-body-too-large",
            Self::Evicted => "evicted",
            Self::Filtered
            | Self::NoDecode
            | Self::NotAdmitted
            | Self::QueueFull
            | Self::Saturated => "rejected-saturated",
            Self::NoEndpoint | Self::QueueFullWithoutEndpoint | Self::WaitedWithoutEndpoint => {
                "rejected-no-endpoints"
            }
            Self::ShuttingDown => "rejected-shutting-down",
            Self::WaitedTooLong => "rejected-ttl-expired",
            Self::NoProfile => "rejected-no-profile",
            Self::NotCached => "rejected-not-cached",
            Self::ModelUnclear => "rejected-unclear-model",
            Self::UnknownModel => "rejected-unknown-model",
            Self::Unreadable(_) => "rejected-unreadable-body",
        }
    }

    /// The body: an error as the clients of the API expect it, of the `OpenAI` API by default.
    pub fn body(self, shape: Option<Shape>) -> String {
        let code = self.status();
        match shape {
            Some(Shape::CountTokens | Shape::Messages) => {
                let kind = match self {
                    Self::AdminPath => "permission_error",
                    Self::BodyTooLarge { .. } => "request_too_large",
                    Self::UnknownModel => "not_found_error",
                    Self::ModelUnclear | Self::NotCached | Self::Unreadable(_) => {
                        "invalid_request_error"
                    }
                    _ if code == 503 => "overloaded_error",
                    _ => "rate_limit_error",
                };
                format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{self}"}}}}"#)
            }
            Some(Shape::SglangGenerate) => {
                let kind = self.kind();
                format!(
                    r#"{{"object":"error","message":"{self}","type":"{kind}","param":null,"code":{code}}}"#
                )
            }
            _ => {
                let kind = self.kind();
                format!(
                    r#"{{"error":{{"message":"{self}","type":"{kind}","param":null,"code":{code}}}}}"#
                )
            }
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::AdminPath => "permission_denied_error",
            Self::BodyTooLarge { .. }
            | Self::ModelUnclear
            | Self::NotCached
            | Self::Unreadable(_) => "invalid_request_error",
            Self::UnknownModel => "not_found_error",
            _ if self.status() == 503 => "service_unavailable_error",
            _ => "rate_limit_error",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AdminPath => f.write_str("the path administers a server (paths.admin)"),
            Self::BodyTooLarge { limit } => {
                write!(
                    f,
                    "the request body is larger than limits.requestBodyBytes ({limit} bytes)"
                )
            }
            Self::Filtered => f.write_str("no endpoints available for the given request"),
            Self::NoDecode => f.write_str("failed to find available decode workers"),
            Self::Evicted => f.write_str("request evicted by flow control"),
            Self::NotAdmitted => f.write_str("request cannot be admitted: the pool is saturated"),
            Self::QueueFull => f.write_str("the queue is full"),
            Self::QueueFullWithoutEndpoint => {
                f.write_str("no endpoints available: the queue is full")
            }
            Self::Saturated => f.write_str("system saturated, sheddable request dropped"),
            Self::ShuttingDown => {
                f.write_str("flow controller shutting down: the configuration has changed")
            }
            Self::WaitedTooLong => f.write_str("request timed out in queue: the pool is saturated"),
            Self::WaitedWithoutEndpoint => f.write_str(
                "request timed out in queue and no endpoints are available: none became ready",
            ),
            Self::NoEndpoint => f.write_str("no endpoint of the pool can take this request"),
            Self::NoProfile => f.write_str("no scheduling profile is for the given request"),
            Self::NotCached => f.write_str("no decode worker has the requested KV cache"),
            Self::ModelUnclear => {
                f.write_str("the model is named too often, or in a form with an odd boundary")
            }
            Self::UnknownModel => f.write_str("no server here has the requested model"),
            Self::Unreadable(RequestFault::Undecodable) => {
                write!(f, "{} (strict)", RequestFault::Undecodable)
            }
            // A client that compresses cannot find the byte in what it sent.
            Self::Unreadable(fault) => write!(f, "{fault}, once decoded (strict)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use serde_json::{Value, json};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// A status, and the types of error that go with it in the APIs of `OpenAI` and of Anthropic.
    type Kinds = (u16, &'static str, &'static str);

    const FORBIDDEN: Kinds = (403, "permission_denied_error", "permission_error");
    const TOO_LARGE: Kinds = (413, "invalid_request_error", "request_too_large");
    const UNREADABLE: Kinds = (400, "invalid_request_error", "invalid_request_error");
    const NOT_FOUND: Kinds = (404, "not_found_error", "not_found_error");
    const NOT_CACHED: Kinds = (412, "invalid_request_error", "invalid_request_error");
    const FULL: Kinds = (429, "rate_limit_error", "rate_limit_error");
    const NOBODY: Kinds = (503, "service_unavailable_error", "overloaded_error");

    #[test]
    fn a_refusal_answers_in_the_shape_of_the_api() {
        for (refusal, (status, openai, anthropic)) in [
            (Refusal::AdminPath, FORBIDDEN),
            (Refusal::BodyTooLarge { limit: 5 }, TOO_LARGE),
            (Refusal::Evicted, FULL),
            (Refusal::Filtered, FULL),
            (Refusal::NoDecode, FULL),
            (Refusal::NoEndpoint, NOBODY),
            (Refusal::NoProfile, FULL),
            (Refusal::NotAdmitted, FULL),
            (Refusal::NotCached, NOT_CACHED),
            (Refusal::QueueFull, FULL),
            (Refusal::QueueFullWithoutEndpoint, NOBODY),
            (Refusal::Saturated, FULL),
            (Refusal::ShuttingDown, NOBODY),
            (Refusal::ModelUnclear, UNREADABLE),
            (Refusal::UnknownModel, NOT_FOUND),
            (Refusal::Unreadable(RequestFault::ByteOrderMark), UNREADABLE),
            (Refusal::Unreadable(RequestFault::Undecodable), UNREADABLE),
            (Refusal::WaitedTooLong, FULL),
            (Refusal::WaitedWithoutEndpoint, NOBODY),
        ] {
            assert_eq!(refusal.status(), status, "{refusal:?}");
            let message = refusal.to_string();
            let body = |shape| -> Value { serde_json::from_str(&refusal.body(shape)).unwrap() };
            for shape in Shape::ALL.map(Some).into_iter().chain([None]) {
                let openai = json!({
                    "message": message, "type": openai, "param": null, "code": status,
                });
                let expected = match shape {
                    Some(Shape::CountTokens | Shape::Messages) => json!({
                        "type": "error", "error": {"type": anthropic, "message": message},
                    }),
                    Some(Shape::SglangGenerate) => {
                        let mut flat = openai;
                        flat["object"] = json!("error");
                        flat
                    }
                    _ => json!({"error": openai}),
                };
                assert_eq!(body(shape), expected, "{shape:?}");
            }
        }
    }

    /// The codes by which clients and dashboards of the reference picker tell refusals apart.
    #[test]
    fn a_refusal_says_why_in_one_word() {
        for (reason, refusals) in [
            ("admin-path", &[Refusal::AdminPath][..]),
            (
                "rejected-body-too-large",
                &[Refusal::BodyTooLarge { limit: 5 }],
            ),
            ("evicted", &[Refusal::Evicted]),
            (
                "rejected-saturated",
                &[
                    Refusal::Filtered,
                    Refusal::NoDecode,
                    Refusal::NotAdmitted,
                    Refusal::QueueFull,
                    Refusal::Saturated,
                ],
            ),
            (
                "rejected-no-endpoints",
                &[
                    Refusal::NoEndpoint,
                    Refusal::QueueFullWithoutEndpoint,
                    Refusal::WaitedWithoutEndpoint,
                ],
            ),
            ("rejected-shutting-down", &[Refusal::ShuttingDown]),
            ("rejected-ttl-expired", &[Refusal::WaitedTooLong]),
            ("rejected-no-profile", &[Refusal::NoProfile]),
            ("rejected-not-cached", &[Refusal::NotCached]),
            ("rejected-unclear-model", &[Refusal::ModelUnclear]),
            ("rejected-unknown-model", &[Refusal::UnknownModel]),
            (
                "rejected-unreadable-body",
                &[Refusal::Unreadable(RequestFault::Undecodable)],
            ),
        ] {
            for refusal in refusals {
                assert_eq!(refusal.reason(), reason, "{refusal:?}");
            }
        }
    }
}
