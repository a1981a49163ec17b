//! What an endpoint is called and where it listens.

use alloc::string::{String, ToString};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::str::FromStr;

use crate::decimal::push_decimal;

/// The number of one incarnation of an endpoint.
///
/// The collector gives it out. It changes when the server behind an address restarts, and is not
/// used again while anything may still name it, so what was learned of the old incarnation never
/// sticks to the new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EndpointId(pub u32);

/// Where an endpoint listens: an IP address and a port, `10.0.0.1:8000` or `[2001:db8::1]:8000`.
///
/// Never a host name: Envoy's `ORIGINAL_DST` and `override_host` clusters take addresses only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address(SocketAddr);

/// Why a text is not an [`Address`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressError {
    /// The text is no `ip:port`.
    NotIpAndPort,
    /// The port is 0.
    ZeroPort,
}

impl Address {
    /// The IP address as text, without brackets.
    pub fn ip(&self) -> String {
        self.0.ip().to_string()
    }

    /// Appends the text that [`Display`](fmt::Display) gives.
    pub fn write_to(&self, text: &mut String) {
        let SocketAddr::V4(address) = self.0 else {
            text.push_str(&self.to_string());
            return;
        };
        for (place, octet) in address.ip().octets().into_iter().enumerate() {
            if place > 0 {
                text.push('.');
            }
            push_decimal(text, octet.into());
        }
        text.push(':');
        push_decimal(text, address.port().into());
    }

    /// A port of a host; `None` for port 0.
    pub(crate) fn new(ip: IpAddr, port: u16) -> Option<Self> {
        (port != 0).then(|| Self(SocketAddr::new(ip, port)))
    }

    /// Whether something can be sent there: it is neither the wildcard nor a group.
    pub(crate) fn is_one_host(self) -> bool {
        let ip = self.0.ip().to_canonical();
        !ip.is_unspecified() && !ip.is_multicast() && ip != IpAddr::V4(Ipv4Addr::BROADCAST)
    }

    /// The same host with another port, which must not be 0.
    pub(crate) fn with_port(self, port: u16) -> Self {
        Self(SocketAddr::new(self.0.ip(), port))
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.0.port()
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let address: SocketAddr = text.parse().map_err(|_| AddressError::NotIpAndPort)?;
        if address.port() == 0 {
            return Err(AddressError::ZeroPort);
        }
        Ok(Self(address))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotIpAndPort => "not an IP address and port",
            Self::ZeroPort => "port 0 is not a port a server listens on",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn an_address_is_an_ip_and_a_port() {
        for good in ["10.0.0.1:8000", "[2001:db8::1]:8000", "127.0.0.1:1"] {
            let address = Address::from_str(good).unwrap();
            let mut written = String::new();
            address.write_to(&mut written);
            assert_eq!([address.to_string(), written], [good, good]);
        }
        for bad in [
            "",
            "localhost:80",
            "10.0.0.1",
            "10.0.0.1:99999",
            "2001:db8::1:80 ",
            "1.2.3.4:80,",
        ] {
            assert_eq!(
                Address::from_str(bad),
                Err(AddressError::NotIpAndPort),
                "{bad}"
            );
        }
        assert_eq!(Address::from_str("10.0.0.1:0"), Err(AddressError::ZeroPort));
    }
}
