//! Counters by their name, asked of the host once and told to it at every tick: a call for each
//! event would cost more than most events.

use picker_core::Stat;

use crate::host::{self, MetricKind};

/// The stats of one pool in this virtual machine.
pub(crate) struct Stats {
    pool: String,
    known: Vec<Known>,
}

struct Known {
    stat: Stat,
    /// `None` when the host does not want it.
    id: Option<u32>,
    /// What was counted and not told yet.
    untold: u64,
}

impl Stats {
    pub(crate) fn new(pool: &str) -> Self {
        Self {
            pool: pool.to_owned(),
            known: Vec::new(),
        }
    }

    /// Counts; the host learns of it with the next [`Stats::tell`].
    pub(crate) fn add(&mut self, stat: Stat, by: u64) {
        if by > 0 {
            self.known_mut(stat).untold += by;
        }
    }

    /// Lets the host show a stat from now on, before there is anything to count.
    pub(crate) fn show(&mut self, stat: Stat) {
        self.known_mut(stat);
    }

    /// Sets a gauge at once.
    pub(crate) fn set(&mut self, stat: Stat, value: u64) {
        if let Some(id) = self.known_mut(stat).id {
            host::record(id, value);
        }
    }

    /// Tells the host what was counted; to be called every 100 ms.
    pub(crate) fn tell(&mut self) {
        for known in &mut self.known {
            let by = std::mem::take(&mut known.untold);
            if by > 0
                && let Some(id) = known.id
            {
                host::increment(id, by);
            }
        }
    }

    fn known_mut(&mut self, stat: Stat) -> &mut Known {
        let index = self.known.iter().position(|known| known.stat == stat);
        let index = index.unwrap_or_else(|| {
            let kind = if stat.is_gauge() {
                MetricKind::Gauge
            } else {
                MetricKind::Counter
            };
            let id = host::define_metric(kind, &stat.name(&self.pool));
            self.known.push(Known {
                stat,
                id,
                untold: 0,
            });
            self.known.len() - 1
        });
        &mut self.known[index]
    }
}

impl Drop for Stats {
    fn drop(&mut self) {
        self.tell();
    }
}
