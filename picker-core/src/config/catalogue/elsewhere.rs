//! Plugin types that people have and that cannot work inside a proxy.

/// Why a plugin type that people have cannot work here, and what does in its place.
pub(in crate::config) fn elsewhere(name: &str) -> Option<&'static str> {
    let found = ELSEWHERE.iter().find(|(it, _)| *it == name);
    found.map(|(_, instead)| *instead)
}

/// Plugin types that cannot work inside a proxy, with what to use instead.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "precise-prefix-cache-producer",
        "KV events come over ZMQ, which a proxy does not speak; use approx-prefix-cache-producer \
         or least-cost-scorer, which learn from the engines' answers",
    ),
    (
        "precise-prefix-cache-scorer",
        "KV events come over ZMQ, which a proxy does not speak; use prefix-cache-scorer or \
         least-cost-scorer, which learn from the engines' answers",
    ),
    (
        "vllmgrpc-parser",
        "gRPC bodies are not read; leave it out, and such requests are routed by load",
    ),
    (
        "vertexai-parser",
        "gRPC bodies are not read; leave it out, and such requests are routed by load",
    ),
    (
        "file-discovery",
        "a proxy does not read files; list the servers in pools[].endpoints, or let a server tell \
         them, in pools[].discovery",
    ),
    (
        "multicluster-file-discovery",
        "a proxy does not read files; list the servers in pools[].endpoints, or let a server tell \
         them, in pools[].discovery",
    ),
    (
        "k8s-notification-source",
        "pods are followed where pools[].discovery says so; leave it out",
    ),
    (
        "endpoint-notification-source",
        "plugins follow the endpoints by themselves; leave it out",
    ),
    (
        "disaggregatedset-rollout-screener",
        "nothing here reads such objects; use label-selector-filter on the revision label",
    ),
    ("multicluster-queue-scorer", MULTICLUSTER),
    ("multicluster-kv-cache-utilization-scorer", MULTICLUSTER),
    ("multicluster-prefix-cache-scorer", MULTICLUSTER),
    ("multicluster-approx-prefix-cache-producer", MULTICLUSTER),
    ("multicluster-metrics-data-source", MULTICLUSTER),
    ("multicluster-metrics-extractor", MULTICLUSTER),
    (
        "header-based-testing-filter",
        "a client must never choose its server; use label-selector-filter, or a pool of its own \
         for the test",
    ),
    (
        "destination-endpoint-served-verifier",
        "a test of gateways; who served stands in the access log as upstream.address",
    ),
];

const MULTICLUSTER: &str =
    "pools of other clusters are not compared; give every cluster an Envoy of its own";
