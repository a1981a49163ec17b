//! When to ask which endpoint for its metrics, and what the answer means.
//!
//! Sans-I/O: the adapter polls for scrapes, sends them, and brings the answers. At most one scrape
//! of an endpoint is on its way. A failed one leaves the old metrics to age; only a refused
//! connection says something about the endpoint.

use alloc::vec::Vec;
use core::fmt;

use crate::cache_fit::CacheFit;
use crate::config::PoolConfig;
use crate::engine::EngineKind;
use crate::ledger::{self, Ledger, Load};
use crate::reading::{PageError, Warning, read_page};
use crate::share::Share;
use crate::shared::SharedData;
use crate::snapshot::{EndpointState, Snapshot, publish};
use crate::{Address, EndpointId, Span, Timestamp};

/// A metrics page to fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scrape {
    /// Whose page.
    pub endpoint: EndpointId,
    /// Where to ask.
    pub address: Address,
}

/// What came of a scrape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer<'a> {
    /// An HTTP response, perhaps one that Envoy wrote in place of the endpoint.
    Response {
        /// The status.
        status: u16,
        /// The whole body.
        body: &'a [u8],
    },
    /// No response: the exchange was cut, or the body was too large.
    Nothing,
    /// The host did not send the request: it does not know the cluster.
    NotSent,
}

/// Why a scrape taught nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScrapeFailure {
    /// The page was cut or the connection was reset.
    Cut,
    /// The host does not know the cluster named by `scrape.cluster`.
    NoCluster,
    /// The page holds nothing that the engine's table knows.
    Page(PageError),
    /// The endpoint answered with this status.
    Status(u16),
    /// No answer in `scrape.timeout`.
    Timeout,
    /// Nothing listens at the address.
    Unreachable,
}

impl ScrapeFailure {
    /// The failure as a label.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::NoCluster => "no-cluster",
            Self::Page(_) => "page",
            Self::Status(_) => "status",
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
        }
    }
}

impl fmt::Display for ScrapeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut => f.write_str("the answer was cut"),
            Self::NoCluster => f.write_str("Envoy has no cluster of the name scrape.cluster"),
            Self::Page(error) => write!(f, "the page says nothing: {error}"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::Timeout => f.write_str("no answer within scrape.timeout"),
            Self::Unreachable => f.write_str("nothing listens there"),
        }
    }
}

/// What a scrape taught.
#[derive(Clone, PartialEq, Debug)]
pub enum ScrapeOutcome {
    /// The page was read.
    Read(Vec<Warning>),
    /// The page was read, and it is that of a new process: its cache is empty.
    Restarted,
    /// Nothing new.
    Failed(ScrapeFailure),
    /// The endpoint has left the pool meanwhile.
    Unlisted,
}

/// Keeps one pool's snapshot up to date.
pub struct Scraper {
    config: PoolConfig,
    snapshot: Snapshot,
    plans: Vec<Plan>,
    /// Whether the snapshot has changed since it was published.
    changed: bool,
}

/// When an endpoint is asked next.
struct Plan {
    endpoint: EndpointId,
    engine: EngineKind,
    due: Timestamp,
    /// When the scrape on its way was sent, and what workers had sent to the endpoint by then.
    on_its_way: Option<(Timestamp, Load)>,
    share: Share,
    cache_fit: CacheFit,
}

impl Scraper {
    /// Goes on from `snapshot`, the one published last, or from nothing known.
    pub fn new(config: PoolConfig, snapshot: Option<Snapshot>) -> Self {
        let fresh = || Snapshot::unknown(config.endpoints.iter().map(|endpoint| endpoint.address));
        let mut scraper = Self {
            snapshot: snapshot.unwrap_or_else(fresh),
            plans: Vec::new(),
            changed: true,
            config: config.clone(),
        };
        scraper.configure(config);
        scraper
    }

    /// Takes over a new configuration: endpoints that stay keep their numbers, the others go or
    /// come.
    pub fn configure(&mut self, config: PoolConfig) {
        let listed = |address| {
            config
                .endpoints
                .iter()
                .any(|listed| listed.address == address)
        };
        self.snapshot
            .endpoints
            .retain(|endpoint| listed(endpoint.address));
        for endpoint in &config.endpoints {
            let known = self
                .snapshot
                .endpoints
                .iter()
                .any(|known| known.address == endpoint.address);
            if !known {
                self.snapshot.add(endpoint.address);
            }
        }
        self.config = config;
        self.changed = true;
        self.plan();
    }

    /// The configuration.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// Sets right what is later than it can be, when the clock has stepped back; to be called at
    /// every tick.
    pub fn follow_clock(&mut self, now: Timestamp) {
        let latest = now.after(self.config.scrape.interval);
        for plan in &mut self.plans {
            plan.due = plan.due.min(latest);
            if let Some((sent, _)) = &mut plan.on_its_way {
                *sent = now.min(*sent);
            }
        }
        for endpoint in &mut self.snapshot.endpoints {
            if let Some(at) = &mut endpoint.scraped_at
                && *at > now
            {
                *at = now;
                self.changed = true;
            }
        }
    }

    /// The next scrape that is due; `None` when none is. To be called until then at every tick.
    pub fn poll_scrape(&mut self, shared: &impl SharedData, now: Timestamp) -> Option<Scrape> {
        let lost = self.config.scrape.timeout.0.saturating_mul(2);
        // A tick that comes a little early must not leave out a round.
        let soon = now.after(Span(self.config.scrape.interval.0 / 4));
        let plan = self.plans.iter_mut().find(|plan| {
            let waiting = plan
                .on_its_way
                .is_some_and(|(sent, _)| now.since(sent).0 <= lost);
            plan.due <= soon && !waiting
        })?;
        plan.due = now.after(self.config.scrape.interval);
        let endpoint = plan.endpoint;
        let mut bytes = Vec::new();
        shared.get(&ledger::key(&self.config.name), &mut bytes);
        plan.on_its_way = Some((now, Ledger::decode(&bytes).total(endpoint, now)));
        let address = self.snapshot.endpoint(endpoint)?.address;
        Some(Scrape { endpoint, address })
    }

    /// Takes in what came of the scrape of `endpoint`.
    pub fn handle_answer(
        &mut self,
        endpoint: EndpointId,
        answer: Answer<'_>,
        now: Timestamp,
    ) -> ScrapeOutcome {
        let Some(plan) = self.plans.iter_mut().find(|plan| plan.endpoint == endpoint) else {
            return ScrapeOutcome::Unlisted;
        };
        let load = plan
            .on_its_way
            .take()
            .map_or_else(Load::default, |(_, load)| load);
        let (engine, share, cache_fit) = (plan.engine, &mut plan.share, &mut plan.cache_fit);
        let page = match page_of(answer) {
            Ok(page) => page,
            Err(failure) => return self.fail(endpoint, failure),
        };
        let reading = match read_page(page, engine, true, now) {
            Ok(reading) => reading,
            Err(error) => return self.fail(endpoint, ScrapeFailure::Page(error)),
        };
        let endpoints = &mut self.snapshot.endpoints;
        let Some(known) = endpoints.iter_mut().find(|known| known.id == endpoint) else {
            return ScrapeOutcome::Unlisted;
        };
        let restarted = reading.metrics.restarted_since(&known.metrics);
        let counted = reading.metrics.prefix_queries;
        let share = share.update(known.share, load.sent_tokens, counted);
        let hits = reading.metrics.prefix_hits;
        let scraped = EndpointState {
            metrics: reading.metrics,
            scraped_at: Some(now),
            sent_at_scrape: load.sent,
            share,
            cache_fit: cache_fit.update(known.cache_fit, load, hits, share),
            reachable: true,
            ..known.clone()
        };
        if restarted {
            self.renew(scraped);
            return ScrapeOutcome::Restarted;
        }
        *known = scraped;
        self.changed = true;
        ScrapeOutcome::Read(reading.warnings)
    }

    /// Publishes the snapshot if it has changed, unless answers are still to come in this round.
    ///
    /// At a tick, call it with `all` to publish in any case: an endpoint that does not answer holds
    /// up no other.
    pub fn publish(&mut self, shared: &impl SharedData, all: bool) {
        let waiting = self.plans.iter().any(|plan| plan.on_its_way.is_some());
        if self.changed && (all || !waiting) {
            publish(shared, &self.config.name, &self.snapshot);
            self.changed = false;
        }
    }

    fn fail(&mut self, endpoint: EndpointId, failure: ScrapeFailure) -> ScrapeOutcome {
        let reachable = match failure {
            ScrapeFailure::Unreachable => false,
            ScrapeFailure::Page(_) | ScrapeFailure::Status(_) => true,
            // These say nothing about whether the endpoint takes requests.
            ScrapeFailure::Cut | ScrapeFailure::NoCluster | ScrapeFailure::Timeout => {
                return ScrapeOutcome::Failed(failure);
            }
        };
        if let Some(known) = self.endpoint_mut(endpoint)
            && known.reachable != reachable
        {
            known.reachable = reachable;
            self.changed = true;
        }
        ScrapeOutcome::Failed(failure)
    }

    /// Gives a restarted endpoint a new number: nothing that was learnt of the old process holds
    /// for the new one.
    fn renew(&mut self, scraped: EndpointState) {
        let old = scraped.id;
        self.snapshot
            .endpoints
            .retain(|endpoint| endpoint.id != old);
        self.snapshot.add(scraped.address);
        if let Some(added) = self.snapshot.endpoints.last_mut() {
            *added = EndpointState {
                id: added.id,
                sent_at_scrape: 0,
                share: None,
                cache_fit: 1.0,
                ..scraped
            };
        }
        self.changed = true;
        self.plan();
    }

    fn plan(&mut self) {
        let mut plans = Vec::new();
        for endpoint in &self.snapshot.endpoints {
            let known = self
                .plans
                .iter()
                .position(|plan| plan.endpoint == endpoint.id);
            let configured = self
                .config
                .endpoints
                .iter()
                .find(|it| it.address == endpoint.address);
            let engine = configured.map_or(self.config.engine, |configured| configured.engine);
            let known = known.and_then(|known| self.plans.get(known));
            plans.push(Plan {
                endpoint: endpoint.id,
                engine,
                due: known.map_or(Timestamp(0), |plan| plan.due),
                on_its_way: known.and_then(|plan| plan.on_its_way),
                share: known.map_or_else(Share::default, |plan| plan.share),
                cache_fit: known.map_or_else(CacheFit::default, |plan| plan.cache_fit),
            });
        }
        self.plans = plans;
    }

    fn endpoint_mut(&mut self, id: EndpointId) -> Option<&mut EndpointState> {
        self.snapshot
            .endpoints
            .iter_mut()
            .find(|endpoint| endpoint.id == id)
    }
}

/// The page in an answer, or why there is none.
///
/// Envoy answers in the endpoint's place when it cannot reach it, and only the text tells such an
/// answer apart.
fn page_of(answer: Answer<'_>) -> Result<&[u8], ScrapeFailure> {
    let (status, body) = match answer {
        Answer::Response { status: 200, body } => return Ok(body),
        Answer::Response { status, body } => (status, body),
        Answer::Nothing => return Err(ScrapeFailure::Cut),
        Answer::NotSent => return Err(ScrapeFailure::NoCluster),
    };
    let says = |text: &str| memchr::memmem::find(body, text.as_bytes()).is_some();
    Err(match status {
        503 if says("remote connection failure") || says("connection timeout") => {
            ScrapeFailure::Unreachable
        }
        504 if says("upstream request timeout") => ScrapeFailure::Timeout,
        _ => ScrapeFailure::Status(status),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Role, parse};
    use crate::shared::LocalData;
    use crate::snapshot::stored;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn config(hosts: &[u8]) -> PoolConfig {
        let endpoint = |host| format!(r#"{{"address":"10.0.0.{host}:8000"}}"#);
        let endpoints: Vec<String> = hosts.iter().map(endpoint).collect();
        let json = format!(
            r#"{{"pools":[{{"name":"llm","endpoints":[{}]}}]}}"#,
            endpoints.join(",")
        );
        match parse(json.as_bytes()) {
            Ok(Role::Filter(mut config)) => config.pools.remove(0),
            other => panic!("{other:?}"),
        }
    }

    fn scraper(hosts: &[u8]) -> Scraper {
        Scraper::new(config(hosts), None)
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp(1_000_000_000 + millis * 1000)
    }

    fn due(scraper: &mut Scraper, now: Timestamp) -> Vec<u32> {
        let shared = LocalData::default();
        let next = || {
            scraper
                .poll_scrape(&shared, now)
                .map(|scrape| scrape.endpoint.0)
        };
        core::iter::from_fn(next).collect()
    }

    fn page(waiting: u32, started: u32) -> String {
        format!(
            "vllm:num_requests_waiting{{engine=\"0\"}} {waiting}.0\n\
             process_start_time_seconds {started}.0\n"
        )
    }

    fn answer(scraper: &mut Scraper, endpoint: u32, page: &str, now: Timestamp) -> ScrapeOutcome {
        let response = Answer::Response {
            status: 200,
            body: page.as_bytes(),
        };
        scraper.handle_answer(EndpointId(endpoint), response, now)
    }

    fn waiting(scraper: &Scraper) -> Vec<(u32, Option<f64>)> {
        let endpoints = scraper.snapshot.endpoints.iter();
        endpoints
            .map(|endpoint| (endpoint.id.0, endpoint.metrics.waiting))
            .collect()
    }

    #[test]
    fn every_endpoint_is_asked_once_an_interval_and_not_while_an_answer_is_awaited() {
        let mut scraper = scraper(&[1, 2]);
        assert_eq!(due(&mut scraper, at(0)), [1, 2]);
        assert!(due(&mut scraper, at(50)).is_empty());
        answer(&mut scraper, 1, &page(0, 1), at(50));
        assert_eq!(
            due(&mut scraper, at(98)),
            [1],
            "a tick may come a little early"
        );
        assert_eq!(
            due(&mut scraper, at(2001)),
            [2],
            "an answer that never came is given up"
        );
    }

    #[test]
    fn a_page_becomes_the_state_of_its_endpoint() {
        let mut scraper = scraper(&[1, 2]);
        due(&mut scraper, at(0));
        assert_eq!(
            answer(&mut scraper, 2, &page(3, 1), at(9)),
            ScrapeOutcome::Read(vec![])
        );
        assert_eq!(waiting(&scraper), [(1, None), (2, Some(3.0))]);
        assert_eq!(scraper.snapshot.endpoints[1].scraped_at, Some(at(9)));
    }

    #[test]
    fn a_failed_scrape_leaves_the_last_page_to_age() {
        let page_of = |status, body: &'static str| Answer::Response {
            status,
            body: body.as_bytes(),
        };
        for (answered, reason, reachable) in [
            (page_of(200, ""), "page", true),
            (page_of(200, "<html>please log in</html>"), "page", true),
            (page_of(200, r#"{"waiting":0}"#), "page", true),
            (page_of(404, "Not Found"), "status", true),
            (page_of(503, "upstream busy"), "status", true),
            (page_of(504, "upstream request timeout"), "timeout", true),
            (page_of(504, "engine timed out"), "status", true),
            (Answer::Nothing, "cut", true),
            (Answer::NotSent, "no-cluster", true),
            (page_of(503, CONNECT_FAILURE), "unreachable", false),
        ] {
            let mut scraper = scraper(&[1]);
            due(&mut scraper, at(0));
            answer(&mut scraper, 1, &page(3, 1), at(9));
            due(&mut scraper, at(100));
            let outcome = scraper.handle_answer(EndpointId(1), answered, at(110));
            assert!(
                matches!(outcome, ScrapeOutcome::Failed(failure) if failure.reason() == reason),
                "{answered:?} gave {outcome:?}"
            );
            let endpoint = &scraper.snapshot.endpoints[0];
            assert_eq!(endpoint.metrics.waiting, Some(3.0), "{answered:?}");
            assert_eq!(endpoint.scraped_at, Some(at(9)), "{answered:?}");
            assert_eq!(endpoint.reachable, reachable, "{answered:?}");
        }
    }

    #[test]
    fn an_endpoint_is_reachable_again_once_it_answers_anything() {
        let mut scraper = scraper(&[1]);
        let response = |status, body: &'static str| Answer::Response {
            status,
            body: body.as_bytes(),
        };
        scraper.handle_answer(EndpointId(1), response(503, CONNECT_FAILURE), at(0));
        assert!(!scraper.snapshot.endpoints[0].reachable);
        scraper.handle_answer(EndpointId(1), response(404, ""), at(1));
        assert!(scraper.snapshot.endpoints[0].reachable);
    }

    #[test]
    fn a_restarted_server_is_a_new_endpoint_at_the_same_address() {
        let mut scraper = scraper(&[1, 2]);
        due(&mut scraper, at(0));
        answer(&mut scraper, 1, &page(3, 100), at(1));
        answer(&mut scraper, 2, &page(4, 100), at(1));
        due(&mut scraper, at(100));
        assert_eq!(
            answer(&mut scraper, 1, &page(0, 200), at(101)),
            ScrapeOutcome::Restarted
        );
        assert_eq!(waiting(&scraper), [(2, Some(4.0)), (3, Some(0.0))]);
        assert_eq!(
            answer(&mut scraper, 1, &page(9, 200), at(102)),
            ScrapeOutcome::Unlisted
        );
        assert_eq!(
            due(&mut scraper, at(300)),
            [3],
            "endpoint 2 has not answered yet"
        );
    }

    #[test]
    fn a_new_configuration_keeps_the_numbers_of_those_who_stay() {
        let mut scraper = scraper(&[1, 2, 3]);
        due(&mut scraper, at(0));
        answer(&mut scraper, 3, &page(7, 1), at(1));
        scraper.configure(config(&[3, 4]));
        assert_eq!(waiting(&scraper), [(3, Some(7.0)), (4, None)]);
        scraper.configure(config(&[1, 3]));
        assert_eq!(
            waiting(&scraper),
            [(3, Some(7.0)), (5, None)],
            "a number is never used again"
        );
    }

    #[test]
    fn a_successor_goes_on_from_what_was_published() {
        let shared = LocalData::default();
        let mut first = scraper(&[1, 2]);
        due(&mut first, at(0));
        answer(&mut first, 1, &page(3, 1), at(1));
        first.publish(&shared, false);
        assert_eq!(stored(&shared, "llm"), None, "endpoint 2 may still answer");
        answer(&mut first, 2, &page(4, 1), at(2));
        first.publish(&shared, false);
        let second = Scraper::new(config(&[1, 2]), stored(&shared, "llm"));
        assert_eq!(waiting(&second), [(1, Some(3.0)), (2, Some(4.0))]);
    }

    #[test]
    fn what_was_sent_before_a_scrape_is_not_counted_on_top_of_it() {
        let shared = LocalData::default();
        let mut ledger = Ledger::default();
        let mut row = crate::ledger::Row {
            owner: 1,
            ..Default::default()
        };
        row.load_mut(EndpointId(1)).sent = 12;
        ledger.put(&mut row, at(0));
        let mut bytes = Vec::new();
        ledger.encode(&mut bytes);
        shared.set(&ledger::key("llm"), &bytes);
        let mut scraper = scraper(&[1]);
        scraper.poll_scrape(&shared, at(0)).unwrap();
        answer(&mut scraper, 1, &page(0, 1), at(5));
        assert_eq!(scraper.snapshot.endpoints[0].sent_at_scrape, 12);
    }

    /// What Envoy 1.40 answers for an address where nothing listens.
    const CONNECT_FAILURE: &str = "upstream connect error or disconnect/reset before headers. \
        reset reason: remote connection failure, transport failure reason: delayed connect error: \
        Connection refused";
}
