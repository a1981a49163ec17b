//! Ports of loopback that nobody listens on.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, bail};

/// A free port of loopback; not the same one twice within a process.
pub fn free() -> Result<SocketAddr> {
    for _ in 0..PORTS {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        // Processes that run side by side begin far apart.
        let offset = process::id().wrapping_mul(97).wrapping_add(step) % PORTS;
        let address = loopback(FIRST + u16::try_from(offset)?);
        if is_free(address) {
            return Ok(address);
        }
    }
    bail!(
        "no port between {FIRST} and {} is free",
        u32::from(FIRST) + PORTS
    );
}

/// `wanted` when it is free, else another.
pub fn free_or(wanted: u16) -> Result<SocketAddr> {
    let wanted = loopback(wanted);
    if is_free(wanted) { Ok(wanted) } else { free() }
}

/// Whether nobody listens on an address.
///
/// Two Envoys can listen on one port without an error, each getting some of the connections.
/// Binding without `SO_REUSEPORT` finds the first.
pub fn is_free(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_ok()
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Below the ports that Linux gives to outgoing connections (from 32768), so that none of those
/// takes a port between our asking and its use.
const FIRST: u16 = 18_000;

/// How many ports are tried.
const PORTS: u32 = 14_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_somebody_listens_on_is_not_free() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        assert!(!is_free(address));
        assert_ne!(free_or(address.port()).unwrap(), address);
    }

    #[test]
    fn no_port_is_given_out_twice() {
        assert_ne!(free().unwrap(), free().unwrap());
    }
}
