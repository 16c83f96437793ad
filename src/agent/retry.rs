//! Retries: of writes that a busy or restarting database must not lose, and the pauses between calls of a model.
//!
//! Models are called again here and not in their wires: only the agent knows whether a delta was emitted, and a stop of
//! the turn has to stop the pause too.

use crate::entropy::Entropy;
use holdpoint_store::StoreError;
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;

/// The first pause before a retry. Each pause is twice the one before, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The limits of the first backoff and of any backoff.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(8);

/// A written value, and whether an earlier attempt failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written<T> {
    pub(crate) value: T,
    /// Whether an earlier attempt failed. Its commit may have succeeded even so.
    pub(crate) tried_before: bool,
}

/// Retries a write until it succeeds or the time is over, whatever the error: an error that looks permanent
/// may be a failover. Retries at least once: a first attempt without an answer may have outlasted the time, and only
/// the retry finds out that its commit succeeded.
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
            Err(error) if tried_before && Instant::now() + pause >= give_up => return Err(error),
            Err(error) => tracing::warn!(%error, "not written yet"),
        }
        tried_before = true;
        tokio::time::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Returns the backoffs before the retries: each twice as long as the one before, with up to half of it
/// random, so that clients that failed together do not retry together.
pub(super) fn backoff(retries: u32, entropy: &dyn Entropy) -> impl Iterator<Item = Duration> {
    (0..retries).map(move |n| {
        let longest = BACKOFF_FIRST.saturating_mul(2_u32.saturating_pow(n)).min(BACKOFF_MAX);
        longest.mul_f64(0.5 + entropy.chance() / 2.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct FixedChance(f64);

    impl Entropy for FixedChance {
        fn chance(&self) -> f64 {
            self.0
        }

        fn secret(&self) -> Option<String> {
            None
        }
    }

    #[test]
    fn backoff_doubles_up_to_a_maximum_and_half_of_each_pause_is_random() {
        let millis = |luck| backoff(7, &FixedChance(luck)).map(|pause| pause.as_millis()).collect::<Vec<_>>();
        assert_eq!(millis(0.0), [250, 500, 1000, 2000, 4000, 4000, 4000]);
        assert_eq!(millis(0.5), [375, 750, 1500, 3000, 6000, 6000, 6000]);
    }
}
