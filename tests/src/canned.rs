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
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;

/// A server on a free port that answers every request with the same bytes.
pub struct Canned {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Canned {
    /// Starts a server; `answer` is a whole response.
    pub async fn start(answer: impl Into<Vec<u8>>) -> Result<Self> {
        let answer: Arc<[u8]> = answer.into().into();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(stream, Arc::clone(&answer)));
            }
        });
        Ok(Self {
            address,
            connections,
            task,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections there have been.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// A server on a free port that takes bodies of any size and keeps none.
pub struct Sink {
    address: SocketAddr,
    largest: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Sink {
    /// Starts a server.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let largest = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&largest);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(swallow(stream, Arc::clone(&seen)));
            }
        });
        Ok(Self {
            address,
            largest,
            task,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The bytes of the largest body so far.
    pub fn largest(&self) -> usize {
        self.largest.load(Ordering::Relaxed)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Drop for Canned {
    fn drop(&mut self) {
        self.task.abort();
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
    address: SocketAddr,
    pieces: mpsc::Sender<Vec<u8>>,
    task: JoinHandle<()>,
}

impl Stepwise {
    /// Starts a server.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (pieces, queue) = mpsc::channel(1);
        let queue = Arc::new(Mutex::new(queue));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(step(stream, Arc::clone(&queue)));
            }
        });
        Ok(Self {
            address,
            pieces,
            task,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends the next piece of the answer.
    pub async fn send(&self, piece: impl Into<Vec<u8>>) -> Result<()> {
        Ok(self.pieces.send(piece.into()).await?)
    }
}

impl Drop for Stepwise {
    fn drop(&mut self) {
        self.task.abort();
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
