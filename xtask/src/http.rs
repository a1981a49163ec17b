//! A small HTTP/1.1 client for loopback: one connection, one request at a time, no reuse behind the
//! caller's back.
//!
//! The tests need to see and to break what ordinary clients hide: single chunks, half-sent
//! requests, headers twice. Every wait has a time limit.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// One connection to a server.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    limit: Duration,
}

/// A whole response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Names in lower case, in the order in which they came.
    pub headers: Vec<(String, String)>,
    /// The body without its chunk frames.
    pub body: Vec<u8>,
}

/// How the bytes after a head are framed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// Chunks until one of size 0.
    Chunked,
    /// As many bytes as `content-length` said, less those that were read.
    Length(usize),
    /// Everything until the connection ends.
    UntilClose,
}

impl Connection {
    /// Connects within the default limit of [`LIMIT`], which then holds for each wait.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        let stream = timeout(LIMIT, TcpStream::connect(address))
            .await
            .with_context(|| format!("connecting to {address} took too long"))?
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
            limit: LIMIT,
        })
    }

    /// Changes how long each wait may last.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        timeout(self.limit, self.stream.write_all(bytes))
            .await
            .context("sending took too long")?
            .context("cannot send")
    }

    /// Sends a request with `content-length` (none for an empty body) and reads the response.
    pub async fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response> {
        let mut bytes = head(method, path, headers, Length::of(body));
        bytes.extend_from_slice(body);
        self.send(&bytes).await?;
        self.response(method == "HEAD").await
    }

    /// Reads a whole response; `bodiless` for the answer to a HEAD.
    pub async fn response(&mut self, bodiless: bool) -> Result<Response> {
        let (mut response, mut framing) = self.head().await?;
        if bodiless || matches!(response.status, 204 | 304) {
            return Ok(response);
        }
        while let Some(piece) = self.piece(&mut framing).await? {
            response.body.extend_from_slice(&piece);
        }
        Ok(response)
    }

    /// Reads a response's head; its body is still to come, framed as returned.
    pub async fn head(&mut self) -> Result<(Response, Framing)> {
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at;
            }
            ensure!(self.fill().await?, "the connection ended before a response");
        };
        let rest = self.buffer.split_off(end + 4);
        let text = String::from_utf8_lossy(&std::mem::replace(&mut self.buffer, rest)).into_owned();
        let mut lines = text.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .and_then(|word| word.parse().ok())
            .context("no status line")?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let response = Response {
            status,
            headers,
            body: Vec::new(),
        };
        let framing = match response.header("content-length") {
            Some(length) => Framing::Length(length.parse().context("odd content-length")?),
            None if response.header("transfer-encoding") == Some("chunked") => Framing::Chunked,
            None => Framing::UntilClose,
        };
        if status == 100 {
            return Box::pin(self.head()).await;
        }
        Ok((response, framing))
    }

    /// Reads the next piece of a body: a chunk, or what has arrived; `None` at its end.
    pub async fn piece(&mut self, framing: &mut Framing) -> Result<Option<Vec<u8>>> {
        match framing {
            Framing::Chunked => self.chunk().await,
            Framing::Length(0) => Ok(None),
            Framing::Length(left) => {
                if self.buffer.is_empty() {
                    ensure!(self.fill().await?, "the connection ended inside a body");
                }
                let take = self.buffer.len().min(*left);
                *left -= take;
                Ok(Some(self.buffer.drain(..take).collect()))
            }
            Framing::UntilClose => {
                if self.buffer.is_empty() && !self.fill().await? {
                    return Ok(None);
                }
                Ok(Some(std::mem::take(&mut self.buffer)))
            }
        }
    }

    /// Ends the connection with a reset instead of an orderly close.
    pub fn reset(self) -> Result<()> {
        self.stream.set_zero_linger()?;
        Ok(())
    }

    /// Whether the server ends the connection within the limit without sending anything more.
    pub async fn ends(&mut self) -> bool {
        matches!(self.fill().await, Ok(false))
    }

    async fn chunk(&mut self) -> Result<Option<Vec<u8>>> {
        let size = self.line().await?;
        let size = usize::from_str_radix(size.split(';').next().unwrap_or("").trim(), 16)
            .with_context(|| format!("odd chunk size {size:?}"))?;
        if size == 0 {
            while !self.line().await?.is_empty() {}
            return Ok(None);
        }
        while self.buffer.len() < size + 2 {
            ensure!(self.fill().await?, "the connection ended inside a chunk");
        }
        let chunk = self.buffer.drain(..size).collect();
        self.buffer.drain(..2);
        Ok(Some(chunk))
    }

    async fn line(&mut self) -> Result<String> {
        loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                let line = self.buffer.drain(..at + 2).take(at).collect();
                return String::from_utf8(line).context("a line that is no text");
            }
            ensure!(self.fill().await?, "the connection ended inside a line");
        }
    }

    /// Reads more bytes; `false` when the server ended the connection.
    async fn fill(&mut self) -> Result<bool> {
        let read = timeout(self.limit, self.stream.read_buf(&mut self.buffer)).await;
        match read {
            Ok(Ok(count)) => Ok(count > 0),
            Ok(Err(error)) => Err(error).context("cannot read"),
            Err(_) => bail!("no answer within {:?}", self.limit),
        }
    }
}

impl Response {
    /// The first header of this name, given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(key, _)| key == name);
        found.next().map(|(_, value)| value.as_str())
    }

    /// The body as text; odd bytes are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_slice(&self.body).with_context(|| {
            let start: String = self.text().chars().take(200).collect();
            format!("status {}, not JSON: {start:?}", self.status)
        })
    }
}

/// How a request says where its body ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// `transfer-encoding: chunked`.
    Chunked,
    /// `content-length`.
    Known(usize),
    /// No body.
    None,
}

impl Length {
    /// The length of `body`, none when it is empty.
    pub fn of(body: &[u8]) -> Self {
        if body.is_empty() {
            Self::None
        } else {
            Self::Known(body.len())
        }
    }
}

/// A request's head, with a `host` header.
pub fn head(method: &str, path: &str, headers: &[(&str, &str)], length: Length) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    match length {
        Length::Chunked => text.push_str("transfer-encoding: chunked\r\n"),
        Length::Known(bytes) => text.push_str(&format!("content-length: {bytes}\r\n")),
        Length::None => {}
    }
    text.push_str("\r\n");
    text.into_bytes()
}

/// One chunk in its frame; an empty one ends the body.
pub fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
    framed.extend_from_slice(bytes);
    framed.extend_from_slice(b"\r\n");
    framed
}

/// One GET on a connection of its own.
pub async fn fetch(address: SocketAddr, path: &str) -> Result<Response> {
    let mut connection = Connection::open(address).await?;
    connection
        .request("GET", path, &[("connection", "close")], b"")
        .await
}

/// One POST of JSON on a connection of its own.
pub async fn post(address: SocketAddr, path: &str, body: &[u8]) -> Result<Response> {
    let mut connection = Connection::open(address).await?;
    let headers = [
        ("content-type", "application/json"),
        ("connection", "close"),
    ];
    connection.request("POST", path, &headers, body).await
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

/// How long one wait may last: far above anything on loopback, and far below a person's patience.
pub const LIMIT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// What the client makes of a server that sends `bytes` and closes.
    async fn read(bytes: &'static [u8]) -> Result<Response> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await.unwrap();
            stream.write_all(bytes).await.unwrap();
        });
        let response = fetch(address, "/").await;
        server.await?;
        response
    }

    #[tokio::test]
    async fn a_body_ends_where_its_frame_says() -> Result<()> {
        for (bytes, body) in [
            (
                &b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"[..],
                "abc",
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                  2;x\r\nab\r\n1\r\nc\r\n0\r\nt: 1\r\n\r\n",
                "abc",
            ),
            (b"HTTP/1.1 200 OK\r\n\r\nabc", "abc"),
            (b"HTTP/1.1 204 No Content\r\n\r\n", ""),
            (
                b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nabc",
                "abc",
            ),
        ] {
            assert_eq!(read(bytes).await?.text(), body);
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_body_cut_short_is_an_error() {
        for bytes in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabc"[..],
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
            b"HTTP/1.1 200 OK\r\n",
            b"",
        ] {
            assert!(read(bytes).await.is_err());
        }
    }
}
