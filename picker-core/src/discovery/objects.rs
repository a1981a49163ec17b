//! What objects of Kubernetes say of endpoints.
//!
//! A page of pods is mostly what nobody here asks for, so objects are read member by member. One
//! reader serves all kinds: a member that an object does not have says nothing.
#![deny(clippy::indexing_slicing)]

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::http::read_labels;
use super::identity_of;
use crate::config::{FailureMode, LABELS_MAX};
use crate::json::lexer::Token;
use crate::json::pull::{Pull, Unreadable};
use crate::pool::Labels;
use crate::sources::POD_LABEL;

/// A pod, an endpoint slice, or whatever stands in their place.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Object {
    pub(super) name: String,
    /// The version of the list in which it is as it is.
    pub(super) version: String,
    /// The status that an error has.
    pub(super) code: u64,
    /// Its labels, and annotations that are meant as labels.
    labels: Labels,
    pub(super) entry: Entry,
}

/// What an object says of endpoints.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Entry {
    /// The ports that a slice has; none in a pod.
    pub(super) ports: Vec<u16>,
    pub(super) members: Vec<Member>,
}

/// One server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Member {
    pub(super) ip: IpAddr,
    pub(super) identity: u64,
    pub(super) takes_requests: bool,
    /// The labels of its object, and the name of its pod unless they have it.
    pub(super) labels: Arc<Labels>,
}

/// One page of a list.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) objects: Vec<Object>,
    pub(super) version: String,
    /// What asks for the next page; empty after the last.
    pub(super) next: String,
}

/// What happened to an object.
#[derive(Debug, Default)]
pub(super) struct Event {
    pub(super) kind: String,
    pub(super) object: Object,
}

/// What an `InferencePool` says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct PoolSpec {
    pub(super) labels: Labels,
    pub(super) ports: Vec<u16>,
    pub(super) failure_mode: Option<FailureMode>,
}

/// Reads a page of a list.
pub(super) fn read_page(body: &[u8]) -> Result<Page, Unreadable> {
    let mut page = Page::default();
    let mut is_list = false;
    let mut pull = Pull::object(body)?;
    pull.members(&mut |pull, name, value| match name {
        "metadata" => pull.members_of(value, &mut |pull, name, value| match name {
            "resourceVersion" => {
                page.version = pull.text(value)?;
                Ok(())
            }
            "continue" => {
                page.next = pull.text(value)?;
                Ok(())
            }
            _ => pull.skip(value),
        }),
        "items" => {
            is_list = true;
            pull.entries_of(value, &mut |pull, value| {
                page.objects.push(read_object(pull, value)?);
                Ok(())
            })
        }
        _ => pull.skip(value),
    })?;
    if !is_list || !pull.rest().is_empty() {
        return Err(Unreadable);
    }
    Ok(page)
}

/// Reads the event that `body` begins with, and gives what follows; `None` for no more.
pub(super) fn read_event(body: &[u8]) -> Result<Option<(Event, &[u8])>, Unreadable> {
    if body.trim_ascii_start().is_empty() {
        return Ok(None);
    }
    let mut event = Event::default();
    let mut pull = Pull::object(body)?;
    pull.members(&mut |pull, name, value| match name {
        "type" => {
            event.kind = pull.text(value)?;
            Ok(())
        }
        "object" => {
            event.object = read_object(pull, value)?;
            Ok(())
        }
        _ => pull.skip(value),
    })?;
    Ok(Some((event, pull.rest())))
}

/// Reads an `InferencePool` of either group.
pub(super) fn read_pool(body: &[u8]) -> Result<PoolSpec, Unreadable> {
    let mut spec = PoolSpec::default();
    let mut pull = Pull::object(body)?;
    pull.members(&mut |pull, name, value| match name {
        "spec" => pull.members_of(value, &mut |pull, name, value| {
            read_spec(pull, (name, value), &mut spec)
        }),
        _ => pull.skip(value),
    })?;
    if spec.labels.is_empty() || spec.ports.is_empty() || !pull.rest().is_empty() {
        // A selector without labels would be that of all pods.
        return Err(Unreadable);
    }
    spec.labels.dedup();
    Ok(spec)
}

fn read_spec(
    pull: &mut Pull<'_>,
    (name, value): (&str, Token),
    spec: &mut PoolSpec,
) -> Result<(), Unreadable> {
    match name {
        "selector" => pull.members_of(value, &mut |pull, name, value| match value {
            Token::Object if name == "matchLabels" => read_labels(pull, value, &mut spec.labels),
            Token::String => {
                spec.labels.push((name.into(), pull.text(value)?));
                Ok(())
            }
            // Expressions would narrow the selector in a way that nobody here knows.
            _ => Err(Unreadable),
        }),
        "targetPorts" => pull.entries_of(value, &mut |pull, value| {
            pull.members_of(value, &mut |pull, name, value| match name {
                "number" => push_port(value, &mut spec.ports),
                _ => pull.skip(value),
            })
        }),
        "targetPortNumber" => push_port(value, &mut spec.ports),
        "endpointPickerRef" | "extensionRef" => {
            pull.members_of(value, &mut |pull, name, value| match name {
                "failureMode" => {
                    spec.failure_mode = match pull.text(value)?.as_str() {
                        "FailOpen" => Some(FailureMode::Open),
                        "FailClose" => Some(FailureMode::Closed),
                        _ => None,
                    };
                    Ok(())
                }
                _ => pull.skip(value),
            })
        }
        _ => pull.skip(value),
    }
}

fn push_port(value: Token, ports: &mut Vec<u16>) -> Result<(), Unreadable> {
    let Token::Number(Some(number)) = value else {
        return Err(Unreadable);
    };
    let port = u16::try_from(number).map_err(|_| Unreadable)?;
    if port == 0 {
        return Err(Unreadable);
    }
    if !ports.contains(&port) && ports.len() < PORTS_MAX {
        ports.push(port);
    }
    Ok(())
}

/// A pod as it is told in pieces.
#[derive(Default)]
struct Pod {
    uid: String,
    ip: String,
    is_ready: bool,
    /// It is about to end.
    is_ending: bool,
    /// It has ended: its address may be another's.
    has_ended: bool,
}

fn read_object(pull: &mut Pull<'_>, value: Token) -> Result<Object, Unreadable> {
    if value != Token::Object {
        return Err(Unreadable);
    }
    let mut object = Object::default();
    let mut pod = Pod::default();
    let mut annotations = Labels::new();
    let mut servers = Vec::new();
    pull.members(&mut |pull, name, value| match (name, value) {
        ("metadata", Token::Object) => pull.members(&mut |pull, name, value| match name {
            "name" => set(&mut object.name, pull, value),
            "resourceVersion" => set(&mut object.version, pull, value),
            "uid" => set(&mut pod.uid, pull, value),
            "deletionTimestamp" => {
                pod.is_ending = value != Token::Null;
                pull.skip(value)
            }
            "labels" => read_labels(pull, value, &mut object.labels),
            "annotations" => read_annotations(pull, value, &mut annotations),
            _ => pull.skip(value),
        }),
        ("status", Token::Object) => pull.members(&mut |pull, name, value| match name {
            "podIP" => set(&mut pod.ip, pull, value),
            "phase" => {
                let phase = pull.text(value)?;
                pod.has_ended = matches!(phase.as_str(), "Failed" | "Succeeded");
                Ok(())
            }
            "conditions" => read_conditions(pull, value, &mut pod.is_ready),
            _ => pull.skip(value),
        }),
        ("endpoints", value) => read_endpoints(pull, value, &mut servers),
        ("ports", value) => pull.entries_of(value, &mut |pull, value| {
            read_slice_port(pull, value, &mut object.entry.ports)
        }),
        ("code", Token::Number(Some(code))) => {
            object.code = code;
            Ok(())
        }
        (_, value) => pull.skip(value),
    })?;
    for (name, value) in annotations {
        let labels = &mut object.labels;
        if labels.len() < LABELS_MAX && labels.iter().all(|(it, _)| *it != name) {
            labels.push((name, value));
        }
    }
    if let Some(ip) = pod.ip.parse().ok().filter(|_| !pod.has_ended) {
        servers.push(Server {
            ip,
            identity: identity_of(&pod.uid),
            takes_requests: pod.is_ready && !pod.is_ending,
            pod: object.name.clone(),
        });
    }
    // They may have been told after the servers.
    let labels = &object.labels;
    let members = servers.into_iter().map(|it| it.with(labels));
    object.entry.members.extend(members);
    Ok(object)
}

/// A server as it is told, its labels left out.
struct Server {
    ip: IpAddr,
    identity: u64,
    takes_requests: bool,
    /// The name of its pod; empty for none.
    pod: String,
}

impl Server {
    fn with(self, labels: &Labels) -> Member {
        let mut labels = labels.clone();
        if !self.pod.is_empty() && labels.iter().all(|(name, _)| name != POD_LABEL) {
            labels.push((POD_LABEL.into(), self.pod));
        }
        Member {
            ip: self.ip,
            identity: self.identity,
            takes_requests: self.takes_requests,
            labels: Arc::new(labels),
        }
    }
}

fn set(text: &mut String, pull: &mut Pull<'_>, value: Token) -> Result<(), Unreadable> {
    *text = pull.text(value)?;
    Ok(())
}

/// Annotations that are meant for pickers; the others belong to others, and may be long.
fn read_annotations(
    pull: &mut Pull<'_>,
    value: Token,
    annotations: &mut Labels,
) -> Result<(), Unreadable> {
    pull.members_of(value, &mut |pull, name, value| {
        let is_ours = ANNOTATIONS.iter().any(|prefix| name.starts_with(prefix));
        if !is_ours || annotations.len() == LABELS_MAX {
            return pull.skip(value);
        }
        if let Some(text) = pull.short_text(value)? {
            annotations.push((name.into(), text));
        }
        Ok(())
    })
}

fn read_conditions(
    pull: &mut Pull<'_>,
    value: Token,
    is_ready: &mut bool,
) -> Result<(), Unreadable> {
    pull.entries_of(value, &mut |pull, value| {
        let (mut kind, mut status) = (String::new(), String::new());
        pull.members_of(value, &mut |pull, name, value| match name {
            "type" => set(&mut kind, pull, value),
            "status" => set(&mut status, pull, value),
            _ => pull.skip(value),
        })?;
        *is_ready |= kind == "Ready" && status == "True";
        Ok(())
    })
}

/// The port of a slice, unless it is none of TCP.
fn read_slice_port(
    pull: &mut Pull<'_>,
    value: Token,
    ports: &mut Vec<u16>,
) -> Result<(), Unreadable> {
    let mut of_it = Vec::new();
    let mut protocol = String::new();
    pull.members_of(value, &mut |pull, name, value| match (name, value) {
        ("port", Token::Number(_)) => push_port(value, &mut of_it),
        ("protocol", value) => set(&mut protocol, pull, value),
        (_, value) => pull.skip(value),
    })?;
    if matches!(protocol.as_str(), "" | "TCP") {
        ports.extend(of_it);
    }
    Ok(())
}

fn read_endpoints(
    pull: &mut Pull<'_>,
    value: Token,
    servers: &mut Vec<Server>,
) -> Result<(), Unreadable> {
    pull.entries_of(value, &mut |pull, value| {
        let mut ip = None;
        let (mut uid, mut pod) = (String::new(), String::new());
        // Who does not say whether it is ready is.
        let mut takes_requests = true;
        pull.members_of(value, &mut |pull, name, value| match name {
            // All of them are the same server's.
            "addresses" => pull.entries_of(value, &mut |pull, value| {
                let text = pull.text(value)?;
                ip = ip.or_else(|| text.parse().ok());
                Ok(())
            }),
            "conditions" => pull.members_of(value, &mut |pull, name, value| {
                takes_requests &= !matches!(
                    (name, value),
                    ("ready", Token::False) | ("terminating", Token::True)
                );
                pull.skip(value)
            }),
            "targetRef" => pull.members_of(value, &mut |pull, name, value| match name {
                "uid" => set(&mut uid, pull, value),
                "name" => set(&mut pod, pull, value),
                _ => pull.skip(value),
            }),
            _ => pull.skip(value),
        })?;
        servers.extend(ip.map(|ip| Server {
            ip,
            identity: identity_of(&uid),
            takes_requests,
            pod,
        }));
        Ok(())
    })
}

/// What the names of annotations begin with that are read as labels.
const ANNOTATIONS: [&str; 2] = ["llm-d.ai/", "inference.networking.k8s.io/"];

/// Ports that are kept of one object: twice as many as an `InferencePool` may name.
const PORTS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::format;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// The members of an object, with its name, its labels and its ports.
    fn show(object: &Object) -> String {
        let entry = &object.entry;
        let labels = object.labels.iter();
        let labels = labels.map(|(name, value)| format!(" {name}={value}"));
        let ports = entry.ports.iter().map(|port| format!(" :{port}"));
        let members = entry.members.iter().map(|it| {
            let state = if it.takes_requests { "" } else { " draining" };
            let is_known = if it.identity == 0 { "?" } else { "" };
            let pod = it.labels.iter().find(|(name, _)| name == POD_LABEL);
            let pod = pod.map_or("", |(_, pod)| pod);
            format!(" [{}{is_known} {pod}{state}]", it.ip)
        });
        let parts = labels.chain(ports).chain(members);
        object.name.clone() + &parts.collect::<String>()
    }

    fn page(items: &str) -> String {
        let body = format!(r#"{{"kind":"List","items":[{items}],"metadata":{{"continue":""}}}}"#);
        match read_page(body.as_bytes()) {
            Ok(page) => page.objects.iter().map(show).collect::<Vec<_>>().join(", "),
            Err(Unreadable) => "unreadable".into(),
        }
    }

    fn pod(metadata: &str, status: &str) -> String {
        format!(
            r#"{{"metadata":{{"name":"a"{metadata}}},"spec":{{"x":[1]}},"status":{{{status}}}}}"#
        )
    }

    const READY: &str = r#""conditions":[{"type":"Initialized","status":"True"},
        {"type":"Ready","status":"True","message":null}],"podIP":"10.0.0.1","phase":"Running""#;

    #[test]
    fn a_pod_is_a_server_with_an_address_that_is_ready_or_not() {
        let unready = READY.replace(r#""Ready","status":"True""#, r#""Ready","status":"False""#);
        let unknown = READY.replace(
            r#""Ready","status":"True""#,
            r#""Ready","status":"Unknown""#,
        );
        let ended = READY.replace("Running", "Succeeded");
        let without_address = READY.replace("10.0.0.1", "");
        let ending = r#","deletionTimestamp":"2026-01-01T00:00:00Z""#;
        for (metadata, status, expected) in [
            (r#","uid":"u""#, READY, "a [10.0.0.1 a]"),
            ("", READY, "a [10.0.0.1? a]"),
            ("", &READY.replace("10.0.0.1", "fd00::1"), "a [fd00::1? a]"),
            ("", &unready, "a [10.0.0.1? a draining]"),
            ("", &unknown, "a [10.0.0.1? a draining]"),
            ("", r#""podIP":"10.0.0.1""#, "a [10.0.0.1? a draining]"),
            (ending, READY, "a [10.0.0.1? a draining]"),
            (r#","deletionTimestamp":null"#, READY, "a [10.0.0.1? a]"),
            ("", &ended, "a"),
            ("", &READY.replace("Running", "Failed"), "a"),
            ("", &without_address, "a"),
            ("", &READY.replace("10.0.0.1", "llm-0"), "a"),
            ("", "", "a"),
            ("", r#""conditions":null"#, "a"),
            ("", r#""conditions":{}"#, "unreadable"),
            (r#","uid":7"#, READY, "unreadable"),
        ] {
            assert_eq!(
                page(&pod(metadata, status)),
                expected,
                "{metadata} {status}"
            );
        }
    }

    #[test]
    fn annotations_for_pickers_are_labels_where_no_label_has_their_name() {
        for (metadata, expected) in [
            (r#","labels":{"a":"b","c":""}"#, "a a=b c="),
            (
                r#","annotations":{"llm-d.ai/active-ports":"8000","x/y":"z"}"#,
                "a llm-d.ai/active-ports=8000",
            ),
            (
                r#","annotations":{"inference.networking.k8s.io/active-ports":"1"},"labels":{}"#,
                "a inference.networking.k8s.io/active-ports=1",
            ),
            (
                r#","annotations":{"llm-d.ai/role":"x"},"labels":{"llm-d.ai/role":"decode"}"#,
                "a llm-d.ai/role=decode",
            ),
            (r#","labels":null,"annotations":null"#, "a"),
            (r#","labels":{"a":1}"#, "unreadable"),
        ] {
            assert_eq!(page(&pod(metadata, "")), expected, "{metadata}");
        }
        let long = format!(r#","annotations":{{"llm-d.ai/x":"{}"}}"#, "x".repeat(5000));
        assert_eq!(page(&pod(&long, "")), "a", "what is too long is left out");
    }

    #[test]
    fn a_slice_lists_servers_and_ports() {
        let slice = |endpoints: &str, ports: &str| {
            let metadata = r#""metadata":{"name":"s"}"#;
            page(&format!(
                r#"{{{metadata},"addressType":"IPv4","endpoints":{endpoints},"ports":{ports}}}"#
            ))
        };
        let ports = r#"[{"name":"http","port":80,"protocol":"TCP"},{"port":81},
            {"port":53,"protocol":"UDP"},{"port":null}]"#;
        for (endpoint, expected) in [
            (r#""conditions":{"ready":true,"serving":true}"#, ""),
            (r#""conditions":{"ready":null}"#, ""),
            (r#""conditions":{}"#, ""),
            (r#""conditions":{"ready":false}"#, " draining"),
            (
                r#""conditions":{"ready":true,"terminating":true}"#,
                " draining",
            ),
        ] {
            let endpoint = format!(
                r#"[{{"addresses":["10.0.0.1"],{endpoint},
                "targetRef":{{"kind":"Pod","name":"p","uid":"u"}}}}]"#
            );
            let expected = format!("s :80 :81 [10.0.0.1 p{expected}]");
            assert_eq!(slice(&endpoint, ports), expected, "{endpoint}");
        }
        let named = r#"[{"addresses":["llm-0.example"]},{"addresses":[]},{}]"#;
        assert_eq!(slice(named, "[]"), "s");
        assert_eq!(slice("null", "null"), "s");
    }

    #[test]
    fn a_page_and_an_event_are_whole_or_unreadable() {
        let whole = format!(
            r#"{{"metadata":{{"resourceVersion":"7","continue":"c"}},"items":[{}]}}"#,
            pod("", READY)
        );
        let read = read_page(whole.as_bytes()).unwrap();
        assert_eq!((read.version.as_str(), read.next.as_str()), ("7", "c"));
        for length in 0..whole.len() {
            let cut = whole.as_bytes().get(..length).unwrap();
            assert!(read_page(cut).is_err(), "{length}");
        }
        for bad in [
            r#"{"kind":"Status","code":500}"#,
            "[]",
            "{}",
            "{\"items\":[]} x",
        ] {
            assert!(read_page(bad.as_bytes()).is_err(), "{bad}");
        }
        let event = format!(r#"{{"type":"ADDED","object":{}}}"#, pod("", READY));
        let two = format!("{event}\n{event}\n");
        let (first, rest) = read_event(two.as_bytes()).unwrap().unwrap();
        assert_eq!(
            (first.kind.as_str(), show(&first.object).as_str()),
            ("ADDED", "a [10.0.0.1? a]")
        );
        assert_eq!(rest.trim_ascii(), event.as_bytes());
        for length in 1..event.len() {
            let cut = event.as_bytes().get(..length).unwrap();
            assert!(read_event(cut).is_err(), "{length}");
        }
        assert!(read_event(b" \n").unwrap().is_none());
        let gone = r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410}}"#;
        let (gone, _) = read_event(gone.as_bytes()).unwrap().unwrap();
        assert_eq!((gone.kind.as_str(), gone.object.code), ("ERROR", 410));
    }

    #[test]
    fn a_pool_of_either_group_has_a_selector_and_ports() {
        let read = |spec: &str| {
            let body = format!(r#"{{"kind":"InferencePool","spec":{{{spec}}},"status":{{}}}}"#);
            let spec = read_pool(body.as_bytes()).ok()?;
            let labels = spec.labels.iter();
            let labels = labels.map(|(name, value)| format!("{name}={value} "));
            Some(labels.collect::<String>() + &format!("{:?} {:?}", spec.ports, spec.failure_mode))
        };
        let stable = r#""selector":{"matchLabels":{"a":"b","c":"d"}},
            "targetPorts":[{"number":8000},{"number":8001},{"number":8000}]"#;
        let old = r#""selector":{"a":"b"},"targetPortNumber":8000"#;
        for (spec, expected) in [
            (stable.to_owned(), Some("a=b c=d [8000, 8001] None")),
            (old.to_owned(), Some("a=b [8000] None")),
            (
                format!(r#"{stable},"endpointPickerRef":{{"name":"x","failureMode":"FailOpen"}}"#),
                Some("a=b c=d [8000, 8001] Some(Open)"),
            ),
            (
                format!(r#"{old},"extensionRef":{{"failureMode":"FailClose"}}"#),
                Some("a=b [8000] Some(Closed)"),
            ),
            (r#""selector":{},"targetPortNumber":8000"#.to_owned(), None),
            (r#""selector":{"a":"b"}"#.to_owned(), None),
            (r#""selector":{"a":"b"},"targetPortNumber":0"#.to_owned(), None),
            (r#""selector":{"a":"b"},"targetPortNumber":65536"#.to_owned(), None),
            (
                r#""selector":{"matchLabels":{"a":"b"},"matchExpressions":[]},"targetPortNumber":1"#
                    .to_owned(),
                None,
            ),
        ] {
            assert_eq!(read(&spec).as_deref(), expected, "{spec}");
        }
    }
}
