//! One connection.

use crate::activity::{Activity, ConnectionEnd};
use crate::connections::Admission;
use crate::deadlines::Deadlines;
use crate::far_side::Watched;
use crate::write_deadline::with_write_deadline;
use hyper::body::Body;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use poem::http::uri::Scheme;
use poem::web::{LocalAddr, RemoteAddr};
use poem::{Endpoint, Request};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};
use tokio_io_timeout::TimeoutStream;
use tokio_util::io::InspectReader;
use tokio_util::sync::CancellationToken;

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

/// Returns the protocol settings of all connections.
pub(crate) fn builder(deadlines: &Deadlines) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        // The far side of the connection is watched here.
        .half_close(true)
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

pub(crate) struct Connection<E> {
    pub(crate) builder: auto::Builder<TokioExecutor>,
    pub(crate) endpoint: Arc<E>,
    pub(crate) local: LocalAddr,
    pub(crate) remote: RemoteAddr,
    /// The permit of the connection. An upgraded connection keeps the permit.
    pub(crate) admission: Arc<Admission>,
    pub(crate) deadlines: Deadlines,
}

impl<E: Endpoint + 'static> Connection<E> {
    /// Serves until the client disconnects or exceeds a deadline. After `stopping` the connection takes no
    /// further request.
    pub(crate) async fn serve(self, socket: TcpStream, stopping: CancellationToken) {
        let Self { builder, endpoint, local, remote, admission, deadlines } = self;
        // Stream chunks are small and must not be delayed.
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
        let (socket, mut far_side) = Watched::new(socket);
        let mut socket = TimeoutStream::new(socket);
        socket.set_write_timeout(Some(deadlines.taking));
        let activity = Activity::new();
        let received = activity.clone();
        let socket = Box::pin(InspectReader::new(socket, move |bytes: &[u8]| received.received(bytes)));
        let started = activity.clone();
        let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let open = started.request_began(request.version());
            if request.body().is_end_stream() {
                open.mark_received();
            }
            let mut request: Request = (request, local.clone(), remote.clone(), Scheme::HTTP).into();
            // An endpoint may keep the request after its response, to drain the body.
            request.extensions_mut().insert(open.clone());
            request.extensions_mut().insert(admission.clone());
            let endpoint = endpoint.clone();
            // Boxed, so that its memory is free while the response is sent: a connection keeps the place of this future.
            Box::pin(async move {
                let response = endpoint.get_response(request).await;
                let response = with_write_deadline(response, deadlines.taking, Some(open));
                Ok::<hyper::Response<_>, Infallible>(response.into())
            })
        });
        let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(socket), service));
        let mut closing_since = None;
        loop {
            if far_side.look(activity.open_request()).await {
                tracing::debug!("the client of a connection has left");
                return;
            }
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
                () = far_side.changed() => continue,
                () = stopping.cancelled(), if closing_since.is_none() => ConnectionEnd::Leave,
                fate = due => fate,
            };
            match fate {
                ConnectionEnd::Leave => {
                    connection.as_mut().graceful_shutdown();
                    closing_since = Some(Instant::now());
                }
                ConnectionEnd::Close => {
                    tracing::debug!("a connection exceeded its deadline and is closed");
                    return;
                }
            }
        }
    }
}
