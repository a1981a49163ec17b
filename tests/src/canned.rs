//! A server that says one thing, and counts who connects.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
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
