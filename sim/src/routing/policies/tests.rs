//! Rules against small fleets.

use super::*;
use crate::routing::job::{Planned, Segment};

/// A prompt of two parts: 2,048 tokens that others may share, then 128 of its own.
fn job(id: u64, prefix: u64) -> Job {
    let planned = Planned {
        segments: vec![
            Segment::new("prefix", prefix, 2048),
            Segment::new("suffix", id, 128),
        ],
        output: Segment::new("output", id, 10),
        group: prefix,
        ..Planned::default()
    };
    Job::new(id, planned)
}

/// A router and what it sees.
struct Bench {
    policy: Box<dyn Policy>,
    listed: Vec<usize>,
    pods: Vec<Seen>,
    servers: Vec<VirtualServer>,
    jobs: u64,
    now: Duration,
}

impl Bench {
    fn new(kind: PolicyKind, pods: usize) -> Self {
        let profile = crate::profile::Profile::l4();
        let seen = Seen {
            scraped_at: Some(Duration::ZERO),
            blocks: (10_217, 16),
            ..Seen::default()
        };
        let mut bench = Self {
            policy: kind.start(1, 1, LeastCost::DEFAULT),
            listed: (0..pods).collect(),
            pods: vec![seen; pods],
            servers: (0..pods).map(|_| VirtualServer::new(&profile)).collect(),
            jobs: 0,
            now: Duration::ZERO,
        };
        bench.ask(|policy, fleet| policy.observe(fleet));
        bench
    }

    fn ask<T>(&mut self, ask: impl FnOnce(&mut dyn Policy, &Fleet<'_>) -> T) -> T {
        let fleet = Fleet {
            now: self.now,
            listed: &self.listed,
            candidates: &self.listed,
            pods: &self.pods,
            servers: &self.servers,
        };
        ask(self.policy.as_mut(), &fleet)
    }

    /// Sends a request with this prefix, which stays on its way.
    fn send(&mut self, prefix: u64) -> usize {
        self.jobs += 1;
        let job = job(self.jobs, prefix);
        let pod = self.ask(|policy, fleet| {
            let pod = policy.choose(&job, fleet);
            policy.placed(&job, pod, fleet);
            pod
        });
        self.pods[pod].in_flight += 1;
        pod
    }

    /// How many of two hundred requests with new prefixes each pod gets.
    fn spread(&mut self) -> Vec<usize> {
        let mut counts = vec![0; self.pods.len()];
        for prefix in 0..200 {
            counts[self.send(1_000_000 + prefix)] += 1;
        }
        counts
    }
}

#[test]
fn every_policy_is_found_by_its_name() {
    for kind in PolicyKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
    }
    let error = "none".parse::<PolicyKind>().unwrap_err();
    assert!(
        error.contains("least-cost, compatible, compatible-lora"),
        "{error}"
    );
}

#[test]
fn every_policy_uses_all_pods_and_only_listed_ones() {
    for kind in PolicyKind::ALL {
        let mut bench = Bench::new(kind, 4);
        bench.listed.remove(1);
        bench.ask(|policy, fleet| policy.observe(fleet));
        let counts = if kind == PolicyKind::KubeProxy {
            // All requests here are on one connection.
            vec![1, 0, 1, 1]
        } else {
            bench.spread()
        };
        for (pod, count) in counts.iter().enumerate() {
            assert_eq!(*count > 0, pod != 1, "{}: {counts:?}", kind.name());
        }
    }
}

#[test]
fn a_prefix_stays_where_it_is_until_the_rule_says_otherwise() {
    // How many requests of one prefix go to the same pod before another one gets one.
    for (kind, least, most) in [
        (PolicyKind::Compatible, 200, 200),
        (PolicyKind::Gaie, 200, 200),
        (PolicyKind::LlmD, 200, 200),
        (PolicyKind::CacheAware, 65, 65),
        (PolicyKind::CacheAwareLoose, 200, 200),
        // One more than 32 above the mean of two.
        (PolicyKind::Smg, 65, 65),
        // 1.25 times the mean of two is passed at once, by the second request.
        (PolicyKind::Chwbl, 1, 2),
        (PolicyKind::Hand, 200, 200),
        (PolicyKind::LeastInFlight, 1, 1),
        // The first one's prefill is before the second's.
        (PolicyKind::LeastCost, 1, 1),
    ] {
        let mut bench = Bench::new(kind, 2);
        let first = bench.send(7);
        let stays = 1 + (1..200).take_while(|_| bench.send(7) == first).count();
        assert!((least..=most).contains(&stays), "{}: {stays}", kind.name());
    }
}

#[test]
fn scores_go_by_what_the_pages_show() {
    for kind in [PolicyKind::Gaie, PolicyKind::LlmD, PolicyKind::Compatible] {
        let mut bench = Bench::new(kind, 3);
        bench.pods[0].gauges.waiting = 5;
        bench.pods[1].gauges.kv_usage = 0.3;
        bench.now = Duration::from_secs(1);
        bench.pods[2].scraped_at = Some(bench.now);
        bench.ask(|policy, fleet| policy.observe(fleet));
        assert_eq!(bench.send(1), 2, "{}", kind.name());
    }
}

#[test]
fn adapters_run_where_they_are_or_have_a_place() {
    let mut bench = Bench::new(PolicyKind::GaieLora, 3);
    for (pod, adapters) in [(0, vec![1, 2]), (1, vec![3]), (2, vec![4, 5])] {
        bench.pods[pod].adapters = adapters;
        bench.pods[pod].adapters_max = 2;
    }
    for (adapter, expected) in [(2, 0), (3, 1), (9, 1)] {
        let mut job = job(adapter, adapter);
        job.planned.adapter = Some(adapter as u32);
        let pod = bench.ask(|policy, fleet| policy.choose(&job, fleet));
        assert_eq!(pod, expected, "adapter {adapter}");
    }
}

#[test]
fn who_knows_the_caches_goes_where_the_prefix_really_is() {
    for kind in [PolicyKind::LlmDPrecise, PolicyKind::LMetric] {
        let mut bench = Bench::new(kind, 3);
        for (pod, server) in bench.servers.iter_mut().enumerate() {
            let served = job(1000, pod as u64).engine_request();
            assert!(server.push(Duration::ZERO, served).is_some());
            server.advance(Duration::from_secs(10)).for_each(drop);
        }
        for prefix in [2, 0, 1] {
            assert_eq!(bench.send(prefix), prefix as usize, "{}", kind.name());
        }
    }
}

#[test]
fn a_connection_keeps_its_pod() {
    let mut bench = Bench::new(PolicyKind::KubeProxy, 4);
    let first = bench.send(1);
    assert!((0..100).all(|prefix| bench.send(prefix) == first));
    bench.listed.retain(|&pod| pod != first);
    let second = bench.send(1);
    assert_ne!(second, first);
    assert!((0..100).all(|prefix| bench.send(prefix) == second));
}
