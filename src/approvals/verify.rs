//! Verification: asks tools for the outcome of interrupted calls.

use super::Approvals;
use holdpoint_core::id::ToolCallId;
use holdpoint_store::{InterruptedCall, ResolvedBy, StoreError};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The number of concurrent verifications, and of all that may be queued. Other calls wait for the next
/// sweep.
const VERIFY_AT_ONCE: usize = 16;
const VERIFY_QUEUE_MAX: usize = 256;

/// The calls that this process verifies.
#[derive(Debug)]
pub(super) struct Verifications {
    calls: Mutex<HashSet<ToolCallId>>,
    slots: Semaphore,
}

/// A verification. No other task of this process verifies the call meanwhile.
struct Verification {
    all: Arc<Verifications>,
    call: ToolCallId,
}

impl Default for Verifications {
    fn default() -> Self {
        Self { calls: Mutex::default(), slots: Semaphore::new(VERIFY_AT_ONCE) }
    }
}

impl Verification {
    /// Returns `None` if the call is being verified already, or if the queue is full.
    fn begin(all: &Arc<Verifications>, call: ToolCallId) -> Option<Self> {
        let mut calls = all.calls.lock();
        (calls.len() < VERIFY_QUEUE_MAX && calls.insert(call)).then(|| Self { all: all.clone(), call })
    }
}

impl Drop for Verification {
    fn drop(&mut self) {
        self.all.calls.lock().remove(&self.call);
    }
}

impl Approvals {
    /// Returns the tools that this process can ask.
    pub(super) fn verified_tools(&self) -> Vec<String> {
        self.gate().registry().executing().cloned().collect()
    }

    /// Starts to verify every recently interrupted call whose tool this process has.
    pub(super) async fn verify_doubtful(&self) -> Result<(), StoreError> {
        let tools = self.verified_tools();
        let mut after = None;
        loop {
            // With the clock that set the ends of the calls.
            let read = self.store.timed_read().await?;
            let found = read.doubtful_calls(&tools, self.times.start_deadline, after.as_ref()).await?;
            drop(read);
            let Some(last) = found.last() else { return Ok(()) };
            after = Some(last.due);
            for doubtful in found {
                let Some(verification) = Verification::begin(&self.verifications, doubtful.due.id) else {
                    continue;
                };
                let approvals = self.clone();
                self.tasks().spawn(async move { approvals.verify_call(doubtful, verification).await });
            }
        }
    }

    async fn verify_call(&self, doubtful: InterruptedCall, _asked: Verification) {
        let tool_call_id = doubtful.due.id;
        let ask = async {
            // The semaphore is never closed.
            let _slot = self.verifications.slots.acquire().await.ok()?;
            self.gate().verify(&doubtful.tool_name, &doubtful.schema_hash, &doubtful.key).await
        };
        let outcome = tokio::select! {
            outcome = ask => outcome,
            () = self.tasks().stopping() => None,
        };
        let Some(outcome) = outcome else { return };
        let resolve = async {
            let Some(call) = self.store.urgent_read().await?.any_call(tool_call_id).await? else {
                return Ok(false);
            };
            // The inputs of a call do not change, and no writer waits for the text.
            let result = self.gate().result_text(&outcome, call.edit().as_ref());
            let write = self.store.urgent_write().await?;
            let (execution, by) = (doubtful.execution, ResolvedBy::Tool);
            let resolved = write.resolve(tool_call_id, execution, &outcome, &result, by).await?;
            write.commit().await?;
            Ok::<_, StoreError>(resolved)
        };
        match resolve.await {
            Ok(true) => {
                self.executor.metrics.swept("verified");
                tracing::info!(%tool_call_id, "a tool reported the outcome of an interrupted call");
                self.wake_waiters();
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(%tool_call_id, %error, "could not store a verified outcome"),
        }
    }
}
