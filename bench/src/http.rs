//! The servers of this program that are not under test: the fake model and the floors.

use anyhow::Result;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::net::Ipv4Addr;
use tokio::net::TcpListener;

pub(crate) type Answer = Response<BoxBody<Bytes, hyper::Error>>;

/// The path that every server answers with 200 when it is ready.
pub(crate) const READY: &str = "/readyz";

/// Serves until the process ends.
#[expect(
    clippy::disallowed_methods,
    reason = "a signal ends the process, and nothing waits for its connections"
)]
pub(crate) async fn serve<F, A>(port: u16, answer: F) -> Result<()>
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Result<Answer>> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let answer = answer.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let answer = (request.uri().path() != READY).then(|| answer(request));
            async move {
                match answer {
                    Some(answer) => answer.await,
                    None => Ok(Response::new(Full::from("ready").map_err(|never| match never {}).boxed())),
                }
            }
        });
        // One buffer: chunks that are ready together leave in one write.
        let connection = http1::Builder::new().writev(false).serve_connection(TokioIo::new(socket), service);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                eprintln!("connection: {error:#}");
            }
        });
    }
}
