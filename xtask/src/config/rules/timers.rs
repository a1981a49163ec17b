//! Timers that cut generations.
//!
//! An answer that is not streamed is silence until it is complete, and so is the time that a
//! request waits before it. A timer is long enough when the client has given up before it.

use std::time::Duration;

use super::cluster::{destinations, protocol_option};
use crate::config::finding::{Finding, Level};
use crate::config::model::Model;
use crate::config::place::Place;
use crate::config::route::Route;

/// Limits on a whole answer.
pub(super) fn routes_wait(model: &Model<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for route in model.managers.iter().flat_map(|it| it.picked_routes()) {
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
        findings.extend(too_short(&idle, None, SILENCE, "idle_timeout: 3600s"));
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
        let fix = "stream_idle_timeout: 3600s";
        findings.extend(too_short(&idle, Some(IDLE_DEFAULT), SILENCE, fix));
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

/// A timer that is on and ends before a client does; `default` is what holds where nothing is set.
fn too_short(
    timer: &Place<'_>,
    default: Option<Duration>,
    why: &str,
    fix: &str,
) -> Option<Finding> {
    let time = timer
        .duration()
        .or_else(|| default.filter(|_| !timer.is_given()))?;
    if time.is_zero() || time >= WAIT_MIN {
        return None;
    }
    let reason = format!("{why}; clients wait {} s by default", WAIT_MIN.as_secs());
    Some(timer.warn(shown(timer, default), &reason, fix))
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

/// How long a large prompt may take to come.
const UPLOAD_MIN: Duration = Duration::from_secs(60);

/// The `timeout` of a route that sets none.
const ROUTE_DEFAULT: Duration = Duration::from_secs(15);

/// The `stream_idle_timeout` of a connection manager that sets none.
const IDLE_DEFAULT: Duration = Duration::from_secs(300);
