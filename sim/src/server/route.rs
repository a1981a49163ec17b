//! Which request gets which answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, UPGRADE};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

use super::body::Shape;
use super::control;
use super::engine_loop::Command;
use super::error::ApiError;
use super::faults::{MetricsFault, RequestFault};
use super::generate::generate;
use super::listener::Connection;
use super::log::Entry;
use super::shared::Shared;
use super::stream::{AnswerBody, Cut};

/// The answer to a request, or the wish to close the connection without one.
pub(super) type Answer = Result<Response<AnswerBody>, Cut>;

/// Answers any request of a connection, and says who did.
pub(super) async fn handle(connection: Arc<Connection>, request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    let mut response = if path == "/metrics" {
        connection.shared.stats().scrapes += 1;
        metrics(&connection.shared).await?
    } else if path.starts_with("/sim/") {
        control::handle(&connection, request).await
    } else {
        logged(&connection, request).await?
    };
    if let Ok(address) = HeaderValue::from_str(&connection.address.to_string()) {
        response.headers_mut().insert("x-sim-endpoint", address);
    }
    Ok(response)
}

/// Answers a request that the log remembers and that faults may hit.
async fn logged(connection: &Connection, request: Request<Incoming>) -> Answer {
    let shared = &connection.shared;
    shared.stats().requests += 1;
    let number = shared.log().push(entry(&request));
    let faults = shared.faults();
    let is_probe = matches!(
        request.uri().path(),
        "/health" | "/ping" | "/version" | "/v1/models"
    );
    let fault = if is_probe || faults.requests == RequestFault::Ok {
        RequestFault::Ok
    } else {
        faults.request_fault(shared.next_fault_number())
    };
    if fault == RequestFault::Reset {
        return Err(Cut);
    }
    // The body is read even for an error, as a client may still be sending it.
    let arrived = Instant::now();
    let (head, body) = request.into_parts();
    let response = match (read(shared, body, number).await?, fault) {
        (_, RequestFault::Hang) => std::future::pending().await,
        (_, RequestFault::Error(status)) => error(&ApiError::fault(status)),
        (_, RequestFault::Cut) => cut_stream(),
        (_, RequestFault::ErrorEvent) => error_stream(),
        (None, _) => error(&ApiError::too_large()),
        (Some(body), _) => {
            let arrival = Arrival {
                number,
                arrived,
                head,
                body,
            };
            route(shared, arrival).await?
        }
    };
    let status = response.status().as_u16();
    shared
        .log()
        .update(number, |entry| entry.status = Some(status));
    Ok(response)
}

/// A request that has been read to its end.
pub(super) struct Arrival {
    /// Its number in the log.
    pub(super) number: u64,
    /// When its head was there.
    pub(super) arrived: Instant,
    pub(super) head: Parts,
    pub(super) body: Bytes,
}

async fn route(shared: &Arc<Shared>, request: Arrival) -> Answer {
    let response = match (&request.head.method, request.head.uri.path()) {
        (_, "/health" | "/ping") => empty(StatusCode::OK),
        (&Method::GET, "/version") => json_response(StatusCode::OK, &json!({"version": VERSION})),
        (&Method::GET, "/v1/models") => json_response(StatusCode::OK, &models(shared)),
        (&Method::GET, "/load") => {
            let load = shared.in_flight.load(Ordering::Relaxed);
            json_response(StatusCode::OK, &json!({"server_load": load}))
        }
        (&Method::GET, "/v1/realtime") if request.head.headers.contains_key(UPGRADE) => {
            upgrade(request)
        }
        (&Method::POST, "/v1/chat/completions") => {
            return generate(shared, request, Shape::Chat).await;
        }
        (&Method::POST, "/v1/completions") => {
            return generate(shared, request, Shape::Completions).await;
        }
        (&Method::POST, "/reset_prefix_cache") => reset_prefix_cache(shared).await,
        (_, "/v1/chat/completions" | "/v1/completions" | "/reset_prefix_cache") => {
            let detail = json!({"detail": "Method Not Allowed"});
            json_response(StatusCode::METHOD_NOT_ALLOWED, &detail)
        }
        (&Method::POST, path) if shared.options.accept_unknown => {
            let answer = json!({"path": path, "bytes": request.body.len()});
            json_response(StatusCode::OK, &answer)
        }
        _ => not_found(),
    };
    Ok(response)
}

/// Reads a body and logs what it is; `None` when it is too large.
async fn read(shared: &Shared, body: Incoming, number: u64) -> Result<Option<Bytes>, Cut> {
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => {
            let bytes = body.to_bytes();
            let hash = xxh3_64(&bytes);
            shared.log().update(number, |entry| {
                entry.body_bytes = bytes.len();
                entry.body_hash = hash;
            });
            Ok(Some(bytes))
        }
        Err(cause) if cause.is::<LengthLimitError>() => Ok(None),
        Err(_) => Err(Cut),
    }
}

/// A stream that ends in the middle of its first event.
fn cut_stream() -> Response<AnswerBody> {
    event_stream(AnswerBody::Cut {
        bytes: Some(Bytes::from_static(b"data: {\"id\":\"chatcmpl-1\",\"choi")),
        flushed: false,
    })
}

/// A stream that tells that it failed.
fn error_stream() -> Response<AnswerBody> {
    let event = format!(
        "data: {}\n\ndata: [DONE]\n\n",
        ApiError::fault(500).to_body()
    );
    event_stream(AnswerBody::Full(Some(Bytes::from(event))))
}

fn event_stream(body: AnswerBody) -> Response<AnswerBody> {
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// The metrics page, or what a fault makes of it.
async fn metrics(shared: &Shared) -> Answer {
    let page = |text: String| {
        let mut response = Response::new(AnswerBody::Full(Some(Bytes::from(text))));
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    };
    Ok(match shared.faults().metrics {
        MetricsFault::Ok => page(shared.metrics_page()),
        MetricsFault::Slow(delay) => {
            tokio::time::sleep(delay).await;
            page(shared.metrics_page())
        }
        MetricsFault::Empty => page(String::new()),
        MetricsFault::Html => {
            let mut response = page(HTML.to_owned());
            let kind = HeaderValue::from_static("text/html; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        MetricsFault::NotFound => not_found(),
        MetricsFault::Error => error(&ApiError::fault(500)),
        MetricsFault::Hang => std::future::pending().await,
        MetricsFault::Truncated => page(half(shared.metrics_page())),
        MetricsFault::Cut => {
            let whole = shared.metrics_page();
            let length = whole.len();
            let mut response = page(String::new());
            response
                .headers_mut()
                .insert(CONTENT_LENGTH, HeaderValue::from(length));
            *response.body_mut() = AnswerBody::Cut {
                bytes: Some(Bytes::from(half(whole))),
                flushed: false,
            };
            response
        }
        MetricsFault::Stale => page(shared.frozen_page()),
    })
}

/// The page up to the middle of a number in its middle.
fn half(mut page: String) -> String {
    let middle = page.len() / 2;
    let line_end = page
        .bytes()
        .skip(middle)
        .position(|byte| byte == b'\n')
        .unwrap_or_default();
    // Pages are ASCII but for the model's name; a cut inside of that keeps the whole page.
    let end = middle + line_end.saturating_sub(2);
    if page.is_char_boundary(end) {
        page.truncate(end);
    }
    page
}

/// All names that the server answers to; adapters have the model as their parent.
fn models(shared: &Shared) -> Value {
    let options = &shared.options;
    let created = shared.stats().started.duration_since(std::time::UNIX_EPOCH);
    let created = created.unwrap_or_default().as_secs();
    let card = |name: &String, parent: Option<&String>| {
        json!({
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": if parent.is_some() { name } else { &options.model },
            "parent": parent,
            "max_model_len": if parent.is_some() {
                Value::Null
            } else {
                Value::from(options.engine().max_model_len)
            },
            "permission": [],
        })
    };
    let base = std::iter::once(&options.model)
        .chain(&options.aliases)
        .map(|it| card(it, None));
    let adapters = options
        .adapters
        .iter()
        .map(|it| card(it, Some(&options.model)));
    json!({"object": "list", "data": base.chain(adapters).collect::<Value>()})
}

async fn reset_prefix_cache(shared: &Shared) -> Response<AnswerBody> {
    let (answer, done) = oneshot::channel();
    // An engine that is gone does not answer, which counts as not done.
    let _ = shared.engine.send(Command::ResetCache(answer));
    match done.await {
        Ok(true) => empty(StatusCode::OK),
        _ => empty(StatusCode::CONFLICT),
    }
}

/// Switches protocols and sends back every byte that comes.
fn upgrade(request: Arrival) -> Response<AnswerBody> {
    let request = Request::from_parts(request.head, ());
    tokio::spawn(async move {
        let Ok(upgraded) = hyper::upgrade::on(request).await else {
            return;
        };
        let mut io = TokioIo::new(upgraded);
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = io.read(&mut buffer).await {
            let Some(bytes) = buffer.get(..count) else {
                return;
            };
            if io.write_all(bytes).await.is_err() {
                return;
            }
        }
    });
    let mut response = empty(StatusCode::SWITCHING_PROTOCOLS);
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response
        .headers_mut()
        .insert(UPGRADE, HeaderValue::from_static("websocket"));
    response
}

fn entry(request: &Request<Incoming>) -> Entry {
    let header = |it: (&hyper::header::HeaderName, &HeaderValue)| {
        (
            it.0.as_str().to_owned(),
            String::from_utf8_lossy(it.1.as_bytes()).into_owned(),
        )
    };
    Entry {
        method: request.method().to_string(),
        path: request.uri().to_string(),
        headers: request.headers().iter().map(header).collect(),
        ..Entry::default()
    }
}

pub(super) fn error(error: &ApiError) -> Response<AnswerBody> {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json_body(status, error.to_body())
}

pub(super) fn not_found() -> Response<AnswerBody> {
    json_response(StatusCode::NOT_FOUND, &json!({"detail": "Not Found"}))
}

pub(super) fn json_response(status: StatusCode, json: &Value) -> Response<AnswerBody> {
    json_body(status, json.to_string())
}

fn json_body(status: StatusCode, body: String) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::Full(Some(Bytes::from(body))));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn empty(status: StatusCode) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::Full(None));
    *response.status_mut() = status;
    response
}

/// The release whose behaviour is simulated.
const VERSION: &str = "0.33.0";

/// The page of a server that is not a model server.
const HTML: &str = "<!DOCTYPE html>\n<html><body><h1>Welcome</h1></body></html>\n";

/// Larger than any prompt that fits a context window.
const BODY_BYTES_MAX: usize = 64 << 20;
