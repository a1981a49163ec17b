//! All that a scorer may read.

use crate::ledger::Load;
use crate::snapshot::EndpointState;

/// An eligible endpoint, during one decision.
pub struct Candidate<'a> {
    /// The endpoint as the snapshot shows it.
    pub endpoint: &'a EndpointState,
    /// Whether its metrics are young enough to be believed. When not, only `load` says anything about it.
    pub fresh: bool,
    /// What all workers of this Envoy have in flight there.
    pub load: Load,
    /// How many leading blocks of the prompts it holds.
    pub matched: usize,
}

/// One decision's candidates and the size of what is to be placed.
pub struct Context<'a> {
    /// The candidates, in the order of their numbers.
    pub candidates: &'a [Candidate<'a>],
    /// Blocks in all prompts of the request.
    pub blocks: usize,
}

impl Candidate<'_> {
    /// Requests sent by all workers since the metrics were read: what the metrics do not show yet.
    ///
    /// The difference of two running totals; it is zero, not huge, after a worker's row and its total have gone.
    pub fn sent_since_scrape(&self) -> u32 {
        let since = self.load.sent.wrapping_sub(self.endpoint.sent_at_scrape);
        if since > u32::MAX / 2 { 0 } else { since }
    }
}
