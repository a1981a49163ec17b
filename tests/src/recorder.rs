//! A server that keeps every request as it came.
//!
//! It speaks HTTP/1 and HTTP/2 on one port. It reads a body strictly: one that is longer or shorter
//! than its head says is an error of the connection, and shows in the request after it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpStream;

use crate::listening::Listening;

/// A server on a free port. Scrapes get the metrics of an idle vLLM, and are not kept.
pub struct Recorder {
    listening: Listening,
    shared: Arc<Shared>,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The number of its connection.
    pub connection: usize,
    /// The protocol.
    pub version: Version,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, without its frames.
    pub body: Bytes,
    /// What came after the body.
    pub trailers: Option<HeaderMap>,
}

#[derive(Default)]
struct Shared {
    requests: Mutex<Vec<Recorded>>,
    statuses: Mutex<VecDeque<u16>>,
}

impl Recorder {
    /// Starts a server.
    pub async fn start() -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let mut connection = 0;
        let listening = Listening::start(move |stream| {
            connection += 1;
            serve(stream, connection, Arc::clone(&own))
        })
        .await?;
        Ok(Self { listening, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listening.address()
    }

    /// Answers the next requests with these statuses, and those after them with 200.
    pub fn answer_with(&self, statuses: impl IntoIterator<Item = u16>) {
        locked(&self.shared.statuses).extend(statuses);
    }

    /// The requests since this was asked last, in their order.
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut *locked(&self.shared.requests))
    }

    /// The only request since then.
    pub fn take_one(&self) -> Result<Recorded> {
        let mut requests = self.take();
        ensure!(requests.len() == 1, "not one request but {requests:?}");
        requests.pop().context("no request")
    }
}

impl Recorded {
    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|it| it.to_str().ok())
    }
}

async fn serve(stream: TcpStream, connection: usize, shared: Arc<Shared>) {
    let service = service_fn(move |request| answer(request, connection, Arc::clone(&shared)));
    // A client that leaves is no fault of the server's.
    let _ = Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(
    request: Request<Incoming>,
    connection: usize,
    shared: Arc<Shared>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    if request.uri().path() == "/metrics" {
        return Ok(Response::new(Full::from(IDLE)));
    }
    let (head, body) = request.into_parts();
    let body = body.collect().await?;
    let trailers = body.trailers().cloned();
    locked(&shared.requests).push(Recorded {
        connection,
        version: head.version,
        headers: head.headers,
        body: body.to_bytes(),
        trailers,
    });
    let mut response = Response::new(Full::from("{}"));
    let status = locked(&shared.statuses).pop_front();
    let status = status.and_then(|it| StatusCode::from_u16(it).ok());
    *response.status_mut() = status.unwrap_or_default();
    Ok(response)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const IDLE: &str = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n\
                    vllm:kv_cache_usage_perc 0\n\
                    vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"10217\"} 1\n";
