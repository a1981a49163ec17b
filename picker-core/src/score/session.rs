//! The endpoint of those who come back scores 1 and every other 0.
//!
//! Who has no endpoint yet gives no endpoint a lead.

use super::Score;
use crate::candidate::Context;
use crate::session::Affinity;

pub(super) fn score(affinity: &Affinity, cx: &Context<'_>, scores: &mut [Score]) {
    let home = cx.pinned_by(affinity);
    for (candidate, score) in cx.candidates.iter().zip(scores) {
        let is_home = Some(candidate.endpoint.id) == home;
        *score = Score::new(f64::from(u8::from(is_home)));
    }
}
