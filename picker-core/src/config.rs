//! The plugin configuration: bytes in, a whole [`Config`] or all its mistakes out.
//!
//! The bytes are a JSON object, or a serialized `google.protobuf.Struct`, which is what an Envoy
//! file with a `Struct` becomes in wasm; both give the same tree and the same answers. Every key
//! has a default or is said to be missing, every other key is refused, and nothing below this
//! module sees the text again.

mod admin;
mod catalogue;
mod discovery;
mod error;
mod filter;
mod limits;
mod names;
mod nearest;
mod node;
mod picker;
mod pool;
mod protobuf;
mod schema;
mod show;
mod table;
mod trust;
mod units;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use serde_json::Value;

use crate::endpoint::Address;
use crate::engine::EngineKind;
use crate::plan::Plan;
use crate::pool::Labels;
use crate::rewrite::RewriteRule;
use crate::session::SessionKey;
use crate::sort::sort_by;
use crate::time::Span;
use crate::trust::Trust;

pub use discovery::{DiscoveryConfig, DiscoverySource, KubernetesSubject};
pub use error::{AddressFault, Cause, ConfigError, ConfigWarning, Wanted};
pub(crate) use limits::REQUEST_BODY_BYTES;
use limits::*;
pub use limits::{CONFIG_ERRORS_MAX, SCRAPE_INTERVAL_MIN};
pub(crate) use limits::{ENDPOINTS_MAX, LABELS_MAX, TEXT_BYTES_MAX};
use node::{Node, Report};
pub use schema::{config_schema, picker_schema};

/// What one instance of the plugin is for.
#[derive(Clone, PartialEq, Debug)]
pub enum Role {
    /// The wasm service that collects metrics: its configuration is empty, it learns the pools from
    /// shared state.
    Service,
    /// The filter instance that serves the picker's own pages (`serve: page`).
    Page,
    /// The filter that picks endpoints.
    Filter(Box<Config>),
}

/// The configuration of the filter.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// At least one, unless routes are told the model; a request belongs to one that matches and that
    /// serves its model.
    pub pools: Vec<PoolConfig>,
    /// How Envoy is told the pick.
    pub destination: Destination,
    /// Where the APIs are mounted.
    pub paths: Paths,
    /// The key of session tokens, where all Envoys are to have the same.
    pub session_key: Option<SessionKey>,
    /// Whether a request whose body cannot be read is refused instead of routed by load.
    pub strict: bool,
    /// Whether a request is refused that names a model which no pool serves.
    pub strict_models: bool,
    /// Who answers which models there are.
    pub list_models: ListModels,
    /// Whether routes are told the model of a request by headers, and which base models have which
    /// adapters.
    pub model_headers: Option<Vec<BaseModel>>,
    /// Where the priorities and the tenants of requests are found.
    pub trust: Trust,
    /// What was read differently from what is written.
    pub warnings: Vec<ConfigWarning>,
}

/// Who answers which models there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ListModels {
    /// `whenEmpty`: the picker while no endpoint is ready, else an endpoint.
    #[default]
    WhenEmpty,
    /// `always`: the picker, with the models of all pools that match.
    Always,
    /// `never`: an endpoint, if there is one.
    Never,
}

/// A model and what is fine-tuned of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BaseModel {
    /// Its name.
    pub model: String,
    /// The names of its adapters.
    pub adapters: Vec<String>,
}

/// One pool.
#[derive(Clone, PartialEq, Debug)]
pub struct PoolConfig {
    /// Unique; also the key of the pool's shared state.
    pub name: String,
    /// Which requests are the pool's.
    pub matches: Match,
    /// The names of the models that it serves, and prefixes of such names with a `*` behind, none
    /// twice; every model when there is none.
    pub models: Vec<String>,
    /// The rules by which models get the names that they have at the servers, no name in two of
    /// them.
    pub rewrites: Vec<RewriteRule>,
    /// Whether answers show the name that the client has used.
    pub public_names: bool,
    /// Which pool serves its requests while it has no endpoint.
    pub fallback: Option<Fallback>,
    /// The engine of endpoints whose labels name none.
    pub engine: EngineKind,
    /// At least one, no address twice, all of them on active ports; none where they are discovered.
    pub endpoints: Vec<EndpointConfig>,
    /// Where the endpoints come from when they are not listed.
    pub discovery: Option<DiscoveryConfig>,
    /// How metrics are collected.
    pub scrape: ScrapeConfig,
    /// What is assumed about the endpoints' prefix caches.
    pub cache: CacheConfig,
    /// How much requests matter, by names that they may give; no name twice.
    pub objectives: Vec<Objective>,
    /// How endpoints are chosen.
    pub plan: Plan,
    /// Whether every choice leaves the totals of all endpoints in filter state.
    pub emit_scores: bool,
    /// What happens to a request when no endpoint is eligible.
    pub failure_mode: FailureMode,
    /// The pool's limits.
    pub limits: Limits,
}

/// The pool that stands in for another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fallback {
    /// Its name.
    pub pool: String,
    /// The name that the model has there; by its own rules when it is `None`.
    pub model: Option<String>,
}

/// Which requests belong to a pool: those that one value of every list that has values fits. No
/// lists: every request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Match {
    /// Names of Envoy clusters.
    pub clusters: Vec<String>,
    /// Names of Envoy routes.
    pub routes: Vec<String>,
    /// Host names in lower case, without port.
    pub hosts: Vec<String>,
    /// What the path begins with.
    pub path_prefixes: Vec<String>,
}

/// One endpoint of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointConfig {
    /// Where it listens.
    pub address: Address,
    /// Its labels; several endpoints may have the same.
    pub labels: Arc<Labels>,
    /// Its engine: the label `llm-d.ai/engine-type`, else the pool's.
    pub engine: EngineKind,
}

/// How much requests of a kind matter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Objective {
    /// Its name.
    pub name: String,
    /// The larger, the more they matter; below 0 they may be refused when the pool is full.
    pub priority: i32,
}

/// How the metrics of a pool are collected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScrapeConfig {
    /// The Envoy cluster that reaches any endpoint by address.
    pub cluster: String,
    /// From one scrape of an endpoint to the next; at least [`SCRAPE_INTERVAL_MIN`].
    pub interval: Span,
    /// When a scrape is given up.
    pub timeout: Span,
    /// The path of the metrics page, the engine's usual one by default.
    pub path: String,
    /// The age at which metrics are stale; longer than the interval.
    pub staleness_threshold: Span,
}

/// What is assumed about the prefix cache of every endpoint of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// How much an endpoint holds; `None` is what its metrics page says.
    pub capacity_tokens: Option<u64>,
    /// What block hashes start from: pools with different seeds share nothing.
    pub hash_seed: String,
}

/// What happens to a request when no endpoint is eligible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FailureMode {
    /// `FailOpen`: Envoy balances as it can.
    #[default]
    Open,
    /// `FailClose`: the request is refused.
    Closed,
}

/// The limits of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// A longer body is refused.
    pub request_body_bytes: u64,
    /// What all workers of this Envoy have in flight at one endpoint at most; at least 1.
    pub requests_per_endpoint: Option<u32>,
}

/// How Envoy is told the pick.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Destination {
    /// In this request header, in lower case.
    Header(String),
    /// In the filter state that an `ORIGINAL_DST` cluster reads.
    FilterState {
        /// Whether the headers of a request wait here for its body. Where a host cannot do that,
        /// a filter behind this one has to hold the request.
        holds_headers: bool,
    },
}

/// What the paths of requests mean.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Paths {
    /// What may stand before an API's path: `/openai` for `/openai/v1/chat/completions`.
    pub prefixes: Vec<String>,
    /// Ends of paths by which a server is administered; requests for them are refused, for they
    /// would reach one server or another.
    pub admin: Vec<String>,
}

/// Reads a plugin configuration: the role, or every mistake there is.
///
/// Empty bytes are [`Role::Service`]. After [`CONFIG_ERRORS_MAX`] mistakes the rest is only
/// counted.
pub fn parse(bytes: &[u8]) -> Result<Role, Vec<ConfigError>> {
    if bytes.trim_ascii().is_empty() {
        return Ok(Role::Service);
    }
    let tree = tree(bytes).map_err(|cause| {
        let path = ROOT.to_string();
        vec![ConfigError { path, cause }]
    })?;
    let report = Report::new();
    let role = Node::root(&tree, &report).object(filter::role);
    let (errors, warnings) = report.finish();
    let mut role = role.filter(|_| errors.is_empty()).ok_or(errors)?;
    if let Role::Filter(config) = &mut role {
        config.warnings = warnings;
    }
    Ok(role)
}

/// Reads an `EndpointPickerConfig` by itself: what it says and what was read differently from what
/// is written, or every mistake there is.
pub fn parse_picker(bytes: &[u8]) -> Result<(Plan, Vec<ConfigWarning>), Vec<ConfigError>> {
    let tree = tree(bytes).map_err(|cause| {
        let path = ROOT.to_string();
        vec![ConfigError { path, cause }]
    })?;
    let report = Report::new();
    let plan = Node::root(&tree, &report).object(|it| picker::document(it, &[]));
    let (errors, warnings) = report.finish();
    let plan = plan.filter(|_| errors.is_empty()).ok_or(errors)?;
    Ok((plan, warnings))
}

impl PoolConfig {
    /// The labels of endpoints that have some, in the order of addresses.
    pub fn labels(&self) -> Vec<(Address, Labels)> {
        let labelled = self.endpoints.iter().filter(|it| !it.labels.is_empty());
        let mut labels: Vec<(Address, Labels)> = labelled
            .map(|it| (it.address, it.labels.to_vec()))
            .collect();
        sort_by(&mut labels, |(one, _), (other, _)| one.cmp(other));
        labels
    }

    /// The models that it is known to serve while there is no endpoint to ask: those that are named,
    /// not those that a pattern fits.
    pub fn listed_models(&self) -> impl Iterator<Item = &str> {
        let names = self.models.iter();
        let names = names.chain(self.rewrites.iter().flat_map(|it| &it.models));
        names.map(String::as_str).filter(|it| !it.contains('*'))
    }

    /// How much a request matters that names this objective; 0 when there is none of that name.
    pub fn priority_of(&self, name: Option<&str>) -> i32 {
        name.and_then(|it| self.objective(it)).unwrap_or_default()
    }

    /// The priority of the objective of this name.
    pub(crate) fn objective(&self, name: &str) -> Option<i32> {
        let objective = self.objectives.iter().find(|it| it.name == name);
        objective.map(|it| it.priority)
    }
}

impl Match {
    /// Whether every request matches.
    pub fn is_every(&self) -> bool {
        *self == Self::default()
    }

    /// Whether every request that fits `other` fits this one too.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let covers = |ours: &[String], theirs: &[String], fits: fn(&str, &str) -> bool| {
            let covered = |their: &String| ours.iter().any(|our| fits(our, their));
            ours.is_empty() || (!theirs.is_empty() && theirs.iter().all(covered))
        };
        let equal = |our: &str, their: &str| our == their;
        covers(&self.clusters, &other.clusters, equal)
            && covers(&self.routes, &other.routes, equal)
            && covers(&self.hosts, &other.hosts, equal)
            && covers(&self.path_prefixes, &other.path_prefixes, |our, their| {
                their.starts_with(our)
            })
    }
}

/// The document as a tree, whichever form it has.
fn tree(bytes: &[u8]) -> Result<Value, Cause> {
    if bytes.len() > CONFIG_BYTES_MAX {
        return Err(Cause::TooMany {
            what: "bytes",
            count: bytes.len(),
            most: CONFIG_BYTES_MAX,
        });
    }
    // A Struct begins with a line feed, which is white space in JSON. But every field of it has a
    // tag that is a control character, and JSON has no control characters but white space.
    let is_control = |byte: &u8| *byte < b' ' && !byte.is_ascii_whitespace();
    if !bytes.starts_with(b"{") && bytes.iter().any(is_control) {
        return protobuf::decode(bytes).map_err(|at| Cause::NotStruct { at });
    }
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(Cause::NotJson);
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let text = error.to_string();
        // The place is in the text too.
        let reason = text.split(" at line ").next().unwrap_or_default();
        Cause::Syntax {
            line: error.line(),
            column: error.column(),
            reason: reason.into(),
        }
    })
}

/// Whether `text` is a header name that a filter may set.
fn is_header_name(text: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    text.len() <= TEXT_BYTES_MAX
        && !text.is_empty()
        && text.bytes().all(is_token)
        && !text.eq_ignore_ascii_case("host")
}

/// Whether `text` can stand in a header as it is.
pub fn is_header_value(text: &str) -> bool {
    let is_good = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    text.len() <= TEXT_BYTES_MAX && text.trim() == text && text.bytes().all(is_good)
}

/// Whether `text` is the path of a request, without query.
fn is_path(text: &str) -> bool {
    let is_path_byte = |byte: u8| byte.is_ascii_graphic() && byte != b'?' && byte != b'#';
    text.len() <= TEXT_BYTES_MAX && text.starts_with('/') && text.bytes().all(is_path_byte)
}

#[cfg(test)]
mod tests;
