//! Routers on whole workloads: figures that an independent model of the same pods gave.

use std::panic::resume_unwind;
use std::thread;

use sim::routing::case::{Case, Row, Source};
use sim::routing::policies::PolicyKind;
use sim::routing::scenario::Scenario;

/// Runs seeds `0..seeds` of a scenario, all at once.
fn run(scenario: Scenario, policy: PolicyKind, workers: usize, seeds: u64) -> Vec<Row> {
    let case = |seed| Case {
        source: Source::Scenario(scenario),
        policy,
        workers,
        rule: picker_core::LeastCost::DEFAULT,
        concurrency: None,
        seed,
    };
    thread::scope(|scope| {
        let runs: Vec<_> = (0..seeds)
            .map(|seed| scope.spawn(move || case(seed).run()))
            .collect();
        let joined = runs.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .map(|row| row.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

/// The means over two seeds lie near these: a hit rate in percent, and tokens a second.
#[track_caller]
fn check(scenario: Scenario, policy: PolicyKind, hit: f64, tokens_per_s: f64) {
    let rows = run(scenario, policy, 1, 2);
    let mean = |of: fn(&Row) -> f64| rows.iter().map(of).sum::<f64>() / rows.len() as f64;
    let measured = (
        100.0 * mean(|row| row.summary.hit),
        mean(|row| row.summary.tokens_per_s),
    );
    let (scenario, policy) = (scenario.name(), policy.name());
    assert!(
        (measured.0 - hit).abs() < 1.5 && (measured.1 / tokens_per_s - 1.0).abs() < 0.02,
        "{scenario}, {policy}: {measured:?} instead of {:?}",
        (hit, tokens_per_s)
    );
}

#[test]
fn rules_reach_the_figures_of_the_published_workload() {
    check(Scenario::Headline, PolicyKind::RoundRobin, 41.3, 22_175.0);
    check(
        Scenario::Headline,
        PolicyKind::LeastInFlight,
        41.3,
        22_175.0,
    );
    check(Scenario::Headline, PolicyKind::Hand, 77.1, 24_541.0);
    check(Scenario::Headline, PolicyKind::Smg, 76.9, 24_564.0);
    check(Scenario::Headline, PolicyKind::Chwbl, 70.0, 24_282.0);
}

#[test]
fn an_index_that_cannot_forget_is_as_good_as_none_once_it_knows_everything() {
    check(Scenario::Poisoned, PolicyKind::Gaie, 41.0, 21_995.0);
    check(Scenario::Poisoned, PolicyKind::Chwbl, 70.0, 24_268.0);
}

#[test]
fn adapters_cost_what_loading_them_costs() {
    check(Scenario::Lora, PolicyKind::GaieLora, 0.0, 20_135.0);
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    for (policy, workers) in [(PolicyKind::LeastCost, 4), (PolicyKind::Gaie, 1)] {
        let figures = || {
            let rows = run(Scenario::Lora, policy, workers, 2);
            let figures = rows.into_iter().map(|row| row.summary);
            figures.collect::<Vec<_>>()
        };
        let first = figures();
        assert_eq!(first, figures());
        assert_ne!(first[0], first[1]);
    }
}

#[test]
fn our_rule_is_near_the_partition_by_hand_however_many_workers_share_it() {
    for workers in [1, 4] {
        for row in run(Scenario::Headline, PolicyKind::LeastCost, workers, 2) {
            let hit = row.summary.hit;
            assert!(hit > 0.74, "{workers} workers: {hit}");
        }
    }
}

#[test]
fn a_pod_that_left_gets_nothing_and_one_that_came_gets_its_part() {
    let rows = run(Scenario::Churn, PolicyKind::LeastCost, 1, 1);
    let by_pod = &rows[0].summary.by_pod;
    let [first, _, _, left, came] = by_pod[..] else {
        panic!("five pods: {by_pod:?}");
    };
    assert_eq!(by_pod.iter().sum::<usize>(), 4096);
    assert!(left < first / 2 && came > first / 4, "{by_pod:?}");
}
