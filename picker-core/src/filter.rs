//! Which candidates a profile considers, before any is scored.

mod attribute;
mod labels;
mod prefix_affinity;
mod usage;

use alloc::vec::Vec;

use crate::candidate::{Candidate, Context};
use crate::context_length::ContextLength;
use crate::draw::Draws;
use crate::latency::Tier;
use crate::saturation::Detector;
use crate::session::Affinity;
use crate::topology::{Level, Topology};
pub use attribute::{AttributeLimit, Operator};
pub use labels::{LabelSelector, Requirement};
pub use prefix_affinity::{PrefixAffinity, TtftSource};
pub use usage::UsageLimits;

/// A condition on candidates, named as in the reference picker's configuration.
#[derive(Clone, PartialEq, Debug)]
pub enum Filter {
    /// `endpoint-attribute-filter`: a number from its pages is within a limit.
    Attribute(AttributeLimit),
    /// `context-length-aware`: it is meant for prompts of this length.
    ContextLength(ContextLength),
    /// `utilization-detector` and `concurrency-detector`: it is not full.
    HasRoom(Detector),
    /// `slo-headroom-tier-filter`: it is predicted to be as fast as the request asks for, but for
    /// this share of requests.
    Headroom(f64),
    /// `label-selector-filter`, `by-label` and the filters by role: the labels fit.
    Labels(LabelSelector),
    /// `session-affinity-filter`: the endpoint of those who come back, where it is one of them.
    Session(Affinity),
    /// `topology-affinity-filter`: it is as near, or nearer, to the endpoint that an earlier
    /// profile chose.
    Near(Topology, Level),
    /// `prefix-cache-affinity-filter`: it holds most of the prompt, while that is no slower.
    PrefixAffinity(PrefixAffinity),
    /// `utilization-filter`: its load is within limits.
    Usage(UsageLimits),
}

impl Filter {
    /// Leaves in `kept`, which holds places of `cx.candidates` in order, those that may be chosen.
    pub fn keep(&self, cx: &Context<'_>, draws: &mut Draws, kept: &mut Vec<usize>) {
        match self {
            Self::Attribute(limit) => {
                retain(cx, kept, limit.falls_back, &|it| limit.holds(it));
            }
            Self::ContextLength(rule) => retain(cx, kept, false, &|it| rule.fits(cx, it)),
            Self::HasRoom(detector) => {
                let fullness = detector.over(cx, of(cx, kept));
                let limit = detector.filter_limit();
                retain(cx, kept, detector.falls_back(), &|it| {
                    fullness.of(it) < limit
                });
            }
            Self::Headroom(exploration) => {
                let predictions = of(cx, kept).map(|it| it.prediction.copied());
                let tier = Tier::choose(predictions, *exploration, || draws.unit());
                retain(cx, kept, false, &|it| tier.keeps(it.prediction));
            }
            Self::Labels(selector) => retain(cx, kept, false, &|it| selector.fits(it.labels)),
            Self::Near(topology, farthest) => {
                let shared = |it: &Candidate<'_>| topology.shared(cx, it);
                let is_near = |it: &Candidate<'_>| shared(it).is_some_and(|it| it <= *farthest);
                retain(cx, kept, true, &is_near);
            }
            Self::PrefixAffinity(rule) => rule.keep(cx, draws, kept),
            Self::Usage(limits) => limits.keep(cx, kept),
            Self::Session(affinity) => {
                let home = cx.pinned_by(affinity);
                let is_home = |it: &Candidate<'_>| Some(it.endpoint.id) == home;
                retain(cx, kept, true, &is_home);
            }
        }
    }

    /// How it sends those who come back to their endpoint, if it does.
    pub(crate) fn affinity(&self) -> Option<&Affinity> {
        match self {
            Self::Session(affinity) => Some(affinity),
            _ => None,
        }
    }

    /// Whether it looks at nothing of an endpoint but labels, and an endpoint that does not pass
    /// cannot serve the request.
    ///
    /// Such filters come first, in whatever order they are given: an endpoint that has not the role
    /// is no candidate, even when all that have it fail.
    pub fn is_of_labels(&self) -> bool {
        matches!(self, Self::Labels(_) | Self::ContextLength(_))
    }
}

/// The candidates at `places`.
fn of<'a>(cx: &Context<'a>, places: &[usize]) -> impl Iterator<Item = &'a Candidate<'a>> + Clone {
    places.iter().filter_map(|place| cx.candidates.get(*place))
}

/// Leaves those of `kept` that are fit; all when none is, where that is better than none.
fn retain(
    cx: &Context<'_>,
    kept: &mut Vec<usize>,
    falls_back: bool,
    is_fit: &dyn Fn(&Candidate<'_>) -> bool,
) {
    let is_fit = |place: &usize| cx.candidates.get(*place).is_some_and(is_fit);
    if !falls_back || kept.iter().any(is_fit) {
        kept.retain(is_fit);
    }
}

#[cfg(test)]
mod tests;
