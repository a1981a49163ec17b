//! The stand-in API server of Kubernetes on a port: it wants a token, its watches last, and it can
//! be made to fail.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::kube::Api;
use crate::listening::Listening;

/// A running server. It speaks plain HTTP; an Envoy before it adds TLS.
pub struct KubeServer {
    listening: Listening,
    state: Shared,
}

/// What a server knows.
#[derive(Default)]
pub struct KubeState {
    /// The objects.
    pub api: Api,
    /// Every other token is answered with 401.
    pub token: String,
    /// What every request is answered with in place of what is right.
    pub fault: Option<KubeFault>,
    /// How many requests had a token that is not the right one.
    pub refused: usize,
}

/// How a server fails.
#[derive(Clone, PartialEq, Debug)]
pub enum KubeFault {
    /// With this status.
    Status(u16),
    /// By half of what is right.
    Cut,
    /// By ending the connection.
    Away,
}

type Shared = Arc<Mutex<KubeState>>;

impl KubeServer {
    /// Starts a server that wants `token`.
    pub async fn start(token: &str) -> Result<Self> {
        let state = KubeState {
            token: token.into(),
            ..KubeState::default()
        };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let listening = Listening::start(move |stream| serve(stream, Arc::clone(&shared))).await?;
        Ok(Self { listening, state })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listening.address()
    }

    /// What it knows, to be looked at and changed; not across a wait.
    pub fn state(&self) -> MutexGuard<'_, KubeState> {
        locked(&self.state)
    }
}

fn locked(state: &Shared) -> MutexGuard<'_, KubeState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(stream: TcpStream, state: Shared) {
    let service = service_fn(|request: Request<Incoming>| answer(request, Arc::clone(&state)));
    let _ = Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(request: Request<Incoming>, state: Shared) -> Result<Response<Full<Bytes>>> {
    let target = request.uri().to_string();
    let authorization = request.headers().get("authorization");
    let authorization = authorization.and_then(|it| it.to_str().ok());
    let is_known = {
        let mut state = locked(&state);
        let is_known = authorization == Some(&format!("Bearer {}", state.token));
        state.refused += usize::from(!is_known);
        is_known && state.fault.is_none()
    };
    let lasts = target.split_once("&timeoutSeconds=").filter(|_| is_known);
    if let Some((_, seconds)) = lasts {
        sleep(Duration::from_secs(seconds.parse()?)).await;
    }
    let mut state = locked(&state);
    let fault = state.fault.clone();
    let (status, body) = match fault {
        Some(KubeFault::Away) => anyhow::bail!("away"),
        Some(KubeFault::Status(status)) => (status, format!("{{\"code\":{status}}}")),
        _ if !is_known && fault.is_none() => (401, "{\"code\":401}".to_owned()),
        Some(KubeFault::Cut) => {
            let (status, body) = state.api.answer(&target);
            (status, body.chars().take(body.len() / 2).collect())
        }
        None => state.api.answer(&target),
    };
    let response = Response::builder().status(status);
    let response = response.header("content-type", "application/json");
    Ok(response.body(Full::new(Bytes::from(body)))?)
}
