//! What the tasks of one server share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::engine_loop::Command;
use super::faults::{FaultChange, Faults, MetricsFault};
use super::log::Log;
use super::options::ServerOptions;
use super::page::metrics_page;
use super::stats::Stats;

/// The state of one server.
pub(super) struct Shared {
    pub(super) options: ServerOptions,
    pub(super) engine: UnboundedSender<Command>,
    /// Tells the listener what it should be doing.
    pub(super) mode: watch::Sender<Mode>,
    stats: Mutex<Stats>,
    log: Mutex<Log>,
    faults: Mutex<Faults>,
    /// The page that a stale server keeps showing.
    frozen_page: Mutex<Option<String>>,
    tickets: AtomicU64,
    fault_number: AtomicU64,
    /// Requests whose answer has not ended.
    pub(super) in_flight: AtomicU64,
}

/// What the listener should be doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mode {
    /// Goes up when all connections must close.
    pub(super) incarnation: u64,
    pub(super) refuse: bool,
    pub(super) stopped: bool,
}

impl Shared {
    pub(super) fn new(options: ServerOptions, engine: UnboundedSender<Command>) -> Self {
        let faults = options.faults;
        let mode = Mode {
            refuse: faults.refuse,
            ..Mode::default()
        };
        let shared = Self {
            engine,
            mode: watch::Sender::new(mode),
            stats: Mutex::new(Stats::new(SystemTime::now())),
            log: Mutex::new(Log::new(options.log_len)),
            faults: Mutex::new(Faults::default()),
            frozen_page: Mutex::new(None),
            tickets: AtomicU64::new(0),
            fault_number: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            options,
        };
        shared.change_faults(FaultChange {
            faults,
            ..FaultChange::default()
        });
        shared
    }

    /// Makes a change; the caller sees to [`FaultChange::refuse_for`].
    pub(super) fn change_faults(&self, change: FaultChange) {
        let before = std::mem::replace(&mut *lock(&self.faults), change.faults);
        if before.requests != change.faults.requests || before.rate != change.faults.rate {
            self.fault_number.store(0, Ordering::Relaxed);
        }
        let is_stale = change.faults.metrics == MetricsFault::Stale;
        if is_stale && before.metrics != MetricsFault::Stale {
            let page = metrics_page(&self.options, &self.stats());
            *lock(&self.frozen_page) = Some(page);
        }
        if change.restart {
            // Without an engine there is nobody to restart.
            let _ = self.engine.send(Command::Restart);
            *self.stats() = Stats::new(SystemTime::now());
        }
        self.mode.send_if_modified(|mode| {
            let refuses_now = change.faults.refuse && !mode.refuse;
            mode.incarnation += u64::from(refuses_now || change.restart);
            let changed = mode.refuse != change.faults.refuse || change.restart;
            mode.refuse = change.faults.refuse;
            changed
        });
    }

    /// Shows `page` until the metrics fault is another one than stale.
    pub(super) fn show_page(&self, page: String) {
        *lock(&self.frozen_page) = Some(page);
        lock(&self.faults).metrics = MetricsFault::Stale;
    }

    pub(super) fn faults(&self) -> Faults {
        *lock(&self.faults)
    }

    /// The number of this request among those that a fault may hit.
    pub(super) fn next_fault_number(&self) -> u64 {
        self.fault_number.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn next_ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn stats(&self) -> MutexGuard<'_, Stats> {
        lock(&self.stats)
    }

    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
        lock(&self.log)
    }

    pub(super) fn metrics_page(&self) -> String {
        metrics_page(&self.options, &self.stats())
    }

    pub(super) fn frozen_page(&self) -> String {
        lock(&self.frozen_page)
            .clone()
            .unwrap_or_else(|| self.metrics_page())
    }

    /// A simulated length of time in real time.
    pub(super) fn scaled(&self, duration: Duration) -> Duration {
        let seconds = duration.as_secs_f64() / self.options.time_scale;
        Duration::try_from_secs_f64(seconds).unwrap_or(DURATION_MAX)
    }
}

/// A panic elsewhere must not make the rest of a test server useless.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A day: what a time scale near 0 comes to.
const DURATION_MAX: Duration = Duration::from_secs(86_400);
