//! An HTTP/2 client, whose requests end in more ways than HTTP/1 knows.

use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use hyper::http::{HeaderMap, HeaderValue, Request};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{CHAT, Stack};

/// How a request's body comes and ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// With the last byte.
    WithData,
    /// With an empty frame after it.
    EmptyFrame,
    /// With trailers.
    Trailers,
    /// In frames of one byte, the last of which ends it.
    SingleBytes,
    /// In frames of one byte, with empty frames among them, and trailers.
    SingleBytesAndTrailers,
}

/// Opens a connection to the traffic listener.
pub async fn connect(stack: &Stack) -> Result<SendRequest<Bytes>> {
    let socket = TcpStream::connect(stack.addresses.traffic).await?;
    socket.set_nodelay(true)?;
    let (client, connection) = h2::client::handshake(socket).await?;
    tokio::spawn(connection);
    Ok(client.ready().await?)
}

/// Begins a chat whose body is to come.
pub fn open(
    client: &SendRequest<Bytes>,
    headers: &[(&str, &str)],
) -> Result<(ResponseFuture, SendStream<Bytes>)> {
    let mut request = Request::post(format!("http://localhost{CHAT}"));
    for (name, value) in headers
        .iter()
        .chain(&[("content-type", "application/json")])
    {
        request = request.header(*name, *value);
    }
    Ok(client.clone().send_request(request.body(())?, false)?)
}

/// Sends a body in the frames that `end` wants, each in its turn.
pub async fn send(mut stream: SendStream<Bytes>, body: &str, end: End) -> Result<()> {
    let all = Bytes::copy_from_slice(body.as_bytes());
    let last = all.len() - 1;
    match end {
        End::WithData => return Ok(stream.send_data(all, true)?),
        End::EmptyFrame | End::Trailers => stream.send_data(all, false)?,
        End::SingleBytes | End::SingleBytesAndTrailers => {
            for at in 0..=last {
                let ends = at == last && matches!(end, End::SingleBytes);
                stream.send_data(all.slice(at..=at), ends)?;
                if at % 100 == 0 && !ends {
                    stream.send_data(Bytes::new(), false)?;
                    tokio::task::yield_now().await;
                }
            }
        }
    }
    match end {
        End::EmptyFrame => {
            // So late that it is a frame of its own.
            tokio::time::sleep(Duration::from_millis(50)).await;
            stream.send_data(Bytes::new(), true)?;
        }
        End::Trailers | End::SingleBytesAndTrailers => {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-checksum", HeaderValue::from_static("none"));
            stream.send_trailers(trailers)?;
        }
        End::WithData | End::SingleBytes => {}
    }
    Ok(())
}

/// The status and the text of an answer.
pub async fn finish(response: ResponseFuture) -> Result<(u16, String)> {
    let response = timeout(LIMIT, response).await.context("no answer")??;
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let mut text = Vec::new();
    while let Some(piece) = timeout(LIMIT, body.data()).await.context("no end")? {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        text.extend_from_slice(&piece);
    }
    Ok((status, String::from_utf8_lossy(&text).into_owned()))
}

/// How long one wait may last.
pub const LIMIT: Duration = Duration::from_secs(10);
