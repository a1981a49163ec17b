//! Two workers of one pool at work on shared data that holds anything.

use picker_core::{
    Answered, BLOCK_BYTES, BlockHash, Draws, EndpointId, EndpointState, GpuUsage, LocalData, Lora,
    Plan, Pool, PoolOptions, Prompt, Request, ServedModel, SharedData, Snapshot, Span, Timestamp,
    Troubles, Verdict, publish,
};

/// The name of the pool, part of its keys.
pub(crate) const POOL: &str = "llm";

/// When the workers begin.
pub(crate) const NOW: Timestamp = Timestamp(1_796_000_000_000_000);

/// The pool's endpoints.
pub(crate) const ENDPOINTS: [EndpointId; 3] = [EndpointId(1), EndpointId(2), EndpointId(3)];

/// A worker that has not looked at shared data yet.
pub(crate) fn worker(owner: u64) -> Pool {
    let options = PoolOptions {
        name: POOL.into(),
        plan: Plan::default(),
        labels: Vec::new(),
        staleness_threshold: Span::from_millis(2000),
        capacity_tokens: None,
        ..PoolOptions::default()
    };
    Pool::new(options, snapshot(), owner)
}

/// Three endpoints: one nobody has seen, one with a small cache, one with adapters.
pub(crate) fn snapshot() -> Snapshot {
    let addresses = ["10.0.0.1:8000", "10.0.0.2:8000", "[::1]:8000"];
    let mut snapshot = Snapshot::unknown(addresses.iter().filter_map(|text| text.parse().ok()));
    for endpoint in snapshot.endpoints.iter_mut().skip(1) {
        endpoint.scraped_at = Some(NOW);
        endpoint.metrics.running = Some(1.0);
        endpoint.metrics.waiting = Some(0.0);
        endpoint.metrics.kv_usage = Some(0.25);
        endpoint.metrics.capacity_tokens = Some(1000);
    }
    if let Some(endpoint) = snapshot.endpoints.last_mut() {
        let EndpointState { metrics, .. } = endpoint;
        metrics.attributes = vec![("heat".into(), -4.5)];
        let (running, waiting) = (vec!["a".into()], Vec::new());
        let max = Some(2);
        metrics.lora = Some(Lora {
            running,
            waiting,
            max,
        });
        let (id, parent) = ("a".into(), Some("base".into()));
        endpoint.models = Some(vec![ServedModel { id, parent }]);
        let (usage, read_at) = (0.5, NOW);
        endpoint.gpus = Some(GpuUsage { usage, read_at });
    }
    snapshot
}

/// A request for an adapter, whose blocks are `length` links of the chain that starts with `seed`.
pub(crate) fn request(seed: u64, length: u64) -> Request {
    let blocks = chain(seed, length);
    let bytes = length * BLOCK_BYTES as u64;
    Request {
        model: Some("a".into()),
        prompts: vec![Prompt { bytes, blocks }],
        ..Request::bodiless()
    }
}

/// The first `length` blocks of the prompt `seed`.
pub(crate) fn chain(seed: u64, length: u64) -> Vec<BlockHash> {
    (0..length)
        .map(|depth| BlockHash(seed * 1_000_003 + depth))
        .collect()
}

/// Sends requests through two workers and lets them end. What they cannot do they may leave, but
/// each keeps its books, and those who have seen the same entries know the same.
pub(crate) fn work(shared: &LocalData) {
    let (mut one, mut other) = (worker(1), worker(2));
    one.tick(shared, NOW);
    other.tick(shared, NOW);
    let mut draws = Draws::new(7);
    let mut tickets = Vec::new();
    for number in 0..6 {
        let worker = if number % 2 == 0 {
            &mut one
        } else {
            &mut other
        };
        let request = request(number % 3, 4 + number);
        let now = NOW.after(Span::from_millis(number));
        if let Ok(pick) = worker.pick(shared, &request, &mut draws, now) {
            assert!(pick.matched <= pick.blocks, "{pick:?}");
            assert!(worker.snapshot().endpoint(pick.endpoint).is_some());
            tickets.push((number, pick.ticket));
        }
    }
    let answered = Answered {
        output_tokens: Some(300),
        prompt_tokens: Some(400),
        cached_tokens: Some(1),
    };
    for (number, mut ticket) in tickets {
        let worker = if number % 2 == 0 {
            &mut one
        } else {
            &mut other
        };
        let now = NOW.after(Span::from_millis(100 + number));
        worker.on_first_byte(shared, &mut ticket, now);
        let address = worker.snapshot().endpoints.first().map(|it| it.address);
        if let Some(address) = address.filter(|_| number == 3) {
            worker.on_served_by(shared, &mut ticket, address, now);
        }
        let verdict = if number == 4 {
            Verdict::Failed
        } else {
            Verdict::Served
        };
        worker.on_verdict(shared, &ticket, verdict, now);
        if number > 0 {
            worker.on_done(shared, &mut ticket, answered, now);
        }
    }
    let later = NOW.after(Span::from_millis(1000));
    one.tick(shared, later);
    other.tick(shared, later);
    keeps_its_books(&one);
    keeps_its_books(&other);
    // A worker that was overtaken begins with what it finds by then.
    if one.troubles() == Troubles::default() && other.troubles() == one.troubles() {
        know_the_same(&one, &other);
    }
}

/// What is in use is held.
pub(crate) fn keeps_its_books(worker: &Pool) {
    let twins = worker.twins();
    for endpoint in ids(worker) {
        assert!(
            twins.pinned(endpoint) <= twins.blocks(endpoint),
            "{endpoint:?}"
        );
        for seed in 0..3 {
            let held = twins.held(endpoint, &chain(seed, 10));
            assert!(
                held.pinned <= held.matched && held.matched <= 10,
                "{held:?}"
            );
            assert!(held.matched <= twins.blocks(endpoint), "{held:?}");
        }
    }
}

/// Both have the same twins.
pub(crate) fn know_the_same(one: &Pool, other: &Pool) {
    for endpoint in ids(one) {
        let known = |worker: &Pool| {
            let twins = worker.twins();
            let held = [0, 1, 2].map(|seed| twins.held(endpoint, &chain(seed, 10)));
            (
                twins.blocks(endpoint),
                twins.pinned(endpoint),
                twins.health(endpoint),
                held,
            )
        };
        assert_eq!(known(one), known(other), "{endpoint:?}");
    }
}

fn ids(worker: &Pool) -> impl Iterator<Item = EndpointId> {
    worker
        .snapshot()
        .endpoints
        .iter()
        .map(|endpoint| endpoint.id)
}

/// What two workers leave in shared data that was empty.
pub(crate) fn worked() -> LocalData {
    let shared = LocalData::default();
    publish(&shared, POOL, &snapshot());
    work(&shared);
    shared
}

/// The bytes under a key.
pub(crate) fn stored(shared: &LocalData, key: &str) -> Vec<u8> {
    let mut value = Vec::new();
    shared.get(key, &mut value);
    value
}
