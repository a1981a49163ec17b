//! Envoy and the model servers.

use std::time::Duration;

use picker_core::EngineKind;

use super::cluster::{destinations, protocol_option, tight_breakers};
use crate::config::finding::Finding;
use crate::config::model::Model;
use crate::config::place::Place;
use crate::config::plugin::Plugin;

/// Whoever closes second may have sent a request.
pub(super) fn connections_close_before_the_engines_close_them(model: &Model<'_>) -> Vec<Finding> {
    let configs = model.plugins().filter_map(Plugin::config);
    let endpoints = configs.flat_map(|it| it.pools.iter().flat_map(|pool| &pool.endpoints));
    let mut engines = endpoints.map(|endpoint| endpoint.engine);
    let Some(engine) = engines.find(|engine| CLOSES_EARLY.contains(engine)) else {
        return Vec::new();
    };
    let timers = destinations(model).map(|it| protocol_option(it, "idle_timeout"));
    let late = timers.filter(|timer| {
        let time = timer.duration().filter(|time| !time.is_zero());
        time.is_none_or(|time| time >= ENGINE_IDLE)
    });
    late.map(|timer| {
        timer.warn(
            timer.text().unwrap_or("not set, which is an hour"),
            &format!(
                "{} closes a connection that was idle for 5 s; a request sent in that instant \
                 is reset",
                engine.name()
            ),
            "common_http_protocol_options: { idle_timeout: 4s } in the cluster's \
             HttpProtocolOptions",
        )
    })
    .collect()
}

/// Some resets are left all the same.
pub(super) fn resets_are_retried(model: &Model<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for route in model.managers.iter().flat_map(|it| it.picked_routes()) {
        let retry_on = route.retry_policy().field("retry_on");
        let conditions = retry_on.text().unwrap_or_default().split(',');
        let mut conditions = conditions.map(str::trim);
        let owners = [&route.action, &route.host];
        // A policy in an extension is not looked into.
        let is_typed = |it: &&Place<'_>| it.field("retry_policy_typed_config").is_given();
        if conditions.any(|it| RETRIES_RESETS.contains(&it)) || owners.iter().any(is_typed) {
            continue;
        }
        findings.push(retry_on.warn(
            retry_on.text().unwrap_or("not set"),
            "A kept-alive connection that the server closes as the request comes is a 503 for the \
             client, though no endpoint has seen the request",
            "retry_policy: { retry_on: \"connect-failure,reset-before-request,refused-stream\", \
             num_retries: 2 }",
        ));
    }
    findings
}

/// The picker balances; Envoy's limits know nothing of it.
pub(super) fn breakers_are_above_what_engines_take(model: &Model<'_>) -> Vec<Finding> {
    let configs = model.plugins().filter_map(Plugin::config);
    let pools = configs.flat_map(|config| &config.pools);
    let endpoints = pools.map(|pool| pool.endpoints.len() as u64).max();
    let needed = endpoints.unwrap_or(0) * REQUESTS_PER_ENDPOINT;
    let tight = destinations(model).flat_map(|cluster| tight_breakers(cluster, needed));
    let why = format!(
        "{} endpoints take {needed} requests at a time, and Envoy answers 503 before that",
        endpoints.unwrap_or(0)
    );
    tight
        .map(|(place, allowed): (Place<'_>, u64)| {
            let not_set = if place.is_given() {
                ""
            } else {
                "not set, which is "
            };
            place.warn(
                format!("{not_set}{allowed}"),
                &why,
                "40000, as in envoy/envoy.yaml",
            )
        })
        .collect()
}

/// Engines behind uvicorn with its keep-alive time, which they do not change.
const CLOSES_EARLY: [EngineKind; 3] = [
    EngineKind::Vllm,
    EngineKind::Sglang,
    EngineKind::TrtllmServe,
];

/// When those close an idle connection.
const ENGINE_IDLE: Duration = Duration::from_secs(5);

/// Retry conditions that a reset before the request fulfils.
const RETRIES_RESETS: [&str; 4] = ["reset-before-request", "reset", "5xx", "gateway-error"];

/// Requests in an engine's batch by default, as vLLM has it on common GPUs.
const REQUESTS_PER_ENDPOINT: u64 = 256;
