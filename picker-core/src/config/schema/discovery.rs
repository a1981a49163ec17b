//! The JSON Schema of `discovery`.

use serde_json::{Value, json};

use super::super::units::show_duration;
use super::super::{
    DISCOVERY_INTERVAL, DISCOVERY_TIMEOUT, KUBERNETES_CLUSTER, KUBERNETES_HOST, LABELS_MAX,
    SCRAPE_TIMEOUT, TARGET_PORTS_MAX, TEXT_BYTES_MAX,
};
use super::filter::{name, told};
use super::{DURATION, closed};
use crate::time::Span;

/// Where endpoints come from.
pub(super) fn schema() -> Value {
    let mut cluster = name();
    cluster["default"] = KUBERNETES_CLUSTER.into();
    let mut discovery = closed(json!({"http": http(), "kubernetes": kubernetes(&cluster)}));
    discovery["minProperties"] = 1.into();
    discovery["maxProperties"] = 1.into();
    told(
        discovery,
        "Where the endpoints come from, in place of a list: the collector asks, and all workers \
         follow.",
    )
}

fn http() -> Value {
    let path = json!({
        "type": "string",
        "maxLength": TEXT_BYTES_MAX,
        "pattern": TARGET,
        "default": "/",
    });
    let mut http = closed(json!({
        "cluster": told(name(), "The Envoy cluster of the server that has the list."),
        "path": told(path, "Where it has it, with a query if need be."),
        "host": told(authority(), "The authority of the requests; by default the cluster."),
        "interval": interval("From one question to the next."),
        "timeout": timeout(SCRAPE_TIMEOUT),
        "hold": hold(),
    }));
    http["required"] = json!(["cluster"]);
    told(
        http,
        "A list in the format of Prometheus' HTTP service discovery.",
    )
}

fn kubernetes(cluster: &Value) -> Value {
    let labels = json!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": LABELS_MAX,
        "additionalProperties": {"type": "string"},
    });
    let match_labels = closed(json!({"matchLabels": labels}));
    let port = json!({"type": "integer", "minimum": 1, "maximum": u16::MAX});
    let numbered = closed(json!({"number": port}));
    let ports = json!({
        "type": "array",
        "minItems": 1,
        "maxItems": TARGET_PORTS_MAX,
        "items": {"anyOf": [port, numbered]},
    });
    let mut host = authority();
    host["default"] = KUBERNETES_HOST.into();
    let mut kubernetes = closed(json!({
        "cluster": told(cluster.clone(), "The Envoy cluster of the API server."),
        "host": told(host, "The authority of the requests."),
        "namespace": told(object(), "The namespace of the objects."),
        "inferencePool": told(
            object(),
            "The InferencePool that says which pods, which ports and which failure mode.",
        ),
        "selector": told(
            json!({"anyOf": [match_labels, labels]}),
            "The labels of the pods, where there is no InferencePool.",
        ),
        "targetPorts": told(ports, "The ports of each pod, beside a selector; of a service those that are used."),
        "service": told(object(), "The service whose endpoint slices are the list."),
        "interval": interval("How long one watch lasts, in whole seconds."),
        "timeout": timeout(DISCOVERY_TIMEOUT),
        "hold": hold(),
    }));
    kubernetes["required"] = json!(["namespace"]);
    kubernetes["oneOf"] = json!([
        {"required": ["inferencePool"]},
        {"required": ["selector", "targetPorts"]},
        {"required": ["service"]},
    ]);
    told(kubernetes, "The API server of Kubernetes.")
}

fn interval(told_of: &str) -> Value {
    duration(DISCOVERY_INTERVAL, told_of)
}

fn timeout(default: Span) -> Value {
    duration(default, "When a question is given up.")
}

fn hold() -> Value {
    duration(
        Span(0),
        "How long a list that has lost more than half is doubted.",
    )
}

fn duration(default: Span, told_of: &str) -> Value {
    let schema = json!({
        "type": "string",
        "pattern": DURATION,
        "default": show_duration(default),
    });
    told(schema, told_of)
}

fn authority() -> Value {
    json!({"type": "string", "maxLength": TEXT_BYTES_MAX, "pattern": AUTHORITY})
}

fn object() -> Value {
    json!({"type": "string", "maxLength": 253, "pattern": OBJECT_NAME})
}

/// A path with or without a query.
const TARGET: &str = "^/[!-\"$-~]*$";

/// A host name or an address, with or without a port.
const AUTHORITY: &str = "^[A-Za-z0-9._:\\[\\]-]+$";

/// The name of an object in Kubernetes.
const OBJECT_NAME: &str = "^[A-Za-z0-9][A-Za-z0-9.-]*$";
