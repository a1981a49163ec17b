//! The order in which the API server of Kubernetes is asked.
//!
//! The `InferencePool` first, where one is named; then the objects, listed once in pages; then a
//! watch after the other, each so short that its answer can be read as a whole: it has what happened
//! meanwhile. Between two watches the `InferencePool` is read again. A watch that comes too late for
//! what the server remembers begins with a new list.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

use super::objects::{Entry, PoolSpec, read_event, read_page, read_pool};
use super::{Found, FoundList, ListFault, Step};
use crate::Address;
use crate::config::{ENDPOINTS_MAX, EndpointConfig, KubernetesSubject};
use crate::engine::EngineKind;
use crate::json::pull::Unreadable;
use crate::pool::Labels;
use crate::sort::sort;
use crate::sorted::SortedMap;
use crate::time::Span;

/// How far asking has come, and what is known.
pub(super) struct Kubernetes {
    namespace: String,
    subject: KubernetesSubject,
    engine: EngineKind,
    next: Next,
    /// What the `InferencePool` says, or the configuration in its place.
    spec: PoolSpec,
    /// Whether the `InferencePool` is looked for in the group that it had before it was stable.
    in_old_group: bool,
    /// The objects by name.
    entries: SortedMap<String, Entry>,
    /// Those of the pages so far, while they are listed.
    pages: Vec<(String, Entry)>,
    pages_read: u32,
    /// What asks for the next page; empty for the first.
    page: String,
    /// The version from which to watch.
    version: String,
    /// Whether what is known has changed since it was last accepted.
    is_changed: bool,
    /// Whether a list was begun because its version was gone, and none has ended since.
    was_gone: bool,
}

/// What is asked for next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Pool,
    List,
    Watch,
}

impl Kubernetes {
    pub(super) fn new(namespace: &str, subject: &KubernetesSubject, engine: EngineKind) -> Self {
        let (next, spec) = match subject {
            KubernetesSubject::InferencePool(_) => (Next::Pool, PoolSpec::default()),
            KubernetesSubject::Pods { labels, ports } => {
                let spec = PoolSpec {
                    labels: labels.clone(),
                    ports: ports.clone(),
                    failure_mode: None,
                };
                (Next::List, spec)
            }
            KubernetesSubject::Service { name, ports } => {
                let spec = PoolSpec {
                    labels: Vec::from([(SERVICE_LABEL.into(), name.clone())]),
                    ports: ports.clone(),
                    failure_mode: None,
                };
                (Next::List, spec)
            }
        };
        Self {
            namespace: namespace.into(),
            subject: subject.clone(),
            engine,
            next,
            spec,
            in_old_group: false,
            entries: SortedMap::default(),
            pages: Vec::new(),
            pages_read: 0,
            page: String::new(),
            version: String::new(),
            is_changed: false,
            was_gone: false,
        }
    }

    /// Whether the next call is a watch.
    pub(super) fn is_watch(&self) -> bool {
        self.next == Next::Watch
    }

    /// The path of the next call; a watch lasts about an `interval`.
    pub(super) fn path(&self, interval: Span) -> String {
        if let (Next::Pool, KubernetesSubject::InferencePool(name)) = (self.next, &self.subject) {
            let group = if self.in_old_group {
                "inference.networking.x-k8s.io/v1alpha2"
            } else {
                "inference.networking.k8s.io/v1"
            };
            let namespace = &self.namespace;
            return format!("/apis/{group}/namespaces/{namespace}/inferencepools/{name}");
        }
        let (api, kind) = match self.subject {
            KubernetesSubject::Service { .. } => ("apis/discovery.k8s.io/v1", "endpointslices"),
            _ => ("api/v1", "pods"),
        };
        let mut path = format!("/{api}/namespaces/{}/{kind}?labelSelector=", self.namespace);
        push_selector(&mut path, &self.spec.labels);
        match self.next {
            Next::Watch => {
                path.push_str("&watch=1&allowWatchBookmarks=true&resourceVersion=");
                push_encoded(&mut path, &self.version);
                let seconds = interval.0.div_ceil(SECOND.0).max(1);
                // Writing to a text does not fail.
                let _ = write!(path, "&timeoutSeconds={seconds}");
            }
            Next::List | Next::Pool => {
                let _ = write!(path, "&limit={PAGE_OBJECTS}");
                if !self.page.is_empty() {
                    path.push_str("&continue=");
                    push_encoded(&mut path, &self.page);
                }
            }
        }
        path
    }

    /// Takes in a good answer.
    pub(super) fn take(&mut self, body: &[u8]) -> Result<Step, ListFault> {
        let taken = match self.next {
            Next::Pool => self.take_pool(body),
            Next::List => self.take_page(body),
            Next::Watch => self.take_events(body),
        };
        if taken.is_err() && self.next != Next::Pool {
            // What was not understood may be understood when it is told as a whole.
            self.begin_list();
        }
        taken?;
        if self.next == Next::List || !self.is_changed || self.version.is_empty() {
            return Ok(Step::Same);
        }
        Ok(Step::List(self.found()?))
    }

    /// Takes in a status; whether that is answered by asking again at once.
    pub(super) fn take_status(&mut self, status: u16) -> bool {
        match (self.next, status) {
            (Next::Pool, 404) => {
                // Both groups are tried before it is said that there is none.
                self.in_old_group = !self.in_old_group;
                self.in_old_group
            }
            (Next::List | Next::Watch, 410) => self.begin_anew(),
            _ => false,
        }
    }

    /// Remembers that the last list is in use.
    pub(super) fn accept(&mut self) {
        self.is_changed = false;
    }

    fn take_pool(&mut self, body: &[u8]) -> Result<(), ListFault> {
        let mut spec = read_pool(body)?;
        sort(&mut spec.labels);
        let is_listed = !self.version.is_empty() && self.spec.labels == spec.labels;
        self.is_changed |= self.spec != spec;
        self.spec = spec;
        if is_listed {
            self.next = Next::Watch;
        } else {
            self.begin_list();
        }
        Ok(())
    }

    fn take_page(&mut self, body: &[u8]) -> Result<(), ListFault> {
        let page = read_page(body)?;
        self.pages_read = self.pages_read.saturating_add(1);
        let count = self.pages.len().saturating_add(page.objects.len());
        if count > ENDPOINTS_MAX || self.pages_read > PAGES_MAX {
            return Err(ListFault::TooMany);
        }
        let objects = page.objects.into_iter();
        self.pages.extend(objects.map(|it| (it.name, it.entry)));
        self.page = page.next;
        if !self.page.is_empty() {
            return Ok(());
        }
        if page.version.is_empty() {
            return Err(ListFault::Unreadable);
        }
        let mut entries = SortedMap::default();
        for (name, entry) in core::mem::take(&mut self.pages) {
            entries.insert(name, entry);
        }
        self.entries = entries;
        self.version = page.version;
        self.is_changed = true;
        self.was_gone = false;
        self.next = Next::Watch;
        Ok(())
    }

    fn take_events(&mut self, body: &[u8]) -> Result<(), ListFault> {
        let mut rest = body;
        while let Some((event, after)) = read_event(rest)? {
            rest = after;
            let object = event.object;
            match event.kind.as_str() {
                "ADDED" | "MODIFIED" => self.put(object.name, object.entry)?,
                "DELETED" => self.is_changed |= self.entries.remove(&object.name).is_some(),
                "ERROR" if object.code == 410 && self.begin_anew() => return Ok(()),
                "BOOKMARK" => {}
                _ => return Err(ListFault::Unreadable),
            }
            if !object.version.is_empty() {
                self.version = object.version;
            }
        }
        self.was_gone = false;
        if matches!(self.subject, KubernetesSubject::InferencePool(_)) {
            self.next = Next::Pool;
        }
        Ok(())
    }

    fn put(&mut self, name: String, entry: Entry) -> Result<(), ListFault> {
        let known = self.entries.get(&name);
        if known == Some(&entry) {
            return Ok(());
        }
        if known.is_none() && self.entries.len() == ENDPOINTS_MAX {
            return Err(ListFault::TooMany);
        }
        self.entries.insert(name, entry);
        self.is_changed = true;
        Ok(())
    }

    /// Lists anew because a version is gone; not at once when that has happened just before.
    fn begin_anew(&mut self) -> bool {
        self.begin_list();
        !core::mem::replace(&mut self.was_gone, true)
    }

    fn begin_list(&mut self) {
        self.next = Next::List;
        self.pages.clear();
        self.pages_read = 0;
        self.page.clear();
    }

    /// The endpoints that all objects make.
    fn found(&self) -> Result<FoundList, ListFault> {
        let is_service = matches!(self.subject, KubernetesSubject::Service { .. });
        let members = self.entries.iter().flat_map(|(_, entry)| &entry.members);
        let of_4 = members.filter(|it| is_service && it.ip.is_ipv4());
        let mut of_4: Vec<u64> = of_4.map(|it| it.identity).collect();
        sort(&mut of_4);
        let mut endpoints = Vec::new();
        for (_, entry) in self.entries.iter() {
            for member in &entry.members {
                // A service of two families has every pod twice.
                if is_service && member.ip.is_ipv6() && of_4.binary_search(&member.identity).is_ok()
                {
                    continue;
                }
                let ports = if is_service {
                    &entry.ports
                } else {
                    &self.spec.ports
                };
                let wanted =
                    |port: &&u16| self.spec.ports.is_empty() || self.spec.ports.contains(port);
                for port in ports.iter().filter(wanted) {
                    let address = Address::new(member.ip, *port);
                    let Some(address) = address.filter(|it| it.is_one_host()) else {
                        continue;
                    };
                    if endpoints.len() == ENDPOINTS_MAX {
                        return Err(ListFault::TooMany);
                    }
                    endpoints.push(Found {
                        endpoint: EndpointConfig {
                            address,
                            labels: member.labels.clone(),
                            engine: self.engine,
                        },
                        identity: member.identity,
                        takes_requests: member.takes_requests,
                    });
                }
            }
        }
        Ok(FoundList {
            endpoints,
            failure_mode: self.spec.failure_mode,
        })
    }
}

impl From<Unreadable> for ListFault {
    fn from(_: Unreadable) -> Self {
        Self::Unreadable
    }
}

/// Appends `name=value,…` as a query has it.
fn push_selector(path: &mut String, labels: &Labels) {
    for (place, (name, value)) in labels.iter().enumerate() {
        if place > 0 {
            path.push_str("%2C");
        }
        push_encoded(path, name);
        path.push_str("%3D");
        push_encoded(path, value);
    }
}

/// Appends a text as a query has it.
fn push_encoded(path: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(byte.into());
        } else {
            let _ = write!(path, "%{byte:02X}");
        }
    }
}

/// The label that endpoint slices have of their service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Objects of one page: some 500 KB of pods, which are read in a few milliseconds.
const PAGE_OBJECTS: usize = 50;

/// Pages of one list: many more than full ones would be.
const PAGES_MAX: u32 = 1000;

const SECOND: Span = Span::from_millis(1000);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const PODS: &str = "/api/v1/namespaces/ns/pods?labelSelector=app%3Dllm";

    fn of_pods(ports: &[u16]) -> Kubernetes {
        let subject = KubernetesSubject::Pods {
            labels: vec![("app".into(), "llm".into())],
            ports: ports.to_vec(),
        };
        Kubernetes::new("ns", &subject, EngineKind::Vllm)
    }

    fn of_pool() -> Kubernetes {
        let subject = KubernetesSubject::InferencePool("llm".into());
        Kubernetes::new("ns", &subject, EngineKind::Vllm)
    }

    fn path(kubernetes: &Kubernetes) -> String {
        kubernetes.path(Span::from_millis(1500))
    }

    fn pod(name: &str, host: u8) -> String {
        format!(
            r#"{{"metadata":{{"name":"{name}","uid":"{name}","resourceVersion":"20"}},"status":{{
            "podIP":"10.0.0.{host}","conditions":[{{"type":"Ready","status":"True"}}]}}}}"#
        )
    }

    fn page(version: &str, next: &str, pods: &[String]) -> String {
        let pods = pods.join(",");
        format!(
            r#"{{"metadata":{{"resourceVersion":"{version}","continue":"{next}"}},"items":[{pods}]}}"#
        )
    }

    fn event(kind: &str, object: &str) -> String {
        format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
    }

    fn pool(label: &str, ports: &[u16]) -> String {
        let ports = ports.iter().map(|port| format!(r#"{{"number":{port}}}"#));
        let ports = ports.collect::<Vec<String>>().join(",");
        format!(
            r#"{{"spec":{{"selector":{{"matchLabels":{{"app":"{label}"}}}},"targetPorts":[{ports}]}}}}"#
        )
    }

    /// The addresses that an answer leads to, all accepted; `-` where it leads to none.
    fn take(kubernetes: &mut Kubernetes, body: &str) -> String {
        match kubernetes.take(body.as_bytes()) {
            Ok(Step::List(list)) => {
                kubernetes.accept();
                let found = list.endpoints.iter().map(|it| it.address().to_string());
                found.collect::<Vec<String>>().join(" ")
            }
            Ok(Step::Same | Step::Again) => "-".into(),
            Err(fault) => format!("{fault:?}"),
        }
    }

    #[test]
    fn pods_are_listed_in_pages_and_then_watched() {
        let mut asked = of_pods(&[80, 81]);
        assert_eq!(path(&asked), format!("{PODS}&limit=50"));
        assert_eq!(take(&mut asked, &page("9", "n/x=", &[pod("a", 1)])), "-");
        assert_eq!(path(&asked), format!("{PODS}&limit=50&continue=n%2Fx%3D"));
        let all = "10.0.0.1:80 10.0.0.1:81 10.0.0.2:80 10.0.0.2:81";
        assert_eq!(take(&mut asked, &page("9", "", &[pod("b", 2)])), all);
        let watch = |version: u32| {
            let watch = "watch=1&allowWatchBookmarks=true";
            format!("{PODS}&{watch}&resourceVersion={version}&timeoutSeconds=2")
        };
        assert_eq!(path(&asked), watch(9));
        assert_eq!(take(&mut asked, ""), "-");
        assert_eq!(path(&asked), watch(9));
        let known = event("MODIFIED", &pod("a", 1));
        assert_eq!(take(&mut asked, &known), "-", "nothing that matters");
        assert_eq!(path(&asked), watch(20));
        let bookmark = event("BOOKMARK", r#"{"metadata":{"resourceVersion":"31"}}"#);
        let events = event("DELETED", &pod("a", 1)) + &event("ADDED", &pod("c", 3)) + &bookmark;
        let left = "10.0.0.2:80 10.0.0.2:81 10.0.0.3:80 10.0.0.3:81";
        assert_eq!(take(&mut asked, &events), left);
        assert_eq!(path(&asked), watch(31));
    }

    #[test]
    fn a_version_that_is_gone_leads_to_a_new_list_at_once_but_not_twice() {
        let gone = event("ERROR", r#"{"kind":"Status","code":410}"#);
        let listed = || {
            let mut asked = of_pods(&[80]);
            take(&mut asked, &page("9", "", &[pod("a", 1)]));
            asked
        };
        let mut asked = listed();
        assert_eq!(take(&mut asked, &gone), "-");
        assert_eq!(path(&asked), format!("{PODS}&limit=50"));
        let mut asked = listed();
        assert!(asked.take_status(410));
        assert_eq!(path(&asked), format!("{PODS}&limit=50"));
        assert!(!asked.take_status(410), "that was a list already");
        assert_eq!(
            take(&mut asked, &page("30", "", &[pod("b", 2)])),
            "10.0.0.2:80"
        );
        assert!(asked.take_status(410));
        let mut asked = listed();
        take(&mut asked, &page("x", "next", &[]));
        assert!(!asked.take_status(500));
    }

    #[test]
    fn what_is_not_understood_is_listed_again_and_nothing_is_lost() {
        for bad in [
            event("MOVED", &pod("b", 2)),
            event("ERROR", r#"{"code":500}"#),
            event("ADDED", "7"),
            event("ADDED", &pod("b", 2)).replace("}}}", ""),
            "<html>".into(),
        ] {
            let mut asked = of_pods(&[80]);
            take(&mut asked, &page("9", "", &[pod("a", 1)]));
            assert_eq!(take(&mut asked, &bad), "Unreadable", "{bad}");
            assert_eq!(path(&asked), format!("{PODS}&limit=50"), "{bad}");
            assert_eq!(take(&mut asked, &page("9", "n", &[pod("a", 1)])), "-");
            assert_eq!(take(&mut asked, "{}"), "Unreadable");
            assert_eq!(
                path(&asked),
                format!("{PODS}&limit=50"),
                "the first page again"
            );
            let both = page("9", "", &[pod("a", 1), pod("b", 2)]);
            assert_eq!(take(&mut asked, &both), "10.0.0.1:80 10.0.0.2:80");
        }
    }

    #[test]
    fn the_pool_is_read_before_the_list_and_between_watches() {
        let mut asked = of_pool();
        let of_group = |group: &str| format!("/apis/{group}/namespaces/ns/inferencepools/llm");
        let stable = of_group("inference.networking.k8s.io/v1");
        assert_eq!(path(&asked), stable);
        assert_eq!(take(&mut asked, &pool("llm", &[80])), "-");
        assert_eq!(path(&asked), format!("{PODS}&limit=50"));
        assert_eq!(
            take(&mut asked, &page("9", "", &[pod("a", 1)])),
            "10.0.0.1:80"
        );
        assert!(asked.is_watch());
        assert_eq!(take(&mut asked, ""), "-");
        assert_eq!(path(&asked), stable);
        assert_eq!(take(&mut asked, &pool("llm", &[80])), "-");
        assert!(asked.is_watch());
        take(&mut asked, "");
        let ports = take(&mut asked, &pool("llm", &[80, 81]));
        assert_eq!(ports, "10.0.0.1:80 10.0.0.1:81", "other ports need no list");
        assert!(asked.is_watch());
        take(&mut asked, "");
        assert_eq!(take(&mut asked, &pool("other", &[80])), "-");
        let others = PODS.replace("llm", "other");
        assert_eq!(path(&asked), format!("{others}&limit=50"));
        assert_eq!(take(&mut asked, &page("9", "", &[])), "");
    }

    #[test]
    fn both_groups_are_tried_for_a_pool() {
        let mut asked = of_pool();
        assert!(asked.take_status(404));
        assert!(path(&asked).contains("/inference.networking.x-k8s.io/v1alpha2/"));
        assert!(!asked.take_status(404), "there is none in either");
        assert!(path(&asked).contains("/inference.networking.k8s.io/v1/"));
        assert!(!asked.take_status(403));
        assert!(asked.take_status(404));
        take(&mut asked, &pool("llm", &[80]));
        take(&mut asked, &page("9", "", &[]));
        take(&mut asked, "");
        assert!(
            path(&asked).contains("v1alpha2"),
            "it is looked for where it was"
        );
    }

    #[test]
    fn a_service_has_every_pod_once_on_the_ports_of_its_slices() {
        let slice = |name: &str, hosts: &[&str]| {
            let endpoints = hosts.iter().map(|host| {
                let uid = host.rsplit(['.', ':']).next().unwrap();
                format!(
                    r#"{{"addresses":["{host}"],"targetRef":{{"name":"p{uid}","uid":"{uid}"}}}}"#
                )
            });
            let endpoints = endpoints.collect::<Vec<String>>().join(",");
            let ports = r#"[{"port":80},{"port":90}]"#;
            format!(
                r#"{{"metadata":{{"name":"{name}"}},"endpoints":[{endpoints}],"ports":{ports}}}"#
            )
        };
        for (ports, expected) in [
            (vec![], "10.0.0.1:80 10.0.0.1:90 [fd00::2]:80 [fd00::2]:90"),
            (vec![80], "10.0.0.1:80 [fd00::2]:80"),
        ] {
            let name = "llm".into();
            let subject = KubernetesSubject::Service { name, ports };
            let mut asked = Kubernetes::new("ns", &subject, EngineKind::Vllm);
            let expected_path = "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices\
                ?labelSelector=kubernetes.io%2Fservice-name%3Dllm&limit=50";
            assert_eq!(path(&asked), expected_path);
            let slices = [
                slice("a", &["10.0.0.1"]),
                slice("b", &["fd00::1", "fd00::2"]),
            ];
            assert_eq!(take(&mut asked, &page("9", "", &slices)), expected);
        }
    }

    #[test]
    fn objects_endpoints_and_pages_have_limits() {
        let pods = |count: usize| {
            let pods = (0..count).map(|it| pod(&format!("p{it:04}"), 1));
            pods.collect::<Vec<String>>()
        };
        let listed = |count: usize| take(&mut of_pods(&[80]), &page("9", "", &pods(count)));
        assert_eq!(listed(2048).split(' ').count(), 2048);
        assert_eq!(listed(2049), "TooMany");
        let mut asked = of_pods(&[80, 81]);
        assert_eq!(take(&mut asked, &page("9", "", &pods(1025))), "TooMany");
        let mut asked = of_pods(&[80]);
        take(&mut asked, &page("9", "", &pods(2048)));
        assert_eq!(
            take(&mut asked, &event("ADDED", &pod("p0000", 2)))
                .split(' ')
                .count(),
            2048
        );
        assert_eq!(
            take(&mut asked, &event("ADDED", &pod("more", 2))),
            "TooMany"
        );
        let mut asked = of_pods(&[80]);
        for _ in 0..1000 {
            assert_eq!(take(&mut asked, &page("9", "next", &[])), "-");
        }
        assert_eq!(take(&mut asked, &page("9", "", &[])), "TooMany");
    }
}
