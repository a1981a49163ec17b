//! Where the collector asks, and what it makes of the answers.
//!
//! Every endpoint has a metrics page. A list of its models and a page of its GPUs are asked for
//! where the configuration wants them, at intervals of their own.

use alloc::string::String;
use alloc::vec::Vec;
use core::str::FromStr;

use crate::config::{EndpointConfig, PoolConfig, SCRAPE_INTERVAL_MIN};
use crate::engine::EngineKind;
use crate::mapping::{Engine, EngineMapping};
use crate::time::Span;

/// What a document says about where numbers of endpoints come from.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DataSources {
    /// Whose pages mean what.
    pub engines: Engines,
    /// The metrics page, in what differs from the pool's `scrape`.
    pub metrics: DataSource,
    /// The list of models; `None` when it is not asked for.
    pub models: Option<DataSource>,
    /// The page of the GPUs, as DCGM Exporter writes it; `None` when it is not asked for.
    pub gpus: Option<DataSource>,
}

/// Whose pages mean what.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Engines {
    /// The label that names an endpoint's engine; `None` for the usual one.
    pub label: Option<String>,
    /// The engine of endpoints whose labels name no known one; `None` for the pool's.
    pub default: Option<String>,
    /// Engines that a user describes, which come before built-in ones of the same name.
    pub mappings: Vec<EngineMapping>,
}

/// A place to ask at; what is not given is the usual for it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DataSource {
    /// The path.
    pub path: Option<String>,
    /// The port in place of the endpoint's.
    pub port: Option<u16>,
    /// From one question to the next.
    pub interval: Option<Span>,
}

/// What an endpoint is asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Target {
    /// Its metrics page.
    Metrics,
    /// The models it serves.
    Models,
    /// The page of its GPUs.
    Gpus,
}

/// A place to ask at, in full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) path: &'a str,
    /// The endpoint's own when there is none.
    pub(crate) port: Option<u16>,
    pub(crate) interval: Span,
}

/// Which engine an endpoint has: a built-in one, or the user's at this place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EngineChoice {
    BuiltIn(EngineKind),
    Mapped(usize),
}

impl Target {
    /// Every target.
    pub const ALL: [Self; 3] = [Self::Metrics, Self::Models, Self::Gpus];
}

impl DataSources {
    /// How old the use of GPUs may be that is still believed, where metrics may be `threshold` old;
    /// `None` when GPUs are not asked for.
    ///
    /// One question may stay without an answer.
    pub(crate) fn gpus_threshold(&self, threshold: Span) -> Option<Span> {
        let interval = self.gpus.as_ref()?.interval.unwrap_or(SIDE_INTERVAL);
        Some(threshold.max(Span(interval.0.saturating_mul(2))))
    }
}

impl Engines {
    /// The label that names an endpoint's engine.
    pub(crate) fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(ENGINE_LABEL)
    }

    /// The engine that the labels of `endpoint` name, else the default.
    pub(crate) fn of(&self, endpoint: &EndpointConfig) -> EngineChoice {
        let named = endpoint
            .label(self.label())
            .filter(|name| !name.is_empty())
            .or_else(|| endpoint.label(OLD_ENGINE_LABEL));
        let named = named.and_then(|name| self.named(name));
        let default = || self.default.as_ref().and_then(|name| self.named(name));
        let pools = || EngineChoice::BuiltIn(endpoint.engine);
        named.or_else(default).unwrap_or_else(pools)
    }

    /// What is known of the chosen engine.
    pub(crate) fn get(&self, choice: EngineChoice) -> Engine<'_> {
        match choice {
            EngineChoice::BuiltIn(kind) => Engine::BuiltIn(kind),
            EngineChoice::Mapped(place) => match self.mappings.get(place) {
                Some(mapping) => Engine::Mapped(mapping),
                None => Engine::BuiltIn(EngineKind::default()),
            },
        }
    }

    fn named(&self, name: &str) -> Option<EngineChoice> {
        let mapped = self.mappings.iter().rposition(|it| it.name() == name);
        let built_in = || EngineKind::from_str(name).ok().map(EngineChoice::BuiltIn);
        mapped.map(EngineChoice::Mapped).or_else(built_in)
    }
}

impl PoolConfig {
    /// Where `target` is asked for; `None` when it is not.
    pub(crate) fn place(&self, target: Target) -> Option<Place<'_>> {
        let sources = &self.plan.sources;
        let (source, path, interval) = match target {
            Target::Metrics => {
                let scrape = &self.scrape;
                (&sources.metrics, scrape.path.as_str(), scrape.interval)
            }
            Target::Models => (sources.models.as_ref()?, MODELS_PATH, SIDE_INTERVAL),
            Target::Gpus => (sources.gpus.as_ref()?, GPUS_PATH, SIDE_INTERVAL),
        };
        let usual_port = || (target == Target::Gpus).then_some(GPUS_PORT);
        let port = source.port.or_else(usual_port);
        Some(Place {
            path: source.path.as_deref().unwrap_or(path),
            port,
            interval: source.interval.unwrap_or(interval).max(SCRAPE_INTERVAL_MIN),
        })
    }
}

impl EndpointConfig {
    /// The pod that it runs in, where a label tells.
    pub(crate) fn pod(&self) -> Option<&str> {
        self.label(POD_LABEL)
    }

    /// Which of the data-parallel ranks on its metrics page it is, where a label tells.
    pub(crate) fn rank(&self) -> Option<&str> {
        self.label(RANK_LABEL).filter(|rank| !rank.is_empty())
    }

    /// Whether its pod serves on this port: on those alone that a label names, if one does.
    pub(crate) fn is_active(&self) -> bool {
        let ports = self.label(ACTIVE_PORTS_LABEL);
        let Some(ports) = ports.or_else(|| self.label(OLD_ACTIVE_PORTS_LABEL)) else {
            return true;
        };
        let mut ports = ports.split(',').map(|port| port.trim().parse());
        ports.any(|port| port == Ok(self.address.port()))
    }

    fn label(&self, name: &str) -> Option<&str> {
        let mut labels = self.labels.iter();
        let (_, value) = labels.find(|(label, _)| label == name)?;
        Some(value)
    }
}

/// The plugin that reads metrics pages, and makes the numbers for which no other is named.
pub(crate) const METRICS_EXTRACTOR: &str = "core-metrics-extractor";

/// The plugin that reads the pages of GPUs, and the number that it makes.
pub(crate) const GPU_EXTRACTOR: &str = "dcgm-extractor";
pub(crate) const GPU_ATTRIBUTE: &str = "GPUUtilization";

/// The label that names an endpoint's engine.
const ENGINE_LABEL: &str = "llm-d.ai/engine-type";

/// What that label was called before; it is read where the other one is not there.
const OLD_ENGINE_LABEL: &str = "inference.networking.k8s.io/engine-type";

/// The label that says which rank of a page an endpoint is. The reference picker reads the first
/// one for all, and has no name for it.
const RANK_LABEL: &str = "llm-d.ai/engine-rank";

/// The annotation that lists the ports on which a pod takes requests, as a label; what is no port
/// is ignored.
const ACTIVE_PORTS_LABEL: &str = "llm-d.ai/active-ports";

/// What it was called before; it is read where the other one is not there.
const OLD_ACTIVE_PORTS_LABEL: &str = "inference.networking.k8s.io/active-ports";

/// The label that Kubernetes puts on the pods of a stateful set.
pub(crate) const POD_LABEL: &str = "statefulset.kubernetes.io/pod-name";

/// Where the API lists its models.
const MODELS_PATH: &str = "/v1/models";

/// Where DCGM Exporter serves its page.
const GPUS_PATH: &str = "/metrics";

/// Where DCGM Exporter listens.
const GPUS_PORT: u16 = 9400;

/// How often models and GPUs are asked for: adapters come and go by hand, and an exporter looks at
/// its GPUs no more often.
const SIDE_INTERVAL: Span = Span::from_millis(1000);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn an_engine_is_the_labels_else_the_default_else_the_pools() {
        let engines = |default: Option<&str>| Engines {
            label: None,
            default: default.map(String::from),
            mappings: vec![EngineMapping::new("mine"), EngineMapping::new("sglang")],
        };
        let built_in = EngineChoice::BuiltIn;
        for (label, value, default, expected) in [
            (
                "llm-d.ai/engine-type",
                "mine",
                None,
                EngineChoice::Mapped(0),
            ),
            (
                "llm-d.ai/engine-type",
                "sglang",
                None,
                EngineChoice::Mapped(1),
            ),
            (
                "llm-d.ai/engine-type",
                "vllm",
                None,
                built_in(EngineKind::Vllm),
            ),
            (
                "llm-d.ai/engine-type",
                "nobody",
                None,
                built_in(EngineKind::Tgi),
            ),
            (
                "llm-d.ai/engine-type",
                "nobody",
                Some("mine"),
                EngineChoice::Mapped(0),
            ),
            (
                "other",
                "vllm",
                Some("triton"),
                built_in(EngineKind::Triton),
            ),
            ("other", "vllm", Some("nobody"), built_in(EngineKind::Tgi)),
            (
                "inference.networking.k8s.io/engine-type",
                "mine",
                Some("vllm"),
                EngineChoice::Mapped(0),
            ),
        ] {
            let endpoint = EndpointConfig {
                address: "10.0.0.1:1".parse().unwrap(),
                labels: vec![(label.into(), value.into())].into(),
                engine: EngineKind::Tgi,
            };
            let chosen = engines(default).of(&endpoint);
            assert_eq!(chosen, expected, "{label}={value} {default:?}");
            let renamed = Engines {
                label: Some("other".into()),
                ..engines(default)
            };
            if label == "other" {
                assert_eq!(renamed.of(&endpoint), built_in(EngineKind::Vllm));
            }
        }
    }
}
