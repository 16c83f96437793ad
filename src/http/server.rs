//! The accept loop.
//!
//! `poem::Server` notices a client that left only when it next writes; this loop drops the connection at once.
//! It also gives headers that come slowly a deadline, which that server does not.

use crate::agent::Tasks;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use poem::Endpoint;
use poem::http::uri::Scheme;
use poem::web::{LocalAddr, RemoteAddr};
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// How long a client may take to send its headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Streams that one HTTP/2 connection may have open.
const STREAMS_PER_CONNECTION: u32 = 200;
/// How long the loop rests when the system has no socket to give.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// Serves until `stop`, then lets what is under way finish for at most `grace`: connections, and the turns and
/// tools in `tasks`. What is left then is given up.
pub(crate) async fn serve<E: Endpoint + 'static>(
    listener: TcpListener,
    endpoint: E,
    tasks: Tasks,
    stop: impl Future<Output = ()>,
    grace: Duration,
) -> std::io::Result<()> {
    let local = LocalAddr(listener.local_addr()?.into());
    let endpoint = Arc::new(endpoint);
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS_PER_CONNECTION);
    let graceful = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "no connection could be accepted");
                tokio::time::sleep(ACCEPT_REST).await;
                continue;
            }
        };
        // Words are small and wanted now.
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "a socket keeps its delay");
        }
        let (endpoint, local, remote) = (endpoint.clone(), local.clone(), RemoteAddr(peer.into()));
        let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let request = (request, local.clone(), remote.clone(), Scheme::HTTP).into();
            let endpoint = endpoint.clone();
            async move { Ok::<hyper::Response<_>, Infallible>(endpoint.get_response(request).await.into()) }
        });
        let connection = builder.serve_connection(TokioIo::new(socket), service).into_owned();
        let connection = graceful.watch(connection);
        tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
    // Whoever finds that no connection is taken finds that nothing is begun either.
    tasks.stop();
    drop(listener);
    tasks.finish(grace, graceful.shutdown()).await;
    Ok(())
}
