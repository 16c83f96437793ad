//! The service of an HTTP tool.

use crate::{Bench, Job, Outcome};
use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::pending;
use hmac::{Hmac, KeyInit, Mac};
use holdpoint_torture::http;
use holdpoint_torture::ledger::{Requester, machine_micros};
use holdpoint_torture::work::ToolEnding;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::Sha256;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

struct Service {
    bench: Bench,
    keys: Hmac<Sha256>,
    /// The calls in progress. A server that disconnects stops none.
    running: Mutex<JoinSet<()>>,
}

pub(crate) async fn serve(bench: Bench, listen: SocketAddr, secret: &str) -> Result<()> {
    let key = STANDARD.decode(secret.trim_start_matches("whsec_")).context("--secret")?;
    let (keys, running) = (Hmac::new_from_slice(&key)?, Mutex::default());
    let service = Arc::new(Service { bench, keys, running });
    let listener = TcpListener::bind(listen).await?;
    let mut connections = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await?;
        let service = service.clone();
        connections.spawn(async move {
            let answered = service_fn(|request| answer(service.clone(), request));
            // An error means that the server disconnected.
            let _ended = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(socket), answered)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(
    service: Arc<Service>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Ok(job) = job(&body) else { return Ok(plain(400, &json!({ "message": "this is no call" }))) };
    let url = body.get("callback_url").and_then(Value::as_str).map(str::to_owned);
    let (send, answer) = oneshot::channel();
    let own = service.clone();
    service.running.lock().spawn(async move {
        if own.execute(job, url, send).await.is_err() {
            // Without its lines in the ledger a call proves nothing.
            std::process::abort();
        }
    });
    Ok(match answer.await {
        Ok(Some(Ok(output))) => plain(200, &output),
        Ok(Some(Err(why))) => plain(422, &json!({ "error": why })),
        Ok(None) => plain(202, &Value::Null),
        Err(_ended) => plain(500, &Value::Null),
    })
}

fn plain(status: u16, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    response
}

fn job(body: &Value) -> Result<Job> {
    let text =
        |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned).context("a text");
    let attempt = body.get("attempt").and_then(Value::as_u64).context("attempt")?;
    let input = body.get("input").context("input")?;
    let mut job =
        Job::new(&text("/tool_name")?, &text("/tool_call_id")?, None, u32::try_from(attempt)?, input)?;
    job.requester =
        Some(Requester { tenant: text("/requester/tenant_id")?, user: text("/requester/user_id")? });
    Ok(job)
}

impl Service {
    /// Executes a call and answers with its outcome. Or answers with `None`, which accepts the call, and reports the
    /// outcome later.
    async fn execute(
        &self,
        mut job: Job,
        url: Option<String>,
        answer: oneshot::Sender<Option<Outcome>>,
    ) -> Result<()> {
        let Some(url) = url.filter(|_| job.work.then == ToolEnding::Later) else {
            let outcome = self.bench.execute(&mut job, pending()).await?;
            let _gone = answer.send(Some(outcome));
            return Ok(());
        };
        let _gone = answer.send(None);
        let outcome = self.bench.execute(&mut job, pending()).await?;
        self.report(&url, &job, &outcome).await
    }

    async fn report(&self, url: &str, job: &Job, outcome: &Outcome) -> Result<()> {
        let body = match outcome {
            Ok(output) => json!({ "result": output }),
            Err(why) => json!({ "error": why }),
        };
        let url: Uri = url.parse()?;
        let server: SocketAddr =
            url.authority().context("the callback_url has an address")?.as_str().parse()?;
        let path = url.path_and_query().context("the callback_url has a path")?.to_string();
        let request = || {
            let timestamp = (machine_micros() / 1_000_000).to_string();
            let mut mac = self.keys.clone();
            mac.update(format!("report.{timestamp}.{body}").as_bytes());
            let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
            let headers = vec![
                ("webhook-id", "report".to_owned()),
                ("webhook-timestamp", timestamp),
                ("webhook-signature", signature),
            ];
            http::Request { headers, ..http::Request::post(&path, "", Some(body.clone())) }
        };
        self.bench.report(job, outcome, server, request).await
    }
}
