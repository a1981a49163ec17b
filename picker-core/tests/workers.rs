//! Workers on threads of their own, with nothing in common but shared data.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use picker_core::{
    Answered, BlockHash, Done, Draws, EndpointId, Entry, Ledger, LocalData, Plan, Pool,
    PoolOptions, Prompt, Request, Ring, SharedData, Snapshot, Span, Timestamp, Troubles, Twins,
    Version, entry_number, ledger_key,
};

/// Shared data as Envoy keeps it: one lock for all, copies in and out.
#[derive(Default)]
struct LockedData(Mutex<LocalData>);

impl LockedData {
    fn locked(&self) -> MutexGuard<'_, LocalData> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedData for LockedData {
    fn get(&self, key: &str, value: &mut Vec<u8>) -> Version {
        self.locked().get(key, value)
    }

    fn set_if(&self, key: &str, value: &[u8], version: Version) -> bool {
        self.locked().set_if(key, value, version)
    }

    fn set(&self, key: &str, value: &[u8]) {
        self.locked().set(key, value);
    }
}

/// The blocks of one of 40 prompts that share heads in groups of four.
fn prompt(number: u64) -> Vec<BlockHash> {
    let head = (0..6).map(|depth| BlockHash(1_000_000 + number / 4 * 1000 + depth));
    let tail = (0..number % 7).map(|depth| BlockHash(9_000_000 + number * 1000 + depth));
    head.chain(tail).collect()
}

/// Appends what `make` says once `twins` knows all that came before; gives its number.
fn append(
    shared: &LockedData,
    ring: &mut Ring,
    twins: &mut Twins,
    make: impl Fn(&Twins) -> Entry,
) -> u64 {
    loop {
        assert!(ring.replay(shared, |sequence, entry| twins.apply(sequence, entry)));
        let entry = make(twins);
        if let Some(record) = ring.append(shared, core::slice::from_ref(&entry)) {
            let number = entry_number(record, 0);
            twins.apply(number, &entry);
            return number;
        }
    }
}

#[test]
fn replicas_that_append_at_once_end_up_the_same() {
    let shared = LockedData::default();
    let replicas: Vec<(Ring, Twins)> = thread::scope(|scope| {
        let worker = |seed: u64| {
            let shared = &shared;
            move || {
                let mut draws = Draws::new(seed);
                let (mut ring, mut index) = (Ring::new("llm"), Twins::default());
                for endpoint in 1..=3 {
                    index.set_capacity(EndpointId(endpoint), 60);
                }
                let mut placed = None;
                for _ in 0..300 {
                    let endpoint = EndpointId(1 + draws.below(3));
                    let blocks = prompt(u64::from(draws.below(40)));
                    let output_blocks = draws.below(3);
                    let place = |twins: &Twins| twins.placement(endpoint, &blocks, (seed, None));
                    placed = Some(match placed.take() {
                        None => append(shared, &mut ring, &mut index, |twins| {
                            Entry::Placed(place(twins))
                        }),
                        Some(placed) => {
                            let cached_blocks = Some(draws.below(12));
                            let done = Done {
                                placed,
                                output_blocks,
                                cached_blocks,
                            };
                            append(shared, &mut ring, &mut index, |_| Entry::Done(done));
                            continue;
                        }
                    });
                }
                (ring, index)
            }
        };
        let threads: Vec<_> = (0..3).map(|seed| scope.spawn(worker(seed))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut views = Vec::new();
    for (mut ring, mut index) in replicas {
        assert!(ring.replay(&shared, |sequence, entry| index.apply(sequence, entry)));
        assert_eq!((ring.next(), ring.lapped, index.unlinked), (901, 0, 0));
        let matched = |endpoint| (0..40).map(move |it| (endpoint, prompt(it)));
        let view: Vec<usize> = (1..=3)
            .flat_map(|endpoint| matched(EndpointId(endpoint)))
            .map(|(endpoint, blocks)| index.held(endpoint, &blocks).matched)
            .collect();
        views.push(view);
    }
    assert!(views.iter().all(|view| *view == views[0]), "{views:?}");
    assert!(views[0].iter().any(|matched| *matched > 0));
}

#[test]
fn what_several_workers_count_at_once_adds_up() {
    let shared = LockedData::default();
    let addresses = || (1..=3).map(|host| format!("10.0.0.{host}:80").parse().unwrap());
    let held: Vec<usize> = thread::scope(|scope| {
        let worker = |owner: u64| {
            let shared = &shared;
            move || {
                let options = PoolOptions {
                    name: "llm".into(),
                    plan: Plan::default(),
                    labels: Vec::new(),
                    staleness_threshold: Span(0),
                    capacity_tokens: None,
                    ..PoolOptions::default()
                };
                let mut pool = Pool::new(options, Snapshot::unknown(addresses()), owner);
                let mut draws = Draws::new(owner);
                let mut tickets = Vec::new();
                for number in 0..200 {
                    let prompts = vec![Prompt {
                        bytes: 2000,
                        blocks: prompt(number % 40),
                    }];
                    let request = Request {
                        prompts,
                        ..Request::bodiless()
                    };
                    let pick = pool
                        .pick(shared, &request, &mut draws, Timestamp(0))
                        .unwrap();
                    tickets.push(pick.ticket);
                    if number % 3 > 0 {
                        let mut first = tickets.remove(0);
                        pool.on_done(shared, &mut first, Answered::default(), Timestamp(0));
                    }
                }
                pool.tick(shared, Timestamp(0));
                let troubles = pool.troubles();
                assert_eq!(
                    troubles,
                    Troubles {
                        ledger_conflicts: troubles.ledger_conflicts,
                        ..Default::default()
                    }
                );
                tickets.len()
            }
        };
        let threads: Vec<_> = (1..=4).map(|owner| scope.spawn(worker(owner))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut bytes = Vec::new();
    shared.get(&ledger_key("llm"), &mut bytes);
    let ledger = Ledger::decode(&bytes);
    let total = |count: fn(&picker_core::Load) -> u32| -> u32 {
        (1..=3)
            .map(|id| count(&ledger.total(EndpointId(id), Timestamp(0))))
            .sum()
    };
    assert_eq!(total(|load| load.sent), 800);
    assert_eq!(
        total(|load| load.requests) as usize,
        held.iter().sum::<usize>()
    );
}
