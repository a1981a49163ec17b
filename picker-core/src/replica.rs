//! One worker's replica of the twins, and its place in the ring that keeps all replicas equal.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::ring::{Done, ENTRIES_MAX, Entry, Ring, entry_number};
use crate::shared::SharedData;
use crate::tally::WRITES_MAX;
use crate::twin::Twins;
use crate::{EndpointId, Timestamp, checkpoint};

/// What an endpoint tells of itself that its twin follows.
#[derive(Clone, Copy)]
pub(crate) struct Fit {
    pub(crate) endpoint: EndpointId,
    /// Blocks that it has room for, when that is known.
    pub(crate) capacity: Option<usize>,
    /// LoRA adapters that it has slots for, when it serves any.
    pub(crate) adapter_slots: Option<Option<u32>>,
}

/// One worker's replica of a pool's twins.
pub(crate) struct Replica {
    pool: String,
    pub(crate) twins: Twins,
    pub(crate) ring: Ring,
    /// One for every listed endpoint, in the order of their numbers.
    fits: Vec<Fit>,
    /// Pictures and the like that every endpoint is taken to hold.
    media_max: usize,
    /// Requests that have ended without the others knowing yet.
    untold: Vec<Done>,
    /// Whether the twins lack what was placed before this worker came.
    pub(crate) is_cold: bool,
}

impl Replica {
    /// Twins that know nothing, before the first entry of the ring.
    pub(crate) fn new(pool: &str, media_max: usize) -> Self {
        Self {
            pool: pool.to_string(),
            twins: Twins::default(),
            ring: Ring::new(pool),
            fits: Vec::new(),
            media_max,
            untold: Vec::new(),
            is_cold: false,
        }
    }

    /// Keeps a twin for every listed endpoint, as it tells of itself, and for no other.
    pub(crate) fn fit(&mut self, fits: Vec<Fit>) {
        self.fits = fits;
        self.apply_fits();
    }

    fn apply_fits(&mut self) {
        self.twins.set_media_max(self.media_max);
        self.retain(|_| true);
        for fit in &self.fits {
            if let Some(capacity) = fit.capacity {
                self.twins.set_capacity(fit.endpoint, capacity);
            }
            if let Some(slots) = fit.adapter_slots {
                self.twins.set_adapter_slots(fit.endpoint, slots);
            }
        }
    }

    /// Forgets every endpoint that is not listed, and what workers that are not `is_live` had in
    /// flight.
    pub(crate) fn retain(&mut self, is_live: impl Fn(u64) -> bool) {
        let is_listed = |id| {
            self.fits
                .binary_search_by_key(&id, |fit| fit.endpoint)
                .is_ok()
        };
        self.twins.retain(is_listed, is_live);
    }

    /// Takes in what other workers have told; starts over from their twins when too much was
    /// missed.
    pub(crate) fn follow(&mut self, shared: &impl SharedData) {
        if self.replay(shared) {
            return;
        }
        self.twins = Twins::default();
        let from = checkpoint::restore(shared, &self.pool, self.fits.len(), &mut self.twins);
        self.is_cold = from.is_none();
        self.ring.rejoin(shared, from.unwrap_or(0));
        self.apply_fits();
        // Should this not be enough either, the next call starts over again.
        let _ = self.replay(shared);
    }

    /// Applies the entries not read yet; false when some were overwritten before.
    fn replay(&mut self, shared: &impl SharedData) -> bool {
        let twins = &mut self.twins;
        self.ring
            .replay(shared, |number, entry| twins.apply(number, entry))
    }

    /// Keeps for the next record that a request has ended.
    pub(crate) fn end(&mut self, done: Done) {
        self.untold.push(done);
    }

    /// Whether the others do not know of all that has ended.
    pub(crate) fn is_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// Whether no more ends can be kept.
    pub(crate) fn is_full(&self) -> bool {
        self.untold.len() >= UNTOLD_MAX
    }

    /// Tells the others what has ended and then what `make` says, once the twins know all that was
    /// told before; gives the number of what `make` said.
    pub(crate) fn tell(
        &mut self,
        shared: &impl SharedData,
        make: impl Fn(&Twins) -> Option<Entry>,
    ) -> Option<u64> {
        for _ in 0..WRITES_MAX {
            if !self.ring.is_at_end() {
                self.follow(shared);
            }
            let ended = self.untold.iter().copied().map(Entry::Done);
            let entries: Vec<Entry> = ended.chain(make(&self.twins)).collect();
            if let Some(record) = self.ring.append(shared, &entries) {
                for (place, entry) in entries.iter().enumerate() {
                    self.twins.apply(entry_number(record, place), entry);
                }
                let made = self.untold.len();
                self.untold.clear();
                return (made < entries.len()).then(|| entry_number(record, made));
            }
        }
        None
    }

    /// Writes some twins for workers that come late.
    pub(crate) fn write_checkpoint(&mut self, shared: &impl SharedData, now: Timestamp) {
        if self.is_cold && checkpoint::is_abandoned(shared, &self.pool, now) {
            // Nobody knows more than this worker.
            self.is_cold = false;
        }
        let last = self.ring.next() - 1;
        if self.is_cold || self.fits.is_empty() || last == 0 {
            return;
        }
        for place in checkpoint::claim(shared, &self.pool, self.fits.len(), now) {
            if let Some(fit) = self.fits.get(place) {
                let twin = (place, fit.endpoint);
                checkpoint::write(shared, &self.pool, twin, (&self.twins, last));
            }
        }
    }
}

/// Ends that are kept for the next record, which has room for one entry more.
const UNTOLD_MAX: usize = ENTRIES_MAX - 1;
