//! The API server of Kubernetes as far as the picker asks it, without a network: paths go in,
//! answers come out.
//!
//! Objects have the members that real ones have, most of which the picker steps over. What happens
//! is kept as events, so that lists and watches agree as they do in a real one: a list shows one
//! moment however many pages it has, and what is too long ago is gone.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The API server.
#[derive(Default)]
pub struct Api {
    /// The version of the last change.
    version: u64,
    pods: BTreeMap<String, Pod>,
    /// The `InferencePool`, and whether it is of the group before it was stable.
    pool: Option<(Value, bool)>,
    events: Vec<Event>,
    /// Events up to this version are gone.
    gone: u64,
    /// Lists that have pages left, by what asks for them.
    lists: BTreeMap<String, (u64, Vec<Value>)>,
    /// Every path that was asked for.
    pub asked: Vec<String>,
}

/// A pod.
#[derive(Clone, PartialEq, Debug)]
pub struct Pod {
    /// What tells it from others of its name.
    pub uid: String,
    /// Its address; empty before it has one.
    pub ip: String,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it is about to end.
    pub ending: bool,
    /// `Running`, `Pending`, `Succeeded` or `Failed`.
    pub phase: &'static str,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    version: u64,
}

struct Event {
    version: u64,
    name: String,
    before: Option<Pod>,
    after: Option<Pod>,
}

impl Pod {
    /// A ready pod with the label `app`.
    pub fn new(uid: &str, ip: &str, app: &str) -> Self {
        Self {
            uid: uid.into(),
            ip: ip.into(),
            ready: true,
            ending: false,
            phase: "Running",
            labels: BTreeMap::from([("app".into(), app.into())]),
            annotations: BTreeMap::new(),
            version: 0,
        }
    }

    fn fits(&self, selector: &[(String, String)]) -> bool {
        let mut selector = selector.iter();
        selector.all(|(name, value)| self.labels.get(name) == Some(value))
    }

    fn show(&self, name: &str) -> Value {
        let status = if self.ready { "True" } else { "False" };
        let mut annotations = self.annotations.clone();
        let applied = "{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}".repeat(8);
        let key = "kubectl.kubernetes.io/last-applied-configuration";
        annotations.insert(key.into(), applied);
        let mut pod = json!({
            "metadata": {
                "name": name,
                "generateName": "llm-",
                "namespace": "serving",
                "uid": self.uid,
                "resourceVersion": self.version.to_string(),
                "creationTimestamp": "2026-11-30T08:00:00Z",
                "labels": self.labels,
                "annotations": annotations,
                "ownerReferences": [{"kind": "ReplicaSet", "name": "llm-7d9", "controller": true}],
                "managedFields": [{
                    "manager": "kubelet",
                    "fieldsV1": {"f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {
                        ".": {}, "f:status": {}, "f:type": {},
                    }}}},
                }],
            },
            "spec": {
                "containers": [{
                    "name": "vllm",
                    "image": "vllm/vllm-openai:v0.11.0",
                    "args": ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--port", "8000"],
                    "ports": [{"containerPort": 8000, "protocol": "TCP"}],
                    "env": [{"name": "X", "value": "a \"quoted\" \\ value"}],
                    "resources": {"limits": {"nvidia.com/gpu": "1"}},
                }],
                "nodeName": "node-1",
            },
            "status": {
                "phase": self.phase,
                "conditions": [
                    {"type": "Initialized", "status": "True", "lastProbeTime": null},
                    {"type": "Ready", "status": status, "lastProbeTime": null},
                    {"type": "PodScheduled", "status": "True"},
                ],
                "hostIP": "192.168.0.1",
                "containerStatuses": [{"name": "vllm", "ready": self.ready, "restartCount": 0}],
                "startTime": "2026-11-30T08:00:01Z",
            },
        });
        if !self.ip.is_empty() {
            pod["status"]["podIP"] = json!(self.ip);
            pod["status"]["podIPs"] = json!([{"ip": self.ip}]);
        }
        if self.ending {
            pod["metadata"]["deletionTimestamp"] = json!("2026-11-30T09:00:00Z");
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        }
        pod
    }
}

impl Api {
    /// Adds a pod, or changes the one of this name; `None` takes it away.
    pub fn set(&mut self, name: &str, pod: Option<Pod>) {
        self.version += 1;
        let version = self.version;
        let after = pod.map(|pod| Pod { version, ..pod });
        let before = match &after {
            Some(after) => self.pods.insert(name.into(), after.clone()),
            None => self.pods.remove(name),
        };
        if before.is_some() || after.is_some() {
            let name = name.into();
            self.events.push(Event {
                version,
                name,
                before,
                after,
            });
        }
    }

    /// The pods by name.
    pub fn pods(&self) -> &BTreeMap<String, Pod> {
        &self.pods
    }

    /// Sets what the `InferencePool` says; it is one of the group before it was stable if `is_old`.
    pub fn set_pool(&mut self, app: &str, ports: &[u16], failure_mode: &str, is_old: bool) {
        self.version += 1;
        let spec = if is_old {
            json!({
                "selector": {"app": app},
                "targetPortNumber": ports.first(),
                "extensionRef": {"name": "epp", "failureMode": failure_mode},
            })
        } else {
            let ports = ports.iter().map(|port| json!({"number": port}));
            json!({
                "selector": {"matchLabels": {"app": app}},
                "targetPorts": ports.collect::<Vec<Value>>(),
                "endpointPickerRef": {"name": "epp", "port": {"number": 9002},
                    "failureMode": failure_mode},
            })
        };
        let metadata = json!({"name": "llm", "resourceVersion": self.version.to_string()});
        let pool = json!({"kind": "InferencePool", "metadata": metadata, "spec": spec});
        self.pool = Some((pool, is_old));
    }

    /// Takes the `InferencePool` away.
    pub fn remove_pool(&mut self) {
        self.pool = None;
    }

    /// Forgets all that has happened, and lists that are not read to their end.
    pub fn forget(&mut self) {
        self.events.clear();
        self.lists.clear();
        self.gone = self.version;
    }

    /// The status and the body for a path; a watch is answered with what has happened by now.
    pub fn answer(&mut self, target: &str) -> (u16, String) {
        self.asked.push(target.to_owned());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query: BTreeMap<&str, String> = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key, decoded(value)))
            .collect();
        let of_query = |key: &str| query.get(key).map_or("", String::as_str);
        let is_stable = path.starts_with("/apis/inference.networking.k8s.io/v1/");
        if path.ends_with("/namespaces/serving/inferencepools/llm") {
            return match &self.pool {
                Some((pool, is_old)) if *is_old != is_stable => (200, pool.to_string()),
                _ => failure(404, "inferencepools.inference.networking.k8s.io not found"),
            };
        }
        if path != "/api/v1/namespaces/serving/pods" {
            return failure(404, "the server could not find the requested resource");
        }
        let selector = of_query("labelSelector").split(',').map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (name.to_owned(), value.to_owned())
        });
        let selector: Vec<(String, String)> = selector.collect();
        if of_query("watch") == "1" {
            return self.watch(&selector, of_query("resourceVersion").parse().unwrap_or(0));
        }
        let limit = of_query("limit").parse().unwrap_or(usize::MAX);
        self.list(&selector, limit, of_query("continue"))
    }

    fn list(&mut self, selector: &[(String, String)], limit: usize, token: &str) -> (u16, String) {
        let (version, mut items) = if token.is_empty() {
            let pods = self.pods.iter().filter(|(_, pod)| pod.fits(selector));
            (
                self.version,
                pods.map(|(name, pod)| pod.show(name)).collect(),
            )
        } else {
            match self.lists.remove(token) {
                Some(left) => left,
                None => return failure(410, "The provided continue parameter is too old"),
            }
        };
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if items.len() > limit {
            let left = items.split_off(limit);
            let next = format!("{version}+{}/=", left.len());
            metadata["continue"] = json!(next);
            metadata["remainingItemCount"] = json!(left.len());
            self.lists.insert(next, (version, left));
        }
        let list = json!({
            "kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items,
        });
        (200, list.to_string())
    }

    fn watch(&self, selector: &[(String, String)], since: u64) -> (u16, String) {
        if since < self.gone {
            let object = json!({"kind": "Status", "status": "Failure", "code": 410,
                "reason": "Expired", "message": "too old resource version"});
            return (200, json!({"type": "ERROR", "object": object}).to_string());
        }
        let mut lines = String::new();
        for event in self.events.iter().filter(|it| it.version > since) {
            let fits = |pod: &Option<Pod>| pod.as_ref().is_some_and(|pod| pod.fits(selector));
            let kind = match (fits(&event.before), fits(&event.after)) {
                (false, false) => continue,
                (false, true) => "ADDED",
                (true, true) => "MODIFIED",
                (true, false) => "DELETED",
            };
            let pod = event.after.as_ref().filter(|pod| pod.fits(selector));
            let Some(pod) = pod.or(event.before.as_ref()) else {
                continue;
            };
            let version = event.version;
            let pod = Pod {
                version,
                ..pod.clone()
            };
            let line = json!({"type": kind, "object": pod.show(&event.name)});
            lines += &format!("{line}\n");
        }
        if self.version.is_multiple_of(2) {
            let version = self.version.to_string();
            let object = json!({"kind": "Pod", "metadata": {"resourceVersion": version}});
            lines += &format!("{}\n", json!({"type": "BOOKMARK", "object": object}));
        }
        (200, lines)
    }
}

fn failure(code: u16, message: &str) -> (u16, String) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": message, "code": code});
    (code, status.to_string())
}

/// A value of a query as it is meant.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let code = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (byte, code) {
            (b'%', Some(code)) => {
                bytes.push(code);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
