//! The series of a page, and what the engines behind them amount to.
//!
//! One endpoint may be several engines (data parallelism): queues and counters are summed over
//! them, KV usage is their mean with the fullest one beside it. Series that differ only in a rank
//! other than `dp_rank`, or in the process, are copies of one engine's state and count once. The
//! same series twice: the last one counts.
//!
//! What cannot be true (not a number, negative, infinite) is unknown. A sum with an unknown part is
//! unknown, for the rest of it would look like less load; a mean leaves the unknown part out.
#![deny(clippy::indexing_slicing)]

use alloc::vec::Vec;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::engine::Gauge;
use crate::exposition::Labels;
use crate::metrics::EndpointMetrics;
use crate::sort::sort_by;

/// One gauge of one series.
#[derive(Clone, Copy)]
pub(crate) struct Series {
    pub(crate) gauge: Gauge,
    pub(crate) key: SeriesKey,
    /// Never negative or infinite; not a number when it is unknown.
    pub(crate) value: f64,
    /// Whether it names no rank where one is wanted.
    pub(crate) is_shared: bool,
}

/// What tells a series from others: hashes over its labels, whatever their order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeriesKey {
    /// Equal for the same series.
    identity: u64,
    /// Equal for all copies of one engine's state.
    engine: u64,
}

/// Which data-parallel ranks a page tells of, where one of them is asked for.
pub(crate) struct Ranks<'a> {
    wanted: Option<&'a [u8]>,
    /// Whether the sample looked at last names no rank.
    is_shared: bool,
    has_own: bool,
    has_others: bool,
}

/// The gauges of all engines behind the address.
pub(crate) struct Engines(Vec<Series>);

impl Series {
    /// A figure as the page has it; one that cannot be true is no number.
    pub(crate) fn new(gauge: Gauge, key: SeriesKey, value: f64, is_shared: bool) -> Self {
        let may_be_negative = matches!(gauge, Gauge::Attribute(_));
        let usable = value.is_finite() && (value >= 0.0 || may_be_negative);
        Self {
            gauge,
            key,
            // Adding zero makes zero of minus zero.
            value: if usable { value + 0.0 } else { f64::NAN },
            is_shared,
        }
    }
}

impl SeriesKey {
    /// The key of a series; `None` for a breakdown by the label `breakdown`, whose total is another
    /// series.
    pub(crate) fn new(name: &[u8], labels: Labels<'_>, breakdown: &[u8]) -> Option<Self> {
        let seed = xxh3_64_with_seed(name, 0);
        let mut key = Self {
            identity: seed,
            engine: seed,
        };
        for (label, value) in labels {
            // An empty label is no label.
            if value.is_empty() {
                continue;
            }
            if label == breakdown {
                return None;
            }
            let pair = xxh3_64_with_seed(value, xxh3_64_with_seed(label, 0));
            key.identity = key.identity.wrapping_add(pair);
            let is_copy = label == b"pid" || (label.ends_with(b"_rank") && label != b"dp_rank");
            if !is_copy {
                key.engine = key.engine.wrapping_add(pair);
            }
        }
        Some(key)
    }

    /// The key of a family whose labels are values: of all labels, only those that name an engine
    /// count.
    pub(crate) fn of_engine(name: &[u8], labels: Labels<'_>) -> Self {
        let hash = RANK_LABELS
            .iter()
            .filter_map(|label| labels.value(label))
            .fold(xxh3_64_with_seed(name, 0), |seed, value| {
                xxh3_64_with_seed(value, seed)
            });
        Self {
            identity: hash,
            engine: hash,
        }
    }
}

impl<'a> Ranks<'a> {
    /// All ranks, or the one that is `wanted`.
    pub(crate) fn new(wanted: Option<&'a str>) -> Self {
        Self {
            wanted: wanted.map(str::as_bytes),
            is_shared: false,
            has_own: false,
            has_others: false,
        }
    }

    /// Looks at a sample with these labels: whether it is of another rank than the one that is
    /// wanted. One that names no rank is everybody's.
    pub(crate) fn is_of_another(&mut self, labels: Labels<'_>) -> bool {
        let Some(wanted) = self.wanted else {
            return false;
        };
        let mut named = RANK_LABELS.iter().filter_map(|label| labels.value(label));
        let rank = named.find(|rank| !rank.is_empty());
        let is_own = rank == Some(wanted);
        let is_others = rank.is_some() && !is_own;
        self.is_shared = rank.is_none();
        self.has_own |= is_own;
        self.has_others |= is_others;
        is_others
    }

    /// Whether the sample looked at last is everybody's.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Drops what is no rank's own: a sum over all ranks on a page that tells them apart.
    pub(crate) fn drop_totals(&self, series: &mut Vec<Series>) {
        if self.has_own {
            series.retain(|it| !(it.is_shared && it.gauge.is_summed()));
        }
    }

    /// Whether the page tells of ranks, and not of the one that is wanted.
    pub(crate) fn has_others_only(&self) -> bool {
        self.has_others && !self.has_own
    }
}

impl Engines {
    /// Drops repeated series and merges copies, by gauge and then in the order of the page.
    pub(crate) fn new(series: Vec<Series>) -> Self {
        // The sort is stable, so the last of a repeated series comes last in its run.
        let mut series: Vec<(usize, Series)> = series.into_iter().enumerate().collect();
        let key = |it: &Series| (it.gauge, it.key.engine, it.key.identity);
        sort_by(&mut series, |(_, one), (_, other)| {
            key(one).cmp(&key(other))
        });
        let mut engines: Vec<(usize, Series)> = Vec::with_capacity(series.len());
        let mut series = series.into_iter().peekable();
        while let Some((order, it)) = series.next() {
            let repeated =
                |next: &(usize, Series)| next.1.gauge == it.gauge && next.1.key == it.key;
            if series.peek().is_some_and(repeated) {
                continue;
            }
            match engines.last_mut() {
                Some((_, engine))
                    if engine.gauge == it.gauge && engine.key.engine == it.key.engine =>
                {
                    // Of two numbers the larger, of a number and none the number.
                    engine.value = engine.value.max(it.value);
                }
                _ => engines.push((order, it)),
            }
        }
        let key = |(order, it): &(usize, Series)| (it.gauge, *order);
        sort_by(&mut engines, |one, other| key(one).cmp(&key(other)));
        Self(engines.into_iter().map(|(_, it)| it).collect())
    }

    /// The gauges of engines that each keep `reserved_blocks` without a prompt in them.
    pub(crate) fn metrics(&self, reserved_blocks: u64) -> EndpointMetrics {
        let block_size = self
            .first(Gauge::HashBlockSize)
            .or_else(|| self.first(Gauge::BlockSize))
            .filter(|size| *size >= 1.0);
        let blocks_to_tokens = |gauge| Some(self.sum(gauge)? * block_size?);
        let tokens = |gauge, in_blocks| {
            let tokens = self.sum(gauge).or_else(|| blocks_to_tokens(in_blocks));
            tokens.and_then(count)
        };
        let kv_usage = self.kv_usage();
        let caching = self.values(Gauge::PrefixCaching).reduce(f64::min);
        EndpointMetrics {
            running: self.sum(Gauge::Running),
            waiting: self.sum(Gauge::Waiting),
            kv_usage: kv_usage.map(|(mean, _)| mean),
            kv_usage_max: kv_usage.map(|(_, max)| max),
            block_size: block_size.and_then(|size| u32::try_from(count(size)?).ok()),
            num_blocks: self.sum(Gauge::NumBlocks).and_then(count),
            capacity_tokens: self.capacity_tokens(reserved_blocks),
            offload_tokens: self.offload_tokens(),
            prefix_queries: tokens(Gauge::PrefixQueries, Gauge::PrefixQueriesBlocks),
            prefix_hits: tokens(Gauge::PrefixHits, Gauge::PrefixHitsBlocks),
            lora: None,
            sleeping: self.sleeping(),
            prefix_caching: caching.map(|caching| caching > 0.0),
            process_started: self.values(Gauge::ProcessStarted).reduce(f64::max),
            attributes: Vec::new(),
        }
    }

    /// The mean of the engines that report it.
    pub(crate) fn mean(&self, gauge: Gauge) -> Option<f64> {
        let mean = mean(self.values(gauge))?.0;
        mean.is_finite().then_some(mean)
    }

    /// The mean and the largest of the engines that report it; the newer name where a page has
    /// both.
    fn kv_usage(&self) -> Option<(f64, f64)> {
        let of = |gauge| mean(self.values(gauge).map(|usage| usage.min(1.0)));
        of(Gauge::KvUsage)
            .or_else(|| of(Gauge::KvUsageOld))
            .or_else(|| {
                let used = self.sum(Gauge::UsedTokens)?;
                let usage = (used / self.sum(Gauge::CapacityTokens)?).min(1.0);
                (!usage.is_nan()).then_some((usage, usage))
            })
    }

    fn offload_tokens(&self) -> Option<u64> {
        product(
            count(self.sum(Gauge::OffloadBlocks)?)?,
            self.first(Gauge::BlockSize)?,
        )
    }

    fn capacity_tokens(&self, reserved_blocks: u64) -> Option<u64> {
        if let Some(tokens) = self.sum(Gauge::CapacityTokens) {
            return count(tokens);
        }
        let engines = self.values(Gauge::NumBlocks).count() as u64;
        let blocks = count(self.sum(Gauge::NumBlocks)?)?;
        let blocks = blocks.saturating_sub(engines.saturating_mul(reserved_blocks));
        product(blocks, self.first(Gauge::BlockSize)?)
    }

    /// Whether any engine sleeps.
    fn sleeping(&self) -> Option<bool> {
        let asleep = self.values(Gauge::Asleep).reduce(f64::max);
        let awake = self.values(Gauge::Awake).reduce(f64::max);
        asleep
            .map(|asleep| asleep > 0.0)
            .or_else(|| awake.map(|awake| awake == 0.0))
    }

    /// The keys of the gauges of which some engine's figure is unusable.
    pub(crate) fn unusable(&self) -> Vec<&'static str> {
        let unusable = self.0.iter().filter(|it| it.value.is_nan());
        let mut keys: Vec<&str> = unusable.map(|it| it.gauge.key()).collect();
        keys.dedup();
        keys
    }

    /// The largest KV usage on the page, when it is above 1 by more than rounding.
    pub(crate) fn kv_usage_above_one(&self) -> Option<f64> {
        self.values(Gauge::KvUsage)
            .chain(self.values(Gauge::KvUsageOld))
            .reduce(f64::max)
            .filter(|usage| *usage > 1.0 + KV_USAGE_NOISE)
    }

    /// The sum over engines; unknown when nobody reports it or anybody's figure is unusable.
    fn sum(&self, gauge: Gauge) -> Option<f64> {
        let values = self.0.iter().filter(|it| it.gauge == gauge);
        let sum = values.map(|it| it.value).reduce(|sum, value| sum + value);
        sum.filter(|sum| sum.is_finite())
    }

    /// The first engine's usable figure.
    fn first(&self, gauge: Gauge) -> Option<f64> {
        self.values(gauge).next()
    }

    /// The usable figures, an engine each.
    fn values(&self, gauge: Gauge) -> impl Iterator<Item = f64> {
        self.0
            .iter()
            .filter(move |it| it.gauge == gauge && !it.value.is_nan())
            .map(|it| it.value)
    }
}

/// The mean and the largest of figures; `None` when there are none.
fn mean(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let (mut count, mut sum, mut max) = (0.0, 0.0, f64::MIN);
    for value in values {
        count += 1.0;
        sum += value;
        max = max.max(value);
    }
    (count > 0.0).then(|| (sum / count, max))
}

/// A count as a whole number; unknown when it is larger than any is.
fn count(value: f64) -> Option<u64> {
    (value < COUNT_END).then_some(value as u64)
}

/// The tokens in so many blocks of a size.
fn product(blocks: u64, size: f64) -> Option<u64> {
    count(blocks as f64 * count(size)? as f64)
}

/// The labels that name a data-parallel rank, of vLLM and of SGLang.
const RANK_LABELS: [&[u8]; 2] = [b"engine", b"dp_rank"];

/// The first number that is no count: a double holds all whole numbers below it, and it is far
/// above what any engine counts.
const COUNT_END: f64 = (1_u64 << 53) as f64;

/// How far above 1 a fraction may be by rounding alone.
const KV_USAGE_NOISE: f64 = 1e-9;
