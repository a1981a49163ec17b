//! A server that holds each answer until the test lets it go, and remembers who came.
//!
//! With it nothing depends on how fast a server is: a test decides when there is room again.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::eventually;

/// A server of several ports. Streams begin at once and end when they are let go; other requests
/// have no answer until then. Dropping it ends it.
pub struct Held {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

/// A request that came.
#[derive(Clone, Debug)]
pub struct Came {
    /// What its header `x-name` says.
    pub name: String,
    /// When its head was there.
    pub at: Instant,
    /// Its body, once all of it is there.
    pub body: Option<Bytes>,
}

struct Shared {
    log: Mutex<Log>,
    /// As many as may end and have not yet.
    free: Semaphore,
}

#[derive(Default)]
struct Log {
    came: Vec<Came>,
    ended: Vec<Instant>,
    in_flight: usize,
    most: usize,
}

impl Held {
    /// Starts a server with so many ports.
    pub async fn start(ports: usize) -> Result<Self> {
        Self::at(&vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); ports]).await
    }

    /// Starts a server at these addresses.
    pub async fn at(addresses: &[SocketAddr]) -> Result<Self> {
        let shared = Arc::new(Shared {
            log: Mutex::default(),
            free: Semaphore::new(0),
        });
        let mut held = Self {
            addresses: Vec::new(),
            shared,
            tasks: Vec::new(),
        };
        for address in addresses {
            let listener = TcpListener::bind(address).await?;
            held.addresses.push(listener.local_addr()?);
            let shared = Arc::clone(&held.shared);
            held.tasks.push(tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, Arc::clone(&shared)));
                }
            }));
        }
        Ok(held)
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Lets `count` requests go, those first that came first, also such as are still to come.
    pub fn let_go(&self, count: usize) {
        self.shared.free.add_permits(count);
    }

    /// All requests so far, in the order in which they came.
    pub fn came(&self) -> Vec<Came> {
        self.shared.log().came.clone()
    }

    /// Their names.
    pub fn names(&self) -> Vec<String> {
        let log = self.shared.log();
        log.came.iter().map(|it| it.name.clone()).collect()
    }

    /// When requests ended, whoever ended them.
    pub fn ended(&self) -> Vec<Instant> {
        self.shared.log().ended.clone()
    }

    /// How many are here now.
    pub fn in_flight(&self) -> usize {
        self.shared.log().in_flight
    }

    /// How many were here at once at most.
    pub fn most(&self) -> usize {
        self.shared.log().most
    }

    /// Waits until `count` requests have come since the start.
    pub async fn wait_for(&self, count: usize) -> Result<()> {
        eventually(async || self.came().len() >= count).await;
        let names = self.names();
        ensure!(names.len() == count, "{count} were to come, not {names:?}");
        Ok(())
    }

    /// Waits until so many are here: who has left is noticed a little later than by Envoy, and until
    /// then would be let go in another's place.
    pub async fn wait_for_in_flight(&self, count: usize) -> Result<()> {
        eventually(async || self.in_flight() == count).await;
        let found = self.in_flight();
        ensure!(found == count, "{found} are in flight, not {count}");
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this request may end.
    async fn freed(&self) {
        if let Ok(permit) = self.free.acquire().await {
            permit.forget();
        }
    }
}

/// Counts a request until it is dropped.
struct InFlight(Arc<Shared>);

impl InFlight {
    fn begin(shared: &Arc<Shared>) -> Self {
        let mut log = shared.log();
        log.in_flight += 1;
        log.most = log.most.max(log.in_flight);
        drop(log);
        Self(Arc::clone(shared))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut log = self.0.log();
        log.in_flight -= 1;
        log.ended.push(Instant::now());
    }
}

/// An answer whose pieces come one by one.
struct Pieces(mpsc::Receiver<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let piece = self.0.poll_recv(cx);
        piece.map(|it| it.map(|bytes| Ok(Frame::data(bytes))))
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    // A client that leaves is no fault of the server's, nor is an address that cannot be set.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| answer(request, Arc::clone(&shared)));
    let _ = Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Pieces>> {
    let (sender, receiver) = mpsc::channel(4);
    if request.uri().path() == "/metrics" {
        let running = shared.log().in_flight;
        sender.send(Bytes::from(page(running))).await?;
        return Ok(Response::new(Pieces(receiver)));
    }
    let counted = InFlight::begin(&shared);
    let name = request.headers().get("x-name");
    let name = name.and_then(|it| it.to_str().ok()).unwrap_or_default();
    let came = Came {
        name: name.to_owned(),
        at: Instant::now(),
        body: None,
    };
    let place = {
        let mut log = shared.log();
        log.came.push(came);
        log.came.len() - 1
    };
    let body = request.into_body().collect().await?.to_bytes();
    let streams = body
        .windows(STREAMS.len())
        .any(|it| it == STREAMS.as_bytes());
    let of_it = |log: &mut Log| log.came.get_mut(place).map(|it| it.body = Some(body));
    of_it(&mut shared.log()).context("the request is not known")?;
    let kind = if streams {
        sender.send(Bytes::from(FIRST)).await?;
        tokio::spawn(async move {
            tokio::select! {
                () = shared.freed() => {
                    // Whoever reads the end finds room.
                    drop(counted);
                    let _ = sender.send(Bytes::from(LAST)).await;
                }
                () = sender.closed() => drop(counted),
            }
        });
        "text/event-stream"
    } else {
        shared.freed().await;
        drop(counted);
        sender.send(Bytes::from(WHOLE)).await?;
        "application/json"
    };
    let mut response = Response::new(Pieces(receiver));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

/// What a vLLM shows that has so much to do.
fn page(running: usize) -> String {
    format!(
        "vllm:num_requests_running {running}\nvllm:num_requests_waiting 0\n\
         vllm:kv_cache_usage_perc 0\n\
         vllm:cache_config_info{{block_size=\"16\",num_gpu_blocks=\"10217\"}} 1\n"
    )
}

/// How a body asks for a stream.
const STREAMS: &str = "\"stream\":true";

const FIRST: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";

const LAST: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"},\
                    \"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

const WHOLE: &str = "{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\
                     \"content\":\"ab\"},\"finish_reason\":\"stop\"}],\"usage\":\
                     {\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5}}";
