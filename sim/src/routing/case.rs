//! One run: which requests on which pods, who routes them, and the seed.

use std::sync::Arc;

use picker_core::LeastCost;

use super::driver;
use super::policies::PolicyKind;
use super::scenario::{Scenario, Setup};
use super::summary::Summary;
use super::trace::Trace;

/// A run that has not been made yet.
#[derive(Clone, Debug)]
pub struct Case {
    /// The requests and the pods.
    pub source: Source,
    /// Who routes.
    pub policy: PolicyKind,
    /// Workers of each Envoy, for our own picker; any other is one process.
    pub workers: usize,
    /// The parameters of our own rule.
    pub rule: LeastCost,
    /// Clients of a closed loop or users of a chat, instead of the scenario's own number.
    pub concurrency: Option<usize>,
    /// The same seed gives the same figures.
    pub seed: u64,
}

/// Where requests come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// They are made up.
    Scenario(Scenario),
    /// They were recorded.
    Trace(Arc<Trace>),
}

/// A run that has been made.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was run.
    pub case: Case,
    /// Pods at the beginning.
    pub pods: usize,
    /// Routers that share nothing.
    pub envoys: usize,
    /// What came of it.
    pub summary: Summary,
}

impl Case {
    /// Makes the run.
    pub fn run(self) -> Row {
        let setup: Setup = match &self.source {
            Source::Scenario(scenario) => scenario.setup(self.seed, self.concurrency),
            Source::Trace(trace) => trace.setup(self.seed),
        };
        let (pods, envoys) = (setup.pods.len(), setup.envoys);
        let summary = driver::run(
            setup,
            &|seed| self.policy.start(seed, self.workers, self.rule),
            self.seed,
        );
        Row {
            case: self,
            pods,
            envoys,
            summary,
        }
    }
}

impl Source {
    /// The name of the scenario, or `trace`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Scenario(scenario) => scenario.name(),
            Self::Trace(_) => "trace",
        }
    }
}
