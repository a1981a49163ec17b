//! One connection and the requests on it.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::events::{EventReader, usage};
use super::report::{Failure, Record};

/// A connection that is opened when it is needed.
pub(super) struct Client {
    target: SocketAddr,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    pub(super) fn new(target: SocketAddr) -> Self {
        Self {
            target,
            sender: None,
        }
    }

    /// Sends a request and reads its answer to the end.
    pub(super) async fn send(&mut self, request: Request<Bytes>, limit: Duration) -> Record {
        let started = Instant::now();
        let mut record = Record::default();
        let failure = match timeout(limit, self.exchange(request, started, &mut record)).await {
            Ok(Ok(())) => None,
            Ok(Err(failure)) => Some(failure),
            Err(_) => Some(Failure::Timeout),
        };
        if failure.is_some() {
            self.disconnect();
        }
        record.failure = failure;
        record.total = started.elapsed();
        record
    }

    pub(super) fn disconnect(&mut self) {
        self.sender = None;
    }

    async fn exchange(
        &mut self,
        request: Request<Bytes>,
        started: Instant,
        record: &mut Record,
    ) -> Result<(), Failure> {
        let (head, body) = request.into_parts();
        let mut response = None;
        // A server may close an idle connection just when a request is on its way to it; hyper
        // then gives the request back unsent, and it goes out on a new connection.
        for _ in 0..2 {
            let request = Request::from_parts(head.clone(), Full::new(body.clone()));
            match self.sender().await?.try_send_request(request).await {
                Ok(answer) => {
                    response = Some(answer);
                    break;
                }
                Err(mut error) => {
                    self.disconnect();
                    if error.take_message().is_none() {
                        return Err(Failure::Closed);
                    }
                }
            }
        }
        read(response.ok_or(Failure::Closed)?, started, record).await
    }

    /// The open connection, or a new one.
    async fn sender(&mut self) -> Result<&mut SendRequest<Full<Bytes>>, Failure> {
        let is_ready = match &mut self.sender {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !is_ready {
            self.sender = None;
        }
        match &mut self.sender {
            Some(sender) => Ok(sender),
            vacant => Ok(vacant.insert(connect(self.target).await?)),
        }
    }
}

async fn connect(target: SocketAddr) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let stream = TcpStream::connect(target)
        .await
        .map_err(|_| Failure::Connect)?;
    stream.set_nodelay(true).map_err(|_| Failure::Connect)?;
    let (sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(|_| Failure::Connect)?;
    // It ends with its sender, and its error reaches the request in flight.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

/// Reads an answer to its end, and what it says of itself.
async fn read(
    response: Response<Incoming>,
    started: Instant,
    record: &mut Record,
) -> Result<(), Failure> {
    let (head, mut body) = response.into_parts();
    record.status = Some(head.status.as_u16());
    let text = |name: &str| head.headers.get(name).and_then(|it| it.to_str().ok());
    record.endpoint = text("x-sim-endpoint").map(str::to_owned);
    let kind = head
        .headers
        .get(CONTENT_TYPE)
        .and_then(|it| it.to_str().ok())
        .unwrap_or_default();
    let is_stream = kind.starts_with("text/event-stream");
    let mut events = EventReader::default();
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Failure::Closed)?;
        let Some(bytes) = frame.data_ref() else {
            continue;
        };
        record.body_bytes += bytes.len() as u64;
        if !is_stream {
            let room = ANSWER_BYTES_MAX.saturating_sub(whole.len());
            whole.extend(bytes.iter().take(room));
            continue;
        }
        events.push(bytes, |event| {
            record.first_event.get_or_insert_with(|| started.elapsed());
            if let Some(found) = usage(event) {
                record.usage = found;
            }
        });
    }
    if !is_stream && let Some(found) = usage(&whole) {
        record.usage = found;
    }
    Ok(())
}

/// How much of an answer that is no stream is searched for its usage.
const ANSWER_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Server, ServerOptions};

    #[tokio::test]
    async fn a_connection_that_the_server_has_closed_is_replaced() {
        let keep_alive = Duration::from_millis(10);
        let options = ServerOptions {
            keep_alive,
            ..ServerOptions::default()
        };
        let server = Server::start(options).await.unwrap();
        let mut client = Client::new(server.address());
        for _ in 0..3 {
            let mut request = Request::new(Bytes::new());
            *request.uri_mut() = "/ping".parse().unwrap();
            let host = hyper::header::HeaderValue::from_static("sim");
            request.headers_mut().insert(hyper::header::HOST, host);
            let record = client.send(request, LIMIT).await;
            assert!(record.is_success(), "{record:?}");
            let closed = async {
                while client
                    .sender
                    .as_ref()
                    .is_some_and(|sender| !sender.is_closed())
                {
                    tokio::task::yield_now().await;
                }
            };
            timeout(LIMIT, closed).await.unwrap();
        }
    }

    /// Longer than anything here takes on a busy machine.
    const LIMIT: Duration = Duration::from_secs(20);
}
