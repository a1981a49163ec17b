//! A closed-loop load client: each connection sends its next request when the last is answered.
//!
//! Every run is bounded by a number of requests, a length of time, or both, and every request has
//! a timeout, so a run always ends.

mod client;
mod events;
mod report;
mod workload;

pub use report::{Failure, LoadReport, Record, Usage};
pub use workload::SharedPrefixes;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Uri};
use tokio::task::JoinSet;
use tokio::time::Instant;

use client::Client;

/// What a run sends, where and how often.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where to connect.
    pub target: SocketAddr,
    /// The path of every request, with its query if it has one.
    pub path: String,
    /// Headers besides `host` and `content-type`, which can be replaced here.
    pub headers: Vec<(String, String)>,
    /// The bodies; requests without one are sent as `GET`.
    pub bodies: Bodies,
    /// Requests in flight at once, each on a connection of its own.
    pub connections: usize,
    /// Whether each request gets a new connection.
    pub reconnect: bool,
    /// After how many requests the run ends.
    pub requests_max: Option<u64>,
    /// After how long no more requests are sent; those in flight are still waited for.
    pub duration_max: Option<Duration>,
    /// After how long a request counts as failed and its connection is closed.
    pub request_timeout: Duration,
    /// Whether the report has a record of each request.
    pub keep_records: bool,
}

/// Where bodies come from.
#[derive(Clone)]
pub enum Bodies {
    /// No bodies.
    None,
    /// These, in order and then from the beginning again.
    List(Vec<Bytes>),
    /// Whatever this makes of the number of a request, counted from 0.
    Generate(Arc<dyn Fn(u64) -> Bytes + Send + Sync>),
}

impl LoadOptions {
    /// One connection that sends `bodies` to the chat path of `target`, once each.
    ///
    /// A generator has no end, so its caller sets a bound.
    pub fn new(target: SocketAddr, bodies: Bodies) -> Self {
        let requests_max = match &bodies {
            Bodies::None => Some(1),
            Bodies::List(bodies) => Some(bodies.len() as u64),
            Bodies::Generate(_) => None,
        };
        Self {
            target,
            path: "/v1/chat/completions".to_owned(),
            headers: Vec::new(),
            bodies,
            connections: 1,
            reconnect: false,
            requests_max,
            duration_max: None,
            request_timeout: REQUEST_TIMEOUT,
            keep_records: true,
        }
    }
}

impl Bodies {
    /// The body of the request `number`.
    fn body(&self, number: u64) -> Option<Bytes> {
        match self {
            Self::None => None,
            Self::List(bodies) => {
                let index = usize::try_from(number).ok()?.checked_rem(bodies.len())?;
                bodies.get(index).cloned()
            }
            Self::Generate(generate) => Some(generate(number)),
        }
    }
}

impl std::fmt::Debug for Bodies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => write!(f, "None"),
            Self::List(bodies) => write!(f, "List({})", bodies.len()),
            Self::Generate(_) => write!(f, "Generate"),
        }
    }
}

/// Sends the load and waits for all answers.
///
/// A failed request is part of the report; an error means that the options make no sense.
pub async fn run_load(options: LoadOptions) -> anyhow::Result<LoadReport> {
    ensure!(
        options.connections > 0,
        "a run needs at least one connection"
    );
    let is_bounded = options.requests_max.is_some() || options.duration_max.is_some();
    ensure!(
        is_bounded,
        "a run needs a number of requests or a length of time"
    );
    let path: Uri = options
        .path
        .parse()
        .with_context(|| format!("path `{}`", options.path))?;
    let run = Arc::new(Run {
        headers: headers(&options)?,
        path,
        end: options
            .duration_max
            .map(|duration| Instant::now() + duration),
        next: AtomicU64::new(0),
        report: Mutex::new(LoadReport::new()?),
        options,
    });
    let started = Instant::now();
    let mut connections = JoinSet::new();
    for _ in 0..run.options.connections {
        connections.spawn(drive(Arc::clone(&run)));
    }
    while let Some(ended) = connections.join_next().await {
        ended.context("a connection's task has failed")?;
    }
    let mut report = run
        .report
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    report.elapsed = started.elapsed();
    report.records.sort_by_key(|record| record.number);
    Ok(report)
}

/// A run under way.
struct Run {
    options: LoadOptions,
    headers: HeaderMap,
    path: Uri,
    end: Option<Instant>,
    /// The number of the next request.
    next: AtomicU64,
    report: Mutex<LoadReport>,
}

impl Run {
    /// The number of the next request; `None` when there are to be no more.
    fn claim(&self) -> Option<u64> {
        if self.end.is_some_and(|end| Instant::now() >= end) {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.options
            .requests_max
            .is_none_or(|max| number < max)
            .then_some(number)
    }
}

/// One connection of a run, and those that replace it.
async fn drive(run: Arc<Run>) {
    let mut client = Client::new(run.options.target);
    while let Some(number) = run.claim() {
        let body = run.options.bodies.body(number);
        let method = if body.is_some() {
            Method::POST
        } else {
            Method::GET
        };
        let mut request = hyper::Request::new(body.unwrap_or_default());
        *request.method_mut() = method;
        *request.uri_mut() = run.path.clone();
        *request.headers_mut() = run.headers.clone();
        let mut record = client.send(request, run.options.request_timeout).await;
        record.number = number;
        let mut report = run.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.add(record, run.options.keep_records);
        drop(report);
        if run.options.reconnect {
            client.disconnect();
        }
    }
}

fn headers(options: &LoadOptions) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_str(&options.target.to_string())?);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut given = HeaderMap::new();
    for (name, value) in &options.headers {
        let parsed = HeaderName::from_bytes(name.as_bytes());
        let name = parsed.with_context(|| format!("header `{name}`"))?;
        let value = HeaderValue::from_bytes(value.as_bytes());
        given.append(
            name.clone(),
            value.with_context(|| format!("value of `{name}`"))?,
        );
    }
    for name in given.keys() {
        headers.remove(name);
    }
    headers.extend(given);
    Ok(headers)
}

/// Longer than any request of a test should take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
