//! The twin against a block LRU with reference counts, as simple as can be.

use super::*;
use alloc::format;
use alloc::vec;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const ENDPOINT: EndpointId = EndpointId(3);
const OWNER: u64 = 1;

#[derive(Default)]
struct Naive {
    capacity: usize,
    /// Unused blocks, the one forgotten next first.
    free: Vec<BlockHash>,
    /// Blocks of prompts in flight, once for each.
    used: Vec<BlockHash>,
}

impl Naive {
    fn held(&self, prompt: &[BlockHash]) -> Held {
        let is_held = |block: &&BlockHash| self.free.contains(block) || self.used.contains(block);
        let matched = prompt.iter().take_while(is_held).count();
        let pinned = prompt
            .iter()
            .take_while(|block| self.used.contains(block))
            .count();
        Held { matched, pinned }
    }

    fn place(&mut self, prompt: &[BlockHash]) {
        self.free.retain(|block| !prompt.contains(block));
        self.used.extend(prompt);
        self.evict();
    }

    fn finish(&mut self, prompt: &[BlockHash], output: &[BlockHash]) {
        self.free.extend(output.iter().rev());
        for block in prompt.iter().rev() {
            let place = self.used.iter().position(|used| used == block).unwrap();
            self.used.swap_remove(place);
            if !self.used.contains(block) {
                self.free.push(*block);
            }
        }
        self.evict();
    }

    fn evict(&mut self) {
        let over = self
            .blocks()
            .saturating_sub(self.capacity)
            .min(self.free.len());
        self.free.drain(..over);
    }

    fn pinned(&self) -> usize {
        let mut used = self.used.clone();
        used.sort_unstable();
        used.dedup();
        used.len()
    }

    fn blocks(&self) -> usize {
        self.pinned() + self.free.len()
    }
}

/// The twins and the number of the next ring entry.
struct Real(Twins, u64);

impl Real {
    fn with_capacity(capacity: usize) -> Self {
        let mut twins = Twins::default();
        twins.set_capacity(ENDPOINT, capacity);
        Self(twins, 1)
    }

    fn place(&mut self, prompt: &[BlockHash]) -> u64 {
        let placed = self.0.placement(ENDPOINT, prompt, (OWNER, None));
        self.apply(Entry::Placed(placed))
    }

    fn finish(&mut self, placed: u64, output_blocks: u32) -> u64 {
        self.finish_telling(placed, output_blocks, None)
    }

    fn finish_telling(&mut self, placed: u64, output_blocks: u32, cached: Option<u32>) -> u64 {
        self.apply(Entry::Done(Done {
            placed,
            output_blocks,
            cached_blocks: cached,
        }))
    }

    fn apply(&mut self, entry: Entry) -> u64 {
        self.0.apply(self.1, &entry);
        self.1 += 1;
        self.1 - 1
    }

    /// Places a prompt and finishes it at once.
    fn serve(&mut self, prompt: &[BlockHash]) {
        let placed = self.place(prompt);
        self.finish(placed, 0);
    }

    fn matched(&self, prompt: &[BlockHash]) -> usize {
        self.0.held(ENDPOINT, prompt).matched
    }
}

/// The hashes of a prompt: each depends on all before it.
fn chain(texts: &[u64]) -> Vec<BlockHash> {
    let mut hash = 1;
    let step = |text: &u64| {
        hash = (hash ^ (text + 77))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
        BlockHash(hash)
    };
    texts.iter().map(step).collect()
}

#[test]
fn a_prompt_matches_up_to_the_first_block_that_differs() {
    let mut real = Real::with_capacity(100);
    real.serve(&chain(&[1, 2, 3, 4]));
    for (prompt, matched) in [
        (&[1, 2, 3, 4][..], 4),
        (&[1, 2, 3, 4, 5], 4),
        (&[1, 2], 2),
        (&[1, 2, 9, 4], 2),
        (&[2, 3, 4], 0),
        (&[], 0),
    ] {
        assert_eq!(real.matched(&chain(prompt)), matched, "{prompt:?}");
    }
    assert_eq!(
        real.0.held(EndpointId(4), &chain(&[1])),
        Held::default(),
        "endpoints do not mix"
    );
}

#[test]
fn the_tail_is_forgotten_before_the_head() {
    let mut real = Real::with_capacity(3);
    real.serve(&chain(&[1, 2, 3]));
    real.serve(&chain(&[9]));
    assert_eq!(real.matched(&chain(&[1, 2, 3])), 2);
    assert_eq!(real.matched(&chain(&[9])), 1);
}

#[test]
fn what_is_in_flight_is_not_forgotten() {
    let mut real = Real::with_capacity(3);
    let placed = real.place(&chain(&[1, 2, 3]));
    real.serve(&chain(&[7, 8, 9]));
    assert_eq!(real.matched(&chain(&[1, 2, 3])), 3);
    assert_eq!(
        real.matched(&chain(&[7, 8, 9])),
        0,
        "there was no room for it"
    );
    assert_eq!(real.0.pinned(ENDPOINT), 3);
    real.finish(placed, 0);
    real.serve(&chain(&[7, 8]));
    assert_eq!(
        (real.matched(&chain(&[1, 2, 3])), real.0.pinned(ENDPOINT)),
        (1, 0)
    );
}

#[test]
fn output_takes_room_behind_its_prompt() {
    let mut real = Real::with_capacity(5);
    real.serve(&chain(&[7, 8]));
    let placed = real.place(&chain(&[1, 2]));
    real.finish(placed, 2);
    assert_eq!(
        (real.matched(&chain(&[7, 8])), real.0.blocks(ENDPOINT)),
        (1, 5)
    );
    real.serve(&chain(&[7, 8]));
    assert_eq!(
        real.matched(&chain(&[1, 2])),
        2,
        "its own output went first"
    );
}

#[test]
fn a_prompt_longer_than_the_cache_leaves_its_head() {
    let mut real = Real::with_capacity(3);
    real.serve(&chain(&[7, 8]));
    real.serve(&chain(&[1, 2, 3, 4, 5]));
    assert_eq!(real.matched(&chain(&[1, 2, 3, 4, 5])), 3);
    assert_eq!(real.0.blocks(ENDPOINT), 3);
}

#[test]
fn an_unlisted_endpoint_is_forgotten_and_its_requests_end_quietly() {
    let mut real = Real::with_capacity(3);
    let placed = real.place(&chain(&[1]));
    real.0.retain(|endpoint| endpoint != ENDPOINT, |_| true);
    assert_eq!(real.matched(&chain(&[1])), 0);
    real.finish(placed, 1);
    real.finish(placed, 1);
    assert_eq!(real.0.blocks(ENDPOINT), 0);
}

#[test]
fn a_dead_worker_lets_go_of_what_it_had_in_flight() {
    let mut real = Real::with_capacity(3);
    let placed = real.place(&chain(&[1, 2]));
    real.0.retain(|_| true, |owner| owner != OWNER);
    assert_eq!(real.0.pinned(ENDPOINT), 0);
    assert_eq!(
        real.matched(&chain(&[1, 2])),
        2,
        "the endpoint still holds it"
    );
    real.finish(placed, 3);
    assert_eq!(real.0.blocks(ENDPOINT), 2, "it has ended already");
}

#[test]
fn a_placement_behind_a_block_that_is_not_held_teaches_nothing() {
    let mut real = Real::with_capacity(10);
    let prompt = chain(&[1, 2, 3]);
    real.apply(Entry::Placed(Placed {
        endpoint: ENDPOINT,
        owner: OWNER,
        adapter: None,
        is_cold: false,
        depth: 2,
        parent: Some(prompt[1]),
        blocks: vec![prompt[2]],
    }));
    assert_eq!((real.0.unlinked, real.0.blocks(ENDPOINT)), (1, 0));
}

#[test]
fn it_agrees_with_a_naive_block_lru() {
    for seed in 1..=60_u64 {
        let mut random = seed;
        let mut draw = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        let capacity = 1 + draw(60) as usize;
        let mut real = Real::with_capacity(capacity);
        let mut naive = Naive {
            capacity,
            ..Naive::default()
        };
        let mut flying: Vec<(u64, Vec<BlockHash>)> = Vec::new();
        for step in 0..400 {
            if draw(3) > 0 && flying.len() < 6 {
                let texts: Vec<u64> = (0..=draw(12)).map(|_| draw(3)).collect();
                let prompt = chain(&texts);
                let at = format!("seed {seed} step {step}");
                assert_eq!(real.0.held(ENDPOINT, &prompt), naive.held(&prompt), "{at}");
                flying.push((real.place(&prompt), prompt.clone()));
                naive.place(&prompt);
            } else if !flying.is_empty() {
                let (placed, prompt) = flying.remove(draw(flying.len() as u64) as usize);
                let blocks = draw(4) as u32;
                let done = real.finish(placed, blocks);
                let name = |block| BlockHash(!(done << 16).wrapping_add(u64::from(block)));
                naive.finish(&prompt, &(0..blocks).map(name).collect::<Vec<_>>());
            }
            let found = (real.0.blocks(ENDPOINT), real.0.pinned(ENDPOINT));
            let wanted = (naive.blocks(), naive.pinned());
            assert_eq!(found, wanted, "seed {seed} step {step} capacity {capacity}");
        }
    }
}

#[test]
fn what_was_used_before_something_forgotten_is_forgotten_too() {
    let mut real = Real::with_capacity(1000);
    let prompt = |seed: u64| chain(&[seed, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    (1..=9).for_each(|seed| real.serve(&prompt(seed)));
    let placed = real.place(&prompt(4));
    real.finish_telling(placed, 0, Some(0));
    let held: Vec<u64> = (1..=9)
        .filter(|seed| real.matched(&prompt(*seed)) == 10)
        .collect();
    assert_eq!(
        held,
        [4, 5, 6, 7, 8, 9],
        "it holds 4 again, and what was used after 4 was"
    );
    let placed = real.place(&prompt(9));
    real.finish_telling(placed, 0, Some(8));
    assert_eq!(real.matched(&prompt(5)), 10, "two blocks less are rounding");
}

#[test]
fn only_the_stretch_that_was_forgotten_tells_the_age() {
    let mut real = Real::with_capacity(1000);
    let system = [1, 2, 3, 4, 5, 6];
    let turn = |seed: u64| chain(&[&system[..], &[seed, 8, 9, 10, 11]].concat());
    real.serve(&turn(100));
    real.serve(&chain(&[7, 7, 7, 7]));
    real.serve(&turn(200));
    let placed = real.place(&turn(100));
    real.finish_telling(placed, 0, Some(6));
    assert_eq!(
        real.matched(&chain(&[7, 7, 7, 7])),
        4,
        "it was used after the turn that is gone"
    );
    let placed = real.place(&turn(200));
    real.finish_telling(placed, 0, Some(0));
    assert_eq!(
        real.matched(&chain(&[7, 7, 7, 7])),
        0,
        "even the system prompt was gone"
    );
}

#[test]
fn a_twin_is_read_as_it_was_written_and_cut_bytes_change_nothing() {
    let mut real = Real::with_capacity(50);
    real.serve(&chain(&[1, 2, 3, 4]));
    let placed = real.place(&chain(&[1, 2, 9, 9, 9]));
    let mut bytes = Vec::new();
    real.0.encode(ENDPOINT, &mut Writer(&mut bytes));
    let restored = |bytes: &[u8]| {
        let mut twins = Twins::default();
        twins
            .decode(ENDPOINT, real.1 - 1, &mut Reader(bytes))
            .map(|()| twins)
    };
    let mut copy = Real(restored(&bytes).unwrap(), real.1);
    for prompt in [&[1, 2, 3, 4][..], &[1, 2, 9, 9, 9], &[1, 2], &[7]] {
        let prompt = chain(prompt);
        assert_eq!(
            copy.0.held(ENDPOINT, &prompt),
            real.0.held(ENDPOINT, &prompt)
        );
    }
    copy.finish(placed, 0);
    assert_eq!(copy.0.pinned(ENDPOINT), 0);
    let whole: Vec<usize> = (0..bytes.len())
        .filter(|cut| restored(&bytes[..*cut]).is_some())
        .collect();
    assert_eq!(
        whole.len(),
        1,
        "only without its pins is a twin whole: {whole:?}"
    );
    for place in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x55;
        if let Some(mut twins) = restored(&damaged) {
            twins.set_capacity(ENDPOINT, 1);
        }
    }
}

/// A run as it is written: number, parent, depth, blocks.
type WrittenRun<'a> = (u32, Option<u64>, u32, &'a [u64]);

/// A twin that holds `runs`, one of them in use by a request; `None` when there is none such.
fn described(next_run: u32, runs: &[WrittenRun<'_>], pinned: Option<u64>) -> Option<Twins> {
    let mut bytes = Vec::new();
    let mut writer = Writer(&mut bytes);
    Health::default().encode(&mut writer);
    Adapters::default().encode(&mut writer);
    writer.u64(0);
    writer.u32(0);
    writer.u32(next_run);
    writer.u32(runs.len() as u32);
    for (id, parent, depth, blocks) in runs {
        writer.u32(*id);
        writer.count(*parent);
        writer.u32(*depth);
        writer.u64(1);
        writer.u32(blocks.len() as u32);
        blocks.iter().for_each(|block| writer.u64(*block));
    }
    for number in [2, OWNER, u64::MAX] {
        writer.u64(number);
    }
    writer.count(pinned);
    let mut twins = Twins::default();
    twins.decode(ENDPOINT, 1, &mut Reader(&bytes))?;
    Some(twins)
}

#[test]
fn bytes_that_describe_no_twin_are_refused() {
    let (head, tail): (WrittenRun<'_>, WrittenRun<'_>) =
        ((0, None, 0, &[5, 6]), (1, Some(0), 2, &[7]));
    let is_twin = |runs: &[WrittenRun<'_>], pinned| described(9, runs, pinned).is_some();
    assert!(is_twin(&[tail, head], Some(1)));
    for (runs, fault) in [
        (
            [tail, (0, None, 1, &[5, 6])],
            "does not begin at the first block",
        ),
        (
            [(1, Some(0), 3, &[7]), head],
            "does not begin where its parent ends",
        ),
        ([(1, Some(7), 2, &[7]), head], "has an unknown parent"),
        ([(1, Some(1), 2, &[7]), head], "is its own parent"),
        ([tail, (0, Some(1), 3, &[5, 6])], "is its parent's parent"),
        ([(1, Some(0), 2, &[]), head], "is empty"),
        ([(0, None, 0, &[8]), head], "is there twice"),
        ([(1, Some(0), 2, &[6]), head], "holds a block of another"),
    ] {
        assert!(!is_twin(&runs, None), "a run {fault}");
    }
    assert!(
        !is_twin(&[tail, head], Some(2)),
        "the pinned run is unknown"
    );
}

#[test]
fn a_run_that_outlives_a_round_of_numbers_keeps_its_own() {
    let head: WrittenRun<'_> = (0, None, 0, &[5, 6]);
    let mut twins = described(0, &[head], Some(0)).unwrap();
    let prompt = [5, 6, 7].map(BlockHash);
    let placed = twins.placement(ENDPOINT, &prompt, (OWNER, None));
    twins.apply(3, &Entry::Placed(placed));
    assert_eq!((twins.blocks(ENDPOINT), twins.pinned(ENDPOINT)), (3, 3));
    let branch = [5, 8].map(BlockHash);
    let placed = twins.placement(ENDPOINT, &branch, (OWNER, None));
    twins.apply(4, &Entry::Placed(placed));
    let held = Held {
        matched: 2,
        pinned: 2,
    };
    assert_eq!(twins.held(ENDPOINT, &branch), held);
    assert_eq!(twins.held(ENDPOINT, &prompt).matched, 3);
}

#[test]
fn an_endpoint_is_found_when_others_before_it_have_gone() {
    let mut twins = Twins::default();
    for number in 1..=6 {
        let placed = Entry::Placed(Placed {
            endpoint: EndpointId(number),
            owner: OWNER,
            adapter: None,
            is_cold: false,
            depth: 0,
            parent: None,
            blocks: (0..u64::from(number)).map(BlockHash).collect(),
        });
        twins.apply(u64::from(number), &placed);
    }
    twins.retain(|id| ![1, 3, 4].contains(&id.0), |_| true);
    let blocks = [1, 2, 3, 4, 5, 6, 7].map(|number| twins.blocks(EndpointId(number)));
    assert_eq!(blocks, [0, 2, 0, 0, 5, 6, 0]);
}
