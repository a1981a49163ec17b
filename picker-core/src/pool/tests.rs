//! Several workers that share nothing but shared data.

use super::*;
use crate::config::EndpointConfig;
use crate::discovery::publish_list;
use crate::health::Verdict;
use crate::ledger::Load;
use crate::load_report::LoadReport;
use crate::request::Prompt;
use crate::shared::LocalData;
use crate::snapshot::publish;
use crate::ticket::{Answered, Ticket};
use crate::{BLOCK_BYTES, BlockHash, EndpointId};
use alloc::{format, vec};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn addresses(count: u8) -> Vec<Address> {
    (1..=count)
        .map(|host| format!("10.0.0.{host}:8000").parse().unwrap())
        .collect()
}

fn worker(endpoints: u8, owner: u64) -> (Pool, Draws) {
    let options = PoolOptions {
        name: "llm".into(),
        plan: Plan::default(),
        labels: Vec::new(),
        staleness_threshold: Span::from_millis(2000),
        capacity_tokens: None,
        ..PoolOptions::default()
    };
    (
        Pool::new(options, Snapshot::unknown(addresses(endpoints)), owner),
        Draws::new(owner),
    )
}

/// A request whose blocks are `length` links of the chain that starts with `seed`.
fn request(seed: u64, length: u64) -> Request {
    let blocks: Vec<BlockHash> = (0..length)
        .map(|block| BlockHash(seed * 1_000_003 + block))
        .collect();
    let prompts = vec![Prompt {
        bytes: length * BLOCK_BYTES as u64,
        blocks,
    }];
    Request {
        prompts,
        ..Request::bodiless()
    }
}

/// All endpoints scraped at `now` with empty queues.
fn idle(endpoints: u8, now: Timestamp) -> Snapshot {
    let mut snapshot = Snapshot::unknown(addresses(endpoints));
    for endpoint in &mut snapshot.endpoints {
        endpoint.scraped_at = Some(now);
        endpoint.metrics.waiting = Some(0.0);
        endpoint.metrics.kv_usage = Some(0.0);
    }
    snapshot
}

/// What all workers have at an endpoint, as `pool` reads it.
fn total(pool: &mut Pool, shared: &LocalData, id: EndpointId, now: Timestamp) -> Load {
    pool.tally.read(shared);
    pool.tally.totals([id].into_iter(), now)[0]
}

/// A time so late after the one before that metrics are looked at again.
fn at(step: u64) -> Timestamp {
    Timestamp(step * VIEW_EVERY.0)
}

fn some_pick() -> Pick {
    let ticket = Ticket::default();
    let endpoint = EndpointId(1);
    Pick {
        endpoint,
        destinations: Vec::new(),
        matched: 0,
        blocks: 0,
        prompt_tokens: 0,
        prefill: None,
        division: None,
        scores: String::new(),
        headers: Vec::new(),
        ticket,
    }
}

fn spread(picks: &[Pick], endpoints: usize) -> Vec<usize> {
    let mut counts = vec![0; endpoints];
    picks
        .iter()
        .for_each(|pick| counts[pick.endpoint.0 as usize - 1] += 1);
    counts
}

#[test]
fn a_prefix_placed_by_one_worker_is_found_by_all_others() {
    let shared = LocalData::default();
    let mut workers: Vec<_> = (1..=4).map(|owner| worker(3, owner)).collect();
    let mut home = Vec::new();
    for round in 0..40_u64 {
        let (pool, draws) = &mut workers[round as usize % 4];
        let prefix = round / 4 % 2;
        let mut pick = pool
            .pick(&shared, &request(prefix, 30), draws, at(2 * round))
            .unwrap();
        let done = at(2 * round + 1);
        pool.on_done(&shared, &mut pick.ticket, Answered::default(), done);
        if round >= 8 {
            assert_eq!((pick.matched, pick.blocks), (30, 30));
            home.push((prefix, pick.endpoint));
        }
    }
    home.sort_unstable();
    home.dedup();
    assert_eq!(home.len(), 2, "each prefix must have one home: {home:?}");
    assert!(
        workers
            .iter()
            .all(|(pool, _)| pool.troubles() == Troubles::default())
    );
}

#[test]
fn a_burst_over_several_workers_spreads_although_all_endpoints_hold_the_prefix() {
    let shared = LocalData::default();
    let now = Timestamp(1000);
    publish(&shared, "llm", &idle(8, now));
    let mut workers: Vec<_> = (1..=8).map(|owner| worker(8, owner)).collect();
    let warm = request(1, 50);
    for endpoint in 1..=8 {
        workers[0].0.catch_up(&shared, now);
        let pick = Pick {
            endpoint: EndpointId(endpoint),
            ..some_pick()
        };
        let mut decision = Decision {
            pick,
            considered: Vec::new(),
            is_cold: false,
        };
        let pool = &mut workers[0].0;
        let known = pool.known(&warm);
        pool.place(&shared, &known, &mut decision);
    }
    let burst = |at: usize| {
        let (pool, draws) = &mut workers[at % 8];
        pool.pick(&shared, &warm, draws, now).unwrap()
    };
    let picks: Vec<Pick> = (0..64).map(burst).collect();
    let counts = spread(&picks, 8);
    assert!(
        counts.iter().all(|count| (5..=11).contains(count)),
        "{counts:?}"
    );
}

#[test]
fn a_burst_of_one_prompt_that_nobody_holds_spreads_too_and_is_computed_by_all() {
    let shared = LocalData::default();
    let now = Timestamp(1000);
    publish(&shared, "llm", &idle(8, now));
    let mut workers: Vec<_> = (1..=4).map(|owner| worker(8, owner)).collect();
    let picks: Vec<Pick> = (0..64)
        .map(|at| {
            let (pool, draws) = &mut workers[at % 4];
            pool.pick(&shared, &request(1, 34), draws, now).unwrap()
        })
        .collect();
    let counts = spread(&picks, 8);
    let in_bounds = counts.iter().all(|count| (5..=11).contains(count));
    assert!(in_bounds, "{counts:?}");
    let computed = picks.iter().filter(|pick| pick.matched == 0).count();
    assert_eq!(
        computed, 8,
        "waiting for another's blocks costs more than computing them"
    );
}

#[test]
fn equal_endpoints_share_requests_that_have_nothing_in_common() {
    let shared = LocalData::default();
    let (mut pool, mut draws) = worker(4, 9);
    publish(&shared, "llm", &idle(4, Timestamp(0)));
    let mut picks = Vec::new();
    for number in 0..4000 {
        let mut pick = pool
            .pick(&shared, &request(number, 2), &mut draws, at(2 * number))
            .unwrap();
        let done = at(2 * number + 1);
        pool.on_done(&shared, &mut pick.ticket, Answered::default(), done);
        // A scrape shows the idle endpoint again, so nothing but the draw decides.
        let mut snapshot = idle(4, done);
        for endpoint in &mut snapshot.endpoints {
            endpoint.sent_at_scrape = total(&mut pool, &shared, endpoint.id, done).sent;
        }
        publish(&shared, "llm", &snapshot);
        picks.push(pick);
    }
    let counts = spread(&picks, 4);
    assert!(
        counts.iter().all(|count| (900..=1100).contains(count)),
        "{counts:?}"
    );
}

#[test]
fn prompts_shorter_than_a_block_have_no_home() {
    let shared = LocalData::default();
    let (mut pool, mut draws) = worker(4, 9);
    let pick = pool
        .pick(&shared, &request(1, 0), &mut draws, Timestamp(0))
        .unwrap();
    assert_eq!((pick.matched, pick.blocks), (0, 0));
    assert_eq!(
        pool.replica.ring.next(),
        1,
        "nothing was told to the others"
    );
}

#[test]
fn what_ends_is_given_back_exactly() {
    let shared = LocalData::default();
    let (mut pool, mut draws) = worker(2, 5);
    let (mut other, _) = worker(2, 6);
    let mut pick = pool
        .pick(&shared, &request(1, 8), &mut draws, at(0))
        .unwrap();
    let total = |pool: &mut Pool, id| total(pool, &shared, id, at(9));
    let endpoint = pick.endpoint;
    let load = total(&mut other, endpoint);
    assert_eq!(
        load,
        Load {
            requests: 1,
            prefill_tokens: 512,
            sent: 1,
            sent_tokens: 512,
            ..Load::default()
        }
    );
    assert_eq!(pool.twins().pinned(endpoint), 8);
    pool.on_first_byte(&shared, &mut pick.ticket, at(1));
    assert_eq!(total(&mut other, endpoint).prefill_tokens, 0);
    let second = EndpointId(3 - endpoint.0);
    let address_of = |pool: &Pool, id| pool.snapshot().endpoint(id).unwrap().address;
    let (first, address) = (address_of(&pool, endpoint), address_of(&pool, second));
    let stranger = "9.9.9.9:9".parse().unwrap();
    let ticket = &mut pick.ticket;
    assert!(pool.on_served_by(&shared, ticket, first, at(2)));
    assert!(!pool.on_served_by(&shared, ticket, stranger, at(2)));
    assert_eq!(
        total(&mut other, endpoint).requests,
        1,
        "a stranger is not counted"
    );
    assert!(!pool.on_served_by(&shared, ticket, address, at(2)));
    let rest = Load {
        requests: 0,
        prefill_tokens: 0,
        ..load
    };
    assert_eq!(total(&mut other, endpoint), rest);
    assert_eq!(
        total(&mut other, second).requests,
        1,
        "it moved to the one that served"
    );
    for _ in 0..2 {
        pool.on_done(
            &shared,
            ticket,
            Answered {
                output_tokens: Some(200),
                ..Answered::default()
            },
            at(3),
        );
        assert_eq!(total(&mut other, second), Load::default());
        assert_eq!(pool.twins().pinned(endpoint), 0);
        assert_eq!(
            pool.twins().blocks(endpoint),
            8 + 3,
            "200 tokens fill three blocks"
        );
    }
}

/// Uses up what a worker may tell at once.
fn flood(pool: &mut Pool, now: Timestamp) {
    while pool.pace.allows(now) {}
}

#[test]
fn what_ends_in_a_flood_is_told_with_the_next_pick_or_tick() {
    let shared = LocalData::default();
    let (mut pool, mut draws) = worker(1, 5);
    let (mut other, _) = worker(1, 6);
    let (id, now) = (EndpointId(1), at(1));
    let mut seen = || {
        other.tick(&shared, now);
        let load = total(&mut other, &shared, id, now);
        (load.requests, other.twins().pinned(id))
    };
    let mut picked = |pool: &mut Pool, seed| {
        let pick = pool.pick(&shared, &request(seed, 8), &mut draws, now);
        pick.unwrap().ticket
    };
    let ends = |pool: &mut Pool, ticket: &mut Ticket| {
        pool.on_done(&shared, ticket, Answered::default(), now);
    };
    let mut first = picked(&mut pool, 1);
    assert_eq!(seen(), (1, 8));
    ends(&mut pool, &mut first);
    assert_eq!(seen(), (0, 0), "told at once");
    let mut second = picked(&mut pool, 2);
    flood(&mut pool, now);
    ends(&mut pool, &mut second);
    assert_eq!(seen(), (1, 8), "not told");
    let own = total(&mut pool, &shared, id, now);
    assert_eq!(own.requests, 0, "the worker itself knows at once");
    let before = shared.writes();
    let mut third = picked(&mut pool, 3);
    assert_eq!(shared.writes(), before + 2, "a row and one record");
    assert_eq!(seen(), (1, 8), "the third has come and the second gone");
    ends(&mut pool, &mut third);
    assert_eq!(seen(), (1, 8), "not told again");
    pool.tick(&shared, now);
    assert_eq!(seen(), (0, 0), "a tick tells");
}

#[test]
fn more_ends_than_fit_into_a_record_are_told_in_several() {
    let shared = LocalData::default();
    let (mut pool, mut draws) = worker(1, 5);
    let count = 2 * crate::ENTRIES_MAX as u64;
    let mut tickets: Vec<Ticket> = (0..count)
        .map(|seed| pool.pick(&shared, &request(seed, 1), &mut draws, at(0)))
        .map(|pick| pick.unwrap().ticket)
        .collect();
    assert_eq!(pool.twins().pinned(EndpointId(1)) as u64, count);
    flood(&mut pool, at(0));
    for ticket in &mut tickets {
        pool.on_done(&shared, ticket, Answered::default(), at(0));
    }
    pool.tick(&shared, at(0));
    assert_eq!(pool.twins().pinned(EndpointId(1)), 0);
    assert_eq!(pool.replica.ring.next(), 1 + count + 3);
}

#[test]
fn a_worker_that_stopped_is_not_counted_and_one_that_ticks_is() {
    let shared = LocalData::default();
    let (mut lost, mut draws) = worker(1, 5);
    let (mut alive, mut more) = worker(1, 6);
    lost.pick(&shared, &request(1, 1), &mut draws, Timestamp(0))
        .unwrap();
    alive
        .pick(&shared, &request(2, 1), &mut more, Timestamp(0))
        .unwrap();
    for millis in (0..5000).step_by(100) {
        alive.tick(&shared, Timestamp(millis * 1000));
    }
    let now = Timestamp(5_000_000);
    let load = total(&mut alive, &shared, EndpointId(1), now);
    assert_eq!((load.requests, alive.tally.live_owners(now)), (1, vec![6]));
}

#[test]
fn a_pool_without_endpoints_refuses() {
    let shared = LocalData::default();
    let (mut pool, mut draws) = worker(0, 5);
    let refused = pool.pick(&shared, &request(1, 1), &mut draws, Timestamp(0));
    assert_eq!(refused, Err(Refusal::NoEndpoint));
}

#[test]
fn a_new_incarnation_starts_cold() {
    let shared = LocalData::default();
    let (mut pool, mut draws) = worker(1, 5);
    pool.pick(&shared, &request(1, 9), &mut draws, at(0))
        .unwrap();
    assert_eq!(
        pool.pick(&shared, &request(1, 9), &mut draws, at(1))
            .unwrap()
            .matched,
        9
    );
    let mut restarted = Snapshot {
        next_id: 2,
        ..Snapshot::default()
    };
    restarted.add(addresses(1)[0]);
    publish(&shared, "llm", &restarted);
    let pick = pool
        .pick(&shared, &request(1, 9), &mut draws, at(2))
        .unwrap();
    assert_eq!((pick.endpoint, pick.matched), (EndpointId(2), 0));
}

#[test]
fn an_engine_without_prefix_caching_attracts_nobody() {
    let shared = LocalData::default();
    let (mut pool, mut draws) = worker(1, 5);
    let mut snapshot = idle(1, Timestamp(0));
    snapshot.endpoints[0].metrics.prefix_caching = Some(false);
    publish(&shared, "llm", &snapshot);
    for step in [0, 2] {
        let mut pick = pool
            .pick(&shared, &request(1, 9), &mut draws, at(step))
            .unwrap();
        let done = at(step + 1);
        pool.on_done(&shared, &mut pick.ticket, Answered::default(), done);
        assert_eq!(pick.matched, 0);
    }
}

#[test]
fn the_told_capacity_bounds_what_is_remembered() {
    let shared = LocalData::default();
    let (mut pool, mut draws) = worker(1, 5);
    let mut snapshot = idle(1, Timestamp(0));
    snapshot.endpoints[0].metrics.capacity_tokens = Some(6400);
    publish(&shared, "llm", &snapshot);
    let mut pick = pool
        .pick(&shared, &request(1, 200), &mut draws, Timestamp(0))
        .unwrap();
    pool.on_done(&shared, &mut pick.ticket, Answered::default(), at(1));
    assert_eq!(
        pool.twins().blocks(EndpointId(1)),
        95,
        "95 % of 100 blocks of 64 tokens"
    );
}

#[test]
fn a_failing_endpoint_gets_no_more_until_its_time_is_over() {
    let shared = LocalData::default();
    let mut workers = [worker(3, 1), worker(3, 2)];
    let second = |seconds: u64| Timestamp(seconds * 1_000_000);
    let mut served = |shared: &LocalData, at: usize, now: Timestamp| {
        let (pool, draws) = &mut workers[at % 2];
        let mut pick = pool.pick(shared, &Request::bodiless(), draws, now).unwrap();
        let failed = pick.endpoint == EndpointId(3);
        let verdict = if failed {
            Verdict::Failed
        } else {
            Verdict::Served
        };
        pool.on_verdict(shared, &pick.ticket, verdict, now);
        pool.on_done(shared, &mut pick.ticket, Answered::default(), now);
        failed
    };
    let early = (0..60).filter(|at| served(&shared, *at, second(1))).count();
    assert_eq!(early, 3, "all workers know after the third failure");
    let later = (0..60).filter(|at| served(&shared, *at, second(2))).count();
    assert_eq!(later, 1, "one probe, and the time is longer");
}

#[test]
fn the_only_endpoint_is_never_left_alone() {
    let shared = LocalData::default();
    let (mut pool, mut draws) = worker(1, 1);
    for _ in 0..20 {
        let pick = pool
            .pick(&shared, &Request::bodiless(), &mut draws, Timestamp(0))
            .unwrap();
        pool.on_verdict(&shared, &pick.ticket, Verdict::Failed, Timestamp(0));
    }
}

#[test]
fn an_adapter_goes_where_it_was_loaded_although_the_page_forgot_it() {
    let shared = LocalData::default();
    let (mut pool, mut draws) = worker(3, 1);
    let lora = |running: &[&str]| crate::Lora {
        running: running.iter().map(|name| String::from(*name)).collect(),
        max: Some(2),
        ..Default::default()
    };
    let mut snapshot = idle(3, Timestamp(0));
    for endpoint in &mut snapshot.endpoints {
        endpoint.metrics.lora = Some(lora(&[]));
    }
    snapshot.endpoints[1].metrics.lora = Some(lora(&["sql"]));
    publish(&shared, "llm", &snapshot);
    let request = Request {
        model: Some("sql".into()),
        ..Request::bodiless()
    };
    let mut sent_to = |snapshot: &Snapshot| {
        publish(&shared, "llm", snapshot);
        let mut pick = pool
            .pick(&shared, &request, &mut draws, Timestamp(0))
            .unwrap();
        pool.on_done(&shared, &mut pick.ticket, Answered::default(), Timestamp(0));
        pick.endpoint
    };
    assert_eq!(
        sent_to(&snapshot),
        EndpointId(2),
        "its page names the adapter"
    );
    snapshot.endpoints[1].metrics.lora = Some(lora(&[]));
    for _ in 0..10 {
        assert_eq!(
            sent_to(&snapshot),
            EndpointId(2),
            "it was sent there before"
        );
    }
}

/// Endpoints that serve adapters, of which none is named on a page that was read at `now`.
fn serving_adapters(count: u8, now: Timestamp) -> Snapshot {
    let mut snapshot = idle(count, now);
    for endpoint in &mut snapshot.endpoints {
        endpoint.metrics.lora = Some(crate::Lora {
            max: Some(4),
            ..Default::default()
        });
    }
    snapshot
}

#[test]
fn an_adapter_that_no_page_has_named_yet_is_loaded_once() {
    let shared = LocalData::default();
    let (mut pool, mut draws) = worker(4, 1);
    publish(&shared, "llm", &serving_adapters(4, Timestamp(0)));
    let mut sent_to = |model: &str| {
        let request = Request {
            model: Some(model.into()),
            ..Request::bodiless()
        };
        let mut pick = pool
            .pick(&shared, &request, &mut draws, Timestamp(0))
            .unwrap();
        pool.on_done(&shared, &mut pick.ticket, Answered::default(), Timestamp(0));
        pick.endpoint
    };
    for model in ["a", "b", "c", "d"] {
        let first = sent_to(model);
        assert!((0..10).all(|_| sent_to(model) == first), "{model}");
    }
}

#[test]
fn a_name_that_no_page_names_while_it_is_served_is_a_base_model() {
    let shared = LocalData::default();
    let (mut pool, mut draws) = worker(2, 1);
    let request = Request {
        model: Some("base".into()),
        ..Request::bodiless()
    };
    let millis = |millis: u64| Timestamp(1000 * millis);
    publish(&shared, "llm", &serving_adapters(2, millis(0)));
    let mut served = pool.pick(&shared, &request, &mut draws, millis(0)).unwrap();
    let mut needs = |at: u64, read_at: u64, named: &[&str]| {
        let mut snapshot = serving_adapters(2, millis(read_at));
        for endpoint in &mut snapshot.endpoints {
            let lora = endpoint.metrics.lora.as_mut().unwrap();
            lora.running = named.iter().map(|name| String::from(*name)).collect();
        }
        publish(&shared, "llm", &snapshot);
        pool.tick(&shared, millis(at));
        pool.adapters.needed_by(&request).is_some()
    };
    assert!((1..=31).all(|page| needs(100 * page, 100 * page, &[])));
    assert!(
        (32..=50).all(|tick| needs(100 * tick, 3100, &[])),
        "a page that is read once counts once"
    );
    assert!(!needs(5100, 5100, &[]), "the 32nd page");
    assert!(needs(5200, 5200, &["base"]), "what a page names is one");
    assert!((53..=100).all(|page| needs(100 * page, 100 * page, &[])));
    pool.on_done(
        &shared,
        &mut served.ticket,
        Answered::default(),
        millis(10_100),
    );
}

#[test]
fn a_worker_that_comes_late_or_fell_behind_knows_what_the_others_know() {
    let shared = LocalData::default();
    let (mut first, mut draws) = worker(3, 1);
    let (mut sleeper, _) = worker(3, 2);
    sleeper.catch_up(&shared, Timestamp(0));
    let mut flying = Vec::new();
    for number in 0..3000_u64 {
        let now = Timestamp(number * 10_000);
        let request = request(number % 70, 3 + number % 9);
        flying.push(
            first
                .pick(&shared, &request, &mut draws, now)
                .unwrap()
                .ticket,
        );
        if number % 3 > 0 {
            let mut ticket = flying.remove((number % 2) as usize * (flying.len() - 1));
            first.on_done(
                &shared,
                &mut ticket,
                Answered {
                    output_tokens: Some(70),
                    ..Answered::default()
                },
                now,
            );
        }
        if number % 10 == 0 {
            first.tick(&shared, now);
        }
    }
    assert!(
        first.replica.ring.next() > 3 * crate::RING_RECORDS,
        "the ring has gone round"
    );
    let (mut late, _) = worker(3, 3);
    for pool in [&mut first, &mut late, &mut sleeper] {
        pool.tick(&shared, Timestamp(30_000_000));
    }
    for pool in [&late, &sleeper] {
        assert!(!pool.troubles().cold);
        assert_eq!(pool.replica.ring.next(), first.replica.ring.next());
        for id in [1, 2, 3].map(EndpointId) {
            let numbers = |pool: &Pool| (pool.twins().blocks(id), pool.twins().pinned(id));
            assert_eq!(numbers(pool), numbers(&first), "{id:?}");
            for seed in 0..70 {
                let prompt = &request(seed, 12).prompts[0].blocks;
                assert_eq!(
                    pool.twins().held(id, prompt),
                    first.twins().held(id, prompt),
                    "{seed}"
                );
            }
        }
    }
}

#[test]
fn a_tier_beside_the_kv_cache_counts_unless_the_capacity_is_configured() {
    for (configured, blocks) in [(None, 95 + 50), (Some(6400), 95)] {
        let shared = LocalData::default();
        let (mut pool, mut draws) = worker(1, 5);
        pool.options.capacity_tokens = configured;
        let mut snapshot = idle(1, Timestamp(0));
        snapshot.endpoints[0].metrics.capacity_tokens = Some(6400);
        snapshot.endpoints[0].metrics.offload_tokens = Some(3200);
        publish(&shared, "llm", &snapshot);
        let picked = pool.pick(&shared, &request(1, 200), &mut draws, Timestamp(0));
        let mut ticket = picked.unwrap().ticket;
        pool.on_done(&shared, &mut ticket, Answered::default(), at(1));
        assert_eq!(pool.twins().blocks(EndpointId(1)), blocks, "{configured:?}");
    }
}

/// A server's block cache, as simple as can be: the block used longest ago first.
struct Cache {
    capacity: usize,
    blocks: Vec<BlockHash>,
}

impl Cache {
    /// How many leading blocks it holds; it holds all of them, tail first, afterwards.
    fn serve(&mut self, prompt: &[BlockHash]) -> usize {
        let cached = prompt
            .iter()
            .take_while(|block| self.blocks.contains(block))
            .count();
        self.blocks.retain(|block| !prompt.contains(block));
        self.blocks.extend(prompt.iter().rev());
        let over = self.blocks.len().saturating_sub(self.capacity);
        self.blocks.drain(..over);
        cached
    }
}

/// Blocks by which a twin with four times its engine's room is wrong, in 200 requests after 200
/// others, when answers tell what was cached and when they do not.
fn wrong_blocks(answers_tell: bool) -> usize {
    let shared = LocalData::default();
    let (mut pool, mut draws) = worker(1, 5);
    let (capacity, blocks) = (100, Vec::new());
    let mut engine = Cache { capacity, blocks };
    pool.options.capacity_tokens = Some(4 * 6400);
    pool.follow_view();
    let mut wrong = Vec::new();
    for step in 0..400 {
        let request = request(u64::from(draws.below(30)), 10);
        let picked = pool.pick(&shared, &request, &mut draws, at(2 * step));
        let mut pick = picked.unwrap();
        let cached = engine.serve(&request.prompts[0].blocks);
        wrong.push(pick.matched.abs_diff(cached));
        let cached_tokens = answers_tell.then_some(cached as u32 * 64);
        let answered = Answered {
            cached_tokens,
            ..Answered::default()
        };
        pool.on_done(&shared, &mut pick.ticket, answered, at(2 * step + 1));
    }
    wrong[200..].iter().sum()
}

#[test]
fn answers_bring_a_twin_that_is_too_large_down_to_its_engine() {
    let (told, untold) = (wrong_blocks(true), wrong_blocks(false));
    assert!(untold > 1000, "without answers it stays wrong: {untold}");
    assert!(told * 3 < untold, "{told} blocks instead of {untold}");
}

#[test]
fn a_load_report_counts_until_the_next_snapshot() {
    let shared = LocalData::default();
    let (mut pool, mut draws) = worker(2, 5);
    publish(&shared, "llm", &idle(2, at(0)));
    let picked = pool.pick(&shared, &request(1, 2), &mut draws, at(0));
    let ticket = picked.unwrap().ticket;
    let id = ticket.endpoint.unwrap();
    let report = |waiting| LoadReport {
        running: Some(7.0),
        waiting,
        kv_usage: Some(0.5),
    };
    let seen = |pool: &Pool| {
        let endpoint = pool.snapshot().endpoint(id).unwrap();
        let metrics = &endpoint.metrics;
        let numbers = (metrics.running, metrics.waiting, metrics.kv_usage);
        (numbers, endpoint.scraped_at, endpoint.sent_at_scrape)
    };
    pool.on_load_report(&ticket, report(None), at(1));
    let numbers = (None, Some(0.0), Some(0.5));
    assert_eq!(seen(&pool), (numbers, Some(at(0)), 0), "half a report");
    pool.on_load_report(&ticket, report(Some(3.0)), at(2));
    let numbers = (Some(7.0), Some(3.0), Some(0.5));
    assert_eq!(seen(&pool), (numbers, Some(at(2)), 1));
    publish(&shared, "llm", &idle(2, at(3)));
    pool.tick(&shared, at(3));
    let numbers = (None, Some(0.0), Some(0.0));
    assert_eq!(seen(&pool), (numbers, Some(at(3)), 0));
}

#[test]
fn who_serves_is_always_asked_where_a_good_answer_would_forgive() {
    let shared = LocalData::default();
    let (mut pool, mut draws) = worker(1, 5);
    let picked = pool.pick(&shared, &request(1, 2), &mut draws, at(0));
    let ticket = picked.unwrap().ticket;
    let asked = |pool: &mut Pool| {
        let asked = (0..800).filter(|_| pool.asks_who_serves(&ticket));
        asked.count()
    };
    assert!(asked(&mut pool) < 200, "the host obeys");
    pool.on_verdict(&shared, &ticket, Verdict::Failed, at(1));
    assert_eq!(asked(&mut pool), 800);
    for verdict in [Verdict::Begun, Verdict::Served] {
        pool.on_verdict(&shared, &ticket, verdict, at(2));
    }
    assert!(asked(&mut pool) < 200, "forgiven");
}

#[test]
fn an_endpoint_that_drains_gets_nothing_new_and_keeps_what_it_has() {
    let shared = LocalData::default();
    let (mut pool, mut draws) = worker(2, 1);
    let picked = pool.pick(&shared, &request(1, 9), &mut draws, at(0));
    let before = picked.unwrap().endpoint;
    let mut snapshot = idle(2, at(1));
    let drains = |snapshot: &mut Snapshot, is_drained: &dyn Fn(EndpointId) -> bool| {
        for it in &mut snapshot.endpoints {
            it.draining = is_drained(it.id);
        }
        publish(&shared, "llm", snapshot);
    };
    drains(&mut snapshot, &|id| id == before);
    for step in 1..20 {
        let pick = pool.pick(&shared, &request(1, 9), &mut draws, at(step));
        assert_ne!(
            pick.unwrap().endpoint,
            before,
            "it holds all, and may not be asked"
        );
    }
    assert_eq!(total(&mut pool, &shared, before, at(20)).requests, 1);
    assert!(pool.has_endpoints());
    drains(&mut snapshot, &|_| true);
    let refused = pool.pick(&shared, &request(1, 9), &mut draws, at(21));
    assert_eq!(refused.err(), Some(Refusal::NoEndpoint));
    assert!(!pool.has_endpoints());
    drains(&mut snapshot, &|_| false);
    let pick = pool.pick(&shared, &request(1, 9), &mut draws, at(22));
    assert_eq!(pick.unwrap().matched, 9, "what was learnt of it holds");
}

#[test]
fn discovered_labels_are_those_of_the_list_that_the_snapshot_names() {
    let shared = LocalData::default();
    let options = PoolOptions {
        name: "llm".into(),
        is_discovered: true,
        ..PoolOptions::default()
    };
    let mut pool = Pool::new(options, Snapshot::default(), 1);
    let mut snapshot = idle(1, at(0));
    let mut list = |number, value: &str, failure_mode, is_named: bool| {
        let endpoint = EndpointConfig {
            address: addresses(1)[0],
            labels: vec![("tier".into(), value.into())].into(),
            engine: Default::default(),
        };
        publish_list(&shared, "llm", number, (failure_mode, &[endpoint]));
        if is_named {
            snapshot.list = number;
        }
        publish(&shared, "llm", &snapshot);
        pool.refresh(&shared, at(0));
        let label = pool.labels_of(0).first().map(|(_, value)| value.clone());
        (label.unwrap_or_default(), pool.failure_mode())
    };
    let closed = Some(FailureMode::Closed);
    assert_eq!(list(1, "a", None, false), (String::new(), None));
    assert_eq!(list(1, "a", closed, true), ("a".into(), closed));
    assert_eq!(
        list(1, "b", None, false),
        ("a".into(), closed),
        "not named yet"
    );
    assert_eq!(list(2, "b", None, true), ("b".into(), None));
}
