//! Liveness, readiness and metrics.

use crate::agent::Tasks;
use crate::delivery::Deliveries;
use crate::http::Api;
use crate::http::failure::error::{self, ApiError};
use futures::FutureExt;
use futures::future::{BoxFuture, WeakShared};
use holdpoint_core::clock::Clock;
use holdpoint_metrics::{CONTENT_TYPE, Metrics, StoredCounts};
use holdpoint_store::{Store, StoreError};
use poem::endpoint::make;
use poem::{IntoResponse, PathPattern, Response, Result, Route, get};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Minimum time between two reads of the gauges from the database, for any rate of scrapes.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a scrape waits for the database.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(2);

/// The metrics, with the gauges that are read from the database.
#[derive(Debug, Clone)]
pub(crate) struct Scrape {
    store: Store,
    metrics: Metrics,
    tasks: Tasks,
    clock: Arc<dyn Clock>,
    deliveries: Arc<Deliveries>,
    /// When the gauges were last read.
    looked: Arc<Mutex<Option<Instant>>>,
}

impl Scrape {
    pub(crate) fn new(
        store: &Store,
        metrics: &Metrics,
        tasks: &Tasks,
        clock: &Arc<dyn Clock>,
        deliveries: &Arc<Deliveries>,
    ) -> Self {
        Self {
            store: store.clone(),
            metrics: metrics.clone(),
            tasks: tasks.clone(),
            clock: clock.clone(),
            deliveries: deliveries.clone(),
            looked: Arc::default(),
        }
    }

    /// Returns the metrics as text. If the database does not answer, its gauges are left out.
    pub(crate) async fn text(&self) -> String {
        self.refresh().await;
        self.metrics.text()
    }

    async fn refresh(&self) {
        let mut looked = self.looked.lock().await;
        if looked.is_some_and(|at| at.elapsed() < SCRAPE_INTERVAL) {
            return;
        }
        *looked = Some(Instant::now());
        let scrape = self.clone();
        // The read runs in a task, so a timeout does not drop database work midway.
        let looking = self.tasks.spawn(async move { scrape.read_open().await });
        if tokio::time::timeout(SCRAPE_TIMEOUT, looking).await.is_err() {
            self.metrics.open(None);
            self.metrics.endpoints(Vec::new());
        }
    }

    async fn read_open(&self) {
        let found = async {
            let read = self.store.read().await?;
            let (holds, first) = read.all_pending().await?;
            let oldest_hold = first.map_or(Duration::ZERO, |first| self.clock.now().since(first));
            let unnumbered_events = read.unnumbered_events().await?;
            let endpoints = self.deliveries.measured(&read).await?;
            Ok::<_, StoreError>((StoredCounts { holds, oldest_hold, unnumbered_events }, endpoints))
        };
        let found = found.await;
        if let Err(error) = &found {
            tracing::warn!(%error, "the pending calls and unnumbered events could not be counted");
        }
        let (found, endpoints) = found.ok().unzip();
        self.metrics.open(found);
        self.metrics.endpoints(endpoints.unwrap_or_default());
    }
}

/// Whether the database answers. The probe needs no token, so concurrent requests share one query: any number
/// of them uses one connection.
#[derive(Clone)]
struct Readiness {
    store: Store,
    pending: Arc<parking_lot::Mutex<Option<WeakShared<BoxFuture<'static, bool>>>>>,
}

impl Readiness {
    async fn database_answers(&self) -> bool {
        let answer = {
            let mut pending = self.pending.lock();
            pending.as_ref().and_then(WeakShared::upgrade).unwrap_or_else(|| {
                let answer = ping(self.store.clone()).boxed().shared();
                *pending = answer.downgrade();
                answer
            })
        };
        answer.await
    }
}

async fn ping(store: Store) -> bool {
    let answered = store.ping().await;
    if let Err(error) = &answered {
        tracing::warn!(%error, "not ready");
    }
    answered.is_ok()
}

/// Returns the routes `/healthz` and `/readyz`.
pub(in crate::http) fn health(with: &Api, tasks: Tasks) -> Route {
    let readiness = Readiness { store: with.store.clone(), pending: Arc::default() };
    Route::new()
        .at("/healthz", get(make(async |_| Ok::<_, poem::Error>("ok"))))
        .at("/readyz", get(make(move |_| ready(readiness.clone(), tasks.clone()))))
}

/// Adds the route `/metrics`.
pub(in crate::http) fn metrics(routes: Route, scrape: Scrape) -> Route {
    let answer = make(move |_| {
        let scrape = scrape.clone();
        async move { Ok::<_, poem::Error>(scrape.text().await.with_content_type(CONTENT_TYPE)) }
    });
    routes.at("/metrics", get(answer))
}

async fn ready(readiness: Readiness, tasks: Tasks) -> Result<Response> {
    if tasks.is_stopping() {
        return Ok(ApiError::stopping().into_response());
    }
    Ok(error::readiness(readiness.database_answers().await))
}

/// Returns the template of a route, which is the same under `/api`. For an unknown path the router reports
/// the prefix in which it searched, so the result is `None`.
pub(in crate::http) fn template(pattern: &str) -> Option<&str> {
    let route = pattern.strip_prefix("/api").unwrap_or(pattern);
    (!route.is_empty()).then_some(route)
}

/// Converts an error to the common body and keeps the route that it came from.
pub(in crate::http) fn shaped(error: poem::Error) -> Response {
    let pattern = error.data::<PathPattern>().cloned();
    let mut response = error::shaped(error);
    if let Some(pattern) = pattern {
        response.set_data(pattern);
    }
    response
}
