//! A clock that is set, forward or back, holds nothing up for longer than what is usual, and takes
//! no request with it.

use crate::world::{World, request};
use picker_core::{Answered, LocalData, Pick, Span, Timestamp, Verdict};

const MINUTE: u64 = 60_000_000;

/// Steps in microseconds: within and beyond every length of time that the picker knows.
const STEPS: [i64; 12] = [
    3600 * 1_000_000,
    300 * 1_000_000,
    20 * 1_000_000,
    5 * 1_000_000,
    1_500_000,
    300_000,
    -300_000,
    -1_500_000,
    -5 * 1_000_000,
    -20 * 1_000_000,
    -300 * 1_000_000,
    -3600 * 1_000_000,
];

fn stepped(now: Timestamp, by: i64) -> Timestamp {
    Timestamp(now.0.saturating_add_signed(by))
}

fn running() -> World {
    let mut world = World::new(LocalData::default());
    world.run(Span::from_millis(3000));
    world.assert_healthy("before the step");
    world
}

#[test]
fn metrics_are_collected_all_the_same() {
    for by in STEPS {
        let mut world = running();
        world.now = stepped(world.now, by);
        // The tick after the step affirms the pool, the next one asks for metrics.
        world.run(Span::from_millis(200));
        world.assert_collecting(&format!("{by}"));
        world.run(Span::from_millis(3000));
        world.assert_healthy(&format!("{by}"));
    }
}

#[test]
fn an_endpoint_that_stops_answering_grows_stale_in_time() {
    for by in STEPS {
        let mut world = running();
        world.silent = vec!["10.0.0.2:8000".into()];
        world.now = stepped(world.now, by);
        // Metrics are stale after two seconds, which a step back may begin anew.
        world.run(Span::from_millis(4200));
        let state = world.state();
        let fresh: Vec<bool> = (0..3)
            .map(|at| state["pools"][0]["endpoints"][at]["fresh"] == true)
            .collect();
        assert_eq!(fresh, [true, false, true], "{by}");
        world.silent.clear();
        world.run(Span::from_millis(2200));
        world.assert_healthy(&format!("{by}"));
    }
}

#[test]
fn a_dead_collector_is_replaced_within_two_lease_times() {
    for by in STEPS {
        let mut world = running();
        world.now = stepped(world.now, by);
        world.kill_collector();
        world.run(Span::from_millis(1300));
        world.assert_collecting(&format!("{by}"));
    }
}

#[test]
fn the_row_of_a_dead_worker_goes_and_those_of_the_living_stay() {
    for by in STEPS {
        let mut world = running();
        // It has a request in flight when it dies.
        world.run(Span::from_millis(100));
        drop(world.workers.remove(1));
        world.now = stepped(world.now, by);
        world.run(Span::from_millis(4200));
        let state = world.state();
        let workers = state["pools"][0]["workers"].as_array().map(Vec::len);
        assert_eq!(workers, Some(1), "{by}: {state:#}");
        world.assert_healthy(&format!("{by}"));
    }
}

#[test]
fn an_idle_worker_stays_known() {
    for by in STEPS {
        let mut world = running();
        world.now = stepped(world.now, by);
        let until = world.now.after(Span::from_millis(4000));
        while world.now < until {
            world.now = world.now.after(Span::from_millis(100));
            let (shared, now) = (&world.shared, world.now);
            for worker in &mut world.workers {
                let _ = worker.affirm(shared, now);
                worker.pool.tick(shared, now);
            }
        }
        let state = world.state();
        let workers = state["pools"][0]["workers"].as_array().map(Vec::len);
        assert_eq!(workers, Some(2), "{by}: {state:#}");
    }
}

#[test]
fn a_configuration_after_the_step_is_the_one_that_holds() {
    for by in STEPS {
        let mut world = running();
        world.now = stepped(world.now, by);
        world.run(Span::from_millis(200));
        // A new filter beside the old one, as while a listener drains; then the old one goes.
        world.start_worker(5, &[1, 2, 3, 4]);
        world.run(Span::from_millis(1500));
        assert_eq!(world.endpoints(), Some(4), "{by}: the old one holds");
        world.workers.drain(..2);
        world.run(Span::from_millis(500));
        assert_eq!(world.endpoints(), Some(4), "{by}");
    }
}

#[test]
fn an_endpoint_that_failed_is_tried_again_within_half_a_minute() {
    for by in STEPS {
        let mut world = running();
        let (shared, now) = (&world.shared, world.now);
        let worker = &mut world.workers[0];
        let mut pick = worker.pick(shared, &request(77), now);
        let home = pick.endpoint;
        for minute in 0..12 {
            // Failing for long, so that it is left alone for the longest time at the end.
            let at = now.after(Span(minute * MINUTE));
            let verdict = Verdict::Unreachable;
            worker.pool.on_verdict(shared, &pick.ticket, verdict, at);
        }
        let now = now.after(Span(11 * MINUTE));
        worker
            .pool
            .on_done(shared, &mut pick.ticket, Answered::default(), now);
        // Of six new prompts at once some go to an endpoint that may serve.
        let is_tried = |world: &mut World| {
            let (shared, now) = (&world.shared, world.now);
            let worker = &mut world.workers[0];
            let prompts = (0..6).map(|number| request(now.0 + number));
            let picks: Vec<Pick> = prompts.map(|it| worker.pick(shared, &it, now)).collect();
            let tried = picks.iter().any(|pick| pick.endpoint == home);
            for pick in picks {
                let mut ticket = pick.ticket;
                worker
                    .pool
                    .on_done(shared, &mut ticket, Answered::default(), now);
            }
            tried
        };
        world.now = now.after(Span::from_millis(1000));
        assert!(!is_tried(&mut world), "it is left alone");
        world.now = stepped(world.now, by);
        let again = (0..=31).find(|_| {
            world.run(Span::from_millis(1000));
            world.end_all();
            is_tried(&mut world)
        });
        assert!(again.is_some(), "{by}: it is left alone for ever");
    }
}
