//! The paths under `/sim`: what a test asks of the server and tells it to do wrong.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::faults::{FaultChange, Faults};
use super::listener::Connection;
use super::route::{json_response, not_found};
use super::shared::Shared;
use super::stream::AnswerBody;

/// Answers a request to `/sim/...`; these are neither counted nor logged.
pub(super) async fn handle(
    connection: &Arc<Connection>,
    request: Request<Incoming>,
) -> Response<AnswerBody> {
    let shared = &connection.shared;
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/sim/state") => json_response(StatusCode::OK, &state(shared)),
        (&Method::GET, "/sim/log") => json_response(StatusCode::OK, &shared.log().to_json()),
        (&Method::POST, "/sim/log/clear") => {
            shared.log().clear();
            json_response(StatusCode::OK, &json!({}))
        }
        (&Method::GET, "/sim/faults") => json_response(StatusCode::OK, &shared.faults().to_json()),
        (&Method::POST, "/sim/faults") => change_faults(connection, request).await,
        (&Method::POST, "/sim/metrics-page") => match read(request).await {
            Ok(page) => {
                shared.show_page(String::from_utf8_lossy(&page).into_owned());
                json_response(StatusCode::OK, &shared.faults().to_json())
            }
            Err(refused) => refused,
        },
        _ => not_found(),
    }
}

async fn change_faults(
    connection: &Arc<Connection>,
    request: Request<Incoming>,
) -> Response<AnswerBody> {
    let shared = &connection.shared;
    let Ok(body) = Limited::new(request.into_body(), BODY_BYTES_MAX)
        .collect()
        .await
    else {
        let detail = json!({"detail": "the body cannot be read"});
        return json_response(StatusCode::BAD_REQUEST, &detail);
    };
    match FaultChange::parse(&body.to_bytes(), shared.faults()) {
        Ok(change) => {
            // The client must still get this answer, and may want to end the fault.
            connection.spared.store(true, Ordering::Relaxed);
            apply(shared, change);
            json_response(StatusCode::OK, &shared.faults().to_json())
        }
        Err(error) => json_response(
            StatusCode::BAD_REQUEST,
            &json!({"detail": error.to_string()}),
        ),
    }
}

async fn read(request: Request<Incoming>) -> Result<Bytes, Response<AnswerBody>> {
    let detail = json!({"detail": "the body cannot be read, or is too large"});
    match Limited::new(request.into_body(), BODY_BYTES_MAX)
        .collect()
        .await
    {
        Ok(body) => Ok(body.to_bytes()),
        Err(_) => Err(json_response(StatusCode::BAD_REQUEST, &detail)),
    }
}

/// Makes a change, and sees to it that connections are refused no longer than asked for.
pub(super) fn apply(shared: &Arc<Shared>, change: FaultChange) {
    shared.change_faults(change);
    if let Some(delay) = change.refuse_for {
        tokio::spawn(accept_after(Arc::clone(shared), delay));
    }
}

async fn accept_after(shared: Arc<Shared>, delay: Duration) {
    tokio::time::sleep(delay).await;
    let faults = Faults {
        refuse: false,
        ..shared.faults()
    };
    shared.change_faults(FaultChange {
        faults,
        ..FaultChange::default()
    });
}

fn state(shared: &Shared) -> Value {
    let stats = shared.stats();
    json!({
        "requests": stats.requests,
        "scrapes": stats.scrapes,
        "prompt_tokens": stats.prompt_tokens_admitted,
        "cached_tokens": stats.cached_tokens,
        "generation_tokens": stats.generation_tokens,
        "finished": stats.finished,
        "aborted": stats.aborted,
        "in_flight": shared.in_flight.load(Ordering::Relaxed),
        "running": stats.running,
        "waiting": stats.waiting,
        "kv_usage": stats.kv_usage,
        "preemptions": stats.engine.preemptions,
        "adapter_loads": stats.adapter_loads,
    })
}

/// Larger than any metrics page.
const BODY_BYTES_MAX: usize = 1 << 24;
