//! Endpoints as they are discovered, and how all workers learn what is said of them.
//!
//! Where endpoints are and whether they take requests stands in the snapshot, which is written many
//! times a second. Their labels change seldom and are long, so they have a key of their own, and the
//! snapshot has its number.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::str::FromStr;

use crate::Address;
use crate::bytes::{Reader, Writer};
use crate::config::{EndpointConfig, FailureMode};
use crate::engine::EngineKind;
use crate::pool::Labels;
use crate::shared::SharedData;
use crate::sort::sort_by;

/// An endpoint as it is discovered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Where it listens, and its labels.
    pub endpoint: EndpointConfig,
    /// What tells it from another one at the same address; 0 where the source does not say.
    pub identity: u64,
    /// Whether it is given new requests: it is ready, and not about to end.
    pub takes_requests: bool,
}

/// The endpoints of a pool as they are discovered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FoundList {
    pub(crate) endpoints: Vec<Found>,
    /// What happens to a request when no endpoint is eligible, where the source says it.
    pub(crate) failure_mode: Option<FailureMode>,
}

/// What is said of the endpoints of a pool besides what the snapshot has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listed {
    /// What happens to a request when no endpoint is eligible, where the source says it.
    pub failure_mode: Option<FailureMode>,
    /// The labels of the endpoints, in the order of addresses.
    pub labels: Vec<(Address, Labels)>,
}

impl Found {
    /// An endpoint that a configuration lists.
    pub(crate) fn listed(endpoint: EndpointConfig) -> Self {
        Self {
            endpoint,
            identity: 0,
            takes_requests: true,
        }
    }

    pub(crate) fn address(&self) -> Address {
        self.endpoint.address
    }
}

impl FoundList {
    /// Brings endpoints into the order of their addresses, each once: of two at one address the one
    /// that takes requests, else the later one. Those on ports that are not active are left out.
    pub(super) fn settle(&mut self) {
        let mut found = core::mem::take(&mut self.endpoints);
        found.retain(|it| it.endpoint.is_active());
        // The sort keeps the order of equals.
        sort_by(&mut found, |one, other| {
            let key = |it: &Found| (it.address(), it.takes_requests);
            key(one).cmp(&key(other))
        });
        for it in found {
            match self.endpoints.last_mut() {
                Some(last) if last.address() == it.address() => *last = it,
                _ => self.endpoints.push(it),
            }
        }
    }
}

/// What the bytes of [`Listed`] are; no two endpoints have the same address.
fn encode(
    number: u32,
    (failure_mode, endpoints): (Option<FailureMode>, &[EndpointConfig]),
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer(&mut bytes);
    writer.u8(FORMAT);
    writer.u32(number);
    writer.u8(match failure_mode {
        None => 0,
        Some(FailureMode::Open) => 1,
        Some(FailureMode::Closed) => 2,
    });
    let mut in_order: Vec<&EndpointConfig> = endpoints.iter().collect();
    sort_by(&mut in_order, |one, other| one.address.cmp(&other.address));
    for endpoint in in_order {
        writer.text(&format!("{}", endpoint.address));
        writer.u16(endpoint.labels.len() as u16);
        for (name, value) in endpoint.labels.iter() {
            writer.text(name);
            writer.text(value);
        }
    }
    bytes
}

impl Listed {
    /// Reads a list and its number; `None` for bytes of another release and cut ones.
    pub fn decode(bytes: &[u8]) -> Option<(u32, Self)> {
        let mut reader = Reader(bytes);
        if reader.u8()? != FORMAT {
            return None;
        }
        let number = reader.u32()?;
        let failure_mode = match reader.u8()? {
            0 => None,
            1 => Some(FailureMode::Open),
            2 => Some(FailureMode::Closed),
            _ => return None,
        };
        let mut labels = Vec::new();
        while !reader.is_empty() {
            let address = Address::from_str(reader.text()?).ok()?;
            let count = reader.u16()?;
            let mut of_it = Vec::new();
            for _ in 0..count {
                of_it.push((String::from(reader.text()?), String::from(reader.text()?)));
            }
            labels.push((address, of_it));
        }
        let is_in_order = labels.is_sorted_by(|(one, _), (next, _)| one < next);
        let listed = Self {
            failure_mode,
            labels,
        };
        is_in_order.then_some((number, listed))
    }

    /// The endpoints, of an `engine` unless their labels say another.
    pub(crate) fn into_endpoints(self, engine: EngineKind) -> Vec<EndpointConfig> {
        let endpoint = |(address, labels)| EndpointConfig {
            address,
            labels: Arc::new(labels),
            engine,
        };
        self.labels.into_iter().map(endpoint).collect()
    }
}

/// Writes what is said of the endpoints of `pool` under a number that its snapshot is to have.
pub(crate) fn publish_list(
    shared: &impl SharedData,
    pool: &str,
    number: u32,
    listed: (Option<FailureMode>, &[EndpointConfig]),
) {
    shared.set(&list_key(pool), &encode(number, listed));
}

/// What was written last, and its number; `None` before the first.
pub(crate) fn stored_list(shared: &impl SharedData, pool: &str) -> Option<(u32, Listed)> {
    let mut bytes = Vec::new();
    shared.get(&list_key(pool), &mut bytes);
    Listed::decode(&bytes)
}

fn list_key(pool: &str) -> String {
    format!("picker/{pool}/list")
}

/// The first byte of a list; raised when the layout changes.
const FORMAT: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn found(address: &str, identity: u64, takes_requests: bool) -> Found {
        Found {
            endpoint: EndpointConfig {
                address: address.parse().unwrap(),
                labels: vec![].into(),
                engine: EngineKind::Vllm,
            },
            identity,
            takes_requests,
        }
    }

    #[test]
    fn of_two_at_one_address_the_one_that_takes_requests_counts() {
        for (listed, expected) in [
            ([(9, "b:1", true), (1, "a:1", true)], vec![1, 9]),
            ([(1, "a:1", true), (2, "a:1", false)], vec![1]),
            ([(1, "a:1", false), (2, "a:1", true)], vec![2]),
            ([(1, "a:1", true), (2, "a:1", true)], vec![2]),
            ([(1, "a:1", false), (2, "a:1", false)], vec![2]),
            ([(1, "a:1", true), (2, "a:2", true)], vec![1, 2]),
        ] {
            let host = |text: &str| text.replace('a', "10.0.0.1").replace('b', "10.0.0.2");
            let endpoints = listed.map(|(id, address, takes)| found(&host(address), id, takes));
            let mut list = FoundList {
                endpoints: endpoints.into(),
                failure_mode: None,
            };
            list.settle();
            let identities: Vec<u64> = list.endpoints.iter().map(|it| it.identity).collect();
            assert_eq!(identities, expected, "{listed:?}");
        }
    }

    #[test]
    fn an_endpoint_on_a_port_that_is_not_active_is_none() {
        let mut list = FoundList {
            endpoints: vec![
                found("10.0.0.1:8000", 1, true),
                found("10.0.0.1:8001", 2, true),
            ],
            failure_mode: None,
        };
        for it in &mut list.endpoints {
            it.endpoint.labels = vec![("llm-d.ai/active-ports".into(), "8001".into())].into();
        }
        list.settle();
        let identities: Vec<u64> = list.endpoints.iter().map(|it| it.identity).collect();
        assert_eq!(identities, [2]);
    }

    #[test]
    fn what_is_published_is_read_and_no_proper_prefix_is() {
        for failure_mode in [None, Some(FailureMode::Open), Some(FailureMode::Closed)] {
            let label = |name: &str, value: &str| (name.into(), value.into());
            let mut endpoints =
                [found("[::1]:80", 0, true), found("10.0.0.1:80", 0, true)].map(|it| it.endpoint);
            endpoints[0].labels = vec![label("a", ""), label("", "b")].into();
            let mut bytes = encode(7, (failure_mode, &endpoints));
            let listed = Listed {
                failure_mode,
                labels: vec![
                    (endpoints[1].address, vec![]),
                    (endpoints[0].address, endpoints[0].labels.to_vec()),
                ],
            };
            assert_eq!(Listed::decode(&bytes), Some((7, listed)));
            for length in 0..bytes.len() {
                let shorter = Listed::decode(&bytes[..length]);
                let count = shorter.map(|(_, it)| it.labels.len());
                assert!(count.is_none_or(|count| count < 2), "{length} bytes");
            }
            bytes[0] += 1;
            assert_eq!(Listed::decode(&bytes), None);
        }
    }
}
