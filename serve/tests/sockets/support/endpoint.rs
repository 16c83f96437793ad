//! The endpoint of the tests. Its responses wait for permits, and it counts what happens.

use super::PATIENCE;
use bytes::Bytes;
use futures::stream;
use holdpoint_serve::{Admission, BodyError, Budget, Deadlines, drain_body, live_with_client, read_body};
use parking_lot::Mutex;
use poem::http::{StatusCode, header};
use poem::{Body, Endpoint, IntoResponse, Request, Response, Result};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::io::{copy, split};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

/// The longest body that `/read` accepts, and the sum for `/keep`, in bytes.
pub(crate) const BODY_BYTES: usize = 1000;
/// The length of the response of `/long`: more than all buffers between the endpoint and the client.
pub(crate) const LONG_BYTES: usize = 64 << 20;

/// A count that a test can wait for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Count(watch::Sender<usize>);

impl Count {
    pub(crate) fn add(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    pub(crate) fn now(&self) -> usize {
        *self.0.borrow()
    }

    pub(crate) async fn reaches(&self, expected: usize) {
        let mut count = self.0.subscribe();
        let reached = timeout(PATIENCE, count.wait_for(|count| *count >= expected)).await;
        reached.unwrap_or_else(|_| panic!("{} of {expected}", self.now())).unwrap();
    }
}

/// Counts its drop.
struct Guard(Count);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// The endpoint of the tests.
#[derive(Debug, Clone)]
pub(crate) struct App {
    /// A permit lets one waiting response continue.
    pub(crate) gate: Arc<Semaphore>,
    /// The requests that wait at the gate.
    pub(crate) waiting: Count,
    /// The futures and bodies of `/wait` and `/long` that were dropped.
    pub(crate) dropped: Count,
    /// The addresses of refused connections.
    pub(crate) refused: Arc<Mutex<Vec<IpAddr>>>,
    pub(crate) refusals: Count,
    deadlines: Deadlines,
    budget: Arc<Budget<()>>,
    tasks: TaskTracker,
}

impl App {
    pub(crate) fn new(deadlines: Deadlines) -> Self {
        Self {
            gate: Arc::new(Semaphore::new(0)),
            waiting: Count::default(),
            dropped: Count::default(),
            refused: Arc::default(),
            refusals: Count::default(),
            deadlines,
            budget: Arc::new(Budget::new(BODY_BYTES, BODY_BYTES)),
            tasks: TaskTracker::new(),
        }
    }

    async fn waits(&self) {
        self.waiting.add();
        self.gate.acquire().await.unwrap().forget();
    }

    async fn reads(&self, request: &mut Request, max: usize) -> Result<Bytes, BodyError> {
        read_body(request, max, &self.deadlines, self.budget.of(())).await
    }
}

impl Endpoint for App {
    type Output = Response;

    async fn call(&self, mut request: Request) -> Result<Response> {
        Ok(match request.uri().path() {
            "/" => "ok".into_response(),
            "/peer" => request.remote_addr().to_string().into_response(),
            // The response comes after a permit.
            "/wait" => {
                let _guard = Guard(self.dropped.clone());
                self.waits().await;
                "done".into_response()
            }
            // The same, as long as the client keeps its side open.
            "/live" => {
                live_with_client(&request);
                let _guard = Guard(self.dropped.clone());
                self.waits().await;
                "done".into_response()
            }
            // The response ends after a permit.
            "/silent" => {
                let app = self.clone();
                let pieces = stream::unfold(0, move |piece| {
                    let app = app.clone();
                    async move {
                        match piece {
                            0 => Some((Ok::<_, io::Error>("first "), 1)),
                            1 => {
                                app.waits().await;
                                Some((Ok("last"), 2))
                            }
                            _ => None,
                        }
                    }
                });
                Body::from_bytes_stream(pieces).into_response()
            }
            "/long" => {
                let start = (LONG_BYTES, Guard(self.dropped.clone()));
                let pieces = stream::unfold(start, async |(left, guard)| {
                    let piece = Bytes::from_static(&[b'x'; 64 << 10]);
                    let left = left.checked_sub(piece.len())?;
                    Some((Ok::<_, io::Error>(piece), (left, guard)))
                });
                Body::from_bytes_stream(pieces).into_response()
            }
            "/read" | "/keep" => {
                let keeps = request.uri().path() == "/keep";
                match self.reads(&mut request, BODY_BYTES).await {
                    Ok(body) => {
                        if keeps {
                            self.waits().await;
                        }
                        body.len().to_string().into_response()
                    }
                    Err(refused) => {
                        self.tasks.spawn(drain_body(request));
                        (StatusCode::BAD_REQUEST, refused.to_string()).into_response()
                    }
                }
            }
            // The upgraded connection repeats what it receives.
            "/upgrade" => {
                let admission = request.data::<Arc<Admission>>().cloned();
                let upgrade = request.take_upgrade().unwrap();
                self.tasks.spawn(async move {
                    let (mut from, mut to) = split(upgrade.await.unwrap());
                    let _copied = copy(&mut from, &mut to).await;
                    drop(admission);
                });
                let head = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
                head.header(header::CONNECTION, "upgrade").header(header::UPGRADE, "echo").finish()
            }
            path => panic!("{path}"),
        })
    }
}
