//! Answers that tell endpoints: what fails changes nothing, what is good has each address once and
//! not too many, and of a list over HTTP it is what another reader finds there.

use std::collections::BTreeSet;
use std::io;

use picker_core::{
    Address, Answer, Collector, DiscoveryOutcome, Listed, LocalData, Snapshot, Timestamp, affirm,
    stored,
};
use serde_json::{Value, json};

/// A byte that says who is asked, then answers with a zero byte between them.
pub fn check(input: &[u8]) {
    let _ = Listed::decode(input);
    let Some((kind, rest)) = input.split_first() else {
        return;
    };
    let source = sources()[usize::from(*kind) % SOURCES].clone();
    let pool = json!({"name": "llm", "discovery": source});
    let document = json!({"pools": [pool]}).to_string();
    let shared = LocalData::default();
    let mut collector = Collector::default();
    let mut now = Timestamp(1_000_000_000);
    for body in rest.split(|byte| *byte == 0) {
        now.0 += 1_000_000;
        affirm(&shared, "llm", &document, now, now);
        collector.tick(&shared, now);
        let Some(call) = collector.poll_discovery(now) else {
            continue;
        };
        assert!(call.path.starts_with('/') && call.path.is_ascii());
        let before = endpoints(&shared);
        let whose = (call.pool.as_str(), call.id);
        let outcome = collector.handle_discovery(&shared, whose, answer_of(body), now);
        let after = endpoints(&shared);
        match outcome {
            DiscoveryOutcome::Failed { failure, .. } => {
                assert_eq!(before, after, "{failure}");
                assert!(!failure.to_string().is_empty());
            }
            DiscoveryOutcome::Read(_) => {}
            DiscoveryOutcome::Unlisted => unreachable!("the call was sent"),
        }
        let addresses: BTreeSet<Address> = after.iter().map(|(_, address)| *address).collect();
        assert_eq!(addresses.len(), after.len());
        assert!(addresses.len() <= ENDPOINTS_MAX);
        if usize::from(*kind).is_multiple_of(SOURCES)
            && let Some(read) = read(body)
        {
            assert_eq!(addresses, read);
        }
    }
}

/// The histories that the tests of discovery have, and lists that are odd.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let pod = |name: &str, ip: &str| {
        json!({
            "metadata": {"name": name, "uid": name, "resourceVersion": "12", "labels": {"a": "b"},
                "annotations": {"llm-d.ai/active-ports": "80,81"}, "managedFields": [{"x": {}}]},
            "status": {"podIP": ip, "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}]},
        })
    };
    let list = |items: Vec<Value>, next: &str| {
        let metadata = json!({"resourceVersion": "9", "continue": next});
        json!({"kind": "PodList", "metadata": metadata, "items": items}).to_string()
    };
    let event = |kind: &str, object: Value| json!({"type": kind, "object": object}).to_string();
    let pool = json!({"spec": {"selector": {"matchLabels": {"a": "b"}},
        "targetPorts": [{"number": 80}], "endpointPickerRef": {"failureMode": "FailOpen"}}});
    let old = json!({"spec": {"selector": {"a": "b"}, "targetPortNumber": 80}});
    let slice = json!({"metadata": {"name": "s"}, "ports": [{"port": 80, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true},
            "targetRef": {"name": "p", "uid": "u"}}]});
    let watched = event("ADDED", pod("c", "10.0.0.3"))
        + "\n"
        + &event("DELETED", pod("a", "10.0.0.1"))
        + &event("BOOKMARK", json!({"metadata": {"resourceVersion": "30"}}));
    let gone = event("ERROR", json!({"code": 410}));
    let first = list(vec![pod("a", "10.0.0.1")], "next/=");
    let second = list(vec![pod("b", "fd00::2")], "");
    let lists = [
        json!([{"targets": ["10.0.0.1:80", "[::1]:81"], "labels": {"a": "b"}}]).to_string(),
        json!([{"targets": ["llm:80"]}]).to_string(),
        "[]".to_owned(),
    ];
    let (pool, old, slices) = (pool.to_string(), old.to_string(), list(vec![slice], ""));
    let histories: [(u8, &[&str]); 5] = [
        (0, &[&lists[0], &lists[1], &lists[2], &lists[0]]),
        (1, &[&first, &second, &watched, "", &gone, &second]),
        (2, &[&pool, &first, &second, &watched, &old]),
        (3, &[&slices, &gone]),
        (1, &["<html>", "{}", "#404", "#410"]),
    ];
    let bytes = |(kind, answers): &(u8, &[&str])| {
        let mut bytes = vec![*kind];
        bytes.extend_from_slice(answers.join("\0").as_bytes());
        bytes
    };
    Ok(histories.iter().map(bytes).collect())
}

/// Who may be asked.
fn sources() -> [Value; SOURCES] {
    let kubernetes = |subject: Value| {
        let mut kubernetes = json!({"namespace": "ns"});
        if let (Some(all), Value::Object(subject)) = (kubernetes.as_object_mut(), subject) {
            all.extend(subject);
        }
        json!({"kubernetes": kubernetes})
    };
    [
        json!({"http": {"cluster": "registry"}}),
        kubernetes(json!({"selector": {"a": "b/ c"}, "targetPorts": [80, 81]})),
        kubernetes(json!({"inferencePool": "llm"})),
        kubernetes(json!({"service": "llm"})),
    ]
}

/// A body is one of status 200, unless it says another.
fn answer_of(body: &[u8]) -> Answer<'_> {
    let status = body.strip_prefix(b"#").and_then(|text| {
        let text = std::str::from_utf8(text).ok()?;
        text.parse().ok()
    });
    let status = status.unwrap_or(200);
    Answer::Response { status, body }
}

fn endpoints(shared: &LocalData) -> Vec<(u32, Address)> {
    let snapshot: Snapshot = stored(shared, "llm").unwrap_or_default();
    let endpoints = snapshot.endpoints.iter();
    endpoints.map(|it| (it.id.0, it.address)).collect()
}

/// The addresses of a list over HTTP that is good beyond doubt.
fn read(body: &[u8]) -> Option<BTreeSet<Address>> {
    let document: Value = serde_json::from_slice(body).ok()?;
    let mut addresses = BTreeSet::new();
    for group in document.as_array()? {
        let members: Vec<&str> = group.as_object()?.keys().map(String::as_str).collect();
        if members != ["labels", "targets"] && members != ["targets"] {
            return None;
        }
        if let Some(labels) = group.get("labels") {
            let mut labels = labels.as_object()?.iter();
            let is_plain = |text: &str| text.len() < 100 && !text.contains("active-ports");
            if !labels.all(|(name, value)| is_plain(name) && value.as_str().is_some_and(is_plain)) {
                return None;
            }
        }
        for target in group["targets"].as_array()? {
            let address: Address = target.as_str()?.parse().ok()?;
            let ip: std::net::IpAddr = address.ip().parse().ok()?;
            // What can be no server is told by the tests beside the reader.
            let is_plain = match ip {
                std::net::IpAddr::V4(ip) => ip.is_private(),
                std::net::IpAddr::V6(ip) => ip.is_loopback(),
            };
            if !is_plain {
                return None;
            }
            addresses.insert(address);
        }
    }
    // One member of a name twice is the last of them there, and both here.
    let is_once = |name: &str| {
        body.windows(name.len())
            .filter(|it| *it == name.as_bytes())
            .count()
    };
    (is_once("targets") == document.as_array()?.len()).then_some(addresses)
}

/// Kinds of sources.
const SOURCES: usize = 4;

/// Endpoints of one pool.
const ENDPOINTS_MAX: usize = 2048;
