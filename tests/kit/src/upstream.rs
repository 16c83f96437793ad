//! A model server that validates and records every request before it is answered.

use super::{Conversation, conversation, valid_request};
use bytes::Bytes;
use futures::future::BoxFuture;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use poem::http::uri::Scheme;
use poem::http::{HeaderMap, StatusCode};
use poem::web::{LocalAddr, RemoteAddr};
use poem::{IntoResponse, Request, Response};
use serde_json::Value;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// The path, with its query.
    pub path: String,
    pub headers: HeaderMap,
    pub raw: Bytes,
    pub body: Value,
    /// The status of the response, once it was sent.
    pub status: Option<u16>,
}

impl RecordedRequest {
    pub fn conversation(&self) -> Conversation {
        conversation(&self.path, &self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

type Answering = Arc<dyn Fn(RecordedRequest) -> BoxFuture<'static, Response> + Send + Sync>;

/// A server that records its requests, and refuses invalid ones as a provider would. It has to be ended with
/// `finish`, which checks that no request was refused unnoticed.
pub struct Upstream {
    pub base: String,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
    finished: bool,
}

impl Upstream {
    pub async fn start(
        answer: impl Fn(RecordedRequest) -> BoxFuture<'static, Response> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (answer, kept): (Answering, _) = (Arc::new(answer), requests.clone());
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(async move {
            loop {
                let (socket, peer) = listener.accept().await.unwrap();
                let (answer, kept) = (answer.clone(), kept.clone());
                let service = move |request: hyper::Request<hyper::body::Incoming>| {
                    let local = LocalAddr(address.into());
                    let request = Request::from((request, local, RemoteAddr(peer.into()), Scheme::HTTP));
                    let (answer, kept) = (answer.clone(), kept.clone());
                    async move { Ok::<hyper::Response<_>, Infallible>(pass(request, answer, kept).await.into()) }
                };
                tokio::spawn(async move {
                    let service = hyper::service::service_fn(service);
                    let builder = auto::Builder::new(TokioExecutor::new());
                    // A connection that breaks is noticed in the recorded requests.
                    let _ended = builder.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Self { base: format!("http://{address}"), requests, finished: false }
    }

    /// Every request so far, oldest first; each was valid.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        let requests = self.requests.lock().unwrap().clone();
        for RecordedRequest { path, body, .. } in &requests {
            valid_request(path, body).unwrap_or_else(|wrong| panic!("{wrong} in {path}: {body:#}"));
        }
        requests
    }

    /// Every request. Only those at these indices were not answered with 200.
    pub fn finish(mut self, refused: &[(usize, u16)]) -> Vec<RecordedRequest> {
        self.finished = true;
        let requests = self.requests();
        let statuses = requests.iter().map(|requests| requests.status.unwrap_or_default()).enumerate();
        let found: Vec<_> = statuses.filter(|(_, status)| *status != 200).collect();
        assert_eq!(found, refused, "{requests:#?}");
        requests
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        assert!(self.finished || std::thread::panicking(), "an upstream has to be finished");
    }
}

async fn pass(mut request: Request, answer: Answering, kept: Arc<Mutex<Vec<RecordedRequest>>>) -> Response {
    let path = request.uri().path_and_query().unwrap().as_str().to_owned();
    let raw = request.take_body().into_bytes().await.unwrap();
    let body = serde_json::from_slice(&raw).unwrap_or_default();
    let requests = RecordedRequest { path, headers: request.headers().clone(), raw, body, status: None };
    let at = {
        let mut kept = kept.lock().unwrap();
        kept.push(requests.clone());
        kept.len() - 1
    };
    let response = match valid_request(&requests.path, &requests.body) {
        Ok(()) => answer(requests).await,
        Err(wrong) => refuse(wrong),
    };
    kept.lock().unwrap()[at].status = Some(response.status().as_u16());
    response
}

/// A provider's refusal of an invalid request.
pub(crate) fn refuse(wrong: String) -> Response {
    let error = serde_json::json!({ "error": { "type": "invalid_request_error", "message": wrong } });
    (StatusCode::BAD_REQUEST, error.to_string()).into_response()
}
