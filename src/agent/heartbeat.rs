//! Keeping a lease while work is under way, and learning that the work should end.

use super::{Tasks, Work};
use crate::metrics::Metrics;
use crate::store::{Renewed, StoreError};
use std::future::Future;
use std::time::Duration;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Renewals within one lease: two may fail.
const BEATS_PER_LEASE: u32 = 3;

/// Why work under a lease should end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Somebody asked for it.
    Cancelled,
    /// It was taken for dead.
    Lost,
    /// The process leaves.
    Leaving,
}

/// A lease that is renewed until this is dropped.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    tasks: Tasks,
    halt: watch::Receiver<Option<Halt>>,
    _until: DropGuard,
}

impl Heartbeat {
    /// Renews a lease of this length with `renew`, again and again. That runs in a task of its own: a renewal
    /// that is dropped half-way would leave its connection inside a transaction.
    pub(crate) fn begin<R, F>(tasks: &Tasks, metrics: &Metrics, work: Work, lease: Duration, renew: R) -> Self
    where
        R: Fn() -> F + Send + 'static,
        F: Future<Output = Result<Renewed, StoreError>> + Send + 'static,
    {
        let (said, halt) = watch::channel(None);
        let until = CancellationToken::new();
        let over = until.clone();
        let mut wishes = tasks.wake_signals();
        let metrics = metrics.clone();
        tasks.spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(lease / BEATS_PER_LEASE) => {}
                    () = woken(&mut wishes, work) => {}
                    () = over.cancelled() => return,
                }
                match renew().await {
                    Ok(Renewed::Held) => {}
                    Ok(Renewed::CancelRequested) => said.send_modify(|halt| *halt = Some(Halt::Cancelled)),
                    Ok(Renewed::Lost) => {
                        // One that has ended meanwhile is not held any more either.
                        if !over.is_cancelled() {
                            metrics.lease_lost(work.as_str());
                        }
                        said.send_modify(|halt| *halt = Some(Halt::Lost));
                        return;
                    }
                    // Whether it is lost shows when the database answers again.
                    Err(error) => tracing::warn!(%error, "a lease could not be renewed"),
                }
            }
        });
        Self { tasks: tasks.clone(), halt, _until: until.drop_guard() }
    }

    /// Comes back once the work should end.
    pub(crate) async fn halt(&self) -> Halt {
        let mut halt = self.halt.clone();
        let said = async {
            match halt.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(halt)) => *halt,
                // The task broke: nobody renews the lease.
                Ok(None) | Err(_) => Halt::Lost,
            }
        };
        tokio::select! {
            halt = said => halt,
            () = self.tasks.aborted() => Halt::Leaving,
        }
    }
}

/// Comes back once somebody wishes this work to end, or may have.
async fn woken(wishes: &mut broadcast::Receiver<Work>, work: Work) {
    loop {
        match wishes.recv().await {
            Ok(other) if other != work => {}
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => return,
            // Nobody is left who could.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
