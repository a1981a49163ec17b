//! Who is believed about how much a request matters, and about whose it is.
//!
//! Headers are what anybody can send. Whoever wants tenants kept apart names something that
//! another filter of Envoy has found out, like a claim of a token.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::config::PoolConfig;
use crate::request::Request;

/// Where the priority and the tenant of a request are found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trust {
    /// How much it matters: the name of an objective of the pool, or where it is no header also a
    /// whole number.
    pub priority: TrustSource,
    /// Who shares with others of the same priority what there is.
    pub fairness: TrustSource,
}

/// Where a text is found of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TrustSource {
    /// In the first of these headers that is there; at least one, in lower case.
    Headers(Vec<String>),
    /// In dynamic metadata that another filter wrote.
    Metadata {
        /// The filter's name for it.
        namespace: String,
        /// The keys that lead to the value; at least one.
        path: Vec<String>,
    },
    /// In the filter state of this name.
    FilterState(String),
    /// Nowhere: all are alike.
    Nobody,
}

impl Trust {
    /// How much a request matters whose source says `value`: the priority of the objective of that
    /// name, or the number that it is, when no client can have sent it. Anything else is 0.
    pub fn priority(&self, value: Option<&str>, pool: &PoolConfig) -> i32 {
        let value = value.map(str::trim);
        let number = |it: &str| it.parse().unwrap_or_default();
        match value.filter(|_| self.priority.is_trusted()) {
            Some(text) => pool.objective(text).unwrap_or_else(|| number(text)),
            None => pool.priority_of(value),
        }
    }

    /// Whose a request is whose source says `value`, at most [`FAIRNESS_ID_BYTES_MAX`] of it;
    /// `None` for those who do not say, which are one flow.
    ///
    /// Where nothing is configured, what a plugin says of the agent counts for who names no flow.
    pub fn fairness<'r>(
        &self,
        value: Option<&'r str>,
        pool: &PoolConfig,
        request: &'r Request,
    ) -> Option<&'r str> {
        let value = value.map(str::trim).filter(|it| !it.is_empty());
        let agent = || {
            let mut agents = pool.plan.identities.iter();
            agents.find(|it| it.attribute == AGENT)?.of(request)
        };
        let is_default = self.fairness.are_headers(&FAIRNESS_HEADERS);
        let id = value.or_else(|| agent().filter(|_| is_default))?;
        let ends = 0..=id.len().min(FAIRNESS_ID_BYTES_MAX);
        let end = ends.rev().find(|it| id.is_char_boundary(*it))?;
        id.get(..end).filter(|it| *it != DEFAULT_FLOW)
    }
}

impl TrustSource {
    /// Headers that clients may set as well.
    fn of_headers(names: &[&str]) -> Self {
        Self::Headers(names.iter().map(ToString::to_string).collect())
    }

    fn are_headers(&self, names: &[&str]) -> bool {
        matches!(self, Self::Headers(own) if own == names)
    }

    /// Whether only Envoy can have written what stands there.
    fn is_trusted(&self) -> bool {
        matches!(self, Self::Metadata { .. } | Self::FilterState(_))
    }
}

impl Default for Trust {
    /// The headers of the reference picker.
    fn default() -> Self {
        Self {
            priority: TrustSource::of_headers(&PRIORITY_HEADERS),
            fairness: TrustSource::of_headers(&FAIRNESS_HEADERS),
        }
    }
}

/// The name that is shown of the flow of those who do not say whose they are.
pub const DEFAULT_FLOW: &str = "default-flow";

/// Bytes of a tenant's name: every path and address fits, and a header of any length is cut.
pub const FAIRNESS_ID_BYTES_MAX: usize = 1024;

/// The header with an objective and its older name.
const PRIORITY_HEADERS: [&str; 2] = [
    "x-llm-d-inference-objective",
    "x-gateway-inference-objective",
];

/// The header with a flow and its older name.
const FAIRNESS_HEADERS: [&str; 2] = [
    "x-llm-d-inference-fairness-id",
    "x-gateway-inference-fairness-id",
];

/// What `agent-identity` says of requests.
const AGENT: &str = "agent-identity";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Role, parse};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// A pool with the objectives `batch` (-1) and `7` (70), the plugin `agent-identity`, and this
    /// `trust`.
    fn config(trust: &str) -> Config {
        let json = alloc::format!(
            r#"{{"pools": [{{
                "name": "a",
                "endpoints": [{{"address": "10.0.0.1:8000"}}],
                "objectives": [{{"name": "batch", "priority": -1}}, {{"name": "7", "priority": 70}}],
                "picker": {{"plugins": [{{"type": "agent-identity"}}, {{"type": "queue-scorer"}}]}}
            }}], "trust": {trust}}}"#
        );
        match parse(json.as_bytes()) {
            Ok(Role::Filter(config)) => *config,
            other => panic!("{other:?}"),
        }
    }

    const HEADER: &str = r#"{"header": "x-tenant"}"#;
    const STATE: &str = r#"{"filterState": "tenant"}"#;
    const METADATA: &str = r#"{"metadata": {"namespace": "jwt", "path": ["claims", "tenant"]}}"#;
    const NOBODY: &str = r#"{"none": true}"#;

    #[test]
    fn a_number_is_a_priority_only_where_no_client_wrote_it() {
        for (source, value, expected) in [
            (HEADER, Some("batch"), -1),
            (HEADER, Some("Batch"), 0),
            (HEADER, Some("5"), 0),
            (HEADER, Some("7"), 70),
            (HEADER, None, 0),
            (METADATA, Some("batch"), -1),
            (METADATA, Some("5"), 5),
            (METADATA, Some(" -5 "), -5),
            (METADATA, Some("7"), 70),
            (METADATA, Some("2147483647"), i32::MAX),
            (METADATA, Some("2147483648"), 0),
            (METADATA, Some("-2147483649"), 0),
            (METADATA, Some("99999999999999999999999"), 0),
            (METADATA, Some("1.5"), 0),
            (METADATA, Some("other"), 0),
            (METADATA, Some(""), 0),
            (METADATA, None, 0),
            (STATE, Some("5"), 5),
            (NOBODY, None, 0),
        ] {
            let config = config(&alloc::format!(r#"{{"priority": {source}}}"#));
            let priority = config.trust.priority(value, &config.pools[0]);
            assert_eq!(priority, expected, "{source} {value:?}");
        }
    }

    #[test]
    fn an_agent_is_a_flow_unless_something_else_is_configured() {
        let request = Request {
            headers: [("session-id".into(), "agent-1".into())].into(),
            ..Request::default()
        };
        let fairness = |trust: &str, value| {
            let config = config(trust);
            let id = config.trust.fairness(value, &config.pools[0], &request);
            id.map(String::from)
        };
        let of = |source: &str| alloc::format!(r#"{{"fairness": {source}}}"#);
        let long = "ä".repeat(FAIRNESS_ID_BYTES_MAX);
        for (trust, value, expected) in [
            ("{}".to_string(), Some("t"), Some("t")),
            ("{}".to_string(), Some(" t "), Some("t")),
            ("{}".to_string(), Some(""), Some("agent-1")),
            ("{}".to_string(), None, Some("agent-1")),
            ("{}".to_string(), Some("default-flow"), None),
            (of(HEADER), None, None),
            (of(METADATA), None, None),
            (of(METADATA), Some("t"), Some("t")),
            (of(NOBODY), None, None),
            // 1024 bytes are 512 such letters; one byte before, the last does not fit whole.
            (of(STATE), Some(long.as_str()), Some(&long[..1024])),
            (of(STATE), Some(&long[..1022]), Some(&long[..1022])),
        ] {
            let id = fairness(&trust, value);
            assert_eq!(id.as_deref(), expected, "{trust} {value:?}");
        }
        let odd = alloc::format!("x{long}");
        let id = fairness(&of(STATE), Some(&odd));
        assert_eq!(id.as_deref(), Some(&odd[..1023]));
    }
}
