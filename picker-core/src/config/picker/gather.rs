//! What all plugins together bring to a plan.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::super::catalogue::{Data, Said};
use super::super::error::Cause;
use super::parts::Used;
use super::plugins::{Plugin, Plugins};
use crate::admitter::Admitter;
use crate::filter::Filter;
use crate::handler::Handler;
use crate::identity::Identity;
use crate::kv_source::KvSource;
use crate::plan::{Foretelling, Report};
use crate::producers::Producers;
use crate::score::ScorerKind;
use crate::sort::sort;
use crate::sources::{DataSources, Target};

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
        sort(&mut headers);
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

    /// What is reported of answers.
    pub(super) fn reports(&self) -> Vec<Report> {
        let reports = self.list.iter().filter_map(|it| it.roles.report.clone());
        reports.collect()
    }

    /// What the plugin `name` asks endpoints for.
    pub(super) fn target(&self, name: &str) -> Option<Target> {
        match self.find(name)?.roles.data {
            Some(Data::Source(target, _)) => Some(target),
            _ => None,
        }
    }

    /// What the plugin `name` reads; `None` for one that reads no answer.
    pub(super) fn reads(&self, name: &str) -> Option<Target> {
        match self.find(name)?.roles.data {
            Some(Data::Engines(_)) => Some(Target::Metrics),
            Some(Data::Extractor(target)) => Some(target),
            _ => None,
        }
    }

    /// Where numbers of endpoints come from. Models and GPUs are asked for where something reads
    /// the answer.
    pub(super) fn sources(&self, used: &[Used]) -> Result<DataSources, Cause> {
        let mut sources = DataSources::default();
        let mut asking: Vec<(Target, &str)> = Vec::new();
        let mut engines: Option<&str> = None;
        for Used { source, extractors } in used {
            let Some(Data::Source(target, place)) = self.data(source) else {
                continue;
            };
            let mut others = asking.iter();
            if let Some((_, other)) = others.find(|(it, name)| it == target && name != source) {
                return Err(twice("ask endpoints for the same", other, source));
            }
            asking.push((*target, source));
            let is_read = extractors.iter().any(|it| self.reads(it) == Some(*target));
            match target {
                Target::Metrics => sources.metrics = place.clone(),
                Target::Models => sources.models = is_read.then(|| place.clone()),
                Target::Gpus => sources.gpus = is_read.then(|| place.clone()),
            }
            for extractor in extractors {
                let Some(Data::Engines(own)) = self.data(extractor) else {
                    continue;
                };
                let other = engines.replace(extractor);
                if let Some(other) = other.filter(|it| it != extractor) {
                    return Err(twice("say what metrics pages mean", other, extractor));
                }
                sources.engines = own.clone();
            }
        }
        Ok(sources)
    }

    fn data(&self, name: &str) -> Option<&Data> {
        self.find(name)?.roles.data.as_ref()
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

fn twice(what: &str, one: &str, other: &str) -> Cause {
    Cause::told(
        format!("'{one}' and '{other}' both {what}"),
        "keep one of them".into(),
    )
}
