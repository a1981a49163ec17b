//! Which LoRA adapters an endpoint has loaded, as far as our own requests tell.
//!
//! An engine's page names only adapters with live requests, so an idle one that is still loaded is
//! known by memory.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use xxhash_rust::xxh3::xxh3_64;

use crate::EndpointId;
use crate::bytes::{Reader, Writer};
use crate::metrics::Lora;
use crate::request::Request;

/// The adapters of one endpoint.
#[derive(Default)]
pub(crate) struct Adapters {
    /// By hash of the name and requests in flight, the least recently used first.
    loaded: Vec<(u64, u32)>,
    slots: Option<usize>,
}

/// The adapters that the endpoints' pages name.
#[derive(Default)]
pub(crate) struct ListedAdapters {
    /// By hash of the name, of each endpoint.
    listed: BTreeMap<EndpointId, Vec<u64>>,
    /// All that a page has ever named: a model of another name is a base model.
    known: BTreeSet<u64>,
}

impl ListedAdapters {
    /// Forgets what the pages named, but not which names are adapters.
    pub(crate) fn clear(&mut self) {
        self.listed.clear();
        if self.known.len() > KNOWN_MAX {
            self.known.clear();
        }
    }

    /// Takes in what the page of `endpoint` names.
    pub(crate) fn follow(&mut self, endpoint: EndpointId, lora: &Lora) {
        let names = lora.running.iter().chain(&lora.waiting);
        let mut listed: Vec<u64> = names.map(|name| adapter_hash(name)).collect();
        listed.sort_unstable();
        listed.dedup();
        self.known.extend(&listed);
        self.listed.insert(endpoint, listed);
    }

    /// What the page of `endpoint` names; `None` when it serves no adapters.
    pub(crate) fn of(&self, endpoint: EndpointId) -> Option<impl Iterator<Item = u64> + Clone> {
        Some(self.listed.get(&endpoint)?.iter().copied())
    }

    /// The hash of the adapter that the request needs; `None` for a base model.
    pub(crate) fn needed_by(&self, request: &Request) -> Option<u64> {
        let hash = adapter_hash(request.model.as_deref()?);
        self.known.contains(&hash).then_some(hash)
    }
}

/// How an endpoint stands to the adapter that a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdapterFit {
    /// It has to be loaded first.
    pub loads: bool,
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
        let full = self
            .slots
            .is_some_and(|slots| active.max(listed.count()) >= slots);
        AdapterFit {
            loads: own.is_none() && !is_listed,
            waits: full && !is_active,
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

/// Names remembered as adapters; past it they are learnt again from the pages.
const KNOWN_MAX: usize = 65_536;

/// Adapters remembered for an endpoint that does not tell how many it has room for.
const ADAPTERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use core::iter::{empty, once};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn fit(loads: bool, waits: bool) -> AdapterFit {
        AdapterFit { loads, waits }
    }

    #[test]
    fn an_idle_adapter_stays_loaded_until_its_slot_is_needed() {
        let mut adapters = Adapters::default();
        adapters.set_slots(Some(2));
        for adapter in [1, 2] {
            adapters.begin(adapter);
            adapters.end(adapter);
        }
        assert_eq!(adapters.fit(1, empty()), fit(false, false));
        adapters.begin(3);
        assert_eq!(
            adapters.fit(1, empty()),
            fit(true, false),
            "it was used longest ago"
        );
        assert_eq!(adapters.fit(2, empty()), fit(false, false));
    }

    #[test]
    fn a_request_waits_while_others_use_all_slots() {
        let mut adapters = Adapters::default();
        adapters.set_slots(Some(2));
        adapters.begin(1);
        adapters.begin(2);
        assert_eq!(adapters.fit(2, empty()), fit(false, false));
        assert_eq!(adapters.fit(3, empty()), fit(true, true));
        adapters.end(1);
        assert_eq!(adapters.fit(3, empty()), fit(true, false));
    }

    #[test]
    fn what_the_page_names_is_loaded_and_takes_slots() {
        let mut adapters = Adapters::default();
        adapters.set_slots(Some(1));
        assert_eq!(adapters.fit(7, once(7)), fit(false, false));
        assert_eq!(adapters.fit(8, once(7)), fit(true, true));
    }
}
