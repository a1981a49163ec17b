//! One pool as one worker sees it: what is known of its endpoints, and the decision.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::candidate::{Candidate, Context};
use crate::draw::Draws;
use crate::eligibility::eligible;
use crate::ledger::{Ledger, Load, Row};
use crate::prefix::PrefixIndex;
use crate::profile::Profile;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::ring::Ring;
use crate::shared::{SharedData, Version};
use crate::snapshot::{Snapshot, View};
use crate::{Address, BLOCK_BYTES, BlockHash, EndpointId, Span, Timestamp};

/// What a pool needs to know besides its endpoints.
pub struct PoolOptions {
    /// The name, part of every key of its shared state.
    pub name: String,
    /// How candidates are ranked.
    pub profile: Profile,
    /// Metrics older than this say nothing.
    pub staleness_threshold: Span,
    /// The cache of every endpoint in tokens; `None` to believe the endpoint's page.
    pub capacity_tokens: Option<u64>,
}

/// One pool as one worker sees it.
pub struct Pool {
    options: PoolOptions,
    view: View,
    index: PrefixIndex,
    ring: Ring,
    ledger_key: String,
    ledger: Ledger,
    ledger_bytes: Vec<u8>,
    row: Row,
    /// Whether this worker has a row; it claims one with its first pick.
    claimed: bool,
    /// Times another worker wrote the ledger between our reading and our writing.
    conflicts: u64,
}

/// A request on its way: what to give back when it ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The endpoint it is counted for.
    pub endpoint: EndpointId,
    /// Prompt tokens charged to the endpoint until its first byte.
    pub prefill_tokens: u32,
    /// Blocks of prompt charged to the endpoint until the end.
    pub blocks: u32,
}

/// Where a request goes.
#[derive(Clone, PartialEq, Debug)]
pub struct Pick {
    /// The chosen endpoint's address, then fallbacks in order.
    pub destinations: Vec<Address>,
    /// Leading blocks of the prompts that the chosen endpoint holds.
    pub matched: usize,
    /// Blocks in all prompts.
    pub blocks: usize,
    /// To be given back when the request ends.
    pub ticket: Ticket,
}

impl Pool {
    /// A pool that knows `snapshot` until the collector publishes, for the worker that draws `owner` as its number.
    pub fn new(options: PoolOptions, snapshot: Snapshot, owner: u64) -> Self {
        let name = &options.name;
        let mut pool = Self {
            view: View::new(name, snapshot),
            ring: Ring::new(name),
            ledger_key: ledger_key(name),
            index: PrefixIndex::default(),
            ledger: Ledger::default(),
            ledger_bytes: Vec::new(),
            row: Row {
                owner,
                ..Row::default()
            },
            claimed: false,
            conflicts: 0,
            options,
        };
        pool.follow_view();
        pool
    }

    /// Chooses an endpoint for `request` and counts it there, in one step that no other worker can come between.
    ///
    /// When other workers keep coming between, the third choice is kept and only counted again.
    pub fn pick(
        &mut self,
        shared: &impl SharedData,
        request: &Request,
        draws: &mut Draws,
        now: Timestamp,
    ) -> Result<Pick, Refusal> {
        self.catch_up(shared);
        let matched = self.matched(request);
        let blocks = request
            .prompts
            .iter()
            .map(|prompt| prompt.blocks.len())
            .sum();
        let mut pick = None;
        for attempt in 0..WRITES_MAX {
            let version = self.read_ledger(shared);
            if attempt < DECISIONS_MAX || pick.is_none() {
                pick = self.decide((&matched, blocks), request, draws, now);
            }
            let Some(pick) = &pick else {
                return Err(Refusal::NoEndpoint);
            };
            self.count(&pick.ticket, true);
            if self.write_ledger(shared, version, now) || attempt + 1 == WRITES_MAX {
                break;
            }
            self.conflicts += 1;
            self.count(&pick.ticket, false);
        }
        let pick = pick.ok_or(Refusal::NoEndpoint)?;
        for prompt in request
            .prompts
            .iter()
            .filter(|prompt| !prompt.blocks.is_empty())
        {
            self.place(shared, pick.ticket.endpoint, &prompt.blocks);
        }
        Ok(pick)
    }

    /// The endpoint has begun to answer: its prefill is done.
    pub fn on_first_byte(&mut self, shared: &impl SharedData, ticket: &mut Ticket, now: Timestamp) {
        if ticket.prefill_tokens > 0 {
            let load = self.row.load_mut(ticket.endpoint);
            load.prefill_tokens = load.prefill_tokens.saturating_sub(ticket.prefill_tokens);
            ticket.prefill_tokens = 0;
            self.rewrite_row(shared, now);
        }
    }

    /// Another endpoint than the chosen one has answered, by a retry or a fallback: it is counted there instead.
    ///
    /// False when the address is not in the pool; the request stays counted where it was.
    pub fn on_served_by(
        &mut self,
        shared: &impl SharedData,
        ticket: &mut Ticket,
        address: Address,
        now: Timestamp,
    ) -> bool {
        let endpoints = &self.view.snapshot().endpoints;
        let Some(served) = endpoints
            .iter()
            .find(|endpoint| endpoint.address == address)
        else {
            return false;
        };
        let id = served.id;
        if id != ticket.endpoint {
            self.count(ticket, false);
            ticket.endpoint = id;
            self.count(ticket, true);
            self.rewrite_row(shared, now);
        }
        true
    }

    /// The request has ended, whatever ended it.
    pub fn on_done(&mut self, shared: &impl SharedData, ticket: &Ticket, now: Timestamp) {
        let load = self.row.load_mut(ticket.endpoint);
        load.requests = load.requests.saturating_sub(1);
        load.prefill_tokens = load.prefill_tokens.saturating_sub(ticket.prefill_tokens);
        load.blocks = load.blocks.saturating_sub(ticket.blocks);
        self.rewrite_row(shared, now);
    }

    /// Keeps this worker's row alive and its copy of the ring short; to be called every 100 ms.
    pub fn tick(&mut self, shared: &impl SharedData, now: Timestamp) {
        self.catch_up(shared);
        if self.claimed && now.since(self.row.heartbeat) >= HEARTBEAT {
            let listed = |id| self.view.snapshot().endpoint(id).is_some();
            self.row
                .loads
                .retain(|(id, load)| load.requests > 0 || listed(*id));
            self.rewrite_row(shared, now);
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// The endpoints as this worker knows them.
    pub fn snapshot(&self) -> &Snapshot {
        self.view.snapshot()
    }

    /// What this worker could not do as it should have, counted since it started.
    pub fn troubles(&self) -> Troubles {
        Troubles {
            ledger_conflicts: self.conflicts,
            ring_lapped: self.ring.lapped,
            placements_unlinked: self.index.unlinked,
            snapshots_unreadable: self.view.unreadable,
        }
    }

    fn catch_up(&mut self, shared: &impl SharedData) {
        if self.view.refresh(shared) {
            self.follow_view();
        }
        let index = &mut self.index;
        self.ring.replay(shared, |placed| index.apply(placed));
    }

    /// Keeps a cache for every listed endpoint, of the size it tells, and for no other.
    fn follow_view(&mut self) {
        let snapshot = self.view.snapshot();
        self.index.retain(|id| snapshot.endpoint(id).is_some());
        for endpoint in &snapshot.endpoints {
            let told = endpoint.metrics.capacity_tokens;
            let keeps_prefixes = endpoint.metrics.prefix_caching != Some(false);
            if !keeps_prefixes {
                self.index.set_capacity(endpoint.id, 0);
            } else if let Some(tokens) = self.options.capacity_tokens.or(told) {
                let usable = tokens.saturating_mul(CAPACITY_USABLE_PERCENT) / 100;
                let blocks = usable / u64::from(BLOCK_TOKENS);
                self.index
                    .set_capacity(endpoint.id, usize::try_from(blocks).unwrap_or(usize::MAX));
            }
        }
    }

    /// Leading blocks of the request's prompts held by each endpoint, in the order of the snapshot.
    fn matched(&self, request: &Request) -> Vec<usize> {
        let held = |id| {
            request
                .prompts
                .iter()
                .map(|prompt| self.index.matched(id, &prompt.blocks))
                .sum()
        };
        self.view
            .snapshot()
            .endpoints
            .iter()
            .map(|endpoint| held(endpoint.id))
            .collect()
    }

    fn decide(
        &self,
        (matched, blocks): (&[usize], usize),
        request: &Request,
        draws: &mut Draws,
        now: Timestamp,
    ) -> Option<Pick> {
        let endpoints = &self.view.snapshot().endpoints;
        let candidates: Vec<Candidate<'_>> = eligible(endpoints)
            .map(|place| (&endpoints[place], matched[place]))
            .map(|(endpoint, matched)| Candidate {
                endpoint,
                fresh: endpoint.is_fresh(now, self.options.staleness_threshold),
                load: self.ledger.total(endpoint.id, now),
                matched,
            })
            .collect();
        let ranked = self.options.profile.rank(
            &Context {
                candidates: &candidates,
                blocks,
            },
            draws,
        );
        let ranked: Vec<&Candidate<'_>> = ranked.iter().map(|place| &candidates[*place]).collect();
        let best = ranked.first()?;
        let bytes: u64 = request.prompts.iter().map(|prompt| prompt.bytes).sum();
        let uncached = bytes.saturating_sub((best.matched * BLOCK_BYTES) as u64);
        let ticket = Ticket {
            endpoint: best.endpoint.id,
            prefill_tokens: u32::try_from(uncached / BYTES_PER_TOKEN).unwrap_or(u32::MAX),
            blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
        };
        let destinations = ranked
            .iter()
            .map(|candidate| candidate.endpoint.address)
            .collect();
        Some(Pick {
            destinations,
            matched: best.matched,
            blocks,
            ticket,
        })
    }

    fn count(&mut self, ticket: &Ticket, sent: bool) {
        let load = self.row.load_mut(ticket.endpoint);
        if sent {
            load.add(ticket.load());
            return;
        }
        load.requests = load.requests.saturating_sub(1);
        load.prefill_tokens = load.prefill_tokens.saturating_sub(ticket.prefill_tokens);
        load.blocks = load.blocks.saturating_sub(ticket.blocks);
        load.sent = load.sent.wrapping_sub(1);
    }

    fn read_ledger(&mut self, shared: &impl SharedData) -> Version {
        let version = shared.get(&self.ledger_key, &mut self.ledger_bytes);
        self.ledger = Ledger::decode(&self.ledger_bytes);
        version
    }

    fn write_ledger(&mut self, shared: &impl SharedData, version: Version, now: Timestamp) -> bool {
        self.claimed = true;
        self.ledger.put(&mut self.row, now);
        self.ledger_bytes.clear();
        self.ledger.encode(&mut self.ledger_bytes);
        shared.set_if(&self.ledger_key, &self.ledger_bytes, version)
    }

    /// Writes this worker's row; should other workers always be faster, the next write says the same.
    fn rewrite_row(&mut self, shared: &impl SharedData, now: Timestamp) {
        for _ in 0..WRITES_MAX {
            let version = self.read_ledger(shared);
            if self.write_ledger(shared, version, now) {
                return;
            }
            self.conflicts += 1;
        }
    }

    /// Tells all workers that `endpoint` holds `blocks` from now on.
    fn place(&mut self, shared: &impl SharedData, endpoint: EndpointId, blocks: &[BlockHash]) {
        for _ in 0..WRITES_MAX {
            let index = &mut self.index;
            self.ring.replay(shared, |placed| index.apply(placed));
            let placed = index.placement(endpoint, blocks);
            if self.ring.append(shared, &placed) {
                index.apply(&placed);
                return;
            }
        }
    }
}

impl Ticket {
    fn load(&self) -> Load {
        Load {
            requests: 1,
            prefill_tokens: self.prefill_tokens,
            blocks: self.blocks,
            sent: 1,
        }
    }
}

/// What a worker could not do as it should have. All are zero in a healthy Envoy but conflicts, which are rare.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Troubles {
    /// Times another worker wrote the ledger between our reading and our writing.
    pub ledger_conflicts: u64,
    /// Times ring entries were overwritten before this worker had read them.
    pub ring_lapped: u64,
    /// Placements that could not be understood because what came before them is not known here.
    pub placements_unlinked: u64,
    /// Snapshots that could not be read.
    pub snapshots_unreadable: u64,
}

/// The shared-data key of the ledger of `pool`.
pub fn ledger_key(pool: &str) -> String {
    format!("picker/{pool}/ledger")
}

/// Tokens in a hash block, at the ratio below.
const BLOCK_TOKENS: u32 = (BLOCK_BYTES as u64 / BYTES_PER_TOKEN) as u32;

/// Bytes of text that make a token: English prose and code have 3.2 to 5.3 with current vocabularies.
const BYTES_PER_TOKEN: u64 = 4;

/// Percent of the advertised cache that holds prefixes; the rest is taken by what is generated and by the engine. An
/// engine that advertises 10,217 blocks was measured to have 9,818 usable ones.
const CAPACITY_USABLE_PERCENT: u64 = 95;

/// How often a row is rewritten at least.
const HEARTBEAT: Span = Span::from_millis(250);

/// Decisions made for one request when other workers write between reading and writing.
const DECISIONS_MAX: u32 = 3;

/// Tries to write a key that other workers write too. Each failed one means that another worker got through.
const WRITES_MAX: u32 = 32;

#[cfg(test)]
#[path = "pool/tests.rs"]
mod tests;
