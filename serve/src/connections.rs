//! Limits on the number of connections: in total, and for each address.
//!
//! At the total limit, new connections wait in the accept queue of the operating system. A connection of an
//! address at its own limit is closed at once, so that one address cannot fill the queue.

use crate::concurrency::{ConcurrencyLimit, Slot};
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The network part of an IPv6 address. A host is free to choose the other bits (RFC 4291, 2.5.1).
const NETWORK_BITS: u128 = !0 << 64;

/// The maximum number of connections. `None`, the default, means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Open connections in total. A further connection waits until one closes.
    pub connections: Option<NonZeroU32>,
    /// Open connections of one client address. An IPv6 network (/64) counts as one address. Further connections
    /// are closed at once. The address is that of the socket: behind a reverse proxy it is the address of the
    /// proxy.
    pub connections_per_ip: Option<NonZeroU32>,
}

/// The permits of one listener.
#[derive(Debug)]
pub(crate) struct ConnectionLimits {
    room: Arc<Semaphore>,
    of_addresses: ConcurrencyLimit<IpAddr>,
}

#[derive(Debug)]
pub(crate) struct ConnectionPermit(
    #[expect(dead_code, reason = "the permit is released on drop")] OwnedSemaphorePermit,
);

/// The permits of one connection, in total and of its address. They are released on drop.
#[derive(Debug)]
pub struct Admission {
    _room: ConnectionPermit,
    _share: Slot<IpAddr>,
}

impl ConnectionLimits {
    pub(crate) fn new(limits: Limits) -> Self {
        let max = limits.connections.and_then(|max| usize::try_from(max.get()).ok());
        let room = max.unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        Self {
            room: Arc::new(Semaphore::new(room)),
            of_addresses: ConcurrencyLimit::new(limits.connections_per_ip),
        }
    }

    /// Waits for a permit of the total limit.
    pub(crate) async fn room(&self) -> ConnectionPermit {
        match self.room.clone().acquire_owned().await {
            Ok(room) => ConnectionPermit(room),
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    /// Admits a connection of `peer`. Returns `None` if the address is at its limit. The address is that of
    /// the socket: any client can write a header that names another.
    pub(crate) fn admit(&self, peer: IpAddr, room: ConnectionPermit) -> Option<Admission> {
        let share = self.of_addresses.take(network(peer)).ok()?;
        Some(Admission { _room: room, _share: share })
    }
}

/// Returns the network under which an address is counted. An IPv6 address counts as its /64 network, because a
/// host can use every address in it.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & NETWORK_BITS).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_counts_as_one_address_and_each_ipv4_address_counts_alone() {
        let of = |address: &str| network(address.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
