//! Which endpoints are scraped: those of the configuration, or those that are discovered.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Plan, Scraper, Timers};
use crate::Address;
use crate::cache_fit::CacheFit;
use crate::config::{EndpointConfig, PoolConfig};
use crate::discovery::{Found, FoundList, publish_list};
use crate::ledger::Load;
use crate::share::Share;
use crate::shared::SharedData;
use crate::snapshot::EndpointState;
use crate::sort::sort_by;
use crate::sources::EngineChoice;

impl Scraper {
    /// Takes over a new configuration: endpoints that stay keep their numbers, the others go or
    /// come.
    ///
    /// Where they are discovered those that are known stay until others are found.
    pub fn configure(&mut self, config: PoolConfig) {
        let known = core::mem::replace(&mut self.config, config);
        if self.config.discovery.is_none() {
            self.failure_mode = None;
            self.snapshot.list = 0;
            let endpoints = self.config.endpoints.iter().cloned();
            let endpoints = endpoints.map(Found::listed).collect();
            self.take_members(endpoints);
            return;
        }
        let engine = self.config.engine;
        let endpoints = known.endpoints.into_iter();
        self.config.endpoints = endpoints
            .map(|it| EndpointConfig { engine, ..it })
            .collect();
        self.list_changed = true;
        self.changed = true;
        self.plan();
    }

    /// Takes over the endpoints that were found, each at an address of its own: those that stay keep
    /// their numbers.
    ///
    /// Another one at the address of one that is known is a new endpoint.
    pub(crate) fn take_found(&mut self, list: FoundList) {
        let FoundList {
            endpoints: found,
            failure_mode,
        } = list;
        let endpoints = found.iter().map(|it| &it.endpoint);
        let is_same = endpoints.eq(&self.config.endpoints) && self.failure_mode == failure_mode;
        self.failure_mode = failure_mode;
        self.list_changed |= !is_same;
        self.take_members(found);
    }

    fn take_members(&mut self, found: Vec<Found>) {
        let places = places(found.iter().map(Found::address));
        let mut known = alloc::vec![false; found.len()];
        let is_kept = |endpoint: &mut EndpointState| {
            let Some(place) = place_of(&places, endpoint.address) else {
                return false;
            };
            let (Some(it), Some(known)) = (found.get(place), known.get_mut(place)) else {
                return false;
            };
            let identities = [endpoint.identity, it.identity];
            let is_it = identities.contains(&0) || endpoint.identity == it.identity;
            if is_it {
                *known = true;
                endpoint.draining = !it.takes_requests;
                endpoint.identity = endpoint.identity.max(it.identity);
            }
            is_it
        };
        self.snapshot.endpoints.retain_mut(is_kept);
        for (it, _) in found.iter().zip(known).filter(|(_, known)| !known) {
            self.snapshot.add(it.address());
            if let Some(added) = self.snapshot.endpoints.last_mut() {
                added.identity = it.identity;
                added.draining = !it.takes_requests;
            }
        }
        self.config.endpoints = found.into_iter().map(|it| it.endpoint).collect();
        self.changed = true;
        self.plan();
    }

    /// Publishes what is said of discovered endpoints, if it has changed.
    pub(super) fn publish_list(&mut self, shared: &impl SharedData) {
        if !core::mem::take(&mut self.list_changed) || self.config.discovery.is_none() {
            return;
        }
        // 0 is that of pools whose endpoints are not discovered.
        self.snapshot.list = self.snapshot.list.wrapping_add(1).max(1);
        let listed = (self.failure_mode, self.config.endpoints.as_slice());
        publish_list(shared, &self.config.name, self.snapshot.list, listed);
    }

    /// Gives a restarted endpoint a new number: nothing that was learnt of the old process holds
    /// for the new one.
    pub(super) fn renew(&mut self, scraped: EndpointState) {
        let old = scraped.id;
        self.snapshot
            .endpoints
            .retain(|endpoint| endpoint.id != old);
        self.snapshot.add(scraped.address);
        if let Some(added) = self.snapshot.endpoints.last_mut() {
            *added = EndpointState {
                id: added.id,
                sent_at_scrape: 0,
                in_flight_at_scrape: 0,
                share: None,
                cache_fit: 1.0,
                models: None,
                gpus: None,
                ..scraped
            };
        }
        self.changed = true;
        self.plan();
    }

    /// Plans the scrapes of all endpoints that take requests.
    fn plan(&mut self) {
        let places = places(self.config.endpoints.iter().map(|it| it.address));
        let mut plans = Vec::new();
        for endpoint in self.snapshot.endpoints.iter().filter(|it| !it.draining) {
            // Both are in the order of numbers.
            let known = self
                .plans
                .binary_search_by_key(&endpoint.id, |plan| plan.endpoint);
            let known = known.ok().and_then(|place| self.plans.get(place));
            let place = place_of(&places, endpoint.address);
            let configured = place.and_then(|place| self.config.endpoints.get(place));
            let engines = &self.config.plan.sources.engines;
            let engine = configured.map_or(EngineChoice::BuiltIn(self.config.engine), |it| {
                engines.of(it)
            });
            let rank = configured.and_then(EndpointConfig::rank);
            plans.push(Plan {
                endpoint: endpoint.id,
                engine,
                rank: rank.map(String::from),
                timers: known.map_or_else(Timers::default, |plan| plan.timers),
                load: known.map_or_else(Load::default, |plan| plan.load),
                share: known.map_or_else(Share::default, |plan| plan.share),
                cache_fit: known.map_or_else(CacheFit::default, |plan| plan.cache_fit),
            });
        }
        self.plans = plans;
    }
}

/// Where each address stands, in the order of addresses.
fn places(addresses: impl Iterator<Item = Address>) -> Vec<(Address, usize)> {
    let mut places: Vec<(Address, usize)> = addresses.zip(0..).collect();
    sort_by(&mut places, |one, other| one.cmp(other));
    places
}

fn place_of(places: &[(Address, usize)], address: Address) -> Option<usize> {
    let at = places
        .binary_search_by_key(&address, |(known, _)| *known)
        .ok()?;
    places.get(at).map(|(_, place)| *place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Role, parse};
    use crate::discovery::stored_list;
    use crate::shared::LocalData;
    use crate::snapshot::stored;
    use crate::{EndpointId, Timestamp};
    use alloc::format;
    use alloc::vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn config() -> PoolConfig {
        let json = r#"{"pools":[{"name":"llm","discovery":{"http":{"cluster":"registry"}}}]}"#;
        match parse(json.as_bytes()) {
            Ok(Role::Filter(mut config)) => config.pools.remove(0),
            other => panic!("{other:?}"),
        }
    }

    fn found(host: u8, identity: u64, takes_requests: bool, label: &str) -> Found {
        Found {
            endpoint: EndpointConfig {
                address: format!("10.0.0.{host}:8000").parse().unwrap(),
                labels: vec![("tier".into(), label.into())].into(),
                engine: Default::default(),
            },
            identity,
            takes_requests,
        }
    }

    fn take(scraper: &mut Scraper, endpoints: Vec<Found>) {
        scraper.take_found(FoundList {
            endpoints,
            failure_mode: None,
        });
    }

    /// The numbers of the endpoints, each with the last part of its address, and whether it drains.
    fn known(scraper: &Scraper) -> String {
        let endpoints = scraper.snapshot.endpoints.iter().map(|it| {
            let host = it.address.ip().replace("10.0.0.", "");
            let draining = if it.draining { "d" } else { "" };
            format!("{}@{host}{draining}", it.id.0)
        });
        endpoints.collect::<Vec<String>>().join(" ")
    }

    fn asked(scraper: &mut Scraper, now: u64) -> Vec<u32> {
        let shared = LocalData::default();
        let next = || scraper.poll_scrape(&shared, Timestamp(now));
        core::iter::from_fn(next).map(|it| it.endpoint.0).collect()
    }

    #[test]
    fn an_endpoint_is_the_same_while_its_address_and_its_identity_are() {
        let mut scraper = Scraper::new(config(), None);
        for (endpoints, expected) in [
            (
                vec![found(1, 7, true, ""), found(2, 8, true, "")],
                "1@1 2@2",
            ),
            (
                vec![found(2, 8, false, ""), found(1, 7, true, "")],
                "1@1 2@2d",
            ),
            (
                vec![found(2, 9, true, ""), found(1, 7, true, "x")],
                "1@1 3@2",
            ),
            // Whoever does not say who it is is who was there.
            (
                vec![found(1, 0, true, ""), found(2, 9, true, "")],
                "1@1 3@2",
            ),
            (vec![found(1, 7, true, "")], "1@1"),
            (vec![found(2, 9, true, "")], "4@2"),
            (vec![], ""),
            (vec![found(1, 0, false, "")], "5@1d"),
            (vec![found(1, 6, true, "")], "5@1"),
            (vec![found(1, 5, true, "")], "6@1"),
        ] {
            take(&mut scraper, endpoints);
            assert_eq!(known(&scraper), expected);
        }
    }

    #[test]
    fn only_endpoints_that_take_requests_are_scraped() {
        let mut scraper = Scraper::new(config(), None);
        let both = |one, other| vec![found(1, 1, one, ""), found(2, 2, other, "")];
        take(&mut scraper, both(true, false));
        assert_eq!(asked(&mut scraper, 1), [1]);
        take(&mut scraper, both(true, true));
        assert_eq!(asked(&mut scraper, 2), [2], "the other is waited for");
        take(&mut scraper, both(false, true));
        assert!(asked(&mut scraper, 3).is_empty());
        assert!(scraper.snapshot.endpoint(EndpointId(1)).is_some());
    }

    #[test]
    fn a_list_is_written_when_labels_change_and_never_without_discovery() {
        let shared = LocalData::default();
        let mut scraper = Scraper::new(config(), None);
        let number = |scraper: &mut Scraper| {
            scraper.publish(&shared, true);
            let of_snapshot = stored(&shared, "llm").unwrap().list;
            let listed = stored_list(&shared, "llm");
            assert!(of_snapshot == 0 || listed.is_some_and(|(it, _)| it == of_snapshot));
            of_snapshot
        };
        assert_eq!(number(&mut scraper), 1);
        take(&mut scraper, vec![found(1, 1, true, "a")]);
        assert_eq!(number(&mut scraper), 2);
        take(&mut scraper, vec![found(1, 2, false, "a")]);
        assert_eq!(number(&mut scraper), 2, "the labels are the same");
        take(&mut scraper, vec![found(1, 2, false, "b")]);
        assert_eq!(number(&mut scraper), 3);
        scraper.configure(config());
        assert_eq!(
            known(&scraper),
            "2@1d",
            "known ones stay with a new configuration"
        );
        let address = scraper.config.endpoints[0].address;
        let listed = PoolConfig {
            discovery: None,
            endpoints: vec![found(1, 0, true, "").endpoint],
            ..config()
        };
        scraper.configure(listed);
        assert_eq!((known(&scraper).as_str(), number(&mut scraper)), ("2@1", 0));
        scraper.configure(config());
        assert_eq!(scraper.config.endpoints[0].address, address);
        assert_eq!((known(&scraper).as_str(), number(&mut scraper)), ("2@1", 1));
    }
}
