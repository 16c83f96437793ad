//! A server on a port of its own, and its clients.

mod endpoint;
mod http1;
mod http2;

pub(crate) use endpoint::{App, BODY_BYTES, LONG_BYTES};
pub(crate) use http1::{Client, Reply};
pub(crate) use http2::{Http2, body_of, handshake, request};

use holdpoint_serve::{Deadlines, Limits, OpenConnections, Server};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The longest time that a test waits for the server to answer, to close or to do something.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// A short deadline that a well-behaved client still meets on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(1);

/// A server and its endpoint.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) app: App,
    /// Completes `stop`.
    stop: Option<oneshot::Sender<()>>,
    served: JoinSet<io::Result<()>>,
}

impl Running {
    pub(crate) async fn start(limits: Limits, change: impl FnOnce(&mut Deadlines)) -> Self {
        Self::with_drain(limits, change, async |open: OpenConnections| open.closed().await).await
    }

    /// A server with these deadlines and no limits.
    pub(crate) async fn hurried(change: impl FnOnce(&mut Deadlines)) -> Self {
        Self::start(Limits::default(), change).await
    }

    pub(crate) async fn with_drain<D: Future<Output = ()> + Send + 'static>(
        limits: Limits,
        change: impl FnOnce(&mut Deadlines),
        drain: impl FnOnce(OpenConnections) -> D + Send + 'static,
    ) -> Self {
        let mut deadlines = Deadlines::default();
        change(&mut deadlines);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = App::new(deadlines);
        let (refused, refusals) = (app.refused.clone(), app.refusals.clone());
        let server = Server::new(app.clone()).limits(limits).deadlines(deadlines).on_refused(move |ip| {
            refused.lock().push(ip);
            refusals.add();
        });
        let (stop, stopped) = oneshot::channel();
        let stopped = async move {
            let _dropped = stopped.await;
        };
        let mut served = JoinSet::new();
        served.spawn(server.serve(listener, stopped, drain));
        Self { address, app, stop: Some(stop), served }
    }

    /// Lets the server stop.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until the server has ended.
    pub(crate) async fn ended(&mut self) {
        let ended = timeout(PATIENCE, self.served.join_next()).await.expect("the server ends");
        ended.unwrap().unwrap().unwrap();
    }

    /// Whether the server has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.served.try_join_next().is_some()
    }
}

/// Waits until the server takes no more connections.
pub(crate) async fn refuses_connections(server: &Running) {
    let refused = async { while TcpStream::connect(server.address).await.is_ok() {} };
    timeout(PATIENCE, refused).await.expect("the listener closes");
}

pub(crate) fn at_most(connections: u32) -> Limits {
    Limits { connections: connections.try_into().ok(), ..Limits::default() }
}

pub(crate) fn at_most_per_ip(connections: u32) -> Limits {
    Limits { connections_per_ip: connections.try_into().ok(), ..Limits::default() }
}
