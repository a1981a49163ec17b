//! Servers that say one thing: one counts who connects, one what it is sent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};

use crate::listening::Listening;

/// A server on a free port that answers every request with the same bytes.
pub struct Canned {
    listening: Listening,
    connections: Arc<AtomicUsize>,
}

impl Canned {
    /// Starts a server; `answer` is a whole response.
    pub async fn start(answer: impl Into<Vec<u8>>) -> Result<Self> {
        let answer: Arc<[u8]> = answer.into().into();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let listening = Listening::start(move |stream| {
            count.fetch_add(1, Ordering::Relaxed);
            serve(stream, Arc::clone(&answer))
        })
        .await?;
        Ok(Self {
            listening,
            connections,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listening.address()
    }

    /// How many connections there have been.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// A server on a free port that takes bodies of any size and keeps none.
pub struct Sink {
    listening: Listening,
    largest: Arc<AtomicUsize>,
}

impl Sink {
    /// Starts a server.
    pub async fn start() -> Result<Self> {
        let largest = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&largest);
        let listening = Listening::start(move |stream| swallow(stream, Arc::clone(&seen))).await?;
        Ok(Self { listening, largest })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listening.address()
    }

    /// The bytes of the largest body so far.
    pub fn largest(&self) -> usize {
        self.largest.load(Ordering::Relaxed)
    }
}

/// Answers once per head; bodies are small and arrive with it.
async fn serve(mut stream: TcpStream, answer: Arc<[u8]>) {
    let mut bytes = [0; 65_536];
    while let Ok(read @ 1..) = stream.read(&mut bytes).await {
        let heads = bytes[..read]
            .windows(4)
            .filter(|window| window == b"\r\n\r\n")
            .count();
        for _ in 0..heads {
            if stream.write_all(&answer).await.is_err() {
                return;
            }
        }
    }
}

/// Reads a body to its end and forgets it.
async fn swallow(stream: TcpStream, largest: Arc<AtomicUsize>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let largest = Arc::clone(&largest);
        async move {
            let mut body = request.into_body();
            let mut bytes = 0;
            while let Some(frame) = body.frame().await {
                bytes += frame?.data_ref().map_or(0, Bytes::len);
            }
            largest.fetch_max(bytes, Ordering::Relaxed);
            Ok::<_, hyper::Error>(Response::new(Empty::<Bytes>::new()))
        }
    });
    // A client that leaves is no fault of the server's.
    let _ = Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// A server on a free port that sends the answer to a POST in pieces, each when it is told to; any
/// other request gets the metrics of an idle vLLM.
pub struct Stepwise {
    listening: Listening,
    pieces: mpsc::Sender<Vec<u8>>,
}

impl Stepwise {
    /// Starts a server.
    pub async fn start() -> Result<Self> {
        let (pieces, queue) = mpsc::channel(1);
        let queue = Arc::new(Mutex::new(queue));
        let listening = Listening::start(move |stream| step(stream, Arc::clone(&queue))).await?;
        Ok(Self { listening, pieces })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listening.address()
    }

    /// Sends the next piece of the answer.
    pub async fn send(&self, piece: impl Into<Vec<u8>>) -> Result<()> {
        Ok(self.pieces.send(piece.into()).await?)
    }
}

/// Sends what is queued once a POST has come on this connection.
async fn step(mut stream: TcpStream, queue: Arc<Mutex<mpsc::Receiver<Vec<u8>>>>) {
    let mut bytes = [0; 65_536];
    while let Ok(read @ 1..) = stream.read(&mut bytes).await {
        if !bytes[..read].starts_with(b"POST ") {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", IDLE.len());
            let sent = stream.write_all(format!("{head}{IDLE}").as_bytes()).await;
            if sent.is_err() {
                return;
            }
            continue;
        }
        let mut queue = queue.lock().await;
        while let Some(piece) = queue.recv().await {
            if stream.write_all(&piece).await.is_err() {
                return;
            }
        }
    }
}

/// The metrics of an idle vLLM.
pub(crate) const IDLE: &str = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n\
                    vllm:kv_cache_usage_perc 0\n";
