//! What is in flight, as one worker counts it and reads it of the others.

use alloc::string::String;
use alloc::vec::Vec;

use crate::ledger::{self, Ledger, Load, Row};
use crate::shared::{SharedData, Version};
use crate::{EndpointId, Timestamp};

/// One worker's row in the ledger of its pool, and the ledger as it was read last.
pub(crate) struct Tally {
    key: String,
    bytes: Vec<u8>,
    row: Row,
    /// Whether this worker has a row; it claims one with its first pick.
    claimed: bool,
    /// Whether the row says more than the others were told.
    untold: bool,
    /// Times another worker wrote between our reading and our writing.
    pub(crate) conflicts: u64,
}

impl Tally {
    /// The row of `owner`, not claimed yet.
    pub(crate) fn new(pool: &str, owner: u64) -> Self {
        Self {
            key: ledger::key(pool),
            bytes: Vec::new(),
            row: Row {
                owner,
                ..Row::default()
            },
            claimed: false,
            untold: false,
            conflicts: 0,
        }
    }

    /// Who this worker is in rows and ring entries.
    pub(crate) fn owner(&self) -> u64 {
        self.row.owner
    }

    /// The number that no other live row has; `None` until there is a row.
    pub(crate) fn slot(&self) -> Option<u8> {
        self.claimed.then_some(self.row.slot)
    }

    /// The numbers of the other rows that lived when the ledger was read last.
    pub(crate) fn other_slots(&self, now: Timestamp) -> Vec<u8> {
        let live = self.live_owners(now);
        let rows = Ledger::decode(&self.bytes).rows.into_iter();
        let is_other = |row: &Row| row.owner != self.row.owner && live.contains(&row.owner);
        rows.filter(is_other).map(|row| row.slot).collect()
    }

    /// When the others were told last.
    pub(crate) fn told_at(&self) -> Timestamp {
        self.row.heartbeat
    }

    /// Whether this worker has a row that is to be kept alive.
    pub(crate) fn is_claimed(&self) -> bool {
        self.claimed
    }

    /// Whether the others do not know all yet.
    pub(crate) fn is_untold(&self) -> bool {
        self.untold
    }

    /// What this worker has at `endpoint`, to be changed; the others learn of it at the next write.
    pub(crate) fn load_mut(&mut self, endpoint: EndpointId) -> &mut Load {
        self.untold = true;
        self.row.load_mut(endpoint)
    }

    /// Adds to what this worker has at `endpoint`; gives what it was.
    pub(crate) fn add(&mut self, endpoint: EndpointId, load: Load) -> Load {
        let own = self.load_mut(endpoint);
        let before = *own;
        own.add(load);
        before
    }

    /// Forgets endpoints that are gone and have nothing in flight.
    pub(crate) fn retain(&mut self, is_listed: impl Fn(EndpointId) -> bool) {
        self.row
            .loads
            .retain(|(id, load)| load.requests > 0 || is_listed(*id));
    }

    /// Reads what all workers have in flight.
    pub(crate) fn read(&mut self, shared: &impl SharedData) -> Version {
        shared.get(&self.key, &mut self.bytes)
    }

    /// What this worker has at `endpoints`, and what was read last of the others that live.
    pub(crate) fn totals(
        &self,
        endpoints: impl ExactSizeIterator<Item = EndpointId> + Clone,
        now: Timestamp,
    ) -> Vec<Load> {
        ledger::totals(&self.bytes, &self.row, endpoints, now)
    }

    /// The workers that lived when the ledger was read last.
    pub(crate) fn live_owners(&self, now: Timestamp) -> Vec<u64> {
        ledger::live_owners(&self.bytes, now)
    }

    /// Writes the row into the ledger that was read as `version`; tells whether nobody came between.
    #[must_use]
    pub(crate) fn write(
        &mut self,
        shared: &impl SharedData,
        version: Version,
        now: Timestamp,
    ) -> bool {
        self.claimed = true;
        if !Ledger::overwrite(&mut self.bytes, &mut self.row, now) {
            let mut ledger = Ledger::decode(&self.bytes);
            ledger.put(&mut self.row, now);
            self.bytes.clear();
            ledger.encode(&mut self.bytes);
        }
        let written = shared.set_if(&self.key, &self.bytes, version);
        self.untold &= !written;
        self.conflicts += u64::from(!written);
        written
    }

    /// Reads the ledger and writes the row; should other workers always be faster, the next write
    /// says the same.
    pub(crate) fn rewrite(&mut self, shared: &impl SharedData, now: Timestamp) {
        for _ in 0..WRITES_MAX {
            let version = self.read(shared);
            if self.write(shared, version, now) {
                return;
            }
        }
    }
}

/// Tries to write a key that other workers write too. Each failed one means that another worker got
/// through.
pub(crate) const WRITES_MAX: u32 = 32;
