//! One pool as one worker sees it: what is known of its endpoints, and the decision.

mod answering;
mod bursts;
mod decide;
mod end;
mod evictions;
mod latencies;
mod outcome;
mod place;
mod retry;
mod sessions;
mod turns;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use self::decide::{Decision, Gate, Known};
pub use self::evictions::RunId;
use self::latencies::Latencies;
pub use self::turns::{Arrived, Asking, Turn};
use crate::adapter::ListedAdapters;
use crate::burst::Batch;
use crate::config::{FailureMode, PoolConfig};
use crate::discovery::stored_list;
use crate::drain::DrainRate;
use crate::draw::Draws;
use crate::flow::Desk;
use crate::means::Means;
use crate::pace::Pace;
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::replica::{Fit, Replica};
use crate::request::Request;
use crate::served::Served;
use crate::session::{SessionKey, Sessions};
use crate::shared::SharedData;
use crate::snapshot::{EndpointState, Snapshot, View};
use crate::tally::{Tally, WRITES_MAX};
use crate::ticket::Pick;
use crate::twin::Twins;
use crate::{Address, Span, Timestamp};

/// What a pool needs to know besides its endpoints.
#[derive(Default)]
pub struct PoolOptions {
    /// The name, part of every key of its shared state.
    pub name: String,
    /// How endpoints are chosen.
    pub plan: Plan,
    /// The labels of endpoints that have some, in the order of addresses.
    pub labels: Vec<(Address, Labels)>,
    /// Whether the endpoints are discovered: their labels are then those of the list that is found,
    /// and what happens when none is eligible may stand there too.
    pub is_discovered: bool,
    /// Metrics older than this say nothing.
    pub staleness_threshold: Span,
    /// The cache of every endpoint in tokens; `None` to believe the endpoint's page.
    pub capacity_tokens: Option<u64>,
    /// The key of session tokens; `None` for one that this Envoy process draws.
    pub session_key: Option<SessionKey>,
    /// Requests that this Envoy has in flight at one endpoint at most; `None` for any number.
    pub requests_per_endpoint: Option<u32>,
    /// Whether a pick shows the totals of all endpoints that could have been chosen.
    pub emit_scores: bool,
}

impl PoolOptions {
    /// What a configuration says of the pool.
    pub fn of(config: &PoolConfig, session_key: Option<SessionKey>) -> Self {
        Self {
            name: config.name.clone(),
            plan: config.plan.clone(),
            labels: config.labels(),
            is_discovered: config.discovery.is_some(),
            staleness_threshold: config.scrape.staleness_threshold,
            capacity_tokens: config.cache.capacity_tokens,
            session_key,
            requests_per_endpoint: config.limits.requests_per_endpoint,
            emit_scores: config.emit_scores,
        }
    }
}

/// Labels of an endpoint by name.
pub type Labels = Vec<(String, String)>;

/// One pool as one worker sees it.
pub struct Pool {
    options: PoolOptions,
    view: View,
    /// When it was made sure last that the view is the newest.
    viewed_at: Option<Timestamp>,
    replica: Replica,
    /// The number of the list whose labels are in use, and what it says of failures.
    list: (u32, Option<FailureMode>),
    /// For every endpoint of the view, where its labels are among those of the options.
    labelled: Vec<Option<usize>>,
    adapters: ListedAdapters,
    tally: Tally,
    desk: Desk,
    batch: Batch,
    means: Means,
    served: Served,
    pace: Pace,
    drain: DrainRate,
    needs_cold_order: bool,
    /// Where the plan has a use for sessions.
    sessions: Option<Box<Sessions>>,
    /// Where the plan predicts latencies.
    latencies: Option<Box<Latencies>>,
}

impl Pool {
    /// A pool that knows `snapshot` until the collector publishes, for the worker that draws
    /// `owner` as its number.
    pub fn new(options: PoolOptions, snapshot: Snapshot, owner: u64) -> Self {
        let name = &options.name;
        let mut pool = Self {
            view: View::new(name, snapshot),
            viewed_at: None,
            replica: Replica::new(name, options.plan.producers.media_max),
            list: (0, None),
            labelled: Vec::new(),
            adapters: ListedAdapters::default(),
            tally: Tally::new(name, owner),
            desk: Desk::new(name, owner),
            batch: Batch::default(),
            means: Means::default(),
            served: Served::default(),
            pace: Pace::default(),
            drain: DrainRate::default(),
            needs_cold_order: options.plan.needs_cold_order(),
            latencies: options.plan.foretelling.is_some().then(Box::default),
            sessions: Sessions::new(name, &options.plan, options.session_key),
            options,
        };
        pool.follow_view();
        pool
    }

    /// Chooses an endpoint for `request` and counts it there, in one step that no other worker can
    /// come between.
    ///
    /// When other workers keep coming between, the third choice is kept and only counted again;
    /// where there is a limit it is not, and in the end the request is refused.
    pub fn pick(
        &mut self,
        shared: &impl SharedData,
        request: &Request,
        draws: &mut Draws,
        now: Timestamp,
    ) -> Result<Pick, Refusal> {
        self.pick_through(shared, (request, None), draws, now)
    }

    /// Does the same, where there is a gate only when that is open.
    fn pick_through(
        &mut self,
        shared: &impl SharedData,
        (request, gate): (&Request, Option<Gate>),
        draws: &mut Draws,
        now: Timestamp,
    ) -> Result<Pick, Refusal> {
        self.catch_up(shared, now);
        let known = Known {
            gate,
            ..self.known(request)
        };
        self.pick_known(shared, known, draws, now)
    }

    fn pick_known(
        &mut self,
        shared: &impl SharedData,
        mut known: Known<'_>,
        draws: &mut Draws,
        now: Timestamp,
    ) -> Result<Pick, Refusal> {
        let (request, gate) = (known.request, known.gate);
        if request.priority < 0 {
            known.luck = draws.unit();
        }
        known.pins = self.pins(shared, request, draws, now);
        let mut decision = None;
        // A limit holds only for a decision that no other worker has come between.
        let is_limited = gate.is_some() || self.options.requests_per_endpoint.is_some();
        for attempt in 0..WRITES_MAX {
            let version = self.tally.read(shared);
            if is_limited || attempt < DECISIONS_MAX || decision.is_none() {
                decision = Some(self.decide(&known, draws, now)?);
            }
            let Some(Decision { pick, .. }) = &decision else {
                break;
            };
            let before = pick
                .loads()
                .map(|it| it.map(|(id, load)| (id, self.tally.add(id, load))));
            if self.tally.write(shared, version, now) {
                break;
            }
            if attempt + 1 == WRITES_MAX && !is_limited {
                break;
            }
            // Backwards, for two of them can be of one endpoint.
            for (id, before) in before.into_iter().rev().flatten() {
                *self.tally.load_mut(id) = before;
            }
            if attempt + 1 == WRITES_MAX {
                return Err(Refusal::Saturated);
            }
        }
        let mut decision = decision.ok_or(Refusal::NoEndpoint)?;
        let counted = gate.and_then(|it| self.counted_flow(it, request));
        decision.pick.ticket.flow = counted.map(Box::new);
        if gate.is_some() {
            self.run(shared, &mut decision.pick.ticket, request.priority, now);
        }
        self.bind(shared, &known, &decision, now);
        self.place(shared, &known, &mut decision);
        self.begin_lesson(&decision.pick.ticket);
        Ok(decision.pick)
    }

    /// Where `request` would go by what this worker knows already, without sending it: a decision
    /// by itself.
    ///
    /// The ticket counts for nothing.
    pub fn preview(
        &self,
        request: &Request,
        draws: &mut Draws,
        now: Timestamp,
    ) -> Result<Pick, Refusal> {
        let decision = self.decide(&self.known(request), draws, now)?;
        Ok(decision.pick)
    }

    /// Keeps this worker's row alive and its copy of the ring short, and tells what is not told yet;
    /// to be called every 100 ms.
    pub fn tick(&mut self, shared: &impl SharedData, now: Timestamp) {
        self.refresh(shared, now);
        self.replica.follow(shared);
        self.tell(shared, now);
        if let Some(flow) = &self.options.plan.flow {
            self.desk.tick(shared, flow, now);
            self.desk.sweep(shared, flow, now);
        }
        if self.tally.is_claimed() && now.apart(self.tally.told_at()) >= HEARTBEAT {
            let snapshot = self.view.snapshot();
            self.tally.retain(|id| snapshot.endpoint(id).is_some());
            self.tally.rewrite(shared, now);
        }
        self.replica.write_checkpoint(shared, now);
        self.tally.read(shared);
        let live = self.tally.live_owners(now);
        self.replica.retain(|owner| live.contains(&owner));
        self.follow_drain(now);
        self.share_latencies(shared, now);
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
        &self.replica.twins
    }

    /// What this worker could not do as it should have, counted since it started.
    pub fn troubles(&self) -> Troubles {
        Troubles {
            ledger_conflicts: self.tally.conflicts,
            ring_lapped: self.replica.ring.lapped,
            placements_unlinked: self.twins().unlinked,
            snapshots_unreadable: self.view.unreadable,
            cold: self.replica.is_cold,
        }
    }

    fn catch_up(&mut self, shared: &impl SharedData, now: Timestamp) {
        if self.viewed_at.is_none_or(|at| now.apart(at) >= VIEW_EVERY) {
            self.refresh(shared, now);
        }
        self.replica.follow(shared);
    }

    /// Takes in the newest metrics of the endpoints.
    pub fn refresh(&mut self, shared: &impl SharedData, now: Timestamp) {
        self.viewed_at = Some(now);
        if self.view.refresh(shared) {
            self.follow_list(shared);
            self.follow_view();
        }
    }

    /// What happens to a request when no endpoint is eligible, where that is discovered.
    pub fn failure_mode(&self) -> Option<FailureMode> {
        self.list.1
    }

    /// Reads the labels of discovered endpoints again when they have changed.
    fn follow_list(&mut self, shared: &impl SharedData) {
        if !self.options.is_discovered || self.view.snapshot().list == self.list.0 {
            return;
        }
        // A list that cannot be read leaves the last one in use; a newer one than the snapshot's is
        // as good, and read once more with its own.
        if let Some((number, listed)) = stored_list(shared, &self.options.name) {
            self.list = (number, listed.failure_mode);
            self.options.labels = listed.labels;
        }
    }

    /// Tells the others what this worker's requests have done, unless that is too often: then the
    /// next pick or tick does.
    fn tell_soon(&mut self, shared: &impl SharedData, now: Timestamp) {
        if self.pace.allows(now) {
            self.tell(shared, now);
        }
    }

    fn tell(&mut self, shared: &impl SharedData, now: Timestamp) {
        if self.tally.is_untold() {
            self.tally.rewrite(shared, now);
        }
        if self.replica.is_untold() {
            self.replica.tell(shared, |_| None);
        }
    }

    /// Keeps a twin for every listed endpoint, of the size it tells, and for no other.
    fn follow_view(&mut self) {
        let endpoints = &self.view.snapshot().endpoints;
        self.adapters.follow(endpoints, &self.replica.twins);
        let fit = |endpoint: &EndpointState| Fit {
            endpoint: endpoint.id,
            capacity: self.capacity_blocks(endpoint),
            adapter_slots: endpoint.metrics.lora.as_ref().map(|lora| lora.max),
        };
        let fits = endpoints.iter().map(fit).collect();
        self.replica.fit(fits);
        let labels = &self.options.labels;
        let labelled = |it: &EndpointState| {
            let place = labels.binary_search_by_key(&it.address, |(address, _)| *address);
            place.ok()
        };
        self.labelled = endpoints.iter().map(labelled).collect();
        if let Some(sessions) = &mut self.sessions {
            sessions.follow(endpoints);
        }
        if let Some(latencies) = &mut self.latencies {
            let snapshot = self.view.snapshot();
            latencies.retain(|id| snapshot.endpoint(id).is_some());
        }
    }

    /// The labels of the endpoint at this place of the view.
    fn labels_of(&self, place: usize) -> &[(String, String)] {
        let labelled = self.labelled.get(place).copied().flatten();
        let labels = labelled.and_then(|it| self.options.labels.get(it));
        labels.map_or(&[], |(_, labels)| labels.as_slice())
    }

    /// The blocks that an endpoint has room for.
    fn capacity_blocks(&self, endpoint: &EndpointState) -> Option<usize> {
        if endpoint.metrics.prefix_caching == Some(false) {
            return Some(0);
        }
        // Others' prompts take their share of the cache.
        let ours = endpoint.cache_fit * endpoint.share.unwrap_or(1.0);
        let blocks = |tokens: f64| Some((tokens * ours / self.means.block_tokens()) as usize);
        let told = self.capacity_tokens(endpoint);
        if self.options.capacity_tokens.is_none()
            && let Some(tokens) = self.options.plan.producers.twin_tokens(told)
        {
            return blocks(tokens as f64);
        }
        let offloaded = match self.options.capacity_tokens {
            None => endpoint.metrics.offload_tokens.unwrap_or(0),
            Some(_) => 0,
        };
        blocks(told? as f64 * CAPACITY_USABLE + offloaded as f64)
    }

    fn capacity_tokens(&self, endpoint: &EndpointState) -> Option<u64> {
        self.options
            .capacity_tokens
            .or(endpoint.metrics.capacity_tokens)
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

/// The part of the advertised cache that holds prefixes; the rest is taken by what is generated and
/// by the engine. An engine that advertises 10,217 blocks was measured to have 9,818 usable ones.
const CAPACITY_USABLE: f64 = 0.95;

/// How often a row is rewritten at least.
const HEARTBEAT: Span = Span::from_millis(250);

/// Decisions made for one request when other workers write between reading and writing.
const DECISIONS_MAX: u32 = 3;

/// How often a pick looks for new metrics at most; they come every 100 ms or so.
const VIEW_EVERY: Span = Span::from_millis(10);

#[cfg(test)]
#[path = "pool/tests.rs"]
mod tests;
