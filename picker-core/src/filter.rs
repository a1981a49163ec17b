//! Which candidates a profile considers, before any is scored.

mod labels;

use alloc::vec::Vec;

use crate::candidate::Context;
use crate::session::Affinity;
pub use labels::{LabelSelector, Requirement};

/// A condition on candidates, named as in the reference picker's configuration.
#[derive(Clone, PartialEq, Debug)]
pub enum Filter {
    /// `label-selector-filter`, `by-label` and the filters by role: the labels fit.
    Labels(LabelSelector),
    /// `session-affinity-filter`: the endpoint of those who come back, where it is one of them.
    Session(Affinity),
}

impl Filter {
    /// Leaves in `kept`, which holds places of `cx.candidates` in order, those that may be chosen.
    pub fn keep(&self, cx: &Context<'_>, kept: &mut Vec<usize>) {
        match self {
            Self::Labels(selector) => kept.retain(|place| {
                let candidate = cx.candidates.get(*place);
                candidate.is_some_and(|it| selector.fits(it.labels))
            }),
            Self::Session(affinity) => {
                let home = cx.pinned_by(affinity);
                let is_home = |place: &&usize| {
                    let candidate = cx.candidates.get(**place);
                    candidate.is_some_and(|it| Some(it.endpoint.id) == home)
                };
                if let Some(home) = kept.iter().find(is_home).copied() {
                    *kept = [home].into();
                }
            }
        }
    }

    /// How it sends those who come back to their endpoint, if it does.
    pub(crate) fn affinity(&self) -> Option<&Affinity> {
        match self {
            Self::Session(affinity) => Some(affinity),
            Self::Labels(_) => None,
        }
    }

    /// Whether it looks at nothing but labels.
    ///
    /// Such filters come first, in whatever order they are given: an endpoint that has not the role
    /// is no candidate, even when all that have it fail.
    pub fn is_of_labels(&self) -> bool {
        matches!(self, Self::Labels(_))
    }
}
