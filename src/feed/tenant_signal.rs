//! The signal that a tenant may have new events.

use super::Batch;
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// Completes when a tenant may have new events with numbers. The rows are the truth.
#[derive(Debug)]
pub(crate) struct TenantSignal {
    tenant_id: String,
    batches: broadcast::Receiver<Arc<Batch>>,
}

impl TenantSignal {
    pub(super) fn new(tenant_id: String, batches: broadcast::Receiver<Arc<Batch>>) -> Self {
        Self { tenant_id, batches }
    }

    /// Completes when the tenant may have new events since the last call. Dropping the future loses none.
    pub(crate) async fn next(&mut self) {
        loop {
            match self.batches.recv().await {
                Ok(batch) if self.is_about(&batch) => return,
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => return,
                // The feed owns the sender and lives as long as its readers.
                Err(RecvError::Closed) => return std::future::pending().await,
            }
        }
    }

    fn is_about(&self, batch: &Batch) -> bool {
        batch.touched.as_ref().is_none_or(|touched| touched.has_tenant(&self.tenant_id))
    }
}
