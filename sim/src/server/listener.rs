//! Accepting connections, refusing them, and cutting those that are open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

use super::route::handle;
use super::shared::{Mode, Shared};

/// One connection, as its requests see it.
pub(super) struct Connection {
    pub(super) shared: Arc<Shared>,
    /// Where the server listens.
    pub(super) address: SocketAddr,
    /// Whether the connection outlives a restart or refusal: the one that asked for it does.
    pub(super) spared: AtomicBool,
}

/// The port of a server, which it keeps whether it takes connections or refuses them.
pub(super) enum Port {
    /// Bound but not listening: connections are refused.
    Closed(TcpSocket),
    Open(TcpListener),
}

impl Port {
    pub(super) fn bind(address: SocketAddr) -> std::io::Result<Self> {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(Self::Closed(socket))
    }

    pub(super) fn open(self) -> std::io::Result<Self> {
        match self {
            Self::Closed(socket) => Ok(Self::Open(socket.listen(BACKLOG)?)),
            open => Ok(open),
        }
    }

    pub(super) fn address(&self) -> std::io::Result<SocketAddr> {
        match self {
            Self::Closed(socket) => socket.local_addr(),
            Self::Open(listener) => listener.local_addr(),
        }
    }
}

/// Serves until the mode says stop.
pub(super) async fn run(shared: Arc<Shared>, address: SocketAddr, port: Port) {
    let mut mode = shared.mode.subscribe();
    let mut port = Some(port);
    loop {
        let now = *mode.borrow_and_update();
        if now.stopped {
            return;
        }
        let wanted = match (port.take(), now.refuse) {
            (Some(Port::Open(listener)), true) => {
                drop(listener);
                Port::bind(address)
            }
            (Some(port), true) => Ok(port),
            (Some(port), false) => port.open(),
            (None, _) => Port::bind(address),
        };
        match wanted {
            Ok(Port::Open(listener)) => {
                accept(&shared, address, &listener, &mut mode).await;
                port = Some(Port::Open(listener));
            }
            Ok(closed) if now.refuse => {
                port = Some(closed);
                if mode.changed().await.is_err() {
                    return;
                }
            }
            Ok(closed) => port = Some(closed),
            // Somebody else may have the port for a moment.
            Err(_) => tokio::time::sleep(RETRY_AFTER).await,
        }
    }
}

/// Accepts connections until the listener has to go.
async fn accept(
    shared: &Arc<Shared>,
    address: SocketAddr,
    listener: &TcpListener,
    mode: &mut watch::Receiver<Mode>,
) {
    loop {
        tokio::select! {
            changed = mode.changed() => {
                let now = *mode.borrow_and_update();
                if changed.is_err() || now.stopped || now.refuse {
                    return;
                }
            }
            accepted = listener.accept() => {
                // Failing to accept one connection, for want of descriptors, is no reason to stop.
                let Ok((stream, _)) = accepted else {
                    tokio::time::sleep(RETRY_AFTER).await;
                    continue;
                };
                tokio::spawn(serve(Arc::clone(shared), address, stream));
            }
        }
    }
}

/// Serves one connection until it ends or is cut.
async fn serve(shared: Arc<Shared>, address: SocketAddr, stream: TcpStream) {
    // Tokens are small and must not wait for each other.
    let _ = stream.set_nodelay(true);
    let mut mode = shared.mode.subscribe();
    let incarnation = mode.borrow_and_update().incarnation;
    let connection = Arc::new(Connection {
        shared,
        address,
        spared: AtomicBool::new(false),
    });
    let service = service_fn(|request| handle(Arc::clone(&connection), request));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(connection.shared.options.keep_alive)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let cut = async {
        loop {
            let gone = mode.changed().await.is_err();
            let now = *mode.borrow_and_update();
            let spared = connection.spared.load(Ordering::Relaxed);
            if gone || now.stopped || (now.incarnation != incarnation && !spared) {
                return;
            }
        }
    };
    tokio::select! {
        // An error is a client's doing or a fault's, and is seen at the other end.
        _ = served => {}
        () = cut => {}
    }
}

/// Connections that may wait to be accepted: a burst of a large load test.
const BACKLOG: u32 = 1024;

/// Between two tries to listen or to accept.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// Room for the head of a request: beyond what any proxy in front lets through.
const HEAD_BYTES_MAX: usize = 1 << 20;
