//! When to ask which endpoint for its metrics, and what the answer means.
//!
//! Sans-I/O: the adapter polls for scrapes, sends them, and brings the answers. At most one scrape
//! of an endpoint and target is on its way. A failed one leaves the old metrics to age; only a refused
//! connection says something about the endpoint.

mod answer;
mod members;

use alloc::string::String;
use alloc::vec::Vec;

use crate::cache_fit::CacheFit;
use crate::config::{EndpointConfig, FailureMode, PoolConfig};
use crate::ledger::{self, Ledger, Load};
use crate::models::{read_gpu_usage, read_models};
use crate::reading::{Reporter, read_page_of};
use crate::share::Share;
use crate::shared::SharedData;
use crate::snapshot::{EndpointState, GpuUsage, Snapshot, publish};
use crate::sources::{EngineChoice, Place, Target};
use crate::{Address, EndpointId, Span, Timestamp};

pub(crate) use answer::page_of;
pub use answer::{Answer, ScrapeFailure, ScrapeOutcome};

/// Something to fetch from an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scrape {
    /// Whose.
    pub endpoint: EndpointId,
    /// What.
    pub target: Target,
    /// Where to ask.
    pub address: Address,
}

/// Keeps one pool's snapshot up to date.
pub struct Scraper {
    config: PoolConfig,
    snapshot: Snapshot,
    plans: Vec<Plan>,
    /// What happens when no endpoint is eligible, where that is discovered.
    failure_mode: Option<FailureMode>,
    /// Whether the labels have changed since they were published.
    list_changed: bool,
    /// Whether the snapshot has changed since it was published.
    changed: bool,
}

/// When an endpoint is asked next.
struct Plan {
    endpoint: EndpointId,
    engine: EngineChoice,
    /// Which rank of its page it is, where a label tells.
    rank: Option<String>,
    timers: Timers,
    /// What workers had sent to the endpoint when it was asked last for its metrics.
    load: Load,
    share: Share,
    cache_fit: CacheFit,
}

/// When an endpoint is asked for each target.
#[derive(Clone, Copy, Default)]
struct Timers {
    metrics: Timer,
    models: Timer,
    gpus: Timer,
}

/// When an endpoint is asked for one target.
#[derive(Clone, Copy, Default)]
struct Timer {
    due: Timestamp,
    /// When the scrape on its way was sent.
    sent: Option<Timestamp>,
}

impl Scraper {
    /// Goes on from `snapshot`, the one published last, or from nothing known.
    pub fn new(config: PoolConfig, snapshot: Option<Snapshot>) -> Self {
        let fresh = || Snapshot::unknown(config.endpoints.iter().map(|endpoint| endpoint.address));
        let mut scraper = Self {
            snapshot: snapshot.unwrap_or_else(fresh),
            plans: Vec::new(),
            failure_mode: None,
            list_changed: false,
            changed: true,
            config: config.clone(),
        };
        scraper.configure(config);
        scraper
    }

    /// The configuration.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// Sets right what is later than it can be, when the clock has stepped back; to be called at
    /// every tick.
    pub fn follow_clock(&mut self, now: Timestamp) {
        for target in Target::ALL {
            let Some(place) = self.config.place(target) else {
                continue;
            };
            let latest = now.after(place.interval);
            for plan in &mut self.plans {
                let timer = plan.timers.of(target);
                timer.due = timer.due.min(latest);
                timer.sent = timer.sent.map(|sent| sent.min(now));
            }
        }
        for endpoint in &mut self.snapshot.endpoints {
            let read = endpoint.gpus.as_mut().map(|gpus| &mut gpus.read_at);
            for at in endpoint.scraped_at.as_mut().into_iter().chain(read) {
                if *at > now {
                    *at = now;
                    self.changed = true;
                }
            }
        }
    }

    /// The next scrape that is due; `None` when none is. To be called until then at every tick.
    pub fn poll_scrape(&mut self, shared: &impl SharedData, now: Timestamp) -> Option<Scrape> {
        let mut targets = Target::ALL.into_iter();
        targets.find_map(|target| self.poll(target, shared, now))
    }

    fn poll(&mut self, target: Target, shared: &impl SharedData, now: Timestamp) -> Option<Scrape> {
        let Place { interval, port, .. } = self.config.place(target)?;
        let lost = self.config.scrape.timeout.0.saturating_mul(2);
        // A tick that comes a little early must not leave out a round.
        let soon = now.after(Span(interval.0 / 4));
        let plan = self.plans.iter_mut().find_map(|plan| {
            let timer = plan.timers.of(target);
            let waiting = timer.sent.is_some_and(|sent| now.since(sent).0 <= lost);
            (timer.due <= soon && !waiting).then_some(plan)
        })?;
        let due = now.after(interval);
        let sent = Some(now);
        *plan.timers.of(target) = Timer { due, sent };
        let endpoint = plan.endpoint;
        if target == Target::Metrics {
            let mut bytes = Vec::new();
            shared.get(&ledger::key(&self.config.name), &mut bytes);
            plan.load = Ledger::decode(&bytes).total(endpoint, now);
        }
        let address = self.snapshot.endpoint(endpoint)?.address;
        Some(Scrape {
            endpoint,
            target,
            address: port.map_or(address, |port| address.with_port(port)),
        })
    }

    /// Takes in what came of `scrape`.
    pub fn handle_answer(
        &mut self,
        scrape: Scrape,
        answer: Answer<'_>,
        now: Timestamp,
    ) -> ScrapeOutcome {
        let Scrape {
            endpoint, target, ..
        } = scrape;
        let Some(plan) = self.plans.iter_mut().find(|plan| plan.endpoint == endpoint) else {
            return ScrapeOutcome::Unlisted;
        };
        let was_sent = plan.timers.of(target).sent.take().is_some();
        let body = page_of(answer);
        match (target, body) {
            (Target::Metrics, Ok(page)) => {
                let load = core::mem::take(&mut plan.load);
                let load = if was_sent { load } else { Load::default() };
                self.take_page(endpoint, page, load, now)
            }
            (Target::Metrics, Err(failure)) => self.fail(endpoint, failure),
            (_, Ok(body)) => match self.take_side(scrape, body, now) {
                Ok(()) => ScrapeOutcome::Read(Vec::new()),
                Err(failure) => ScrapeOutcome::Failed(failure),
            },
            // Whether these answer says nothing about whether the endpoint takes requests.
            (_, Err(failure)) => ScrapeOutcome::Failed(failure),
        }
    }

    fn take_page(
        &mut self,
        endpoint: EndpointId,
        page: &[u8],
        load: Load,
        now: Timestamp,
    ) -> ScrapeOutcome {
        let endpoints = &mut self.snapshot.endpoints;
        let known = endpoints.iter_mut().find(|known| known.id == endpoint);
        let plan = self.plans.iter_mut().find(|plan| plan.endpoint == endpoint);
        let Some((known, plan)) = known.zip(plan) else {
            return ScrapeOutcome::Unlisted;
        };
        let engine = self.config.plan.sources.engines.get(plan.engine);
        let rank = plan.rank.as_deref();
        let reading = match read_page_of(page, Reporter { engine, rank }, true, now) {
            Ok(reading) => reading,
            Err(error) => return self.fail(endpoint, ScrapeFailure::Page(error)),
        };
        let restarted = reading.metrics.restarted_since(&known.metrics);
        let counted = reading.metrics.prefix_queries;
        let share = plan.share.update(known.share, load.sent_tokens, counted);
        let hits = reading.metrics.prefix_hits;
        let cache_fit = plan.cache_fit.update(known.cache_fit, load, hits, share);
        let scraped = EndpointState {
            metrics: reading.metrics,
            scraped_at: Some(now),
            sent_at_scrape: load.sent,
            in_flight_at_scrape: load.requests,
            share,
            cache_fit,
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

    /// Takes in the list of models, or the page of the GPUs.
    fn take_side(
        &mut self,
        scrape: Scrape,
        body: &[u8],
        now: Timestamp,
    ) -> Result<(), ScrapeFailure> {
        let endpoints = &mut self.snapshot.endpoints;
        let Some(known) = endpoints
            .iter_mut()
            .find(|known| known.id == scrape.endpoint)
        else {
            return Ok(());
        };
        if scrape.target == Target::Models {
            let models = Some(read_models(body).ok_or(ScrapeFailure::NoModels)?);
            self.changed |= known.models != models;
            known.models = models;
            return Ok(());
        }
        let mut configured = self.config.endpoints.iter();
        let configured = configured.find(|it| it.address == known.address);
        let pod = configured.and_then(EndpointConfig::pod);
        let usage = read_gpu_usage(body, pod).map_err(ScrapeFailure::Page)?;
        let read_at = now;
        known.gpus = Some(GpuUsage { usage, read_at });
        self.changed = true;
        Ok(())
    }

    /// Publishes the snapshot if it has changed, unless answers are still to come in this round.
    ///
    /// At a tick, call it with `all` to publish in any case: an endpoint that does not answer holds
    /// up no other.
    pub fn publish(&mut self, shared: &impl SharedData, all: bool) {
        let mut timers = self.plans.iter().map(|plan| plan.timers.metrics);
        let waiting = timers.any(|timer| timer.sent.is_some());
        if self.changed && (all || !waiting) {
            self.publish_list(shared);
            publish(shared, &self.config.name, &self.snapshot);
            self.changed = false;
        }
    }

    fn fail(&mut self, endpoint: EndpointId, failure: ScrapeFailure) -> ScrapeOutcome {
        let reachable = match failure {
            ScrapeFailure::Unreachable => false,
            ScrapeFailure::Page(_) | ScrapeFailure::Status(_) | ScrapeFailure::NoModels => true,
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

    fn endpoint_mut(&mut self, id: EndpointId) -> Option<&mut EndpointState> {
        self.snapshot
            .endpoints
            .iter_mut()
            .find(|endpoint| endpoint.id == id)
    }
}

impl Timers {
    fn of(&mut self, target: Target) -> &mut Timer {
        match target {
            Target::Metrics => &mut self.metrics,
            Target::Models => &mut self.models,
            Target::Gpus => &mut self.gpus,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Role, parse};
    use crate::mapping::{EngineMapping, Mapped};
    use crate::shared::LocalData;
    use crate::snapshot::stored;
    use crate::sources::DataSource;
    use alloc::format;
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
        scraper.handle_answer(asked(endpoint, Target::Metrics), response, now)
    }

    /// The scrape that asked `endpoint`.
    fn asked(endpoint: u32, target: Target) -> Scrape {
        Scrape {
            endpoint: EndpointId(endpoint),
            target,
            address: "10.0.0.1:8000".parse().unwrap(),
        }
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
            let metrics = asked(1, Target::Metrics);
            let outcome = scraper.handle_answer(metrics, answered, at(110));
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
        let metrics = asked(1, Target::Metrics);
        scraper.handle_answer(metrics, response(503, CONNECT_FAILURE), at(0));
        assert!(!scraper.snapshot.endpoints[0].reachable);
        scraper.handle_answer(metrics, response(404, ""), at(1));
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
        let load = row.load_mut(EndpointId(1));
        (load.sent, load.requests) = (12, 3);
        ledger.put(&mut row, at(0));
        let mut bytes = Vec::new();
        ledger.encode(&mut bytes);
        shared.set(&ledger::key("llm"), &bytes);
        let mut scraper = scraper(&[1]);
        scraper.poll_scrape(&shared, at(0)).unwrap();
        answer(&mut scraper, 1, &page(0, 1), at(5));
        let endpoint = &scraper.snapshot.endpoints[0];
        let then = (endpoint.sent_at_scrape, endpoint.in_flight_at_scrape);
        assert_eq!(then, (12, 3));
    }

    /// A scraper that asks for everything, at usual places but for the metrics.
    fn curious(hosts: &[u8]) -> Scraper {
        let mut config = config(hosts);
        let sources = &mut config.plan.sources;
        sources.metrics = DataSource {
            path: Some("/stats".into()),
            port: Some(9000),
            interval: Some(Span::from_millis(200)),
        };
        sources.models = Some(DataSource::default());
        sources.gpus = Some(DataSource::default());
        Scraper::new(config, None)
    }

    fn polled(scraper: &mut Scraper, now: Timestamp) -> Vec<String> {
        let shared = LocalData::default();
        let next = || scraper.poll_scrape(&shared, now);
        let scrapes = core::iter::from_fn(next);
        scrapes
            .map(|it| format!("{:?} {}", it.target, it.address))
            .collect()
    }

    fn tell(scraper: &mut Scraper, target: Target, status: u16, body: &str) -> ScrapeOutcome {
        let body = body.as_bytes();
        let response = Answer::Response { status, body };
        scraper.handle_answer(asked(1, target), response, at(5))
    }

    #[test]
    fn every_target_is_asked_for_at_its_place_and_interval() {
        let mut scraper = curious(&[1, 2]);
        let all = [
            "Metrics 10.0.0.1:9000",
            "Metrics 10.0.0.2:9000",
            "Models 10.0.0.1:8000",
            "Models 10.0.0.2:8000",
            "Gpus 10.0.0.1:9400",
            "Gpus 10.0.0.2:9400",
        ];
        assert_eq!(polled(&mut scraper, at(0)), all);
        for target in Target::ALL {
            for endpoint in [1, 2] {
                scraper.handle_answer(asked(endpoint, target), Answer::Nothing, at(1));
            }
        }
        assert!(polled(&mut scraper, at(100)).is_empty());
        assert_eq!(polled(&mut scraper, at(200)), all[..2]);
        assert_eq!(
            polled(&mut scraper, at(1000)),
            all[2..],
            "the first two have not answered"
        );
    }

    #[test]
    fn models_and_gpus_are_kept_until_they_are_told_anew_or_the_server_restarts() {
        let mut scraper = curious(&[1]);
        let known = |scraper: &Scraper| {
            let endpoint = &scraper.snapshot.endpoints[0];
            let usage = endpoint.gpus.map(|gpus| gpus.usage);
            (endpoint.serves("a"), usage, endpoint.reachable)
        };
        let read = ScrapeOutcome::Read(vec![]);
        assert_eq!(
            tell(
                &mut scraper,
                Target::Models,
                200,
                r#"{"data":[{"id":"a"}]}"#
            ),
            read
        );
        assert_eq!(
            tell(&mut scraper, Target::Gpus, 200, "DCGM_FI_DEV_GPU_UTIL 25"),
            read
        );
        assert_eq!(known(&scraper), (Some(true), Some(0.25), true));
        for (target, status, body, reason) in [
            (Target::Models, 200, "<html>", "page"),
            (Target::Models, 500, "", "status"),
            (Target::Gpus, 200, "", "page"),
            (Target::Gpus, 503, CONNECT_FAILURE, "unreachable"),
        ] {
            let outcome = tell(&mut scraper, target, status, body);
            assert!(
                matches!(outcome, ScrapeOutcome::Failed(failure) if failure.reason() == reason),
                "{target:?} gave {outcome:?}"
            );
            assert_eq!(known(&scraper), (Some(true), Some(0.25), true), "{body}");
        }
        tell(&mut scraper, Target::Metrics, 200, &page(0, 100));
        assert_eq!(known(&scraper), (Some(true), Some(0.25), true));
        let restarted = tell(&mut scraper, Target::Metrics, 200, &page(0, 200));
        assert_eq!(restarted, ScrapeOutcome::Restarted);
        assert_eq!(known(&scraper), (None, None, true));
    }

    #[test]
    fn a_side_target_that_does_not_answer_holds_up_no_snapshot() {
        let shared = LocalData::default();
        let mut scraper = curious(&[1]);
        polled(&mut scraper, at(0));
        tell(&mut scraper, Target::Metrics, 200, &page(3, 1));
        scraper.publish(&shared, false);
        assert!(stored(&shared, "llm").is_some());
    }

    #[test]
    fn the_gpus_of_an_endpoint_are_those_of_its_pod() {
        let mut config = config(&[1]);
        config.plan.sources.gpus = Some(DataSource::default());
        let label = "statefulset.kubernetes.io/pod-name".into();
        config.endpoints[0].labels = vec![(label, "llm-0".into())].into();
        let mut scraper = Scraper::new(config, None);
        let page = "DCGM_FI_DEV_GPU_UTIL{pod=\"llm-0\"} 25\nDCGM_FI_DEV_GPU_UTIL{pod=\"llm-1\"} 75";
        tell(&mut scraper, Target::Gpus, 200, page);
        let usage = scraper.snapshot.endpoints[0].gpu_usage(at(5), Span(0));
        assert_eq!(usage, Some(0.25));
    }

    #[test]
    fn the_page_of_a_described_engine_is_read_as_described() {
        let mut config = config(&[1]);
        let mut mapping = EngineMapping::new("mine");
        mapping.read(Mapped::Waiting, "queue".parse().unwrap());
        mapping.publish("heat", "heat".parse().unwrap()).unwrap();
        config.plan.sources.engines.mappings = vec![mapping];
        config.plan.sources.engines.default = Some("mine".into());
        let mut scraper = Scraper::new(config, None);
        tell(&mut scraper, Target::Metrics, 200, "queue 4\nheat 60");
        let metrics = &scraper.snapshot.endpoints[0].metrics;
        assert_eq!(
            (metrics.waiting, metrics.attribute("heat")),
            (Some(4.0), Some(60.0))
        );
        let failed = tell(&mut scraper, Target::Metrics, 500, "");
        assert_eq!(failed, ScrapeOutcome::Failed(ScrapeFailure::Status(500)));
        let metrics = &scraper.snapshot.endpoints[0].metrics;
        assert_eq!(metrics.attribute("heat"), Some(60.0));
    }

    #[test]
    fn ranks_behind_one_page_have_their_own_samples() {
        let mut config = config(&[1, 2, 3]);
        for (endpoint, rank) in config.endpoints.iter_mut().zip(["0", "1", ""]) {
            endpoint.labels = vec![("llm-d.ai/engine-rank".into(), rank.into())].into();
        }
        let mut scraper = Scraper::new(config, None);
        let page = "vllm:num_requests_waiting{engine=\"0\"} 3\n\
            vllm:num_requests_waiting{engine=\"1\"} 4\n";
        due(&mut scraper, at(0));
        for endpoint in [1, 2, 3] {
            answer(&mut scraper, endpoint, page, at(1));
        }
        let expected = [(1, Some(3.0)), (2, Some(4.0)), (3, Some(7.0))];
        assert_eq!(waiting(&scraper), expected);
    }

    /// What Envoy 1.40 answers for an address where nothing listens.
    const CONNECT_FAILURE: &str = "upstream connect error or disconnect/reset before headers. \
        reset reason: remote connection failure, transport failure reason: delayed connect error: \
        Connection refused";
}
