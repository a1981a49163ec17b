//! Which profiles are run for a request, and what their choices mean.

mod stages;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::candidate::Context;
use crate::draw::Draws;
use crate::plan::Plan;
use crate::profile::{Profile, Ranked};
use crate::refusal::Refusal;
pub use stages::{Decider, Stages};

/// A profile handler, named as in the reference picker's configuration.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Handler {
    /// `header-profile-handler`: the profile that a request header names; the only one when there
    /// is no other.
    ByHeader {
        /// The header, in lower case.
        header: String,
        /// The profile of requests without it.
        default: String,
    },
    /// `data-parallel-profile-handler`: the one profile there is. The request goes to this port of
    /// the chosen endpoint's host, where it is passed on to the endpoint.
    DataParallel(u16),
    /// `single-profile-handler`: the one profile there is.
    #[default]
    Single,
    /// `disagg-profile-handler` and `pd-profile-handler`: a profile for each stage of a request.
    Stages(Box<Stages>),
}

/// Where a request goes and what is said with it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// What the profile came to that names the destination.
    pub ranked: Ranked,
    /// The place of the candidate that computes the prompt before the destination does, when that
    /// is another.
    pub prefill: Option<usize>,
    /// The place of the candidate that encodes images and the like for it, when one does.
    pub encode: Option<usize>,
    /// How the stages were divided, in the reference picker's words.
    pub division: Option<&'static str>,
    /// The port of the destination's host that the request goes to, when it is not the
    /// destination's own.
    pub primary_port: Option<u16>,
    /// Headers to set on the request.
    pub headers: Vec<(&'static str, String)>,
}

impl Handler {
    /// Runs the profiles of `plan`.
    ///
    /// A refusal when no candidate passes the filters of the profile that names the destination,
    /// or when there are none.
    pub(crate) fn run(
        &self,
        plan: &Plan,
        cx: &Context<'_>,
        draws: &mut Draws,
    ) -> Result<Outcome, Refusal> {
        match self {
            Self::ByHeader { header, default } => {
                let named = cx.request.header(header).map(str::trim);
                let name = named.filter(|it| !it.is_empty()).unwrap_or(default);
                let profile = match plan.profiles.as_slice() {
                    [only] => Some(only),
                    all => all.iter().find(|it| it.name == name),
                };
                of(profile.ok_or(Refusal::NoProfile)?, cx, draws)
            }
            Self::DataParallel(port) => Ok(Outcome {
                primary_port: Some(*port),
                ..of_only(plan, cx, draws)?
            }),
            Self::Single => of_only(plan, cx, draws),
            Self::Stages(stages) => stages.run(plan, cx, draws),
        }
    }

    /// The name of the profile that chooses who computes prompts for others, if one does.
    pub(crate) fn prefill_profile<'a>(&self, plan: &'a Plan) -> Option<&'a str> {
        let Self::Stages(stages) = self else {
            return None;
        };
        let profile = plan.profiles.get(stages.prefill?)?;
        Some(&profile.name)
    }
}

fn of_only(plan: &Plan, cx: &Context<'_>, draws: &mut Draws) -> Result<Outcome, Refusal> {
    of(plan.profiles.first().ok_or(Refusal::NoProfile)?, cx, draws)
}

fn of(profile: &Profile, cx: &Context<'_>, draws: &mut Draws) -> Result<Outcome, Refusal> {
    let ranked = profile.rank(cx, draws);
    if ranked.places.is_empty() {
        return Err(nobody(cx, Refusal::Filtered));
    }
    Ok(Outcome {
        ranked,
        ..Outcome::default()
    })
}

/// The refusal when nobody is left: `filtered`, unless there was nobody to begin with.
fn nobody(cx: &Context<'_>, filtered: Refusal) -> Refusal {
    if cx.candidates.is_empty() {
        Refusal::NoEndpoint
    } else {
        filtered
    }
}

#[cfg(test)]
mod tests;
