//! Boards of what waits: whatever stands there, each request is sent or refused, and soon the board
//! shows what waits and nothing else.

use std::io;

use picker_core::{
    Answered, Arrived, Asking, Band, Capacity, Concurrency, Detector, Draws, Fairness, FlowControl,
    LeastAttained, LocalData, Pick, Plan, Pool, PoolOptions, Request, Shape, SharedData, Span,
    Timestamp, Turn, WaitId,
};

use crate::workers::{NOW, POOL, snapshot, stored};

/// The bytes of a board.
pub fn check(input: &[u8]) {
    let shared = LocalData::default();
    shared.set(KEY, input);
    let mut house = House::new(&shared);
    for number in 0..8 {
        house.arrive(number, NOW.after(Span(number)));
    }
    house.run_turns(NOW.after(Span::from_millis(1)));
    // A row of others is void at all of these moments but one, and the input has fewer.
    let mut moments = (1..=ROWS_MAX).map(|second| NOW.after(Span::from_millis(1000 * second)));
    let healed = moments.find(|now| {
        house.look_after(*now);
        house.is_shown(*now)
    });
    assert!(healed.is_some(), "others seem to wait for ever");
    house.drain(healed.unwrap_or(NOW).after(Span(1)));
}

/// Boards as workers leave them.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let shared = LocalData::default();
    let mut house = House::new(&shared);
    let mut seeds = vec![Vec::new()];
    for number in 0..8 {
        house.arrive(number, NOW.after(Span(number)));
        seeds.push(stored(&shared, KEY));
    }
    house.look_after(NOW.after(Span::from_millis(100)));
    seeds.push(stored(&shared, KEY));
    house.drain(NOW.after(Span::from_millis(101)));
    seeds.push(stored(&shared, KEY));
    Ok(seeds)
}

/// Two workers, and what they hold.
struct House<'a> {
    shared: &'a LocalData,
    workers: [Worker; 2],
}

struct Worker {
    pool: Pool,
    draws: Draws,
    waiting: Vec<(WaitId, Request)>,
    running: Vec<Pick>,
}

impl<'a> House<'a> {
    fn new(shared: &'a LocalData) -> Self {
        let worker = |owner| Worker {
            pool: Pool::new(options(), snapshot(), owner),
            draws: Draws::new(owner),
            waiting: Vec::new(),
            running: Vec::new(),
        };
        Self {
            shared,
            workers: [worker(1), worker(2)],
        }
    }

    fn arrive(&mut self, number: u64, now: Timestamp) {
        let request = request(number);
        let asking = Asking {
            bytes: number,
            received_at: now,
        };
        let worker = &mut self.workers[usize::from(number.is_multiple_of(2))];
        let asked = (&request, asking);
        match worker
            .pool
            .arrive(self.shared, asked, &mut worker.draws, now)
        {
            Ok(Arrived::Sent(pick)) => worker.running.push(pick),
            Ok(Arrived::Waits(id)) => worker.waiting.push((id, request)),
            Err(_) => {}
        }
    }

    fn look_after(&mut self, now: Timestamp) {
        for worker in &mut self.workers {
            assert!(worker.pool.expired(self.shared, now).is_empty());
            worker.pool.tick(self.shared, now);
            assert!(worker.pool.evictions(now).len() <= worker.running.len());
        }
    }

    /// Starts those whose turn it is until there are none; how many there were.
    fn run_turns(&mut self, now: Timestamp) -> usize {
        let mut started = 0;
        for worker in &mut self.workers {
            while let Turn::Mine(id) = worker.pool.turn(self.shared, now) {
                let waiting = worker.waiting.iter().position(|(it, _)| *it == id);
                assert!(waiting.is_some(), "{id:?} does not wait");
                let Some((_, request)) = waiting.map(|it| worker.waiting.remove(it)) else {
                    return started;
                };
                let asked = (id, &request);
                let pick = worker
                    .pool
                    .start(self.shared, asked, &mut worker.draws, now);
                assert!(matches!(pick, Ok(Some(_))), "{pick:?}");
                worker.running.extend(pick.ok().flatten());
                started += 1;
            }
        }
        started
    }

    /// Whether the board shows what waits and nothing else.
    fn is_shown(&mut self, now: Timestamp) -> bool {
        let waiting = self.workers.iter().map(|it| it.waiting.len() as u64);
        let waiting: u64 = waiting.sum();
        self.workers.iter_mut().all(|worker| {
            assert_eq!(worker.pool.waiting(), worker.waiting.len());
            worker.pool.turn(self.shared, now);
            let shown = worker.pool.waiting_by_band(now).into_iter();
            shown.map(|(_, it)| it.requests).sum::<u64>() == waiting
        })
    }

    /// All that runs ends, until nothing waits any more.
    fn drain(&mut self, mut now: Timestamp) {
        while self.workers.iter().any(|it| !it.waiting.is_empty()) {
            for worker in &mut self.workers {
                for mut pick in worker.running.drain(..) {
                    let answered = Answered {
                        output_tokens: Some(30),
                        ..Answered::default()
                    };
                    let ticket = &mut pick.ticket;
                    worker.pool.on_done(self.shared, ticket, answered, now);
                }
            }
            now = now.after(Span::from_millis(1));
            self.look_after(now);
            assert!(self.run_turns(now) > 0, "somebody waits for ever");
            assert!(self.is_shown(now), "the board shows others");
        }
    }
}

/// A band for each way in which tenants take turns; one request makes an endpoint full.
fn options() -> PoolOptions {
    let of_programs = Fairness::ProgramAware(LeastAttained {
        weight_service: 0.8,
        weight_wait: 0.2,
        half_life: Span::from_millis(1000),
        forgotten_after: Span::from_millis(60_000),
    });
    let bands = [
        (5, Fairness::RoundRobin),
        (0, of_programs),
        (-1, Fairness::GlobalStrict),
    ];
    let band = |(priority, fairness)| Band {
        fairness,
        ..Band::of(priority)
    };
    let flow = FlowControl {
        bands: bands.map(band).to_vec(),
        capacity: Capacity {
            requests: 100,
            bytes: 1000,
        },
        evicts: true,
        ..FlowControl::default()
    };
    let detector = Detector::Concurrency(Concurrency {
        requests: Some(1.0),
        tokens: None,
        headroom: 0.0,
    });
    let plan = Plan {
        flow: Some(flow),
        detector,
        ..Plan::default()
    };
    PoolOptions {
        name: POOL.into(),
        plan,
        staleness_threshold: Span::from_millis(2000),
        ..PoolOptions::default()
    }
}

fn request(number: u64) -> Request {
    let priority = [-1, 0, 5, -1, 0, 0, 5, 5];
    let tenant = ["a", "b", "c"];
    Request {
        shape: Some(Shape::ChatCompletions),
        priority: priority[number as usize % priority.len()],
        fairness_id: Some(tenant[number as usize % tenant.len()].into()),
        ..Request::default()
    }
}

/// More rows than fit into an input, of those in which something waits.
const ROWS_MAX: u64 = 40;

const KEY: &str = "picker/llm/queue";
