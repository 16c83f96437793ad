//! The accept loop.
//!
//! `poem::Server` notices a disconnected client only at its next write. This loop drops the connection at
//! once. Unlike `poem::Server`, it also limits the number of connections and closes connections whose clients
//! neither send nor read in time.

use super::activity::{Activity, Fate};
use super::connections::{Admission, Connections};
use super::deadlines::Deadlines;
use crate::agent::Tasks;
use crate::config::Caps;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use poem::http::uri::Scheme;
use poem::web::{LocalAddr, RemoteAddr};
use poem::{Endpoint, Request};
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};
use tokio_io_timeout::TimeoutStream;
use tokio_util::io::InspectReader;

/// Maximum length of a request head, in bytes, and maximum number of headers in it.
const HEAD_BYTES: u32 = 64 << 10;
const HEADERS: usize = 100;
/// Maximum number of open streams on one HTTP/2 connection.
const STREAMS_PER_CONNECTION: u32 = 100;
/// HTTP/2 receive windows, in bytes: of one stream, and of a whole connection.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// HTTP/2 send buffer of one stream, in bytes, for response data that the client has not read.
const SEND_BUFFER: usize = 256 << 10;
/// HTTP/2 resets before the server closes the connection: streams that the client resets before the server
/// accepts them, and streams that the server resets because of protocol errors of the client.
const RESET_STREAMS: usize = 20;
const FAULTY_STREAMS: usize = 100;
/// Pause of the loop after a failed accept.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// Minimum time between two warnings that an address has too many connections.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The limits of a listener: connection counts, client deadlines, and the grace period of a shutdown.
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
        // hyper's own head deadline also runs while a connection is idle.
        .header_read_timeout(None)
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
    let local = LocalAddr(listener.local_addr()?.into());
    let endpoint = Arc::new(endpoint);
    let builder = builder(&deadlines);
    let connections = Connections::new(&caps);
    let mut warned = None;
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
            if warned.is_none_or(|at: Instant| at.elapsed() >= WARN_EVERY) {
                warned = Some(Instant::now());
                let address = peer.ip();
                tracing::warn!(%address, "limits.connections_per_ip: the address is at its limit");
            }
            continue;
        };
        let remote = RemoteAddr(peer.into());
        let (builder, endpoint, local) = (builder.clone(), endpoint.clone(), local.clone());
        let stopping = tasks.clone();
        tasks.spawn(async move {
            let admission = Arc::new(admission);
            let serving = Connection { builder, endpoint, local, remote, admission, deadlines };
            serving.serve(socket, &stopping).await;
        });
    }
    // Stop the tasks before the listener closes: after a client sees a refused connection, no task starts any
    // work.
    tasks.stop();
    drop(listener);
    tasks.finish(grace, async {}).await;
    Ok(())
}

/// One connection.
struct Connection<E> {
    builder: auto::Builder<TokioExecutor>,
    endpoint: Arc<E>,
    local: LocalAddr,
    remote: RemoteAddr,
    /// The permit of the connection. An upgraded connection keeps the permit.
    admission: Arc<Admission>,
    deadlines: Deadlines,
}

impl<E: Endpoint + 'static> Connection<E> {
    /// Serves until the client disconnects or exceeds a deadline.
    async fn serve(self, socket: TcpStream, tasks: &Tasks) {
        let Self { builder, endpoint, local, remote, admission, deadlines } = self;
        // Stream chunks are small and must not be delayed.
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
        let mut socket = TimeoutStream::new(socket);
        socket.set_write_timeout(Some(deadlines.taking));
        let activity = Activity::new();
        let received = activity.clone();
        let socket = Box::pin(InspectReader::new(socket, move |bytes: &[u8]| received.received(bytes)));
        let asks = activity.clone();
        let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let open = asks.asks(request.version());
            let mut request: Request = (request, local.clone(), remote.clone(), Scheme::HTTP).into();
            request.extensions_mut().insert(open);
            request.extensions_mut().insert(admission.clone());
            let endpoint = endpoint.clone();
            async move { Ok::<hyper::Response<_>, Infallible>(endpoint.get_response(request).await.into()) }
        });
        let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(socket), service));
        let mut closing_since = None;
        loop {
            let fate = activity.fate(&deadlines, closing_since);
            let due = async {
                match fate {
                    Some((at, fate)) => {
                        sleep_until(at).await;
                        fate
                    }
                    None => std::future::pending().await,
                }
            };
            let fate = tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection ended early");
                    }
                    return;
                }
                () = activity.changed() => continue,
                () = tasks.stopping(), if closing_since.is_none() => Fate::Leave,
                fate = due => fate,
            };
            match fate {
                Fate::Leave => {
                    connection.as_mut().graceful_shutdown();
                    closing_since = Some(Instant::now());
                }
                Fate::Close => {
                    tracing::debug!("a connection exceeded its deadline and is closed");
                    return;
                }
            }
        }
    }
}
