//! What the collector knows of pods is what the API server knows, whatever happens on the way:
//! random histories against a naive reading of the server's state.

use std::collections::BTreeMap;

use picker_core::{
    Answer, Collector, DiscoveryOutcome, Draws, Listed, LocalData, SharedData, Snapshot, Timestamp,
    affirm, stored,
};
use picker_tests::kube::{Api, Pod};
use serde_json::json;

#[test]
fn after_any_history_the_endpoints_are_those_of_the_last_state() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        for _ in 0..30 {
            for _ in 0..world.draws.below(8) {
                world.happen();
            }
            for _ in 0..world.draws.below(6) {
                world.call(true);
            }
            if world.draws.below(3) == 0 {
                world.settle();
            }
        }
        world.settle();
    }
}

#[test]
fn ten_thousand_pods_come_and_go_between_watches() {
    let mut world = World::new(1);
    world.settle();
    for round in 0..2500_u32 {
        for _ in 0..4 {
            let name = format!("p{}", world.draws.below(40));
            match world.api.pods().get(&name) {
                Some(_) => world.api.set(&name, None),
                None => world.add(&name),
            }
        }
        world.call(false);
        if round.is_multiple_of(100) {
            world.settle();
        }
    }
    world.settle();
}

#[test]
fn no_answer_empties_a_pool() {
    let mut world = World::new(2);
    for number in 0..5 {
        world.add(&format!("p{number}"));
    }
    world.settle();
    let known = world.known();
    for status in [400, 401, 403, 404, 410, 429, 500, 503, 504] {
        for body in ["", "{}", "[]", "upstream connect error", "{\"items\":[]}"] {
            for _ in 0..3 {
                world.answer(|_| Some((status, body.to_owned())));
                assert_eq!(world.known(), known, "{status} {body}");
            }
        }
    }
    world.answer(|_| None);
    assert_eq!(world.known(), known);
    world.settle();
}

#[test]
fn whoever_collects_next_goes_on_from_what_is_known() {
    let mut world = World::new(3);
    for number in 0..5 {
        world.add(&format!("p{number}"));
    }
    world.settle();
    let known = world.known();
    let numbers = |world: &World| -> Vec<u32> {
        let snapshot = world.snapshot();
        snapshot.endpoints.iter().map(|it| it.id.0).collect()
    };
    let before = numbers(&world);
    world.collector = Collector::default();
    for _ in 0..3 {
        world.answer(|_| None);
        assert_eq!(
            (world.known(), numbers(&world)),
            (known.clone(), before.clone())
        );
    }
    world.settle();
    assert_eq!(numbers(&world), before);
    world.api.set("p0", None);
    world.settle();
}

/// What is known of endpoints by address: whether each takes requests, and its labels.
type Known = BTreeMap<String, (bool, BTreeMap<String, String>)>;

struct World {
    api: Api,
    collector: Collector,
    shared: LocalData,
    draws: Draws,
    now: Timestamp,
    seed: u64,
    uids: u64,
    ports: Vec<u16>,
    app: &'static str,
    /// The number of each incarnation that was seen, by its address and its uid.
    numbers: BTreeMap<(String, String), u32>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            api: Api::default(),
            collector: Collector::default(),
            shared: LocalData::default(),
            draws: Draws::new(seed),
            now: Timestamp(1_000_000_000),
            seed,
            uids: 0,
            ports: vec![8000],
            app: "llm",
            numbers: BTreeMap::new(),
        };
        world
            .api
            .set_pool("llm", &[8000], "FailOpen", seed.is_multiple_of(5));
        world
    }

    /// One change of the server's state.
    fn happen(&mut self) {
        let name = format!("p{:03}", self.draws.below(130));
        let known = self.api.pods().get(&name).cloned();
        match (self.draws.below(16), known) {
            (0..=4, None) => self.add(&name),
            (0..=1, Some(_)) => self.api.set(&name, None),
            (2, Some(_)) => {
                // The same name and mostly the same address, but another pod.
                self.api.set(&name, None);
                self.add(&name);
            }
            (3..=5, Some(pod)) => self.change(&name, pod, |pod| pod.ready = !pod.ready),
            (6, Some(pod)) => self.change(&name, pod, |pod| pod.ending = true),
            (7, Some(pod)) => self.change(&name, pod, |pod| {
                let other = if pod.labels["app"] == "llm" {
                    "other"
                } else {
                    "llm"
                };
                pod.labels.insert("app".into(), other.into());
            }),
            (8, Some(pod)) => self.change(&name, pod, |pod| {
                pod.annotations
                    .insert("llm-d.ai/active-ports".into(), "8001".into());
            }),
            (9, Some(pod)) => self.change(&name, pod, |pod| {
                pod.annotations
                    .insert("llm-d.ai/role".into(), pod.uid.clone());
            }),
            (10, Some(pod)) => self.change(&name, pod, |pod| pod.phase = "Failed"),
            (11, Some(pod)) => self.change(&name, pod, |pod| pod.ip = String::new()),
            (12, _) if self.draws.below(4) == 0 => self.api.forget(),
            (13, _) if self.draws.below(4) == 0 => {
                let count = self.draws.below(3) as u16 + 1;
                let is_old = self.seed.is_multiple_of(5);
                let count = if is_old { 1 } else { count };
                self.ports = (8000..8000 + count).collect();
                if self.draws.below(3) == 0 {
                    self.app = if self.app == "llm" { "other" } else { "llm" };
                }
                self.api
                    .set_pool(self.app, &self.ports, "FailClose", is_old);
            }
            _ => {}
        }
    }

    fn add(&mut self, name: &str) {
        self.uids += 1;
        let uid = format!("uid-{}", self.uids);
        let number: u64 = name[1..].parse().unwrap_or(0);
        // Addresses are used again, also while their last pod is still there.
        let ip = match self.draws.below(4) {
            0 => format!("fd00::{:x}", number + 1),
            _ => format!("10.0.0.{}", number % 100 + 1),
        };
        let app = if self.draws.below(5) == 0 {
            "other"
        } else {
            "llm"
        };
        let mut pod = Pod::new(&uid, &ip, app);
        pod.ready = self.draws.below(3) > 0;
        self.api.set(name, Some(pod));
    }

    fn change(&mut self, name: &str, mut pod: Pod, how: impl Fn(&mut Pod)) {
        how(&mut pod);
        self.api.set(name, Some(pod));
    }

    /// One call, perhaps with a faulty answer.
    fn call(&mut self, may_fail: bool) {
        let fault = if may_fail { self.draws.below(12) } else { 99 };
        let cut = self.draws.unit();
        self.answer(|(status, body)| match fault {
            0 => Some((500, "etcdserver: request timed out".into())),
            1 => Some((503, "upstream connect error".into())),
            2 => None,
            3 => {
                let length = (body.len() as f64 * cut) as usize;
                Some((status, body.get(..length).unwrap_or_default().to_owned()))
            }
            4 => Some((410, "gone".into())),
            5 => Some((200, "<html>".into())),
            _ => Some((status, body)),
        });
    }

    /// Lets time pass until something is asked, and answers it as `how` says of the right answer.
    fn answer(&mut self, how: impl FnOnce((u16, String)) -> Option<(u16, String)>) {
        for _ in 0..100 {
            self.now.0 += 100_000;
            let document = json!({"pools": [{"name": "llm", "discovery": {"kubernetes": {
                "namespace": "serving", "inferencePool": "llm",
            }}}]});
            let since = Timestamp(1);
            affirm(&self.shared, "llm", &document.to_string(), since, self.now);
            self.collector.tick(&self.shared, self.now);
            let Some(call) = self.collector.poll_discovery(self.now) else {
                continue;
            };
            let answered = how(self.api.answer(&call.path));
            let answer = match &answered {
                None => Answer::Nothing,
                Some((status, body)) => Answer::Response {
                    status: *status,
                    body: body.as_bytes(),
                },
            };
            let whose = (call.pool.as_str(), call.id);
            let outcome = self
                .collector
                .handle_discovery(&self.shared, whose, answer, self.now);
            assert_ne!(outcome, DiscoveryOutcome::Unlisted);
            return;
        }
        unreachable!("nothing is asked, seed {}", self.seed);
    }

    /// Answers all questions until what is known must be what is, and compares.
    fn settle(&mut self) {
        // At most the pool, a watch that is too late, a list of some pages, and all of it again.
        for _ in 0..16 {
            self.call(false);
        }
        assert_eq!(self.known(), self.expected(), "seed {}", self.seed);
        self.check_numbers();
    }

    fn known(&self) -> Known {
        let mut bytes = Vec::new();
        self.shared.get("picker/llm/list", &mut bytes);
        let (number, listed) = Listed::decode(&bytes).unwrap_or_default();
        let snapshot = self.snapshot();
        assert_eq!(number, snapshot.list, "seed {}", self.seed);
        let labels: BTreeMap<String, _> = listed
            .labels
            .into_iter()
            .map(|(address, labels)| (address.to_string(), labels.into_iter().collect()))
            .collect();
        let endpoints = snapshot.endpoints.iter().map(|it| {
            let address = it.address.to_string();
            let labels: &BTreeMap<String, String> = &labels[&address];
            (address, (!it.draining, labels.clone()))
        });
        endpoints.collect()
    }

    fn snapshot(&self) -> Snapshot {
        stored(&self.shared, "llm").unwrap_or_default()
    }

    /// What a person would read from the pods that are there.
    fn expected(&self) -> Known {
        let servers = self.servers().into_iter();
        let known = servers.map(|(address, (name, pod))| {
            let mut labels = pod.labels.clone();
            let ours = pod
                .annotations
                .iter()
                .filter(|(name, _)| name.starts_with("llm-d.ai/"));
            labels.extend(ours.map(|(name, value)| (name.clone(), value.clone())));
            labels.insert("statefulset.kubernetes.io/pod-name".into(), name);
            (address, (pod.ready && !pod.ending, labels))
        });
        known.collect()
    }

    /// The pod at each address: of two the one that takes requests, else the one whose name comes
    /// later.
    fn servers(&self) -> BTreeMap<String, (String, Pod)> {
        let mut servers: BTreeMap<String, (String, Pod)> = BTreeMap::new();
        for (name, pod) in self.api.pods() {
            if pod.labels["app"] != self.app || pod.ip.is_empty() || pod.phase == "Failed" {
                continue;
            }
            for port in &self.ports {
                let active = pod.annotations.get("llm-d.ai/active-ports");
                if active.is_some_and(|it| *it != port.to_string()) {
                    continue;
                }
                let ip = &pod.ip;
                let address = if ip.contains(':') {
                    format!("[{ip}]:{port}")
                } else {
                    format!("{ip}:{port}")
                };
                let takes = |pod: &Pod| pod.ready && !pod.ending;
                let before = servers.get(&address);
                if before.is_none_or(|(_, before)| takes(pod) || !takes(before)) {
                    servers.insert(address, (name.clone(), pod.clone()));
                }
            }
        }
        servers
    }

    /// A number is that of one pod at one address for ever.
    fn check_numbers(&mut self) {
        let servers = self.servers();
        for endpoint in self.snapshot().endpoints {
            let address = endpoint.address.to_string();
            let uid = servers[&address].1.uid.clone();
            let whose = (address, uid);
            for (other, number) in &self.numbers {
                let is_same = *number == endpoint.id.0;
                assert!(!is_same || *other == whose, "seed {}: {other:?}", self.seed);
            }
            self.numbers.insert(whose, endpoint.id.0);
        }
    }
}
