//! When those come back who are refused for lack of room.

use super::Pool;
use crate::Timestamp;
use crate::drain::jittered;
use crate::draw::Draws;
use crate::ledger::Load;
use crate::refusal::Refusal;

impl Pool {
    /// The seconds after which a client that is refused may try again, for `retry-after`; `None`
    /// where the same request would be refused again.
    ///
    /// No two clients need get the same: of what is foretold they get up to half as much more.
    pub fn retry_after(&self, refusal: Refusal, draws: &mut Draws, now: Timestamp) -> Option<u32> {
        match refusal {
            Refusal::AdminPath
            | Refusal::BodyTooLarge { .. }
            | Refusal::ModelUnclear
            | Refusal::NoProfile
            | Refusal::NotCached
            | Refusal::UnknownModel
            | Refusal::Unreadable(_) => None,
            Refusal::ShuttingDown => Some(SHUTTING_DOWN_SECONDS),
            Refusal::NoEndpoint
            | Refusal::QueueFullWithoutEndpoint
            | Refusal::WaitedWithoutEndpoint => Some(jittered(NO_ENDPOINT_SECONDS, draws)),
            Refusal::Evicted
            | Refusal::Filtered
            | Refusal::NoDecode
            | Refusal::NotAdmitted
            | Refusal::QueueFull
            | Refusal::Saturated
            | Refusal::WaitedTooLong => Some(self.drain.retry_after(self.ahead(now), draws)),
        }
    }

    /// Takes in what has ended at the endpoints until now.
    pub(super) fn follow_drain(&mut self, now: Timestamp) {
        let (mut ended, mut is_busy) = (0_u32, false);
        for load in self.loads(now) {
            ended = ended.wrapping_add(load.sent.wrapping_sub(load.requests));
            is_busy |= load.requests > 0;
        }
        self.drain.follow(ended, is_busy, now);
    }

    /// How many requests have to end before there is room for one that comes now: those that are in
    /// flight beyond what fits, one more, and as many as wait already.
    fn ahead(&self, now: Timestamp) -> f64 {
        let in_flight: f64 = self.loads(now).map(|it| f64::from(it.requests)).sum();
        let saturation = self.saturation(now).unwrap_or_default();
        let beyond = if saturation > 1.0 {
            in_flight - in_flight / saturation
        } else {
            0.0
        };
        let waiting = self.waiting_by_band(now).into_iter();
        let waiting: u64 = waiting.map(|(_, it)| it.requests).sum();
        beyond + waiting as f64 + 1.0
    }

    /// What all workers have at each endpoint.
    fn loads(&self, now: Timestamp) -> impl Iterator<Item = Load> {
        let endpoints = self.view.snapshot().endpoints.iter();
        let loads = self.tally.totals(endpoints.map(|it| it.id), now);
        loads.into_iter()
    }
}

/// Where nothing drains, in seconds: time enough for some rounds of scrapes.
const NO_ENDPOINT_SECONDS: u32 = 10;

/// Where a configuration has gone, in seconds: the next one is there already.
const SHUTTING_DOWN_SECONDS: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::FlowControl;
    use crate::plan::Plan;
    use crate::pool::{Arrived, Asking, PoolOptions};
    use crate::request::{Request, RequestFault};
    use crate::saturation::{Concurrency, Detector};
    use crate::shape::Shape;
    use crate::shared::LocalData;
    use crate::snapshot::Snapshot;
    use crate::ticket::{Answered, Ticket};
    use crate::{Address, Span};
    use alloc::vec::Vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// A pool of two endpoints, each full with four requests.
    fn pool() -> (Pool, Draws) {
        let addresses = ["10.0.0.1:80", "10.0.0.2:80"].map(|it| it.parse::<Address>().unwrap());
        let detector = Detector::Concurrency(Concurrency {
            requests: Some(4.0),
            tokens: None,
            headroom: 0.0,
        });
        let options = PoolOptions {
            name: "llm".into(),
            plan: Plan {
                detector,
                flow: Some(FlowControl::default()),
                ..Plan::default()
            },
            staleness_threshold: Span::from_millis(2000),
            ..PoolOptions::default()
        };
        let pool = Pool::new(options, Snapshot::unknown(addresses), 1);
        (pool, Draws::new(1))
    }

    #[track_caller]
    fn check(pool: &Pool, refusal: Refusal, now: Timestamp, expected: Option<(u32, u32)>) {
        let mut draws = Draws::new(2);
        let drawn = (0..500).map(|_| pool.retry_after(refusal, &mut draws, now));
        let drawn: Option<Vec<u32>> = drawn.collect();
        let range = drawn.map(|it| (*it.iter().min().unwrap(), *it.iter().max().unwrap()));
        assert_eq!(range, expected, "{refusal:?}");
    }

    /// Five requests end in two seconds, and as many are sent as keep `in_flight` there.
    fn drain(pool: &mut Pool, shared: &LocalData, draws: &mut Draws, in_flight: usize) {
        let mut running: Vec<Ticket> = Vec::new();
        for step in 0..=28 {
            let now = Timestamp(1_000_000 + 100_000 * step);
            pool.tick(shared, now);
            if step % 4 == 3 {
                let answered = Answered::default();
                pool.on_done(shared, &mut running.remove(0), answered, now);
            }
            while running.len() < in_flight {
                let pick = pool.pick(shared, &Request::bodiless(), draws, now);
                running.push(pick.unwrap().ticket);
            }
        }
    }

    #[test]
    fn what_is_over_full_has_to_end_before_there_is_room() {
        let now = Timestamp(4_000_000);
        for (in_flight, expected) in [
            // One of them has to end.
            (6, (1, 2)),
            (8, (1, 2)),
            // 15 of 8: 7 and one more have to, at 2.5 a second.
            (15, (4, 6)),
            (20, (6, 9)),
        ] {
            let ((mut pool, mut draws), shared) = (pool(), LocalData::default());
            for refusal in [Refusal::Saturated, Refusal::QueueFull] {
                check(&pool, refusal, now, Some((5, 8)));
            }
            drain(&mut pool, &shared, &mut draws, in_flight);
            for refusal in [
                Refusal::Evicted,
                Refusal::Filtered,
                Refusal::NoDecode,
                Refusal::NotAdmitted,
                Refusal::QueueFull,
                Refusal::Saturated,
                Refusal::WaitedTooLong,
            ] {
                check(&pool, refusal, now, Some(expected));
            }
        }
    }

    #[test]
    fn those_that_wait_already_are_first() {
        let ((mut pool, mut draws), shared) = (pool(), LocalData::default());
        drain(&mut pool, &shared, &mut draws, 8);
        let now = Timestamp(4_000_000);
        let chat = Request {
            shape: Some(Shape::ChatCompletions),
            ..Request::default()
        };
        let asking = Asking {
            bytes: 1,
            received_at: now,
        };
        for _ in 0..3 {
            let arrived = pool.arrive(&shared, (&chat, asking), &mut draws, now);
            assert!(matches!(arrived, Ok(Arrived::Waits(_))), "{arrived:?}");
        }
        // Those three and one more have to end, at 2.5 a second.
        check(&pool, Refusal::QueueFull, now, Some((2, 3)));
    }

    #[test]
    fn where_nothing_drains_the_time_is_fixed_and_where_nothing_helps_there_is_none() {
        let (pool, _) = pool();
        let none = RequestFault::Undecodable;
        for (refusal, expected) in [
            (Refusal::NoEndpoint, Some((10, 15))),
            (Refusal::QueueFullWithoutEndpoint, Some((10, 15))),
            (Refusal::WaitedWithoutEndpoint, Some((10, 15))),
            (Refusal::ShuttingDown, Some((1, 1))),
            (Refusal::AdminPath, None),
            (Refusal::BodyTooLarge { limit: 1 }, None),
            (Refusal::NoProfile, None),
            (Refusal::NotCached, None),
            (Refusal::Unreadable(none), None),
        ] {
            check(&pool, refusal, Timestamp(4_000_000), expected);
        }
    }
}
