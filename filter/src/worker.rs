//! What the streams of one root share: its pools.

use std::cell::RefCell;
use std::rc::Rc;

use picker_core::{
    Affirmed, Config, Draws, HashSeed, Pool, PoolConfig, PoolOptions, Queued, SessionKey, Snapshot,
    Span, Stat, Timestamp, Troubles, TrustSource, affirm,
};

use crate::host::{self, Host};
use crate::stats::Stats;
use crate::waiting::{FAST, Waiters, Waiting};

/// The pools of one root, as one worker sees them.
pub(crate) struct Worker {
    pub(crate) config: Config,
    pub(crate) pools: Vec<WorkerPool>,
    pub(crate) draws: Draws,
    /// The names, in lower case, of request headers that pools ask for.
    pub(crate) asked: Vec<String>,
    /// Whether models may get other names.
    pub(crate) renames: bool,
    /// Whether some pool lets requests wait.
    pub(crate) queues: bool,
    /// Whether the host's timer goes off as often as it can, for something waits.
    pub(crate) is_fast: bool,
    configured_at: Timestamp,
    /// When a request came last, to leave collecting to a virtual machine that has none.
    pub(crate) last_request: Option<Timestamp>,
}

/// One pool, with what is needed only here.
pub(crate) struct WorkerPool {
    pub(crate) pool: Pool,
    pub(crate) seed: HashSeed,
    pub(crate) stats: Stats,
    pub(crate) waiters: Waiters,
    document: String,
    told: Troubles,
    conflict_logged: bool,
}

impl Worker {
    pub(crate) fn new(config: Config) -> Self {
        let owner = host::random();
        let pools = config
            .pools
            .iter()
            .map(|pool| WorkerPool::new(pool, config.session_key, owner))
            .collect();
        let draws = Draws::new(host::random());
        let trust = &config.trust;
        let mut asked: Vec<String> = Vec::new();
        for pool in &config.pools {
            let priority = trust.priority_source(pool);
            let trusted = priority.into_iter().chain(trust.fairness_source(pool));
            let trusted = trusted.flat_map(TrustSource::headers);
            let sticky = pool
                .rewrites
                .iter()
                .filter_map(|it| it.sticky_header.as_ref());
            for name in pool.plan.headers.iter().chain(trusted).chain(sticky) {
                if !asked.contains(name) {
                    asked.push(name.clone());
                }
            }
        }
        Self {
            asked,
            renames: config.pools.iter().any(PoolConfig::may_rename),
            queues: config.pools.iter().any(|it| it.plan.holds_requests()),
            is_fast: false,
            config,
            pools,
            draws,
            configured_at: host::now(),
            last_request: None,
        }
    }

    /// What is due every 100 ms.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        // When the clock has stepped back, a filter configured after the step comes later all the same.
        self.configured_at = self.configured_at.min(now);
        for pool in &mut self.pools {
            pool.affirm(self.configured_at, now);
            pool.pool.tick(&Host, now);
            pool.count_troubles();
            pool.stats.tell();
        }
        if self.queues {
            for index in 0..self.pools.len() {
                self.show_waiting(index, now);
                self.show_saturation(index, now);
                // The others may have found one here to make room, and not have woken this worker.
                self.run_turns(index, None, now);
            }
        }
    }

    /// Keeps a request that waits from now on.
    pub(crate) fn hold(&mut self, waiting: &Rc<RefCell<Waiting>>, now: Timestamp) {
        let index = waiting.borrow().pool;
        let Some(pool) = self.pools.get_mut(index) else {
            return;
        };
        pool.waiters.insert(waiting);
        pool.waiters.listen(pool.pool.name(), pool.pool.slot());
        if !self.is_fast {
            self.is_fast = host::set_tick_period(FAST).is_ok();
        }
        self.show_waiting(index, now);
    }

    /// What is due every few milliseconds while something waits here, and when this worker is woken.
    pub(crate) fn run_all_turns(&mut self, now: Timestamp) {
        for index in 0..self.pools.len() {
            self.expire(index, now);
            self.run_turns(index, None, now);
            // Whoever writes last may have read the board first, and leave an older number.
            self.show_waiting(index, now);
        }
    }

    /// Whether something waits here.
    pub(crate) fn is_waiting(&self) -> bool {
        self.queues && self.pools.iter().any(|it| it.pool.waiting() > 0)
    }

    /// Lets the host show what waits.
    pub(crate) fn show_waiting(&mut self, index: usize, now: Timestamp) {
        let Some(pool) = self.pools.get_mut(index) else {
            return;
        };
        for (priority, waiting) in pool.pool.waiting_by_band(now) {
            let oldest = waiting.since.map_or(Span(0), |it| now.since(it));
            for (queued, number) in [
                (Queued::Size, waiting.requests),
                (Queued::OldSize, waiting.requests),
                (Queued::Bytes, waiting.bytes),
                (Queued::OldBytes, waiting.bytes),
                (Queued::Oldest, oldest.as_millis()),
            ] {
                pool.stats.set(Stat::Queue(queued, priority), number);
            }
        }
    }

    fn show_saturation(&mut self, index: usize, now: Timestamp) {
        if let Some(pool) = self.pools.get_mut(index) {
            let saturation = pool.pool.saturation(now).unwrap_or(1.0);
            pool.stats
                .set(Stat::Saturation, (saturation * 100.0) as u64);
        }
    }

    /// Whether requests have come lately.
    pub(crate) fn is_busy(&self, now: Timestamp) -> bool {
        self.last_request
            .is_some_and(|at| now.apart(at) < IDLE_AFTER)
    }
}

impl WorkerPool {
    fn new(config: &PoolConfig, session_key: Option<SessionKey>, owner: u64) -> Self {
        let options = PoolOptions::of(config, session_key);
        let addresses = config.endpoints.iter().map(|endpoint| endpoint.address);
        Self {
            pool: Pool::new(options, Snapshot::unknown(addresses), owner),
            seed: HashSeed::new(&config.cache.hash_seed),
            stats: Stats::new(&config.name),
            waiters: Waiters::default(),
            document: config.to_document(),
            told: Troubles::default(),
            conflict_logged: false,
        }
    }

    fn affirm(&mut self, configured_at: Timestamp, now: Timestamp) {
        let name = self.pool.name();
        let superseded =
            affirm(&Host, name, &self.document, configured_at, now) == Affirmed::Superseded;
        if superseded && !self.conflict_logged {
            log::warn!(
                "picker: pool {name} is configured differently by a filter configured later, \
                 whose endpoints are used. Fix: give the pools different names, or one configuration."
            );
        }
        if superseded != self.conflict_logged {
            self.stats.set(Stat::ConfigConflict, u64::from(superseded));
            self.conflict_logged = superseded;
        }
    }

    fn count_troubles(&mut self) {
        let troubles = self.pool.troubles();
        let told = std::mem::replace(&mut self.told, troubles);
        for (stat, now, before) in [
            (
                Stat::LedgerConflicts,
                troubles.ledger_conflicts,
                told.ledger_conflicts,
            ),
            (Stat::RingLapped, troubles.ring_lapped, told.ring_lapped),
            (
                Stat::PlacementsUnlinked,
                troubles.placements_unlinked,
                told.placements_unlinked,
            ),
            (
                Stat::SnapshotsUnreadable,
                troubles.snapshots_unreadable,
                told.snapshots_unreadable,
            ),
        ] {
            self.stats.add(stat, now - before);
        }
        if troubles.cold != told.cold {
            self.stats.set(Stat::TwinCold, u64::from(troubles.cold));
        }
    }
}

impl Drop for WorkerPool {
    /// A configuration that is gone is in nobody's way, and lacks nothing.
    fn drop(&mut self) {
        if self.conflict_logged {
            self.stats.set(Stat::ConfigConflict, 0);
        }
        if self.told.cold {
            self.stats.set(Stat::TwinCold, 0);
        }
    }
}

/// A virtual machine without requests for this long is idle.
const IDLE_AFTER: Span = Span::from_millis(10_000);
