//! The pools.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::str::FromStr;

use super::error::{AddressFault, Cause, ConfigWarning, Wanted};
use super::node::{Node, Object};
use super::{
    CAPACITY_TOKENS_MAX, CacheConfig, DURATIONS, ENDPOINTS_MAX, EndpointConfig, FailureMode,
    LABELS_MAX, Limits, MATCH_VALUES_MAX, Match, OBJECTIVES_MAX, Objective, POOL_NAME_BYTES_MAX,
    POOLS_MAX, PoolConfig, REQUEST_BODY_BYTES, REQUEST_BODY_BYTES_MAX, REQUEST_BODY_BYTES_MIN,
    SCRAPE_CLUSTER, SCRAPE_INTERVAL, SCRAPE_INTERVAL_MIN, SCRAPE_TIMEOUT, STALENESS_THRESHOLD,
    ScrapeConfig, TEXT_BYTES_MAX, discovery, is_path, names, picker,
};
use crate::endpoint::Address;
use crate::engine::EngineKind;
use crate::sorted::SortedMap;
use crate::sources::Engines;

/// The pools, each with a name of its own and requests of its own.
///
/// There may be none where `others` are told the model of a request.
pub(super) fn pools(root: &mut Object<'_>, others: bool) -> Vec<PoolConfig> {
    let list = if others {
        root.key("pools")
    } else {
        root.needed("pools", Wanted::Pools)
    };
    let Some(list) = list else {
        return Vec::new();
    };
    let nodes = list.filled_list(POOLS_MAX, Wanted::Pools);
    // What is wrong in itself is not compared with others.
    let mut good: Vec<(&Node<'_>, PoolConfig)> = Vec::with_capacity(nodes.len());
    for node in &nodes {
        let before = node.mistakes();
        let Some(pool) = node.object(pool) else {
            continue;
        };
        if node.mistakes() > before {
            continue;
        }
        if let Some((first, _)) = good.iter().find(|(_, it)| it.name == pool.name) {
            node.fail(Cause::Duplicate {
                what: "name",
                value: pool.name.clone(),
                first: first.path().to_string(),
            });
        }
        if let Some((by, _)) = good.iter().find(|(_, it)| it.covers(&pool)) {
            let by = by.path().to_string();
            node.fail(Cause::Shadowed { by });
        }
        good.push((node, pool));
    }
    if good.len() == nodes.len() {
        let pools: Vec<_> = good.iter().map(|(node, pool)| (*node, pool)).collect();
        names::check_fallbacks(&pools);
    }
    good.into_iter().map(|(_, pool)| pool).collect()
}

/// One pool. Where something is wrong the result is only good for finding more mistakes.
fn pool(pool: &mut Object<'_>) -> PoolConfig {
    let name = pool.needed("name", Wanted::PoolName);
    let name = name.and_then(|it| it.text_that(Wanted::PoolName, is_pool_name));
    let name = name.unwrap_or_default().to_string();
    let matches = pool.section("match", matches);
    let models = names::models(pool);
    let engine = pool.key("engine").and_then(|it| engine(&it));
    let engine = engine.unwrap_or_default();
    // Which engines there are is known when the plan is read.
    let discovery = pool.key("discovery");
    let list = match &discovery {
        None => pool.needed("endpoints", Wanted::Endpoints),
        Some(_) => discovery::refuse_list(pool),
    };
    let discovery = discovery.and_then(|it| discovery::discovery(&it));
    let scrape = pool.section("scrape", |it| scrape(it, engine));
    let cache = pool.section("cache", |it| cache(it, &name));
    let objectives = objectives(pool);
    let priorities: Vec<i32> = objectives.iter().map(|it| it.priority).collect();
    let plan = picker::plan(pool, &priorities);
    if let Some(interval) = plan.sources.metrics.interval
        && scrape.staleness_threshold <= interval
    {
        pool.fail_at(
            "scrape.stalenessThreshold",
            Cause::StaleBetweenScrapes { interval },
        );
    }
    PoolConfig {
        matches,
        models,
        rewrites: names::rewrites(pool),
        public_names: pool
            .key("publicNames")
            .and_then(|it| it.boolean())
            .unwrap_or(true),
        fallback: names::fallback(pool),
        engine,
        endpoints: list.map_or_else(Vec::new, |it| endpoints(&it, engine, &plan.sources.engines)),
        discovery,
        scrape,
        cache,
        objectives,
        plan,
        emit_scores: pool
            .key("emitScores")
            .and_then(|it| it.boolean())
            .unwrap_or(false),
        failure_mode: pool
            .key("failureMode")
            .and_then(|it| it.choice("failure mode", &FAILURE_MODES))
            .unwrap_or_default(),
        limits: pool.section("limits", limits),
        name,
    }
}

fn matches(section: &mut Object<'_>) -> Match {
    let mut texts = |key, wanted, is_good| section.texts(key, MATCH_VALUES_MAX, wanted, is_good);
    let hosts = |texts: Vec<String>| texts.iter().map(|it| it.to_ascii_lowercase()).collect();
    Match {
        clusters: texts("clusters", Wanted::Name, is_name),
        routes: texts("routes", Wanted::Name, is_name),
        hosts: hosts(texts("hosts", Wanted::Host, is_host)),
        path_prefixes: texts("pathPrefixes", Wanted::Path, is_path),
    }
}

/// Whether no node before had this name; it fails when one had. `known` has those that there were,
/// and where.
pub(super) fn is_new(known: &mut Vec<(String, String)>, name: &str, node: &Node<'_>) -> bool {
    if let Some((_, first)) = known.iter().find(|(it, _)| it == name) {
        node.fail(Cause::Duplicate {
            what: "name",
            value: name.to_string(),
            first: first.clone(),
        });
        return false;
    }
    known.push((name.to_string(), node.path().to_string()));
    true
}

fn engine(node: &Node<'_>) -> Option<EngineKind> {
    let all = EngineKind::ALL.map(|it| (it.name(), it));
    node.choice("engine", &all)
}

/// The built-in engine that an endpoint's label names; `None` for one that a plugin describes.
fn engine_of(node: &Node<'_>, engines: &Engines) -> Option<EngineKind> {
    let built_in = EngineKind::ALL.iter().map(|it| (it.name(), Some(*it)));
    let described = engines.mappings.iter().map(|it| (it.name(), None));
    let all: Vec<_> = built_in.chain(described).collect();
    node.choice("engine", &all).flatten()
}

fn endpoints(list: &Node<'_>, engine: EngineKind, engines: &Engines) -> Vec<EndpointConfig> {
    let nodes = list.filled_list(ENDPOINTS_MAX, Wanted::Endpoints);
    let mut places: SortedMap<Address, String> = SortedMap::default();
    let mut endpoints = Vec::with_capacity(nodes.len());
    for node in nodes {
        let Some(endpoint) = node.object(|it| endpoint(it, engine, engines)).flatten() else {
            continue;
        };
        match places.get(&endpoint.address) {
            Some(first) => node.fail(Cause::Duplicate {
                what: "address",
                value: endpoint.address.to_string(),
                first: first.clone(),
            }),
            None => places.insert(endpoint.address, node.path().to_string()),
        }
        endpoints.push(endpoint);
    }
    let known = endpoints.len();
    endpoints.retain(EndpointConfig::is_active);
    if endpoints.is_empty() && known > 0 {
        list.fail(Cause::told(
            "no endpoint has a port that its label llm-d.ai/active-ports names".into(),
            "name ports of endpoints, or remove the label".into(),
        ));
    }
    endpoints
}

fn endpoint(
    endpoint: &mut Object<'_>,
    engine: EngineKind,
    engines: &Engines,
) -> Option<EndpointConfig> {
    let address = endpoint.needed("address", Wanted::Address);
    let labels = endpoint.key("labels").map(|it| it.entries(LABELS_MAX));
    let mut engine = engine;
    let mut pairs = Vec::new();
    for (label, node) in labels.into_iter().flatten() {
        let Some(value) = node.text() else { continue };
        if label == engines.label() {
            engine = engine_of(&node, engines).unwrap_or(engine);
        }
        pairs.push((label.to_string(), value.to_string()));
    }
    Some(EndpointConfig {
        address: address.and_then(|it| read_address(&it))?,
        labels: pairs.into(),
        engine,
    })
}

fn read_address(node: &Node<'_>) -> Option<Address> {
    let text = node.text_that(Wanted::Address, |it| !it.is_empty())?;
    let address = Address::from_str(text).ok();
    let fault = match address {
        Some(it) if it.is_one_host() => return address,
        Some(_) => AddressFault::NotOneHost,
        None => address_fault(text),
    };
    let address = text.chars().take(ADDRESS_CHARS_SHOWN).collect();
    node.fail(Cause::Address { address, fault });
    None
}

/// What is wrong with a text that is no address: the first thing a person would put right.
fn address_fault(text: &str) -> AddressFault {
    if text.contains("://") {
        return AddressFault::Scheme;
    }
    if text.contains(char::is_whitespace) {
        return AddressFault::WhiteSpace;
    }
    if text.contains('/') {
        return AddressFault::Path;
    }
    let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    if IpAddr::from_str(bare.unwrap_or(text)).is_ok() {
        // Without brackets, the last group of an IPv6 address could be a port as well.
        let is_bare_ipv6 = bare.is_none() && text.contains(':');
        return if is_bare_ipv6 {
            AddressFault::Brackets
        } else {
            AddressFault::NoPort
        };
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return AddressFault::HostName;
    };
    if port.parse::<u16>().is_ok_and(|port| port > 0) {
        return match IpAddr::from_str(host) {
            Ok(_) => AddressFault::Brackets,
            Err(_) => AddressFault::HostName,
        };
    }
    AddressFault::Port
}

fn scrape(section: &mut Object<'_>, engine: EngineKind) -> ScrapeConfig {
    let cluster = section.key("cluster");
    let cluster = cluster.and_then(|it| it.text_that(Wanted::Name, is_name));
    let interval_node = section.key("interval");
    let interval = interval_node
        .as_ref()
        .map(|it| it.duration_within(DURATIONS));
    let mut interval = interval.flatten().unwrap_or(SCRAPE_INTERVAL);
    if let Some(node) = interval_node.filter(|_| interval < SCRAPE_INTERVAL_MIN) {
        node.warn(ConfigWarning::IntervalRaised {
            path: node.path().to_string(),
            found: interval,
        });
        interval = SCRAPE_INTERVAL_MIN;
    }
    let mut duration = |key, default| {
        let duration = section
            .key(key)
            .and_then(|it| it.duration_within(DURATIONS));
        duration.unwrap_or(default)
    };
    let timeout = duration("timeout", SCRAPE_TIMEOUT);
    let staleness_threshold = duration("stalenessThreshold", STALENESS_THRESHOLD);
    if staleness_threshold <= interval {
        section.fail_at(
            "stalenessThreshold",
            Cause::StaleBetweenScrapes { interval },
        );
    }
    let path = section.key("path");
    let path = path.and_then(|it| it.text_that(Wanted::Path, is_path));
    ScrapeConfig {
        cluster: cluster.unwrap_or(SCRAPE_CLUSTER).to_string(),
        interval,
        timeout,
        path: path.unwrap_or_else(|| engine.metrics_path()).to_string(),
        staleness_threshold,
    }
}

fn cache(section: &mut Object<'_>, pool_name: &str) -> CacheConfig {
    let capacity = section.key("capacityTokens").filter(|it| !it.is("auto"));
    let seed = section.key("hashSeed");
    let seed = seed.and_then(|it| it.text_that(Wanted::Name, is_name));
    CacheConfig {
        capacity_tokens: capacity
            .and_then(|it| it.integer_within(Wanted::Capacity, 1, CAPACITY_TOKENS_MAX)),
        hash_seed: seed.unwrap_or(pool_name).to_string(),
    }
}

fn objectives(pool: &mut Object<'_>) -> Vec<Objective> {
    let list = pool.key("objectives").map(|it| it.list(OBJECTIVES_MAX));
    let mut known = Vec::new();
    let objectives = list.into_iter().flatten().filter_map(|node| {
        let objective = node.object(objective).flatten()?;
        is_new(&mut known, &objective.name, &node).then_some(objective)
    });
    objectives.collect()
}

fn objective(objective: &mut Object<'_>) -> Option<Objective> {
    let name = objective.needed("name", Wanted::Name);
    let priority = objective.key("priority").and_then(|it| it.small_integer());
    Some(Objective {
        name: name?.text_that(Wanted::Name, is_name)?.to_string(),
        priority: priority.unwrap_or_default(),
    })
}

fn limits(section: &mut Object<'_>) -> Limits {
    let bytes = section.key("requestBodyBytes");
    let bytes = bytes.and_then(|it| it.size_within(REQUEST_BODY_BYTES_MIN, REQUEST_BODY_BYTES_MAX));
    let requests = section.key("requestsPerEndpoint");
    let requests =
        requests.and_then(|it| it.integer_within(Wanted::Integer, 1, u64::from(u32::MAX)));
    Limits {
        request_body_bytes: bytes.unwrap_or(REQUEST_BODY_BYTES),
        requests_per_endpoint: requests.and_then(|it| u32::try_from(it).ok()),
    }
}

/// Whether `text` is some name.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= TEXT_BYTES_MAX
}

/// Whether `text` can be a pool's name: a DNS label or several, so that it can stand in a key and
/// in a metric.
fn is_pool_name(text: &str) -> bool {
    let is_end =
        |byte: Option<u8>| byte.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
    let is_middle = |byte: u8| is_end(Some(byte)) || matches!(byte, b'-' | b'.');
    text.len() <= POOL_NAME_BYTES_MAX
        && text.bytes().all(is_middle)
        && is_end(text.bytes().next())
        && is_end(text.bytes().next_back())
}

/// Whether `text` is one host name; patterns are none.
fn is_host(text: &str) -> bool {
    let is_host_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    is_name(text) && text.bytes().all(is_host_byte)
}

/// The names of [`FailureMode`] in the Gateway API Inference Extension.
pub(super) const FAILURE_MODES: [(&str, FailureMode); 2] = [
    ("FailOpen", FailureMode::Open),
    ("FailClose", FailureMode::Closed),
];

/// How much of a wrong address is repeated.
const ADDRESS_CHARS_SHOWN: usize = 60;
