//! The keys that an issuer publishes (RFC 7517).
//!
//! They are kept for a while, so that tokens are known while the issuer cannot be reached, and no longer than that:
//! a key may have been withdrawn meanwhile. Whoever sends tokens with made-up keys does not make us ask more often.

mod key;
#[cfg(test)]
mod tests;

use super::unknown::{AuthFailure, Unknown};
use crate::agent::Tasks;
use crate::domain::clock::{Clock, Timestamp};
use crate::egress;
use jsonwebtoken::{Algorithm, DecodingKey, Header};
use key::{Key, Wanted};
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Older keys are fetched anew, while they are used.
const FRESH: Duration = Duration::from_secs(5 * 60);
/// Older keys are not believed.
const BELIEVED: Duration = Duration::from_secs(60 * 60);
/// The issuer is not asked for a key that is missing, nor for fresh ones that it did not give, more often than that.
const REST: Duration = Duration::from_secs(30);
/// The same while no keys are believed, and so nobody is known.
const REST_WITHOUT: Duration = Duration::from_secs(1);
/// How long the issuer may take for its whole answer.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of an answer is read, and how many keys there may be.
const BYTES_MAX: usize = 256 << 10;
const KEYS_MAX: usize = 100;

/// The published keys of one issuer.
#[derive(Debug, Clone)]
pub(super) struct Jwks(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    url: String,
    client: reqwest::Client,
    tasks: Tasks,
    clock: Arc<dyn Clock>,
    known: Mutex<Known>,
    /// Whoever fetches. The others wait, and look at what came.
    fetching: tokio::sync::Mutex<()>,
}

/// What is known of the keys.
#[derive(Debug, Default)]
struct Known {
    keys: Vec<Key>,
    /// When these keys came.
    fetched_at: Option<Timestamp>,
    /// When the issuer was last asked, and whether that failed.
    asked_at: Option<Timestamp>,
    failed: bool,
    /// When it was last asked for a key that was missing.
    missed_at: Option<Timestamp>,
}

/// Why the issuer is asked.
#[derive(Debug, Clone, Copy)]
enum Cause {
    /// The keys are not fresh.
    Age,
    /// There is no such key.
    Missing,
}

impl Known {
    fn believed(&self, now: Timestamp) -> &[Key] {
        if is_past(self.fetched_at, BELIEVED, now) { &[] } else { &self.keys }
    }

    fn wants(&self, cause: Cause, now: Timestamp) -> bool {
        match cause {
            Cause::Age => is_past(self.fetched_at, FRESH, now) && is_past(self.asked_at, REST, now),
            Cause::Missing if is_past(self.fetched_at, BELIEVED, now) => {
                is_past(self.asked_at, REST_WITHOUT, now)
            }
            Cause::Missing => is_past(self.missed_at, REST, now),
        }
    }
}

/// Whether that was so long ago, or never; a moment that is still to come means that the clock was put back.
fn is_past(moment: Option<Timestamp>, length: Duration, now: Timestamp) -> bool {
    moment.is_none_or(|moment| moment > now || moment.plus(length) <= now)
}

impl Jwks {
    pub(super) fn new(url: String, clock: Arc<dyn Clock>, tasks: Tasks) -> Result<Self, String> {
        let parsed = reqwest::Url::parse(&url).map_err(|error| error.to_string())?;
        let (client, known) = (egress::client(&parsed)?, Mutex::default());
        let fetching = tokio::sync::Mutex::default();
        Ok(Self(Arc::new(Inner { url, client, tasks, clock, known, fetching })))
    }

    /// Fetches the keys if they are not fresh; nobody waits for that.
    pub(super) fn freshen(&self) {
        let inner = &self.0;
        if inner.fetching.try_lock().is_err() || !inner.known().wants(Cause::Age, inner.clock.now()) {
            return;
        }
        let inner = inner.clone();
        self.0.tasks.spawn(async move {
            let _alone = inner.fetching.lock().await;
            inner.fetch_for(Cause::Age).await;
        });
    }

    /// The key that a token with this header has to be signed with, and how.
    pub(super) async fn find(&self, header: &Header) -> Result<(DecodingKey, Algorithm), AuthFailure> {
        let wanted = Wanted::of(header).ok_or(Unknown::Algorithm)?;
        let key = match self.0.look(&wanted) {
            Some(key) => key,
            None => self.ask_for(wanted).await?,
        };
        self.freshen();
        Ok((key.decoding, key.algorithm))
    }

    /// In a task: others may wait for the same answer, and this caller may go away.
    async fn ask_for(&self, wanted: Wanted) -> Result<Key, AuthFailure> {
        let inner = self.0.clone();
        let asking = self.0.tasks.spawn(async move {
            let _alone = inner.fetching.lock().await;
            if inner.look(&wanted).is_none() {
                inner.fetch_for(Cause::Missing).await;
            }
            inner.look(&wanted).ok_or_else(|| match inner.known().failed {
                // The token may be good.
                true => AuthFailure::KeysUnavailable,
                false => Unknown::NoKey.into(),
            })
        });
        asking.await.map_err(|_| AuthFailure::KeysUnavailable)?
    }
}

impl Inner {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    fn look(&self, wanted: &Wanted) -> Option<Key> {
        wanted.find(self.known().believed(self.clock.now())).cloned()
    }

    /// Asks the issuer, if it is time to.
    async fn fetch_for(&self, cause: Cause) {
        let asked_at = self.clock.now();
        if !self.known().wants(cause, asked_at) {
            return;
        }
        let fetched = self.fetch().await;
        let now = self.clock.now();
        let mut known = self.known();
        if matches!(cause, Cause::Missing) && !is_past(known.fetched_at, BELIEVED, asked_at) {
            known.missed_at = Some(now);
        }
        known.asked_at = Some(now);
        known.failed = fetched.is_err();
        match fetched {
            Ok(keys) => {
                tracing::debug!(keys = keys.len(), "the issuer's keys were fetched");
                (known.keys, known.fetched_at) = (keys, Some(now));
            }
            Err(why) => tracing::warn!(%why, "the issuer's keys could not be fetched (auth.jwks_url)"),
        }
    }

    async fn fetch(&self) -> Result<Vec<Key>, String> {
        let request = self.client.get(&self.url).header("accept", "application/json").timeout(FETCH_TIMEOUT);
        let mut response = request.send().await.map_err(egress::chain)?;
        if response.status() != 200 {
            return Err(format!("status {}", response.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(egress::chain)? {
            body.extend_from_slice(&piece);
            if body.len() > BYTES_MAX {
                return Err(format!("more than {BYTES_MAX} bytes"));
            }
        }
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        let Set { keys } = serde_json::from_slice(&body).map_err(|_| "no JWK set".to_owned())?;
        if keys.len() > KEYS_MAX {
            return Err(format!("more than {KEYS_MAX} keys"));
        }
        Ok(keys.into_iter().filter_map(key::of_json).collect())
    }
}
