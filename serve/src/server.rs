//! The accept loop.

use crate::connection::{Connection, builder};
use crate::connections::{ConnectionLimits, Limits};
use crate::deadlines::Deadlines;
use poem::Endpoint;
use poem::web::{LocalAddr, RemoteAddr};
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// Pause of the loop after a failed accept.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// A server for one endpoint.
#[must_use = "a server does nothing until `serve`"]
pub struct Server<E> {
    endpoint: E,
    limits: Limits,
    deadlines: Deadlines,
    refused: Box<dyn FnMut(IpAddr) + Send>,
}

/// The connections that are open when a server stops. They take no further request.
#[derive(Debug, Clone)]
pub struct OpenConnections(TaskTracker);

impl OpenConnections {
    /// Completes when all connections are closed.
    pub async fn closed(&self) {
        self.0.wait().await;
    }
}

impl<E: Endpoint + 'static> Server<E> {
    /// A server with the default [`Limits`] and [`Deadlines`].
    pub fn new(endpoint: E) -> Self {
        let (limits, deadlines) = (Limits::default(), Deadlines::default());
        Self { endpoint, limits, deadlines, refused: Box::new(|_| ()) }
    }

    /// Sets the limits on the number of connections.
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Sets the deadlines of a client. A deadline of more than a year is cut to a year.
    pub fn deadlines(self, deadlines: Deadlines) -> Self {
        Self { deadlines: deadlines.clamped(), ..self }
    }

    /// Sets the function that is called for each connection that is closed because its address is at its
    /// limit.
    pub fn on_refused(self, refused: impl FnMut(IpAddr) + Send + 'static) -> Self {
        Self { refused: Box::new(refused), ..self }
    }

    /// Serves until `stop` completes, then until `drain` completes.
    ///
    /// After `stop` every connection finishes its open requests and takes no further one. The listener closes
    /// after that signal, so a client that finds the port closed knows that no request begins any more. Then
    /// `drain` runs with the [`OpenConnections`] and determines how long they get. The server abandons the
    /// connections that are open when `drain` completes: it does not wait for them, and they end with the
    /// runtime, or at their deadlines.
    ///
    /// # Errors
    /// The listener has no address.
    pub async fn serve<D: Future<Output = ()>>(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
        drain: impl FnOnce(OpenConnections) -> D,
    ) -> std::io::Result<()> {
        let Self { endpoint, limits, deadlines, mut refused } = self;
        let local = LocalAddr(listener.local_addr()?.into());
        let endpoint = Arc::new(endpoint);
        let builder = builder(&deadlines);
        let connections = ConnectionLimits::new(limits);
        let (open, stopping) = (TaskTracker::new(), CancellationToken::new());
        tokio::pin!(stop);
        loop {
            let accepting = async {
                let room = connections.room().await;
                listener.accept().await.map(|(socket, peer)| (socket, peer, room))
            };
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = accepting => accepted,
            };
            let (socket, peer, room) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "no connection could be accepted");
                    tokio::time::sleep(ACCEPT_REST).await;
                    continue;
                }
            };
            let Some(admission) = connections.admit(peer.ip(), room) else {
                refused(peer.ip());
                continue;
            };
            let connection = Connection {
                builder: builder.clone(),
                endpoint: endpoint.clone(),
                local: local.clone(),
                remote: RemoteAddr(peer.into()),
                admission: Arc::new(admission),
                deadlines,
            };
            open.spawn(connection.serve(socket, stopping.clone()).in_current_span());
        }
        stopping.cancel();
        drop(listener);
        open.close();
        drain(OpenConnections(open)).await;
        Ok(())
    }
}
