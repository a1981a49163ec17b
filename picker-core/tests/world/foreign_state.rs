//! Whatever another release, or chance, has left in shared data: nothing panics, every request is
//! picked, and soon all is as it should be.

use crate::world::{HOSTS, World};
use picker_core::{Draws, LocalData, RING_RECORDS, SharedData, Span};

/// All keys of a pool, but for the other places of the ring and of the checkpoint.
const KEYS: [&str; 10] = [
    "picker/lease",
    "picker/pools",
    "picker/llm/config",
    "picker/llm/snapshot",
    "picker/llm/generation",
    "picker/llm/ledger",
    "picker/llm/checkpoint",
    "picker/llm/checkpoint/0",
    "picker/llm/checkpoint/1",
    "picker/llm/checkpoint/2",
];

/// Long enough for rows to become void, and for a registration to be affirmed.
const HEALED_WITHIN: Span = Span::from_millis(3000);

/// The same where another configuration seems to hold: what nobody affirms is void after 10 s.
const CONFIGURED_WITHIN: Span = Span::from_millis(11_000);

/// What may stand in the place of `right`.
fn foreign(right: &[u8], draws: &mut Draws) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new(), vec![1], vec![0xFF; right.len().max(64)]];
    let mut other_format = right.to_vec();
    if let Some(format) = other_format.first_mut() {
        *format = 200;
    }
    all.push(other_format);
    all.push(right.get(..right.len() / 2).unwrap_or_default().to_vec());
    all.push([right, right].concat());
    for start in [1_usize, 8, 9, 13, 17, 25] {
        let mut odd = right.to_vec();
        let end = odd.len().min(start + 8);
        if let Some(number) = odd.get_mut(start.min(end)..end) {
            number.fill(0xFF);
        }
        all.push(odd);
    }
    for length in [9, 33, 300] {
        let mut random: Vec<u8> = (0..length).map(|_| draws.below(256) as u8).collect();
        all.push(random.clone());
        random[0] = 1;
        all.push(random);
    }
    all
}

fn value(shared: &LocalData, key: &str) -> Vec<u8> {
    let mut value = Vec::new();
    shared.get(key, &mut value);
    value
}

#[test]
fn a_value_that_makes_no_sense_is_soon_a_right_one_again() {
    let mut draws = Draws::new(1);
    for key in KEYS {
        let cases = foreign(&[1; 40], &mut draws).len();
        let mut world = World::new(LocalData::default());
        world.run(HEALED_WITHIN);
        world.assert_healthy("from nothing");
        for case in 0..cases {
            let right = value(&world.shared, key);
            assert!(!right.is_empty(), "nobody writes {key}");
            let foreign = foreign(&right, &mut draws).swap_remove(case);
            let what = format!("{key} = {foreign:?}");
            world.shared.set(key, &foreign);
            world.run(if key == "picker/llm/config" {
                CONFIGURED_WITHIN
            } else {
                HEALED_WITHIN
            });
            world.assert_healthy(&what);
        }
    }
}

#[test]
fn an_entry_of_the_ring_that_makes_no_sense_holds_up_nobody() {
    let mut draws = Draws::new(2);
    let cases = foreign(&[1; 40], &mut draws).len();
    // The ring has not gone round yet, and it has.
    for laps in [0, 1] {
        let mut world = World::new(LocalData::default());
        world.run(HEALED_WITHIN);
        while laps > 0 && value(&world.shared, "picker/llm/ring/0").is_empty() {
            world.run(HEALED_WITHIN);
        }
        world.run(HEALED_WITHIN);
        for case in 0..cases {
            for place in ring_places(&world.shared) {
                let key = format!("picker/llm/ring/{place}");
                let right = value(&world.shared, &key);
                let foreign = foreign(&right, &mut draws).swap_remove(case);
                world.shared.set(&key, &foreign);
                // A worker that begins while it is there, and so has the most to read.
                world.workers.remove(0);
                world.start_worker(10 + case as u64, &HOSTS);
                world.run(HEALED_WITHIN);
                world.assert_healthy(&format!("{key} = {foreign:?}"));
            }
        }
    }
}

/// Places of the newest entry, of the one to be written next, and of one in the middle.
fn ring_places(shared: &LocalData) -> [u64; 4] {
    let number = |place: u64| {
        let value = value(shared, &format!("picker/llm/ring/{place}"));
        let number = value.get(1..9).and_then(|bytes| bytes.try_into().ok());
        let number = number.map_or(0, u64::from_le_bytes);
        // Those that a case before this one has planted are none.
        if number % RING_RECORDS == place {
            number
        } else {
            0
        }
    };
    let newest = (0..RING_RECORDS).map(number).filter(|it| *it < 1 << 48);
    let newest = newest.max().unwrap_or(0);
    [newest, newest + 1, newest + 9, newest / 2].map(|number| number % RING_RECORDS)
}

#[test]
fn twins_are_written_again_where_nobody_is_left_who_knows_all() {
    let mut draws = Draws::new(4);
    let ring_round = Span::from_millis(30_000);
    let cases = foreign(&[1; 40], &mut draws).len();
    for case in (0..cases).step_by(5) {
        let mut world = World::new(LocalData::default());
        world.run(ring_round);
        for place in 0..HOSTS.len() {
            let key = format!("picker/llm/checkpoint/{place}");
            let right = value(&world.shared, &key);
            let foreign = foreign(&right, &mut draws).swap_remove(case);
            world.shared.set(&key, &foreign);
        }
        world.workers.clear();
        world.start_worker(11, &HOSTS);
        world.start_worker(12, &HOSTS);
        world.run(CONFIGURED_WITHIN);
        let placed = world.place(777);
        // By then the entry that says so is overwritten.
        world.run(ring_round);
        world.start_worker(13, &HOSTS);
        let found = world.place(777);
        assert_eq!(found.matched, found.blocks, "case {case}");
        assert_eq!(found.endpoint, placed.endpoint, "case {case}");
    }
}

#[test]
fn all_that_another_release_has_left_is_replaced() {
    let mut draws = Draws::new(3);
    let cases = foreign(&[1; 40], &mut draws).len();
    let mut before = World::new(LocalData::default());
    before.run(HEALED_WITHIN);
    for case in 0..cases {
        let shared = LocalData::default();
        let ring = (0..RING_RECORDS).map(|place| format!("picker/llm/ring/{place}"));
        for key in KEYS.map(String::from).into_iter().chain(ring) {
            let right = value(&before.shared, &key);
            shared.set(&key, &foreign(&right, &mut draws).swap_remove(case));
        }
        let mut world = World::new(shared);
        world.run(HEALED_WITHIN);
        world.assert_healthy(&format!("case {case}"));
    }
}
