//! What a request says of who sends it.

use alloc::string::String;
use alloc::vec::Vec;

use crate::request::Request;

/// Where something is found of a request. Empty values count as none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// In what a plugin says of the request.
    Attribute {
        /// What is said.
        attribute: String,
        /// The name of the plugin; empty for any that says it.
        producer: String,
    },
    /// In the cookie of this name.
    Cookie(String),
    /// In the header of this name, in lower case.
    Header(String),
}

/// What a plugin says of requests: `session-id-producer` and `agent-identity`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The name of the plugin.
    pub producer: String,
    /// What it says.
    pub attribute: &'static str,
    /// Where that is found; the first that is there counts.
    pub sources: Vec<Source>,
}

impl Identity {
    /// What is said of `request`; `None` when it says nothing.
    pub fn of<'r>(&self, request: &'r Request) -> Option<&'r str> {
        self.sources.iter().find_map(|it| it.value(request))
    }

    fn is_meant(&self, attribute: &str, producer: &str) -> bool {
        self.attribute == attribute && (producer.is_empty() || self.producer == producer)
    }
}

impl Source {
    /// The sources that this one stands for: itself, or those of the plugin that it names; empty
    /// when there is no such plugin.
    pub fn resolved(&self, identities: &[Identity]) -> Vec<Self> {
        let Self::Attribute {
            attribute,
            producer,
        } = self
        else {
            return [self.clone()].into();
        };
        let named = identities
            .iter()
            .find(|it| it.is_meant(attribute, producer));
        named.map_or_else(Vec::new, |it| it.sources.clone())
    }

    /// What stands there; an attribute has to be resolved first.
    pub fn value<'r>(&self, request: &'r Request) -> Option<&'r str> {
        let value = match self {
            Self::Attribute { .. } => None,
            Self::Cookie(name) => cookie(request.header(COOKIE)?, name),
            Self::Header(name) => request.header(name),
        };
        value.map(str::trim).filter(|it| !it.is_empty())
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Attribute {
                attribute: name, ..
            }
            | Self::Cookie(name)
            | Self::Header(name) => name,
        }
    }

    /// The request header that it is read from.
    pub fn header(&self) -> Option<&str> {
        match self {
            Self::Attribute { .. } => None,
            Self::Cookie(_) => Some(COOKIE),
            Self::Header(name) => Some(name),
        }
    }
}

/// The value of the first cookie of this name, without the quotes that it may have.
fn cookie<'h>(header: &'h str, name: &str) -> Option<&'h str> {
    let pairs = header.split(';').filter_map(|pair| pair.split_once('='));
    let mut values = pairs.filter(|(key, _)| key.trim() == name);
    let value = values.next()?.1.trim();
    let bare = value.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    Some(bare.unwrap_or(value))
}

const COOKIE: &str = "cookie";

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_value_is_the_first_that_is_not_empty() {
        let header = |name: &str| Source::Header(name.into());
        let identity = Identity {
            producer: "p".into(),
            attribute: "SessionID",
            sources: vec![header("x-a"), header("x-b"), Source::Cookie("sid".into())],
        };
        for (headers, expected) in [
            (&[][..], None),
            (&[("x-a", "1"), ("x-b", "2")], Some("1")),
            (&[("x-a", " "), ("x-b", " 2 ")], Some("2")),
            (&[("cookie", "a=1; sid=3")], Some("3")),
            (&[("cookie", "sid=\"3\";sid=4")], Some("3")),
            (&[("cookie", "sid=; sid=4")], None),
            (&[("cookie", "asid=1; sid")], None),
            (&[("cookie", "sid=a=b; c=d")], Some("a=b")),
        ] {
            let headers = headers.iter();
            let request = Request {
                headers: headers
                    .map(|(it, value)| ((*it).into(), (*value).into()))
                    .collect(),
                ..Request::default()
            };
            assert_eq!(identity.of(&request), expected, "{:?}", request.headers);
        }
    }

    #[test]
    fn an_attribute_is_what_the_named_plugin_says() {
        let identity = |producer: &str, attribute, header: &str| Identity {
            producer: producer.into(),
            attribute,
            sources: vec![Source::Header(header.into())],
        };
        let identities = [
            identity("one", "SessionID", "x-one"),
            identity("two", "SessionID", "x-two"),
            identity("three", "agent-identity", "x-three"),
        ];
        for (attribute, producer, expected) in [
            ("SessionID", "", Some("x-one")),
            ("SessionID", "two", Some("x-two")),
            ("agent-identity", "", Some("x-three")),
            ("agent-identity", "two", None),
            ("tenant", "", None),
        ] {
            let source = Source::Attribute {
                attribute: attribute.into(),
                producer: producer.into(),
            };
            let resolved = source.resolved(&identities);
            let header = resolved.first().and_then(Source::header);
            assert_eq!(header, expected, "{attribute} of {producer:?}");
        }
    }
}
