//! A listener of this process: the accept loop of [`holdpoint_serve`], with the limits of the configuration and
//! the tasks of the process.

use crate::agent::Tasks;
use crate::config::Caps;
use holdpoint_serve::{Deadlines, OpenConnections, Server};
use poem::Endpoint;
use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// Minimum time between two warnings that an address has too many connections.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The limits of a listener: connection counts, client deadlines, and the grace period of a shutdown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) caps: Caps,
    pub(crate) deadlines: Deadlines,
    pub(crate) grace: Duration,
}

/// Serves until `stop` completes. Then open connections, and the turns and tools in `tasks`, get at most
/// `grace` to finish. The server abandons the rest.
pub(crate) async fn serve<E: Endpoint + 'static>(
    listener: TcpListener,
    endpoint: E,
    tasks: Tasks,
    stop: impl Future<Output = ()>,
    limits: Limits,
) -> std::io::Result<()> {
    let Limits { caps, deadlines, grace } = limits;
    let server =
        Server::new(endpoint).limits(caps.of_listener()).deadlines(deadlines).on_refused(warn_of_refused());
    // Stop the tasks before the listener closes: after a client sees a refused connection, no task starts any
    // work.
    let stop = async {
        stop.await;
        tasks.stop();
    };
    let drain = async |open: OpenConnections| tasks.finish(grace, open.closed()).await;
    server.serve(listener, stop, drain).await
}

/// Returns a function that warns of an address at its connection limit, at most once in [`WARN_EVERY`].
fn warn_of_refused() -> impl FnMut(IpAddr) + Send + 'static {
    let mut warned: Option<Instant> = None;
    move |address| {
        if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            warned = Some(Instant::now());
            tracing::warn!(%address, "limits.connections_per_ip: the address is at its limit");
        }
    }
}
