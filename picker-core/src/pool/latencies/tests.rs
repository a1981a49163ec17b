use super::*;
use crate::config::parse_picker;
use crate::draw::Draws;
use crate::pool::PoolOptions;
use crate::refusal::Refusal;
use crate::request::{Prompt, Request};
use crate::shared::LocalData;
use crate::snapshot::Snapshot;
use crate::{BLOCK_BYTES, BlockHash};
use alloc::string::ToString;
use alloc::vec;
use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// A worker of a pool of two endpoints, of which the first has half of its cache in use, four
/// requests that wait and three that run, the second a fifth, one and one.
struct Worker(Pool, Draws);

impl Worker {
    fn new(plugins: &Value, owner: u64) -> Self {
        let document = json!({"plugins": plugins}).to_string();
        let (plan, _) = parse_picker(document.as_bytes()).unwrap();
        let options = PoolOptions {
            name: "llm".into(),
            plan,
            staleness_threshold: Span::from_millis(1 << 40),
            emit_scores: true,
            ..PoolOptions::default()
        };
        let addresses = ["10.0.0.1:80", "10.0.0.2:80"].map(|it| it.parse().unwrap());
        let mut snapshot = Snapshot::unknown(addresses);
        let told = [(0.5, 4.0, 3.0), (0.2, 1.0, 1.0)];
        for (endpoint, (kv_usage, waiting, running)) in snapshot.endpoints.iter_mut().zip(told) {
            endpoint.scraped_at = Some(at(0));
            endpoint.metrics.kv_usage = Some(kv_usage);
            endpoint.metrics.waiting = Some(waiting);
            endpoint.metrics.running = Some(running);
        }
        Self(Pool::new(options, snapshot, owner), Draws::new(owner))
    }

    fn pick(&mut self, shared: &LocalData, request: &Request) -> Result<Pick, Refusal> {
        self.0.pick(shared, request, &mut self.1, at(0))
    }

    /// The totals of a request that is answered at once.
    fn scores(&mut self, request: &Request) -> Value {
        let shared = LocalData::default();
        let mut pick = self.pick(&shared, request).unwrap();
        let answered = Answered::default();
        self.0.on_done(&shared, &mut pick.ticket, answered, at(0));
        serde_json::from_str(&pick.scores).unwrap()
    }

    /// Teaches that endpoints took so many milliseconds to a first token, and a tenth to each other.
    fn teach(&mut self, times: [f64; 2]) {
        let predictor = &mut self.0.latencies.as_mut().unwrap().predictor;
        for _ in 0..200 {
            for (id, ms) in [1, 2].map(EndpointId).into_iter().zip(times) {
                predictor.learn_ttft(id, &Features::default(), ms);
                predictor.learn_tpot(id, &Features::default(), ms / 10.0);
            }
        }
    }

    fn predicted(&self, endpoint: u32) -> [Option<f64>; 2] {
        let predictor = &self.0.latencies.as_ref().unwrap().predictor;
        let (id, features) = (EndpointId(endpoint), Features::default());
        [predictor.ttft(id, &features), predictor.tpot(id, &features)]
    }
}

fn at(millis: u64) -> Timestamp {
    Timestamp(1_796_000_000_000_000).after(Span::from_millis(millis))
}

/// A request that asks for a first token within so many milliseconds; for nothing when 0.
fn asking(ttft_ms: u32) -> Request {
    let header = ("x-slo-ttft-ms".to_string(), ttft_ms.to_string());
    Request {
        headers: vec![header],
        ..Request::bodiless()
    }
}

const SCORER: &str = "latency-scorer";
const TIERS: &str = "slo-headroom-tier-filter";

fn answered(tokens: u32) -> Answered {
    Answered {
        output_tokens: Some(tokens),
        ..Answered::default()
    }
}

#[test]
fn requests_go_where_answers_were_soonest() {
    let shared = LocalData::default();
    let mut worker = Worker::new(
        &json!([
            {"type": SCORER, "parameters": {"compositeKVWeight": 0, "compositeQueueWeight": 0}},
        ]),
        1,
    );
    let mut chosen = Vec::new();
    for _ in 0..200 {
        let mut pick = worker.pick(&shared, &Request::bodiless()).unwrap();
        chosen.push(pick.endpoint.0);
        let took = if pick.endpoint.0 == 1 { 400 } else { 100 };
        let (ticket, now) = (&mut pick.ticket, at(took));
        worker.0.on_done(&shared, ticket, answered(10), now);
    }
    let (early, late) = chosen.split_at(30);
    assert!(early.contains(&1) && early.contains(&2), "{early:?}");
    assert!(late[20..].iter().all(|it| *it == 2), "{late:?}");
}

/// (0.5 + 0 + 0) / 3 and (0.8 + 0.75 + 0) / 3, in hundredths.
#[test]
fn while_nothing_is_predicted_measures_count() {
    let mut worker = Worker::new(&json!([{"type": SCORER}]), 1);
    let expected = json!({"10.0.0.1:80": 0.17, "10.0.0.2:80": 0.52});
    assert_eq!(worker.scores(&asking(200)), expected);
}

/// Of two endpoints one has the least headroom of its group and one the most.
#[test]
fn headrooms_follow_from_what_a_request_asks_for() {
    for (strategy, ttft_ms, first, second) in [
        ("least", 1000, 1.0, 0.01),
        ("most", 1000, 0.01, 1.0),
        ("least", 200, 0.0, 0.51),
        ("least", 50, 0.01, 1.0),
        ("most", 50, 0.01, 1.0),
        ("least", 0, 0.01, 1.0),
    ] {
        let parameters = json!({"headroomSelectionStrategy": strategy});
        let mut worker = Worker::new(&json!([{"type": SCORER, "parameters": parameters}]), 1);
        worker.teach([400.0, 100.0]);
        let expected = json!({"10.0.0.1:80": first, "10.0.0.2:80": second});
        let scores = worker.scores(&asking(ttft_ms));
        assert_eq!(scores, expected, "{strategy} of {ttft_ms}");
    }
}

#[test]
fn who_will_be_late_is_left_out_where_others_are_not() {
    let considered = |exploration: f64, ttft_ms: u32, is_taught: bool| {
        let plugins = json!([
            {"type": TIERS, "parameters": {"epsilonExploreNeg": exploration}},
            {"type": "queue-scorer"},
        ]);
        let mut worker = Worker::new(&plugins, 1);
        if is_taught {
            worker.teach([400.0, 100.0]);
        }
        let scores = worker.scores(&asking(ttft_ms));
        [1, 2].map(|host| scores.get(format!("10.0.0.{host}:80")).is_some())
    };
    assert_eq!(considered(0.0, 200, true), [false, true]);
    assert_eq!(considered(1.0, 200, true), [true, false]);
    assert_eq!(considered(0.0, 50, true), [true, true]);
    assert_eq!(considered(0.0, 0, true), [true, true]);
    assert_eq!(considered(0.0, 200, false), [true, true]);
}

/// The first endpoint holds the prompt and answers some 300 ms later than the other.
#[test]
fn a_prompt_stays_where_it_is_while_that_is_not_predicted_to_be_much_slower() {
    for (penalty, expected) in [(1000, 1), (100, 2)] {
        let parameters = json!({"ttftSource": "latencyPredictor", "maxTTFTPenaltyMs": penalty});
        let plugins = json!([
            {"type": "prefix-cache-affinity-filter", "parameters": parameters},
            {"type": SCORER},
        ]);
        let shared = LocalData::default();
        let mut worker = Worker::new(&plugins, 1);
        let request = Request {
            prompts: vec![Prompt {
                bytes: 10 * BLOCK_BYTES as u64,
                blocks: (1..=10).map(BlockHash).collect(),
            }],
            ..asking(1000)
        };
        // With least headroom the slower one is chosen first.
        worker.teach([400.0, 100.0]);
        let mut pick = worker.pick(&shared, &request).unwrap();
        assert_eq!(pick.endpoint.0, 1);
        worker
            .0
            .on_done(&shared, &mut pick.ticket, answered(9), at(0));
        let pick = worker
            .pick(
                &shared,
                &Request {
                    headers: vec![],
                    ..request
                },
            )
            .unwrap();
        assert_eq!(pick.endpoint.0, expected, "{penalty}");
    }
}

#[test]
fn a_request_of_low_priority_is_refused_what_nobody_can_give_it() {
    let plugins = json!([{"type": "latency-slo-admitter"}, {"type": "queue-scorer"}]);
    for (priority, ttft_ms, times, is_refused) in [
        (-1, 50, Some([400.0, 100.0]), true),
        (0, 50, Some([400.0, 100.0]), false),
        (-1, 200, Some([400.0, 100.0]), false),
        (-1, 0, Some([400.0, 100.0]), false),
        (-1, 50, None, false),
    ] {
        let shared = LocalData::default();
        let mut worker = Worker::new(&plugins, 1);
        if let Some(times) = times {
            worker.teach(times);
        }
        let request = Request {
            priority,
            ..asking(ttft_ms)
        };
        let picked = worker.pick(&shared, &request).map(|pick| pick.endpoint);
        let refused = picked == Err(Refusal::NotAdmitted);
        assert_eq!(refused, is_refused, "{priority}, {ttft_ms}, {times:?}");
    }
    assert_eq!(Refusal::NotAdmitted.status(), 429);
}

/// The first token after 50 ms, ten more within 100 ms; or all of it after 150 ms.
#[test]
fn streams_teach_both_times_and_whole_answers_one() {
    for (streaming, [ttft_ms, tpot_ms]) in [
        (true, [Some(50.0), Some(10.0)]),
        (false, [Some(150.0), None]),
    ] {
        let shared = LocalData::default();
        let parameters = json!({"streamingMode": streaming});
        let producer = json!({"type": "predicted-latency-producer", "parameters": parameters});
        let mut worker = Worker::new(&json!([producer, {"type": "queue-scorer"}]), 1);
        for tokens in [11, 0] {
            for _ in 0..64 {
                let mut pick = worker.pick(&shared, &Request::bodiless()).unwrap();
                if tokens > 0 {
                    worker.0.on_first_byte(&shared, &mut pick.ticket, at(50));
                    worker.0.on_first_byte(&shared, &mut pick.ticket, at(90));
                }
                let end = at(if tokens > 0 { 150 } else { 9000 });
                worker
                    .0
                    .on_done(&shared, &mut pick.ticket, answered(tokens), end);
            }
        }
        for (known, expected) in worker.predicted(2).into_iter().zip([ttft_ms, tpot_ms]) {
            let is_near = match (known, expected) {
                (Some(known), Some(expected)) => (known / expected - 1.0).abs() < 0.25,
                (known, expected) => known == expected,
            };
            assert!(is_near, "{known:?} is not {expected:?}, {streaming}");
        }
    }
}

#[test]
fn what_others_in_flight_ask_of_later_tokens_is_kept_to() {
    let shared = LocalData::default();
    let parameters = json!({"streamingMode": true});
    let producer = json!({"type": "predicted-latency-producer", "parameters": parameters});
    let mut worker = Worker::new(&json!([producer, {"type": "queue-scorer"}]), 1);
    let least = |worker: &Worker, id: EndpointId| {
        let latencies = worker.0.latencies.as_ref().unwrap();
        [id, EndpointId(3 - id.0)].map(|it| latencies.asked.least(it))
    };
    let mut sent = Vec::new();
    for tpot_ms in ["20", "5", "", "5"] {
        let header = ("x-slo-tpot-ms".to_string(), tpot_ms.to_string());
        let request = Request {
            headers: vec![header],
            ..Request::bodiless()
        };
        let mut pick = worker.pick(&shared, &request).unwrap();
        // All of them are counted for one endpoint, whoever was chosen.
        let lesson = pick.ticket.lesson.as_mut().unwrap();
        let asked = &mut worker.0.latencies.as_mut().unwrap().asked;
        asked.remove(lesson.answer.0, lesson.tpot_ms);
        lesson.answer.0 = EndpointId(1);
        asked.add(lesson.answer.0, lesson.tpot_ms);
        sent.push(pick);
    }
    let mut seen = Vec::new();
    for mut pick in sent.into_iter().rev() {
        seen.push(least(&worker, EndpointId(1)));
        worker
            .0
            .on_done(&shared, &mut pick.ticket, Answered::default(), at(1));
    }
    seen.push(least(&worker, EndpointId(1)));
    let five = [Some(5.0), None];
    assert_eq!(seen, [five, five, five, [Some(20.0), None], [None, None]]);
}

#[test]
fn workers_tell_one_another_what_they_have_learnt() {
    let shared = LocalData::default();
    let plugins = json!([{"type": SCORER}]);
    let [mut one, mut other] = [1, 2].map(|owner| Worker::new(&plugins, owner));
    for worker in [&mut one, &mut other] {
        worker.pick(&shared, &Request::bodiless()).unwrap();
    }
    one.teach([400.0, 100.0]);
    one.0.tick(&shared, at(10));
    other.0.tick(&shared, at(10));
    let [taught, heard] = [&one, &other].map(|it| it.predicted(1)[0].unwrap_or_default());
    assert!(
        taught > 300.0 && (heard / taught - 1.0).abs() < 0.1,
        "{heard} of {taught}"
    );
}

#[test]
fn a_plan_that_predicts_nothing_keeps_nothing() {
    let shared = LocalData::default();
    let mut worker = Worker::new(&json!([{"type": "queue-scorer"}]), 1);
    let pick = worker.pick(&shared, &asking(200)).unwrap();
    assert!(worker.0.latencies.is_none() && pick.ticket.lesson.is_none());
}

#[test]
fn what_is_asked_of_one_endpoint_is_not_asked_of_another() {
    let mut asked = Asked::default();
    asked.add(EndpointId(2), 7.0);
    asked.add(EndpointId(2), 0.0);
    let least = [1, 2, 3].map(|id| asked.least(EndpointId(id)));
    assert_eq!(least, [None, Some(7.0), None]);
}

/// Both take longer for a later token than is asked for, which only matters where tokens are made.
/// There the first has the least headroom for the first token and misses more by later ones:
/// 1 - (0.8·0 + 0.2·1), and a hundredth.
#[test]
fn later_tokens_do_not_count_where_only_prompts_are_computed() {
    for (label, first) in [("", 0.81), (PREFILL, 0.51)] {
        let parameters = json!({"streamingMode": true, "endpointRoleLabel": "role"});
        let producer = json!({"type": "predicted-latency-producer", "parameters": parameters});
        let mut worker = Worker::new(&json!([producer, {"type": SCORER}]), 1);
        let labels = vec![("role".to_string(), label.to_string())];
        worker.0.options.labels = vec![("10.0.0.1:80".parse().unwrap(), labels)];
        worker.0.follow_view();
        worker.teach([400.0, 100.0]);
        let mut request = asking(1000);
        let tpot = ("x-slo-tpot-ms".to_string(), "5".to_string());
        request.headers.push(tpot);
        let scores = worker.scores(&request);
        assert_eq!(scores["10.0.0.1:80"], first, "{label:?} in {scores}");
    }
}

#[test]
fn an_answer_of_another_endpoint_teaches_nothing() {
    let shared = LocalData::default();
    let mut worker = Worker::new(&json!([{"type": SCORER}]), 1);
    for _ in 0..100 {
        let mut pick = worker.pick(&shared, &Request::bodiless()).unwrap();
        let other = format!("10.0.0.{}:80", 3 - pick.endpoint.0);
        let (ticket, address) = (&mut pick.ticket, other.parse().unwrap());
        worker.0.on_served_by(&shared, ticket, address, at(1));
        worker.0.on_done(&shared, ticket, answered(10), at(100));
    }
    assert_eq!(worker.predicted(1), [None, None]);
}

/// A prompt of 640 tokens is sent twice to a pool of one endpoint that is known. Of ten blocks all
/// are held then, but an engine computes at least one of its own of 16 tokens.
#[test]
fn what_is_known_when_a_request_is_sent_is_what_its_answer_is_compared_with() {
    let shared = LocalData::default();
    let mut worker = Worker::new(&json!([{"type": SCORER}]), 1);
    let request = Request {
        prompts: vec![Prompt {
            bytes: 10 * BLOCK_BYTES as u64,
            blocks: (1..=10).map(BlockHash).collect(),
        }],
        ..Request::bodiless()
    };
    let mut known = Vec::new();
    for _ in 0..2 {
        let pick = worker.pick(&shared, &request).unwrap();
        known.push(pick.ticket.lesson.unwrap().answer);
    }
    let first = Features {
        input_tokens: 640.0,
        prefix_ratio: 0.0,
        waiting: 1.0,
        running: 0.0,
        kv_usage: 0.2,
        prefill_tokens: 0.0,
    };
    let second = Features {
        prefix_ratio: 624.0 / 640.0,
        running: 1.0,
        prefill_tokens: 640.0,
        ..first
    };
    assert_eq!(known, [(EndpointId(2), first), (EndpointId(2), second)]);
}
