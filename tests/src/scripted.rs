//! A server whose answers a test has written down, byte by byte.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::canned::IDLE;
use crate::listening::Listening;

/// An answer as it goes over the wire.
#[derive(Clone, Debug)]
pub struct Script {
    /// Head and body.
    pub bytes: Vec<u8>,
    /// How many bytes of it are written at once.
    pub piece_bytes: usize,
    /// Whether the connection ends with it.
    pub closes: bool,
}

/// A server on a free port that gives the answer whose number a request names in the header
/// [`SCRIPT`]; to requests without one it is an idle vLLM.
pub struct Scripted {
    listening: Listening,
    heads: Heads,
}

type Heads = Arc<Mutex<Vec<String>>>;

impl Scripted {
    /// Starts a server.
    pub async fn start(scripts: Vec<Script>) -> Result<Self> {
        let scripts: Arc<[Script]> = scripts.into();
        let heads = Heads::default();
        let seen = Arc::clone(&heads);
        let listening =
            Listening::start(move |stream| serve(stream, Arc::clone(&scripts), Arc::clone(&seen)))
                .await?;
        Ok(Self { listening, heads })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listening.address()
    }

    /// The heads of the requests that named an answer, in lower case.
    pub fn heads(&self) -> Vec<String> {
        let heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
        heads.clone()
    }
}

/// Answers requests until the connection ends, in whatever way.
async fn serve(mut stream: TcpStream, scripts: Arc<[Script]>, heads: Heads) {
    let mut buffer = Vec::new();
    if stream.set_nodelay(true).is_err() {
        return;
    }
    while let Some(head) = read_request(&mut stream, &mut buffer).await {
        let script = header(&head, SCRIPT).and_then(|it| it.parse::<usize>().ok());
        let Some(script) = script.and_then(|it| scripts.get(it)) else {
            let length = IDLE.len();
            let idle = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{IDLE}");
            if stream.write_all(idle.as_bytes()).await.is_err() {
                return;
            }
            continue;
        };
        heads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(head);
        for piece in script.bytes.chunks(script.piece_bytes) {
            if stream.write_all(piece).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
        if script.closes {
            return;
        }
    }
}

/// Reads a request and drops its body; its head, `None` when the connection has ended.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<String> {
    let end = loop {
        let at = buffer.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(at) = at {
            break at + 4;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
    buffer.drain(..end);
    let length = header(&head, "content-length").and_then(|it| it.parse::<usize>().ok());
    // Nobody sends trailers here, nor the next request before it has this answer.
    let is_whole = |body: &[u8]| match length {
        Some(length) => length <= body.len(),
        None => !head.contains("transfer-encoding") || body.ends_with(b"0\r\n\r\n"),
    };
    while !is_whole(buffer) {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    buffer.clear();
    Some(head)
}

/// The value of a header in a head in lower case.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.split("\r\n");
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim)
}

/// The header in which a request names the answer that it gets.
pub const SCRIPT: &str = "x-script";
