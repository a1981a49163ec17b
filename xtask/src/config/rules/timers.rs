//! Timers that cut generations.
//!
//! An answer that is not streamed is silence until it is complete, and so is the time that a
//! request waits before it. A timer is long enough when the client has given up before it.

use std::time::Duration;

use picker_core::PoolConfig;

use super::cluster::{destinations, protocol_option};
use crate::config::finding::{Finding, Level};
use crate::config::model::{Manager, Model};
use crate::config::place::Place;
use crate::config::plugin::Plugin;
use crate::config::route::Route;

/// Limits on a whole answer.
pub(super) fn routes_wait(model: &Model<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let managers = model.managers.iter();
    let routes = managers.flat_map(|it| it.picked_routes().map(move |route| (it, route)));
    for (manager, route) in routes {
        let timeout = route.action.field("timeout");
        let why = "Envoy ends an answer that takes longer, however well it streams";
        findings.extend(too_short(&timeout, Some(ROUTE_DEFAULT), why, "timeout: 0s"));
        let duration = route.action.get("max_stream_duration.max_stream_duration");
        findings.extend(too_short(&duration, None, why, "max_stream_duration: 0s"));
        let policy = route.retry_policy();
        for field in ["per_try_timeout", "per_try_idle_timeout"] {
            let timer = policy.field(field);
            let why = "Envoy gives up an endpoint that is still generating, and may have the \
                       answer generated once more";
            findings.extend(too_short(&timer, None, why, "leave it out"));
        }
        let idle = route.action.field("idle_timeout");
        findings.extend(silenced(&idle, None, Wait::on(manager, route)));
    }
    findings
}

/// Limits on a stream, of which the one on silence holds for a request that waits here too.
pub(super) fn streams_may_be_silent(model: &Model<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manager in model.picking() {
        let options = manager.place.field("common_http_protocol_options");
        let duration = options.field("max_stream_duration");
        let why = "Envoy ends an answer that takes longer, however well it streams";
        findings.extend(too_short(&duration, None, why, "leave it out"));

        let mut routes = manager.picked_routes().peekable();
        let is_own = |route: &Route<'_>| route.action.field("idle_timeout").is_given();
        if routes.peek().is_some() && routes.all(is_own) {
            continue;
        }
        let idle = manager.place.field("stream_idle_timeout");
        findings.extend(silenced(&idle, Some(IDLE_DEFAULT), Wait::in_all(manager)));
        if idle.duration() == Some(Duration::ZERO) {
            let text = "off: a request that waits in a worker whose picker traps never ends";
            findings.push(idle.find(Level::Note, text.to_owned()));
        }
    }
    findings
}

/// The limit on the request itself.
pub(super) fn uploads_have_time(model: &Model<'_>) -> Vec<Finding> {
    let timers = model
        .picking()
        .map(|manager| manager.place.field("request_timeout"));
    let short = timers.filter(|timer| {
        let time = timer.duration().filter(|time| !time.is_zero());
        time.is_some_and(|time| time < UPLOAD_MIN)
    });
    short
        .map(|timer| {
            timer.warn(
                shown(&timer, None),
                "A prompt of 32 MiB takes 54 s at 5 Mbit/s, and Envoy answers 408 before it has \
                 come",
                "request_timeout: 0s, or 60s and more",
            )
        })
        .collect()
}

/// Limits on an answer that the clusters set.
pub(super) fn clusters_wait(model: &Model<'_>) -> Vec<Finding> {
    let durations = destinations(model).map(|it| protocol_option(it, "max_stream_duration"));
    let why = "Envoy resets an answer that takes longer, however well it streams";
    durations
        .filter_map(|it| too_short(&it, None, why, "leave it out"))
        .collect()
}

/// How long a request waits for its turn at most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Wait {
    longest: Duration,
    /// The key that says so.
    key: &'static str,
}

impl Wait {
    /// Of the requests that match a route before the pick; `None` where none waits, or as long as
    /// its client.
    fn on(manager: &Manager<'_>, route: &Route<'_>) -> Option<Self> {
        let before_pick = manager.pickers().filter(|it| {
            let header = it.header();
            !header.is_some_and(|header| route.needs(header))
        });
        let configs = before_pick.filter_map(Plugin::config);
        Self::longest(configs.flat_map(|it| route.pools(it)))
    }

    /// Of all requests.
    fn in_all(manager: &Manager<'_>) -> Option<Self> {
        let configs = manager.pickers().filter_map(Plugin::config);
        Self::longest(configs.flat_map(|it| &it.pools))
    }

    fn longest<'c>(pools: impl Iterator<Item = &'c PoolConfig>) -> Option<Self> {
        let flows = pools.filter_map(|pool| pool.plan.flow.as_ref());
        let ttls = flows.flat_map(|flow| {
            [
                (flow.request_ttl, "defaultRequestTTL"),
                (flow.no_endpoint_ttl, "noEndpointRequestTTL"),
            ]
        });
        let waits = ttls.filter_map(|(ttl, key)| {
            let longest = Duration::from_micros(ttl?.0);
            Some(Self { longest, key })
        });
        waits.max()
    }
}

/// A timer of silence that ends before a client does, or before a request that waits had its turn
/// and some time to be answered.
fn silenced(timer: &Place<'_>, default: Option<Duration>, wait: Option<Wait>) -> Option<Finding> {
    let name = timer.path.rsplit('.').next().unwrap_or_default();
    let time = in_effect(timer, default)?;
    let Some(Wait { longest, key }) = wait.filter(|it| time < it.longest + ANSWER_MIN) else {
        return too_short(timer, default, SILENCE, &format!("{name}: 3600s"));
    };
    let enough = (longest + ANSWER_MIN).max(Duration::from_secs(3600));
    let why = format!(
        "Envoy ends a request that is silent for {time:?}, and one that waits for its turn is silent \
         for up to {longest:?} ({key}) before its answer begins"
    );
    let fix = format!("{name}: {}s, or a shorter {key}", enough.as_secs());
    Some(timer.warn(shown(timer, default), &why, fix))
}

/// A timer that is on and ends before a client does; `default` is what holds where nothing is set.
fn too_short(
    timer: &Place<'_>,
    default: Option<Duration>,
    why: &str,
    fix: &str,
) -> Option<Finding> {
    in_effect(timer, default).filter(|time| *time < WAIT_MIN)?;
    let reason = format!("{why}; clients wait {} s by default", WAIT_MIN.as_secs());
    Some(timer.warn(shown(timer, default), &reason, fix))
}

/// The time of a timer that is on.
fn in_effect(timer: &Place<'_>, default: Option<Duration>) -> Option<Duration> {
    let time = timer
        .duration()
        .or_else(|| default.filter(|_| !timer.is_given()));
    time.filter(|time| !time.is_zero())
}

fn shown(timer: &Place<'_>, default: Option<Duration>) -> String {
    match (timer.text(), default) {
        (Some(text), _) => text.to_owned(),
        (None, Some(default)) => format!("not set, which is {} s", default.as_secs()),
        (None, None) => "not set".to_owned(),
    }
}

const SILENCE: &str = "Envoy ends a request that is silent for longer, as one is that waits here or \
                       whose answer is not streamed";

/// How long clients wait: the timeout that OpenAI's libraries come with.
const WAIT_MIN: Duration = Duration::from_secs(600);

/// How long an answer may take to begin once a request has its turn.
const ANSWER_MIN: Duration = Duration::from_secs(60);

/// How long a large prompt may take to come.
const UPLOAD_MIN: Duration = Duration::from_secs(60);

/// The `timeout` of a route that sets none.
const ROUTE_DEFAULT: Duration = Duration::from_secs(15);

/// The `stream_idle_timeout` of a connection manager that sets none.
const IDLE_DEFAULT: Duration = Duration::from_secs(300);
