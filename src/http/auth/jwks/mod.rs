//! The keys that an issuer publishes (RFC 7517).
//!
//! The server keeps the keys for a limited time. Tokens stay valid while the issuer is unreachable, but not
//! longer, because the issuer may have withdrawn a key. Tokens with made-up keys do not increase the number
//! of requests to the issuer.

mod key;
#[cfg(test)]
mod tests;

use crate::agent::Tasks;
use crate::http::auth::failure::{AuthFailure, Unknown};
use holdpoint_core::clock::{Clock, Timestamp};
use jsonwebtoken::{Algorithm, DecodingKey, Header};
use key::{Key, KeyRef};
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Keys older than this are fetched again when a token uses them.
const FRESH: Duration = Duration::from_secs(5 * 60);
/// Keys older than this are not accepted.
const BELIEVED: Duration = Duration::from_secs(60 * 60);
/// Minimum time between two requests for a missing key, and between two attempts to refresh old keys.
const REST: Duration = Duration::from_secs(30);
/// The same minimum while no accepted keys exist, and so no token can be checked.
const REST_WITHOUT: Duration = Duration::from_secs(1);
/// Timeout for the whole response of the issuer.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of the response, in bytes, and maximum number of keys.
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
    known: Mutex<KeyState>,
    /// Locked by the task that fetches. Other tasks wait for it, and then use the result.
    fetching: tokio::sync::Mutex<()>,
}

/// The state of the keys.
#[derive(Debug, Default)]
struct KeyState {
    keys: Vec<Key>,
    /// When these keys were fetched.
    fetched_at: Option<Timestamp>,
    /// When the server last asked the issuer, and whether the request failed.
    requested_at: Option<Timestamp>,
    failed: bool,
    /// When the server last requested the keys because one was missing.
    missed_at: Option<Timestamp>,
}

/// The reason for a request to the issuer.
#[derive(Debug, Clone, Copy)]
enum Cause {
    /// The keys are not fresh.
    Age,
    /// No accepted key matches.
    Missing,
}

impl KeyState {
    fn believed(&self, now: Timestamp) -> &[Key] {
        if is_past(self.fetched_at, BELIEVED, now) { &[] } else { &self.keys }
    }

    fn is_due(&self, cause: Cause, now: Timestamp) -> bool {
        match cause {
            Cause::Age => is_past(self.fetched_at, FRESH, now) && is_past(self.requested_at, REST, now),
            Cause::Missing if is_past(self.fetched_at, BELIEVED, now) => {
                is_past(self.requested_at, REST_WITHOUT, now)
            }
            Cause::Missing => is_past(self.missed_at, REST, now),
        }
    }
}

/// Whether the moment is at least `length` ago, or never occurred. A moment in the future means that the
/// clock was put back, and counts as past.
fn is_past(moment: Option<Timestamp>, length: Duration, now: Timestamp) -> bool {
    moment.is_none_or(|moment| moment > now || moment.plus(length) <= now)
}

impl Jwks {
    pub(super) fn new(url: String, clock: Arc<dyn Clock>, tasks: Tasks) -> Result<Self, String> {
        let parsed = reqwest::Url::parse(&url).map_err(|error| error.to_string())?;
        let (client, known) = (holdpoint_egress::client(&parsed)?, Mutex::default());
        let fetching = tokio::sync::Mutex::default();
        Ok(Self(Arc::new(Inner { url, client, tasks, clock, known, fetching })))
    }

    /// Starts a fetch in the background if the keys are not fresh.
    pub(super) fn freshen(&self) {
        let inner = &self.0;
        if inner.fetching.try_lock().is_err() || !inner.known().is_due(Cause::Age, inner.clock.now()) {
            return;
        }
        let inner = inner.clone();
        self.0.tasks.spawn(async move {
            let _alone = inner.fetching.lock().await;
            inner.fetch_for(Cause::Age).await;
        });
    }

    /// Returns the key and the algorithm that check a token with this header.
    pub(super) async fn find(&self, header: &Header) -> Result<(DecodingKey, Algorithm), AuthFailure> {
        let key_ref = KeyRef::of(header).ok_or(Unknown::Algorithm)?;
        let algorithm = key_ref.algorithm;
        let key = match self.0.look(&key_ref) {
            Some(key) => key,
            None => self.fetch_for(key_ref).await?,
        };
        self.freshen();
        Ok((key.decoding, algorithm))
    }

    /// Runs in a task, because other callers may wait for the same response, and this caller may disconnect.
    async fn fetch_for(&self, key_ref: KeyRef) -> Result<Key, AuthFailure> {
        let inner = self.0.clone();
        let fetch = self.0.tasks.spawn(async move {
            let _alone = inner.fetching.lock().await;
            if inner.look(&key_ref).is_none() {
                inner.fetch_for(Cause::Missing).await;
            }
            inner.look(&key_ref).ok_or_else(|| match inner.known().failed {
                // The issuer may have a key for this token.
                true => AuthFailure::KeysUnavailable,
                false => Unknown::NoKey.into(),
            })
        });
        fetch.await.map_err(|_| AuthFailure::KeysUnavailable)?
    }
}

impl Inner {
    fn known(&self) -> MutexGuard<'_, KeyState> {
        self.known.lock()
    }

    fn look(&self, key_ref: &KeyRef) -> Option<Key> {
        key_ref.find(self.known().believed(self.clock.now())).cloned()
    }

    /// Asks the issuer if the minimum time since the last request is over.
    async fn fetch_for(&self, cause: Cause) {
        let requested_at = self.clock.now();
        if !self.known().is_due(cause, requested_at) {
            return;
        }
        let fetched = self.fetch().await;
        let now = self.clock.now();
        let mut known = self.known();
        if matches!(cause, Cause::Missing) && !is_past(known.fetched_at, BELIEVED, requested_at) {
            known.missed_at = Some(now);
        }
        known.requested_at = Some(now);
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
        let response = request.send().await.map_err(holdpoint_egress::chain)?;
        if response.status() != 200 {
            return Err(format!("status {}", response.status().as_u16()));
        }
        let body = holdpoint_egress::read(response, BYTES_MAX).await?;
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
