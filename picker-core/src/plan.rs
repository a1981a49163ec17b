//! What an `EndpointPickerConfig` says, ready to run.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use serde_json::Value;

use crate::admitter::Admitter;
use crate::cel::UsageReport;
use crate::filter::Filter;
use crate::flow::FlowControl;
use crate::handler::Handler;
use crate::identity::Identity;
use crate::kv_source::KvSource;
use crate::latency::HeadroomRule;
use crate::producers::Producers;
use crate::profile::Profile;
use crate::saturation::Detector;
use crate::score::ScorerKind;
use crate::session::Affinity;
use crate::sources::DataSources;

/// What an `EndpointPickerConfig` says, ready to run.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Which profiles are run.
    pub handler: Handler,
    /// How endpoints are chosen; at least one profile, each with a name of its own.
    pub profiles: Vec<Profile>,
    /// Who is named for blocks that others hold, if anybody is.
    pub kv_source: Option<KvSource>,
    /// The names, in lower case, of request headers that plugins read.
    pub headers: Vec<String>,
    /// What plugins say of requests.
    pub identities: Vec<Identity>,
    /// What a request with a priority below 0 has to pass.
    pub admitters: Vec<Admitter>,
    /// What plugins want to be known.
    pub producers: Producers,
    /// How latencies are predicted, where somebody wants to know.
    pub foretelling: Option<Foretelling>,
    /// Where numbers of endpoints come from.
    pub sources: DataSources,
    /// What is reported of every answer.
    pub reports: Vec<Report>,
    /// How full the endpoints are.
    pub detector: Detector,
    /// How requests wait while the endpoints are full; `None` where they do not.
    pub flow: Option<FlowControl>,
    /// The document with every default filled in.
    pub document: Value,
}

/// `predicted-latency-producer`: how predicted latencies are compared with what requests ask for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Foretelling {
    /// How headrooms follow.
    ///
    /// Where later tokens do not count, the time of a whole answer is taken for that to its first
    /// token.
    pub headroom: HeadroomRule,
    /// The label of endpoints that only compute prompts, whose value is then `prefill`; empty when
    /// there are none.
    pub role_label: String,
}

/// A number that is reported of answers.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The property that it becomes, which is filter state `wasm.<property>`.
    pub property: String,
    /// The number.
    pub number: UsageReport,
}

impl Plan {
    /// One profile and nothing else, as from no document.
    pub fn of(profile: Profile) -> Self {
        Self {
            handler: Handler::Single,
            profiles: vec![profile],
            kv_source: None,
            headers: Vec::new(),
            identities: Vec::new(),
            admitters: Vec::new(),
            producers: Producers::default(),
            foretelling: None,
            sources: DataSources::default(),
            reports: Vec::new(),
            detector: Detector::default(),
            flow: None,
            document: Value::Null,
        }
    }

    /// Whether requests may have to wait.
    pub fn holds_requests(&self) -> bool {
        self.flow.is_some() || self.producers.burst.is_some()
    }

    /// Whether it asks for the order in which endpoints got requests of which nobody held anything.
    pub(crate) fn needs_cold_order(&self) -> bool {
        let mut scorers = self.profiles.iter().flat_map(|it| &it.scorers);
        scorers.any(|it| matches!(it.scorer, ScorerKind::NoHitLru(_)))
    }

    /// Ways in which its profiles send those who come back to their endpoint.
    pub(crate) fn affinities(&self) -> impl Iterator<Item = &Affinity> {
        self.profiles.iter().flat_map(|profile| {
            let filters = profile.filters.iter().filter_map(Filter::affinity);
            let scorers = profile.scorers.iter();
            filters.chain(scorers.filter_map(|it| it.scorer.affinity()))
        })
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self::of(Profile::default())
    }
}
