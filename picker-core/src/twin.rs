//! A twin of every endpoint's prefix cache, kept by the engine's own rules.
//!
//! Held blocks form runs: stretches that were placed together and never branched. A request pins
//! the runs of its prompt while it is in flight. When it ends, its output takes its room behind the
//! prompt, and its runs become the most recent ones, the head last. When room is needed, the oldest
//! run that nobody pins loses blocks from its end. So the tail is forgotten before the head, and
//! nothing in use is forgotten: what vLLM's block pool does.
//!
//! When an endpoint says that it held less of a prompt than its twin, it has forgotten the rest,
//! and so everything that was used before the rest was used last. The twin then forgets that too,
//! so wrong beliefs and a wrong size both heal.

mod cache;
mod media;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use self::cache::{RunId, Twin};
use crate::adapter::Adapters;
use crate::bytes::{Reader, Writer};
use crate::health::Health;
use crate::ring::{Done, Entry, Placed};
use crate::{BlockHash, EndpointId};

/// The twins of all endpoints of a pool.
#[derive(Default)]
pub struct Twins {
    /// In the order of the endpoints' numbers.
    twins: Vec<(EndpointId, Twin)>,
    /// Prompts in flight by the number of the ring entry that placed them, in that order: requests
    /// come at the back and mostly leave near the front.
    pins: VecDeque<(u64, Pin)>,
    /// Pictures and the like that every endpoint holds; none where no plan asks for it.
    media_max: usize,
    /// Placements that named a parent their twin does not hold; nothing could be learnt from them.
    pub unlinked: u64,
}

/// What an endpoint holds of a prompt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Leading blocks in its cache.
    pub matched: usize,
    /// Those of them that requests in flight use.
    pub pinned: usize,
}

impl Held {
    /// Both together, as of two prompts of one request.
    pub(crate) fn plus(self, other: Self) -> Self {
        let (matched, pinned) = (self.matched + other.matched, self.pinned + other.pinned);
        Self { matched, pinned }
    }
}

struct Pin {
    endpoint: EndpointId,
    /// Who placed it, to let go when the worker has died.
    owner: u64,
    adapter: Option<u64>,
    /// The last run of the prompt; `None` when it has no block.
    run: Option<RunId>,
    /// What was held of the prompt when it was placed.
    found: Vec<Found>,
}

/// A stretch of held blocks: where it ends in the prompt, and when it had been used last.
struct Found {
    end: usize,
    used: u64,
}

impl Twins {
    /// Keeps a twin of `endpoint` that holds at most `capacity` blocks, and forgets what is over.
    pub fn set_capacity(&mut self, endpoint: EndpointId, capacity: usize) {
        let twin = self.twin_mut(endpoint);
        twin.capacity = capacity;
        twin.evict();
    }

    /// Forgets every endpoint that `is_listed` does not know, and every pin of a worker that is not
    /// `is_live`.
    pub fn retain(
        &mut self,
        is_listed: impl Fn(EndpointId) -> bool,
        is_live: impl Fn(u64) -> bool,
    ) {
        self.twins.retain(|(endpoint, _)| is_listed(*endpoint));
        let dead = self.pins.iter().filter(|(_, pin)| !is_live(pin.owner));
        for placed in dead.map(|(placed, _)| *placed).collect::<Vec<u64>>() {
            self.done(
                placed,
                &Done {
                    placed,
                    output_blocks: 0,
                    cached_blocks: None,
                },
            );
        }
    }

    /// Takes in one entry of the ring.
    pub fn apply(&mut self, sequence: u64, entry: &Entry) {
        match entry {
            Entry::Placed(placed) => self.placed(sequence, placed),
            Entry::Done(done) => self.done(sequence, done),
            Entry::Media(sent) => {
                let most = self.media_max;
                let twin = self.twin_mut(sent.endpoint);
                if sequence > twin.restored {
                    twin.media.take(&sent.media, most);
                }
            }
            Entry::Judged(judged) => {
                let twin = self.twin_mut(judged.endpoint);
                if sequence > twin.restored {
                    twin.health.judge(judged.verdict, judged.at);
                }
            }
        }
    }

    /// Appends the twin of `endpoint` and its prompts in flight.
    pub(crate) fn encode(&self, endpoint: EndpointId, writer: &mut Writer<'_>) {
        let Some(twin) = self.twin(endpoint) else {
            return;
        };
        twin.encode(writer);
        let pins = self.pins.iter().filter(|(_, pin)| pin.endpoint == endpoint);
        for (placed, pin) in pins {
            writer.u64(*placed);
            writer.u64(pin.owner);
            writer.count(pin.adapter);
            writer.count(pin.run.map(u64::from));
        }
    }

    /// Takes over the twin of `endpoint` as it was after ring entry `sequence`; `None`, and
    /// nothing, for bytes that are cut or describe no twin.
    pub(crate) fn decode(
        &mut self,
        endpoint: EndpointId,
        sequence: u64,
        reader: &mut Reader<'_>,
    ) -> Option<()> {
        let mut twin = Twin::decode(reader)?;
        twin.restored = sequence;
        let mut pins = Vec::new();
        while !reader.is_empty() {
            let placed = reader.u64()?;
            let owner = reader.u64()?;
            let adapter = reader.count()?;
            let run = reader.count()?.map(RunId::try_from).transpose().ok()?;
            if let Some(run) = run {
                let path = twin.path(run);
                // A pinned run is held.
                path.first()?;
                twin.pin(&path);
            }
            pins.push((
                placed,
                Pin {
                    endpoint,
                    owner,
                    adapter,
                    run,
                    found: Vec::new(),
                },
            ));
        }
        *self.twin_mut(endpoint) = twin;
        for (placed, pin) in pins {
            self.pin(placed, pin);
        }
        Some(())
    }

    /// What `endpoint` holds of a prompt of `blocks`.
    pub fn held(&self, endpoint: EndpointId, blocks: &[BlockHash]) -> Held {
        self.twin(endpoint)
            .map_or_else(Held::default, |twin| twin.held(blocks))
    }

    /// What to tell the other workers when a prompt of `blocks` goes to `endpoint`; `adapter` and
    /// `owner` as there.
    pub fn placement(
        &self,
        endpoint: EndpointId,
        blocks: &[BlockHash],
        (owner, adapter): (u64, Option<u64>),
    ) -> Placed {
        let depth = self.held(endpoint, blocks).matched;
        let (held, new) = blocks.split_at(depth);
        let parent = held.last().copied();
        Placed {
            endpoint,
            owner,
            adapter,
            is_cold: false,
            depth: depth as u32,
            parent,
            blocks: new.to_vec(),
        }
    }

    /// How many blocks `endpoint` holds.
    pub fn blocks(&self, endpoint: EndpointId) -> usize {
        self.twin(endpoint).map_or(0, |twin| twin.blocks)
    }

    /// How many different blocks of `endpoint` are used by prompts in flight.
    pub fn pinned(&self, endpoint: EndpointId) -> usize {
        self.twin(endpoint).map_or(0, |twin| twin.pinned)
    }

    /// The number of the last entry that sent `endpoint` a request of which nobody held anything; 0
    /// when there was none. Larger is later.
    pub fn cold_at(&self, endpoint: EndpointId) -> u64 {
        self.twin(endpoint).map_or(0, |twin| twin.cold_at)
    }

    /// How many of `media` have been sent to `endpoint` so lately that it holds them.
    pub fn media_held(&self, endpoint: EndpointId, media: &[u64]) -> usize {
        let twin = self.twin(endpoint);
        let held = |hash: &&u64| twin.is_some_and(|it| it.media.holds(**hash));
        media.iter().filter(held).count()
    }

    /// Keeps so many media of every endpoint from the next on.
    pub(crate) fn set_media_max(&mut self, media_max: usize) {
        self.media_max = media_max;
    }

    /// How `endpoint` has done lately.
    pub fn health(&self, endpoint: EndpointId) -> Health {
        self.twin(endpoint)
            .map_or_else(Health::default, |twin| twin.health)
    }

    /// The adapters that requests were sent for to `endpoint`.
    pub(crate) fn adapters(&self, endpoint: EndpointId) -> Option<&Adapters> {
        self.twin(endpoint).map(|twin| &twin.adapters)
    }

    /// Keeps as many adapters of `endpoint` as it has slots for.
    pub(crate) fn set_adapter_slots(&mut self, endpoint: EndpointId, slots: Option<u32>) {
        self.twin_mut(endpoint).adapters.set_slots(slots);
    }

    fn placed(&mut self, sequence: u64, placed: &Placed) {
        let Placed {
            endpoint,
            owner,
            adapter,
            ..
        } = *placed;
        let twin = self.twin_mut(endpoint);
        if sequence <= twin.restored {
            return;
        }
        if placed.is_cold {
            twin.cold_at = sequence;
        }
        if let Some(adapter) = adapter {
            twin.adapters.begin(adapter);
        }
        let found = twin.found(placed);
        let run = twin.place(sequence, placed);
        let unlinked = run.is_none() && placed.depth > 0;
        if run.is_some() || adapter.is_some() {
            let pin = Pin {
                endpoint,
                owner,
                adapter,
                run,
                found,
            };
            self.pin(sequence, pin);
        }
        self.unlinked += u64::from(unlinked);
    }

    /// `sequence` names the output's blocks: nobody can ask for them, and every replica names them
    /// alike.
    fn done(&mut self, sequence: u64, done: &Done) {
        let Ok(place) = self.pin_place(done.placed) else {
            return;
        };
        let Some((_, pin)) = self.pins.remove(place) else {
            return;
        };
        let Ok(index) = self
            .twins
            .binary_search_by_key(&pin.endpoint, |(id, _)| *id)
        else {
            return;
        };
        if let Some((_, twin)) = self.twins.get_mut(index) {
            let name = |block: u32| BlockHash(!(sequence << 16).wrapping_add(u64::from(block)));
            let output: Vec<BlockHash> = (0..done.output_blocks.min(OUTPUT_BLOCKS_MAX))
                .map(name)
                .collect();
            if let Some(run) = pin.run {
                twin.finish(sequence, run, &output);
                twin.believe(&pin.found, done.cached_blocks);
            }
            if let Some(adapter) = pin.adapter {
                twin.adapters.end(adapter);
            }
        }
    }

    fn pin(&mut self, placed: u64, pin: Pin) {
        match self.pin_place(placed) {
            Ok(place) => self.pins[place].1 = pin,
            Err(place) => self.pins.insert(place, (placed, pin)),
        }
    }

    fn pin_place(&self, placed: u64) -> Result<usize, usize> {
        self.pins
            .binary_search_by_key(&placed, |(placed, _)| *placed)
    }

    fn twin(&self, endpoint: EndpointId) -> Option<&Twin> {
        let (first, last) = (self.twins.first()?.0, self.twins.last()?.0);
        // Numbers are given in order, so the place follows from the number, but for those before it
        // that have gone.
        let latest = endpoint.0.checked_sub(first.0)? as usize;
        let gone = (last.0 - first.0) as usize - (self.twins.len() - 1);
        let end = self.twins.len().min(latest.saturating_add(1));
        let places = self.twins.get(latest.saturating_sub(gone)..end)?;
        let index = places.binary_search_by_key(&endpoint, |(id, _)| *id).ok()?;
        places.get(index).map(|(_, twin)| twin)
    }

    fn twin_mut(&mut self, endpoint: EndpointId) -> &mut Twin {
        let index = match self.twins.binary_search_by_key(&endpoint, |(id, _)| *id) {
            Ok(index) => index,
            Err(index) => {
                self.twins.insert(index, (endpoint, Twin::default()));
                index
            }
        };
        &mut self.twins[index].1
    }
}

/// Blocks of output that one request can leave behind; more than any engine's longest context.
const OUTPUT_BLOCKS_MAX: u32 = 1 << 15;

#[cfg(test)]
#[path = "twin/tests.rs"]
mod tests;
