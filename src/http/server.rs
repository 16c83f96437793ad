//! The accept loop.
//!
//! `poem::Server` notices a client that left only when it next writes; this loop drops the connection at once.
//! It also counts connections, and gives clients that send or take nothing a deadline, which that server does not.

use super::connections::Connections;
use super::deadlines::Deadlines;
use crate::agent::Tasks;
use crate::config::Caps;
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
use tokio::sync::Notify;
use tokio_io_timeout::TimeoutStream;

/// The most that a request's head may be long, in bytes, and how many headers it may have.
const HEAD_BYTES: u32 = 64 << 10;
const HEADERS: usize = 100;
/// Streams that one HTTP/2 connection may have open.
const STREAMS_PER_CONNECTION: u32 = 100;
/// How much of its bodies a client may send ahead with HTTP/2: of one stream, and of the whole connection.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// How much of its answers is kept for a client of HTTP/2 that does not take it, of one stream.
const SEND_BUFFER: usize = 256 << 10;
/// Streams that a client of HTTP/2 may reset before anybody saw them, and those that its own faults reset, before it
/// is sent away.
const RESET_STREAMS: usize = 20;
const FAULTY_STREAMS: usize = 100;
/// How long the loop rests when the system has no socket to give.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// What a server allows its clients, and itself when it stops.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) caps: Caps,
    pub(crate) deadlines: Deadlines,
    pub(crate) grace: Duration,
}

fn builder(deadlines: &Deadlines) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(deadlines.head)
        .max_buf_size(HEAD_BYTES as usize)
        .max_headers(HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(deadlines.ping)
        .keep_alive_timeout(deadlines.ping)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .max_header_list_size(HEAD_BYTES)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(RESET_STREAMS)
        .max_local_error_reset_streams(FAULTY_STREAMS);
    builder
}

/// Serves until `stop`, then lets what is under way finish for at most `grace`: connections, and the turns and
/// tools in `tasks`. What is left then is given up.
pub(crate) async fn serve<E: Endpoint + 'static>(
    listener: TcpListener,
    endpoint: E,
    tasks: Tasks,
    stop: impl Future<Output = ()>,
    limits: Limits,
) -> std::io::Result<()> {
    let Limits { caps, deadlines, grace } = limits;
    let local = LocalAddr(listener.local_addr()?.into());
    let endpoint = Arc::new(endpoint);
    let builder = builder(&deadlines);
    let connections = Connections::new(&caps);
    let graceful = GracefulShutdown::new();
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
        let Some(place) = connections.place(peer.ip(), room) else {
            tracing::debug!(address = %peer.ip(), "an address has its share of connections");
            continue;
        };
        // Words are small and wanted now.
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "a socket keeps its delay");
        }
        let mut socket = TimeoutStream::new(socket);
        socket.set_write_timeout(Some(deadlines.taking));
        let (endpoint, local, remote) = (endpoint.clone(), local.clone(), RemoteAddr(peer.into()));
        let asked = Arc::new(Notify::new());
        let first = asked.clone();
        let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            asked.notify_one();
            let request = (request, local.clone(), remote.clone(), Scheme::HTTP).into();
            let endpoint = endpoint.clone();
            async move { Ok::<hyper::Response<_>, Infallible>(endpoint.get_response(request).await.into()) }
        });
        let connection = builder.serve_connection(TokioIo::new(Box::pin(socket)), service).into_owned();
        let connection = graceful.watch(connection);
        // hyper's own deadline begins with the first byte, and HTTP/2 has none.
        let asks_in_time = async move {
            if tokio::time::timeout(deadlines.head, first.notified()).await.is_ok() {
                std::future::pending().await
            }
        };
        tasks.spawn(async move {
            let _place = place;
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection ended early");
                    }
                }
                () = asks_in_time => tracing::debug!("a connection asked for nothing in time"),
            }
        });
    }
    // Whoever finds that no connection is taken finds that nothing is begun either.
    tasks.stop();
    drop(listener);
    tasks.finish(grace, graceful.shutdown()).await;
    Ok(())
}
