//! The situations that a real Envoy is measured in: servers in real time and what they are asked.

use anyhow::{Result, bail};
use sim::routing::job::Planned;
use sim::routing::policies::PolicyKind;
use sim::routing::scenario::Scenario;
use sim::server::ServerOptions;

use super::completions::{body, text};
use super::prefixes::Prefixes;
use crate::draw::Draw;

/// A situation that can be had with one Envoy in front of simulated servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EnvoyScenario {
    /// The published test, with few clients.
    Headline,
    /// Twelve adapters on four servers with slots for four each: the servers, the requests and the
    /// clients of the simulation.
    Lora,
}

impl EnvoyScenario {
    /// The one that stands for a scenario of the simulation.
    pub(super) fn of(scenario: Scenario) -> Result<Self> {
        match scenario {
            Scenario::Headline => Ok(Self::Headline),
            Scenario::Lora => Ok(Self::Lora),
            other => bail!(
                "--scenario {}: through an Envoy there are headline and lora",
                other.name()
            ),
        }
    }

    /// The name of that scenario.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Headline => Scenario::Headline.name(),
            Self::Lora => Scenario::Lora.name(),
        }
    }

    /// What is compared, unless others are asked for.
    pub(super) fn policies(self) -> &'static [PolicyKind] {
        match self {
            Self::Headline => &[
                PolicyKind::RoundRobin,
                PolicyKind::Compatible,
                PolicyKind::LeastCost,
            ],
            Self::Lora => &[
                PolicyKind::QueueKv,
                PolicyKind::CompatibleLora,
                PolicyKind::LeastCost,
            ],
        }
    }

    /// Clients at the same time, unless others are asked for.
    pub(super) fn concurrencies(self) -> &'static [usize] {
        match self {
            Self::Headline => &[1, 4],
            Self::Lora => &[64],
        }
    }

    /// Seeds, unless another number is asked for.
    pub(super) fn seeds(self) -> u64 {
        match self {
            // The hit rate is nearly the same for all seeds.
            Self::Headline => 1,
            // The slowest hundredth of the requests is not.
            Self::Lora => 3,
        }
    }

    /// How much faster than real the servers are.
    pub(super) fn time_scale(self) -> f64 {
        match self {
            // A step takes about a millisecond.
            Self::Headline => 8.0,
            // Sixty-four streams at once are as much as two cores carry.
            Self::Lora => 2.0,
        }
    }

    /// The servers of a seed, not started yet.
    pub(super) fn servers(self, seed: u64) -> Vec<ServerOptions> {
        let usual = ServerOptions {
            time_scale: self.time_scale(),
            ..ServerOptions::default()
        };
        match self {
            Self::Headline => vec![usual; 2],
            Self::Lora => {
                let pods = Scenario::Lora.setup(seed, None).pods.into_iter();
                let server = |pod: sim::profile::Profile| ServerOptions {
                    max_loras: Some(pod.engine.max_adapters),
                    profile: pod,
                    adapters: (0..ADAPTERS).map(adapter_name).collect(),
                    ..usual.clone()
                };
                pods.map(server).collect()
            }
        }
    }

    /// The bodies of a seed's requests, in the order of sending.
    pub(super) fn bodies(self, seed: u64) -> Vec<Vec<u8>> {
        match self {
            Self::Headline => Prefixes { model: None, seed }.bodies(),
            Self::Lora => {
                let mut workload = Scenario::Lora.setup(seed, None).workload;
                let planned = std::iter::from_fn(|| workload.next(0));
                let mut draw = Draw::new(seed);
                planned.map(|it| planned_body(&it.1, &mut draw)).collect()
            }
        }
    }
}

/// A request as it was planned, with a prompt that shares nothing.
fn planned_body(planned: &Planned, draw: &mut Draw) -> Vec<u8> {
    let tokens = planned.segments.iter().map(|it| it.tokens).sum();
    let adapter = planned.adapter.map(adapter_name);
    body(
        &text(draw, tokens),
        planned.output.tokens,
        adapter.as_deref(),
    )
}

fn adapter_name(adapter: u32) -> String {
    format!("adapter-{adapter}")
}

/// Adapters that the servers know.
const ADAPTERS: u32 = 12;
