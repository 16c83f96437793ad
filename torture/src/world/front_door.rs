//! The one address of all servers, for the remote tools: it passes each connection on to a server that is there.

use anyhow::Result;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The open door. Dropping the value closes it.
#[derive(Debug)]
pub(super) struct FrontDoor {
    _serving: JoinSet<()>,
}

impl FrontDoor {
    /// Passes the connections of the listener on to these servers in turn.
    pub(super) fn open(listener: TcpListener, servers: Vec<watch::Receiver<Option<SocketAddr>>>) -> Self {
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let next = AtomicUsize::new(0);
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                let there: Vec<SocketAddr> = servers.iter().filter_map(|server| *server.borrow()).collect();
                // Without a server the connection closes, as at a load balancer.
                let Some(server) = there.get(turn % there.len().max(1)).copied() else { continue };
                connections.spawn(async move {
                    // An error closes both connections.
                    let _ended = pass(client, server).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self { _serving: serving }
    }
}

async fn pass(mut client: TcpStream, server: SocketAddr) -> Result<()> {
    let mut server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
