//! Simulated model servers in this process.

use std::net::SocketAddr;

use anyhow::Result;
use sim::server::{Server, ServerOptions};

/// Some simulated servers on free ports of loopback; they end when this is dropped.
pub struct Simulated(Vec<Server>);

impl Simulated {
    /// Starts `count` equal servers.
    pub async fn start(count: usize) -> Result<Self> {
        let mut servers = Vec::with_capacity(count);
        for _ in 0..count {
            servers.push(Server::start(ServerOptions::default()).await?);
        }
        Ok(Self(servers))
    }

    /// Where they listen, in order.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(Server::address).collect()
    }
}
