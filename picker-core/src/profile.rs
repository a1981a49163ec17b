//! Filters, scorers, weights and a picker: how candidates become a choice.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::candidate::{Candidate, Context};
use crate::draw::Draws;
use crate::eligibility::retain_eligible;
use crate::filter::Filter;
use crate::picker::Picker;
use crate::score::{LeastCost, PrefixShare, Score, ScorerKind};

/// A scorer and its say.
#[derive(Clone, PartialEq, Debug)]
pub struct WeightedScorer {
    /// The measure.
    pub scorer: ScorerKind,
    /// What its score is multiplied with.
    pub weight: f64,
}

/// How an endpoint is chosen: those that pass every filter, in the order of the filters, by the
/// weighted sum of their scores.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// The name, by which a profile handler knows it.
    pub name: String,
    /// What narrows the candidates.
    pub filters: Vec<Filter>,
    /// The measures.
    pub scorers: Vec<WeightedScorer>,
    /// How totals become a choice.
    pub picker: Picker,
}

/// What a profile came to.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ranked {
    /// Places of the candidates that are named, best first; empty when none passes the filters.
    pub places: Vec<usize>,
    /// Places of the candidates that passed the filters, in order.
    pub considered: Vec<usize>,
    /// Their weighted sums of scores.
    pub totals: Vec<f64>,
}

impl Default for Profile {
    /// The endpoint where a request costs least.
    fn default() -> Self {
        Self::of(&[(ScorerKind::LeastCost(LeastCost::DEFAULT), 1.0)])
    }
}

impl Profile {
    /// The reference picker's weights for a pool that shares prefixes: queue 2, KV cache 2, prefix
    /// 3.
    pub fn compatible() -> Self {
        Self::of(&[
            (ScorerKind::Queue, 2.0),
            (ScorerKind::KvCacheUtilization, 2.0),
            (ScorerKind::Prefix(PrefixShare::DEFAULT), 3.0),
        ])
    }

    fn of(scorers: &[(ScorerKind, f64)]) -> Self {
        let weighted = |(scorer, weight): &(ScorerKind, f64)| WeightedScorer {
            scorer: scorer.clone(),
            weight: *weight,
        };
        Self {
            name: DEFAULT_NAME.into(),
            filters: Vec::new(),
            scorers: scorers.iter().map(weighted).collect(),
            picker: Picker::default(),
        }
    }

    /// The best candidates.
    pub fn rank(&self, cx: &Context<'_>, draws: &mut Draws) -> Ranked {
        let kept = self.kept(cx, draws);
        let narrowed: Vec<Candidate<'_>>;
        let mut considered = *cx;
        if kept.len() < cx.candidates.len() {
            let candidates = kept.iter().filter_map(|place| cx.candidates.get(*place));
            narrowed = candidates.copied().collect();
            considered.candidates = &narrowed;
        }
        let totals = self.totals(&considered);
        let picked = self.picker.pick(&totals, draws).into_iter();
        Ranked {
            places: picked.filter_map(|it| kept.get(it).copied()).collect(),
            considered: kept,
            totals,
        }
    }

    /// The places of the candidates that may be chosen, in order.
    ///
    /// Endpoints of the right kind that do not serve are left out while there are others of it.
    fn kept(&self, cx: &Context<'_>, draws: &mut Draws) -> Vec<usize> {
        let mut kept = (0..cx.candidates.len()).collect();
        for filter in self.filters.iter().filter(|it| it.is_of_labels()) {
            filter.keep(cx, draws, &mut kept);
        }
        retain_eligible(cx.candidates, &mut kept);
        kept.retain(|it| cx.candidates.get(*it).is_some_and(|it| !it.is_full));
        for filter in self.filters.iter().filter(|it| !it.is_of_labels()) {
            filter.keep(cx, draws, &mut kept);
        }
        kept
    }

    /// The weighted sum of scores of every candidate.
    pub fn totals(&self, cx: &Context<'_>) -> Vec<f64> {
        let mut totals = vec![0.0; cx.candidates.len()];
        let mut scores = vec![Score::new(0.0); cx.candidates.len()];
        for WeightedScorer { scorer, weight } in &self.scorers {
            scorer.score(cx, &mut scores);
            for (total, score) in totals.iter_mut().zip(&scores) {
                *total += weight * score.value();
            }
        }
        totals
    }
}

/// The name of a profile that was not given one, the reference picker's.
const DEFAULT_NAME: &str = "default";
