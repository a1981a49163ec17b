//! Which members of a response are read, and as what.

/// An object or list that is entered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Root,
    /// One choice of an `OpenAI` answer.
    Choice,
    Choices,
    /// What changes: `message_delta` of the Anthropic API.
    Delta,
    /// The parts of a token count.
    Details,
    Error,
    /// The reason to finish, as an object of the `SGLang` API.
    Finish,
    /// The message of the Anthropic API, in its first event.
    Message,
    /// The response object in an event of the Responses API.
    Response,
    /// The token counts; `first` in the first event of the Anthropic API.
    Usage {
        first: bool,
    },
}

/// What a value means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Choice,
    Choices,
    Code,
    Count(Count),
    Delta,
    /// What `FastAPI` says instead of an answer.
    Detail,
    Details,
    Error,
    ErrorKind,
    Finish,
    Ignored,
    Message,
    Model,
    Object,
    Response,
    /// A reason to finish, unless it says that the response goes on.
    Status,
    Type,
    Usage,
    /// The token counts and the reason to finish of the `SGLang` API.
    MetaInfo,
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    /// Prompt tokens found in the cache.
    Cached,
    /// Prompt tokens written to the cache, beside `Input`.
    CacheCreation,
    /// Prompt tokens found in the cache, beside `Input`.
    CacheRead,
    /// Prompt tokens, perhaps without the cached ones.
    Input,
    Output,
    /// All prompt tokens.
    Prompt,
}

impl Place {
    /// What the member `key` means.
    pub(super) fn member(self, key: &[u8]) -> Field {
        match self {
            Self::Root => root_member(key),
            Self::Choice if key == b"finish_reason" => Field::Finish,
            Self::Delta if key == b"stop_reason" => Field::Finish,
            Self::Details if key == b"cached_tokens" => Field::Count(Count::Cached),
            Self::Error => match key {
                b"code" => Field::Code,
                b"type" => Field::ErrorKind,
                _ => Field::Ignored,
            },
            Self::Finish if key == b"type" => Field::Finish,
            Self::Message | Self::Response => match key {
                b"error" => Field::Error,
                b"model" => Field::Model,
                b"status" => Field::Status,
                b"stop_reason" => Field::Finish,
                b"usage" => Field::Usage,
                _ => Field::Ignored,
            },
            Self::Usage { .. } => usage_member(key),
            _ => Field::Ignored,
        }
    }
}

fn root_member(key: &[u8]) -> Field {
    match key {
        b"choices" => Field::Choices,
        b"code" => Field::Code,
        b"delta" => Field::Delta,
        b"detail" => Field::Detail,
        b"error" => Field::Error,
        b"error_type" => Field::ErrorKind,
        b"message" => Field::Message,
        b"meta_info" => Field::MetaInfo,
        b"model" => Field::Model,
        b"object" => Field::Object,
        b"response" => Field::Response,
        b"status" => Field::Status,
        b"stop_reason" => Field::Finish,
        b"type" => Field::Type,
        b"usage" => Field::Usage,
        _ => Field::Ignored,
    }
}

fn usage_member(key: &[u8]) -> Field {
    Field::Count(match key {
        b"cache_creation_input_tokens" => Count::CacheCreation,
        b"cache_read_input_tokens" => Count::CacheRead,
        b"cached_tokens" | b"prompt_cache_hit_tokens" => Count::Cached,
        b"completion_tokens" | b"output_tokens" => Count::Output,
        b"input_tokens" => Count::Input,
        b"prompt_tokens" => Count::Prompt,
        b"finish_reason" => return Field::Finish,
        b"input_tokens_details" | b"prompt_tokens_details" => return Field::Details,
        _ => return Field::Ignored,
    })
}

/// Bytes of a key that are looked at: no key above is longer than 27.
pub(super) const KEY_BYTES_MAX: usize = 32;
