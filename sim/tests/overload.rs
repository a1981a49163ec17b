//! What flow control promises, with half as much again as two servers can serve.

use std::time::Duration;

use sim::overload::driver::{self, Load, Record, Setup};
use sim::overload::figures::Figures;
use sim::overload::traffic::Traffic;
use sim::overload::variant::Variant;
use sim::profile::Profile;

/// A minute of it.
fn records(variant: Variant, traffic: Traffic, workers: usize) -> Option<driver::Outcome> {
    let requests = traffic.poisson(1, REQUESTS_PER_S, MINUTE);
    driver::run(Setup {
        load: Load::Open(requests),
        servers: vec![Profile::l4(); 2],
        workers,
        picker: variant.picker(traffic.bands().iter().map(|it| it.0)),
        seed: 1,
    })
}

#[test]
fn nobody_overtakes_who_matters_more_or_came_before() {
    for workers in [1, 4] {
        let outcome = records(Variant::UtilizationStrict, Traffic::Bands, workers).unwrap();
        let sent = outcome.records.iter();
        let sent = sent.filter_map(|it| Some((it.sent_at?, it)));
        let sent: Vec<(Duration, &Record)> = sent.collect();
        let place = |it: &Record| (-it.priority, it.asked_at);
        // Of those that are sent at the same moment nobody is first.
        let overtakes = |(at, it): &(Duration, &Record)| {
            let waited = sent
                .iter()
                .filter(|(later, other)| other.asked_at < *at && at < later);
            waited.filter(|(_, other)| place(other) < place(it)).count()
        };
        let overtaken: usize = sent.iter().map(overtakes).sum();
        assert_eq!(overtaken, 0, "{workers} workers");
        assert!(sent.len() > 1500, "{}", sent.len());
    }
}

#[test]
fn tenants_who_compete_are_served_evenly_in_their_turn_and_by_demand_otherwise() {
    let jain = |variant, workers| {
        let outcome = records(variant, Traffic::Tenants, workers).unwrap();
        let figures = Figures::of(&outcome, Duration::from_secs(15), MINUTE);
        let fairness = figures.fairness.expect("a band");
        assert!(fairness.competing > 1);
        fairness.jain.unwrap_or_default()
    };
    for workers in [1, 4] {
        let in_turn = jain(Variant::Utilization, workers);
        let by_demand = jain(Variant::UtilizationStrict, workers);
        assert!(in_turn > 0.95, "{in_turn}");
        assert!(by_demand < 0.9, "{by_demand}");
    }
}

#[test]
fn the_highest_priority_waits_only_for_a_place() {
    for workers in [1, 4] {
        let outcome = records(Variant::Utilization, Traffic::Bands, workers).unwrap();
        let figures = Figures::of(&outcome, Duration::from_secs(15), MINUTE);
        let high = &figures.bands[0];
        assert_eq!(high.priority, 10);
        assert!(high.wait_p99 < 500.0, "{high:?}");
        assert_eq!(high.answered, high.requests);
    }
}

/// Half as much again as two servers can serve.
const REQUESTS_PER_S: f64 = 40.0;

const MINUTE: Duration = Duration::from_secs(60);
