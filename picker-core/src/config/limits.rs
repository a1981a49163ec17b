//! How large a configuration may be, and what holds where it says nothing.

use crate::time::Span;

/// Scraping more often costs more than it tells: engines refresh their gauges once per step, some
/// 20 ms.
pub const SCRAPE_INTERVAL_MIN: Span = Span::from_millis(50);

/// Mistakes reported one by one; a log line with more helps nobody.
pub const CONFIG_ERRORS_MAX: usize = 100;

/// Bytes of a configuration: what fits in one gRPC message of the usual size.
pub(super) const CONFIG_BYTES_MAX: usize = 4 << 20;

/// Pools of one filter; each has its own shared state and its own tick.
pub(super) const POOLS_MAX: usize = 64;

/// Endpoints of one pool; the snapshot and the ledger are sized for it.
pub(crate) const ENDPOINTS_MAX: usize = 2048;

/// Labels of one endpoint, as many as a busy Kubernetes pod has, and more.
pub(crate) const LABELS_MAX: usize = 64;

/// Objectives of one pool; each may be a band of its own.
pub(super) const OBJECTIVES_MAX: usize = 64;

/// Names of models of one pool: each may be an adapter.
pub(super) const MODELS_MAX: usize = 1024;

/// Rules of one pool that give models other names; each is looked at for every request.
pub(super) const REWRITES_MAX: usize = 256;

/// Names of one such rule, as many as an `InferenceModelRewrite` may have and more.
pub(super) const REWRITE_MATCHES_MAX: usize = 64;

/// Targets of one such rule, likewise.
pub(super) const REWRITE_TARGETS_MAX: usize = 16;

/// The most that the weight of a target may be, the usual one of routes.
pub(super) const REWRITE_WEIGHT_MAX: u64 = 1_000_000;

/// Base models whose adapters are named to other routes, and adapters of one.
pub(super) const BASE_MODELS_MAX: usize = 256;

/// Headers that one thing is looked for in, and keys that lead to a value in dynamic metadata.
pub(super) const TRUST_NAMES_MAX: usize = 16;

/// Values of one list in `match`.
pub(super) const MATCH_VALUES_MAX: usize = 256;

/// Mount points of the APIs; each is tried for every request.
pub(super) const PATH_PREFIXES_MAX: usize = 64;

/// Paths that administer a server: four times the default ones.
pub(super) const ADMIN_PATHS_MAX: usize = 128;

/// Plugins of one picker and references of one profile.
pub(super) const PLUGINS_MAX: usize = 64;

/// Endpoints named in one destination: a header of some 1.5 KB, well below what proxies take.
pub(super) const DESTINATIONS_MAX: i64 = 64;

/// Profiles of one picker: more than any handler runs.
pub(super) const PROFILES_MAX: usize = 64;

/// The largest weight: totals stay far from where sums of doubles lose the small ones.
pub(super) const WEIGHT_MAX: f64 = 1_000_000.0;

/// Bytes of a text that nothing else limits: clusters, routes, paths, seeds.
pub(crate) const TEXT_BYTES_MAX: usize = 1024;

/// Bytes of a pool's name, as of a DNS label.
pub(super) const POOL_NAME_BYTES_MAX: usize = 63;

/// Tokens a cache is said to hold: a hundred times what the largest servers report.
pub(super) const CAPACITY_TOKENS_MAX: u64 = 100_000_000;

/// The least body limit; nothing is too small to try it out with.
pub(super) const REQUEST_BODY_BYTES_MIN: u64 = 1;

/// The largest body limit: a quarter of what a wasm module can address.
pub(super) const REQUEST_BODY_BYTES_MAX: u64 = 1 << 30;

/// The default body limit: prompts of a million tokens with room for pictures.
pub(crate) const REQUEST_BODY_BYTES: u64 = 32 << 20;

/// The shortest and the longest time that means anything here.
pub(super) const DURATIONS: (Span, Span) = (Span::from_millis(1), Span::from_millis(3_600_000));

/// The default interval: stale by two steps of a busy engine.
pub(super) const SCRAPE_INTERVAL: Span = Span::from_millis(100);

/// The default timeout: a server that answers later is in trouble.
pub(super) const SCRAPE_TIMEOUT: Span = Span::from_millis(1000);

/// The default age limit, the reference picker's.
pub(super) const STALENESS_THRESHOLD: Span = Span::from_millis(2000);

/// The default cluster, which the shipped Envoy files define.
pub(super) const SCRAPE_CLUSTER: &str = "picker_endpoints";

/// How often a list of endpoints may be asked for, and how long an answer may take. A watch of
/// Kubernetes lasts whole seconds, and one is enough to be followed within one.
pub(super) const DISCOVERY_INTERVALS: (Span, Span) =
    (Span::from_millis(100), Span::from_millis(3_600_000));

/// The default interval of discovery: pods come and go less often.
pub(super) const DISCOVERY_INTERVAL: Span = Span::from_millis(1000);

/// The default timeout of the Kubernetes API, which may have to read a page from its store.
pub(super) const DISCOVERY_TIMEOUT: Span = Span::from_millis(5000);

/// How long a list that has lost more than half may be doubted.
pub(super) const HOLDS: (Span, Span) = (Span(0), Span::from_millis(3_600_000));

/// The default cluster of the Kubernetes API, which the shipped Envoy file defines.
pub(super) const KUBERNETES_CLUSTER: &str = "picker_kube";

/// The name by which pods know the Kubernetes API.
pub(super) const KUBERNETES_HOST: &str = "kubernetes.default.svc";

/// Ports of one pod, as many as an `InferencePool` may name.
pub(super) const TARGET_PORTS_MAX: usize = 8;

/// The header of the endpoint picker protocol.
pub(super) const DESTINATION_HEADER: &str = "x-gateway-destination-endpoint";

/// The version of the `picker` document.
pub(super) const PICKER_API_VERSION: &str = "llm-d.ai/v1alpha1";

/// Bytes of the shortest key: 16 random letters and digits are some 95 bits.
pub(super) const SESSION_KEY_BYTES_MIN: usize = 16;

/// How a mistake in the document as a whole is addressed.
pub(super) const ROOT: &str = "configuration";
