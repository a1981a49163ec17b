//! Lists in the format of Prometheus' HTTP service discovery.
//!
//! `[{"targets": ["10.0.0.1:8000"], "labels": {"llm-d.ai/role": "decode"}}]`. A list is good as a
//! whole or not at all: of a list that is half understood nobody knows what the other half was.
#![deny(clippy::indexing_slicing)]

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Found, ListFault};
use crate::Address;
use crate::config::{ENDPOINTS_MAX, EndpointConfig, LABELS_MAX};
use crate::engine::EngineKind;
use crate::json::lexer::Token;
use crate::json::pull::{Pull, Unreadable};
use crate::pool::Labels;

/// Reads a list; endpoints whose labels name no engine have `engine`.
pub(super) fn read_list(body: &[u8], engine: EngineKind) -> Result<Vec<Found>, ListFault> {
    let mut pull = Pull::list(body)?;
    let mut list = List {
        engine,
        found: Vec::new(),
        fault: None,
    };
    let read = pull.entries(&mut |pull, value| {
        let (targets, labels) = read_group(pull, value)?;
        list.add(&targets, &labels)
    });
    if let Some(fault) = list.fault {
        return Err(fault);
    }
    read?;
    if !pull.rest().is_empty() {
        return Err(ListFault::Unreadable);
    }
    Ok(list.found)
}

struct List {
    engine: EngineKind,
    found: Vec<Found>,
    /// What ended the reading, when that was not the form of the document.
    fault: Option<ListFault>,
}

impl List {
    fn add(&mut self, targets: &[String], labels: &Labels) -> Result<(), Unreadable> {
        let identity = labels.iter().find(|(name, _)| name == UID_LABEL);
        let identity = identity.map_or(0, |(_, uid)| super::identity_of(uid));
        let kept = labels.iter().filter(|(name, _)| !name.starts_with("__"));
        let kept: Arc<Labels> = Arc::new(kept.cloned().collect());
        for target in targets {
            let address = target.parse().ok();
            let Some(address) = address.filter(|it: &Address| it.is_one_host()) else {
                let shown = target.chars().take(TARGET_CHARS_SHOWN).collect();
                return self.fail(ListFault::NoAddress(shown));
            };
            if self.found.len() == ENDPOINTS_MAX {
                return self.fail(ListFault::TooMany);
            }
            let endpoint = EndpointConfig {
                address,
                labels: kept.clone(),
                engine: self.engine,
            };
            self.found.push(Found {
                identity,
                ..Found::listed(endpoint)
            });
        }
        Ok(())
    }

    fn fail(&mut self, fault: ListFault) -> Result<(), Unreadable> {
        self.fault = Some(fault);
        Err(Unreadable)
    }
}

/// The targets and the labels of a group.
fn read_group(pull: &mut Pull<'_>, value: Token) -> Result<(Vec<String>, Labels), Unreadable> {
    let mut targets = Vec::new();
    let mut labels = Vec::new();
    if value != Token::Object {
        return Err(Unreadable);
    }
    pull.members(&mut |pull, name, value| match name {
        "targets" => pull.entries_of(value, &mut |pull, target| {
            if target != Token::String || targets.len() > ENDPOINTS_MAX {
                return Err(Unreadable);
            }
            targets.push(pull.text(target)?);
            Ok(())
        }),
        "labels" => read_labels(pull, value, &mut labels),
        _ => pull.skip(value),
    })?;
    Ok((targets, labels))
}

/// Adds the members of an object of texts to `labels`.
pub(super) fn read_labels(
    pull: &mut Pull<'_>,
    value: Token,
    labels: &mut Labels,
) -> Result<(), Unreadable> {
    pull.members_of(value, &mut |pull, name, value| {
        let text = pull.text(value)?;
        if labels.len() < LABELS_MAX {
            labels.push((name.into(), text));
        }
        Ok(())
    })
}

/// The label that tells a server from the next one at its address. Labels that begin as it does are
/// for the reader of the list alone.
const UID_LABEL: &str = "__meta_kubernetes_pod_uid";

/// How much of a wrong target is repeated.
const TARGET_CHARS_SHOWN: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// The endpoints, each with its labels, or what is wrong.
    fn read(body: &str) -> String {
        match read_list(body.as_bytes(), EngineKind::Tgi) {
            Err(fault) => format!("{fault:?}"),
            Ok(found) => {
                let shown = found.iter().map(|it| {
                    let labels = it.endpoint.labels.iter();
                    let labels = labels.map(|(name, value)| format!(" {name}={value}"));
                    it.address().to_string() + &labels.collect::<String>()
                });
                shown.collect::<Vec<String>>().join(", ")
            }
        }
    }

    #[test]
    fn a_list_is_good_as_a_whole_or_not_at_all() {
        let no_address = |text: &str| format!("NoAddress({text:?})");
        for (body, expected) in [
            ("[]", ""),
            (" [ ] \n", ""),
            (
                r#"[{"targets":["10.0.0.1:80","[::1]:81"],"labels":{"a":"b","c":""}}]"#,
                "10.0.0.1:80 a=b c=, [::1]:81 a=b c=",
            ),
            (
                r#"[{"labels":{"a":"b"},"targets":["10.0.0.1:80"]},{"targets":["10.0.0.2:80"]}]"#,
                "10.0.0.1:80 a=b, 10.0.0.2:80",
            ),
            (
                r#"[{"targets":["10.0.0.1:80"],"labels":null,"x":{"y":[]}},{}]"#,
                "10.0.0.1:80",
            ),
            (
                r#"[{"targets":["10.0.0.1:80"],"labels":{"__meta_x":"1","x":"2"}}]"#,
                "10.0.0.1:80 x=2",
            ),
            (
                r#"[{"targets":["10.0.0.1:80","llm-0:80"]}]"#,
                &no_address("llm-0:80"),
            ),
            (r#"[{"targets":["10.0.0.1"]}]"#, &no_address("10.0.0.1")),
            (r#"[{"targets":["0.0.0.0:80"]}]"#, &no_address("0.0.0.0:80")),
            (r#"[{"targets":["10.0.0.1:0"]}]"#, &no_address("10.0.0.1:0")),
            (r#"[{"targets":[1]}]"#, "Unreadable"),
            (r#"[{"targets":[null]}]"#, "Unreadable"),
            (
                r#"[{"targets":["10.0.0.1:80"],"labels":{"a":1}}]"#,
                "Unreadable",
            ),
            (r#"[{"targets":["10.0.0.1:80"]},3]"#, "Unreadable"),
            (r#"[{"targets":["10.0.0.1:80"]}"#, "Unreadable"),
            (r#"[{"targets":["10.0.0.1:80"]}] x"#, "Unreadable"),
            (r#"{"targets":["10.0.0.1:80"]}"#, "Unreadable"),
            ("<html>", "Unreadable"),
            ("", "Unreadable"),
        ] {
            assert_eq!(read(body), expected, "{body}");
        }
    }

    #[test]
    fn endpoints_labels_and_what_is_repeated_have_limits() {
        let list = |count: u32| {
            let targets = (0..count).map(|it| format!("\"10.0.{}.{}:80\"", it / 250, it % 250));
            let targets = targets.collect::<Vec<String>>().join(",");
            read_list(
                format!(r#"[{{"targets":[{targets}]}}]"#).as_bytes(),
                EngineKind::Vllm,
            )
        };
        assert_eq!(list(2048).map(|it| it.len()), Ok(2048));
        assert_eq!(list(2049), Err(ListFault::TooMany));
        let labels = |count: u32| {
            let labels = (0..count).map(|it| format!("\"l{it}\":\"\""));
            let labels = labels.collect::<Vec<String>>().join(",");
            let body = format!(r#"[{{"targets":["10.0.0.1:80"],"labels":{{{labels}}}}}]"#);
            let found = read_list(body.as_bytes(), EngineKind::Vllm).unwrap();
            found.first().unwrap().endpoint.labels.len()
        };
        assert_eq!((labels(64), labels(65)), (64, 64));
        let wrong = format!(r#"[{{"targets":["{}"]}}]"#, "ä".repeat(61));
        let shown = format!("NoAddress({:?})", "ä".repeat(60));
        assert_eq!(read(&wrong), shown);
    }

    #[test]
    fn a_uid_tells_servers_at_one_address_apart() {
        let identity = |labels: &str| {
            let body = format!(r#"[{{"targets":["10.0.0.1:80"],"labels":{{{labels}}}}}]"#);
            let found = read_list(body.as_bytes(), EngineKind::Vllm).unwrap();
            found.first().unwrap().identity
        };
        let of = |uid: &str| identity(&format!(r#""__meta_kubernetes_pod_uid":"{uid}""#));
        assert_eq!((identity(""), of("")), (0, 0));
        assert_ne!(of("a"), 0);
        assert_ne!(of("a"), of("b"));
        assert_eq!(of("a"), of("a"));
    }
}
