//! What is decided of a request before an endpoint is chosen: whose it is, whether its body is
//! needed, and whether it is answered by us.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use crate::config::{Config, Match, Paths, REQUEST_BODY_BYTES};
use crate::refusal::Refusal;
use crate::request::Request;
use crate::shape::{Shape, is_model_list};
use crate::whose::Pools;

/// What the decision needs of a request's headers and of the host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Head<'a> {
    /// `:method`.
    pub method: Cow<'a, str>,
    /// `:path`, with its query.
    pub path: Cow<'a, str>,
    /// `:authority`.
    pub host: Cow<'a, str>,
    /// The Envoy cluster of the route; asked for only when a pool matches by clusters.
    pub cluster: Option<String>,
    /// The name of the route; asked for only when a pool matches by routes.
    pub route: Option<String>,
    /// Whether the headers are all there is.
    pub ends: bool,
    /// Whether the client wants to change the protocol.
    pub upgrades: bool,
    /// Whether the body has a content coding that is not decoded here.
    pub encoded: bool,
    /// `content-length`.
    pub content_length: Option<u64>,
    /// Whether the client takes an answer only from an endpoint that holds some of the prompt, see
    /// [`prefers_cached`].
    pub only_cached: bool,
}

/// How a request goes on after its headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Course {
    /// It belongs to no pool: it goes on untouched.
    Pass,
    /// It is decided by load alone, and its body, if any, streams through. Holds the place of the
    /// pool.
    Decide(usize),
    /// It asks which models there are, which the picker may know: it is answered with these, where
    /// [`Config::model_list`] has some for it, and decided by load else. Holds the pools that it
    /// asks for.
    ListModels(Pools),
    /// It waits for its body. Holds the pools of which one will be its own, none where the body is
    /// only read to tell routes the model; and the API that was called.
    Read(Pools, Shape),
    /// It is answered at once. Holds the place of the pool and the API that was called, if known.
    Refuse(usize, Refusal, Option<Shape>),
}

impl Config {
    /// How a request with this head goes on.
    pub fn course(&self, head: &Head<'_>) -> Course {
        let matching = self.pools.iter().enumerate();
        let matching = matching.filter(|(_, pool)| pool.matches.takes(head));
        let pools: Pools = matching.map(|(place, _)| place).collect();
        let pool = self.default_pool(pools);
        // Holding the headers of an upgrade would wait for a body that comes only after the answer.
        let is_read = !(head.ends || head.upgrades || head.method == "CONNECT" || head.encoded);
        let shape = || Shape::of_path(&head.path, &self.paths.prefixes).filter(|_| is_read);
        let Some(pool) = pool else {
            let shape = self.model_headers.as_ref().and_then(|_| shape());
            return shape.map_or(Course::Pass, |shape| Course::Read(pools, shape));
        };
        if self.paths.is_admin(&head.path) {
            return Course::Refuse(pool, Refusal::AdminPath, None);
        }
        let lists = ["GET", "HEAD"].contains(&&*head.method)
            && self.may_list(pools)
            && is_model_list(&head.path, &self.paths.prefixes);
        if lists {
            return Course::ListModels(pools);
        }
        let Some(shape) = shape() else {
            return Course::Decide(pool);
        };
        let limit = self.body_limit(pools);
        if head.content_length.is_some_and(|length| length > limit) {
            return Course::Refuse(pool, Refusal::BodyTooLarge { limit }, Some(shape));
        }
        Course::Read(pools, shape)
    }

    /// How many bytes a body may have while it is not known to which of these pools it belongs.
    pub fn body_limit(&self, pools: Pools) -> u64 {
        let limits = pools.iter().filter_map(|it| self.pools.get(it));
        let largest = limits.map(|it| it.limits.request_body_bytes).max();
        largest.unwrap_or(REQUEST_BODY_BYTES)
    }

    /// Why a request that was read is answered by us all the same: its body cannot be read, and the
    /// configuration is `strict`.
    ///
    /// A body that is JSON is for the server to judge, whatever stands in it. So is one with a
    /// coding that is not decoded here, or that needs more memory than there is for it.
    pub fn refusal(&self, request: &Request) -> Option<Refusal> {
        let mut faults = request.faults.iter().filter(|_| self.strict);
        let fault = faults.find(|fault| fault.is_of_bytes())?;
        Some(Refusal::Unreadable(*fault))
    }
}

impl Paths {
    /// Whether a path ends with one of the administrative ones, as a server reads it.
    ///
    /// What stands before the end does not matter, for the route may cut it off.
    fn is_admin(&self, path: &str) -> bool {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let path = unescaped(path.as_bytes());
        let end = path.iter().rposition(|byte| *byte != b'/');
        let path = path.get(..=end.unwrap_or(0)).unwrap_or_default();
        self.admin
            .iter()
            .any(|admin| path.ends_with(admin.as_bytes()))
    }
}

impl Match {
    /// Whether every kind of condition that is given has one that fits.
    fn takes(&self, head: &Head<'_>) -> bool {
        let is = |wanted: &[String], found: Option<&str>| {
            wanted.is_empty() || wanted.iter().any(|wanted| Some(wanted.as_str()) == found)
        };
        let host = match head.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => &head.host,
        };
        let is_host = |wanted: &String| {
            wanted.eq_ignore_ascii_case(host) || wanted.eq_ignore_ascii_case(&head.host)
        };
        is(&self.clusters, head.cluster.as_deref())
            && is(&self.routes, head.route.as_deref())
            && (self.hosts.is_empty() || self.hosts.iter().any(is_host))
            && (self.path_prefixes.is_empty()
                || self
                    .path_prefixes
                    .iter()
                    .any(|prefix| head.path.starts_with(prefix.as_str())))
    }
}

/// A path without its percent-escapes; what is none is kept.
fn unescaped(path: &[u8]) -> Cow<'_, [u8]> {
    if !path.contains(&b'%') {
        return Cow::Borrowed(path);
    }
    let digit = |byte: u8| (byte as char).to_digit(16);
    let (mut rest, mut out) = (path, Vec::with_capacity(path.len()));
    while let Some((&byte, later)) = rest.split_first() {
        rest = later;
        out.push(byte);
        if let (b'%', [high, low, later @ ..]) = (byte, later)
            && let Some(escaped) = digit(*high).zip(digit(*low))
        {
            out.pop();
            out.push((escaped.0 << 4 | escaped.1) as u8);
            rest = later;
        }
    }
    Cow::Owned(out)
}

/// Whether a `prefer` header says that a request is only for an endpoint that holds some of its
/// prompt.
pub fn prefers_cached(value: &[u8]) -> bool {
    let mut tokens = value.split(|byte| *byte == b',');
    tokens.any(|it| it.trim_ascii().eq_ignore_ascii_case(b"if-available"))
}

/// What `modelHeaders` writes: the model of a request, and the model that it is an adapter of.
pub const MODEL_HEADERS: [&str; 2] = ["x-gateway-model-name", "x-gateway-base-model-name"];

/// Request headers that only the picker may set: a client's are removed before anything else.
pub const OWNED_HEADERS: [&str; 10] = [
    "x-gateway-destination-endpoint",
    "x-gateway-destination-endpoint-served",
    "x-gateway-destination-endpoint-subset",
    "x-prefiller-host-port",
    "x-encoder-hosts-ports",
    "x-data-parallel-host-port",
    "x-kv-cache-source-host-port",
    MODEL_HEADERS[0],
    MODEL_HEADERS[1],
    "test-epp-endpoint-selection",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::HashSeed;
    use crate::config::{Role, parse};
    use crate::request::RequestFault;
    use crate::scan::RequestScanner;
    use alloc::boxed::Box;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn config(json: &str) -> Box<Config> {
        match parse(json.as_bytes()) {
            Ok(Role::Filter(config)) => config,
            other => panic!("{other:?}"),
        }
    }

    fn only() -> Pools {
        [0].into_iter().collect()
    }

    fn chat() -> Head<'static> {
        Head {
            method: "POST".into(),
            path: "/v1/chat/completions".into(),
            ..Head::default()
        }
    }

    #[test]
    fn only_a_known_shape_with_a_plain_body_is_read() {
        let config = config(
            r#"{"pools":[{"name":"a","endpoints":[{"address":"1.1.1.1:1"}],
                "limits":{"requestBodyBytes":1000}}]}"#,
        );
        let too_large = Refusal::BodyTooLarge { limit: 1000 };
        for (head, course) in [
            (chat(), Course::Read(only(), Shape::ChatCompletions)),
            (
                Head {
                    ends: true,
                    ..chat()
                },
                Course::Decide(0),
            ),
            (
                Head {
                    upgrades: true,
                    ..chat()
                },
                Course::Decide(0),
            ),
            (
                Head {
                    encoded: true,
                    ..chat()
                },
                Course::Decide(0),
            ),
            (
                Head {
                    method: "CONNECT".into(),
                    ..chat()
                },
                Course::Decide(0),
            ),
            (
                Head {
                    path: "/upload".into(),
                    ..chat()
                },
                Course::Decide(0),
            ),
            (
                Head {
                    content_length: Some(1000),
                    ..chat()
                },
                Course::Read(only(), Shape::ChatCompletions),
            ),
            (
                Head {
                    content_length: Some(1001),
                    ..chat()
                },
                Course::Refuse(0, too_large, Some(Shape::ChatCompletions)),
            ),
            (
                Head {
                    path: "/upload".into(),
                    content_length: Some(1 << 30),
                    ..chat()
                },
                Course::Decide(0),
            ),
        ] {
            assert_eq!(config.course(&head), course, "{head:?}");
        }
    }

    #[test]
    fn the_list_of_models_is_asked_for_by_its_path_where_the_pool_names_some() {
        let document = |models| {
            config(&alloc::format!(
                r#"{{"pools":[{{"name":"a","endpoints":[{{"address":"1.1.1.1:1"}}],
                "models":[{models}]}}],"paths":{{"prefixes":["/llm"]}}}}"#
            ))
        };
        let [named, pattern, none] = [r#""m""#, r#""m*""#, ""].map(document);
        let (lists, decides) = (Course::ListModels(only()), Course::Decide(0));
        for (config, method, path, course) in [
            (&named, "GET", "/v1/models", lists),
            (&named, "HEAD", "/v1/models/?a", lists),
            (&named, "GET", "/llm/models", lists),
            (&named, "POST", "/v1/models", decides),
            (&named, "get", "/v1/models", decides),
            (&named, "GET", "/v1/models/m", decides),
            (&named, "GET", "/models", decides),
            (&pattern, "GET", "/v1/models", decides),
            (&none, "GET", "/v1/models", decides),
        ] {
            let head = Head {
                method: method.into(),
                path: path.into(),
                ends: true,
                ..Head::default()
            };
            assert_eq!(config.course(&head), course, "{method} {path}");
        }
    }

    #[test]
    fn administrative_paths_are_refused_however_they_are_written() {
        let document = |paths| {
            config(&alloc::format!(
                r#"{{"pools":[{{"name":"a","endpoints":[{{"address":"1.1.1.1:1"}}],
                "match":{{"hosts":["a"]}}}}],"paths":{{{paths}}}}}"#
            ))
        };
        let head = |host: &'static str, path: &'static str| Head {
            path: path.into(),
            host: host.into(),
            ends: true,
            ..chat()
        };
        let config = document("");
        let refused = Course::Refuse(0, Refusal::AdminPath, None);
        for path in [
            "/sleep",
            "/sleep?level=2",
            "/sleep//",
            "//sleep",
            "/%73leep",
            "/sle%65p%2F",
            "/llm/v1/load_lora_adapter",
            "/reset_prefix_cache#",
        ] {
            assert_eq!(config.course(&head("a", path)), refused, "{path}");
            assert_eq!(config.course(&head("b", path)), Course::Pass, "{path}");
        }
        for path in [
            "",
            "/",
            "/Sleep",
            "/asleep",
            "/sleep/x",
            "/%sleep",
            "/x?/sleep",
        ] {
            assert_eq!(config.course(&head("a", path)), Course::Decide(0), "{path}");
        }
        let config = document(r#""admin":["/x"]"#);
        assert_eq!(config.course(&head("a", "/sleep")), Course::Decide(0));
        assert_eq!(config.course(&head("a", "/x")), refused);
    }

    #[test]
    fn a_strict_configuration_refuses_bodies_that_are_not_json_and_no_others() {
        let document = |strict| {
            config(&alloc::format!(
                r#"{{"pools":[{{"name":"a","endpoints":[{{"address":"1.1.1.1:1"}}]}}],
                "strict":{strict}}}"#
            ))
        };
        let (strict, lenient) = (document(true), document(false));
        let refusal = |shape, body: &str| {
            let mut scanner = RequestScanner::new(shape);
            // Where the body is cut changes no offset.
            for byte in body.as_bytes().chunks(1) {
                scanner.push(byte);
            }
            let request = scanner.finish(HashSeed::new(""));
            assert_eq!(lenient.refusal(&request), None, "{body}");
            strict.refusal(&request).map(|it| it.body(Some(shape)))
        };
        let deep = alloc::format!(r#"{{"a":{}"#, "[".repeat(128));
        for (body, clause) in [
            (r#"{"SECRET":tru,"#, "is not JSON at byte 13"),
            (r#"{"SECRET": 1"#, "breaks off at byte 12"),
            ("", "breaks off at byte 0"),
            (" [\"SECRET\"]", "is not a JSON object at byte 1"),
            ("{} SECRET", "something follows the JSON object at byte 3"),
            ("\u{FEFF}{}", "has a byte order mark at byte 0"),
            (&deep, "is nested too deep at byte 132"),
        ] {
            for shape in [Shape::ChatCompletions, Shape::Messages, Shape::Rerank] {
                let answer = refusal(shape, body).unwrap();
                assert!(answer.contains(clause), "{body}: {answer}");
                assert!(!answer.contains("SECRET"), "{answer}");
            }
        }
        let form = refusal(Shape::Transcriptions, "SECRET\r\n").unwrap();
        assert!(form.contains("is not a form at byte 8"), "{form}");
        for body in [
            "{}",
            r#"{"unknown":{"a":[1e999,null]},"model":5,"messages":"text","stream":"yes"}"#,
            r#"{"messages":[{"role":"user","content":"a","vendor":[{}]}],"prompt":[1,"a"]}"#,
            r#"{"model":"a","model":"b"}"#,
        ] {
            for shape in [Shape::ChatCompletions, Shape::Completions, Shape::Messages] {
                assert_eq!(refusal(shape, body), None, "{body}");
            }
        }
        let unread = |fault| strict.refusal(&Request::unread(Shape::Score, fault));
        let undecodable = RequestFault::Undecodable;
        let refused = Some(Refusal::Unreadable(undecodable));
        assert_eq!(unread(undecodable), refused);
        assert_eq!(unread(RequestFault::WindowTooLarge), None);
        assert_eq!(strict.refusal(&Request::bodiless()), None);
    }

    #[test]
    fn a_pool_takes_what_fits_every_kind_of_condition() {
        let condition = Match {
            clusters: ["llm".into()].to_vec(),
            hosts: ["models.example".into()].to_vec(),
            path_prefixes: ["/v1/".into()].to_vec(),
            ..Match::default()
        };
        let head = Head {
            cluster: Some("llm".into()),
            host: "Models.example:8080".into(),
            ..chat()
        };
        assert!(condition.takes(&head));
        assert!(!condition.takes(&Head {
            cluster: None,
            ..head.clone()
        }));
        assert!(!condition.takes(&Head {
            host: "other.example".into(),
            ..head.clone()
        }));
        assert!(!condition.takes(&Head {
            path: "/v2/".into(),
            ..head.clone()
        }));
        assert!(Match::default().takes(&Head::default()));
        let routes = Match {
            routes: ["r".into()].to_vec(),
            ..Match::default()
        };
        assert!(!routes.takes(&head));
        assert!(routes.takes(&Head {
            route: Some("r".into()),
            ..head
        }));
    }

    #[test]
    fn a_preference_is_one_of_a_list_in_any_case() {
        for (value, expected) in [
            ("if-available", true),
            ("If-Available", true),
            ("respond-async,\tIF-AVAILABLE , wait=10", true),
            ("", false),
            ("if-available-now", false),
            ("if available", false),
            ("wait=10; if-available", false),
        ] {
            assert_eq!(prefers_cached(value.as_bytes()), expected, "{value}");
        }
    }
}
