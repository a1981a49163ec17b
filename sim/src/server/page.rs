//! The metrics page, with the family names, labels and number formats of vLLM 0.33.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use super::options::ServerOptions;
use super::stats::{Histogram, Stats};

/// The whole page.
pub(super) fn metrics_page(options: &ServerOptions, stats: &Stats) -> String {
    let mut page = Page {
        text: String::new(),
        model: escape(&options.model),
        stats,
    };
    page.process();
    page.gauges();
    page.counters();
    page.histograms();
    if !options.adapters.is_empty() || options.max_loras.is_some() {
        page.adapters(options);
    }
    page.cache_config(options);
    page.text
}

struct Page<'a> {
    text: String,
    /// The served model, ready to stand between quotes.
    model: String,
    stats: &'a Stats,
}

impl Page<'_> {
    fn process(&mut self) {
        let name = "process_start_time_seconds";
        self.head(
            name,
            "gauge",
            "When the process started, in seconds since 1970.",
        );
        let started = seconds(self.stats.started);
        self.line(name, "", started);
    }

    fn gauges(&mut self) {
        let (running, waiting) = (self.stats.running as f64, self.stats.waiting as f64);
        self.gauge("num_requests_running", "Requests that run.", running);
        self.gauge("num_requests_waiting", "Requests that wait.", waiting);
        let name = "vllm:num_requests_waiting_by_reason";
        self.head(name, "gauge", "Requests that wait, by reason.");
        for (reason, value) in [("capacity", waiting), ("deferred", 0.0)] {
            let labels = format!("{},reason=\"{reason}\"", self.labels());
            self.line(name, &labels, value);
        }
        let name = "vllm:engine_sleep_state";
        self.head(name, "gauge", "Which sleep state the engine is in.");
        for (state, value) in [
            ("awake", 1.0),
            ("weights_offloaded", 0.0),
            ("discard_all", 0.0),
        ] {
            let labels = format!("{},sleep_state=\"{state}\"", self.labels());
            self.line(name, &labels, value);
        }
        let usage = self.stats.kv_usage;
        self.gauge("kv_cache_usage_perc", "Share of KV blocks in use.", usage);
    }

    fn counters(&mut self) {
        let stats = self.stats;
        let engine = stats.engine;
        self.counter(
            "prefix_cache_queries",
            "Tokens looked up in the cache.",
            engine.queries,
        );
        self.counter(
            "prefix_cache_hits",
            "Tokens found in the cache.",
            engine.hits,
        );
        self.counter(
            "num_preemptions",
            "Requests that lost their place.",
            engine.preemptions,
        );
        self.counter(
            "prompt_tokens",
            "Prompt tokens processed.",
            stats.prompt_tokens,
        );
        self.counter(
            "prompt_tokens_cached",
            "Prompt tokens from the cache.",
            stats.cached_tokens,
        );
        self.counter(
            "generation_tokens",
            "Tokens generated.",
            stats.generation_tokens,
        );
        let reasons = [
            ("stop", 0),
            ("length", stats.finished),
            ("abort", stats.aborted),
            ("error", 0),
            ("repetition", 0),
        ];
        let created = seconds(stats.started);
        let help = "Requests finished, by reason.";
        self.head("vllm:request_success_total", "counter", help);
        for (reason, value) in reasons {
            let labels = self.reason_labels(reason);
            self.line("vllm:request_success_total", &labels, value as f64);
        }
        self.head("vllm:request_success_created", "gauge", help);
        for (reason, _) in reasons {
            let labels = self.reason_labels(reason);
            self.line("vllm:request_success_created", &labels, created);
        }
    }

    fn histograms(&mut self) {
        let stats = self.stats;
        let families: [(&str, &str, &Histogram); 5] = [
            (
                "iteration_tokens_total",
                "Tokens per step.",
                &stats.step_tokens,
            ),
            (
                "time_to_first_token_seconds",
                "Arrival to first token.",
                &stats.first_token,
            ),
            (
                "inter_token_latency_seconds",
                "Token to token.",
                &stats.inter_token,
            ),
            (
                "e2e_request_latency_seconds",
                "Arrival to last token.",
                &stats.end_to_end,
            ),
            (
                "request_queue_time_seconds",
                "Arrival to first admission.",
                &stats.queue,
            ),
        ];
        for (name, help, histogram) in families {
            self.histogram(&format!("vllm:{name}"), help, histogram);
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let bounds = histogram.bounds.iter().map(|&bound| number(bound));
        let bounds = bounds.chain(["+Inf".to_owned()]);
        let mut count = 0;
        for (bound, upto) in bounds.zip(histogram.cumulative()) {
            let labels = format!("engine=\"0\",le=\"{bound}\",model_name=\"{}\"", self.model);
            self.line(&format!("{name}_bucket"), &labels, upto as f64);
            count = upto;
        }
        let labels = self.labels();
        self.line(&format!("{name}_count"), &labels, count as f64);
        self.line(&format!("{name}_sum"), &labels, histogram.sum);
        self.head(&format!("{name}_created"), "gauge", help);
        self.line(
            &format!("{name}_created"),
            &labels,
            seconds(self.stats.started),
        );
    }

    /// One series per combination of adapters; a server of this kind has only the newest.
    fn adapters(&mut self, options: &ServerOptions) {
        let name = "vllm:lora_requests_info";
        self.head(
            name,
            "gauge",
            "Adapters with requests, and when that was so.",
        );
        let adapters = &self.stats.adapters;
        let slots = match options.engine().max_adapters {
            0 => options.adapters.len(),
            slots => slots,
        };
        let labels = format!(
            "max_lora=\"{slots}\",running_lora_adapters=\"{}\",waiting_lora_adapters=\"{}\"",
            escape(&adapters.running.join(",")),
            escape(&adapters.waiting.join(","))
        );
        self.line(name, &labels, seconds(adapters.at));
    }

    fn cache_config(&mut self, options: &ServerOptions) {
        let name = "vllm:cache_config_info";
        self.head(name, "gauge", "How the cache is set up.");
        let engine = options.engine();
        let blocks = options.blocks_reported();
        let size_tokens = blocks as usize * engine.block_size;
        let concurrency = number(size_tokens as f64 / engine.max_model_len as f64);
        let caching = if engine.prefix_caching {
            "True"
        } else {
            "False"
        };
        let block_size = engine.block_size;
        let labels = format!(
            "block_size=\"{block_size}\",cache_dtype=\"auto\",\
             cache_hit_alignment_tokens=\"{block_size}\",\
             effective_attention_block_size=\"{block_size}\",\
             enable_prefix_caching=\"{caching}\",engine=\"0\",gpu_memory_utilization=\"0.92\",\
             hash_block_size=\"{block_size}\",kv_cache_max_concurrency=\"{concurrency}\",\
             kv_cache_memory_bytes=\"None\",kv_cache_size_tokens=\"{size_tokens}\",\
             num_cpu_blocks=\"None\",num_gpu_blocks=\"{blocks}\",\
             num_gpu_blocks_override=\"None\",prefix_caching_hash_algo=\"sha256\",\
             sliding_window=\"None\""
        );
        self.line(name, &labels, 1.0);
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        let name = format!("vllm:{name}");
        self.head(&name, "gauge", help);
        let labels = self.labels();
        self.line(&name, &labels, value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        let labels = self.labels();
        self.head(&format!("vllm:{name}_total"), "counter", help);
        self.line(&format!("vllm:{name}_total"), &labels, value as f64);
        self.head(&format!("vllm:{name}_created"), "gauge", help);
        self.line(
            &format!("vllm:{name}_created"),
            &labels,
            seconds(self.stats.started),
        );
    }

    fn labels(&self) -> String {
        format!("engine=\"0\",model_name=\"{}\"", self.model)
    }

    fn reason_labels(&self, reason: &str) -> String {
        format!(
            "engine=\"0\",finished_reason=\"{reason}\",model_name=\"{}\"",
            self.model
        )
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.text
            .push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn line(&mut self, name: &str, labels: &str, value: f64) {
        self.text.push_str(name);
        if !labels.is_empty() {
            self.text.push_str(&format!("{{{labels}}}"));
        }
        self.text.push_str(&format!(" {}\n", number(value)));
    }
}

/// A number as Python's Prometheus client prints it: `14.0`, `1.5e+09`, `5e-05`.
fn number(value: f64) -> String {
    let plain = format!("{value:?}");
    if value > 0.0 && value < PYTHON_PLAIN_MIN {
        let scientific = format!("{value:e}");
        let Some((mantissa, exponent)) = scientific.split_once("e-") else {
            return plain;
        };
        return format!("{mantissa}e-{exponent:0>2}");
    }
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    if value <= 0.0 || whole.len() <= CLIENT_PLAIN_DIGITS || plain.contains('e') {
        return plain;
    }
    let (first, rest) = whole.split_at(1);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write!(text, "{first}.{rest}{fraction}");
    let mantissa = text.trim_end_matches('0').trim_end_matches('.');
    format!("{mantissa}e+{:02}", whole.len() - 1)
}

/// Seconds since 1970.
fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

/// A label value, ready to stand between quotes.
fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Python prints smaller numbers with an exponent.
const PYTHON_PLAIN_MIN: f64 = 1e-4;

/// The client library prints numbers with more digits before the point with an exponent.
const CLIENT_PLAIN_DIGITS: usize = 6;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    fn idle() -> (ServerOptions, Stats) {
        let started = UNIX_EPOCH + Duration::from_millis(1_795_986_110_030);
        (ServerOptions::default(), Stats::new(started))
    }

    #[test]
    fn numbers_are_printed_as_the_client_library_prints_them() {
        for (value, expected) in [
            (0.0, "0.0"),
            (14.0, "14.0"),
            (0.25, "0.25"),
            (123_456.0, "123456.0"),
            (1_234_567.0, "1.234567e+06"),
            (1_000_000.0, "1e+06"),
            (1_795_986_110.03, "1.79598611003e+09"),
            (0.00005, "5e-05"),
            (3.845_703_125, "3.845703125"),
        ] {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn every_series_is_one_of_the_real_page() {
        let real = include_str!("../../../tests/fixtures/metrics/vllm-0.33.0-idle.txt");
        let series = |page: &str| -> BTreeSet<String> {
            let lines = page.lines().filter(|it| !it.starts_with('#'));
            let lines = lines.filter(|it| !it.starts_with("vllm:cache_config_info"));
            lines
                .map(|it| it.rsplit_once(' ').unwrap().0.to_owned())
                .collect()
        };
        let (options, stats) = idle();
        let options = ServerOptions {
            model: "Qwen/Qwen3-0.6B".to_owned(),
            ..options
        };
        let unreal: Vec<_> = series(&metrics_page(&options, &stats))
            .difference(&series(real))
            .cloned()
            .collect();
        assert_eq!(unreal, [""; 0]);
    }

    #[test]
    fn the_cache_line_tells_what_the_server_reports_not_what_it_uses() {
        let (options, stats) = idle();
        let page = metrics_page(&options, &stats);
        let line = page
            .lines()
            .find(|it| it.starts_with("vllm:cache_config_info"))
            .unwrap();
        for label in [
            "num_gpu_blocks=\"10217\"",
            "kv_cache_size_tokens=\"163472\"",
        ] {
            assert!(line.contains(label), "{line}");
        }
    }

    #[test]
    fn adapters_are_named_and_escaped() {
        let (options, mut stats) = idle();
        let options = ServerOptions {
            adapters: vec!["a\"".to_owned()],
            max_loras: Some(4),
            ..options
        };
        stats.adapters.running = vec!["a\"".to_owned()];
        let page = metrics_page(&options, &stats);
        let line = page
            .lines()
            .find(|it| it.starts_with("vllm:lora_requests_info"))
            .unwrap();
        assert_eq!(
            line,
            "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"a\\\"\",\
             waiting_lora_adapters=\"\"} 1.79598611003e+09"
        );
    }
}
