//! Retries of writes that a busy or restarting database must not lose.

use crate::store::StoreError;
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;

/// The first pause before a retry. Each pause is twice the one before, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A written value, and whether an earlier attempt failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written<T> {
    pub(crate) value: T,
    /// Whether an earlier attempt failed. Its commit may have succeeded all the same.
    pub(crate) tried_before: bool,
}

/// Retries a write until it succeeds or the time is over, whatever the error: an error that looks permanent
/// may be a failover.
pub(crate) async fn persist<T, F>(time: Duration, write: impl Fn() -> F) -> Result<Written<T>, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let give_up = Instant::now() + time;
    let mut pause = FIRST_PAUSE;
    let mut tried_before = false;
    loop {
        match write().await {
            Ok(value) => return Ok(Written { value, tried_before }),
            Err(error) if Instant::now() + pause >= give_up => return Err(error),
            Err(error) => tracing::warn!(%error, "not written yet"),
        }
        tried_before = true;
        tokio::time::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}
