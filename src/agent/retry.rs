//! Writing what must not be lost to a database that is busy or restarts.

use crate::store::StoreError;
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;

/// The first pause before another try; each is twice the one before, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What was written, and whether in vain before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written<T> {
    pub(crate) value: T,
    /// Whether a try before this one failed: its commit may have been made all the same.
    pub(crate) tried_before: bool,
}

/// Tries to write until it is done or the time is over, whatever the failure: what seems final to the database may
/// be a failover.
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
