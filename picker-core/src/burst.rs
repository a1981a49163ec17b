//! Requests that come together and are placed together.
//!
//! Of many requests with one prompt that come at once, none finds an endpoint that holds it. So
//! they are held for a moment, and then those of one prompt go to one endpoint, the longest
//! prompts first.

use alloc::vec::Vec;

use crate::flow::WaitId;
use crate::request::Request;
use crate::sort::sort_by;
use crate::{BlockHash, EndpointId, Span, Timestamp};

/// `burst-prefix-cache-producer`: how requests are gathered, and placed when they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Burst {
    /// How long the first of a batch waits for others.
    pub window: Span,
    /// Requests after which a batch waits for no more.
    pub requests_max: usize,
    /// Requests of one prompt that go to one endpoint; the others go where there are fewer.
    pub per_endpoint_max: usize,
    /// Hash blocks that are compared as one; at least 1.
    pub block: usize,
    /// Leading hash blocks that are compared.
    pub blocks_max: usize,
    /// Leading hash blocks by which different prompts belong together; 0 where none do.
    pub lead: usize,
    /// Whether the bytes of prompts are balanced, and not their number.
    pub by_bytes: bool,
}

/// The requests of one worker that wait to be placed, and those that are placed and not sent yet.
#[derive(Default)]
pub(crate) struct Batch {
    waiting: Vec<Gathered>,
    /// When the first of them came.
    since: Timestamp,
    /// The next one last.
    placed: Vec<Gathered>,
}

/// What is known of a request of a batch.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Gathered {
    pub(crate) id: WaitId,
    /// How many of its hash blocks are compared, and the last of them, which names all.
    prompt: (usize, BlockHash),
    /// The block that those which belong together have in common.
    lead: Option<BlockHash>,
    /// Where that was held when it came.
    pub(crate) holders: Vec<EndpointId>,
    /// What it counts for where endpoints are compared.
    weight: u64,
    /// Where it is to go, once it is placed.
    pub(crate) endpoint: Option<EndpointId>,
}

/// What the batch brings to an endpoint.
struct Share {
    endpoint: EndpointId,
    weight: u64,
    leads: Vec<BlockHash>,
    /// The last prompt that came here.
    prompt: Option<(usize, BlockHash)>,
}

impl Burst {
    /// What is to be known of `request`; `None` for one that has no prompt of a block. Of several
    /// prompts the first decides.
    pub(crate) fn gathered(&self, id: WaitId, request: &Request) -> Option<Gathered> {
        let blocks = &request.prompts.first()?.blocks;
        let length = blocks.len().min(self.blocks_max) / self.block * self.block;
        let last = *blocks.get(length.checked_sub(1)?)?;
        let bytes = request.prompts.iter().map(|it| it.bytes);
        Some(Gathered {
            id,
            prompt: (length, last),
            lead: self.lead_of(request).and_then(|it| it.last()).copied(),
            holders: Vec::new(),
            weight: if self.by_bytes { bytes.sum() } else { 1 },
            endpoint: None,
        })
    }

    /// The blocks of a request by which it belongs to others, where it has so many.
    pub(crate) fn lead_of<'a>(&self, request: &'a Request) -> Option<&'a [BlockHash]> {
        let blocks = &request.prompts.first()?.blocks;
        blocks.get(..self.lead).filter(|it| !it.is_empty())
    }

    /// Settles where each of `requests` goes: nowhere without endpoints. Of equal endpoints the one
    /// that is listed first gets a request.
    fn place(&self, requests: &mut [Gathered], endpoints: &[EndpointId]) {
        // The longest first; of one length those of one prompt together.
        sort_by(requests, |one, other| other.prompt.cmp(&one.prompt));
        let total: u64 = requests.iter().map(|it| it.weight).sum();
        let fair = total.div_ceil((endpoints.len() as u64).max(1));
        let mut shares: Vec<Share> = endpoints.iter().map(|it| Share::of(*it)).collect();
        for is_alone in [false, true] {
            let groups = requests.chunk_by_mut(|one, other| one.prompt == other.prompt);
            for group in groups.filter(|it| (it.len() == 1) == is_alone) {
                for part in group.chunks_mut(self.per_endpoint_max) {
                    if let Some(share) = best(&mut shares, part, fair) {
                        share.take(part);
                    }
                }
            }
        }
    }
}

impl Share {
    fn of(endpoint: EndpointId) -> Self {
        Self {
            endpoint,
            weight: 0,
            leads: Vec::new(),
            prompt: None,
        }
    }

    fn take(&mut self, part: &mut [Gathered]) {
        for request in part {
            self.weight = self.weight.saturating_add(request.weight);
            self.prompt = Some(request.prompt);
            let lead = request.lead.filter(|it| !self.leads.contains(it));
            self.leads.extend(lead);
            request.endpoint = Some(self.endpoint);
        }
    }

    /// Whether it holds what `request` has in common with others.
    fn holds(&self, request: &Gathered) -> bool {
        let is_led = request.lead.is_some_and(|it| self.leads.contains(&it));
        is_led || request.holders.contains(&self.endpoint)
    }
}

/// The endpoint for requests of one prompt: one that holds what they have in common with others
/// and has not its fair share yet, or else the one that gets the least.
///
/// One that has had as many of the prompt as it may have comes last.
fn best<'a>(shares: &'a mut [Share], part: &[Gathered], fair: u64) -> Option<&'a mut Share> {
    let first = part.first()?;
    let key = |it: &Share| {
        let had = it.prompt == Some(first.prompt);
        let is_home = !had && it.weight < fair && it.holds(first);
        (had, !is_home, it.weight)
    };
    shares.iter_mut().min_by_key(|it| key(it))
}

impl Batch {
    /// Adds a request that came `now`.
    pub(crate) fn push(&mut self, request: Gathered, now: Timestamp) {
        if self.waiting.is_empty() {
            self.since = now;
        }
        self.waiting.push(request);
    }

    /// Whether what waits has to be placed: its window is over, or it is as much as may be.
    pub(crate) fn is_due(&self, burst: &Burst, now: Timestamp) -> bool {
        let waiting = self.waiting.len();
        // A clock that was set back ends the window too.
        waiting > 0 && (waiting >= burst.requests_max || now.apart(self.since) >= burst.window)
    }

    /// Places what waits on `endpoints`, of which the first is taken where it does not matter.
    pub(crate) fn place(&mut self, burst: &Burst, endpoints: &[EndpointId]) {
        burst.place(&mut self.waiting, endpoints);
        self.waiting.reverse();
        self.placed.append(&mut self.waiting);
    }

    /// The next request to be sent.
    pub(crate) fn next(&self) -> Option<WaitId> {
        self.placed.last().map(|it| it.id)
    }

    /// Takes a request out.
    pub(crate) fn remove(&mut self, id: WaitId) -> Option<Gathered> {
        for list in [&mut self.placed, &mut self.waiting] {
            // The one that is asked for is mostly the last.
            if let Some(place) = list.iter().rposition(|it| it.id == id) {
                return Some(list.remove(place));
            }
        }
        None
    }

    /// Takes all out.
    pub(crate) fn drain(&mut self) -> Vec<WaitId> {
        let all = self.placed.drain(..).chain(self.waiting.drain(..));
        all.map(|it| it.id).collect()
    }

    /// How many are held.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.placed.len()
    }
}

#[cfg(test)]
mod tests;
