//! Where the priorities and the tenants of requests are found.

use alloc::string::String;
use alloc::vec::Vec;

use super::error::{Cause, Wanted};
use super::node::{Node, Object};
use super::pool::is_name;
use super::{TRUST_NAMES_MAX, is_header_name};
use crate::trust::{Trust, TrustSource};

pub(super) fn trust(section: &mut Object<'_>) -> Trust {
    let default = Trust::default();
    let mut found = |key, default| {
        let node = section.key(key);
        let source = node.and_then(|it| it.object(source)).flatten();
        source.unwrap_or(default)
    };
    Trust {
        priority: found("priority", default.priority),
        fairness: found("fairness", default.fairness),
    }
}

/// The one source that is named.
fn source(section: &mut Object<'_>) -> Option<TrustSource> {
    let header = section.key("header");
    let metadata = section.key("metadata");
    let state = section.key("filterState");
    let none = section.key("none");
    match (header, metadata, state, none) {
        (Some(header), None, None, None) => headers(&header).map(TrustSource::Headers),
        (None, Some(node), None, None) => node.object(metadata_of).flatten(),
        (None, None, Some(state), None) => {
            let name = state.text_that(Wanted::Name, is_name);
            name.map(|it| TrustSource::FilterState(it.into()))
        }
        (None, None, None, Some(none)) if none.boolean()? => Some(TrustSource::Nobody),
        _ => {
            section.fail(Cause::told(
                "this names no source, or several".into(),
                "give one of header, metadata, filterState and none: true".into(),
            ));
            None
        }
    }
}

/// One header, or several of which the first that is there counts.
fn headers(node: &Node<'_>) -> Option<Vec<String>> {
    let nodes = if node.value().is_array() {
        node.filled_list(TRUST_NAMES_MAX, Wanted::HeaderName)
    } else {
        [node.clone()].into()
    };
    let names = nodes.iter().filter_map(|it| {
        let name = it.text_that(Wanted::HeaderName, is_header_name);
        name.map(str::to_ascii_lowercase)
    });
    Some(names.collect()).filter(|it: &Vec<_>| !it.is_empty())
}

fn metadata_of(section: &mut Object<'_>) -> Option<TrustSource> {
    let namespace = section.needed("namespace", Wanted::Name);
    let path = section.needed("path", Wanted::List);
    let path = path.map(|it| it.filled_list(TRUST_NAMES_MAX, Wanted::List));
    let keys = path.into_iter().flatten();
    let keys = keys.filter_map(|it| it.text_that(Wanted::Name, is_name).map(Into::into));
    let path = keys.collect();
    Some(TrustSource::Metadata {
        namespace: namespace?.text_that(Wanted::Name, is_name)?.into(),
        path,
    })
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use serde_json::{Value, json};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::super::tests::{check, config, with_pool};
    use super::*;

    fn trust(priority: Value) -> Value {
        let mut document = with_pool(json!({}));
        document["trust"] = json!({"priority": priority});
        document
    }

    #[test]
    fn what_is_trusted_is_one_source() {
        let headers =
            |names: &[&str]| TrustSource::Headers(names.iter().map(|it| (*it).into()).collect());
        for (given, expected) in [
            (Value::Null, Trust::default().priority),
            (json!({"header": "X-One"}), headers(&["x-one"])),
            (
                json!({"header": ["X-One", "x-two"]}),
                headers(&["x-one", "x-two"]),
            ),
            (
                json!({"metadata": {"namespace": "envoy.jwt", "path": ["claims", "tenant"]}}),
                TrustSource::Metadata {
                    namespace: "envoy.jwt".into(),
                    path: ["claims", "tenant"].map(String::from).into(),
                },
            ),
            (
                json!({"filterState": "tenant"}),
                TrustSource::FilterState("tenant".into()),
            ),
            (json!({"none": true}), TrustSource::Nobody),
        ] {
            let config = config(&trust(given));
            assert_eq!(config.trust.priority, expected);
            assert_eq!(config.trust.fairness, Trust::default().fairness);
        }
    }

    #[test]
    fn a_mistake_in_a_source_is_told_once() {
        let not_one = "trust.priority: this names no source, or several. \
                   Fix: give one of header, metadata, filterState and none: true.";
        for wrong in [
            json!({}),
            json!({"none": false}),
            json!({"header": "x", "none": true}),
            json!({"filterState": "x", "metadata": {"namespace": "a", "path": ["b"]}}),
        ] {
            check(&trust(wrong), &[not_one]);
        }
        let name = "Fix: write a text that is not empty.";
        for (wrong, mistakes) in [
            (
                json!({"header": "a b"}),
                &["header: \"a b\" is not a header name. \
               Fix: write the name of a header that is not Host, like x-endpoint."][..],
            ),
            (
                json!({"header": []}),
                &["header: a header name is missing. \
               Fix: write the name of a header that is not Host, like x-endpoint."],
            ),
            (
                json!({"filterState": ""}),
                &[&format!("filterState: \"\" is not a name. {name}")],
            ),
            (
                json!({"metadata": {"path": []}}),
                &[
                    &format!("metadata.namespace: a name is missing. {name}"),
                    "metadata.path: a list is missing. \
                 Fix: write a list, like [\"one\", \"two\"].",
                ],
            ),
            (
                json!({"metadata": {"namespace": "a", "path": [1]}}),
                &[&format!("metadata.path[0]: 1 is not a name. {name}")],
            ),
        ] {
            let mistakes: Vec<String> = mistakes
                .iter()
                .map(|it| format!("trust.priority.{it}"))
                .collect();
            let mistakes: Vec<&str> = mistakes.iter().map(String::as_str).collect();
            check(&trust(wrong), &mistakes);
        }
    }
}
