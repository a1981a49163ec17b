//! Every recorded metrics page reads as the expectations beside it say.
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use picker_core::{
    EndpointMetrics, Engine, EngineKind, Lora, PageError, Reading, Reporter, Timestamp,
    detect_engine, read_page, read_page_of,
};
use serde_json::{Map, Value};

type Expected = Map<String, Value>;

#[test]
fn every_page_of_a_release_reads_as_expected() {
    let expected = document("expected.json");
    assert_pages_and_expectations_match("", &expected);
    for (file, expected) in &expected {
        let page = fs::read(fixtures().join(file)).unwrap();
        let expected = expected.as_object().unwrap();
        let engine = engine_of(file);
        assert_eq!(detect_engine(&page), Some(engine), "{file}");
        let reading = read_page(&page, engine, true, NOW);
        if expected.contains_key("reference_parser") {
            assert_eq!(reading, Err(PageError::NoKnownFamily), "{file}");
            continue;
        }
        assert_only_known_keys(file, expected, RELEASE_KEYS);
        let reading = reading.unwrap();
        let summed = file == "vllm-0.33.0-multiproc-api2.txt";
        let odd = summed.then_some("the times of the adapter lines are sums");
        assert_eq!(warnings(&reading), Vec::from_iter(odd), "{file}");
        let wanted = match engine {
            EngineKind::Vllm => vllm(file, &page, expected),
            EngineKind::Sglang => sglang(file, expected),
            EngineKind::TrtllmServe => trtllm_serve(expected),
            EngineKind::TritonTensorrtLlm | EngineKind::Triton => triton(expected),
            EngineKind::Tgi => tgi(expected),
        };
        assert_same(file, reading.metrics, wanted);
    }
}

#[test]
fn a_rank_of_a_page_reads_as_itself() {
    for (file, rank, running, waiting, kv_usage, queries) in [
        (
            "vllm-0.33.0-dp2.txt",
            "0",
            14.0,
            3.0,
            0.413_714,
            Some(1_843_266),
        ),
        (
            "vllm-0.33.0-dp2.txt",
            "1",
            9.0,
            0.0,
            0.120_381,
            Some(902_211),
        ),
        ("sglang-0.5.23-dp2.txt", "0", 17.0, 4.0, 0.28, None),
        ("sglang-0.5.23-dp2.txt", "1", 9.0, 0.0, 0.07, None),
        (
            "awkward/73-external-dp-rank3-only.txt",
            "3",
            14.0,
            3.0,
            0.41,
            None,
        ),
    ] {
        let page = fs::read(fixtures().join(file)).unwrap();
        let engine = Engine::BuiltIn(detect_engine(&page).unwrap());
        let read = |rank| read_page_of(&page, Reporter { engine, rank }, true, NOW);
        let metrics = read(Some(rank)).unwrap().metrics;
        assert_eq!(metrics.running, Some(running), "{file} {rank}");
        assert_eq!(metrics.waiting, Some(waiting), "{file} {rank}");
        let usage = metrics.kv_usage.unwrap();
        assert!((usage - kv_usage).abs() < 1e-6, "{file} {rank}: {usage}");
        assert_eq!(metrics.kv_usage_max, Some(usage), "{file} {rank}");
        assert_eq!(metrics.prefix_queries, queries, "{file} {rank}");
        assert_eq!(read(Some("7")), Err(PageError::OtherRanks), "{file}");
    }
}

#[test]
fn every_awkward_page_reads_as_expected() {
    let expected = document("awkward/expected.json");
    let expected = expected["files"].as_object().unwrap();
    assert_pages_and_expectations_match("awkward", expected);
    let odd: BTreeMap<&str, &[&str]> = AWKWARD_WARNINGS.iter().copied().collect();
    for (file, expected) in expected {
        let page = fs::read(fixtures().join("awkward").join(file)).unwrap();
        let expected = expected.as_object().unwrap();
        assert_only_known_keys(file, expected, AWKWARD_KEYS);
        let engine = expected
            .get("engine")
            .map_or("vllm", |it| it.as_str().unwrap());
        let complete = expected.get("complete") != Some(&Value::Bool(false));
        let now = expected.get("now").and_then(Value::as_f64);
        let now = now.map_or(NOW, |seconds| Timestamp((seconds * 1e6) as u64));
        let reading = read_page(&page, engine.parse().unwrap(), complete, now);
        let nothing = awkward(expected) == EndpointMetrics::default();
        assert_eq!(reading.is_err(), nothing, "{file}: {reading:?}");
        let reading = reading.unwrap_or_default();
        let odd = odd.get(file.as_str()).copied().unwrap_or_default();
        assert_eq!(warnings(&reading), odd, "{file}");
        assert_same(file, reading.metrics, awkward(expected));
    }
}

#[test]
fn a_page_that_says_nothing_is_unknown_to_every_engine() {
    let pages = [
        ("awkward/00-empty.txt", PageError::Empty),
        ("awkward/01-only-newlines.txt", PageError::Empty),
        ("awkward/37-help-only.txt", PageError::NoKnownFamily),
        ("awkward/50-html-error-page.txt", PageError::NoKnownFamily),
        ("awkward/51-json-page.txt", PageError::NoKnownFamily),
        (
            "awkward/55-underscore-prefix-names.txt",
            PageError::NoKnownFamily,
        ),
        ("awkward/74-ray-labels.txt", PageError::NoKnownFamily),
        ("trtllm-serve-metrics.json", PageError::NoKnownFamily),
    ];
    for (file, error) in pages {
        let page = fs::read(fixtures().join(file)).unwrap();
        for engine in EngineKind::ALL {
            assert_eq!(
                read_page(&page, engine, true, NOW),
                Err(error),
                "{file} as {engine}"
            );
        }
    }
}

#[test]
fn a_page_of_another_engine_is_unknown() {
    for file in document("expected.json").keys() {
        let page = fs::read(fixtures().join(file)).unwrap();
        let own = engine_of(file);
        // Triton's own families stand beside those of its backend.
        let is_beside = |it| own == EngineKind::TritonTensorrtLlm && it == EngineKind::Triton;
        let others = EngineKind::ALL.into_iter();
        for engine in others.filter(|it| *it != own && !is_beside(*it)) {
            let reading = read_page(&page, engine, true, NOW);
            assert_eq!(reading, Err(PageError::NoKnownFamily), "{file} as {engine}");
        }
    }
}

#[test]
fn counters_that_fell_are_a_restart() {
    let read = |file: &str| {
        let page = fs::read(fixtures().join("awkward").join(file)).unwrap();
        read_page(&page, EngineKind::Vllm, true, NOW)
            .unwrap()
            .metrics
    };
    let before = read("71-counter-reset-before.txt");
    let after = read("71-counter-reset-after.txt");
    assert!(after.restarted_since(&before));
    assert!(!before.restarted_since(&after));
    assert!(!after.restarted_since(&after));
}

#[test]
fn a_cut_page_says_the_truth_or_nothing() {
    for (seed, file) in all_pages().into_iter().enumerate() {
        // Pages that come back to a family after its end: what a cut hides of it cannot be known.
        if file.contains("28-duplicate") || file.contains("72-dp") {
            continue;
        }
        let page = fs::read(fixtures().join(&file)).unwrap();
        let engine = detect_engine(&page).unwrap_or_default();
        let mut random = Random(seed as u64 + 1);
        let whole = read_page(&page, engine, true, NOW)
            .unwrap_or_default()
            .metrics;
        for _ in 0..MUTATIONS {
            let cut = random.below(page.len() + 1);
            let part = read_page(&page[..cut], engine, false, NOW)
                .unwrap_or_default()
                .metrics;
            for (part, whole) in [
                (part.running, whole.running),
                (part.waiting, whole.waiting),
                (part.kv_usage_max, whole.kv_usage_max),
                (
                    part.prefix_queries.map(|it| it as f64),
                    whole.prefix_queries.map(|it| it as f64),
                ),
            ] {
                assert!(
                    part.is_none() || part == whole,
                    "{file} cut at {cut}, seed {seed}"
                );
            }
        }
    }
}

#[test]
fn no_damage_to_a_page_panics() {
    for (seed, file) in all_pages().into_iter().enumerate() {
        let page = fs::read(fixtures().join(&file)).unwrap();
        let mut random = Random(seed as u64 + 1);
        for _ in 0..MUTATIONS {
            let mut damaged = page.clone();
            for _ in 0..random.below(8) {
                random.damage(&mut damaged);
            }
            let complete = random.below(2) == 0;
            for engine in EngineKind::ALL {
                let reading = read_page(&damaged, engine, complete, NOW).unwrap_or_default();
                let usage = reading.metrics.kv_usage_max.unwrap_or_default();
                assert!((0.0..=1.0).contains(&usage), "{file}, seed {seed}");
            }
        }
    }
}

/// What the page of a vLLM server says, from the series of its engines.
fn vllm(file: &str, page: &[u8], expected: &Expected) -> EndpointMetrics {
    let total = &expected["total"];
    let engines = expected["engines"].as_object().unwrap();
    let configs = expected.get("cache_config").and_then(Value::as_array);
    let configs = configs.map_or(&[][..], Vec::as_slice);
    let of_first = |key| configs.first().and_then(|it| integer(it.get(key)?));
    let sum = |key| {
        let sum: Option<u64> = configs.iter().map(|it| integer(it.get(key)?)).sum();
        sum.filter(|_| !configs.is_empty())
    };
    let block_size = of_first("hash_block_size").or_else(|| of_first("block_size"));
    let num_blocks = sum("num_gpu_blocks");
    // The counters of 0.8 count blocks.
    let unit = if file.starts_with("vllm-0.8") {
        block_size.unwrap()
    } else {
        1
    };
    let counter = |key| {
        let sum: Option<f64> = engines.values().map(|it| it.get(key)?.as_f64()).sum();
        sum.map(|sum| sum as u64 * unit)
    };
    let usable = num_blocks.map(|blocks| blocks - configs.len() as u64);
    // The expectations leave it out; only pages of the first engine have a number.
    let has_cpu_blocks = ["v0.txt", "v0-real-kubeai.txt"]
        .iter()
        .any(|end| file.ends_with(end));
    let sleeps = String::from_utf8_lossy(page).contains("vllm:engine_sleep_state{");
    EndpointMetrics {
        running: total["running"].as_f64(),
        waiting: total["waiting"].as_f64(),
        kv_usage: total["kv_mean"].as_f64(),
        kv_usage_max: total["kv_max"].as_f64(),
        block_size: block_size.map(|it| it as u32),
        num_blocks,
        capacity_tokens: sum("kv_cache_size_tokens").or_else(|| Some(usable? * block_size?)),
        offload_tokens: has_cpu_blocks.then_some(2048 * 16),
        prefix_queries: counter("queries"),
        prefix_hits: counter("hits"),
        lora: expected.get("lora_newest").map(|it| Lora {
            running: list(&it["running_lora_adapters"]),
            waiting: list(&it["waiting_lora_adapters"]),
            max: integer(&it["max_lora"]).map(|it| it as u32),
        }),
        sleeping: sleeps.then_some(false),
        prefix_caching: configs
            .first()
            .map(|it| it["enable_prefix_caching"] == "True"),
        process_started: None,
        attributes: Vec::new(),
    }
}

/// What the page of an SGLang server says, with the copies of a rank taken out by hand.
fn sglang(file: &str, expected: &Expected) -> EndpointMetrics {
    let ranks = |key: &str| -> Vec<f64> {
        let series = expected[key].as_array().unwrap().iter();
        let first_rank = series.filter(|it| it.get("tp_rank").is_none_or(|rank| rank == "0"));
        first_rank.map(|it| it["value"].as_f64().unwrap()).collect()
    };
    let sum = |key| ranks(key).into_iter().reduce(|sum, it| sum + it);
    let usage = ranks("kv");
    let config = expected.get("cache_config_info").map(|it| &it[0]);
    let page_size = ranks("page_size").first().map(|it| *it as u64);
    let num_pages = sum("num_pages").map(|it| it as u64);
    // What the pages say and the expectations leave out.
    let hits = (file != "sglang-real-docs-0.4.txt").then_some(1_975_024);
    let capacity = match file {
        "sglang-0.4.6.txt" | "sglang-real-docs-0.4.txt" => None,
        "sglang-0.5.23-dp2.txt" => Some(2 * 442_350),
        _ => Some(442_350),
    };
    EndpointMetrics {
        running: sum("running"),
        waiting: sum("waiting"),
        kv_usage: Some(usage.iter().sum::<f64>() / usage.len() as f64),
        kv_usage_max: usage.into_iter().reduce(f64::max),
        block_size: page_size
            .or_else(|| integer(&config?["page_size"]))
            .map(|it| it as u32),
        num_blocks: num_pages.or_else(|| integer(&config?["num_pages"])),
        capacity_tokens: capacity,
        prefix_queries: Some(8_128_902),
        prefix_hits: hits,
        ..EndpointMetrics::default()
    }
}

fn trtllm_serve(expected: &Expected) -> EndpointMetrics {
    let value = |key: &str| expected[key][0].as_f64();
    let block_size = value("trtllm_kv_cache_tokens_per_block").unwrap();
    let blocks = value("trtllm_kv_cache_max_blocks").unwrap();
    EndpointMetrics {
        running: value("trtllm_num_requests_running"),
        waiting: value("trtllm_num_requests_waiting"),
        kv_usage: value("trtllm_kv_cache_utilization"),
        kv_usage_max: value("trtllm_kv_cache_utilization"),
        block_size: Some(block_size as u32),
        num_blocks: Some(blocks as u64),
        capacity_tokens: Some((blocks * block_size) as u64),
        // The page has 5,716 reused and 10,290 missed blocks, which the expectations leave out.
        prefix_queries: Some((5716 + 10290) * 32),
        prefix_hits: Some(5716 * 32),
        ..EndpointMetrics::default()
    }
}

fn triton(expected: &Expected) -> EndpointMetrics {
    let value = |key: &str| expected[key].as_f64();
    let block = |key: &str| expected[&format!("nv_trt_llm_kv_cache_block_metrics|{key}")].as_u64();
    let fraction = value("nv_trt_llm_kv_cache_block_metrics|fraction");
    EndpointMetrics {
        running: value("nv_trt_llm_request_metrics|scheduled"),
        waiting: value("nv_trt_llm_request_metrics|waiting"),
        kv_usage: fraction,
        kv_usage_max: fraction,
        block_size: block("tokens_per").map(|it| it as u32),
        num_blocks: block("max"),
        capacity_tokens: Some(block("max").unwrap() * block("tokens_per").unwrap()),
        ..EndpointMetrics::default()
    }
}

fn tgi(expected: &Expected) -> EndpointMetrics {
    let value = |key: &str| expected[key][0].as_f64();
    let capacity = value("tgi_batch_total_tokens").unwrap();
    let usage = value("tgi_batch_current_max_tokens").unwrap() / capacity;
    EndpointMetrics {
        running: value("tgi_batch_current_size"),
        waiting: value("tgi_queue_size"),
        kv_usage: Some(usage),
        kv_usage_max: Some(usage),
        capacity_tokens: Some(capacity as u64),
        ..EndpointMetrics::default()
    }
}

/// What an awkward page says: few fields, and no more than one KV gauge. Another prefix is nobody's
/// without an alias.
fn awkward(expected: &Expected) -> EndpointMetrics {
    if expected.contains_key("needs_alias") {
        return EndpointMetrics::default();
    }
    let number = |key: &str| expected.get(key).and_then(Value::as_f64);
    let integer = |key: &str| expected.get(key).and_then(Value::as_u64);
    let flag = |key: &str| expected.get(key).and_then(Value::as_bool);
    let by_engine = expected.get("num_gpu_blocks_by_engine").map(|it| {
        let engines = it.as_object().unwrap().values();
        let blocks: Vec<u64> = engines.map(|it| it.as_u64().unwrap()).collect();
        (blocks.iter().sum::<u64>(), blocks.len() as u64)
    });
    let blocks = by_engine.or_else(|| Some((integer("num_gpu_blocks")?, 1)));
    EndpointMetrics {
        running: number("running"),
        waiting: number("waiting"),
        kv_usage: number("kv"),
        kv_usage_max: number("kv"),
        block_size: integer("block_size").map(|it| it as u32),
        num_blocks: blocks.map(|(blocks, _)| blocks),
        capacity_tokens: blocks
            .map(|(blocks, engines)| (blocks - engines) * integer("block_size").unwrap()),
        offload_tokens: None,
        prefix_queries: integer("queries"),
        prefix_hits: integer("hits"),
        lora: expected.get("lora").map(|it| Lora {
            running: strings(&it["running"]),
            waiting: strings(&it["waiting"]),
            max: it["max"].as_u64().map(|it| it as u32),
        }),
        sleeping: flag("sleeping"),
        prefix_caching: flag("prefix_caching"),
        process_started: None,
        attributes: Vec::new(),
    }
}

/// Compares all but the process's start, and the mean only as far as the expectations write it out.
fn assert_same(file: &str, mut read: EndpointMetrics, wanted: EndpointMetrics) {
    if let (Some(found), Some(mean)) = (read.kv_usage, wanted.kv_usage) {
        assert!(
            (found - mean).abs() < 1e-6,
            "{file}: kv_usage {found}, not {mean}"
        );
        read.kv_usage = Some(mean);
    }
    read.process_started = None;
    assert_eq!(read, wanted, "{file}");
}

fn assert_pages_and_expectations_match(directory: &str, expected: &Expected) {
    let files: BTreeSet<String> = pages(directory)
        .iter()
        .map(|it| it.rsplit('/').next().unwrap().into())
        .collect();
    assert_eq!(files, expected.keys().cloned().collect());
}

fn assert_only_known_keys(file: &str, expected: &Expected, known: &[&str]) {
    for key in expected.keys() {
        let known = known
            .iter()
            .any(|it| key == it || it.ends_with('_') && key.starts_with(it));
        assert!(known, "{file}: nothing checks {key}");
    }
}

fn warnings(reading: &Reading) -> Vec<String> {
    reading.warnings.iter().map(ToString::to_string).collect()
}

fn all_pages() -> Vec<String> {
    pages("").into_iter().chain(pages("awkward")).collect()
}

/// The pages of a fixture directory. A page is a `.txt` file.
fn pages(directory: &str) -> Vec<String> {
    let mut pages: Vec<String> = fs::read_dir(fixtures().join(directory))
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .filter(|it| it.ends_with(".txt"))
        .map(|it| format!("{directory}/{it}").trim_start_matches('/').into())
        .collect();
    pages.sort();
    pages
}

fn document(file: &str) -> Expected {
    serde_json::from_slice(&fs::read(fixtures().join(file)).unwrap()).unwrap()
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/metrics")
}

fn engine_of(file: &str) -> EngineKind {
    match file.split('-').next().unwrap() {
        "trtllm" => EngineKind::TrtllmServe,
        "triton" => EngineKind::TritonTensorrtLlm,
        name => name.parse().unwrap(),
    }
}

fn integer(value: &Value) -> Option<u64> {
    value.as_str()?.parse().ok()
}

fn strings(value: &Value) -> Vec<String> {
    let values = value.as_array().unwrap();
    values
        .iter()
        .map(|it| it.as_str().unwrap().into())
        .collect()
}

fn list(value: &Value) -> Vec<String> {
    let mut names: Vec<String> = value.as_str().unwrap().split(',').map(Into::into).collect();
    names.sort();
    names
}

/// A generator of numbers, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    /// Overwrites, inserts, removes or repeats a byte or a run of bytes.
    fn damage(&mut self, page: &mut Vec<u8>) {
        let at = self.below(page.len() + 1);
        let byte = DAMAGE[self.below(DAMAGE.len())];
        match self.below(4) {
            0 => page.insert(at, byte),
            1 if at < page.len() => page[at] = byte,
            2 if at < page.len() => _ = page.remove(at),
            _ => {
                let end = (at + self.below(64)).min(page.len());
                let run = page[at..end].to_vec();
                let to = self.below(page.len() + 1);
                page.splice(to..to, run);
            }
        }
    }
}

/// Later than every time on the pages.
const NOW: Timestamp = Timestamp(1_796_000_000_000_000);

/// Tries per page: together some thousands, and still quick in a debug build.
const MUTATIONS: usize = 40;

/// Bytes that mean something in the format, or nothing at all.
const DAMAGE: &[u8] = b"\n\r\t {}\",=\\#.eE-+09\0\xff:_a";

/// What the expectations of releases know; `_` at the end stands for any rest.
///
/// The counts of families, samples and created series describe the page, and nobody reads the hit
/// rate of the last batch.
const RELEASE_KEYS: &[&str] = &[
    "total",
    "engines",
    "kv_name",
    "cache_config",
    "cache_config_info",
    "lora_newest",
    "created_series",
    "families",
    "samples",
    "running",
    "waiting",
    "kv",
    "page_size",
    "num_pages",
    "cache_hit_rate",
    "tgi_",
    "trtllm_",
    "nv_trt_llm_",
];

/// What the expectations of awkward pages know; nobody reads preemptions and the model's name.
const AWKWARD_KEYS: &[&str] = &[
    "running",
    "waiting",
    "kv",
    "queries",
    "hits",
    "preemptions",
    "block_size",
    "num_gpu_blocks",
    "num_gpu_blocks_by_engine",
    "prefix_caching",
    "lora",
    "sleeping",
    "model",
    "complete",
    "now",
    "engine",
    "needs_alias",
    "note",
    "python_reference_parser",
];

/// The awkward pages that are read with a warning.
const AWKWARD_WARNINGS: &[(&str, &[&str])] = &[
    (
        "02-nan.txt",
        &["kv_usage is not a number, infinite or negative"],
    ),
    (
        "03-posinf.txt",
        &["kv_usage is not a number, infinite or negative"],
    ),
    (
        "07-negative-kv.txt",
        &["kv_usage is not a number, infinite or negative"],
    ),
    ("09-kv-as-percent.txt", &["kv_usage 41 counts as 1"]),
    (
        "13-overflow-number.txt",
        &["waiting is not a number, infinite or negative"],
    ),
    (
        "14-hex-float.txt",
        &[
            "bad lines: 1",
            "waiting is not a number, infinite or negative",
        ],
    ),
    (
        "15-underscore-number.txt",
        &[
            "bad lines: 1",
            "running is not a number, infinite or negative",
        ],
    ),
    ("45-truncated-mid-line.txt", &["the page is cut off"]),
    ("47-truncated-mid-number.txt", &["the page is cut off"]),
    ("48-truncated-mid-quote.txt", &["the page is cut off"]),
    ("49-garbage-lines.txt", &["bad lines: 5"]),
    (
        "67-nul-bytes.txt",
        &[
            "bad lines: 1",
            "running is not a number, infinite or negative",
        ],
    ),
];
