//! Checkpoints: a worker that begins with any copies of twins keeps its books, and one that begins
//! with its copies knows what it knows.

use std::io;
use std::ops::Range;

use picker_core::{
    Draws, EndpointId, Entry, Judged, Ledger, LocalData, RING_RECORDS, Ring, Row, SharedData, Span,
    Verdict, ledger_key,
};

use crate::input::{Input, records};
use crate::ring;
use crate::workers::{
    ENDPOINTS, NOW, POOL, keeps_its_books, know_the_same, request, stored, work, worked, worker,
};

/// The copies of three twins, and whose turn it is to be written.
pub fn check(input: &[u8]) {
    let mut input = Input(input);
    let shared = LocalData::default();
    for place in 0..ENDPOINTS.len() {
        shared.set(&key(place), input.record());
    }
    shared.set(TURN_KEY, input.record());
    overtake(&shared);
    keep_alive(&shared);
    let mut late = worker(1);
    late.tick(&shared, NOW);
    keeps_its_books(&late);
    // Some prompt is in flight, whatever was in the copies.
    let _ = late.pick(&shared, &request(1, 6), &mut Draws::new(7), NOW);
    // All turns come within two seconds.
    for round in 1..=4 {
        late.tick(&shared, NOW.after(Span::from_millis(round * 2000)));
    }
    keeps_its_books(&late);
    let mut later = worker(2);
    later.tick(&shared, NOW.after(Span::from_millis(8000)));
    keeps_its_books(&later);
    if !late.troubles().cold && !later.troubles().cold {
        know_the_same(&late, &later);
    }
    work(&shared);
}

/// The copies that workers leave, of each endpoint and of all.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let shared = worked();
    let copies: Vec<Vec<u8>> = (0..ENDPOINTS.len())
        .map(|place| stored(&shared, &key(place)))
        .collect();
    let turn = stored(&shared, TURN_KEY);
    let all = copies.iter().chain([&turn]).map(Vec::as_slice);
    let mut seeds = vec![records(all)];
    for copy in &copies {
        seeds.push(records([copy.as_slice()]));
        let mut last = copy.clone();
        if let Some(sequence) = last.get_mut(SEQUENCE) {
            sequence.fill(0xFF);
            seeds.push(records([last.as_slice()]));
        }
    }
    Ok(seeds)
}

/// Lets both workers count as alive, so that what they have in flight stays.
fn keep_alive(shared: &LocalData) {
    let row = |owner: u8| Row {
        owner: owner.into(),
        slot: owner,
        heartbeat: NOW.after(Span::from_millis(10_000)),
        loads: Vec::new(),
    };
    let mut bytes = Vec::new();
    let rows = vec![row(1), row(2)];
    Ledger { rows }.encode(&mut bytes);
    shared.set(&ledger_key(POOL), &bytes);
}

/// Makes every worker late: the first record of the ring has been overwritten.
fn overtake(shared: &LocalData) {
    let mut ring = Ring::new(POOL);
    let entry = Entry::Judged(Judged {
        endpoint: EndpointId(1),
        verdict: Verdict::Served,
        at: NOW,
    });
    let _ = ring.append(shared, &[entry]);
    let first = ring::key(1);
    let mut overwritten = stored(shared, &first);
    ring::number(&mut overwritten, RING_RECORDS + 1);
    shared.set(&first, &overwritten);
}

fn key(place: usize) -> String {
    format!("picker/{POOL}/checkpoint/{place}")
}

const TURN_KEY: &str = "picker/llm/checkpoint";

/// Where a copy has the number of the last ring record in it.
const SEQUENCE: Range<usize> = 5..13;
