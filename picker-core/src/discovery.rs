//! Endpoints that come and go: whom to ask for them, and what the answer means.
//!
//! Sans-I/O, as scraping is: the adapter polls for calls, sends them, and brings the answers. One
//! call is on its way at a time. An answer that is not good as a whole changes nothing: what was
//! found last stays until something else is.

mod found;
mod http;
mod kubernetes;
mod objects;

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use xxhash_rust::xxh3::xxh3_64;

use crate::config::{DiscoveryConfig, DiscoverySource, ENDPOINTS_MAX};
use crate::engine::EngineKind;
use crate::scrape::{Answer, ScrapeFailure, page_of};
use crate::{Span, Timestamp};

use self::kubernetes::Kubernetes;
pub use found::{Found, Listed};
pub(crate) use found::{FoundList, publish_list, stored_list};

/// Asks for the endpoints of one pool.
pub(crate) struct Discovery {
    config: DiscoveryConfig,
    engine: EngineKind,
    source: Source,
    due: Timestamp,
    /// When the call on its way was sent, and its number.
    sent: Option<(Timestamp, u32)>,
    /// When a watch was sent last.
    watched: Timestamp,
    /// Since when a list is doubted that has lost more than half.
    doubted: Option<Timestamp>,
    /// When an answer was good last, else when asking began.
    good_at: Option<Timestamp>,
    /// The last failure, until an answer is good.
    failing: Option<&'static str>,
}

/// How far asking has come.
enum Source {
    Http {
        /// The hash of the list that was taken last; one that is the same says nothing new.
        taken: Option<u64>,
        /// That of the last one.
        last: u64,
    },
    Kubernetes(Box<Kubernetes>),
}

/// What an answer means.
enum Step {
    /// The endpoints are these.
    List(FoundList),
    /// Nothing new.
    Same,
    /// The question was wrong, and the next one may not be.
    Again,
}

/// A call to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiscoveryCall {
    /// Its number, to be named when the answer comes.
    pub id: u32,
    /// Whose endpoints are asked for, to be named too.
    pub pool: String,
    /// The Envoy cluster to ask through.
    pub cluster: String,
    /// The authority.
    pub host: String,
    /// The path, with its query.
    pub path: String,
    /// How long to wait.
    pub timeout: Span,
}

/// What came of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiscoveryOutcome {
    /// The answer was good.
    Read(News),
    /// The answer taught nothing.
    Failed {
        /// Why.
        failure: DiscoveryFailure,
        /// Whether the last answer was good, or failed in another way.
        is_news: bool,
    },
    /// The pool is gone meanwhile, or discovers nothing any more.
    Unlisted,
}

/// What is new in a good answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct News {
    /// Whether the answers before it failed.
    pub recovered: bool,
    /// How many endpoints there were and are, where there are less than half as many.
    pub shrunk: Option<(usize, usize)>,
    /// Whether such a list is doubted from now on: the endpoints stay as they were for a while.
    pub is_held: bool,
}

/// Why an answer taught nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiscoveryFailure {
    /// There was no answer, or one that has no list.
    Unanswered(ScrapeFailure),
    /// The list is no good.
    List(ListFault),
}

/// What is wrong with a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListFault {
    /// This stands where an IP address and a port belong.
    NoAddress(String),
    /// There are more endpoints than a pool can have.
    TooMany,
    /// It is not the document that was asked for, or it was cut.
    Unreadable,
}

/// How discovery stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiscoveryStatus {
    /// How long no answer has been good.
    pub age: Span,
    /// Endpoints known.
    pub endpoints: usize,
    /// Whether the last list is doubted.
    pub is_held: bool,
}

impl Discovery {
    pub(crate) fn new(config: DiscoveryConfig, engine: EngineKind) -> Self {
        let source = match &config.source {
            DiscoverySource::Http { .. } => Source::Http {
                taken: None,
                last: 0,
            },
            DiscoverySource::Kubernetes { namespace, subject } => {
                Source::Kubernetes(Box::new(Kubernetes::new(namespace, subject, engine)))
            }
        };
        Self {
            config,
            engine,
            source,
            due: Timestamp::default(),
            sent: None,
            watched: Timestamp::default(),
            doubted: None,
            good_at: None,
            failing: None,
        }
    }

    /// Sets right what is later than it can be, when the clock has stepped back; to be called at
    /// every tick.
    pub(crate) fn follow_clock(&mut self, now: Timestamp) {
        self.due = self.due.min(now.after(self.config.interval));
        let good_at = self.good_at.get_or_insert(now);
        let sent = self.sent.as_mut().map(|(at, _)| at);
        let others = [sent, self.doubted.as_mut()].into_iter().flatten();
        for at in others.chain([good_at, &mut self.watched]) {
            *at = now.min(*at);
        }
    }

    /// The next call for `pool`, under the number `id`, when one is due.
    pub(crate) fn poll(&mut self, pool: &str, id: u32, now: Timestamp) -> Option<DiscoveryCall> {
        let timeout = self.timeout();
        let lost = Span(timeout.0.saturating_mul(2));
        let is_awaited = self.sent.is_some_and(|(sent, _)| now.since(sent) <= lost);
        // A tick that comes a little early must not leave out a round.
        let soon = now.after(Span(self.config.interval.0 / 4).min(EARLY_MAX));
        if is_awaited || self.due > soon {
            return None;
        }
        self.sent = Some((now, id));
        self.due = now.after(self.config.interval);
        if self.is_watch() {
            self.watched = now;
        }
        Some(DiscoveryCall {
            id,
            pool: pool.into(),
            cluster: self.config.cluster.clone(),
            host: self.config.host.clone(),
            path: self.path(),
            timeout,
        })
    }

    /// Takes in what came of the call `id`, where `known` endpoints are in use; what is given
    /// besides the outcome is to be used instead of them.
    pub(crate) fn handle_answer(
        &mut self,
        (id, answer): (u32, Answer<'_>),
        known: usize,
        now: Timestamp,
    ) -> (DiscoveryOutcome, Option<FoundList>) {
        if self.sent.is_none_or(|(_, sent)| sent != id) {
            // It was given up.
            return (DiscoveryOutcome::Unlisted, None);
        }
        self.sent = None;
        let step = match self.step(answer) {
            Ok(step) => step,
            Err(failure) => {
                let reason = failure.reason();
                let is_news = self.failing.replace(reason) != Some(reason);
                return (DiscoveryOutcome::Failed { failure, is_news }, None);
            }
        };
        self.hurry(now);
        match step {
            Step::List(list) => self.judge(list, known, now),
            Step::Same => (DiscoveryOutcome::Read(self.good(now)), None),
            Step::Again => (DiscoveryOutcome::Read(News::default()), None),
        }
    }

    /// Takes a list, or doubts it.
    fn judge(
        &mut self,
        mut list: FoundList,
        known: usize,
        now: Timestamp,
    ) -> (DiscoveryOutcome, Option<FoundList>) {
        let mut news = self.good(now);
        list.settle();
        let left = list.endpoints.len();
        let is_shrunk = left.saturating_mul(2) < known;
        let is_new_doubt = self.doubted.is_none();
        if is_shrunk {
            news.shrunk = Some((known, left));
            if now.apart(*self.doubted.get_or_insert(now)) < self.config.hold {
                news.is_held = true;
                if !is_new_doubt {
                    (news.shrunk, news.is_held) = (None, false);
                }
                return (DiscoveryOutcome::Read(news), None);
            }
        }
        self.doubted = None;
        match &mut self.source {
            Source::Http { taken, last } => *taken = Some(*last),
            Source::Kubernetes(kubernetes) => kubernetes.accept(),
        }
        (DiscoveryOutcome::Read(news), Some(list))
    }

    /// Remembers that an answer was good.
    fn good(&mut self, now: Timestamp) -> News {
        self.good_at = Some(now);
        News {
            recovered: self.failing.take().is_some(),
            ..News::default()
        }
    }

    /// Where one answer leads to the next question, asks it soon.
    fn hurry(&mut self, now: Timestamp) {
        if let Source::Kubernetes(kubernetes) = &self.source {
            // A server that ends a watch before its time is not to be asked without end.
            let pause = Span(self.config.interval.0 / 2);
            self.due = if kubernetes.is_watch() {
                self.watched.after(pause)
            } else {
                now
            };
        }
    }

    pub(crate) fn status(&self, endpoints: usize, now: Timestamp) -> DiscoveryStatus {
        DiscoveryStatus {
            age: self.good_at.map_or(Span(0), |at| now.since(at)),
            endpoints,
            is_held: self.doubted.is_some(),
        }
    }

    fn is_watch(&self) -> bool {
        matches!(&self.source, Source::Kubernetes(kubernetes) if kubernetes.is_watch())
    }

    fn timeout(&self) -> Span {
        // A watch is answered when it ends.
        let lasts = if self.is_watch() {
            self.config.interval.0
        } else {
            0
        };
        Span(self.config.timeout.0.saturating_add(lasts))
    }

    fn path(&self) -> String {
        match (&self.config.source, &self.source) {
            (_, Source::Kubernetes(kubernetes)) => kubernetes.path(self.config.interval),
            (DiscoverySource::Http { path }, _) => path.clone(),
            (DiscoverySource::Kubernetes { .. }, _) => String::new(),
        }
    }

    fn step(&mut self, answer: Answer<'_>) -> Result<Step, DiscoveryFailure> {
        let body = match page_of(answer) {
            Ok(body) => body,
            Err(failure) => {
                if let (ScrapeFailure::Status(status), Source::Kubernetes(kubernetes)) =
                    (failure, &mut self.source)
                    && kubernetes.take_status(status)
                {
                    return Ok(Step::Again);
                }
                return Err(DiscoveryFailure::Unanswered(failure));
            }
        };
        let step = match &mut self.source {
            Source::Http { taken, last } => {
                *last = xxh3_64(body);
                if *taken == Some(*last) {
                    return Ok(Step::Same);
                }
                http::read_list(body, self.engine).map(|endpoints| {
                    Step::List(FoundList {
                        endpoints,
                        failure_mode: None,
                    })
                })
            }
            Source::Kubernetes(kubernetes) => kubernetes.take(body),
        };
        step.map_err(DiscoveryFailure::List)
    }
}

impl DiscoveryFailure {
    /// The reasons that there are.
    pub const REASONS: [&'static str; 6] = [
        "cut",
        "no-cluster",
        "status",
        "timeout",
        "unreachable",
        "list",
    ];

    /// The failure as a label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unanswered(failure) => failure.reason(),
            Self::List(_) => "list",
        }
    }
}

impl fmt::Display for DiscoveryFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered(ScrapeFailure::NoCluster) => {
                f.write_str("Envoy has no cluster of the name that discovery gives")
            }
            Self::Unanswered(ScrapeFailure::Timeout) => f.write_str("no answer in time"),
            Self::Unanswered(ScrapeFailure::Status(status @ (401 | 403))) => {
                write!(
                    f,
                    "status {status}, so it may not be read with these credentials"
                )
            }
            Self::Unanswered(failure) => failure.fmt(f),
            Self::List(ListFault::NoAddress(found)) => {
                write!(f, "{found:?} is not an IP address and a port")
            }
            Self::List(ListFault::TooMany) => {
                write!(f, "there are more than {ENDPOINTS_MAX} endpoints")
            }
            Self::List(ListFault::Unreadable) => {
                f.write_str("the answer is cut, or not what was asked for")
            }
        }
    }
}

/// The number of whoever has this text as its unique name; 0 for no text.
fn identity_of(uid: &str) -> u64 {
    if uid.is_empty() {
        0
    } else {
        xxh3_64(uid.as_bytes()).max(1)
    }
}

/// How much earlier than due a call is sent at most: half of the time between ticks.
const EARLY_MAX: Span = Span::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec;
    use alloc::vec::Vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn discovery(hold: u64) -> Discovery {
        let config = DiscoveryConfig {
            source: DiscoverySource::Http {
                path: "/list?pool=llm".into(),
            },
            cluster: "registry".into(),
            host: "registry.example".into(),
            interval: Span::from_millis(1000),
            timeout: Span::from_millis(500),
            hold: Span::from_millis(hold),
        };
        Discovery::new(config, EngineKind::Vllm)
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp(1_000_000_000 + millis * 1000)
    }

    fn list(hosts: &[u8]) -> String {
        let targets = hosts.iter().map(|host| format!("\"10.0.0.{host}:80\""));
        let targets = targets.collect::<Vec<String>>().join(",");
        format!(r#"[{{"targets":[{targets}]}}]"#)
    }

    /// The outcome and the number of endpoints that are to be used from now on.
    fn answer(
        discovery: &mut Discovery,
        (status, body): (u16, &str),
        known: usize,
        now: Timestamp,
    ) -> (DiscoveryOutcome, Option<usize>) {
        let body = body.as_bytes();
        let response = Answer::Response { status, body };
        let id = discovery.sent.get_or_insert((now, 7)).1;
        let (outcome, found) = discovery.handle_answer((id, response), known, now);
        (outcome, found.map(|it| it.endpoints.len()))
    }

    fn read(news: News) -> DiscoveryOutcome {
        DiscoveryOutcome::Read(news)
    }

    #[test]
    fn a_list_is_asked_for_once_an_interval_and_not_while_an_answer_is_awaited() {
        let mut discovery = discovery(0);
        let call = discovery.poll("llm", 3, at(0));
        let expected = DiscoveryCall {
            id: 3,
            pool: "llm".into(),
            cluster: "registry".into(),
            host: "registry.example".into(),
            path: "/list?pool=llm".into(),
            timeout: Span::from_millis(500),
        };
        assert_eq!(call, Some(expected));
        let is_due = |discovery: &mut Discovery, now| discovery.poll("llm", 4, at(now)).is_some();
        assert!(!is_due(&mut discovery, 1000), "an answer may still come");
        answer(&mut discovery, (200, "[]"), 0, at(1000));
        assert!(is_due(&mut discovery, 1000));
        answer(&mut discovery, (200, "[]"), 0, at(1010));
        assert!(!is_due(&mut discovery, 1949));
        assert!(
            is_due(&mut discovery, 1950),
            "a tick may come a little early"
        );
        assert!(!is_due(&mut discovery, 2950));
        assert!(is_due(&mut discovery, 2951), "the answer is given up");
        answer(&mut discovery, (500, ""), 0, at(3000));
        discovery.follow_clock(at(100));
        assert!(is_due(&mut discovery, 1100), "the clock has stepped back");
    }

    #[test]
    fn the_same_list_again_is_nothing_new() {
        let mut discovery = discovery(0);
        let three = list(&[1, 2, 3]);
        let first = answer(&mut discovery, (200, &three), 0, at(0));
        assert_eq!(first, (read(News::default()), Some(3)));
        let again = answer(&mut discovery, (200, &three), 3, at(1));
        assert_eq!(again, (read(News::default()), None));
        let other = answer(&mut discovery, (200, &list(&[1, 2])), 3, at(2));
        assert_eq!(other, (read(News::default()), Some(2)));
    }

    #[test]
    fn a_failure_changes_nothing_and_is_news_once() {
        let mut discovery = discovery(0);
        answer(&mut discovery, (200, &list(&[1, 2, 3])), 0, at(0));
        for (answered, reason, is_news) in [
            ((500, ""), "status", true),
            ((503, "busy"), "status", false),
            ((200, "<html>"), "list", true),
            ((200, ""), "list", false),
            ((504, "upstream request timeout"), "timeout", true),
        ] {
            let (outcome, found) = answer(&mut discovery, answered, 3, at(5000));
            let DiscoveryOutcome::Failed {
                failure,
                is_news: told,
            } = outcome
            else {
                panic!("{answered:?} gave {outcome:?}");
            };
            assert_eq!((failure.reason(), told, found), (reason, is_news, None));
            assert!(DiscoveryFailure::REASONS.contains(&reason));
        }
        let status = discovery.status(3, at(600_000));
        let age = Span::from_millis(600_000);
        assert_eq!((status.age, status.endpoints), (age, 3));
        let news = News {
            recovered: true,
            ..News::default()
        };
        let again = answer(&mut discovery, (200, &list(&[1, 2, 3])), 3, at(600_000));
        assert_eq!(again, (read(news), None));
        assert_eq!(discovery.status(3, at(600_000)).age, Span(0));
    }

    #[test]
    fn a_list_of_less_than_half_is_doubted_while_it_is_held() {
        let shrunk = |is_held| News {
            shrunk: Some((4, 1)),
            is_held,
            ..News::default()
        };
        let quiet = News::default();
        let one = list(&[1]);
        let half = list(&[1, 2]);
        for (hold, answers) in [
            (0, vec![(0, &one, shrunk(false), Some(1))]),
            (0, vec![(0, &half, quiet, Some(2))]),
            (
                3000,
                vec![
                    (0, &one, shrunk(true), None),
                    (2999, &one, quiet, None),
                    (3000, &one, shrunk(false), Some(1)),
                ],
            ),
            (
                3000,
                vec![(0, &one, shrunk(true), None), (2000, &half, quiet, Some(2))],
            ),
        ] {
            let mut discovery = discovery(hold);
            answer(&mut discovery, (200, &list(&[1, 2, 3, 4])), 0, at(0));
            for (millis, body, news, found) in answers {
                let outcome = answer(&mut discovery, (200, body), 4, at(millis));
                assert_eq!(outcome, (read(news), found), "{hold} {millis}");
                let is_held = discovery.status(4, at(millis)).is_held;
                assert_eq!(is_held, found.is_none(), "{hold} {millis}");
            }
        }
    }
}
