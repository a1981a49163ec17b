//! How near endpoints are to one another, by their labels.

use alloc::string::String;

use crate::candidate::{Candidate, Context};

/// Something that near endpoints share, the nearest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// The machine.
    Host,
    /// The rack.
    Rack,
    /// The zone.
    Zone,
    /// The region.
    Region,
}

/// The labels that tell where an endpoint is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// The label of each level, the nearest first.
    pub labels: [String; 4],
}

impl Level {
    /// All of them, the nearest first.
    pub const ALL: [Self; 4] = [Self::Host, Self::Rack, Self::Zone, Self::Region];
}

impl Topology {
    /// The nearest level that the candidate shares with the endpoint that an earlier profile chose
    /// for the same request; `None` when it shares none, or there is no such endpoint.
    pub(crate) fn shared(&self, cx: &Context<'_>, candidate: &Candidate<'_>) -> Option<Level> {
        let peer = cx.peer?;
        let mut levels = Level::ALL.into_iter().zip(&self.labels);
        let shared = levels.find(|(_, label)| {
            let own = candidate.label(label).filter(|it| !it.is_empty());
            own.is_some() && own == peer.label(label)
        });
        shared.map(|(level, _)| level)
    }
}
