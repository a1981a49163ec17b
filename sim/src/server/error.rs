//! Errors as clients see them, in the shape of vLLM's.

use serde_json::Value;

/// An answer that is not what was asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ApiError {
    pub(super) status: u16,
    kind: &'static str,
    message: String,
    param: Option<&'static str>,
}

impl ApiError {
    /// The body cannot be understood.
    pub(super) fn validation(message: &str) -> Self {
        Self {
            status: 400,
            kind: "Bad Request",
            message: format!("1 validation error:\n  {message}"),
            param: None,
        }
    }

    /// A field that must be there is not.
    pub(super) fn missing(field: &'static str) -> Self {
        Self::validation(&format!(
            "{{'type': 'missing', 'loc': ('body', '{field}'), 'msg': 'Field required'}}"
        ))
    }

    /// The prompt fills the context or more.
    pub(super) fn context(tokens_max: usize, prompt_tokens: usize) -> Self {
        Self {
            status: 400,
            kind: "BadRequestError",
            message: format!(
                "This model's maximum context length is {tokens_max} tokens. \
                 However, your prompt contains {prompt_tokens} input tokens."
            ),
            param: Some("input_tokens"),
        }
    }

    /// The model is not served here.
    pub(super) fn model(asked: &str, served: &[String]) -> Self {
        Self {
            status: 404,
            kind: "NotFoundError",
            message: format!(
                "The model `{asked}` does not exist. Valid aliases: {}.",
                served.join(", ")
            ),
            param: Some("model"),
        }
    }

    /// The body is larger than the server reads.
    pub(super) fn too_large() -> Self {
        Self {
            status: 413,
            kind: "BadRequestError",
            message: "The body is too large.".to_owned(),
            param: None,
        }
    }

    /// A fault that a test asked for.
    pub(super) fn fault(status: u16) -> Self {
        let kind = match status {
            503 => "ServiceUnavailableError",
            500.. => "InternalServerError",
            404 => "NotFoundError",
            _ => "BadRequestError",
        };
        let message = "This failure was asked for.".to_owned();
        Self {
            status,
            kind,
            message,
            param: None,
        }
    }

    /// The body, with the fields in the order of the real one.
    pub(super) fn to_body(&self) -> String {
        let message = Value::from(self.message.as_str());
        let (kind, param, code) = (self.kind, Value::from(self.param), self.status);
        format!(
            r#"{{"error":{{"message":{message},"type":"{kind}","param":{param},"code":{code}}}}}"#
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_model_reads_as_the_real_server_writes_it() {
        let real = include_str!("../../../tests/fixtures/responses/error-404-model.json");
        let served = ["Qwen/Qwen3-0.6B".to_owned(), "chat".to_owned()];
        assert_eq!(ApiError::model("nope", &served).to_body(), real.trim_end());
    }
}
