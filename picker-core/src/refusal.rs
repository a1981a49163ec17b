//! Answers of ours in place of an endpoint's.

use alloc::format;
use alloc::string::String;
use core::fmt;

/// Why a request goes to no endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The body is longer than the pool's `limits.requestBodyBytes`.
    BodyTooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// No endpoint of the pool can be used, and its `failureMode` is `FailClose`.
    NoEndpoint,
}

impl Refusal {
    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::BodyTooLarge { .. } => 413,
            Self::NoEndpoint => 503,
        }
    }

    /// The value of `x-llm-d-request-dropped-reason`, also told in the access log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::BodyTooLarge { .. } => "rejected-body-too-large",
            Self::NoEndpoint => "rejected-no-endpoints",
        }
    }

    /// The body: an error object as `OpenAI` clients expect it.
    pub fn body(self) -> String {
        let kind = match self {
            Self::BodyTooLarge { .. } => "invalid_request_error",
            Self::NoEndpoint => "service_unavailable_error",
        };
        let code = self.status();
        format!(r#"{{"error":{{"message":"{self}","type":"{kind}","param":null,"code":{code}}}}}"#)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BodyTooLarge { limit } => {
                write!(
                    f,
                    "the request body is larger than limits.requestBodyBytes ({limit} bytes)"
                )
            }
            Self::NoEndpoint => f.write_str("no endpoint of the pool can take this request"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_refusal_answers_in_the_shape_of_the_api() {
        for (refusal, status) in [
            (Refusal::BodyTooLarge { limit: 5 }, 413),
            (Refusal::NoEndpoint, 503),
        ] {
            let body: serde_json::Value = serde_json::from_str(&refusal.body()).unwrap();
            assert_eq!(body["error"]["code"], status);
            assert!(body["error"]["message"].is_string());
            assert!(refusal.reason().starts_with("rejected-"));
        }
    }
}
