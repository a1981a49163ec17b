//! Who answers which request: our picker, and the rules of others written from their formulas.

mod cache_aware;
mod chwbl;
mod lmetric;
mod lru;
mod ours;
mod scored;
mod simple;

use std::str::FromStr;
use std::time::Duration;

use picker_core::{Features, LeastCost};

use super::dice::Dice;
use super::job::Job;
use crate::engine::Counters;
use crate::virtual_server::{Gauges, VirtualServer};

/// One router: chooses, and is told what became of its choices.
pub trait Policy {
    /// The pod for `job`, one of the candidates.
    fn choose(&mut self, job: &Job, fleet: &Fleet<'_>) -> usize;

    /// `job` was sent to `pod`: what was chosen, unless someone else decided.
    fn placed(&mut self, _job: &Job, _pod: usize, _fleet: &Fleet<'_>) {}

    /// Tokens of the prompt of `job` that `pod`, the one just chosen, is thought to hold.
    ///
    /// Those it does hold, unless the router has its own idea of it.
    fn matched_tokens(&self, job: &Job, pod: usize, fleet: &Fleet<'_>) -> usize {
        fleet.servers[pod].cached_tokens(&job.prompt, job.root())
    }

    /// The first token of `job` came back from `pod`.
    fn first_token(&mut self, _job: &Job, _pod: usize, _now: Duration) {}

    /// The last token of `job` came back from `pod`.
    ///
    /// `cached_tokens` is what the engine says it found of the prompt, when it says so.
    fn done(&mut self, _job: &Job, _pod: usize, _cached_tokens: Option<usize>, _now: Duration) {}

    /// The pods were scraped, or one of them came or went.
    fn observe(&mut self, _fleet: &Fleet<'_>) {}

    /// Another [`TICK`] has passed.
    fn tick(&mut self, _now: Duration) {}
}

/// What a router may look at.
pub struct Fleet<'a> {
    /// The time since the start.
    pub now: Duration,
    /// The pods that are there, in order; a pod that left keeps its number.
    pub listed: &'a [usize],
    /// Those of them that may be chosen.
    pub candidates: &'a [usize],
    /// What this router knows of every pod there ever was.
    pub pods: &'a [Seen],
    /// The pods themselves, for rules that are granted a perfect view of the caches.
    pub servers: &'a [VirtualServer],
}

/// What one router knows of one pod.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// When its page was read last.
    pub scraped_at: Option<Duration>,
    /// What the page showed.
    pub gauges: Gauges,
    /// What the page counted.
    pub counters: Counters,
    /// Adapters of the requests that ran.
    pub adapters: Vec<u32>,
    /// Places for adapters; 0 when it serves none.
    pub adapters_max: usize,
    /// Requests of this router on their way.
    pub in_flight: usize,
    /// Prompt tokens to compute of those that have no first token yet.
    pub prefill_tokens: usize,
    /// When it started.
    pub started: Duration,
    /// Blocks that its page tells, and tokens in a block.
    pub blocks: (u64, u32),
}

impl Seen {
    /// What a latency is predicted from, as `job` comes of which the pod is thought to hold
    /// `matched_tokens`.
    pub fn features(&self, job: &Job, matched_tokens: usize) -> Features {
        let input_tokens = job.prompt.len() as f64;
        Features {
            input_tokens,
            prefix_ratio: matched_tokens as f64 / input_tokens.max(1.0),
            waiting: self.gauges.waiting as f64,
            running: self.in_flight as f64,
            kv_usage: self.gauges.kv_usage,
            prefill_tokens: self.prefill_tokens as f64,
        }
    }
}

/// A router by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// Our picker with the rule that is its default.
    LeastCost,
    /// Our picker with the weights of the reference picker.
    Compatible,
    /// The same and three times the adapter score.
    CompatibleLora,
    /// The same with neither the prefix nor the adapter score.
    QueueKv,
    /// In turn.
    RoundRobin,
    /// At random.
    Random,
    /// A pod at random for each connection.
    KubeProxy,
    /// Fewest own requests in flight.
    LeastInFlight,
    /// Queue, KV cache and prefix scores with equal weights.
    Gaie,
    /// The same and three times the adapter score.
    GaieLora,
    /// The same three scores with the weights 2, 2 and 3.
    LlmD,
    /// The same, but the caches are known and not guessed.
    LlmDPrecise,
    /// A tree of prompts; the smallest load when loads differ by 64 and by half.
    CacheAware,
    /// The same with bounds that are hardly ever reached, 4096 and 100 times.
    CacheAwareLoose,
    /// A tree of prompts; the least loaded holder, unless it is far above the mean.
    Smg,
    /// Consistent hashing with bounded loads.
    Chwbl,
    /// New prefill times batch, the caches known.
    LMetric,
    /// A partition by hand: groups are dealt out once and for all.
    Hand,
}

impl PolicyKind {
    /// All of them, ours first.
    pub const ALL: [Self; 18] = [
        Self::LeastCost,
        Self::Compatible,
        Self::CompatibleLora,
        Self::QueueKv,
        Self::Hand,
        Self::LlmDPrecise,
        Self::LMetric,
        Self::LlmD,
        Self::Gaie,
        Self::GaieLora,
        Self::CacheAware,
        Self::CacheAwareLoose,
        Self::Smg,
        Self::Chwbl,
        Self::LeastInFlight,
        Self::RoundRobin,
        Self::Random,
        Self::KubeProxy,
    ];

    /// The name it is selected by.
    pub fn name(self) -> &'static str {
        match self {
            Self::LeastCost => "least-cost",
            Self::Compatible => "compatible",
            Self::CompatibleLora => "compatible-lora",
            Self::QueueKv => "queue-kv",
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
            Self::KubeProxy => "kube-proxy",
            Self::LeastInFlight => "least-in-flight",
            Self::Gaie => "gaie",
            Self::GaieLora => "gaie-lora",
            Self::LlmD => "llm-d",
            Self::LlmDPrecise => "llm-d-precise",
            Self::CacheAware => "cache-aware",
            Self::CacheAwareLoose => "cache-aware-4096",
            Self::Smg => "smg",
            Self::Chwbl => "chwbl",
            Self::LMetric => "lmetric",
            Self::Hand => "hand",
        }
    }

    /// Whether it is the code of this repository, which runs in every worker of an Envoy.
    pub fn is_ours(self) -> bool {
        matches!(
            self,
            Self::LeastCost | Self::Compatible | Self::CompatibleLora | Self::QueueKv
        )
    }

    /// Whether it is worth a row only where requests need adapters.
    pub fn is_for_adapters(self) -> bool {
        matches!(self, Self::CompatibleLora | Self::GaieLora | Self::QueueKv)
    }

    /// Whether it is granted knowledge that a router has only with events from the engines.
    pub fn knows_caches(self) -> bool {
        matches!(self, Self::LlmDPrecise | Self::LMetric)
    }

    /// A router that has seen nothing yet, for an Envoy with so many `workers`.
    ///
    /// `rule` are the parameters of our own rule; the others have theirs.
    pub fn start(self, seed: u64, workers: usize, rule: LeastCost) -> Box<dyn Policy> {
        let dice = Dice::new(seed, POLICY_STREAM);
        match self {
            Self::LeastCost => Box::new(ours::Ours::least_cost(dice, workers, rule)),
            Self::Compatible => Box::new(ours::Ours::compatible(dice, workers)),
            Self::CompatibleLora => Box::new(ours::Ours::compatible_lora(dice, workers)),
            Self::QueueKv => Box::new(ours::Ours::queue_kv(dice, workers)),
            Self::RoundRobin => Box::new(simple::RoundRobin::default()),
            Self::Random => Box::new(simple::Random(dice)),
            Self::KubeProxy => Box::new(simple::KubeProxy::new(dice)),
            Self::LeastInFlight => Box::new(simple::LeastInFlight(dice)),
            Self::Gaie => Box::new(scored::Scored::gaie(dice)),
            Self::GaieLora => Box::new(scored::Scored::gaie_lora(dice)),
            Self::LlmD => Box::new(scored::Scored::llm_d(dice)),
            Self::LlmDPrecise => Box::new(scored::Scored::llm_d_precise(dice)),
            Self::CacheAware => Box::new(cache_aware::CacheAware::new(dice, 64.0, 1.5)),
            Self::CacheAwareLoose => Box::new(cache_aware::CacheAware::new(dice, 4096.0, 100.0)),
            Self::Smg => Box::new(cache_aware::Smg::new(dice)),
            Self::Chwbl => Box::new(chwbl::Chwbl::default()),
            Self::LMetric => Box::new(lmetric::LMetric::new(dice)),
            Self::Hand => Box::new(simple::Hand),
        }
    }
}

impl FromStr for PolicyKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|it| it.name() == text);
        named.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|it| it.name()).collect();
            format!("the policies are {}", names.join(", "))
        })
    }
}

/// How often [`Policy::tick`] is called, as Envoy calls the picker's workers.
pub const TICK: Duration = Duration::from_millis(100);

/// Which random numbers of a seed are the router's.
const POLICY_STREAM: u64 = 1;

#[cfg(test)]
mod tests;
