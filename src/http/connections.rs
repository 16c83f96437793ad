//! How many connections there are: of all, and of one address.
//!
//! Where there are as many as there may be, the next ones wait in the system's queue until one ends. An address that
//! has its share is shown the door at once, so that it cannot fill the queue for others.

use super::concurrency::{ConcurrencyLimit, Slot};
use crate::config::Caps;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bits of an IPv6 address that tell one network from another; in the rest a host is free (RFC 4291, 2.5.1).
const NETWORK_BITS: u128 = !0 << 64;

/// The connections of one listener.
#[derive(Debug)]
pub(super) struct Connections {
    room: Arc<Semaphore>,
    of_addresses: ConcurrencyLimit<IpAddr>,
}

/// Room for one more.
#[derive(Debug)]
pub(super) struct ConnectionPermit(
    #[expect(dead_code, reason = "it is there to be dropped")] OwnedSemaphorePermit,
);

/// A connection's place; it is taken until this is dropped.
#[derive(Debug)]
pub(super) struct Admission {
    _room: ConnectionPermit,
    _share: Slot<IpAddr>,
}

impl Connections {
    pub(super) fn new(caps: &Caps) -> Self {
        let max = caps.connections.and_then(|max| usize::try_from(max.get()).ok());
        let room = max.unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        Self {
            room: Arc::new(Semaphore::new(room)),
            of_addresses: ConcurrencyLimit::new(caps.connections_per_ip),
        }
    }

    /// Waits until there is room for one more.
    pub(super) async fn room(&self) -> ConnectionPermit {
        match self.room.clone().acquire_owned().await {
            Ok(room) => ConnectionPermit(room),
            // Nobody closes it.
            Err(_) => std::future::pending().await,
        }
    }

    /// A place for this peer. `None` if its address has its share. The address is the socket's own: headers that name
    /// another are anybody's to write.
    pub(super) fn admit(&self, peer: IpAddr, room: ConnectionPermit) -> Option<Admission> {
        let share = self.of_addresses.take(network(peer)).ok()?;
        Some(Admission { _room: room, _share: share })
    }
}

/// What counts as one address: with IPv6 a network, in which a host has as many as it likes.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & NETWORK_BITS).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_counts_as_one_address_and_each_of_ipv4_for_itself() {
        let of = |address: &str| network(address.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
