//! A server whose answers a test changes while it runs.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::listening::Listening;

/// A server on a free port that answers every request with the status and the body set last.
pub struct Stub {
    listening: Listening,
    answer: Shared,
}

type Shared = Arc<Mutex<(u16, String, Vec<String>)>>;

impl Stub {
    /// Starts a server.
    pub async fn start(status: u16, body: &str) -> Result<Self> {
        let answer: Shared = Arc::new(Mutex::new((status, body.to_owned(), Vec::new())));
        let shared = Arc::clone(&answer);
        let listening = Listening::start(move |stream| serve(stream, Arc::clone(&shared))).await?;
        Ok(Self { listening, answer })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listening.address()
    }

    /// What it answers from now on.
    pub fn set(&self, status: u16, body: &str) {
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        (answer.0, answer.1) = (status, body.to_owned());
    }

    /// The authority and the path of every request so far.
    pub fn asked(&self) -> Vec<String> {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer.2.clone()
    }
}

async fn serve(stream: TcpStream, answer: Shared) {
    let service = service_fn(|request: Request<Incoming>| {
        let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
        let host = request.headers().get("host");
        let host = host.and_then(|it| it.to_str().ok()).unwrap_or_default();
        answer.2.push(format!("{host}{}", request.uri()));
        let response = Response::builder().status(answer.0);
        let response = response.body(Full::new(Bytes::from(answer.1.clone())));
        async { response }
    });
    let _ = Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
