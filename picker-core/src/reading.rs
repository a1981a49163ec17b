//! From a metrics page to [`EndpointMetrics`].
//!
//! What a page does not say, or says in a way that cannot be true, is unknown: never idle, never
//! full.
#![deny(clippy::indexing_slicing)]

use alloc::vec::Vec;
use core::fmt;

use crate::adapters::NewestLora;
use crate::engine::{EngineKind, Family, Gauge};
use crate::exposition::{Line, Lines, Sample, Unread, number};
use crate::mapping::{Engine, EngineMapping, Meaning};
use crate::metrics::EndpointMetrics;
use crate::series::{Engines, Ranks, Series, SeriesKey};
use crate::sort::sort_by;
use crate::time::Timestamp;

/// What a metrics page says, and what was odd about it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Reading {
    /// The gauges; what the page does not say is unknown.
    pub metrics: EndpointMetrics,
    /// The oddities, none of which kept the rest from being read.
    pub warnings: Vec<Warning>,
}

/// Something odd about a page that could be read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Warning {
    /// So many lines were no samples. Lines of families nobody reads are looked at only as far as
    /// their name.
    BadLines(u32),
    /// The body was cut: its unfinished line, and the family it was cut in, are unknown.
    Truncated,
    /// A series of this key was not a number, infinite or negative.
    Unusable(&'static str),
    /// A fraction above 1 counts as 1.
    KvUsageAboveOne(f64),
    /// Several API servers added up the times of their LoRA lines, so that the newest line is a
    /// guess.
    LoraTimesSummed,
}

/// Why a page with status 200 says nothing. It makes an endpoint unknown, never idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageError {
    /// Nothing but white space.
    Empty,
    /// No sample of a family the engine has: another engine's page, HTML, JSON, or families without
    /// samples.
    NoKnownFamily,
    /// Samples of other ranks than the endpoint's, and none of its own.
    OtherRanks,
    /// More series than any server has engines and ranks.
    TooManySeries,
}

/// Whose page is read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reporter<'a> {
    /// What its families mean.
    pub engine: Engine<'a>,
    /// Which of the data-parallel ranks on the page it is; `None` for all of them.
    pub rank: Option<&'a str>,
}

/// Reads a page of `engine`, whose body is `complete` or was cut. `now` tells times from sums of
/// times.
///
/// `num_blocks` is summed over engines and `block_size` is the first engine's; in a hybrid model it
/// is the block that hashes cover. `capacity_tokens` is what the engine says it holds, else
/// `block_size` times the blocks that can hold a prompt: all of `num_blocks` but the one that vLLM
/// reserves in each engine. Counters in blocks (vLLM 0.8, which is the only one to have
/// `gpu_prefix_cache_*` without the newer names, and trtllm-serve) are turned into tokens, and
/// unknown when the block size is.
pub fn read_page(
    page: &[u8],
    engine: EngineKind,
    complete: bool,
    now: Timestamp,
) -> Result<Reading, PageError> {
    let reporter = Reporter {
        engine: Engine::BuiltIn(engine),
        rank: None,
    };
    read_page_of(page, reporter, complete, now)
}

/// Reads a page as [`read_page`] does, of an engine that is built in or described by a user, or of
/// one of its ranks.
///
/// A gauge of a user's mapping is made of all samples that its [`MetricSpec`] selects, as a
/// built-in one is; an attribute is their mean. A rank has the samples whose label `engine`
/// (vLLM) or `dp_rank` (SGLang) is its own, and those of no rank unless they are totals.
///
/// [`MetricSpec`]: crate::MetricSpec
pub fn read_page_of(
    page: &[u8],
    reporter: Reporter<'_>,
    complete: bool,
    now: Timestamp,
) -> Result<Reading, PageError> {
    if page.trim_ascii().is_empty() {
        return Err(PageError::Empty);
    }
    let mut tally = Tally::new(reporter, now);
    let mut last = None;
    for line in Lines::new(page, complete) {
        last = match Line::new(line) {
            Line::Sample(unread) => tally.read(&unread).then_some(unread.name),
            Line::Comment => None,
            Line::End => break,
            Line::Bad => {
                tally.bad_lines = tally.bad_lines.saturating_add(1);
                None
            }
        };
    }
    if !complete {
        tally.cut_in(last);
    }
    tally.finish()
}

/// The engine whose families `page` names first, in samples or in metadata; `None` when it names
/// nobody's. Triton's own families are on the pages of its backends too.
pub fn detect_engine(page: &[u8]) -> Option<EngineKind> {
    let mut engines = Lines::new(page, true).filter_map(|line| {
        let line = line
            .strip_prefix(b"# HELP ")
            .or_else(|| line.strip_prefix(b"# TYPE "))
            .unwrap_or(line)
            .trim_ascii_start();
        let name = line.strip_prefix(b"{\"").unwrap_or(line);
        EngineKind::ALL
            .into_iter()
            .find(|engine| name.starts_with(engine.prefix()))
    });
    let first = engines.next()?;
    let other = (first == EngineKind::Triton).then(|| engines.find(|it| *it != first));
    other.flatten().or(Some(first))
}

/// What has been read of a page so far.
struct Tally<'a> {
    engine: Engine<'a>,
    now: Timestamp,
    series: Vec<Series>,
    lora: NewestLora<'a>,
    ranks: Ranks<'a>,
    known: bool,
    bad_lines: u32,
    truncated: bool,
}

impl<'a> Tally<'a> {
    fn new(Reporter { engine, rank }: Reporter<'a>, now: Timestamp) -> Self {
        Self {
            engine,
            now,
            series: Vec::with_capacity(SERIES_USUAL),
            lora: NewestLora::default(),
            ranks: Ranks::new(rank),
            known: false,
            bad_lines: 0,
            truncated: false,
        }
    }

    /// Takes in one sample; tells whether it is of a known family.
    fn read(&mut self, unread: &Unread<'a>) -> bool {
        let family = self.engine.family(unread.name);
        let mapping = self.engine.mapping();
        let is_mapped = mapping.is_some_and(|it| it.entries_of(unread.name).next().is_some());
        if family.is_none() && !is_mapped {
            return false;
        }
        let sample = unread.sample();
        let is_number = sample.is_some_and(|sample| sample.value.is_some());
        if !is_number {
            self.bad_lines = self.bad_lines.saturating_add(1);
        }
        let Some(sample) = sample else { return true };
        if self.ranks.is_of_another(sample.labels) {
            return true;
        }
        match mapping {
            Some(mapping) => {
                let start = self.series.len();
                if let Some(family) = family.filter(|family| *family != Family::Lora) {
                    self.family(family, unread.name, &sample);
                }
                self.drop_mappable(start);
                self.mapped(mapping, unread.name, &sample);
            }
            None => _ = family.map(|family| self.family(family, unread.name, &sample)),
        }
        let tells_engine = family != Some(Family::Value(&[Gauge::ProcessStarted]));
        self.known |= is_number && tells_engine;
        true
    }

    fn family(&mut self, family: Family, name: &[u8], sample: &Sample<'a>) {
        match family {
            Family::Value(gauges) => self.values(gauges, name, sample),
            Family::Selected { label, gauges } => {
                let choice = sample.labels.value(label);
                let gauge = gauges.iter().find(|(value, _)| Some(*value) == choice);
                if let Some((_, gauge)) = gauge {
                    self.values(&[*gauge], name, sample);
                }
            }
            Family::Labels(gauges) => self.labels(gauges, name, sample),
            Family::Lora => self.lora.read(sample, self.now),
        }
    }

    /// Of the series from `start` on, drops those that a user's mapping is to tell.
    fn drop_mappable(&mut self, start: usize) {
        let mut added = self.series.split_off(start);
        added.retain(|series| !series.gauge.is_mappable());
        self.series.append(&mut added);
    }

    fn mapped(&mut self, mapping: &EngineMapping, name: &[u8], sample: &Sample<'a>) {
        let entries = mapping.entries_of(name);
        for entry in entries.filter(|entry| entry.spec.selects(sample.labels)) {
            match &entry.meaning {
                Meaning::Value(gauge) => {
                    // A part of the total is wanted when it is asked for.
                    let is_part = entry.spec.names("priority");
                    let breakdown = if is_part { &[][..] } else { BREAKDOWN };
                    if let Some(key) = SeriesKey::new(name, sample.labels, breakdown) {
                        self.push(*gauge, key, sample.value.unwrap_or(f64::NAN));
                    }
                }
                Meaning::CacheLabels(block_size, num_blocks) => {
                    let block_size = (block_size.as_bytes(), Gauge::BlockSize);
                    let num_blocks = (num_blocks.as_bytes(), Gauge::NumBlocks);
                    self.labels(&[block_size, num_blocks], name, sample);
                }
                Meaning::Lora => self.lora.read(sample, self.now),
            }
        }
    }

    fn values(&mut self, gauges: &[Gauge], name: &[u8], sample: &Sample<'_>) {
        let Some(key) = SeriesKey::new(name, sample.labels, BREAKDOWN) else {
            return;
        };
        let value = sample.value.unwrap_or(f64::NAN);
        for gauge in gauges {
            self.push(*gauge, key, value);
        }
    }

    fn labels(&mut self, gauges: &[(&[u8], Gauge)], name: &[u8], sample: &Sample<'_>) {
        let key = SeriesKey::of_engine(name, sample.labels);
        for (label, value) in sample.labels {
            let gauge = gauges.iter().find(|(name, _)| *name == label);
            let value = match value {
                b"True" => Some(1.0),
                b"False" => Some(0.0),
                // `None` until the engine knows.
                _ => number(value),
            };
            if let (Some((_, gauge)), Some(value)) = (gauge, value) {
                self.push(*gauge, key, value);
            }
        }
    }

    fn push(&mut self, gauge: Gauge, key: SeriesKey, value: f64) {
        // One past the limit is enough to know.
        if self.series.len() <= SERIES_MAX {
            let is_shared = self.ranks.is_shared();
            self.series.push(Series::new(gauge, key, value, is_shared));
        }
    }

    /// The body ends within or after the last line read, of the family `name`: other engines may be
    /// missing of it.
    fn cut_in(&mut self, name: Option<&[u8]>) {
        self.truncated = true;
        let (engine, name) = (self.engine, name.unwrap_or_default());
        let family = engine.family(name);
        let is_mapped = |gauge: Gauge| {
            let entries = engine
                .mapping()
                .into_iter()
                .flat_map(|it| it.entries_of(name));
            let mut meanings = entries.map(|entry| &entry.meaning);
            meanings.any(|meaning| match meaning {
                Meaning::Value(cut) => *cut == gauge,
                Meaning::CacheLabels(..) => matches!(gauge, Gauge::BlockSize | Gauge::NumBlocks),
                Meaning::Lora => false,
            })
        };
        let cut = |gauge: Gauge| match family {
            // The names that tell blocks from tokens may be in the missing part.
            _ if matches!(gauge, Gauge::PrefixQueriesBlocks | Gauge::PrefixHitsBlocks) => true,
            Some(Family::Value(gauges)) if gauges.contains(&gauge) => true,
            Some(Family::Selected { gauges, .. } | Family::Labels(gauges))
                if gauges.iter().any(|(_, cut)| *cut == gauge) =>
            {
                true
            }
            _ => is_mapped(gauge),
        };
        self.series.retain(|series| !cut(series.gauge));
        let mut mapped = engine
            .mapping()
            .into_iter()
            .flat_map(|it| it.entries_of(name));
        if family == Some(Family::Lora) || mapped.any(|entry| entry.meaning == Meaning::Lora) {
            self.lora = NewestLora::default();
        }
    }

    fn finish(mut self) -> Result<Reading, PageError> {
        if self.series.len() > SERIES_MAX {
            return Err(PageError::TooManySeries);
        }
        if self.ranks.has_others_only() {
            return Err(PageError::OtherRanks);
        }
        if !self.known {
            return Err(PageError::NoKnownFamily);
        }
        self.ranks.drop_totals(&mut self.series);
        let engines = Engines::new(self.series);
        let mut warnings = Vec::new();
        if self.bad_lines > 0 {
            warnings.push(Warning::BadLines(self.bad_lines));
        }
        if self.truncated {
            warnings.push(Warning::Truncated);
        }
        if self.lora.is_guess() {
            warnings.push(Warning::LoraTimesSummed);
        }
        warnings.extend(engines.unusable().into_iter().map(Warning::Unusable));
        warnings.extend(engines.kv_usage_above_one().map(Warning::KvUsageAboveOne));
        let mut metrics = engines.metrics(self.engine.reserved_blocks());
        metrics.lora = self.lora.finish();
        if let Some(mapping) = self.engine.mapping() {
            let names = mapping.attributes().iter().zip(0..);
            let known = names.filter_map(|(name, place)| {
                Some((name.clone(), engines.mean(Gauge::Attribute(place))?))
            });
            metrics.attributes = known.collect();
            sort_by(&mut metrics.attributes, |(one, _), (other, _)| {
                one.cmp(other)
            });
        }
        Ok(Reading { metrics, warnings })
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadLines(lines) => write!(f, "bad lines: {lines}"),
            Self::Truncated => f.write_str("the page is cut off"),
            Self::Unusable(key) => write!(f, "{key} is not a number, infinite or negative"),
            Self::KvUsageAboveOne(usage) => write!(f, "kv_usage {usage} counts as 1"),
            Self::LoraTimesSummed => f.write_str("the times of the adapter lines are sums"),
        }
    }
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the page is empty",
            Self::NoKnownFamily => "the page has no sample of a known family",
            Self::OtherRanks => "the page has samples of other ranks only",
            Self::TooManySeries => "the page has too many series",
        })
    }
}

/// A family may be there in parts by this label beside its total.
const BREAKDOWN: &[u8] = b"priority";

/// Series of known families on one page: 128 data-parallel engines of 4 ranks each with every gauge
/// there is.
const SERIES_MAX: usize = 8192;

/// Room for the series of one engine, so that the usual page is read with one allocation.
const SERIES_USUAL: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapped;
    use alloc::string::String;
    use std::format;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// The known keys of a reading, then its warnings after a bar; or the error.
    fn show(reading: Result<Reading, PageError>) -> String {
        let Reading { metrics, warnings } = match reading {
            Ok(reading) => reading,
            Err(error) => return format!("{error:?}"),
        };
        let all = format!("{metrics:?}");
        let known = [
            ("running", metrics.running),
            ("waiting", metrics.waiting),
            ("kv", metrics.kv_usage),
            ("max", metrics.kv_usage_max),
            ("block", metrics.block_size.map(f64::from)),
            ("blocks", metrics.num_blocks.map(|it| it as f64)),
            ("tokens", metrics.capacity_tokens.map(|it| it as f64)),
            ("queries", metrics.prefix_queries.map(|it| it as f64)),
            ("hits", metrics.prefix_hits.map(|it| it as f64)),
            ("asleep", metrics.sleeping.map(f64::from)),
            ("caching", metrics.prefix_caching.map(f64::from)),
            ("started", metrics.process_started),
        ];
        assert!(
            known.iter().all(|(_, it)| it.is_none_or(|it| !it.is_nan())),
            "{all}"
        );
        let mut words: Vec<String> = Vec::new();
        for (key, value) in known {
            words.extend(value.map(|value| format!("{key}={value}")));
        }
        if let Some(lora) = metrics.lora {
            let max = lora.max.map_or_else(|| "?".into(), |it| format!("{it}"));
            words.push(format!(
                "lora={}|{}|{max}",
                lora.running.join(","),
                lora.waiting.join(",")
            ));
        }
        let attributes = metrics.attributes.iter();
        words.extend(attributes.map(|(name, value)| format!("{name}={value}")));
        words.extend(warnings.iter().map(|warning| format!("!{warning:?}")));
        words.join(" ")
    }

    fn check_engine(engine: EngineKind, complete: bool, pages: &[(&str, &str)]) {
        for (page, expected) in pages {
            let reading = read_page(page.as_bytes(), engine, complete, NOW);
            assert_eq!(show(reading), *expected, "{page}");
        }
    }

    fn check(pages: &[(&str, &str)]) {
        check_engine(EngineKind::Vllm, true, pages);
    }

    #[test]
    fn data_parallel_engines_are_summed_and_their_kv_usage_averaged() {
        check(&[(
            r#"
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 5.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:num_requests_waiting{engine="1",model_name="m"} 37.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 10
vllm:prefix_cache_queries_total{engine="1",model_name="m"} 20
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 1
vllm:prefix_cache_hits_total{engine="1",model_name="m"} 2
vllm:cache_config_info{block_size="32",engine="0",num_gpu_blocks="11"} 1
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="21"} 1"#,
            "running=7 waiting=37 kv=0.5 max=0.75 block=32 blocks=32 tokens=960 queries=30 hits=3",
        )]);
    }

    fn check_ranks(engine: EngineKind, page: &str, ranks: &[(Option<&str>, &str)]) {
        for (rank, expected) in ranks {
            let engine = Engine::BuiltIn(engine);
            let rank = *rank;
            let reading = read_page_of(page.as_bytes(), Reporter { engine, rank }, true, NOW);
            assert_eq!(show(reading), *expected, "{rank:?} of {page}");
        }
    }

    #[test]
    fn a_rank_has_its_own_samples_and_those_of_no_rank_but_totals() {
        let vllm = r#"
process_start_time_seconds 77
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="10",model_name="m"} 5.0
vllm:num_requests_waiting{engine="0",model_name="m"} NaN
vllm:num_requests_waiting{engine="10",model_name="m"} 37.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="10",model_name="m"} 0.75
vllm:cache_config_info{block_size="32",engine="0",num_gpu_blocks="11"} 1
vllm:cache_config_info{block_size="16",engine="10",num_gpu_blocks="21"} 1
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a",waiting_lora_adapters=""} 1"#;
        check_ranks(
            EngineKind::Vllm,
            vllm,
            &[
                (
                    Some("0"),
                    "running=2 kv=0.25 max=0.25 block=32 blocks=11 tokens=320 started=77 \
                     lora=a||4 !Unusable(\"waiting\")",
                ),
                (
                    Some("10"),
                    "running=5 waiting=37 kv=0.75 max=0.75 block=16 blocks=21 tokens=320 \
                     started=77 lora=a||4",
                ),
                (Some("1"), "OtherRanks"),
                (Some(""), "OtherRanks"),
                (
                    None,
                    "running=7 kv=0.5 max=0.75 block=32 blocks=32 tokens=960 started=77 \
                     lora=a||4 !Unusable(\"waiting\")",
                ),
            ],
        );
        let sglang = r#"
sglang:num_queue_reqs{dp_rank="0",tp_rank="0"} 2
sglang:num_queue_reqs{dp_rank="0",tp_rank="1"} 2
sglang:num_queue_reqs{dp_rank="1",tp_rank="0"} 3"#;
        let ranks = [(Some("0"), "waiting=2"), (Some("1"), "waiting=3")];
        check_ranks(EngineKind::Sglang, sglang, &ranks);
        let totals = format!("{sglang}\nsglang:prompt_tokens_total 10\nsglang:page_size 64");
        let ranks = [
            (Some("1"), "waiting=3 block=64"),
            (None, "waiting=5 block=64 queries=10"),
        ];
        check_ranks(EngineKind::Sglang, &totals, &ranks);
        let single = "vllm:num_requests_waiting{model_name=\"m\",engine=\"\"} 4";
        check_ranks(EngineKind::Vllm, single, &[(Some("3"), "waiting=4")]);
    }

    #[test]
    fn either_kv_name_works_and_the_new_one_is_preferred() {
        check(&[
            ("vllm:kv_cache_usage_perc 0.5", "kv=0.5 max=0.5"),
            ("vllm:gpu_cache_usage_perc 0.5", "kv=0.5 max=0.5"),
            (
                "vllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc 0.25",
                "kv=0.25 max=0.25",
            ),
            ("vllm:num_requests_waiting 1", "waiting=1"),
        ]);
    }

    #[test]
    fn an_unusable_figure_makes_a_sum_unknown_and_leaves_a_mean() {
        for bad in ["NaN", "-1", "+Inf", "1e999", "0x1", "1_0"] {
            let page = format!(
                r#"vllm:num_requests_waiting{{engine="0"}} {bad}
vllm:num_requests_waiting{{engine="1"}} 0
vllm:kv_cache_usage_perc{{engine="0"}} {bad}
vllm:kv_cache_usage_perc{{engine="1"}} 0.5"#
            );
            let read = show(read_page(page.as_bytes(), EngineKind::Vllm, true, NOW));
            let expected = r#"kv=0.5 max=0.5 "#;
            assert!(read.starts_with(expected), "{bad}: {read}");
            assert!(
                read.ends_with(r#"!Unusable("waiting") !Unusable("kv_usage")"#),
                "{read}"
            );
        }
        check(&[
            (
                "vllm:num_requests_waiting{engine=\"0\"} 1e308\nvllm:num_requests_waiting 1e308",
                "",
            ),
            ("vllm:num_requests_waiting -0", "waiting=0"),
        ]);
    }

    #[test]
    fn a_count_that_is_larger_than_any_is_unknown() {
        check(&[
            (
                "vllm:prefix_cache_queries_total 9007199254740991",
                "queries=9007199254740991",
            ),
            ("vllm:prefix_cache_queries_total 9007199254740992", ""),
            ("vllm:prefix_cache_hits_total 1e300", ""),
            (
                r#"vllm:cache_config_info{block_size="4294967296",num_gpu_blocks="3"} 1"#,
                "blocks=3 tokens=8589934592",
            ),
            (
                r#"vllm:cache_config_info{block_size="16",num_gpu_blocks="9007199254740991"} 1"#,
                "block=16 blocks=9007199254740991",
            ),
        ]);
    }

    #[test]
    fn the_same_series_twice_counts_once_and_the_last_wins() {
        check(&[
            (
                "vllm:num_requests_waiting{a=\"b\",c=\"d\"} 3\n\
                 vllm:num_requests_waiting{a=\"b\",e=\"f\"} 4\n\
                 vllm:num_requests_waiting{c=\"d\", a=\"b\",x=\"\"} 1",
                "waiting=5",
            ),
            (
                "vllm:num_requests_waiting 3\nvllm:num_requests_waiting NaN",
                "!Unusable(\"waiting\")",
            ),
        ]);
    }

    #[test]
    fn names_match_whole() {
        check(&[
            (
                "vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 2",
                "NoKnownFamily",
            ),
            ("vllm:num_requests_waiting_total 2", "NoKnownFamily"),
            ("xvllm:num_requests_waiting 2", "NoKnownFamily"),
            ("vllm:prefix_cache_queries_created 1.7e9", "NoKnownFamily"),
            ("process_start_time_seconds 5", "NoKnownFamily"),
            (
                "process_start_time_seconds 5\nvllm:num_requests_running 1",
                "running=1 started=5",
            ),
        ]);
    }

    #[test]
    fn counters_in_blocks_become_tokens() {
        let old = "vllm:gpu_prefix_cache_queries_total 10\nvllm:gpu_prefix_cache_hits_total 5\n";
        let new = "vllm:prefix_cache_queries_total 160\nvllm:prefix_cache_hits_total 80\n";
        let config = "vllm:cache_config_info{block_size=\"16\"} 1\n";
        check(&[
            (&format!("{old}{config}"), "block=16 queries=160 hits=80"),
            (
                &format!("{old}{new}{config}"),
                "block=16 queries=160 hits=80",
            ),
            (&format!("{old}vllm:num_requests_running 1"), "running=1"),
        ]);
        // Beyond the cut there may be the new names.
        check_engine(
            EngineKind::Vllm,
            false,
            &[(&format!("{config}{old}# HELP\n"), "block=16 !Truncated")],
        );
    }

    #[test]
    fn a_hybrid_model_has_the_blocks_that_hashes_cover() {
        let config = r#"block_size="784",num_gpu_blocks="101",hash_block_size="16""#;
        check(&[
            (
                &format!("vllm:cache_config_info{{{config}}} 1"),
                "block=16 blocks=101 tokens=78400",
            ),
            (
                &format!("vllm:cache_config_info{{{config},kv_cache_size_tokens=\"5000\"}} 1"),
                "block=16 blocks=101 tokens=5000",
            ),
            (
                "vllm:cache_config_info{block_size=\"0\",num_gpu_blocks=\"0\"} 1",
                "blocks=0 tokens=0",
            ),
        ]);
    }

    #[test]
    fn an_offload_tier_is_told_apart_from_the_kv_cache() {
        let page = |cpu: &str| {
            format!(
                "vllm:cache_config_info{{block_size=\"16\",num_cpu_blocks=\"{cpu}\",\
                 num_gpu_blocks=\"1001\"}} 1"
            )
        };
        for (cpu, offload_tokens) in [("50000", Some(800_000)), ("0", Some(0)), ("None", None)] {
            let page = page(cpu);
            let read = read_page(page.as_bytes(), EngineKind::Vllm, true, Timestamp(0)).unwrap();
            assert_eq!(read.metrics.capacity_tokens, Some(16_000), "{cpu}");
            assert_eq!(read.metrics.offload_tokens, offload_tokens, "{cpu}");
        }
    }

    #[test]
    fn the_configuration_of_an_engine_counts_once() {
        check(&[(
            "vllm:cache_config_info{block_size=\"None\",engine=\"0\",num_gpu_blocks=\"None\"} 1\n\
             vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"10\"} 1\n\
             vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"11\"} 1",
            "block=16 blocks=11 tokens=160",
        )]);
    }

    #[test]
    fn prefixes_are_kept_when_every_engine_keeps_them() {
        let config = "vllm:cache_config_info{enable_prefix_caching=";
        check(&[
            (&format!("{config}\"True\"}} 1"), "caching=1"),
            (&format!("{config}\"False\"}} 1"), "caching=0"),
            (&format!("{config}\"None\"}} 1"), ""),
            (
                &format!("{config}\"True\",engine=\"0\"}} 1\n{config}\"False\",engine=\"1\"}} 1"),
                "caching=0",
            ),
        ]);
    }

    #[test]
    fn an_engine_that_sleeps_is_told() {
        check(&[
            (
                "vllm:engine_sleep_state{sleep_state=\"discard_all\"} 1",
                "asleep=1",
            ),
            (
                "vllm:engine_sleep_state{sleep_state=\"discard_all\"} 0",
                "asleep=0",
            ),
            (
                "vllm:engine_sleep_state{sleep_state=\"awake\"} 0",
                "asleep=1",
            ),
            ("vllm:engine_sleep_state{sleep_state=\"other\"} 1", ""),
            (
                "vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} 1\n\
                 vllm:engine_sleep_state{engine=\"0\",sleep_state=\"weights_offloaded\"} 0\n\
                 vllm:engine_sleep_state{engine=\"1\",sleep_state=\"weights_offloaded\"} 1",
                "asleep=1",
            ),
        ]);
    }

    #[test]
    fn the_newest_adapter_line_wins_and_a_sum_of_times_is_no_time() {
        let line = |names: &str, time: &str| {
            format!(
                "vllm:lora_requests_info{{max_lora=\"4\",running_lora_adapters=\"{names}\",\
                 waiting_lora_adapters=\"{names}\"}} {time}\n"
            )
        };
        let pages = [
            (line("b,a", "1.7e9"), "lora=a,b|a,b|4"),
            (line("a", "1.7e9") + &line("b", "1.6e9"), "lora=a|a|4"),
            (line("a", "1.7e9") + &line("b", "1.7e9"), "lora=b|b|4"),
            (line("a", "3.4e9") + &line("b", "1.6e9"), "lora=b|b|4"),
            // The server's clock is a minute ahead.
            (line("a", "1800000060") + &line("b", "1.6e9"), "lora=a|a|4"),
            (
                line("a", "3.4e9") + &line("b", "3.5e9"),
                "lora=b|b|4 !LoraTimesSummed",
            ),
            (line("a", "NaN"), ""),
            (line(r#"a\"\\ , ,a,a"#, "1"), r#"lora=a,a"\|a,a"\|4"#),
        ];
        for (page, expected) in pages {
            check(&[(&page, expected)]);
        }
        check(&[("vllm:lora_requests_info 1", "lora=||?")]);
    }

    #[test]
    fn of_sglang_ranks_only_data_parallel_ones_are_added() {
        check_engine(
            EngineKind::Sglang,
            true,
            &[
                (
                    r#"
sglang:num_queue_reqs{dp_rank="0",tp_rank="0",pp_rank="0",pid="8"} 2
sglang:num_queue_reqs{dp_rank="0",tp_rank="1",pp_rank="0",pid="9"} 2
sglang:num_queue_reqs{dp_rank="0",tp_rank="0",pp_rank="1",pid="8"} 2
sglang:num_queue_reqs{dp_rank="1",tp_rank="0",pp_rank="0",pid="7"} 3
sglang:token_usage{dp_rank="0",tp_rank="0"} NaN
sglang:token_usage{dp_rank="0",tp_rank="1"} 0.5
sglang:token_usage{dp_rank="1",tp_rank="0"} 0.25"#,
                    "waiting=5 kv=0.375 max=0.5",
                ),
                (
                    r#"
sglang:num_running_reqs{priority=""} 5
sglang:num_running_reqs{priority="1"} 3
sglang:num_running_reqs{priority="2"} 2"#,
                    "running=5",
                ),
                (
                    r#"
sglang:num_queue_reqs{engine_type="prefill"} 1
sglang:num_prefill_bootstrap_queue_reqs{engine_type="prefill"} 1
sglang:num_prefill_inflight_queue_reqs{engine_type="prefill"} 1"#,
                    "waiting=3",
                ),
                (
                    r#"
sglang:num_queue_reqs{engine_type="unified"} 1
sglang:num_prefill_bootstrap_queue_reqs{engine_type="unified"} 1"#,
                    "waiting=1",
                ),
                (
                    r#"
sglang:prompt_tokens_total 10
sglang:cached_tokens_total{cache_source="device"} 2
sglang:cached_tokens_total{cache_source="host"} 3"#,
                    "queries=10 hits=5",
                ),
            ],
        );
    }

    #[test]
    fn triton_families_are_told_apart_by_a_label() {
        check_engine(
            EngineKind::TritonTensorrtLlm,
            true,
            &[(
                "nv_trt_llm_request_metrics{model=\"m\",request_type=\"waiting\",version=\"1\"} 2\n\
                 nv_trt_llm_request_metrics{model=\"m\",request_type=\"max\",version=\"1\"} 512",
                "waiting=2",
            )],
        );
    }

    #[test]
    fn the_family_a_page_is_cut_in_is_unknown() {
        let engine = |number: u32| format!("vllm:num_requests_waiting{{engine=\"{number}\"}} 1\n");
        let running = "vllm:num_requests_running 1\n";
        check_engine(
            EngineKind::Vllm,
            false,
            &[
                (&format!("{running}{}", engine(0)), "running=1 !Truncated"),
                (
                    &format!("{running}{}{}", engine(0), engine(1).trim()),
                    "running=1 !Truncated",
                ),
                (
                    &format!("{running}{}# HELP", engine(0)),
                    "running=1 !Truncated",
                ),
                (
                    &format!("{}{running}# HELP\n", engine(0)),
                    "running=1 waiting=1 !Truncated",
                ),
                (
                    &format!("{}{running}vllm:a 1\n", engine(0)),
                    "running=1 waiting=1 !Truncated",
                ),
                ("vllm:lora_requests_info 1\n", "!Truncated"),
                ("vllm:num_requests_running 1", "NoKnownFamily"),
            ],
        );
    }

    #[test]
    fn a_page_has_a_limit_of_series() {
        let page = |series: usize| {
            let lines =
                (0..series).map(|it| format!("vllm:num_requests_waiting{{e=\"{it}\"}} 1\n"));
            lines.collect::<String>()
        };
        check(&[
            (&page(SERIES_MAX), "waiting=8192"),
            (&page(SERIES_MAX + 1), "TooManySeries"),
        ]);
    }

    #[test]
    fn a_page_without_data_is_no_idle_server() {
        check(&[
            ("", "Empty"),
            ("\n \r\n\t", "Empty"),
            ("<html>vllm:num_requests_waiting 0</html>", "NoKnownFamily"),
            ("{\"vllm:num_requests_waiting\": 0}", "NoKnownFamily"),
            ("# TYPE vllm:num_requests_waiting gauge", "NoKnownFamily"),
            ("vllm:num_requests_waiting gauge", "NoKnownFamily"),
        ]);
    }

    #[test]
    fn an_engine_is_known_by_its_names() {
        for (page, engine) in [
            ("# HELP vllm:a b", Some(EngineKind::Vllm)),
            ("python_info 1\n sglang:a 1", Some(EngineKind::Sglang)),
            ("{\"vllm:a\"} 1", Some(EngineKind::Vllm)),
            (
                "# TYPE nv_trt_llm_a gauge",
                Some(EngineKind::TritonTensorrtLlm),
            ),
            ("trtllm_a 1", Some(EngineKind::TrtllmServe)),
            ("tgi_a 1", Some(EngineKind::Tgi)),
            ("# about vllm:a", None),
            ("ray_vllm_a 1", None),
            ("", None),
        ] {
            assert_eq!(detect_engine(page.as_bytes()), engine, "{page}");
        }
    }

    /// 2027-01-15, later than any time in these tests but one.
    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    /// A mapping called `name` that reads a queue, a KV usage and two attributes.
    fn mapping(name: &str) -> EngineMapping {
        let mut mapping = EngineMapping::new(name);
        mapping.read(Mapped::Waiting, "q{state=waiting}".parse().unwrap());
        mapping.read(Mapped::Running, "q{state=running}".parse().unwrap());
        mapping.read(Mapped::KvUsage, "kv".parse().unwrap());
        mapping.read(Mapped::Lora, "loras".parse().unwrap());
        mapping.read_cache_labels("cache".parse().unwrap(), "size", "blocks");
        for (name, spec) in [("heat", "temperature"), ("gold", "q{priority=gold}")] {
            mapping.publish(name, spec.parse().unwrap()).unwrap();
        }
        mapping
    }

    fn check_mapped(name: &str, complete: bool, pages: &[(&str, &str)]) {
        let mapping = mapping(name);
        for (page, expected) in pages {
            let engine = Engine::Mapped(&mapping);
            let reporter = Reporter { engine, rank: None };
            let reading = read_page_of(page.as_bytes(), reporter, complete, NOW);
            assert_eq!(show(reading), *expected, "{page}");
        }
    }

    #[test]
    fn a_mapping_says_which_samples_are_which_gauge() {
        check_mapped(
            "mine",
            true,
            &[
                (
                    "q{state=\"waiting\"} 3\nq{state=\"running\"} 2",
                    "running=2 waiting=3",
                ),
                ("q{state=\"other\"} 3", ""),
                (
                    "q{state=\"waiting\",engine=\"0\"} 3\nq{state=\"waiting\",engine=\"1\"} 4",
                    "waiting=7",
                ),
                (
                    "kv{engine=\"0\"} 0.25\nkv{engine=\"1\"} 0.75",
                    "kv=0.5 max=0.75",
                ),
                (
                    "cache{size=\"16\",blocks=\"10\"} 1",
                    "block=16 blocks=10 tokens=160",
                ),
                (
                    "loras{running_lora_adapters=\"b,a\",waiting_lora_adapters=\"\",max_lora=\"4\"} 5",
                    "lora=a,b||4",
                ),
                ("temperature -4", "heat=-4"),
                (
                    "temperature{gpu=\"0\"} 60\ntemperature{gpu=\"1\"} 70",
                    "heat=65",
                ),
                (
                    "temperature{gpu=\"0\"} NaN\ntemperature{gpu=\"1\"} 70",
                    "heat=70 !Unusable(\"attribute\")",
                ),
                (
                    "q{state=\"waiting\",priority=\"gold\"} 3\nq{state=\"waiting\"} 5",
                    "waiting=5 gold=3",
                ),
                (
                    "kv 0.5\nprocess_start_time_seconds 77",
                    "kv=0.5 max=0.5 started=77",
                ),
                ("process_start_time_seconds 77", "NoKnownFamily"),
                ("vllm:num_requests_waiting 3", "NoKnownFamily"),
            ],
        );
    }

    #[test]
    fn a_mapping_with_the_name_of_an_engine_takes_the_place_of_its_mappable_gauges() {
        check_mapped(
            "vllm",
            true,
            &[
                (
                    "vllm:num_requests_waiting 9\nvllm:kv_cache_usage_perc 0.9\n\
                     vllm:lora_requests_info{running_lora_adapters=\"a\"} 5\n\
                     vllm:prefix_cache_queries_total 10\nkv 0.5",
                    "kv=0.5 max=0.5 queries=10",
                ),
                (
                    "vllm:cache_config_info{block_size=\"32\",num_gpu_blocks=\"99\",\
                     enable_prefix_caching=\"True\"} 1\ncache{size=\"16\",blocks=\"10\"} 1",
                    "block=16 blocks=10 tokens=144 caching=1",
                ),
            ],
        );
    }

    #[test]
    fn what_a_cut_page_may_hide_of_a_mapped_family_is_unknown() {
        check_mapped(
            "mine",
            false,
            &[
                ("kv 0.5\ntemperature 60\n", "kv=0.5 max=0.5 !Truncated"),
                ("temperature 60\nkv 0.5\n", "heat=60 !Truncated"),
                (
                    "kv 0.5\nq{state=\"waiting\"} 3\nq{",
                    "kv=0.5 max=0.5 !Truncated",
                ),
                (
                    "kv 0.5\ncache{size=\"16\",blocks=\"10\"} 1\n",
                    "kv=0.5 max=0.5 !Truncated",
                ),
                (
                    "kv 0.5\nloras{max_lora=\"4\"} 5\n",
                    "kv=0.5 max=0.5 !Truncated",
                ),
            ],
        );
    }

    #[test]
    fn tritons_own_families_tell_its_queue_and_not_its_backend() {
        let page = "# TYPE nv_inference_exec_count counter\nnv_inference_exec_count{model=\"a\"} 900\n\
            nv_inference_pending_request_count{model=\"a\"} 2\n\
            nv_inference_pending_request_count{model=\"b\"} 3\n";
        check_engine(EngineKind::Triton, true, &[(page, "waiting=5")]);
        assert_eq!(detect_engine(page.as_bytes()), Some(EngineKind::Triton));
        let page = format!("{page}nv_trt_llm_request_metrics 1\n");
        let backend = Some(EngineKind::TritonTensorrtLlm);
        assert_eq!(detect_engine(page.as_bytes()), backend);
    }
}
