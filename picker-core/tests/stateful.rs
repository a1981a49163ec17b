//! Plugins that remember: what one worker does, all others know.
#![cfg(test)]

use picker_core::{
    Answered, BLOCK_BYTES, BlockHash, Draws, EndpointId, Ledger, LocalData, Media, MediaKind, Pick,
    Pool, PoolOptions, Prompt, RING_RECORDS, Refusal, Request, SharedData, Snapshot, Span,
    Timestamp, ledger_key, parse_picker, publish,
};
use serde_json::{Value, json};

/// A worker of a pool of `endpoints` endpoints whose picker has `plugins`.
struct Worker(Pool, Draws);

impl Worker {
    fn new(plugins: &Value, endpoints: u8, owner: u64) -> Self {
        let document = json!({"plugins": plugins}).to_string();
        let (plan, _) = parse_picker(document.as_bytes()).unwrap();
        let options = PoolOptions {
            name: "llm".into(),
            plan,
            staleness_threshold: Span::from_millis(2000),
            ..PoolOptions::default()
        };
        let addresses = (1..=endpoints).map(|host| format!("10.0.0.{host}:80").parse().unwrap());
        let pool = Pool::new(options, Snapshot::unknown(addresses), owner);
        Self(pool, Draws::new(owner))
    }

    fn pick(&mut self, shared: &LocalData, request: &Request, millis: u64) -> Pick {
        let now = at(millis);
        self.0.pick(shared, request, &mut self.1, now).unwrap()
    }

    /// A request that is answered at once; the number of its endpoint.
    fn ask(&mut self, shared: &LocalData, request: &Request, millis: u64) -> u32 {
        let mut pick = self.pick(shared, request, millis);
        let answered = Answered::default();
        self.0
            .on_done(shared, &mut pick.ticket, answered, at(millis));
        pick.endpoint.0
    }
}

fn at(millis: u64) -> Timestamp {
    Timestamp(1_796_000_000_000_000).after(Span::from_millis(millis))
}

/// A request whose blocks are `length` links of the chain that starts with `seed`.
fn prompt(seed: u64, length: u64) -> Request {
    let blocks = (0..length).map(|depth| BlockHash(seed * 1_000_003 + depth));
    let prompts = vec![Prompt {
        bytes: length * BLOCK_BYTES as u64,
        blocks: blocks.collect(),
    }];
    Request {
        prompts,
        ..Request::bodiless()
    }
}

/// A request of pictures alone.
fn pictures(hashes: &[u64]) -> Request {
    let picture = |hash: &u64| Media {
        kind: MediaKind::Image,
        hash: *hash,
    };
    Request {
        media: hashes.iter().map(picture).collect(),
        ..Request::bodiless()
    }
}

/// Where a prompt of `length` blocks is sent twice: what is held of it then, and how much of it
/// counts.
fn matched_again(parameters: Value, capacity_tokens: Option<u64>, length: u64) -> (usize, usize) {
    let plugins = json!([
        {"type": "prefix-cache-scorer"},
        {"type": "approx-prefix-cache-producer", "parameters": parameters},
    ]);
    let shared = LocalData::default();
    let mut snapshot = Snapshot::unknown(["10.0.0.1:80".parse().unwrap()]);
    for endpoint in &mut snapshot.endpoints {
        endpoint.scraped_at = Some(at(0));
        endpoint.metrics.capacity_tokens = capacity_tokens;
    }
    publish(&shared, "llm", &snapshot);
    let mut worker = Worker::new(&plugins, 1, 1);
    worker.ask(&shared, &prompt(1, length), 0);
    let pick = worker.pick(&shared, &prompt(1, length), 1);
    (pick.matched, pick.blocks)
}

/// A hash block is 64 tokens until answers tell otherwise. An endpoint that says its capacity has
/// 95 % of it for prefixes.
#[test]
fn a_twin_is_as_large_as_the_endpoint_or_the_plugin_says() {
    let of_blocks = |tune: bool, blocks: u64| json!({"autoTune": tune, "lruCapacityPerServer": blocks, "blockSizeTokens": 16});
    for (parameters, told, expected) in [
        (json!({}), None, (100, 100)),
        (of_blocks(true, 40), None, (10, 100)),
        (of_blocks(true, 40), Some(64 * 40), (38, 100)),
        (of_blocks(false, 40), Some(64 * 40), (10, 100)),
        (
            json!({"maxPrefixTokensToMatch": 64 * 30 + 63}),
            None,
            (30, 30),
        ),
        (json!({"maxPrefixTokensToMatch": 10}), None, (0, 0)),
    ] {
        let found = matched_again(parameters.clone(), told, 100);
        assert_eq!(found, expected, "{parameters} beside {told:?}");
    }
}

/// A prompt of 640 tokens, none of them held: 640 until the first byte, and 960 of answer until the
/// end where those count. Then the prompt counts to the end too.
#[test]
fn answers_count_until_they_end_where_that_is_asked_for() {
    for (parameters, [sent, begun]) in [
        (json!({}), [640, 0]),
        (json!({"addEstimatedOutputTokens": true}), [1600, 1600]),
        (
            json!({"addEstimatedOutputTokens": true, "maxEstimatedOutputTokens": 10}),
            [650, 650],
        ),
    ] {
        let plugins = json!([
            {"type": "queue-scorer"},
            {"type": "inflight-load-producer", "parameters": parameters},
        ]);
        let shared = LocalData::default();
        let mut worker = Worker::new(&plugins, 2, 1);
        let mut pick = worker.pick(&shared, &prompt(1, 10), 0);
        let in_flight = || {
            let mut bytes = Vec::new();
            shared.get(&ledger_key("llm"), &mut bytes);
            let ledger = Ledger::decode(&bytes);
            [1, 2].map(|id| ledger.total(EndpointId(id), at(3)).tokens())
        };
        let mut expected = [0, 0];
        let place = |id: EndpointId| id.0 as usize - 1;
        expected[place(pick.endpoint)] = sent;
        assert_eq!(in_flight(), expected, "{parameters}");
        // Another endpoint answers.
        let other = EndpointId(3 - pick.endpoint.0);
        let address = worker.0.snapshot().endpoint(other).unwrap().address;
        worker
            .0
            .on_served_by(&shared, &mut pick.ticket, address, at(1));
        expected.reverse();
        assert_eq!(in_flight(), expected, "{parameters}");
        worker.0.on_first_byte(&shared, &mut pick.ticket, at(2));
        expected[place(other)] = begun;
        assert_eq!(in_flight(), expected, "{parameters}");
        let answered = Answered::default();
        worker.0.on_done(&shared, &mut pick.ticket, answered, at(3));
        assert_eq!(in_flight(), [0, 0], "{parameters}");
    }
}

/// Of three pictures, of which an endpoint holds two and another one, the first scores 2/3, the other
/// 1/3 and the last 0.
#[test]
fn media_go_where_most_of_them_are_on_all_workers() {
    let plugins = json!([{"type": "mm-embeddings-cache-scorer"}]);
    let shared = LocalData::default();
    let (mut one, mut other) = (Worker::new(&plugins, 3, 1), Worker::new(&plugins, 3, 2));
    let first = one.ask(&shared, &pictures(&[1, 2]), 0);
    // What nobody holds goes anywhere, so some of these go elsewhere.
    let mut elsewhere = (3..40).map(|hash| (hash, one.ask(&shared, &pictures(&[hash]), 1)));
    let (hash, second) = elsewhere.find(|(_, endpoint)| *endpoint != first).unwrap();
    for (asked, expected) in [
        (&[hash, 100, 101][..], second),
        (&[hash, hash, hash, 1, 2], first),
        (&[1, 2, hash], first),
    ] {
        let endpoint = other.ask(&shared, &pictures(asked), 2);
        assert_eq!(endpoint, expected, "{asked:?}");
    }
}

#[test]
fn an_endpoint_holds_as_many_media_as_the_plugin_says() {
    for (megabytes, held) in [(4, 2), (5, 2), (6, 3), (100, 4)] {
        let parameters = json!({"cacheSizeInMBPerServer": megabytes});
        let plugins = json!([
            {"type": "mm-embeddings-cache-scorer"},
            {"type": "mm-embeddings-cache-producer", "parameters": parameters},
        ]);
        let shared = LocalData::default();
        let mut worker = Worker::new(&plugins, 1, 1);
        for hash in 1..=4 {
            worker.ask(&shared, &pictures(&[hash]), hash);
        }
        let twins = worker.0.twins();
        let found = twins.media_held(EndpointId(1), &[1, 2, 3, 4]);
        assert_eq!(found, held, "{megabytes} MB");
        assert_eq!(twins.media_held(EndpointId(1), &[4]), 1, "the last one");
    }
    let plain = json!([{"type": "queue-scorer"}]);
    let shared = LocalData::default();
    let mut worker = Worker::new(&plain, 1, 1);
    worker.ask(&shared, &pictures(&[1]), 0);
    assert_eq!(worker.0.twins().media_held(EndpointId(1), &[1]), 0);
    let mut record = Vec::new();
    shared.get("picker/llm/ring/2", &mut record);
    assert_eq!(record, b"", "nothing is told but that it ended");
}

/// Queues of 1 in a pool that is full at 5: 300 / 5^5 of the requests are refused, about one in ten.
#[test]
fn a_request_that_matters_less_is_refused_now_and_then_when_the_pool_fills() {
    let plugins = json!([{"type": "probabilistic-admitter"}, {"type": "queue-scorer"}]);
    for (priority, waiting, expected) in [
        (0, 50.0, 0..=0),
        (-1, 0.0, 0..=0),
        (-1, 1.0, 60..=135),
        (-1, 2.0, 1000..=1000),
    ] {
        let shared = LocalData::default();
        let mut snapshot = Snapshot::unknown(["10.0.0.1:80".parse().unwrap()]);
        for endpoint in &mut snapshot.endpoints {
            endpoint.scraped_at = Some(at(0));
            endpoint.metrics.waiting = Some(waiting);
            // The requests of this test are none that have been sent since.
            endpoint.sent_at_scrape = 1_000_000;
        }
        publish(&shared, "llm", &snapshot);
        let mut worker = Worker::new(&plugins, 1, 1);
        let request = Request {
            priority,
            ..prompt(1, 4)
        };
        let refused = (0..1000).filter(|_| {
            let Worker(pool, draws) = &mut worker;
            match pool.pick(&shared, &request, draws, at(1)) {
                Ok(mut pick) => {
                    pool.on_done(&shared, &mut pick.ticket, Answered::default(), at(1));
                    false
                }
                Err(refusal) => refusal == Refusal::NotAdmitted,
            }
        });
        let refused = refused.count();
        assert!(
            expected.contains(&refused),
            "{priority} at {waiting}: {refused}"
        );
    }
}

#[test]
fn prompts_that_nobody_holds_go_round_over_all_workers() {
    let plugins = json!([{"type": "no-hit-lru-scorer"}]);
    let shared = LocalData::default();
    let mut workers: Vec<Worker> = (1..=3)
        .map(|owner| Worker::new(&plugins, 4, owner))
        .collect();
    let mut asked = Vec::new();
    for number in 0..12 {
        // Also prompts that are too short to have a block.
        let cold = prompt(100 + number, number % 3);
        let worker = &mut workers[number as usize % 3];
        asked.push(worker.ask(&shared, &cold, number));
    }
    assert_eq!(asked, [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4]);
    // What somebody holds goes anywhere, and does not change the order.
    for number in 0..10 {
        workers[0].ask(&shared, &prompt(101, 1), 20 + number);
    }
    assert_eq!(workers[1].ask(&shared, &prompt(200, 2), 40), 1);
    assert_eq!(workers[2].ask(&shared, &prompt(201, 2), 41), 2);
}

#[test]
fn a_worker_that_comes_late_knows_the_order() {
    let plugins = json!([{"type": "no-hit-lru-scorer"}]);
    let shared = LocalData::default();
    let mut first = Worker::new(&plugins, 4, 1);
    for number in 0..6 {
        first.ask(&shared, &prompt(100 + number, 2), 0);
    }
    // More than the ring keeps, of a prompt that somebody holds.
    for number in 0..=RING_RECORDS {
        first.ask(&shared, &prompt(100, 2), number);
        if number % 100 == 0 {
            first.0.tick(&shared, at(number * 100));
        }
    }
    let mut late = Worker::new(&plugins, 4, 2);
    late.0.tick(&shared, at(200_000));
    assert!(!late.0.troubles().cold);
    assert_eq!(late.ask(&shared, &prompt(300, 2), 200_001), 3);
    assert_eq!(first.ask(&shared, &prompt(301, 2), 200_002), 4);
}
