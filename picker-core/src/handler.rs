//! Which profiles are run for a request, and what their choices mean.

use alloc::string::String;
use alloc::vec::Vec;

use crate::candidate::Context;
use crate::draw::Draws;
use crate::plan::Plan;
use crate::profile::Ranked;
use crate::refusal::Refusal;

/// A profile handler, named as in the reference picker's configuration.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Handler {
    /// `single-profile-handler`: the one profile there is.
    #[default]
    Single,
}

/// Where a request goes and what is said with it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// What the profile came to that names the destination.
    pub ranked: Ranked,
    /// The place of the candidate that computes the prompt before the destination does, when that
    /// is another.
    pub prefill: Option<usize>,
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
            Self::Single => {
                let ranked = plan.profiles.first().map(|it| it.rank(cx, draws));
                let ranked = ranked.filter(|it| !it.places.is_empty());
                let nobody = if cx.candidates.is_empty() {
                    Refusal::NoEndpoint
                } else {
                    Refusal::Filtered
                };
                Ok(Outcome {
                    ranked: ranked.ok_or(nobody)?,
                    ..Outcome::default()
                })
            }
        }
    }
}
