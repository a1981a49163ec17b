//! The engine does, step by step, what the real scheduler did in the recorded traces.
//!
//! The hashes are of another kind here, so they are compared by what they stand for: one recorded
//! hash for each of ours, the same one throughout a trace.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by a panic, its helpers too"
)]

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::Value;
use sim::engine::{Config, Engine, Event, Policy, Request, RequestId, Step};

#[test]
fn every_recorded_trace_is_reproduced() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/sim-traces");
    let mut traces: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|it| it.unwrap())
        .collect();
    traces.sort_by_key(|entry| entry.file_name());
    assert_eq!(traces.len(), TRACES);
    for entry in traces {
        let trace: Value = serde_json::from_slice(&std::fs::read(entry.path()).unwrap()).unwrap();
        Replay::new(&trace).run(&trace);
    }
}

/// One trace being replayed.
struct Replay {
    name: String,
    engine: Engine,
    ids: HashMap<RequestId, String>,
    /// Our hash to the recorded one.
    hashes: HashMap<u64, String>,
}

impl Replay {
    fn new(trace: &Value) -> Self {
        let name = trace["name"].as_str().unwrap().to_owned();
        let engine = Engine::new(config(&trace["config"]));
        Self {
            name,
            engine,
            ids: HashMap::new(),
            hashes: HashMap::new(),
        }
    }

    fn run(&mut self, trace: &Value) {
        let mut arrivals: Vec<&Value> = trace["requests"].as_array().unwrap().iter().collect();
        arrivals.sort_by_key(|it| it["at_step"].as_u64());
        let mut arrivals = arrivals.into_iter().peekable();
        let recorded = trace["steps"].as_array().unwrap();
        let recorded: BTreeMap<u64, &Value> = recorded
            .iter()
            .map(|it| (it["step"].as_u64().unwrap(), it))
            .collect();
        for number in 0..=*recorded.last_key_value().unwrap().0 {
            while let Some(arrival) = arrivals.next_if(|it| it["at_step"].as_u64() <= Some(number))
            {
                let id = self.engine.add(request(arrival));
                self.ids
                    .insert(id, arrival["id"].as_str().unwrap().to_owned());
            }
            let step = self.engine.step().clone();
            if let Some(expected) = recorded.get(&number) {
                self.compare(number, &step, expected);
            }
        }
    }

    fn compare(&mut self, number: u64, step: &Step, expected: &Value) {
        let at = format!("{} step {number}", self.name);
        let name = |id: &RequestId| self.ids[id].clone();
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        let admitted = |resumed: bool| {
            let admitted = step.admitted.iter().filter(move |it| it.resumed == resumed);
            admitted.map(|it| (name(&it.id), it.cached_tokens))
        };
        assert_eq!(
            admitted(false).collect::<Vec<_>>(),
            pairs(&expected["new"]),
            "{at} new"
        );
        let resumed = sorted(admitted(true).map(|it| it.0).collect());
        assert_eq!(
            resumed,
            sorted(strings(&expected["resumed"])),
            "{at} resumed"
        );
        let preempted = sorted(step.preempted.iter().map(name).collect());
        assert_eq!(
            preempted,
            sorted(strings(&expected["preempted"])),
            "{at} preempted"
        );
        let tokens: BTreeMap<_, _> = step
            .scheduled
            .iter()
            .map(|it| (name(&it.0), it.1))
            .collect();
        assert_eq!(tokens, counts(&expected["tokens"]), "{at} tokens");
        let finished = step
            .sampled
            .iter()
            .filter(|it| it.finished)
            .map(|it| name(&it.id));
        assert_eq!(
            finished.collect::<Vec<_>>(),
            strings(&expected["finished"]),
            "{at} finished"
        );
        let counters = self.engine.counters();
        let counted = [
            ("total", step.work.tokens as u64),
            ("running", step.running as u64),
            ("waiting", step.waiting as u64),
            ("free", step.free_blocks as u64),
            ("free_after", self.engine.free_blocks() as u64),
            ("queries", counters.queries),
            ("hits", counters.hits),
        ];
        for (field, value) in counted {
            assert_eq!(Some(value), expected[field].as_u64(), "{at} {field}");
        }
        let usage = (self.engine.usage() * 1e6).round() / 1e6;
        assert_eq!(Some(usage), expected["usage"].as_f64(), "{at} usage");
        self.compare_events(&at, &step.events, expected["events"].as_array().unwrap());
    }

    fn compare_events(&mut self, at: &str, events: &[Event], expected: &[Value]) {
        assert_eq!(events.len(), expected.len(), "{at} events");
        for (event, expected) in events.iter().zip(expected) {
            let kind = expected[0].as_str().unwrap();
            let recorded = strings(&expected[1]);
            match event {
                Event::Removed(hash) => {
                    assert_eq!((kind, recorded.len()), ("removed", 1), "{at}");
                    self.compare_hash(at, *hash, &recorded[0]);
                }
                Event::Stored {
                    hashes,
                    parent,
                    tokens,
                } => {
                    assert_eq!((kind, recorded.len()), ("stored", hashes.len()), "{at}");
                    assert_eq!(
                        Some(*tokens as u64),
                        expected[3].as_u64(),
                        "{at} stored tokens"
                    );
                    assert_eq!(parent.is_some(), expected[2].is_string(), "{at} parent");
                    if let (Some(parent), Some(recorded)) = (parent, expected[2].as_str()) {
                        self.compare_hash(at, *parent, recorded);
                    }
                    for (hash, recorded) in hashes.iter().zip(&recorded) {
                        self.compare_hash(at, *hash, recorded);
                    }
                }
            }
        }
    }

    fn compare_hash(&mut self, at: &str, hash: u64, recorded: &str) {
        let known = self
            .hashes
            .entry(hash)
            .or_insert_with(|| recorded.to_owned());
        assert_eq!(known, recorded, "{at} hash");
    }
}

fn config(recorded: &Value) -> Config {
    let count = |field: &str| recorded[field].as_u64().unwrap() as usize;
    Config {
        num_blocks: count("num_blocks") as u32,
        block_size: count("block_size"),
        max_num_seqs: count("max_num_seqs"),
        max_num_batched_tokens: count("max_num_batched_tokens"),
        max_model_len: count("max_model_len"),
        policy: match recorded["policy"].as_str() {
            Some("priority") => Policy::Priority,
            _ => Policy::Fcfs,
        },
        reserve_full_prompt: recorded["scheduler_reserve_full_isl"].as_bool().unwrap(),
        watermark: recorded["watermark"].as_f64().unwrap(),
        long_prefill_token_threshold: count("long_prefill_token_threshold"),
        prefix_caching: recorded["enable_prefix_caching"].as_bool().unwrap(),
        record_events: true,
        ..Config::default()
    }
}

fn request(recorded: &Value) -> Request {
    let tokens = |field: &str| {
        let tokens = recorded[field].as_array().unwrap().iter();
        tokens
            .map(|it| it.as_u64().unwrap() as u32)
            .collect::<Vec<_>>()
    };
    let mut output = tokens("out");
    output.truncate(recorded["max_tokens"].as_u64().unwrap() as usize);
    // Any number will do, as long as every salt has its own.
    let salt = recorded["salt"].as_str().unwrap_or_default();
    Request {
        prompt: tokens("tokens"),
        output,
        root: salt
            .bytes()
            .fold(0, |root, byte| root * 257 + u64::from(byte) + 1),
        priority: recorded["priority"].as_i64().unwrap_or_default(),
        arrival: recorded["at_step"].as_u64().unwrap(),
        ..Request::default()
    }
}

fn strings(list: &Value) -> Vec<String> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter()
        .map(|it| it.as_str().unwrap().to_owned())
        .collect()
}

fn pairs(list: &Value) -> Vec<(String, usize)> {
    let pair = |it: &Value| {
        (
            it[0].as_str().unwrap().to_owned(),
            it[1].as_u64().unwrap() as usize,
        )
    };
    list.as_array().unwrap().iter().map(pair).collect()
}

fn counts(map: &Value) -> BTreeMap<String, usize> {
    let count = |it: (&String, &Value)| (it.0.clone(), it.1.as_u64().unwrap() as usize);
    map.as_object().unwrap().iter().map(count).collect()
}

/// How many traces there are: an empty folder must not pass.
const TRACES: usize = 17;
