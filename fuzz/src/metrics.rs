//! Metrics pages: what is read can be true, crosses a snapshot whole, and does not depend on lines
//! of others.

use std::io;

use picker_core::{
    EndpointMetrics, Engine, EngineKind, EngineMapping, Mapped, MetricSpec, PageError, Reading,
    Reporter, Snapshot, Timestamp, detect_engine, read_page_of,
};

use crate::fixtures::files;
use crate::input::Input;

/// An engine, built in or as a user could describe it, one rank or all of them, and whether the page
/// was cut, in a byte, and the page.
pub fn check(input: &[u8]) {
    let mut input = Input(input);
    let choice = input.byte();
    let (engines, number) = (EngineKind::ALL.len() + 1, usize::from(choice >> 1));
    let rank = RANKS[number / engines % RANKS.len()];
    let number = number % engines;
    let mapping = mapping();
    let built_in = EngineKind::ALL.get(number).copied();
    let engine = built_in.map_or(Engine::Mapped(&mapping), Engine::BuiltIn);
    let (complete, page) = (choice & 1 == 0, input.0);
    let _ = detect_engine(page);
    let read = |page: &[u8]| read_page_of(page, Reporter { engine, rank }, complete, NOW);
    let reading = read(page);
    if let Ok(reading) = &reading {
        can_be_true(&reading.metrics);
        crosses_a_snapshot(&reading.metrics);
        assert!(reading.warnings.iter().all(|it| !it.to_string().is_empty()));
    }
    if complete {
        lines_of_others_change_nothing(page, &reading, read);
    }
}

/// Every recorded page for its own engine, without the histograms, which nobody reads.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let pages = files("metrics")?;
    let awkward = files("metrics/awkward")?;
    let seed = |(_, page): &(String, Vec<u8>)| {
        let engine = detect_engine(page).unwrap_or_default();
        let number = EngineKind::ALL.iter().position(|known| *known == engine);
        let mut seed = vec![(number.unwrap_or(0) as u8) << 1];
        let lines = page.split_inclusive(|byte| *byte == b'\n');
        let is_bucket = |line: &[u8]| line.windows(8).any(|name| name == b"_bucket{");
        lines
            .filter(|line| !is_bucket(line))
            .for_each(|line| seed.extend(line));
        seed
    };
    let mut seeds: Vec<Vec<u8>> = pages.iter().chain(&awkward).map(seed).collect();
    let mut mapped = vec![(EngineKind::ALL.len() as u8) << 1];
    mapped.extend(MAPPED_PAGE.as_bytes());
    seeds.push(mapped);
    for page in [MAPPED_PAGE, RANKED_PAGE] {
        for rank in 1..RANKS.len() {
            let mut ranked = vec![((rank * (EngineKind::ALL.len() + 1)) as u8) << 1];
            ranked.extend(page.as_bytes());
            seeds.push(ranked);
        }
    }
    Ok(seeds)
}

/// What a user could say of vLLM.
fn mapping() -> EngineMapping {
    let mut mapping = EngineMapping::new("vllm");
    let spec = |text: &str| text.parse::<MetricSpec>().ok();
    for (what, text) in [
        (Mapped::Waiting, "q{state=waiting}"),
        (Mapped::Running, "q{state=running}"),
        (Mapped::KvUsage, "vllm:kv_cache_usage_perc"),
        (Mapped::Lora, "vllm:lora_requests_info"),
    ] {
        spec(text)
            .into_iter()
            .for_each(|spec| mapping.read(what, spec));
    }
    for (name, text) in [("heat", "heat"), ("gold", "q{priority=gold}")] {
        let published = spec(text).map(|spec| mapping.publish(name, spec));
        assert_eq!(published, Some(Ok(())));
    }
    mapping
}

fn can_be_true(metrics: &EndpointMetrics) {
    let is_count = |gauge: Option<f64>| gauge.is_none_or(|it| it.is_finite() && it >= 0.0);
    assert!(is_count(metrics.running) && is_count(metrics.waiting));
    assert!(is_count(metrics.process_started));
    let is_fraction = |gauge: Option<f64>| gauge.is_none_or(|it| (0.0..=1.0).contains(&it));
    assert!(is_fraction(metrics.kv_usage) && is_fraction(metrics.kv_usage_max));
    let mean = metrics.kv_usage.zip(metrics.kv_usage_max);
    // The mean of equal numbers may be off by their rounding.
    assert!(
        mean.is_none_or(|(mean, max)| mean <= max + 1e-9),
        "{mean:?}"
    );
    assert!(metrics.attributes.iter().all(|(_, it)| it.is_finite()));
    assert!(metrics.attributes.is_sorted_by(|one, next| one.0 < next.0));
    for names in metrics
        .lora
        .iter()
        .flat_map(|it| [&it.running, &it.waiting])
    {
        assert!(names.is_sorted() && names.iter().all(|name| !name.is_empty()));
    }
}

/// What a page says reaches every worker as it was read.
fn crosses_a_snapshot(metrics: &EndpointMetrics) {
    let mut snapshot = Snapshot::unknown("10.0.0.1:8000".parse());
    for endpoint in &mut snapshot.endpoints {
        endpoint.metrics = metrics.clone();
    }
    let mut bytes = Vec::new();
    snapshot.encode(&mut bytes);
    assert_eq!(Snapshot::decode(&bytes), Some(snapshot));
}

fn lines_of_others_change_nothing(
    page: &[u8],
    reading: &Result<Reading, PageError>,
    read: impl Fn(&[u8]) -> Result<Reading, PageError>,
) {
    for others in [
        "\n",
        "\n# HELP x y\n# TYPE x gauge\n",
        "\nother_family{engine=\"0\"} 1\n",
        "\n# EOF\nvllm:num_requests_running 7\nsglang:num_running_reqs 7\n",
    ] {
        let longer = read(&[page, others.as_bytes()].concat());
        match (reading, longer) {
            // A page of nothing else is not empty any more.
            (Err(PageError::Empty), longer) => assert!(longer.is_err()),
            (reading, longer) => assert_eq!(&longer, reading, "{others:?} behind it"),
        }
    }
}

const MAPPED_PAGE: &str = "q{state=\"waiting\",engine=\"0\"} 3\nq{state=\"waiting\",engine=\"1\"} 4
q{state=\"running\",priority=\"gold\"} 2\nheat -4\nvllm:kv_cache_usage_perc 0.5
vllm:prefix_cache_queries_total 10\nvllm:num_requests_waiting 9
vllm:lora_requests_info{running_lora_adapters=\"a\",max_lora=\"4\"} 5\n";

const RANKED_PAGE: &str = "vllm:num_requests_waiting{engine=\"0\"} 3
vllm:num_requests_waiting{engine=\"1\"} 4\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.5\n";

/// All ranks of a page, or one of them.
const RANKS: [Option<&str>; 3] = [None, Some("0"), Some("7")];

/// When the recorded pages were read.
const NOW: Timestamp = Timestamp(1_796_000_000_000_000);
