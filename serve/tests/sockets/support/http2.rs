//! A client over HTTP/2.

use super::{PATIENCE, Running};
use bytes::Bytes;
use h2::client::{Connection, ResponseFuture, SendRequest};
use poem::http::Request;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// A client over HTTP/2, with its connection in a task.
pub(crate) struct Http2 {
    pub(crate) client: SendRequest<Bytes>,
    pub(crate) connection: JoinSet<Result<(), h2::Error>>,
}

/// An HTTP/2 connection that does nothing unless it is polled.
pub(crate) type Unpolled = (SendRequest<Bytes>, Connection<TcpStream, Bytes>);

pub(crate) async fn handshake(server: &Running, builder: &h2::client::Builder) -> Unpolled {
    let socket = TcpStream::connect(server.address).await.unwrap();
    builder.handshake(socket).await.unwrap()
}

/// A GET request.
pub(crate) fn request(path: &str) -> Request<()> {
    Request::get(format!("http://localhost{path}")).body(()).unwrap()
}

impl Http2 {
    pub(crate) async fn connect(server: &Running) -> Self {
        Self::with(server, &h2::client::Builder::new()).await
    }

    pub(crate) async fn with(server: &Running, builder: &h2::client::Builder) -> Self {
        let (client, connection) = handshake(server, builder).await;
        let mut polled = JoinSet::new();
        polled.spawn(connection);
        Self { client, connection: polled }
    }

    /// Sends a request without a body.
    pub(crate) async fn send_head(&mut self, path: &str) -> ResponseFuture {
        let ready = timeout(PATIENCE, self.client.clone().ready()).await.expect("a stream is free");
        ready.unwrap().send_request(request(path), true).unwrap().0
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<(u16, String), h2::Error> {
        let response = self.send_head(path).await;
        body_of(response).await
    }

    /// Waits until the server has closed the connection. Returns its error, if it was not graceful.
    pub(crate) async fn closed(&mut self) -> Result<(), h2::Error> {
        let closed = timeout(PATIENCE, self.connection.join_next()).await;
        closed.expect("the server closes the connection").unwrap().unwrap()
    }
}

/// The status and the whole body of a response.
pub(crate) async fn body_of(response: ResponseFuture) -> Result<(u16, String), h2::Error> {
    let reading = async {
        let (head, mut body) = response.await?.into_parts();
        let mut read = Vec::new();
        while let Some(piece) = body.data().await {
            let piece = piece?;
            body.flow_control().release_capacity(piece.len())?;
            read.extend_from_slice(&piece);
        }
        Ok((head.status.as_u16(), String::from_utf8(read).unwrap()))
    };
    timeout(PATIENCE, reading).await.expect("a response, or its end")
}
