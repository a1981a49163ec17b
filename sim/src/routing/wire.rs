//! Pods and requests as the picker sees them: addresses, pages, requests and times.

use std::fmt::Write;
use std::time::Duration;

use picker_core::{
    Address, Answer, BlockHash, PoolConfig, Prompt, Request, Role, Scraper, SharedData, Span,
    Timestamp, parse_config,
};
use serde_json::{Value, json};

use super::job::Job;
use super::policies::Seen;

/// The configuration of a pool of these pods with a `picker`, everything else as it is by default.
///
/// `None` for one that cannot be read.
pub(crate) fn config(listed: &[usize], picker: Option<&Value>) -> Option<PoolConfig> {
    let endpoints = listed.iter().map(|pod| json!({"address": address(*pod)}));
    let endpoints: Vec<Value> = endpoints.collect();
    let mut pool = json!({"name": POOL, "endpoints": endpoints});
    if let Some(picker) = picker {
        pool["picker"] = picker.clone();
    }
    let json = json!({"pools": [pool]}).to_string();
    let Ok(Role::Filter(config)) = parse_config(json.as_bytes()) else {
        return None;
    };
    let mut config = config.pools.into_iter().next()?;
    // When to scrape is the simulation's business.
    config.scrape.interval = Span::from_millis(1);
    Some(config)
}

/// Reads the pages of all pods, where they have one, and publishes nothing yet.
pub(crate) fn scrape(
    scraper: &mut Scraper,
    shared: &impl SharedData,
    page: impl Fn(usize) -> Option<String>,
    now: Duration,
) {
    let now = timestamp(now);
    while let Some(scrape) = scraper.poll_scrape(shared, now) {
        let page = pod_at(scrape.address).and_then(&page);
        let answer = match &page {
            Some(page) => Answer::Response {
                status: 200,
                body: page.as_bytes(),
            },
            None => Answer::Nothing,
        };
        scraper.handle_answer(scrape, answer, now);
    }
}

/// The request as the filter hands it to the pool.
pub(crate) fn request(job: &Job) -> Request {
    let prompt = Prompt {
        bytes: job.prompt.len() as u64 * BYTES_PER_TOKEN,
        blocks: job.blocks.clone(),
    };
    let group = match job.planned.conversation {
        Some(conversation) => Some(BlockHash(conversation)),
        None => job.blocks.iter().take(GROUP_BLOCKS).next_back().copied(),
    };
    Request {
        model: job.planned.adapter.map(adapter_name),
        stream: true,
        prompts: vec![prompt],
        group,
        ..Request::default()
    }
}

/// The page of a pod as vLLM writes it, as far as the picker reads it.
pub(crate) fn page(seen: &Seen) -> String {
    let (blocks, block_size) = seen.blocks;
    let mut page = format!(
        "vllm:num_requests_running {}\n\
         vllm:num_requests_waiting {}\n\
         vllm:kv_cache_usage_perc {}\n\
         vllm:prefix_cache_queries_total {}\n\
         vllm:prefix_cache_hits_total {}\n\
         vllm:cache_config_info{{block_size=\"{block_size}\",enable_prefix_caching=\"True\",\
         num_gpu_blocks=\"{blocks}\"}} 1\n\
         process_start_time_seconds {}\n",
        seen.gauges.running,
        seen.gauges.waiting,
        seen.gauges.kv_usage,
        seen.counters.queries,
        seen.counters.hits,
        timestamp(seen.started).0 as f64 / 1e6,
    );
    if seen.adapters_max > 0 {
        let adapters: Vec<String> = seen.adapters.iter().copied().map(adapter_name).collect();
        let at = timestamp(seen.scraped_at.unwrap_or_default()).0 as f64 / 1e6;
        let _ = writeln!(
            page,
            "vllm:lora_requests_info{{max_lora=\"{}\",running_lora_adapters=\"{}\",\
             waiting_lora_adapters=\"\"}} {at}",
            seen.adapters_max,
            adapters.join(","),
        );
    }
    page
}

fn adapter_name(adapter: u32) -> String {
    format!("adapter-{adapter}")
}

/// Where a pod listens.
fn address(pod: usize) -> String {
    format!("10.0.{}.{}:{PORT}", pod / 250, pod % 250 + 1)
}

/// The pod that listens there.
pub(crate) fn pod_at(address: Address) -> Option<usize> {
    let ip: std::net::Ipv4Addr = address.ip().parse().ok()?;
    let [_, _, high, low] = ip.octets();
    (usize::from(high) * 250 + usize::from(low)).checked_sub(1)
}

/// The time so long after the start.
pub(crate) fn timestamp(since_start: Duration) -> Timestamp {
    Timestamp(START_MICROS + since_start.as_micros() as u64)
}

/// The pool's name, as in the shipped configurations.
pub(crate) const POOL: &str = "llm";

/// Where model servers usually listen.
const PORT: u16 = 8000;

/// Blocks that say which requests belong together: 2,048 tokens.
const GROUP_BLOCKS: usize = 32;

/// Bytes of text that stand for a token here, as the picker assumes.
const BYTES_PER_TOKEN: u64 = 4;

/// Simulations begin at this time, in microseconds since the epoch: 2025-01-01.
const START_MICROS: u64 = 1_735_689_600_000_000;
