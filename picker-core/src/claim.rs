//! What stands where the priority and the tenant of a request are looked for.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::config::PoolConfig;
use crate::request::Request;
use crate::trust::{Trust, TrustSource};

/// What the headers of a request say of one thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Claim<'r> {
    /// The first that is not empty.
    pub value: Option<&'r str>,
    /// Whether another one says something else.
    pub is_disputed: bool,
}

impl Trust {
    /// Where to look for the priorities of a pool's requests, unless all have the same.
    pub fn priority_source(&self, pool: &PoolConfig) -> Option<&TrustSource> {
        let source = &self.priority;
        let is_used = match source {
            // A header names an objective, and nothing else.
            TrustSource::Headers(_) => !pool.objectives.is_empty(),
            TrustSource::Metadata { .. } | TrustSource::FilterState(_) => true,
            TrustSource::Nobody => false,
        };
        is_used.then_some(source)
    }

    /// Where to look for the tenants of a pool's requests, unless they wait nowhere.
    pub fn fairness_source(&self, pool: &PoolConfig) -> Option<&TrustSource> {
        pool.plan.flow.as_ref().map(|_| &self.fairness)
    }
}

impl TrustSource {
    /// The headers, in lower case, that count in this order; empty where it is no header.
    pub fn headers(&self) -> &[String] {
        match self {
            Self::Headers(names) => names,
            Self::Metadata { .. } | Self::FilterState(_) | Self::Nobody => &[],
        }
    }

    /// What a request says in these headers.
    pub fn claim<'r>(&self, request: &'r Request) -> Claim<'r> {
        let values = self.headers().iter();
        let values = values.filter_map(|name| request.header(name).map(str::trim));
        let mut values = values.filter(|it| !it.is_empty());
        let value = values.next();
        Claim {
            value,
            is_disputed: values.any(|it| Some(it) != value),
        }
    }

    /// The path of the host's property that has it; empty where it is none.
    pub fn property(&self) -> Vec<&str> {
        match self {
            Self::Metadata { namespace, path } => {
                let keys = path.iter().map(String::as_str);
                let root = ["metadata", "filter_metadata", namespace.as_str()];
                root.into_iter().chain(keys).collect()
            }
            Self::FilterState(name) => ["filter_state", name.as_str()].into(),
            Self::Headers(_) | Self::Nobody => Vec::new(),
        }
    }
}

/// The value of a property as text, be it one or a whole number; `None` for anything else.
///
/// The host says no types. A number is eight bytes, a double with the lowest first, which are no
/// text without control characters unless it is longer than ten digits.
pub fn property_text(value: &[u8]) -> Option<String> {
    let text = core::str::from_utf8(value).ok();
    if let Some(text) = text.filter(|it| !it.contains(char::is_control)) {
        return Some(text.to_string());
    }
    let number = f64::from_le_bytes(value.try_into().ok()?);
    let whole = number as i64;
    let is_whole = number.abs() <= WHOLE_MAX && whole as f64 == number;
    is_whole.then(|| whole.to_string())
}

/// The largest number up to which a double has all whole ones.
const WHOLE_MAX: f64 = (1_u64 << 53) as f64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Role, parse};
    use crate::flow::FlowControl;
    use alloc::format;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn the_first_header_wins_and_another_one_is_a_dispute() {
        let source = TrustSource::Headers(["x-new".into(), "x-old".into()].into());
        for (headers, value, is_disputed) in [
            (&[][..], None, false),
            (&[("x-old", "a")], Some("a"), false),
            (&[("x-old", "a"), ("x-new", "b")], Some("b"), true),
            (&[("x-old", "a"), ("x-new", " a ")], Some("a"), false),
            (&[("x-old", "a"), ("x-new", " ")], Some("a"), false),
            (&[("x-old", ""), ("x-new", "b")], Some("b"), false),
            (&[("x-other", "a")], None, false),
        ] {
            let headers = headers.iter();
            let headers = headers.map(|(name, value)| ((*name).into(), (*value).into()));
            let request = Request {
                headers: headers.collect(),
                ..Request::default()
            };
            let claim = source.claim(&request);
            assert_eq!(claim, Claim { value, is_disputed }, "{:?}", request.headers);
            assert_eq!(TrustSource::Nobody.claim(&request), Claim::default());
        }
    }

    #[test]
    fn a_property_is_text_or_a_whole_number() {
        let long = "x".repeat(70_000);
        for (value, expected) in [
            (&b""[..], Some("")),
            (b"critical", Some("critical")),
            ("mäßig".as_bytes(), Some("mäßig")),
            (long.as_bytes(), Some(&long)),
            (&(-5_f64).to_le_bytes(), Some("-5")),
            (&0_f64.to_le_bytes(), Some("0")),
            (&(-0_f64).to_le_bytes(), Some("0")),
            (&2_147_483_647_f64.to_le_bytes(), Some("2147483647")),
            (&WHOLE_MAX.to_le_bytes(), Some("9007199254740992")),
            (&(WHOLE_MAX * 2.0).to_le_bytes(), None),
            (&0.5_f64.to_le_bytes(), None),
            (&f64::NAN.to_le_bytes(), None),
            (&f64::NEG_INFINITY.to_le_bytes(), None),
            // A Boolean, and what stands for more than one value.
            (&[1], None),
            (&[1, 0, 0, 0, 1, 0, 0, 0, 1], None),
            (&[0xff; 7], None),
        ] {
            assert_eq!(property_text(value).as_deref(), expected, "{value:?}");
        }
    }

    #[test]
    fn what_makes_no_difference_is_not_looked_for() {
        let config = |pool: &str, trust: &str| -> Config {
            let json = format!(
                r#"{{"pools": [{{"name": "a", "endpoints": [{{"address": "10.0.0.1:80"}}]{pool}}}],
                "trust": {trust}}}"#
            );
            match parse(json.as_bytes()) {
                Ok(Role::Filter(config)) => *config,
                other => panic!("{other:?}"),
            }
        };
        let objectives = r#", "objectives": [{"name": "batch", "priority": -1}]"#;
        let metadata = r#"{"metadata": {"namespace": "jwt", "path": ["a", "b"]}}"#;
        for (pool, source, headers, property) in [
            ("", r#"{"header": "x-a"}"#, &[][..], ""),
            (
                objectives,
                r#"{"header": ["x-a", "X-B"]}"#,
                &["x-a", "x-b"],
                "",
            ),
            ("", metadata, &[], "metadata/filter_metadata/jwt/a/b"),
            ("", r#"{"filterState": "a.b"}"#, &[], "filter_state/a.b"),
            (objectives, r#"{"none": true}"#, &[], ""),
        ] {
            let trust = format!(r#"{{"priority": {source}, "fairness": {source}}}"#);
            let mut config = config(pool, &trust);
            let is = |found: Option<&TrustSource>| {
                let Some(found) = found else {
                    return headers.is_empty() && property.is_empty();
                };
                found.headers() == headers && found.property().join("/") == property
            };
            assert!(
                is(config.trust.priority_source(&config.pools[0])),
                "{trust}"
            );
            let fairness = config.trust.fairness_source(&config.pools[0]);
            assert_eq!(fairness, None, "nothing waits");
            config.pools[0].plan.flow = Some(FlowControl::default());
            let fairness = config.trust.fairness_source(&config.pools[0]);
            assert_eq!(fairness, Some(&config.trust.fairness));
        }
    }
}
