//! The endpoints of a pool and what they said of themselves at one moment.
//!
//! The collector writes a snapshot whole; a worker reads it again when the small generation beside
//! it has moved.

mod record;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::str::FromStr;

use crate::bytes::{Reader, Writer};
use crate::ledger::Load;
use crate::load_report::LoadReport;
use crate::metrics::EndpointMetrics;
use crate::models::ServedModel;
use crate::shared::SharedData;
use crate::{Address, EndpointId, Span, Timestamp};

use record::{decode_gpus, decode_metrics, decode_models, encode_metrics, encode_models};

/// One endpoint at the moment of a snapshot.
#[derive(Clone, PartialEq, Debug)]
pub struct EndpointState {
    /// The number of this incarnation.
    pub id: EndpointId,
    /// Where it listens.
    pub address: Address,
    /// Its last readable metrics page.
    pub metrics: EndpointMetrics,
    /// When that page was read; `None` before the first.
    pub scraped_at: Option<Timestamp>,
    /// What all workers had sent to it by then, see [`crate::Load::sent`].
    pub sent_at_scrape: u32,
    /// What all workers had in flight there at that moment.
    pub in_flight_at_scrape: u32,
    /// The share of its prompt tokens that this Envoy sends, `0..=1`; `None` until enough were seen
    /// to tell.
    pub share: Option<f64>,
    /// The part of its advertised cache that holds what a twin expects, see [`crate::CacheFit`].
    pub cache_fit: f64,
    /// False when nothing listens at its address.
    pub reachable: bool,
    /// Whether it gets no new requests, for it is not ready or about to end; those that it has it
    /// may finish.
    pub draining: bool,
    /// What tells it from another one at the same address; 0 where nobody says.
    pub identity: u64,
    /// The models and adapters it serves, by name; `None` until it told them.
    pub models: Option<Vec<ServedModel>>,
    /// How busy its GPUs are, when that is asked for and was ever told.
    pub gpus: Option<GpuUsage>,
}

/// How busy the busiest GPU of an endpoint was.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GpuUsage {
    /// Its utilization, `0..=1`.
    pub usage: f64,
    /// When it was read.
    pub read_at: Timestamp,
}

impl EndpointState {
    /// An endpoint of which nothing is known yet.
    pub fn unknown(id: EndpointId, address: Address) -> Self {
        let metrics = EndpointMetrics::default();
        Self {
            id,
            address,
            metrics,
            scraped_at: None,
            sent_at_scrape: 0,
            in_flight_at_scrape: 0,
            share: None,
            cache_fit: 1.0,
            reachable: true,
            draining: false,
            identity: 0,
            models: None,
            gpus: None,
        }
    }

    /// Whether it serves the model or adapter `name`; `None` while it has not told what it serves.
    pub fn serves(&self, name: &str) -> Option<bool> {
        let models = self.models.as_ref()?;
        let found = models.binary_search_by(|model| model.id.as_str().cmp(name));
        Some(found.is_ok())
    }

    /// How busy its GPUs are, `0..=1`, when that is at most `threshold` old.
    pub fn gpu_usage(&self, now: Timestamp, threshold: Span) -> Option<f64> {
        let gpus = self.gpus?;
        (now.apart(gpus.read_at) <= threshold).then_some(gpus.usage)
    }

    /// Whether its metrics are at most `threshold` old.
    pub fn is_fresh(&self, now: Timestamp, threshold: Span) -> bool {
        self.scraped_at.is_some_and(|at| now.apart(at) <= threshold)
    }
}

/// The endpoints of a pool at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Snapshot {
    /// The number that the next new incarnation gets.
    pub next_id: u32,
    /// The number of the list that has the labels of the endpoints, where they are discovered; else
    /// 0.
    pub list: u32,
    /// In the order of their numbers.
    pub endpoints: Vec<EndpointState>,
}

impl Snapshot {
    /// The snapshot before any scrape: all endpoints unknown, numbered in the order given, from 1.
    ///
    /// The collector starts from the same one, so workers that cannot wait for it agree with it.
    pub fn unknown(addresses: impl IntoIterator<Item = Address>) -> Self {
        let mut snapshot = Self {
            next_id: 1,
            list: 0,
            endpoints: Vec::new(),
        };
        for address in addresses {
            snapshot.add(address);
        }
        snapshot
    }

    /// Adds an endpoint of which nothing is known, under a number never used before.
    pub fn add(&mut self, address: Address) {
        let id = EndpointId(self.next_id);
        self.next_id = self.next_id.saturating_add(1);
        self.endpoints.push(EndpointState::unknown(id, address));
    }

    /// The endpoint with this number.
    pub fn endpoint(&self, id: EndpointId) -> Option<&EndpointState> {
        let index = self
            .endpoints
            .binary_search_by_key(&id, |endpoint| endpoint.id)
            .ok()?;
        self.endpoints.get(index)
    }

    /// Appends the snapshot's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer(out);
        writer.u8(FORMAT);
        writer.u32(self.next_id);
        writer.u32(self.list);
        for endpoint in &self.endpoints {
            writer.u32(endpoint.id.0);
            writer.text(&endpoint.address.to_string());
            writer.count(endpoint.scraped_at.map(|at| at.0));
            writer.u32(endpoint.sent_at_scrape);
            writer.u32(endpoint.in_flight_at_scrape);
            writer.gauge(endpoint.share);
            writer.gauge(Some(endpoint.cache_fit));
            writer.u8(u8::from(endpoint.reachable));
            writer.u8(u8::from(endpoint.draining));
            writer.u64(endpoint.identity);
            encode_models(endpoint.models.as_deref(), &mut writer);
            writer.gauge(endpoint.gpus.map(|gpus| gpus.usage));
            writer.count(endpoint.gpus.map(|gpus| gpus.read_at.0));
            encode_metrics(&endpoint.metrics, &mut writer);
        }
    }

    /// Reads a snapshot; `None` for bytes of another release, cut ones, and endpoints out of order.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        if reader.u8()? != FORMAT {
            return None;
        }
        let mut snapshot = Self {
            next_id: reader.u32()?,
            list: reader.u32()?,
            endpoints: Vec::new(),
        };
        while !reader.is_empty() {
            snapshot.endpoints.push(EndpointState {
                id: EndpointId(reader.u32()?),
                address: Address::from_str(reader.text()?).ok()?,
                scraped_at: reader.count()?.map(Timestamp),
                sent_at_scrape: reader.u32()?,
                in_flight_at_scrape: reader.u32()?,
                share: reader.gauge()?,
                cache_fit: reader.gauge()?.unwrap_or(1.0),
                reachable: reader.u8()? == 1,
                draining: reader.u8()? == 1,
                identity: reader.u64()?,
                models: decode_models(&mut reader)?,
                gpus: decode_gpus(&mut reader)?,
                metrics: decode_metrics(&mut reader)?,
            });
        }
        let ids = snapshot.endpoints.iter().map(|endpoint| endpoint.id.0);
        let is_in_order = ids
            .chain([snapshot.next_id])
            .is_sorted_by(|one, next| one < next);
        is_in_order.then_some(snapshot)
    }
}

/// A worker's decoded copy of a pool's snapshot.
pub struct View {
    key: String,
    generation_key: String,
    generation: Vec<u8>,
    bytes: Vec<u8>,
    snapshot: Snapshot,
    /// Snapshots that could not be read; the last good one stayed.
    pub unreadable: u64,
}

impl View {
    /// A view of `pool` that shows `initial` until the collector has published.
    pub fn new(pool: &str, initial: Snapshot) -> Self {
        Self {
            key: snapshot_key(pool),
            generation_key: generation_key(pool),
            generation: Vec::new(),
            bytes: Vec::new(),
            snapshot: initial,
            unreadable: 0,
        }
    }

    /// Reads the snapshot again when its generation has moved; tells whether it did.
    pub fn refresh(&mut self, shared: &impl SharedData) -> bool {
        shared.get(&self.generation_key, &mut self.bytes);
        if self.bytes == self.generation {
            return false;
        }
        core::mem::swap(&mut self.bytes, &mut self.generation);
        shared.get(&self.key, &mut self.bytes);
        match Snapshot::decode(&self.bytes) {
            Some(snapshot) => {
                self.snapshot = snapshot;
                true
            }
            None => {
                self.unreadable += 1;
                false
            }
        }
    }

    /// Takes what the endpoint `id` reports of its load until the next snapshot comes; `load` is
    /// what was sent to it by then.
    pub(crate) fn take_in(
        &mut self,
        id: EndpointId,
        report: LoadReport,
        load: Load,
        at: Timestamp,
    ) {
        let endpoints = &mut self.snapshot.endpoints;
        let Ok(index) = endpoints.binary_search_by_key(&id, |endpoint| endpoint.id) else {
            return;
        };
        // Old numbers beside new ones would tell of a moment that never was.
        let is_whole = report.running.is_some() && report.waiting.is_some();
        if let Some(endpoint) = endpoints.get_mut(index) {
            let metrics = &mut endpoint.metrics;
            metrics.kv_usage = report.kv_usage.or(metrics.kv_usage);
            if is_whole {
                (metrics.running, metrics.waiting) = (report.running, report.waiting);
                endpoint.scraped_at = Some(at);
                endpoint.sent_at_scrape = load.sent;
                endpoint.in_flight_at_scrape = load.requests;
            }
        }
    }

    /// The last snapshot that could be read.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
}

/// Writes `snapshot` for all workers of `pool` under the next generation.
pub fn publish(shared: &impl SharedData, pool: &str, snapshot: &Snapshot) {
    let mut bytes = Vec::new();
    shared.get(&generation_key(pool), &mut bytes);
    let generation = Reader(&bytes).u64().unwrap_or(0).wrapping_add(1);
    bytes.clear();
    snapshot.encode(&mut bytes);
    shared.set(&snapshot_key(pool), &bytes);
    shared.set(&generation_key(pool), &generation.to_le_bytes());
}

/// The snapshot of `pool` published last; `None` before the first, and for the bytes of another
/// release.
pub fn stored(shared: &impl SharedData, pool: &str) -> Option<Snapshot> {
    let mut bytes = Vec::new();
    shared.get(&snapshot_key(pool), &mut bytes);
    Snapshot::decode(&bytes)
}

/// The generation of the snapshot published last; 0 before the first.
pub fn generation(shared: &impl SharedData, pool: &str) -> u64 {
    let mut bytes = Vec::new();
    shared.get(&generation_key(pool), &mut bytes);
    Reader(&bytes).u64().unwrap_or(0)
}

fn snapshot_key(pool: &str) -> String {
    format!("picker/{pool}/snapshot")
}

fn generation_key(pool: &str) -> String {
    format!("picker/{pool}/generation")
}

/// The first byte of a snapshot; raised when the layout changes.
const FORMAT: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Lora;
    use crate::shared::LocalData;
    use alloc::vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn addresses() -> [Address; 2] {
        ["10.0.0.1:8000", "[::1]:8001"].map(|text| text.parse().unwrap())
    }

    fn full() -> Snapshot {
        let mut snapshot = Snapshot::unknown(addresses());
        snapshot.list = 6;
        let endpoint = &mut snapshot.endpoints[1];
        endpoint.scraped_at = Some(Timestamp(77));
        endpoint.sent_at_scrape = 5;
        endpoint.in_flight_at_scrape = 3;
        endpoint.share = Some(0.25);
        endpoint.cache_fit = 0.75;
        endpoint.reachable = false;
        endpoint.draining = true;
        endpoint.identity = 12;
        let model = |id: &str, parent: Option<&str>| ServedModel {
            id: id.into(),
            parent: parent.map(String::from),
        };
        endpoint.models = Some(vec![model("base", None), model("tuned", Some("base"))]);
        endpoint.gpus = Some(GpuUsage {
            usage: 0.5,
            read_at: Timestamp(70),
        });
        endpoint.metrics = EndpointMetrics {
            running: Some(1.0),
            waiting: Some(2.5),
            kv_usage: Some(0.25),
            kv_usage_max: None,
            block_size: Some(16),
            num_blocks: Some(7876),
            capacity_tokens: Some(126_000),
            offload_tokens: Some(800_000),
            prefix_queries: Some(0),
            prefix_hits: None,
            lora: Some(Lora {
                running: vec!["a".into()],
                waiting: vec![],
                max: Some(4),
            }),
            sleeping: Some(false),
            prefix_caching: Some(true),
            process_started: Some(1.7e9),
            attributes: vec![("depth".into(), -2.5), ("gold".into(), 3.0)],
        };
        snapshot
    }

    #[test]
    fn what_is_encoded_is_decoded_and_no_proper_prefix_is() {
        let snapshot = full();
        let mut bytes = Vec::new();
        snapshot.encode(&mut bytes);
        assert_eq!(Snapshot::decode(&bytes), Some(snapshot.clone()));
        for length in 0..bytes.len() {
            let shorter = Snapshot::decode(&bytes[..length]);
            let endpoints = shorter.map(|shorter| shorter.endpoints.len());
            assert!(endpoints.is_none_or(|count| count < 2), "{length} bytes");
        }
        bytes[0] += 1;
        assert_eq!(Snapshot::decode(&bytes), None, "another release's format");
    }

    #[test]
    fn as_many_attributes_cross_as_a_mapping_may_publish() {
        for (count, kept) in [(32, 32), (33, 32)] {
            let mut snapshot = full();
            let attribute = |number: u32| (format!("{number:02}"), f64::from(number));
            snapshot.endpoints[0].metrics.attributes = (0..count).map(attribute).collect();
            let mut bytes = Vec::new();
            snapshot.encode(&mut bytes);
            let decoded = Snapshot::decode(&bytes).unwrap();
            assert_eq!(decoded.endpoints[0].metrics.attributes.len(), kept);
            assert_eq!(decoded.endpoints[1], snapshot.endpoints[1]);
        }
    }

    #[test]
    fn as_many_models_cross_as_are_read() {
        for (count, kept) in [(0, 0), (256, 256), (257, 256)] {
            let mut snapshot = full();
            let model = |number| ServedModel {
                id: format!("m{number:03}"),
                parent: None,
            };
            snapshot.endpoints[0].models = Some((0..count).map(model).collect());
            let mut bytes = Vec::new();
            snapshot.encode(&mut bytes);
            let decoded = Snapshot::decode(&bytes).unwrap();
            let models = decoded.endpoints[0].models.as_ref().unwrap();
            assert_eq!(models.len(), kept);
            assert_eq!(decoded.endpoints[1], snapshot.endpoints[1]);
        }
    }

    #[test]
    fn endpoints_out_of_order_are_no_snapshot() {
        for (ids, next_id, is_good) in [
            ([3, 7], 8, true),
            ([7, 3], 8, false),
            ([3, 3], 8, false),
            ([3, 7], 7, false),
        ] {
            let mut snapshot = Snapshot::unknown(addresses());
            snapshot.next_id = next_id;
            for (endpoint, id) in snapshot.endpoints.iter_mut().zip(ids) {
                endpoint.id = EndpointId(id);
            }
            let mut bytes = Vec::new();
            snapshot.encode(&mut bytes);
            let decoded = Snapshot::decode(&bytes);
            assert_eq!(decoded.is_some(), is_good, "{ids:?}, then {next_id}");
        }
    }

    #[test]
    fn a_view_follows_the_generation_and_keeps_the_last_good_snapshot() {
        let shared = LocalData::default();
        let mut view = View::new("llm", Snapshot::unknown(addresses()));
        assert!(!view.refresh(&shared), "nothing is published yet");
        assert_eq!(view.snapshot().endpoints.len(), 2);
        publish(&shared, "llm", &full());
        assert!(view.refresh(&shared));
        assert!(!view.refresh(&shared), "the generation has not moved");
        assert_eq!(view.snapshot(), &full());
        shared.set("picker/llm/snapshot", b"garbage");
        shared.set("picker/llm/generation", &9_u64.to_le_bytes());
        assert!(!view.refresh(&shared));
        assert_eq!((view.snapshot(), view.unreadable), (&full(), 1));
    }

    #[test]
    fn an_endpoint_that_has_not_told_its_models_may_serve_any() {
        let known = full();
        let [unknown, known] = &known.endpoints[..] else {
            panic!("two endpoints");
        };
        assert_eq!(unknown.serves("base"), None);
        assert_eq!(known.serves("base"), Some(true));
        assert_eq!(known.serves("tuned"), Some(true));
        assert_eq!(known.serves("other"), Some(false));
        assert_eq!(known.gpu_usage(Timestamp(80), Span(10)), Some(0.5));
        assert_eq!(known.gpu_usage(Timestamp(81), Span(10)), None);
        assert_eq!(unknown.gpu_usage(Timestamp(0), Span(10)), None);
    }

    #[test]
    fn metrics_are_fresh_up_to_the_threshold() {
        let mut endpoint = EndpointState::unknown(EndpointId(1), addresses()[0]);
        assert!(!endpoint.is_fresh(Timestamp(0), Span(10)), "never scraped");
        endpoint.scraped_at = Some(Timestamp(5));
        assert!(endpoint.is_fresh(Timestamp(15), Span(10)));
        assert!(!endpoint.is_fresh(Timestamp(16), Span(10)));
    }
}
