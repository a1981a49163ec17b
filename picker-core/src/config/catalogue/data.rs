//! Plugins that ask endpoints for what is known of them, and those that read the answers.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::super::nearest::unknown;
use super::super::table::{Kind, Parameter, Unfit, Values};
use super::super::{DURATIONS, is_path, units};
use super::{Data, METRICS_EXTRACTOR, Part, PluginType, Roles, Stability};
use crate::engine::EngineKind;
use crate::filter::Filter;
use crate::mapping::{AttributeError, EngineMapping, Mapped, MetricSpec};
use crate::score::ScorerKind;
use crate::sources::{DataSource, Engines, GPU_EXTRACTOR, Target};

/// The parameters of a source, and more.
macro_rules! asks {
    ($($more:expr),*) => {
        &[
            Parameter::of("scheme", Kind::Choice(&["http", "https"], Some("http"))),
            Parameter::of("path", Kind::Text(None)),
            Parameter::of("port", Kind::Integer(1, u16::MAX as i64, None)),
            Parameter::of("interval", Kind::Text(None)),
            Parameter::of("insecureSkipVerify", Kind::Boolean(true)),
            Parameter::of("caCertPath", Kind::Text(None)),
            Parameter::of("clientCertPath", Kind::Text(None)),
            Parameter::of("clientKeyPath", Kind::Text(None)),
            $($more),*
        ]
    };
}

pub(super) const TYPES: &[PluginType] = &[
    PluginType {
        parameters: asks!(),
        make: |values| source(values, Target::Metrics),
        ..PluginType::named("metrics-data-source")
    },
    PluginType {
        parameters: ENGINES,
        make: engines,
        ..PluginType::named(METRICS_EXTRACTOR)
    },
    PluginType {
        parameters: asks!(),
        make: |values| source(values, Target::Models),
        ..PluginType::named("models-data-source")
    },
    PluginType {
        make: |_| Ok(extracts(Data::Extractor(Target::Models))),
        ..PluginType::named("models-data-extractor")
    },
    PluginType {
        stability: Stability::Alpha,
        parameters: asks!(Parameter::of(NODE_ADDRESS, Kind::Boolean(false))),
        make: |values| source(values, Target::Gpus),
        ..PluginType::named("dcgm-data-source")
    },
    PluginType {
        stability: Stability::Alpha,
        make: |_| Ok(extracts(Data::Extractor(Target::Gpus))),
        ..PluginType::named(GPU_EXTRACTOR)
    },
];

/// What is not given is as the pool's `scrape` says, or the usual of the target.
fn source(values: Values<'_>, target: Target) -> Result<Roles, Unfit> {
    for (key, is_plain) in [
        ("scheme", values.text("scheme") != "https"),
        ("insecureSkipVerify", values.is("insecureSkipVerify")),
        ("caCertPath", values.text("caCertPath").is_empty()),
        ("clientCertPath", values.text("clientCertPath").is_empty()),
        ("clientKeyPath", values.text("clientKeyPath").is_empty()),
    ] {
        if !is_plain {
            return Err(Unfit::because(
                key,
                "TLS to endpoints is a matter of the Envoy cluster that they are asked through",
                "remove it, and set up TLS in the cluster that scrape.cluster names",
            ));
        }
    }
    if values.is(NODE_ADDRESS) {
        return Err(Unfit::because(
            NODE_ADDRESS,
            "the address of an endpoint's node is not known here",
            "remove it, and let the exporter listen at the endpoint's address",
        ));
    }
    let path = Some(values.text("path")).filter(|it| !it.is_empty());
    if path.is_some_and(|it| !is_path(it)) {
        return Err(Unfit::because(
            "path",
            "this is not a path",
            "write a path that begins with / and has no query, like /metrics",
        ));
    }
    let interval = Some(values.text("interval")).filter(|it| !it.is_empty());
    let bounds = DURATIONS.0..=DURATIONS.1;
    let span = interval.and_then(units::duration);
    let span = span.filter(|it| bounds.contains(it));
    if interval.is_some() && span.is_none() {
        return Err(Unfit::because(
            "interval",
            "this is not a duration of use",
            "write a number with a unit, like 100ms or 2s",
        ));
    }
    let source = DataSource {
        path: path.map(String::from),
        port: u16::try_from(values.integer("port"))
            .ok()
            .filter(|it| *it > 0),
        interval: span,
    };
    Ok(Roles {
        data: Some(Data::Source(target, source)),
        ..Roles::part(Part::Source)
    })
}

fn extracts(data: Data) -> Roles {
    Roles {
        data: Some(data),
        ..Roles::part(Part::Extractor)
    }
}

const ENGINES: &[Parameter] = &[
    Parameter::of("engineLabelKey", Kind::Text(None)),
    Parameter::of(DEFAULT_ENGINE, Kind::Text(None)),
    Parameter::of("engineConfigs", Kind::Sections(ENGINE)),
];

const ENGINE: &[Parameter] = &[
    Parameter::of("name", Kind::NeededText),
    Parameter::of(SPECS[0].0, Kind::Text(None)),
    Parameter::of(SPECS[1].0, Kind::Text(None)),
    Parameter::of(SPECS[2].0, Kind::Text(None)),
    Parameter::of(SPECS[3].0, Kind::Text(None)),
    Parameter::of(SPECS[4].0, Kind::Text(None)),
    Parameter::of(SPECS[5].0, Kind::Text(None)),
    Parameter::of(CACHE_SPEC, Kind::Text(None)),
    Parameter::of(BLOCK_SIZE_LABEL, Kind::Text(Some("block_size"))),
    Parameter::of(NUM_BLOCKS_LABEL, Kind::Text(Some("num_gpu_blocks"))),
    Parameter::of(
        "customMetrics",
        Kind::Sections(&[
            Parameter::of("attributeKey", Kind::NeededText),
            Parameter::of("metricSpec", Kind::NeededText),
        ]),
    ),
];

fn engines(values: Values<'_>) -> Result<Roles, Unfit> {
    let configs = values.sections("engineConfigs").into_iter().enumerate();
    let mappings = configs.map(|(place, config)| mapping(config, place));
    let mappings: Vec<EngineMapping> = mappings.collect::<Result<_, _>>()?;
    let given = |key| Some(values.text(key)).filter(|it| !it.is_empty());
    let default = given(DEFAULT_ENGINE);
    if let Some(name) = default {
        let built_in = EngineKind::ALL.iter().map(|it| it.name());
        let known = mappings.iter().map(EngineMapping::name).chain(built_in);
        if !known.clone().any(|it| it == name) {
            return Err(Unfit {
                key: DEFAULT_ENGINE.into(),
                cause: unknown("engine", name, known),
            });
        }
    }
    Ok(extracts(Data::Engines(Engines {
        label: given("engineLabelKey").map(String::from),
        default: default.map(String::from),
        mappings,
    })))
}

/// What the entry at `place` of `engineConfigs` says of an engine.
fn mapping(config: Values<'_>, place: usize) -> Result<EngineMapping, Unfit> {
    let at = |key: &str| format!("engineConfigs[{place}].{key}");
    let name = config.text("name");
    if name == "default" {
        return Err(Unfit::because(
            &at("name"),
            "the name 'default' is reserved",
            "write another name, and name that in defaultEngine",
        ));
    }
    let mut mapping = EngineMapping::new(name);
    for (key, what) in SPECS {
        if let Some(spec) = spec(config.text(key), || at(key))? {
            mapping.read(what, spec);
        }
    }
    if let Some(spec) = spec(config.text(CACHE_SPEC), || at(CACHE_SPEC))? {
        let [block_size, num_blocks] = [BLOCK_SIZE_LABEL, NUM_BLOCKS_LABEL];
        mapping.read_cache_labels(spec, config.text(block_size), config.text(num_blocks));
    }
    let metrics = config.sections("customMetrics").into_iter().enumerate();
    for (metric_place, metric) in metrics {
        let at = |key: &str| at(&format!("customMetrics[{metric_place}].{key}"));
        let attribute = metric.text("attributeKey");
        let Some(spec) = spec(metric.text("metricSpec"), || at("metricSpec"))? else {
            continue;
        };
        if let Err(error) = mapping.publish(attribute, spec) {
            let (key, fix) = match error {
                AttributeError::Name => (at("attributeKey"), "write a shorter name"),
                AttributeError::TooMany => (at("attributeKey"), "keep those that are used"),
            };
            return Err(Unfit::because(&key, &error.to_string(), fix));
        }
    }
    Ok(mapping)
}

/// The spec that `text` is; `None` when nothing is to be read.
fn spec(text: &str, key: impl Fn() -> String) -> Result<Option<MetricSpec>, Unfit> {
    if text.is_empty() {
        return Ok(None);
    }
    let unfit = |error| {
        Unfit::because(
            &key(),
            &format!("{text:?} selects no metric: {error}"),
            "write the name of a metric, with labels in braces like name{label=value}",
        )
    };
    text.parse().map(Some).map_err(unfit)
}

impl Roles {
    /// The plugin that makes the number that it reads, if it reads one.
    pub(in crate::config) fn attribute_producer(&mut self) -> Option<&mut String> {
        match (&mut self.filter, &mut self.scorer) {
            (Some(Filter::Attribute(limit)), _) => Some(&mut limit.producer),
            (_, Some(ScorerKind::Attribute(range))) => Some(&mut range.producer),
            _ => None,
        }
    }
}

/// Specs of an engine whose samples are gauges or adapters.
const SPECS: [(&str, Mapped); 6] = [
    ("queuedRequestsSpec", Mapped::Waiting),
    ("runningRequestsSpec", Mapped::Running),
    ("kvUsageSpec", Mapped::KvUsage),
    ("loraSpec", Mapped::Lora),
    ("cacheBlockSizeSpec", Mapped::BlockSize),
    ("cacheNumBlocksSpec", Mapped::NumBlocks),
];

const CACHE_SPEC: &str = "cacheInfoSpec";
const BLOCK_SIZE_LABEL: &str = "cacheBlockSizeLabelName";
const NUM_BLOCKS_LABEL: &str = "cacheNumBlocksLabelName";
const DEFAULT_ENGINE: &str = "defaultEngine";
const NODE_ADDRESS: &str = "useNodeAddress";

#[cfg(test)]
mod tests;
