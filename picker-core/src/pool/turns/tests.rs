//! What becomes of requests when the endpoints are full, one by one.

use super::*;
use crate::flow::{Band, Capacity, LeastAttained, UsageLimit};
use crate::plan::Plan;
use crate::pool::PoolOptions;
use crate::request::Prompt;
use crate::role::ROLE_LABEL;
use crate::saturation::{Concurrency, Detector};
use crate::shape::Shape;
use crate::shared::{LocalData, Version};
use crate::snapshot::{Snapshot, publish};
use crate::{Address, Filter, LabelSelector, Requirement, Verdict};
use alloc::{format, vec};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// A worker, and what all of them share.
struct Worker<'a> {
    shared: &'a LocalData,
    pool: Pool,
    draws: Draws,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a LocalData, options: PoolOptions, (endpoints, owner): (u8, u64)) -> Self {
        Self {
            shared,
            pool: Pool::new(options, Snapshot::unknown(addresses(endpoints)), owner),
            draws: Draws::new(owner),
        }
    }

    fn arrive(&mut self, request: &Request, millis: u64) -> Result<Arrived, Refusal> {
        let (asked, now) = ((request, asking(millis)), at(millis));
        self.pool.arrive(self.shared, asked, &mut self.draws, now)
    }

    #[track_caller]
    fn sent(&mut self, request: &Request, millis: u64) -> Pick {
        match self.arrive(request, millis) {
            Ok(Arrived::Sent(pick)) => pick,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn waits(&mut self, request: &Request, millis: u64) -> WaitId {
        match self.arrive(request, millis) {
            Ok(Arrived::Waits(id)) => id,
            other => panic!("{other:?}"),
        }
    }

    fn turn(&mut self, millis: u64) -> Turn {
        self.pool.turn(self.shared, at(millis))
    }

    fn start(
        &mut self,
        id: WaitId,
        request: &Request,
        millis: u64,
    ) -> Result<Option<Pick>, Refusal> {
        let (shared, draws) = (self.shared, &mut self.draws);
        self.pool.start(shared, (id, request), draws, at(millis))
    }

    fn end(&mut self, mut pick: Pick, answered: Answered, millis: u64) {
        let ticket = &mut pick.ticket;
        self.pool.on_done(self.shared, ticket, answered, at(millis));
    }

    fn expired(&mut self, millis: u64) -> Vec<(WaitId, Refusal)> {
        self.pool.expired(self.shared, at(millis))
    }

    /// Requests that wait in each band, in all workers.
    fn waiting(&mut self, millis: u64) -> Vec<(i32, u64)> {
        self.pool.turn(self.shared, at(millis));
        let bands = self.pool.waiting_by_band(at(millis)).into_iter();
        bands.map(|(band, it)| (band, it.requests)).collect()
    }
}

/// A request of ten bytes.
fn asking(millis: u64) -> Asking {
    Asking {
        bytes: 10,
        received_at: at(millis),
    }
}

/// Far enough from zero for the clock to be set back.
fn at(millis: u64) -> Timestamp {
    Timestamp(1_796_000_000_000_000).after(Span::from_millis(millis))
}

fn addresses(count: u8) -> Vec<Address> {
    (1..=count)
        .map(|host| format!("10.0.0.{host}:8000").parse().unwrap())
        .collect()
}

/// One request in flight is as much as an endpoint takes.
fn options(flow: Option<FlowControl>) -> PoolOptions {
    let detector = Detector::Concurrency(Concurrency {
        requests: Some(1.0),
        tokens: None,
        headroom: 0.0,
    });
    PoolOptions {
        name: "llm".into(),
        plan: Plan {
            flow,
            detector,
            ..Plan::default()
        },
        staleness_threshold: Span::from_millis(2000),
        ..PoolOptions::default()
    }
}

fn bands(priorities: &[i32]) -> Option<FlowControl> {
    Some(FlowControl {
        bands: priorities.iter().copied().map(Band::of).collect(),
        ..FlowControl::default()
    })
}

fn flow() -> PoolOptions {
    options(bands(&[0]))
}

fn request(priority: i32) -> Request {
    Request {
        shape: Some(Shape::ChatCompletions),
        priority,
        ..Request::default()
    }
}

fn of_tenant(name: &str) -> Request {
    Request {
        fairness_id: Some(name.into()),
        ..request(0)
    }
}

/// Publishes endpoints, each of which is ready or not.
fn endpoints(shared: &LocalData, ready: &[bool]) {
    let mut snapshot = Snapshot::unknown(addresses(ready.len() as u8));
    for (endpoint, is_ready) in snapshot.endpoints.iter_mut().zip(ready) {
        endpoint.reachable = *is_ready;
    }
    publish(shared, "llm", &snapshot);
}

#[test]
fn a_request_is_sent_at_once_while_there_is_room_and_waits_when_there_is_none() {
    let shared = LocalData::default();
    let mut worker = Worker::new(&shared, flow(), (2, 1));
    let first = worker.sent(&request(0), 0);
    let second = worker.sent(&request(0), 0);
    assert_ne!(first.endpoint, second.endpoint);
    let id = worker.waits(&request(0), 0);
    assert_eq!(worker.pool.saturation(at(0)), Some(1.0));
    assert_eq!((worker.pool.waiting(), worker.turn(0)), (1, Turn::Nobody));
    assert_eq!(worker.start(id, &request(0), 0), Ok(None), "no room");
    worker.end(first, Answered::default(), 1);
    assert_eq!(worker.turn(1), Turn::Mine(id));
    let started = worker.start(id, &request(0), 1);
    assert!(matches!(started, Ok(Some(_))), "{started:?}");
    assert_eq!((worker.pool.waiting(), worker.turn(1)), (0, Turn::Nobody));
}

#[test]
fn nobody_overtakes_one_who_waits_although_there_is_room() {
    let shared = LocalData::default();
    let mut workers = [1, 2].map(|owner| Worker::new(&shared, flow(), (1, owner)));
    let first = workers[0].sent(&request(0), 0);
    let id = workers[0].waits(&request(0), 0);
    workers[0].end(first, Answered::default(), 1);
    workers[1].waits(&request(0), 2);
    workers[0].waits(&request(0), 3);
    assert_eq!(workers[0].turn(4), Turn::Mine(id));
}

#[test]
fn who_matters_more_is_next_and_who_matters_less_does_not_overtake() {
    let shared = LocalData::default();
    let mut worker = Worker::new(&shared, options(bands(&[5, 0, -5])), (1, 1));
    let mut running = worker.sent(&request(0), 0);
    let priorities = [0, -5, 5, 7, -5, 5];
    let waiting: Vec<(WaitId, i32)> = (1..)
        .zip(priorities)
        .map(|(millis, it)| (worker.waits(&request(it), millis), it))
        .collect();
    assert_eq!(worker.waiting(9), [(5, 2), (0, 2), (-5, 2)]);
    // What is of no band waits in that of 0.
    for place in [2, 5, 0, 3, 1, 4] {
        worker.end(running, Answered::default(), 10);
        let (id, priority) = waiting[place];
        assert_eq!(worker.turn(10), Turn::Mine(id), "{place}");
        running = worker
            .start(id, &request(priority), 10)
            .unwrap()
            .unwrap_or_else(|| panic!("{place}"));
    }
}

#[test]
fn a_lower_band_has_less_room_where_some_is_held_back() {
    let shared = LocalData::default();
    let mut control = bands(&[5, 0]);
    control.as_mut().unwrap().usage_limit = UsageLimit::Holdback {
        least: 0.5,
        most: 1.0,
        by_value: false,
    };
    let mut worker = Worker::new(&shared, options(control), (2, 1));
    let first = worker.sent(&request(0), 0);
    let low = worker.waits(&request(0), 1);
    assert_eq!(worker.turn(1), Turn::Nobody);
    // It waits behind nobody of its own band.
    let high = worker.waits(&request(5), 2);
    assert_eq!(worker.turn(2), Turn::Mine(high));
    assert!(worker.start(high, &request(5), 2).unwrap().is_some());
    worker.end(first, Answered::default(), 3);
    assert_eq!(worker.turn(3), Turn::Nobody, "a half is in use");
    assert_eq!(worker.start(low, &request(0), 3), Ok(None));
}

/// As many wait as may, in requests and in bytes, of the band and of all.
#[test]
fn a_full_queue_refuses_and_says_whether_there_are_endpoints() {
    let capacity = |requests, bytes| Capacity { requests, bytes };
    let unlimited = Capacity::UNLIMITED;
    for (of_band, of_all, fit) in [
        (capacity(2, u64::MAX), unlimited, 2),
        (capacity(9, 30), unlimited, 3),
        (capacity(9, 29), unlimited, 2),
        (unlimited, capacity(1, u64::MAX), 1),
        (unlimited, capacity(9, 49), 4),
        (capacity(0, u64::MAX), unlimited, 0),
    ] {
        for has_endpoints in [true, false] {
            let shared = LocalData::default();
            let mut control = bands(&[5, 0]).unwrap();
            control.bands[1].capacity = of_band;
            control.capacity = of_all;
            let new = |owner| Worker::new(&shared, options(Some(control.clone())), (1, owner));
            let mut workers = [new(1), new(2)];
            let refusal = if has_endpoints {
                let _ = workers[0].sent(&request(0), 0);
                Refusal::QueueFull
            } else {
                endpoints(&shared, &[false]);
                Refusal::QueueFullWithoutEndpoint
            };
            let what = format!("{of_band:?} {of_all:?} {has_endpoints}");
            for number in 0..fit {
                let arrived = workers[number % 2].arrive(&request(0), 20);
                assert!(arrived.is_ok(), "{what}: {number} {arrived:?}");
            }
            for worker in &mut workers {
                assert_eq!(worker.arrive(&request(0), 21), Err(refusal), "{what}");
                assert_eq!(worker.waiting(21)[1].1, fit as u64, "{what}");
            }
            let other = workers[1].arrive(&request(5), 22);
            assert_eq!(other.is_ok(), of_all == unlimited, "{what}: {other:?}");
        }
    }
}

#[test]
fn a_request_waits_as_long_as_it_may_with_endpoints_and_without() {
    let over = |millis, refusal| Some((millis, refusal));
    for (has_endpoints, [with, without], expected) in [
        (true, [100, 30], over(100, Refusal::WaitedTooLong)),
        (false, [100, 30], over(30, Refusal::WaitedWithoutEndpoint)),
        (true, [0, 30], None),
        (false, [100, 0], None),
    ] {
        // 0 is for ever.
        let ttl = |millis: u64| Some(Span::from_millis(millis)).filter(|it| it.0 > 0);
        let shared = LocalData::default();
        endpoints(&shared, &[has_endpoints]);
        let control = FlowControl {
            request_ttl: ttl(with),
            no_endpoint_ttl: ttl(without),
            ..FlowControl::default()
        };
        let mut worker = Worker::new(&shared, options(Some(control)), (1, 1));
        if has_endpoints {
            let _ = worker.sent(&request(0), 0);
        }
        let first = worker.waits(&request(0), 20);
        let second = worker.waits(&request(0), 21);
        let mut found = Vec::new();
        for millis in 22..1000 {
            let over = worker.expired(millis).into_iter();
            found.extend(over.map(|(id, it)| (id, millis, it)));
        }
        let expected = expected.map(|(millis, refusal): (u64, Refusal)| {
            let of = |id, from| (id, from + millis, refusal);
            vec![of(first, 20), of(second, 21)]
        });
        assert_eq!(found, expected.unwrap_or_default(), "{has_endpoints}");
        let left = if found.is_empty() { 2 } else { 0 };
        assert_eq!(worker.waiting(1000), [(0, left)]);
    }
}

#[test]
fn the_time_to_wait_begins_afresh_when_endpoints_go_or_come() {
    let shared = LocalData::default();
    let control = FlowControl {
        request_ttl: Some(Span::from_millis(100)),
        no_endpoint_ttl: Some(Span::from_millis(50)),
        ..FlowControl::default()
    };
    let mut worker = Worker::new(&shared, options(Some(control)), (1, 1));
    let _ = worker.sent(&request(0), 0);
    let id = worker.waits(&request(0), 0);
    assert_eq!(worker.expired(90), []);
    endpoints(&shared, &[false]);
    // Without an endpoint from 100 to 140, and with one again from then on.
    assert_eq!(worker.expired(100), []);
    assert_eq!(worker.expired(130), []);
    endpoints(&shared, &[true]);
    assert_eq!(worker.expired(140), []);
    assert_eq!(worker.expired(239), []);
    assert_eq!(worker.expired(240), [(id, Refusal::WaitedTooLong)]);
}

#[test]
fn a_request_that_left_is_never_started() {
    let shared = LocalData::default();
    let mut worker = Worker::new(&shared, flow(), (1, 1));
    let running = worker.sent(&request(0), 0);
    let left = worker.waits(&request(0), 1);
    let stays = worker.waits(&request(0), 2);
    worker.pool.leave(&shared, left, at(3));
    assert_eq!(worker.waiting(3), [(0, 1)]);
    worker.end(running, Answered::default(), 4);
    assert_eq!(worker.turn(4), Turn::Mine(stays));
    let started = worker.start(left, &request(0), 4);
    assert_eq!(started, Err(Refusal::ShuttingDown));
    assert_eq!(worker.pool.saturation(at(4)), Some(0.0), "nothing was sent");
    worker.pool.leave(&shared, left, at(5));
    assert_eq!(worker.waiting(5), [(0, 1)], "only once");
}

#[test]
fn the_first_endpoint_of_an_empty_pool_gets_what_waits() {
    let shared = LocalData::default();
    for not_ready in [&[][..], &[false, false]] {
        endpoints(&shared, not_ready);
        let mut worker = Worker::new(&shared, flow(), (0, 1));
        let first = worker.waits(&request(0), 20);
        let _ = worker.waits(&request(0), 21);
        assert_eq!(worker.pool.saturation(at(22)), None);
        assert_eq!(worker.turn(22), Turn::Nobody);
        assert_eq!(worker.start(first, &request(0), 22), Ok(None));
        endpoints(&shared, &[true]);
        assert_eq!(worker.turn(40), Turn::Mine(first));
        assert!(worker.start(first, &request(0), 40).unwrap().is_some());
        assert_eq!(worker.turn(40), Turn::Nobody, "it is full again");
        assert_eq!(worker.pool.close(&shared, at(41)).len(), 1);
    }
}

#[test]
fn what_is_no_call_of_an_api_does_not_wait() {
    let shared = LocalData::default();
    let mut worker = Worker::new(&shared, flow(), (1, 1));
    let _ = worker.sent(&request(0), 0);
    let _ = worker.waits(&request(0), 1);
    let _ = worker.sent(&Request::bodiless(), 2);
    assert_eq!(worker.waiting(3), [(0, 1)]);
    endpoints(&shared, &[]);
    let refused = worker.arrive(&Request::bodiless(), 20);
    assert_eq!(refused, Err(Refusal::NoEndpoint));
}

#[test]
fn without_flow_control_a_full_pool_turns_away_what_matters_less() {
    let shared = LocalData::default();
    let mut worker = Worker::new(&shared, options(None), (1, 1));
    let low = Request {
        priority: -1,
        ..Request::bodiless()
    };
    let running = worker.sent(&request(-1), 0);
    assert_eq!(worker.arrive(&request(-1), 1), Err(Refusal::Saturated));
    let second = worker.sent(&request(0), 1);
    let third = worker.sent(&low, 1);
    for pick in [running, second, third] {
        worker.end(pick, Answered::default(), 2);
    }
    let _ = worker.sent(&request(-1), 3);
    // Who is not ready may be it by now, and is not known to be full.
    endpoints(&shared, &[false]);
    let _ = worker.sent(&request(-1), 20);
    assert_eq!(worker.turn(20), Turn::Nobody);
    assert_eq!((worker.pool.waiting(), worker.expired(21)), (0, Vec::new()));
    assert_eq!(worker.pool.waiting_by_band(at(21)), []);
}

#[test]
fn without_flow_control_full_endpoints_refuse_at_once() {
    let shared = LocalData::default();
    let options = |cap| PoolOptions {
        requests_per_endpoint: Some(cap),
        ..options(None)
    };
    let mut workers = [1, 2].map(|owner| Worker::new(&shared, options(2), (2, owner)));
    let mut picks: Vec<Pick> = (0..4)
        .map(|number| workers[number % 2].sent(&request(0), 0))
        .collect();
    let there = |id| picks.iter().filter(|it| it.endpoint.0 == id).count();
    assert_eq!((there(1), there(2)), (2, 2));
    for worker in &mut workers {
        assert_eq!(worker.arrive(&request(9), 1), Err(Refusal::Saturated));
        // What is no call of an API takes no room.
        let pick = worker.sent(&Request::bodiless(), 1);
        worker.end(pick, Answered::default(), 1);
    }
    let ended = picks.remove(1);
    let freed = ended.endpoint;
    workers[1].end(ended, Answered::default(), 2);
    assert_eq!(workers[0].sent(&request(0), 2).endpoint, freed);
}

#[test]
fn with_flow_control_nobody_gets_more_than_an_endpoint_may_have() {
    let shared = LocalData::default();
    let mut options = PoolOptions {
        requests_per_endpoint: Some(1),
        ..flow()
    };
    options.plan.detector = Detector::default();
    let mut worker = Worker::new(&shared, options, (2, 1));
    let first = worker.sent(&request(0), 0);
    let second = worker.sent(&request(0), 0);
    assert_ne!(first.endpoint, second.endpoint);
    let id = worker.waits(&request(0), 1);
    assert_eq!(worker.turn(1), Turn::Nobody);
    let freed = second.endpoint;
    worker.end(second, Answered::default(), 2);
    assert_eq!(worker.turn(2), Turn::Mine(id));
    let started = worker.start(id, &request(0), 2).unwrap().unwrap();
    assert_eq!(started.endpoint, freed);
}

/// Two endpoints, each with room for one, the first of them with this label.
fn one_each(label: (&str, &str)) -> PoolOptions {
    let mut options = PoolOptions {
        requests_per_endpoint: Some(1),
        labels: vec![(addresses(1)[0], vec![(label.0.into(), label.1.into())])],
        ..flow()
    };
    options.plan.detector = Detector::default();
    options
}

/// The filter that wants this label.
fn only(label: &str, value: &str) -> Filter {
    let requirement = Requirement {
        label: label.into(),
        values: vec![value.into()],
        is_negated: false,
        fits_without: false,
    };
    Filter::Labels(LabelSelector {
        requirements: vec![requirement],
    })
}

#[test]
fn a_stage_that_is_full_is_waited_for() {
    let shared = LocalData::default();
    let mut options = one_each((ROLE_LABEL, "prefill"));
    options
        .labels
        .push((addresses(2)[1], vec![(ROLE_LABEL.into(), "decode".into())]));
    options.plan.profiles[0].filters = vec![only(ROLE_LABEL, "decode")];
    let mut worker = Worker::new(&shared, options, (2, 1));
    let first = worker.sent(&request(0), 0);
    let id = worker.waits(&request(0), 1);
    assert_eq!(worker.turn(1), Turn::Nobody, "the other stage is no help");
    worker.end(first, Answered::default(), 2);
    assert_eq!(worker.turn(2), Turn::Mine(id));
    assert!(worker.start(id, &request(0), 2).unwrap().is_some());
}

#[test]
fn who_can_only_go_where_it_is_full_keeps_nobody_else_waiting() {
    let shared = LocalData::default();
    let mut options = one_each(("gpu", "h100"));
    options.plan.profiles[0].filters = vec![only("gpu", "h100")];
    let mut worker = Worker::new(&shared, options, (2, 1));
    let _running = worker.sent(&request(0), 0);
    assert_eq!(worker.arrive(&request(0), 1), Err(Refusal::Filtered));
    assert_eq!(worker.waiting(1), [(0, 0)]);
}

#[test]
fn endpoints_that_get_nothing_make_no_room() {
    let control = bands(&[0]);
    // Neither one that is not ready nor one that fails.
    for is_ready in [false, true] {
        let shared = LocalData::default();
        endpoints(&shared, &[true, is_ready]);
        let mut worker = Worker::new(&shared, options(control.clone()), (2, 1));
        let mut failing = worker.sent(&request(0), 0);
        while failing.endpoint.0 != 2 && is_ready {
            let other = worker.sent(&request(0), 0);
            worker.end(failing, Answered::default(), 0);
            failing = other;
        }
        if is_ready {
            for _ in 0..4 {
                let verdict = Verdict::Failed;
                let now = at(0);
                worker
                    .pool
                    .on_verdict(&shared, &failing.ticket, verdict, now);
            }
        }
        worker.end(failing, Answered::default(), 0);
        let only = worker.sent(&request(0), 1);
        assert_eq!(only.endpoint.0, 1, "{is_ready}");
        assert_eq!(worker.pool.saturation(at(1)), Some(1.0), "{is_ready}");
        let _ = worker.waits(&request(0), 1);
        assert_eq!(worker.turn(1), Turn::Nobody, "{is_ready}");
    }
}

#[test]
fn a_request_that_is_refused_at_its_turn_waits_no_more() {
    let shared = LocalData::default();
    let mut options = flow();
    let mut worker = Worker::new(&shared, flow(), (1, 1));
    let running = worker.sent(&request(0), 0);
    options.plan.profiles[0].filters = vec![only("zone", "here")];
    let mut picky = Worker::new(&shared, options, (1, 2));
    let id = picky.waits(&request(0), 1);
    worker.end(running, Answered::default(), 2);
    assert_eq!(picky.turn(2), Turn::Mine(id));
    let refused = picky.start(id, &request(0), 2);
    assert_eq!(refused, Err(Refusal::Filtered));
    assert_eq!(worker.waiting(2), [(0, 0)]);
    let _ = worker.sent(&request(0), 3);
}

#[test]
fn the_worker_that_has_the_turn_is_named_by_its_number_and_not_again_at_once() {
    let shared = LocalData::default();
    let mut workers = [1, 2].map(|owner| Worker::new(&shared, flow(), (1, owner)));
    let running = workers[0].sent(&request(0), 0);
    let id = workers[1].waits(&request(0), 1);
    workers[0].end(running, Answered::default(), 2);
    let slot = workers[1].pool.slot();
    assert!(slot.is_some() && slot != workers[0].pool.slot());
    let woken = slot.map_or(Turn::Nobody, Turn::Of);
    assert_eq!(workers[0].turn(2), woken);
    assert_eq!(workers[0].turn(2), Turn::Nobody, "it knows");
    assert_eq!(workers[0].turn(3), woken, "it seems not to");
    assert_eq!(workers[1].turn(3), Turn::Mine(id));
}

#[test]
fn room_is_seen_by_who_waits_elsewhere_however_much_ends() {
    let shared = LocalData::default();
    let mut workers = [1, 2].map(|owner| Worker::new(&shared, flow(), (1, owner)));
    // So many at once that the others are not told of each.
    for _ in 0..100 {
        let running = workers[0].sent(&request(0), 0);
        workers[0].end(running, Answered::default(), 0);
    }
    let running = workers[0].sent(&request(0), 0);
    let id = workers[1].waits(&request(0), 0);
    workers[0].end(running, Answered::default(), 0);
    assert!(matches!(workers[0].turn(0), Turn::Of(_)));
    assert_eq!(workers[1].turn(0), Turn::Mine(id));
}

#[test]
fn the_first_of_a_worker_that_is_gone_is_not_waited_for_for_long() {
    let shared = LocalData::default();
    let mut workers = [1, 2].map(|owner| Worker::new(&shared, flow(), (1, owner)));
    let running = workers[0].sent(&request(0), 0);
    let _ = workers[1].waits(&request(0), 1);
    let id = workers[0].waits(&request(0), 2);
    workers[0].end(running, Answered::default(), 3);
    // Only the first worker lives.
    let mut turn = |millis| {
        assert_eq!(workers[0].expired(millis), []);
        workers[0].turn(millis)
    };
    assert!((3..=401).all(|millis| turn(millis) != Turn::Mine(id)));
    assert_eq!(turn(402), Turn::Mine(id));
}

#[test]
fn what_a_worker_leaves_behind_is_taken_away() {
    let shared = LocalData::default();
    let mut workers = [1, 2].map(|owner| Worker::new(&shared, flow(), (1, owner)));
    let board = || {
        let mut bytes = Vec::new();
        shared.get("picker/llm/queue", &mut bytes);
        bytes
    };
    let _ = workers[0].sent(&request(0), 0);
    let _ = workers[1].waits(&request(0), 1);
    let left = board();
    workers[0].pool.tick(&shared, at(401));
    assert_eq!(board(), left);
    workers[0].pool.tick(&shared, at(402));
    assert!(board().len() < left.len());
    let before = shared.writes();
    workers[0].pool.tick(&shared, at(403));
    assert_eq!(shared.writes(), before, "nothing is left to be taken away");
}

#[test]
fn what_waits_stays_on_the_board_as_long_as_its_worker_looks_after_it() {
    let shared = LocalData::default();
    let mut worker = Worker::new(&shared, flow(), (1, 1));
    let mut other = Worker::new(&shared, flow(), (1, 2));
    let _ = worker.sent(&request(0), 0);
    let _ = worker.waits(&request(0), 1);
    for millis in (1..5000).step_by(4) {
        assert_eq!(worker.expired(millis), []);
        assert_eq!(other.waiting(millis), [(0, 1)], "{millis}");
    }
}

#[test]
fn closing_ends_all_waiting_and_no_other() {
    let shared = LocalData::default();
    let mut workers = [1, 2].map(|owner| Worker::new(&shared, flow(), (1, owner)));
    let running = workers[0].sent(&request(0), 0);
    let ended: Vec<WaitId> = (1..4).map(|it| workers[0].waits(&request(0), it)).collect();
    let stays = workers[1].waits(&request(0), 4);
    let expected: Vec<_> = ended
        .iter()
        .map(|id| (*id, Refusal::ShuttingDown))
        .collect();
    assert_eq!(workers[0].pool.close(&shared, at(5)), expected);
    assert_eq!(workers[0].pool.close(&shared, at(5)), []);
    assert_eq!(workers[1].waiting(5), [(0, 1)]);
    workers[0].end(running, Answered::default(), 6);
    assert_eq!(workers[1].turn(6), Turn::Mine(stays));
}

#[test]
fn tenants_take_turns_over_all_workers() {
    let shared = LocalData::default();
    let mut control = bands(&[0]);
    control.as_mut().unwrap().bands[0].fairness = Fairness::RoundRobin;
    let new = |owner| Worker::new(&shared, options(control.clone()), (1, owner));
    let mut workers = [new(1), new(2)];
    let mut running = (0, workers[0].sent(&request(0), 0));
    let arrivals = [(0, "b"), (0, "b"), (1, "a"), (0, "a"), (1, "b"), (1, "c")];
    let mut waiting: Vec<(usize, WaitId, &str)> = Vec::new();
    for (millis, (place, tenant)) in (1..).zip(arrivals) {
        let id = workers[place].waits(&of_tenant(tenant), millis);
        waiting.push((place, id, tenant));
    }
    // The places of those above, of each tenant the first.
    for next in [2, 0, 5, 3, 1, 4] {
        workers[running.0].end(running.1, Answered::default(), 10);
        let (place, id, tenant) = waiting[next];
        assert_eq!(workers[place].turn(10), Turn::Mine(id), "{next}");
        let started = workers[place].start(id, &of_tenant(tenant), 10);
        running = (place, started.unwrap().unwrap());
    }
}

/// The first tenant has had 100 + 2 * 10 and the second 110 + 2 * 4, which is less, although it is
/// more where tokens of answers count as much as those of prompts, or not at all.
#[test]
fn what_a_tenant_has_had_is_its_prompts_and_twice_its_answers() {
    let shared = LocalData::default();
    let mut control = bands(&[0]);
    control.as_mut().unwrap().bands[0].fairness = Fairness::ProgramAware(LeastAttained {
        weight_service: 0.8,
        weight_wait: 0.2,
        half_life: Span::from_millis(60_000),
        forgotten_after: Span::from_millis(3_600_000),
    });
    let new = |owner| Worker::new(&shared, options(control.clone()), (1, owner));
    let mut workers = [new(1), new(2)];
    let answered = |prompt, output| Answered {
        prompt_tokens: prompt,
        output_tokens: Some(output),
        ..Answered::default()
    };
    for (tenant, prompt, output) in [("a", Some(100), 10), ("b", None, 4)] {
        let mut asked = of_tenant(tenant);
        // What the answer does not tell is as many as the bytes of the prompt make: 4 for a token.
        asked.prompts = vec![Prompt {
            bytes: 440,
            blocks: Vec::new(),
        }];
        let pick = workers[0].sent(&asked, 0);
        workers[0].end(pick, answered(prompt, output), 0);
    }
    let running = workers[0].sent(&of_tenant("c"), 1);
    let later = workers[0].waits(&of_tenant("a"), 2);
    let first = workers[1].waits(&of_tenant("b"), 3);
    workers[0].end(running, Answered::default(), 4);
    assert_eq!(workers[1].turn(4), Turn::Mine(first));
    let started = workers[1].start(first, &of_tenant("b"), 4).unwrap();
    workers[1].end(started.unwrap(), answered(Some(1), 1), 5);
    // 121 now, and a 120.
    let _ = workers[1].waits(&of_tenant("b"), 5);
    assert_eq!(workers[0].turn(5), Turn::Mine(later));
}

#[test]
fn who_runs_and_matters_less_makes_room_in_whatever_worker_it_is() {
    let shared = LocalData::default();
    let mut control = bands(&[0, -1]);
    control.as_mut().unwrap().evicts = true;
    let new = |owner| Worker::new(&shared, options(control.clone()), (1, owner));
    let mut workers = [new(1), new(2)];
    // So that the second worker is not the one of number 0.
    let pick = workers[0].sent(&request(0), 0);
    workers[0].end(pick, Answered::default(), 1);
    let mut running = workers[1].sent(&request(-1), 2);
    assert_eq!(workers[1].turn(2), Turn::Nobody);
    assert_eq!(workers[1].pool.evictions(at(2)), [], "nobody asks for it");
    let low = workers[0].waits(&request(-1), 3);
    assert_eq!(workers[0].turn(3), Turn::Nobody, "they matter as little");
    let id = workers[0].waits(&request(0), 4);
    let slot = workers[1].pool.slot().unwrap();
    assert_eq!(workers[0].turn(4), Turn::Of(slot));
    assert_eq!(workers[0].turn(5), Turn::Nobody, "it is under way");
    assert_eq!(workers[1].turn(5), Turn::Nobody);
    let run = running.ticket.run().unwrap();
    assert_eq!(workers[1].pool.evictions(at(5)), [run]);
    assert_eq!(workers[1].pool.evictions(at(5)), [], "once");
    let ticket = &mut running.ticket;
    let answered = Answered::default();
    workers[1].pool.on_done(&shared, ticket, answered, at(6));
    assert_eq!(workers[0].turn(6), Turn::Mine(id));
    let started = workers[0].start(id, &request(0), 6);
    assert!(started.unwrap().is_some());
    workers[0].pool.leave(&shared, low, at(7));
    assert_eq!(workers[0].waiting(7), [(0, 0), (-1, 0)]);
}

/// Shared data in which others always write a key first.
struct Outrun<'a>(&'a LocalData, &'static str);

impl SharedData for Outrun<'_> {
    fn get(&self, key: &str, value: &mut Vec<u8>) -> Version {
        self.0.get(key, value)
    }

    fn set_if(&self, key: &str, value: &[u8], version: Version) -> bool {
        key != self.1 && self.0.set_if(key, value, version)
    }

    fn set(&self, key: &str, value: &[u8]) {
        self.0.set(key, value);
    }
}

#[test]
fn what_cannot_be_counted_is_not_sent_where_there_is_a_limit() {
    let capped = PoolOptions {
        requests_per_endpoint: Some(3),
        ..options(None)
    };
    for (options, is_limited) in [(flow(), true), (capped, true), (options(None), false)] {
        let shared = LocalData::default();
        let outrun = Outrun(&shared, "picker/llm/ledger");
        let has_flow = options.plan.flow.is_some();
        let mut worker = Worker::new(&shared, options, (2, 1));
        let request = request(0);
        let (pool, draws) = (&mut worker.pool, &mut worker.draws);
        let arrived = pool.arrive(&outrun, (&request, asking(0)), draws, at(0));
        let in_flight = worker.pool.saturation(at(0));
        if !is_limited {
            assert!(matches!(arrived, Ok(Arrived::Sent(_))), "{arrived:?}");
            assert_eq!(in_flight, Some(0.5));
            continue;
        }
        assert_eq!(in_flight, Some(0.0));
        if !has_flow {
            assert_eq!(arrived, Err(Refusal::Saturated));
            continue;
        }
        let Ok(Arrived::Waits(id)) = arrived else {
            panic!("{arrived:?}");
        };
        let (pool, draws) = (&mut worker.pool, &mut worker.draws);
        let started = pool.start(&outrun, (id, &request), draws, at(1));
        assert_eq!(started, Ok(None));
        assert!(worker.start(id, &request, 1).unwrap().is_some());
    }
}

#[test]
fn what_cannot_be_shown_waits_all_the_same_and_is_shown_with_the_next_turn() {
    let shared = LocalData::default();
    let mut workers = [1, 2].map(|owner| Worker::new(&shared, flow(), (1, owner)));
    let running = workers[0].sent(&request(0), 0);
    let outrun = Outrun(&shared, "picker/llm/queue");
    let Worker { pool, draws, .. } = &mut workers[0];
    let arrived = pool.arrive(&outrun, (&request(0), asking(1)), draws, at(1));
    let Ok(Arrived::Waits(id)) = arrived else {
        panic!("{arrived:?}");
    };
    assert_eq!(workers[1].waiting(1), [(0, 0)]);
    let later = workers[0].waits(&request(0), 2);
    assert_eq!(workers[1].waiting(2), [(0, 2)], "with what comes later");
    let ids = [id, later];
    let started = |workers: &mut [Worker<'_>; 2], pick, place: usize| {
        workers[0].end(pick, Answered::default(), 3);
        assert_eq!(workers[0].turn(3), Turn::Mine(ids[place]));
        let Worker { pool, draws, .. } = &mut workers[0];
        let started = pool.start(&outrun, (ids[place], &request(0)), draws, at(3));
        started.unwrap().unwrap()
    };
    let pick = started(&mut workers, running, 0);
    assert_eq!(workers[1].waiting(3), [(0, 2)], "nobody is told");
    let pick = started(&mut workers, pick, 1);
    assert_eq!(workers[0].turn(3), Turn::Nobody);
    assert_eq!(workers[1].waiting(3), [(0, 0)]);
    workers[0].end(pick, Answered::default(), 4);
    let _ = workers[1].sent(&request(0), 4);
}

#[test]
fn what_is_not_shown_counts_all_the_same() {
    let shared = LocalData::default();
    let mut control = FlowControl::default();
    control.capacity.requests = 1;
    let mut worker = Worker::new(&shared, options(Some(control)), (1, 1));
    let running = worker.sent(&request(0), 0);
    let outrun = Outrun(&shared, "picker/llm/queue");
    let Worker { pool, draws, .. } = &mut worker;
    let arrived = pool.arrive(&outrun, (&request(0), asking(1)), draws, at(1));
    assert!(matches!(arrived, Ok(Arrived::Waits(_))), "{arrived:?}");
    let full = Err(Refusal::QueueFull);
    assert_eq!(worker.arrive(&request(0), 2), full);
    worker.end(running, Answered::default(), 3);
    assert_eq!(worker.arrive(&request(0), 3), full, "nobody overtakes it");
}

#[test]
fn a_clock_that_is_set_back_keeps_nobody_waiting_longer() {
    let shared = LocalData::default();
    let control = FlowControl {
        request_ttl: Some(Span::from_millis(100)),
        ..FlowControl::default()
    };
    let mut worker = Worker::new(&shared, options(Some(control)), (1, 1));
    let hour = 3_600_000;
    endpoints(&shared, &[false]);
    let earliest = worker.waits(&request(0), hour);
    endpoints(&shared, &[true]);
    assert_eq!(worker.expired(hour + 10), []);
    let running = worker.start(earliest, &request(0), hour + 10);
    let running = running.unwrap().unwrap();
    let first = worker.waits(&request(0), hour + 10);
    assert_eq!(worker.expired(hour + 30), []);
    let second = worker.waits(&request(0), hour + 40);
    // Now it is an hour earlier, and both go on with what is left of their time.
    assert_eq!(worker.expired(42), []);
    let third = worker.waits(&request(0), 45);
    worker.end(running, Answered::default(), 45);
    assert_eq!(worker.turn(45), Turn::Mine(first), "in their order");
    let over = |id| (id, Refusal::WaitedTooLong);
    assert_eq!(worker.expired(120), [over(first)]);
    assert_eq!(worker.turn(120), Turn::Mine(second));
    assert_eq!(worker.expired(150), [over(second), over(third)]);
}
