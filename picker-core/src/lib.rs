//! The endpoint picker's engine.
//!
//! Bytes go in, a destination comes out. This crate has no clock, no entropy, no I/O and no
//! logging: time, random draws and shared state are arguments, and effects are values that the
//! adapter carries out.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod adapter;
mod adapters;
mod admitter;
mod block;
mod burst;
mod bytes;
mod cache_fit;
mod candidate;
mod cel;
mod checkpoint;
mod claim;
mod collector;
mod config;
mod context_length;
mod decimal;
mod discovery;
mod drain;
mod draw;
mod eligibility;
mod endpoint;
mod engine;
mod exposition;
mod filter;
mod flow;
mod handler;
mod head;
mod health;
mod identity;
mod json;
mod kv_source;
mod latency;
mod lease;
mod ledger;
mod load_report;
mod mapping;
mod means;
mod measure;
mod metrics;
mod model_list;
mod models;
mod pace;
pub mod page;
mod picker;
mod plan;
mod pool;
mod predict;
mod producers;
mod profile;
mod reading;
mod refusal;
mod registry;
mod replica;
mod request;
mod response;
mod rewrite;
mod ring;
mod role;
mod saturation;
mod scan;
mod score;
mod scrape;
mod series;
mod served;
mod session;
mod shape;
mod share;
mod shared;
mod snapshot;
mod sort;
mod sorted;
mod sources;
mod stats;
mod tally;
mod ticket;
mod time;
mod timing;
mod topology;
mod trust;
mod twin;
mod whose;

pub use adapter::AdapterFit;
pub use admitter::{Admitter, Fullness};
pub use block::{BLOCK_BYTES, BlockHash, HashSeed, PROMPT_BLOCKS_MAX};
pub use burst::Burst;
pub use cache_fit::CacheFit;
pub use candidate::{Candidate, Context};
pub use cel::{Expression, ExpressionError, ExpressionFault, UsageReport};
pub use claim::{Claim, property_text};
pub use collector::{Collector, PERIOD_MAX, PoolScrape};
pub use config::{
    AddressFault, BaseModel, CONFIG_ERRORS_MAX, CacheConfig, Cause, Config, ConfigError,
    ConfigWarning, Destination, DiscoveryConfig, DiscoverySource, EndpointConfig, FailureMode,
    Fallback, KubernetesSubject, Limits, ListModels, Match, Objective, Paths, PoolConfig, Role,
    SCRAPE_INTERVAL_MIN, ScrapeConfig, Wanted, config_schema, is_header_value,
    parse as parse_config, parse_picker, picker_schema,
};
pub use context_length::ContextLength;
pub use decimal::push_decimal;
pub use discovery::{
    DiscoveryCall, DiscoveryFailure, DiscoveryOutcome, DiscoveryStatus, Found, ListFault, Listed,
    News,
};
pub use draw::Draws;
pub use endpoint::{Address, AddressError, EndpointId};
pub use engine::{EngineKind, UnknownEngine};
pub use filter::{
    AttributeLimit, Filter, LabelSelector, Operator, PrefixAffinity, Requirement, TtftSource,
    UsageLimits,
};
pub use flow::{
    Arrival, Band, Capacity, Fairness, Flow, FlowControl, LeastAttained, Ordering, Rank,
    UsageLimit, WaitId, Waiting, wanted_ttft,
};
pub use handler::{Decider, Handler, Outcome, Stages};
pub use head::{Course, Head, MODEL_HEADERS, OWNED_HEADERS, prefers_cached};
pub use health::{Health, Verdict};
pub use identity::{Identity, Source};
pub use kv_source::KvSource;
pub use latency::{
    Composite, HeadroomRule, LatencyScoring, Objectives, Occupancy, Prediction, Prospect, Tier,
    Unpredicted, is_denied,
};
pub use lease::{Eagerness, Lease, LeaseState, lease_length, lease_state};
pub use ledger::{Ledger, Load, ROW_LIFETIME, Row, key as ledger_key};
pub use load_report::{LoadReport, UnknownReportFormat};
pub use mapping::{AttributeError, Engine, EngineMapping, Mapped, MetricSpec, SpecError};
pub use measure::Measure;
pub use metrics::{EndpointMetrics, Lora};
pub use models::{ServedModel, read_gpu_usage, read_models};
pub use picker::{Picker, PickerKind};
pub use plan::{Foretelling, Plan, Report};
pub use pool::{Arrived, Asking, Labels, Pool, PoolOptions, RunId, Troubles, Turn};
pub use predict::{Features, Predictor};
pub use producers::{OutputEstimate, PrefixCache, Producers};
pub use profile::{Profile, Ranked, WeightedScorer};
pub use reading::{PageError, Reading, Reporter, Warning, detect_engine, read_page, read_page_of};
pub use refusal::Refusal;
pub use registry::{Affirmed, Registration, affirm, registered};
pub use request::{GROUP_BLOCKS_MAX, MEDIA_MAX, Media, MediaKind, Prompt, Request, RequestFault};
pub use response::{
    PublicName, ResponseError, ResponseKind, ResponseReader, ResponseSummary, Usage,
};
pub use ring::{
    Done, ENTRIES_MAX, Entry, Judged, MediaSent, Placed, RING_RECORDS, Ring, entry_number,
};
pub use saturation::{Concurrency, Detector, TokenLoad, Utilization};
pub use scan::{MODELS_MAX, ModelPlace, RenameFault, RequestScanner};
pub use score::{
    ActiveRequests, AttributeRange, HeaderLabel, LeastCost, PrefixShare, Score, ScorerKind,
};
pub use scrape::{Answer, Scrape, ScrapeFailure, ScrapeOutcome, Scraper};
pub use session::{Affinity, AffinityBy, SessionIds, SessionKey};
pub use shape::Shape;
pub use share::Share;
pub use shared::{LocalData, SharedData, Version};
pub use snapshot::{EndpointState, GpuUsage, Snapshot, View, generation, publish, stored};
pub use sorted::SortedMap;
pub use sources::{DataSource, DataSources, Engines, Target};
pub use stats::{Queued, Stat};
pub use ticket::{Answered, Pick, Ticket};
pub use time::{Span, Timestamp};
pub use timing::{Timed, Timing};
pub use topology::{Level, Topology};
pub use trust::{DEFAULT_FLOW, FAIRNESS_ID_BYTES_MAX, Trust, TrustSource};
pub use twin::{Held, Twins};
pub use whose::Pools;
