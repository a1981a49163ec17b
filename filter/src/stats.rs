//! Counters by their name, asked of the host once.

use picker_core::Stat;

use crate::host::{self, MetricKind};

/// The stats of one pool in this virtual machine.
pub(crate) struct Stats {
    pool: String,
    known: Vec<(Stat, Option<u32>)>,
}

impl Stats {
    pub(crate) fn new(pool: &str) -> Self {
        Self {
            pool: pool.to_owned(),
            known: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, stat: Stat, by: u64) {
        if by > 0
            && let Some(id) = self.id(stat)
        {
            host::increment(id, by);
        }
    }

    pub(crate) fn set(&mut self, stat: Stat, value: u64) {
        if let Some(id) = self.id(stat) {
            host::record(id, value);
        }
    }

    fn id(&mut self, stat: Stat) -> Option<u32> {
        if let Some((_, id)) = self.known.iter().find(|(known, _)| *known == stat) {
            return *id;
        }
        let kind = if stat.is_gauge() {
            MetricKind::Gauge
        } else {
            MetricKind::Counter
        };
        let id = host::define_metric(kind, &stat.name(&self.pool));
        self.known.push((stat, id));
        id
    }
}
