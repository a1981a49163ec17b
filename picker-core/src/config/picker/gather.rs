//! What all plugins together bring to a plan.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::super::catalogue::Said;
use super::super::error::Cause;
use super::plugins::{Plugin, Plugins};
use crate::admitter::Admitter;
use crate::filter::Filter;
use crate::handler::Handler;
use crate::identity::Identity;
use crate::kv_source::KvSource;
use crate::plan::Foretelling;
use crate::producers::Producers;
use crate::score::ScorerKind;

impl Plugins {
    /// The profile handler, the one for one profile where none is declared.
    pub(super) fn handler(&self) -> Handler {
        let mut handlers = self.list.iter().filter_map(|it| it.roles.handler.clone());
        handlers.next().unwrap_or_default()
    }

    /// Who is named for blocks that others hold; the first counts.
    pub(super) fn kv_source(&self) -> Option<KvSource> {
        let mut all = self.list.iter();
        all.find_map(|it| it.roles.kv_source.clone())
    }

    /// The names, in lower case, of request headers that plugins read.
    pub(super) fn headers(&self) -> Vec<String> {
        let headers = self.list.iter().flat_map(|it| it.roles.headers.iter());
        let mut headers: Vec<String> = headers.map(|it| it.to_ascii_lowercase()).collect();
        headers.sort_unstable();
        headers.dedup();
        headers
    }

    /// What plugins want to be known; of several that want the same, what the first wants.
    pub(super) fn producers(&self) -> Producers {
        let producers = self.list.iter().map(|it| it.roles.producers);
        producers.fold(Producers::default(), Producers::or)
    }

    /// How latencies are predicted; the first counts.
    pub(super) fn foretelling(&self) -> Option<Foretelling> {
        let mut all = self.list.iter();
        all.find_map(|it| it.roles.foretelling.clone())
    }

    /// What requests have to pass.
    pub(super) fn admitters(&self) -> Vec<Admitter> {
        let admitters = self.list.iter().filter_map(|it| it.roles.admitter);
        admitters.collect()
    }

    /// What plugins say of requests.
    pub(super) fn identities(&self) -> Vec<Identity> {
        let said = |plugin: &Plugin| {
            let Said { attribute, sources } = plugin.roles.says.clone()?;
            Some(Identity {
                producer: plugin.name.clone(),
                attribute,
                sources,
            })
        };
        self.list.iter().filter_map(said).collect()
    }

    /// The mistake of a plugin that asks for what no other says of requests.
    pub(super) fn unsaid(&self, identities: &[Identity]) -> Option<Cause> {
        let affinity = |plugin: &Plugin| {
            let of_filter = plugin.roles.filter.as_ref().and_then(Filter::affinity);
            let scorer = plugin.roles.scorer.as_ref();
            of_filter
                .or_else(|| scorer.and_then(ScorerKind::affinity))
                .cloned()
        };
        self.list.iter().find_map(|plugin| {
            let affinity = affinity(plugin)?;
            let unsaid = affinity.unsaid(identities)?;
            Some(Cause::told(
                format!("'{}' asks for {unsaid}, which no plugin says", plugin.name),
                "declare session-id-producer or agent-identity, or name a header".into(),
            ))
        })
    }
}
