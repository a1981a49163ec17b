//! Which API a path belongs to.

use alloc::string::String;

/// The API whose bodies a path takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// `OpenAI` chat: `messages`, perhaps `tools`.
    ChatCompletions,
    /// The prompt that a chat would have; the body is that of a chat.
    ChatRender,
    /// Classes of texts: `input` as text, token ids, or a list of either; or `messages`.
    Classify,
    /// `OpenAI` completions: `prompt` as text, token ids, or a list of either.
    Completions,
    /// The prompts that a completion would have; the body is that of a completion.
    CompletionsRender,
    /// `OpenAI` conversations: `items` as in responses.
    Conversations,
    /// The length of a prompt of the Anthropic API; the body is that of messages.
    CountTokens,
    /// Vectors of texts: `input` as in classify, or `messages`.
    Embeddings,
    /// `vLLM`'s API for tokens: `token_ids`, and the hashes of images among them.
    Generate,
    /// `OpenAI` images: `prompt` as text.
    ImageGenerations,
    /// Anthropic messages: `messages` of blocks, perhaps `system` and `tools`.
    Messages,
    /// Vectors and scores: `input` as in classify, or `messages`.
    Pooling,
    /// A `query` and the `documents` to sort by it.
    Rerank,
    /// `OpenAI` responses: `input` as text or items, perhaps `instructions` and `tools`.
    Responses,
    /// One text and others to compare it with.
    Score,
    /// `SGLang`'s own API: `text` or `input_ids`.
    SglangGenerate,
    /// The tokens of a `prompt`, or of `messages` and `tools`.
    Tokenize,
    /// `OpenAI` transcriptions and translations: a form with a sound file.
    Transcriptions,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::ChatCompletions,
        Self::ChatRender,
        Self::Classify,
        Self::Completions,
        Self::CompletionsRender,
        Self::Conversations,
        Self::CountTokens,
        Self::Embeddings,
        Self::Generate,
        Self::ImageGenerations,
        Self::Messages,
        Self::Pooling,
        Self::Rerank,
        Self::Responses,
        Self::Score,
        Self::SglangGenerate,
        Self::Tokenize,
        Self::Transcriptions,
    ];

    /// The shape of the bodies sent to `path`, or `None` when no shape is known for it.
    ///
    /// The query is cut off and one `/` at the end is tolerated. What is left has to be the path
    /// that engines serve, such as `/v1/chat/completions` or `/rerank`; or it begins with one of
    /// `prefixes`, at a `/`, and ends with a known name, of which the longest counts. So the
    /// prefix `/openai` admits `/openai/v1/chat/completions`, `/openai/chat/completions` and
    /// `/openai/deployments/NAME/chat/completions`. A `/` at the end of a prefix means nothing;
    /// the prefix `/` admits everything with a known end.
    ///
    /// Other spellings (`//`, capitals, a `#`) are no shape: what the server makes of them is
    /// not known here.
    pub fn of_path(path: &str, prefixes: &[String]) -> Option<Self> {
        let path = plain(path)?;
        let is_served = |(name, roots, _): &&(&str, &[&str], Self)| is_served(path, name, roots);
        let ends_below_a_prefix =
            |(name, _, _): &&(&str, &[&str], Self)| ends_below(path, prefixes, name);
        let served = ROUTES.iter().find(is_served);
        let found = served.or_else(|| ROUTES.iter().find(ends_below_a_prefix));
        found.map(|(_, _, shape)| *shape)
    }

    /// The name in reports: the path of the API without its version.
    pub fn name(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat/completions",
            Self::ChatRender => "chat/completions/render",
            Self::Classify => "classify",
            Self::Completions => "completions",
            Self::CompletionsRender => "completions/render",
            Self::Conversations => "conversations",
            Self::CountTokens => "messages/count_tokens",
            Self::Embeddings => "embeddings",
            Self::Generate => "inference/v1/generate",
            Self::ImageGenerations => "images/generations",
            Self::Messages => "messages",
            Self::Pooling => "pooling",
            Self::Rerank => "rerank",
            Self::Responses => "responses",
            Self::Score => "score",
            Self::SglangGenerate => "generate",
            Self::Tokenize => "tokenize",
            Self::Transcriptions => "audio/transcriptions",
        }
    }

    /// Whether a request of this shape leaves its prompt in the server's cache, or finds it there.
    pub(crate) fn is_cached(self) -> bool {
        !matches!(
            self,
            Self::ChatRender
                | Self::CompletionsRender
                | Self::CountTokens
                | Self::ImageGenerations
                | Self::Tokenize
                | Self::Transcriptions
        )
    }
}

/// Whether `path` is that of the list of models, written as those of shapes.
pub(crate) fn is_model_list(path: &str, prefixes: &[String]) -> bool {
    plain(path)
        .is_some_and(|path| is_served(path, MODELS, &["/v1"]) || ends_below(path, prefixes, MODELS))
}

/// A path without query, and without one `/` at its end; `None` for spellings that are no shape.
fn plain(path: &str) -> Option<&str> {
    let path = path.split_once('?').map_or(path, |(path, _query)| path);
    let path = path.strip_suffix('/').unwrap_or(path);
    (!path.contains("//") && !path.contains('#')).then_some(path)
}

fn is_served(path: &str, name: &str, roots: &[&str]) -> bool {
    let root = path.strip_suffix(name);
    root.is_some_and(|root| roots.contains(&root))
}

fn ends_below(path: &str, prefixes: &[String], name: &str) -> bool {
    prefixes.iter().any(|prefix| {
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        path.strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with('/') && rest.ends_with(name))
    })
}

/// The end of the path of the list of models.
const MODELS: &str = "/models";

/// The ends of paths, where each of them is served, and its shape.
///
/// A name stands before those that it ends with.
const ROUTES: [(&str, &[&str], Shape); 19] = [
    ("/chat/completions/render", &["/v1"], Shape::ChatRender),
    ("/completions/render", &["/v1"], Shape::CompletionsRender),
    ("/chat/completions", &["/v1"], Shape::ChatCompletions),
    ("/completions", &["/v1"], Shape::Completions),
    ("/responses", &["/v1"], Shape::Responses),
    ("/conversations", &["/v1"], Shape::Conversations),
    ("/embeddings", &["/v1"], Shape::Embeddings),
    ("/images/generations", &["/v1"], Shape::ImageGenerations),
    ("/messages/count_tokens", &["/v1"], Shape::CountTokens),
    ("/messages", &["/v1"], Shape::Messages),
    ("/audio/transcriptions", &["/v1"], Shape::Transcriptions),
    ("/audio/translations", &["/v1"], Shape::Transcriptions),
    ("/inference/v1/generate", &[""], Shape::Generate),
    ("/generate", &[""], Shape::SglangGenerate),
    ("/rerank", &["", "/v1", "/v2"], Shape::Rerank),
    ("/score", &["", "/v1"], Shape::Score),
    ("/tokenize", &["", "/v1"], Shape::Tokenize),
    ("/pooling", &["", "/v1"], Shape::Pooling),
    ("/classify", &["", "/v1"], Shape::Classify),
];

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[track_caller]
    fn check(prefixes: &[&str], path: &str, shape: Option<Shape>) {
        let prefixes: alloc::vec::Vec<_> = prefixes.iter().map(ToString::to_string).collect();
        assert_eq!(Shape::of_path(path, &prefixes), shape, "{path}");
    }

    #[test]
    fn the_list_of_models_is_known_like_a_shape() {
        let prefixes = ["/openai/".to_string()];
        for (path, expected) in [
            ("/v1/models", true),
            ("/v1/models/?a=b", true),
            ("/models", false),
            ("/v1/models/a", false),
            ("/v2/models", false),
            ("/v1//models", false),
            ("/v1/Models", false),
            ("/openai/models", true),
            ("/openai/v1/models", true),
            ("/openaix/models", false),
        ] {
            assert_eq!(is_model_list(path, &prefixes), expected, "{path}");
            assert_eq!(Shape::of_path(path, &prefixes), None, "{path}");
        }
        assert!(!is_model_list("/openai/models", &[]));
    }

    #[test]
    fn the_query_and_one_slash_at_the_end_do_not_matter() {
        for end in [
            "",
            "/",
            "?",
            "?api-version=2024-10-21",
            "/?a=/v1/completions#",
        ] {
            let chat = "/v1/chat/completions".to_string() + end;
            check(&[], &chat, Some(Shape::ChatCompletions));
            check(
                &[],
                &("/v1/completions".to_string() + end),
                Some(Shape::Completions),
            );
        }
    }

    #[test]
    fn odd_spellings_have_no_shape() {
        for path in [
            "",
            "/",
            "*",
            "/v1/completions//",
            "//v1//chat/completions",
            "/v1/Chat/Completions",
            "/V1/chat/completions",
            "/v1/chat/completions#x",
            "v1/chat/completions",
            "/chat/completions",
            "/v1/chat/completions/batch",
            "/v1/xcompletions",
            "/v1/x/completions",
            "/openai/v1/completions",
            "/v1completions",
        ] {
            check(&[], path, None);
        }
    }

    #[test]
    fn below_a_prefix_the_end_of_the_path_decides() {
        for path in [
            "/openai/v1/chat/completions",
            "/openai/chat/completions",
            "/openai/deployments/a/chat/completions?api-version=1",
            "/v1/chat/completions",
        ] {
            check(&["/x", "/openai"], path, Some(Shape::ChatCompletions));
            check(&["/openai/", "/x"], path, Some(Shape::ChatCompletions));
            check(&["/"], path, Some(Shape::ChatCompletions));
        }
        check(
            &["/openai"],
            "/openai/completions",
            Some(Shape::Completions),
        );
        for path in [
            "/openaiv1/completions",
            "/openai/v1/xcompletions",
            "/openai/v1/completions/batch",
            "/openai//completions",
            "/openai",
            "/a/openai/completions",
        ] {
            check(&["/openai"], path, None);
        }
    }

    #[test]
    fn of_prefixes_that_fit_the_one_with_the_longest_known_end_counts() {
        let prefixes = ["/a/chat", "/a", "/a/b"];
        check(&prefixes, "/a/b/completions", Some(Shape::Completions));
        check(
            &prefixes,
            "/a/chat/completions",
            Some(Shape::ChatCompletions),
        );
        check(
            &["/a/completions", "/a"],
            "/a/completions",
            Some(Shape::Completions),
        );
    }

    #[test]
    fn every_path_that_engines_serve_has_its_shape() {
        for (path, shape) in [
            ("/v1/chat/completions/render", Shape::ChatRender),
            ("/v1/completions/render", Shape::CompletionsRender),
            ("/v1/responses", Shape::Responses),
            ("/v1/conversations", Shape::Conversations),
            ("/v1/embeddings", Shape::Embeddings),
            ("/v1/images/generations", Shape::ImageGenerations),
            ("/v1/messages?beta=true", Shape::Messages),
            ("/v1/messages/count_tokens", Shape::CountTokens),
            ("/v1/audio/transcriptions", Shape::Transcriptions),
            ("/v1/audio/translations", Shape::Transcriptions),
            ("/inference/v1/generate", Shape::Generate),
            ("/generate", Shape::SglangGenerate),
            ("/rerank", Shape::Rerank),
            ("/v2/rerank", Shape::Rerank),
            ("/v1/score", Shape::Score),
            ("/tokenize", Shape::Tokenize),
            ("/pooling", Shape::Pooling),
            ("/classify", Shape::Classify),
        ] {
            check(&[], path, Some(shape));
            let path = "/models/a".to_string() + path;
            check(&[], &path, None);
            check(&["/models"], &path, Some(shape));
        }
        for path in [
            "/v1/generate",
            "/messages",
            "/v3/rerank",
            "/v1/responses/resp_1",
            "/v1/models",
        ] {
            check(&[], path, None);
        }
    }

    #[test]
    fn no_name_hides_a_longer_one() {
        for (at, (name, _, _)) in ROUTES.iter().enumerate() {
            let longer = ROUTES.iter().skip(at + 1).find(|it| it.0.ends_with(name));
            assert_eq!(longer, None, "{name}");
        }
    }
}
