//! One pool as one worker sees it: what is known of its endpoints, and the decision.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::adapter::{AdapterFit, ListedAdapters};
use crate::candidate::{Candidate, Context};
use crate::checkpoint;
use crate::draw::Draws;
use crate::eligibility::eligible;
use crate::health::Verdict;
use crate::ledger::{Ledger, Row};
use crate::means::Means;
use crate::profile::Profile;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::ring::{Done, Entry, Judged, Ring};
use crate::shared::{SharedData, Version};
use crate::snapshot::{EndpointState, Snapshot, View};
use crate::ticket::{Answered, Pick, Ticket};
use crate::twin::{Held, Twins};
use crate::{Address, BlockHash, EndpointId, Span, Timestamp};

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
    twins: Twins,
    adapters: ListedAdapters,
    ring: Ring,
    /// Whether the twins lack what was placed before this worker came.
    is_cold: bool,
    ledger_key: String,
    ledger: Ledger,
    ledger_bytes: Vec<u8>,
    row: Row,
    /// Whether this worker has a row; it claims one with its first pick.
    claimed: bool,
    means: Means,
    /// Times another worker wrote the ledger between our reading and our writing.
    conflicts: u64,
}

impl Pool {
    /// A pool that knows `snapshot` until the collector publishes, for the worker that draws
    /// `owner` as its number.
    pub fn new(options: PoolOptions, snapshot: Snapshot, owner: u64) -> Self {
        let name = &options.name;
        let mut pool = Self {
            view: View::new(name, snapshot),
            ring: Ring::new(name),
            is_cold: false,
            ledger_key: ledger_key(name),
            twins: Twins::default(),
            adapters: ListedAdapters::default(),
            ledger: Ledger::default(),
            ledger_bytes: Vec::new(),
            row: Row {
                owner,
                ..Row::default()
            },
            claimed: false,
            means: Means::default(),
            conflicts: 0,
            options,
        };
        pool.follow_view();
        pool
    }

    /// Chooses an endpoint for `request` and counts it there, in one step that no other worker can
    /// come between.
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
        let held = self.held(request);
        let mut pick = None;
        for attempt in 0..WRITES_MAX {
            let version = self.read_ledger(shared);
            if attempt < DECISIONS_MAX || pick.is_none() {
                pick = self.decide(&held, request, draws, now);
            }
            let Some(pick) = &pick else {
                return Err(Refusal::NoEndpoint);
            };
            let load = self.row.load_mut(pick.endpoint);
            let before = *load;
            load.add(pick.load());
            if self.write_ledger(shared, version, now) || attempt + 1 == WRITES_MAX {
                break;
            }
            self.conflicts += 1;
            *self.row.load_mut(pick.endpoint) = before;
        }
        let mut pick = pick.ok_or(Refusal::NoEndpoint)?;
        self.place(shared, request, &mut pick);
        Ok(pick)
    }

    /// Where `request` would go by what this worker knows already, without sending it: a decision
    /// by itself.
    ///
    /// `None` when there is no endpoint. The ticket counts for nothing.
    pub fn preview(&self, request: &Request, draws: &mut Draws, now: Timestamp) -> Option<Pick> {
        self.decide(&self.held(request), request, draws, now)
    }

    /// The endpoint has begun to answer: its prefill is done.
    pub fn on_first_byte(&mut self, shared: &impl SharedData, ticket: &mut Ticket, now: Timestamp) {
        let tokens = core::mem::take(&mut ticket.prefill_tokens);
        if let Some(endpoint) = ticket.endpoint
            && tokens > 0
        {
            let load = self.row.load_mut(endpoint);
            load.prefill_tokens = load.prefill_tokens.saturating_sub(tokens);
            self.rewrite_row(shared, now);
        }
    }

    /// Tells that `address` answers, which is another than the chosen one after a retry or a
    /// fallback.
    ///
    /// The request is then counted there. Gives whether it was the chosen one.
    pub fn on_served_by(
        &mut self,
        shared: &impl SharedData,
        ticket: &mut Ticket,
        address: Address,
        now: Timestamp,
    ) -> bool {
        let endpoints = &self.view.snapshot().endpoints;
        let served = endpoints
            .iter()
            .find(|endpoint| endpoint.address == address);
        let served = served.map(|endpoint| endpoint.id);
        let Some(chosen) = ticket.endpoint else {
            return false;
        };
        if served == Some(chosen) {
            return true;
        }
        if let Some(served) = served {
            self.row.load_mut(chosen).release(ticket.prefill_tokens);
            let load = self.row.load_mut(served);
            load.requests = load.requests.saturating_add(1);
            load.prefill_tokens = load.prefill_tokens.saturating_add(ticket.prefill_tokens);
            ticket.endpoint = Some(served);
            self.rewrite_row(shared, now);
        }
        false
    }

    /// Tells how the endpoint that answers does. News goes to all workers.
    pub fn on_verdict(
        &mut self,
        shared: &impl SharedData,
        ticket: &Ticket,
        verdict: Verdict,
        now: Timestamp,
    ) {
        let Some(endpoint) = ticket.endpoint else {
            return;
        };
        if verdict != Verdict::Served || !self.twins.health(endpoint).is_clean() {
            let judged = Judged {
                endpoint,
                verdict,
                at: now,
            };
            self.append(shared, |_| Entry::Judged(judged));
        }
    }

    /// The request has ended, whatever ended it. Only the first call for a ticket counts.
    pub fn on_done(
        &mut self,
        shared: &impl SharedData,
        ticket: &mut Ticket,
        answered: Answered,
        now: Timestamp,
    ) {
        let Some(endpoint) = ticket.endpoint.take() else {
            return;
        };
        let load = self.row.load_mut(endpoint);
        load.release(ticket.prefill_tokens);
        if let Some(cached) = answered.cached_tokens {
            load.checked_tokens = load.checked_tokens.wrapping_add(ticket.matched_tokens);
            load.cached_tokens = load.cached_tokens.wrapping_add(cached);
        }
        self.rewrite_row(shared, now);
        self.means.learn(ticket.bytes, answered);
        // The last token has no KV: nothing was computed from it.
        let output = answered.output_tokens.unwrap_or(0).saturating_sub(1);
        let cached_blocks = answered
            .cached_tokens
            .filter(|_| ticket.placed.len() == 1)
            .map(|tokens| self.means.blocks(tokens));
        for placed in core::mem::take(&mut ticket.placed) {
            let done = Done {
                placed,
                output_blocks: self.means.blocks(output),
                cached_blocks,
            };
            self.append(shared, |_| Entry::Done(done));
        }
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
        self.write_checkpoint(shared, now);
        self.read_ledger(shared);
        let (snapshot, ledger) = (self.view.snapshot(), &self.ledger);
        let is_live = |owner| {
            ledger
                .rows
                .iter()
                .any(|row| row.owner == owner && row.is_live(now))
        };
        self.twins
            .retain(|id| snapshot.endpoint(id).is_some(), is_live);
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// The endpoints as this worker knows them.
    pub fn snapshot(&self) -> &Snapshot {
        self.view.snapshot()
    }

    /// The twins of the endpoints' caches as this worker knows them.
    pub fn twins(&self) -> &Twins {
        &self.twins
    }

    /// What this worker could not do as it should have, counted since it started.
    pub fn troubles(&self) -> Troubles {
        Troubles {
            ledger_conflicts: self.conflicts,
            ring_lapped: self.ring.lapped,
            placements_unlinked: self.twins.unlinked,
            snapshots_unreadable: self.view.unreadable,
            cold: self.is_cold,
        }
    }

    fn catch_up(&mut self, shared: &impl SharedData) {
        if self.view.refresh(shared) {
            self.follow_view();
        }
        self.follow_ring(shared);
    }

    /// Takes in what other workers have told; starts over from their twins when too much was
    /// missed.
    fn follow_ring(&mut self, shared: &impl SharedData) {
        if self.replay_ring(shared) {
            return;
        }
        self.twins = Twins::default();
        let count = self.view.snapshot().endpoints.len();
        let from = checkpoint::restore(shared, &self.options.name, count, &mut self.twins);
        self.is_cold = from.is_none();
        self.ring.rejoin(shared, from.unwrap_or(0));
        self.follow_view();
        // Should this not be enough either, the next call starts over again.
        let _ = self.replay_ring(shared);
    }

    /// Applies the entries not read yet; false when some were overwritten before.
    fn replay_ring(&mut self, shared: &impl SharedData) -> bool {
        let twins = &mut self.twins;
        self.ring
            .replay(shared, |sequence, entry| twins.apply(sequence, entry))
    }

    /// Writes some twins for workers that come late.
    fn write_checkpoint(&self, shared: &impl SharedData, now: Timestamp) {
        let (name, endpoints) = (&self.options.name, &self.view.snapshot().endpoints);
        let last = self.ring.next() - 1;
        if self.is_cold || endpoints.is_empty() || last == 0 {
            return;
        }
        for place in checkpoint::claim(shared, name, endpoints.len(), now) {
            if let Some(endpoint) = endpoints.get(place) {
                checkpoint::write(shared, name, (place, endpoint.id), (&self.twins, last));
            }
        }
    }

    /// Keeps a twin for every listed endpoint, of the size it tells, and for no other.
    fn follow_view(&mut self) {
        let block_tokens = self.means.block_tokens();
        let snapshot = self.view.snapshot();
        self.twins
            .retain(|id| snapshot.endpoint(id).is_some(), |_| true);
        self.adapters.clear();
        for endpoint in &snapshot.endpoints {
            if let Some(lora) = &endpoint.metrics.lora {
                self.adapters.follow(endpoint.id, lora);
                self.twins.set_adapter_slots(endpoint.id, lora.max);
            }
            if endpoint.metrics.prefix_caching == Some(false) {
                self.twins.set_capacity(endpoint.id, 0);
            } else if let Some(tokens) = self.capacity_tokens(endpoint) {
                // Others' prompts take their share of the cache.
                let ours = endpoint.cache_fit * endpoint.share.unwrap_or(1.0);
                let offloaded = match self.options.capacity_tokens {
                    None => endpoint.metrics.offload_tokens.unwrap_or(0),
                    Some(_) => 0,
                };
                let tokens = tokens as f64 * CAPACITY_USABLE + offloaded as f64;
                let usable = tokens * ours;
                self.twins
                    .set_capacity(endpoint.id, (usable / block_tokens) as usize);
            }
        }
    }

    fn capacity_tokens(&self, endpoint: &EndpointState) -> Option<u64> {
        self.options
            .capacity_tokens
            .or(endpoint.metrics.capacity_tokens)
    }

    fn adapter_fit(&self, endpoint: EndpointId, adapter: u64) -> Option<AdapterFit> {
        let listed = self.adapters.of(endpoint)?;
        Some(self.twins.adapters(endpoint)?.fit(adapter, listed))
    }

    /// What each endpoint holds of the request's prompts, in the order of the snapshot.
    fn held(&self, request: &Request) -> Vec<Held> {
        let of_endpoint = |id| {
            let held = request
                .prompts
                .iter()
                .map(|prompt| self.twins.held(id, &prompt.blocks));
            held.fold(Held::default(), Held::plus)
        };
        self.view
            .snapshot()
            .endpoints
            .iter()
            .map(|endpoint| of_endpoint(endpoint.id))
            .collect()
    }

    fn decide(
        &self,
        held: &[Held],
        request: &Request,
        draws: &mut Draws,
        now: Timestamp,
    ) -> Option<Pick> {
        let endpoints = &self.view.snapshot().endpoints;
        let loads = self.ledger.totals(endpoints.iter().map(|it| it.id), now);
        let adapter = self.adapters.needed_by(request);
        let may_serve = |place: usize| {
            self.twins
                .health(endpoints[place].id)
                .may_serve(loads[place].requests, now)
        };
        let candidates: Vec<Candidate<'_>> = eligible(endpoints, may_serve)
            .into_iter()
            .map(|place| (&endpoints[place], held[place], loads[place]))
            .map(|(endpoint, held, load)| Candidate {
                endpoint,
                fresh: endpoint.is_fresh(now, self.options.staleness_threshold),
                load,
                held,
                pinned: self.twins.pinned(endpoint.id),
                capacity_tokens: self.capacity_tokens(endpoint),
                adapter: adapter.and_then(|adapter| self.adapter_fit(endpoint.id, adapter)),
            })
            .collect();
        let bytes: u64 = request.prompts.iter().map(|prompt| prompt.bytes).sum();
        let cx = Context {
            candidates: &candidates,
            blocks: request
                .prompts
                .iter()
                .map(|prompt| prompt.blocks.len())
                .sum(),
            prompt_tokens: self.means.tokens(bytes),
            block_tokens: self.means.block_tokens(),
            output_tokens: request.output_cap.map_or(self.means.output_tokens, |cap| {
                self.means.output_tokens.min(cap as f64)
            }),
            group: request.group,
        };
        let ranked = self.options.profile.rank(&cx, draws);
        let ranked: Vec<&Candidate<'_>> = ranked.iter().map(|place| &candidates[*place]).collect();
        let best = ranked.first()?;
        let endpoint = best.endpoint.id;
        let missing = cx.missing_tokens(best);
        let matched_tokens = cx.prompt_tokens.saturating_sub(missing);
        let prefill_tokens = u32::try_from(missing).unwrap_or(u32::MAX);
        Some(Pick {
            endpoint,
            destinations: ranked
                .iter()
                .map(|candidate| candidate.endpoint.address)
                .collect(),
            matched: best.held.matched,
            blocks: cx.blocks,
            prompt_tokens: u32::try_from(cx.prompt_tokens).unwrap_or(u32::MAX),
            ticket: Ticket {
                prefill_tokens,
                matched_tokens: u32::try_from(matched_tokens).unwrap_or(u32::MAX),
                bytes,
                placed: Vec::new(),
                endpoint: Some(endpoint),
            },
        })
    }

    fn read_ledger(&mut self, shared: &impl SharedData) -> Version {
        let version = shared.get(&self.ledger_key, &mut self.ledger_bytes);
        self.ledger = Ledger::decode(&self.ledger_bytes);
        version
    }

    /// Writes this worker's row into the ledger that was read last.
    fn write_ledger(&mut self, shared: &impl SharedData, version: Version, now: Timestamp) -> bool {
        self.claimed = true;
        if !Ledger::overwrite(&mut self.ledger_bytes, &mut self.row, now) {
            self.ledger = Ledger::decode(&self.ledger_bytes);
            self.ledger.put(&mut self.row, now);
            self.ledger_bytes.clear();
            self.ledger.encode(&mut self.ledger_bytes);
        }
        shared.set_if(&self.ledger_key, &self.ledger_bytes, version)
    }

    /// Writes this worker's row; should other workers always be faster, the next write says the
    /// same.
    fn rewrite_row(&mut self, shared: &impl SharedData, now: Timestamp) {
        for _ in 0..WRITES_MAX {
            let version = shared.get(&self.ledger_key, &mut self.ledger_bytes);
            if self.write_ledger(shared, version, now) {
                return;
            }
            self.conflicts += 1;
        }
    }

    /// Tells all workers that the picked endpoint holds the request's prompts from now on, and its
    /// adapter.
    fn place(&mut self, shared: &impl SharedData, request: &Request, pick: &mut Pick) {
        let (endpoint, owner) = (pick.endpoint, self.row.owner);
        let mut adapter = self.adapters.needed_by(request);
        let mut chains: Vec<&[BlockHash]> = request
            .prompts
            .iter()
            .map(|prompt| prompt.blocks.as_slice())
            .collect();
        chains.retain(|blocks| !blocks.is_empty());
        if chains.is_empty() && adapter.is_some() {
            chains.push(&[]);
        }
        for blocks in chains {
            let adapter = adapter.take();
            let place =
                |twins: &Twins| Entry::Placed(twins.placement(endpoint, blocks, (owner, adapter)));
            pick.ticket.placed.extend(self.append(shared, place));
        }
    }

    /// Appends the entry that `make` builds once the twins know all entries before it; gives its
    /// number.
    fn append(&mut self, shared: &impl SharedData, make: impl Fn(&Twins) -> Entry) -> Option<u64> {
        for _ in 0..WRITES_MAX {
            if !self.ring.is_at_end() {
                self.follow_ring(shared);
            }
            let entry = make(&self.twins);
            if let Some(sequence) = self.ring.append(shared, &entry) {
                self.twins.apply(sequence, &entry);
                return Some(sequence);
            }
        }
        None
    }
}

/// What a worker could not do as it should have. All are zero in a healthy Envoy but conflicts,
/// which are rare.
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
    /// Whether this worker came late and found no twins to begin with.
    pub cold: bool,
}

/// The shared-data key of the ledger of `pool`.
pub fn ledger_key(pool: &str) -> String {
    format!("picker/{pool}/ledger")
}

/// The part of the advertised cache that holds prefixes; the rest is taken by what is generated and
/// by the engine. An engine that advertises 10,217 blocks was measured to have 9,818 usable ones.
const CAPACITY_USABLE: f64 = 0.95;

/// How often a row is rewritten at least.
const HEARTBEAT: Span = Span::from_millis(250);

/// Decisions made for one request when other workers write between reading and writing.
const DECISIONS_MAX: u32 = 3;

/// Tries to write a key that other workers write too. Each failed one means that another worker got
/// through.
const WRITES_MAX: u32 = 32;

#[cfg(test)]
#[path = "pool/tests.rs"]
mod tests;
