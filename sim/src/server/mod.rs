//! The HTTP server: a vLLM look-alike in real time, on loopback.
//!
//! One task owns the engine; every connection has its own. Faults can be switched on from the
//! start, by [`Server::change_faults`] or by a `POST` to `/sim/faults`.

mod answer;
mod body;
mod control;
mod engine_loop;
mod error;
mod faults;
mod generate;
mod listener;
mod log;
mod options;
mod page;
mod route;
mod shared;
mod stats;
mod stream;

pub use faults::{FaultChange, FaultError, Faults, MetricsFault, RequestFault};
pub use options::ServerOptions;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, ensure};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use listener::Port;
use shared::Shared;

/// A running server; it stops when it is dropped.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    listener: JoinHandle<()>,
    engine: JoinHandle<()>,
}

impl Server {
    /// Binds the address and begins to serve.
    pub async fn start(options: ServerOptions) -> anyhow::Result<Self> {
        let scale = options.time_scale;
        ensure!(
            scale.is_finite() && scale > 0.0,
            "the time scale must be above 0, not {scale}"
        );
        let open = |port: Port| {
            if options.faults.refuse {
                Ok(port)
            } else {
                port.open()
            }
        };
        let port = Port::bind(options.listen)
            .and_then(open)
            .with_context(|| format!("cannot listen on {}", options.listen))?;
        let address = port.address()?;
        let (sender, commands) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(options, sender));
        let engine = tokio::spawn(engine_loop::run(Arc::clone(&shared), commands));
        let listener = tokio::spawn(listener::run(Arc::clone(&shared), address, port));
        Ok(Self {
            address,
            shared,
            listener,
            engine,
        })
    }

    /// Closes the port and all connections, and waits until the port is free.
    pub async fn stop(mut self) {
        self.shutdown();
        // It fails only if the task has panicked, and then it is gone as well.
        let _ = (&mut self.listener).await;
    }

    /// Changes what goes wrong, from now on.
    pub fn change_faults(&self, change: FaultChange) {
        control::apply(&self.shared, change);
    }

    /// Shows `page` as the metrics page until the faults say otherwise: any engine's page will do.
    pub fn show_page(&self, page: String) {
        self.shared.show_page(page);
    }

    /// What goes wrong now.
    pub fn faults(&self) -> Faults {
        self.shared.faults()
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn shutdown(&self) {
        self.shared.mode.send_modify(|mode| mode.stopped = true);
        self.engine.abort();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown();
    }
}
