//! Where the endpoints of a pool come from, when they are not listed.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Map, Value, json};

use super::error::{Cause, Wanted};
use super::node::{Node, Object};
use super::{
    DISCOVERY_INTERVAL, DISCOVERY_INTERVALS, DISCOVERY_TIMEOUT, HOLDS, KUBERNETES_CLUSTER,
    KUBERNETES_HOST, LABELS_MAX, SCRAPE_TIMEOUT, TARGET_PORTS_MAX, TEXT_BYTES_MAX, pool, units,
};
use crate::time::Span;

/// Whom the collector asks for the endpoints of a pool, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiscoveryConfig {
    /// Whom.
    pub source: DiscoverySource,
    /// The Envoy cluster that leads there.
    pub cluster: String,
    /// The authority of the requests.
    pub host: String,
    /// From one question to the next.
    pub interval: Span,
    /// When a question is given up.
    pub timeout: Span,
    /// How long a list of less than half the endpoints has to be said before it is believed.
    pub hold: Span,
}

/// Whom to ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiscoverySource {
    /// A server that has a list in the format of Prometheus' HTTP service discovery.
    Http {
        /// The path, with a query where it has one.
        path: String,
    },
    /// The API server of Kubernetes.
    Kubernetes {
        /// Where the objects are.
        namespace: String,
        /// Which they are.
        subject: KubernetesSubject,
    },
}

/// What names the endpoints in Kubernetes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KubernetesSubject {
    /// The `InferencePool` of this name: its selector and its target ports.
    InferencePool(String),
    /// The pods with these labels.
    Pods {
        /// The labels, at least one, in the order of their names.
        labels: Vec<(String, String)>,
        /// The ports of each pod, at least one.
        ports: Vec<u16>,
    },
    /// The endpoint slices of a service.
    Service {
        /// The name of the service.
        name: String,
        /// The ports that are used; none for all that the slices have.
        ports: Vec<u16>,
    },
}

/// Says that a list of endpoints beside `discovery` is one too many; there is none then.
pub(super) fn refuse_list<'a>(pool: &mut Object<'a>) -> Option<Node<'a>> {
    pool.key("endpoints")?.fail(Cause::told(
        "the endpoints are listed, and discovered too".into(),
        "remove endpoints, or discovery".into(),
    ));
    None
}

/// The section `discovery` of a pool.
pub(super) fn discovery(node: &Node<'_>) -> Option<DiscoveryConfig> {
    let read = |section: &mut Object<'_>| {
        let (http, kubernetes) = (section.key("http"), section.key("kubernetes"));
        match (http, kubernetes) {
            (Some(node), None) => node.object(http_source),
            (None, Some(node)) => node.object(kubernetes_source),
            _ => {
                section.fail(one_of("http", "kubernetes"));
                None
            }
        }
    };
    node.object(read).flatten()
}

fn http_source(section: &mut Object<'_>) -> DiscoveryConfig {
    let cluster = section.needed("cluster", Wanted::Name);
    let cluster = cluster.and_then(|it| it.text_that(Wanted::Name, pool::is_name));
    let path = section.key("path");
    let path = path.and_then(|it| it.text_that(Wanted::Path, is_target));
    let source = DiscoverySource::Http {
        path: path.unwrap_or("/").to_string(),
    };
    let cluster = cluster.unwrap_or_default();
    read(section, source, (cluster, cluster), SCRAPE_TIMEOUT)
}

fn kubernetes_source(section: &mut Object<'_>) -> DiscoveryConfig {
    let cluster = section.key("cluster");
    let cluster = cluster.and_then(|it| it.text_that(Wanted::Name, pool::is_name));
    let namespace = section.needed("namespace", Wanted::Name);
    let namespace = namespace.and_then(|it| it.text_that(Wanted::Name, is_object_name));
    let subject = subject(section);
    let usual = (cluster.unwrap_or(KUBERNETES_CLUSTER), KUBERNETES_HOST);
    let source = DiscoverySource::Kubernetes {
        namespace: namespace.unwrap_or_default().to_string(),
        subject: subject.unwrap_or(KubernetesSubject::InferencePool(String::new())),
    };
    read(section, source, usual, DISCOVERY_TIMEOUT)
}

fn subject(section: &mut Object<'_>) -> Option<KubernetesSubject> {
    let pool = section.key("inferencePool");
    let selector = section.key("selector");
    let service = section.key("service");
    let ports = section.key("targetPorts");
    if let Some(ports) = ports.as_ref().filter(|_| pool.is_some()) {
        ports.fail(Cause::told(
            "an InferencePool names its target ports itself".into(),
            "remove them".into(),
        ));
    }
    let name = |node: Node<'_>| {
        let name = node.text_that(Wanted::Name, is_object_name);
        name.map(String::from)
    };
    match (pool, selector, service) {
        (Some(pool), None, None) => name(pool).map(KubernetesSubject::InferencePool),
        (None, Some(selector), None) => {
            let ports = match ports {
                Some(ports) => ports_of(&ports),
                None => {
                    section.fail_at("targetPorts", Cause::Missing(Wanted::List));
                    Vec::new()
                }
            };
            let labels = labels_of(&selector);
            Some(KubernetesSubject::Pods { labels, ports })
        }
        (None, None, Some(service)) => Some(KubernetesSubject::Service {
            name: name(service)?,
            ports: ports.map_or_else(Vec::new, |it| ports_of(&it)),
        }),
        _ => {
            section.fail(one_of("inferencePool", "selector, service"));
            None
        }
    }
}

/// What every source has.
fn read(
    section: &mut Object<'_>,
    source: DiscoverySource,
    (cluster, usual_host): (&str, &str),
    usual_timeout: Span,
) -> DiscoveryConfig {
    let host = section.key("host");
    let host = host.and_then(|it| it.text_that(Wanted::Host, is_authority));
    let mut duration = |key, within, default| {
        let duration = section.key(key).and_then(|it| it.duration_within(within));
        duration.unwrap_or(default)
    };
    DiscoveryConfig {
        source,
        cluster: cluster.to_string(),
        host: host.unwrap_or(usual_host).to_string(),
        interval: duration("interval", DISCOVERY_INTERVALS, DISCOVERY_INTERVAL),
        timeout: duration("timeout", DISCOVERY_INTERVALS, usual_timeout),
        hold: duration("hold", HOLDS, Span(0)),
    }
}

/// The labels of a selector, bare or as `matchLabels`.
fn labels_of(selector: &Node<'_>) -> Vec<(String, String)> {
    let entries = match selector.value().get("matchLabels") {
        Some(Value::Object(_)) => {
            let labels = |it: &mut Object<'_>| {
                let labels = it.key("matchLabels")?;
                Some(texts_of(&labels))
            };
            selector.object(labels).flatten().unwrap_or_default()
        }
        _ => texts_of(selector),
    };
    if entries.is_empty() {
        selector.fail(Cause::told(
            "a selector without labels is that of all pods".into(),
            "name labels, like {\"app\": \"llama3\"}".into(),
        ));
    }
    entries
}

fn texts_of(labels: &Node<'_>) -> Vec<(String, String)> {
    let entries = labels.entries(LABELS_MAX).into_iter();
    let texts = entries.filter_map(|(name, node)| Some((name, node.text()?)));
    texts
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

/// Ports as numbers, or as objects with a number, as an `InferencePool` has them.
fn ports_of(list: &Node<'_>) -> Vec<u16> {
    let mut ports = Vec::new();
    for node in list.filled_list(TARGET_PORTS_MAX, Wanted::List) {
        let port = |node: &Node<'_>| node.integer_within(Wanted::Integer, 1, u64::from(u16::MAX));
        let number = match node.value() {
            Value::Object(_) => node
                .object(|it| it.needed("number", Wanted::Integer))
                .flatten()
                .and_then(|it| port(&it)),
            _ => port(&node),
        };
        let Some(number) = number.and_then(|it| u16::try_from(it).ok()) else {
            continue;
        };
        if !ports.contains(&number) {
            ports.push(number);
        }
    }
    ports
}

fn one_of(one: &str, others: &str) -> Cause {
    Cause::told(
        "it must be clear whom to ask".into(),
        alloc::format!("write one of {one}, {others}"),
    )
}

impl DiscoveryConfig {
    /// The section as it is read.
    pub(super) fn show(&self) -> Value {
        let mut shown = json!({
            "cluster": self.cluster,
            "host": self.host,
            "interval": units::show_duration(self.interval),
            "timeout": units::show_duration(self.timeout),
            "hold": units::show_duration(self.hold),
        });
        match &self.source {
            DiscoverySource::Http { path } => {
                shown["path"] = path.as_str().into();
                json!({"http": shown})
            }
            DiscoverySource::Kubernetes { namespace, subject } => {
                shown["namespace"] = namespace.as_str().into();
                match subject {
                    KubernetesSubject::InferencePool(name) => {
                        shown["inferencePool"] = name.as_str().into();
                    }
                    KubernetesSubject::Pods { labels, ports } => {
                        let labels = labels.iter();
                        let labels: Map<String, Value> = labels
                            .map(|(name, value)| (name.clone(), json!(value)))
                            .collect();
                        shown["selector"] = labels.into();
                        shown["targetPorts"] = json!(ports);
                    }
                    KubernetesSubject::Service { name, ports } => {
                        shown["service"] = name.as_str().into();
                        if !ports.is_empty() {
                            shown["targetPorts"] = json!(ports);
                        }
                    }
                }
                json!({"kubernetes": shown})
            }
        }
    }
}

/// Whether `text` is the path of a request, with or without a query.
fn is_target(text: &str) -> bool {
    let is_path_byte = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    text.len() <= TEXT_BYTES_MAX && text.starts_with('/') && text.bytes().all(is_path_byte)
}

/// Whether `text` is a host name or an address, with or without a port.
fn is_authority(text: &str) -> bool {
    let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    pool::is_name(text) && text.bytes().all(is_host_byte)
}

/// Whether `text` can be the name of an object: it goes into a path as it is.
fn is_object_name(text: &str) -> bool {
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    text.len() <= OBJECT_NAME_BYTES_MAX
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(is_name_byte)
}

/// Bytes of a name in Kubernetes, as of a DNS name.
const OBJECT_NAME_BYTES_MAX: usize = 253;

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::super::tests::{check, check_pool, config};
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn document(discovery: &Value) -> Value {
        json!({"pools": [{"name": "a", "discovery": discovery}]})
    }

    fn read(discovery: &Value) -> DiscoveryConfig {
        let config = config(&document(discovery));
        config.pools.into_iter().next().unwrap().discovery.unwrap()
    }

    #[test]
    fn what_is_left_out_has_a_default_and_the_effective_section_reads_back_as_the_same() {
        let usual = json!({"interval": "1s", "timeout": "5s", "hold": "0"});
        let with = |keys: Value| {
            let mut all = usual.clone();
            all.as_object_mut()
                .unwrap()
                .extend(keys.as_object().unwrap().clone());
            all
        };
        let kube = |keys: Value| {
            let mut all = with(json!({
                "cluster": "picker_kube", "host": "kubernetes.default.svc", "namespace": "n",
            }));
            all.as_object_mut()
                .unwrap()
                .extend(keys.as_object().unwrap().clone());
            json!({"kubernetes": all})
        };
        let http = json!({"cluster": "r", "host": "r", "path": "/", "timeout": "1s"});
        for (written, shown) in [
            (
                json!({"http": {"cluster": "r"}}),
                json!({"http": with(http)}),
            ),
            (
                json!({"kubernetes": {"namespace": "n", "inferencePool": "p"}}),
                kube(json!({"inferencePool": "p"})),
            ),
            (
                json!({"kubernetes": {"namespace": "n", "service": "s"}}),
                kube(json!({"service": "s"})),
            ),
            (
                json!({"kubernetes": {"namespace": "n", "service": "s", "targetPorts": [80]}}),
                kube(json!({"service": "s", "targetPorts": [80]})),
            ),
            (
                json!({"kubernetes": {
                    "namespace": "n",
                    "selector": {"matchLabels": {"b": "1", "a": ""}},
                    "targetPorts": [{"number": 8000}, 8001, 8000],
                }}),
                kube(json!({"selector": {"a": "", "b": "1"}, "targetPorts": [8000, 8001]})),
            ),
        ] {
            let discovery = read(&written);
            assert_eq!(discovery.show(), shown);
            assert_eq!(read(&shown), discovery);
        }
    }

    #[test]
    fn every_key_means_something() {
        let plain = read(&json!({"http": {"cluster": "a"}}));
        for (key, value) in [
            ("cluster", "b"),
            ("path", "/x?y=z"),
            ("host", "h:80"),
            ("interval", "2s"),
            ("timeout", "2s"),
            ("hold", "2s"),
        ] {
            let mut keys = json!({"cluster": "a"});
            keys[key] = value.into();
            assert_ne!(read(&json!({"http": keys})), plain, "{key}");
        }
    }

    #[test]
    fn a_mistake_says_what_is_wrong() {
        let kubernetes = |keys: Value| document(&json!({"kubernetes": keys}));
        let at = |path: &str, text: &str| alloc::format!("pools[0].discovery{path}: {text}");
        let one_source = "it must be clear whom to ask. Fix: write one of http, kubernetes.";
        let one_subject = "it must be clear whom to ask. Fix: write one of inferencePool, \
            selector, service.";
        for (document, mistakes) in [
            (document(&json!({})), vec![at("", one_source)]),
            (
                document(&json!({"http": {}, "kubernetes": {}})),
                vec![at("", one_source)],
            ),
            (
                document(&json!({"http": {}})),
                vec![at(
                    ".http.cluster",
                    "a name is missing. Fix: write a text that is not empty.",
                )],
            ),
            (
                kubernetes(json!({"namespace": "n"})),
                vec![at(".kubernetes", one_subject)],
            ),
            (
                kubernetes(json!({"namespace": "n", "service": "s", "inferencePool": "p"})),
                vec![at(".kubernetes", one_subject)],
            ),
            (
                kubernetes(json!({"namespace": "n/m", "inferencePool": "p", "targetPorts": [1]})),
                vec![
                    at(
                        ".kubernetes.namespace",
                        "\"n/m\" is not a name. Fix: write a text that is not empty.",
                    ),
                    at(
                        ".kubernetes.targetPorts",
                        "an InferencePool names its target ports itself. Fix: remove them.",
                    ),
                ],
            ),
        ] {
            let mistakes: Vec<&str> = mistakes.iter().map(String::as_str).collect();
            check(&document, &mistakes);
        }
        check_pool(
            json!({"discovery": {"http": {"cluster": "r"}}}),
            &[
                "pools[0].endpoints: the endpoints are listed, and discovered too. Fix: remove \
               endpoints, or discovery.",
            ],
        );
    }

    #[test]
    fn a_selector_has_labels_and_ports() {
        let kubernetes = |keys: Value| document(&json!({"kubernetes": keys}));
        let at = |path: &str, text: &str| alloc::format!("pools[0].discovery{path}: {text}");
        for (document, mistakes) in [
            (
                kubernetes(json!({"namespace": "n", "selector": {}})),
                vec![
                    at(
                        ".kubernetes.targetPorts",
                        "a list is missing. Fix: write a list, like [\"one\", \"two\"].",
                    ),
                    at(
                        ".kubernetes.selector",
                        "a selector without labels is that of all pods. Fix: name labels, like \
                         {\"app\": \"llama3\"}.",
                    ),
                ],
            ),
            (
                kubernetes(json!({
                    "namespace": "n", "selector": {"a": "b"}, "targetPorts": [0, {"number": "x"}],
                })),
                vec![
                    at(
                        ".kubernetes.targetPorts[0]",
                        "0 is not between 1 and 65535. Fix: choose a value from 1 to 65535.",
                    ),
                    at(
                        ".kubernetes.targetPorts[1].number",
                        "\"x\" is not a whole number. Fix: write a whole number without quotes.",
                    ),
                ],
            ),
        ] {
            let mistakes: Vec<&str> = mistakes.iter().map(String::as_str).collect();
            check(&document, &mistakes);
        }
    }

    #[test]
    fn lists_and_times_have_limits() {
        let ports = |count: usize| {
            let ports: Vec<usize> = (1..=count).collect();
            json!({"kubernetes": {
                "namespace": "n", "selector": {"a": "b"}, "targetPorts": ports,
            }})
        };
        read(&ports(8));
        let too_many = "pools[0].discovery.kubernetes.targetPorts: 9 entries are more than 8. \
            Fix: leave 8 or fewer.";
        check(&document(&ports(9)), &[too_many]);
        let every = |interval: &str| json!({"http": {"cluster": "r", "interval": interval}});
        read(&every("100ms"));
        let too_often = "pools[0].discovery.http.interval: \"99ms\" is not between 100ms and 1h. \
            Fix: choose a value from 100ms to 1h.";
        check(&document(&every("99ms")), &[too_often]);
    }
}
