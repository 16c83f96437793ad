//! Heartbeats: they renew a lease while work is in progress, and report when the work should end.
//!
//! A heartbeat is a task of its own. Polled beside the work, it would be dropped with the work, in the middle of a
//! renewal.

use super::{Tasks, Work};
use holdpoint_metrics::Metrics;
use holdpoint_store::{RenewalOutcome, StoreError};
use std::future::Future;
use std::time::Duration;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The number of renewals per lease. Two of them may fail.
const BEATS_PER_LEASE: u32 = 3;

/// The reason why work under a lease should end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Halt {
    /// A cancel was requested.
    Cancelled,
    /// The lease is lost, and the work counts as dead.
    Lost,
    /// The process exits.
    Leaving,
}

/// A lease that is renewed until this value is dropped.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    tasks: Tasks,
    halt: watch::Receiver<Option<Halt>>,
    _until: DropGuard,
}

impl Heartbeat {
    /// Starts to renew a lease of this length with `renew`, again and again. The renewals run in a task of
    /// their own: a renewal that is dropped midway would leave its connection in a transaction.
    pub(crate) fn begin<R, F>(tasks: &Tasks, metrics: &Metrics, work: Work, lease: Duration, renew: R) -> Self
    where
        R: Fn() -> F + Send + 'static,
        F: Future<Output = Result<RenewalOutcome, StoreError>> + Send + 'static,
    {
        let (halted, halt) = watch::channel(None);
        let until = CancellationToken::new();
        let over = until.clone();
        let mut renewals = tasks.renewals();
        let metrics = metrics.clone();
        tasks.spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(lease / BEATS_PER_LEASE) => {}
                    () = renewal_requested(&mut renewals, work) => {}
                    () = over.cancelled() => return,
                }
                // In memory only while it runs: the task itself lives as long as the work.
                match Box::pin(renew()).await {
                    Ok(RenewalOutcome::Held) => {}
                    Ok(RenewalOutcome::CancelRequested) => {
                        halted.send_modify(|halt| *halt = Some(Halt::Cancelled))
                    }
                    Ok(RenewalOutcome::Lost) => {
                        // Work that has ended meanwhile has no lease either.
                        if !over.is_cancelled() {
                            metrics.lease_lost(work.as_str());
                        }
                        halted.send_modify(|halt| *halt = Some(Halt::Lost));
                        return;
                    }
                    // A lost lease shows when the database answers again.
                    Err(error) => tracing::warn!(%error, "could not renew a lease"),
                }
            }
        });
        Self { tasks: tasks.clone(), halt, _until: until.drop_guard() }
    }

    /// Completes when the work should end.
    pub(crate) async fn halt(&self) -> Halt {
        let mut halt = self.halt.clone();
        let halted = async {
            match halt.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(halt)) => *halt,
                // The task failed, so the lease is no longer renewed.
                Ok(None) | Err(_) => Halt::Lost,
            }
        };
        tokio::select! {
            halt = halted => halt,
            () = self.tasks.aborted() => Halt::Leaving,
        }
    }
}

/// Completes when the lease of this work should be renewed now, because a cancel of the work was requested.
async fn renewal_requested(renewals: &mut broadcast::Receiver<Work>, work: Work) {
    loop {
        match renewals.recv().await {
            Ok(other) if other != work => {}
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => return,
            // No sender is left.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
