//! Which LoRA adapters an endpoint has loaded, as far as our own requests tell.
//!
//! An engine's page names only adapters with live requests, so an idle one that is still loaded is
//! known by memory, and one that is new before any page can name it.

use alloc::vec::Vec;
use core::mem;

use xxhash_rust::xxh3::xxh3_64;

use crate::bytes::{Reader, Writer};
use crate::request::Request;
use crate::snapshot::EndpointState;
use crate::sort::sort;
use crate::sorted::SortedMap;
use crate::twin::Twins;
use crate::{EndpointId, Timestamp};

/// The adapters of one endpoint.
#[derive(Default)]
pub(crate) struct Adapters {
    /// By hash of the name and requests in flight, the least recently used first.
    loaded: Vec<(u64, u32)>,
    slots: Option<usize>,
}

/// The adapters that the endpoints' pages name, and which names are none.
#[derive(Default)]
pub(crate) struct ListedAdapters {
    /// Of each endpoint that serves adapters.
    listed: SortedMap<EndpointId, Listed>,
    /// All that a page has ever named.
    known: SortedMap<u64, ()>,
    /// How often a page was read that did not name it while a request for it was there.
    missed: SortedMap<u64, u32>,
}

/// What a page names.
struct Listed {
    read_at: Option<Timestamp>,
    /// By hash of the name.
    adapters: Vec<u64>,
}

impl ListedAdapters {
    /// Takes in what the pages of `endpoints` name; `twins` have what was sent there.
    pub(crate) fn follow(&mut self, endpoints: &[EndpointState], twins: &Twins) {
        if self.known.len() + self.missed.len() > KNOWN_MAX {
            self.known = SortedMap::default();
            self.missed = SortedMap::default();
        }
        let before = mem::take(&mut self.listed);
        for endpoint in endpoints {
            let Some(lora) = &endpoint.metrics.lora else {
                continue;
            };
            let names = lora.running.iter().chain(&lora.waiting);
            let mut adapters: Vec<u64> = names.map(|name| adapter_hash(name)).collect();
            sort(&mut adapters);
            adapters.dedup();
            let read_at = endpoint.scraped_at;
            let is_new = before
                .get(&endpoint.id)
                .is_none_or(|it| it.read_at != read_at);
            if is_new {
                self.learn(&adapters, twins.adapters(endpoint.id));
            }
            self.listed
                .insert(endpoint.id, Listed { read_at, adapters });
        }
    }

    fn learn(&mut self, listed: &[u64], sent: Option<&Adapters>) {
        for adapter in listed {
            self.missed.remove(adapter);
            self.known.insert(*adapter, ());
        }
        let sent = sent.map_or(&[][..], |sent| &sent.loaded);
        for (name, _) in sent.iter().filter(|(_, requests)| *requests > 0) {
            if self.known.get(name).is_none() {
                let missed = self.missed.get(name).copied().unwrap_or_default();
                self.missed.insert(*name, missed + 1);
            }
        }
    }

    /// What the page of `endpoint` names; `None` when it serves no adapters.
    pub(crate) fn of(&self, endpoint: EndpointId) -> Option<impl Iterator<Item = u64> + Clone> {
        Some(self.listed.get(&endpoint)?.adapters.iter().copied())
    }

    /// The hash of the adapter that the request needs; `None` for a base model.
    ///
    /// Where adapters are served, a name that is new is taken for one: the first requests come
    /// before any page can name it, and they would load it everywhere.
    pub(crate) fn needed_by(&self, request: &Request) -> Option<u64> {
        if self.listed.is_empty() {
            return None;
        }
        let hash = adapter_hash(request.model.as_deref()?);
        let missed = self.missed.get(&hash).copied().unwrap_or_default();
        (missed < MISSED_MAX).then_some(hash)
    }
}

/// How an endpoint stands to the adapter that a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdapterFit {
    /// It has to be loaded first.
    pub loads: bool,
    /// No slot is empty: another adapter makes room for it.
    pub evicts: bool,
    /// All slots of a batch are taken by requests for others.
    pub waits: bool,
}

/// The hash by which an adapter is known.
fn adapter_hash(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}

impl Adapters {
    pub(crate) fn set_slots(&mut self, slots: Option<u32>) {
        self.slots = slots.map(|slots| slots as usize);
        self.forget();
    }

    /// A request for `adapter` goes to the endpoint.
    pub(crate) fn begin(&mut self, adapter: u64) {
        let known = self.loaded.iter().position(|(known, _)| *known == adapter);
        let requests = known.map_or(0, |place| self.loaded.remove(place).1);
        self.loaded.push((adapter, requests.saturating_add(1)));
        self.forget();
    }

    /// A request for `adapter` has ended.
    pub(crate) fn end(&mut self, adapter: u64) {
        if let Some((_, requests)) = self.loaded.iter_mut().find(|(known, _)| *known == adapter) {
            *requests = requests.saturating_sub(1);
        }
        self.forget();
    }

    /// How the endpoint stands to `adapter`; `listed` are those that its page names.
    pub(crate) fn fit(
        &self,
        adapter: u64,
        listed: impl Iterator<Item = u64> + Clone,
    ) -> AdapterFit {
        let own = self.loaded.iter().find(|(known, _)| *known == adapter);
        let is_listed = listed.clone().any(|listed| listed == adapter);
        let active = self
            .loaded
            .iter()
            .filter(|(_, requests)| *requests > 0)
            .count();
        let is_active = is_listed || own.is_some_and(|(_, requests)| *requests > 0);
        let named = listed.count();
        let has_slots_beyond =
            |count: usize| self.slots.is_none_or(|slots| count.max(named) < slots);
        let loads = own.is_none() && !is_listed;
        AdapterFit {
            loads,
            evicts: loads && !has_slots_beyond(self.loaded.len()),
            waits: !has_slots_beyond(active) && !is_active,
        }
    }

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) {
        writer.u16(self.loaded.len() as u16);
        for (adapter, requests) in &self.loaded {
            writer.u64(*adapter);
            writer.u32(*requests);
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let adapter = |reader: &mut Reader<'_>| Some((reader.u64()?, reader.u32()?));
        let loaded = (0..reader.u16()?)
            .map(|_| adapter(reader))
            .collect::<Option<_>>()?;
        Some(Self {
            loaded,
            slots: None,
        })
    }

    /// Forgets the least recently used that nobody uses, down to as many as there are slots.
    fn forget(&mut self) {
        let slots = self.slots.unwrap_or(ADAPTERS_MAX).max(1);
        while self.loaded.len() > slots {
            let Some(idle) = self.loaded.iter().position(|(_, requests)| *requests == 0) else {
                return;
            };
            self.loaded.remove(idle);
        }
    }
}

/// Names remembered as adapters or as none; past it they are learnt again from the pages.
const KNOWN_MAX: usize = 65_536;

/// Pages that have to miss a name before it is taken for a base model's. A few miss an adapter too:
/// a request passes the engine's front end first, and the load of its adapter may take seconds.
const MISSED_MAX: u32 = 32;

/// Adapters remembered for an endpoint that does not tell how many it has room for.
const ADAPTERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use core::iter::{empty, once};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn fit(loads: bool, evicts: bool, waits: bool) -> AdapterFit {
        AdapterFit {
            loads,
            evicts,
            waits,
        }
    }

    #[test]
    fn an_idle_adapter_stays_loaded_until_its_slot_is_needed() {
        let mut adapters = Adapters::default();
        adapters.set_slots(Some(2));
        for adapter in [1, 2] {
            assert_eq!(adapters.fit(adapter, empty()), fit(true, false, false));
            adapters.begin(adapter);
            adapters.end(adapter);
        }
        assert_eq!(adapters.fit(1, empty()), fit(false, false, false));
        adapters.begin(3);
        assert_eq!(
            adapters.fit(1, empty()),
            fit(true, true, false),
            "it was used longest ago"
        );
        assert_eq!(adapters.fit(2, empty()), fit(false, false, false));
    }

    #[test]
    fn a_request_waits_while_others_use_all_slots() {
        let mut adapters = Adapters::default();
        adapters.set_slots(Some(2));
        adapters.begin(1);
        adapters.begin(2);
        assert_eq!(adapters.fit(2, empty()), fit(false, false, false));
        assert_eq!(adapters.fit(3, empty()), fit(true, true, true));
        adapters.end(1);
        assert_eq!(adapters.fit(3, empty()), fit(true, true, false));
    }

    #[test]
    fn what_the_page_names_is_loaded_and_takes_slots() {
        let mut adapters = Adapters::default();
        adapters.set_slots(Some(1));
        assert_eq!(adapters.fit(7, once(7)), fit(false, false, false));
        assert_eq!(adapters.fit(8, once(7)), fit(true, true, true));
    }
}
