//! Which API a path belongs to.

use alloc::string::String;

/// The API whose bodies a path takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// `OpenAI` chat: `messages`, perhaps `tools`.
    ChatCompletions,
    /// `OpenAI` completions: `prompt` as text, token ids, or a list of either.
    Completions,
}

impl Shape {
    /// The shape of the bodies sent to `path`, or `None` when no shape is known for it.
    ///
    /// The query is cut off and one `/` at the end is tolerated. What is left has to be
    /// `/v1/chat/completions` or `/v1/completions`; or it begins with one of `prefixes`, at a `/`,
    /// and ends with `/chat/completions` or else `/completions`. So the prefix `/openai` admits
    /// `/openai/v1/chat/completions`, `/openai/chat/completions` and
    /// `/openai/deployments/NAME/chat/completions`. A `/` at the end of a prefix means nothing;
    /// the prefix `/` admits everything with a known end.
    ///
    /// Other spellings (`//`, capitals, a `#`) are no shape: what the server makes of them is
    /// not known here.
    pub fn of_path(path: &str, prefixes: &[String]) -> Option<Self> {
        let path = path.split_once('?').map_or(path, |(path, _query)| path);
        let path = path.strip_suffix('/').unwrap_or(path);
        if path.contains("//") || path.contains('#') {
            return None;
        }
        if let Some(suffix) = path.strip_prefix("/v1")
            && let Some(shape) = Self::of_suffix(suffix)
        {
            return Some(shape);
        }
        let ends_below_a_prefix = |suffix| {
            prefixes.iter().any(|prefix| {
                let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
                path.strip_prefix(prefix)
                    .is_some_and(|rest| rest.starts_with('/') && rest.ends_with(suffix))
            })
        };
        // The longer name first: `/completions` ends both.
        if ends_below_a_prefix(CHAT_COMPLETIONS) {
            Some(Self::ChatCompletions)
        } else if ends_below_a_prefix(COMPLETIONS) {
            Some(Self::Completions)
        } else {
            None
        }
    }

    /// The name in reports: the path of the API without its version.
    pub fn name(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat/completions",
            Self::Completions => "completions",
        }
    }

    fn of_suffix(suffix: &str) -> Option<Self> {
        match suffix {
            CHAT_COMPLETIONS => Some(Self::ChatCompletions),
            COMPLETIONS => Some(Self::Completions),
            _ => None,
        }
    }
}

const CHAT_COMPLETIONS: &str = "/chat/completions";
const COMPLETIONS: &str = "/completions";

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
            "/v1/chat/completions/render",
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
            "/openai/v1/completions/render",
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
}
