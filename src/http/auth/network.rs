//! The network of a client.

use holdpoint_serve::network;
use poem::web::RemoteAddr;
use poem::{Addr, Request};
use std::net::IpAddr;

/// The network of a client. `None` where the connection has no address of the internet.
pub(in crate::http) type Network = Option<IpAddr>;

/// Returns the network from which a request comes. Behind a proxy, which is the client of this server, all requests come
/// from the same one.
pub(in crate::http) fn network_of(request: &Request) -> Network {
    match request.remote_addr() {
        RemoteAddr(Addr::SocketAddr(peer)) => Some(network(peer.ip())),
        RemoteAddr(Addr::Unix(_) | Addr::Custom(..)) => None,
    }
}
