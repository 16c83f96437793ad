//! The sign-ins that the server keeps (`auth.session_key`): sessions that outlive the access token.
//!
//! A sign-in is a row. The cookie of the browser has a random secret and is signed, and no row is read for a cookie that
//! this server did not sign. The row has the person and the roles of the last access token, and what the issuer needs
//! for the next one, encrypted. When the access token ends, one process asks the issuer for new tokens; the lease in the
//! row chooses it. A refusal of the issuer (`invalid_grant`) ends the sign-in. If the issuer fails, the sign-in stays, and
//! the person is known again when the issuer is.
//!
//! # One sign-in
//!
//! 1. `SignIn::begin` signs `state`, the PKCE verifier and the time into a cookie, and sends the browser to the issuer.
//!    `SignIn::end` recognizes the cookie, ends the sign-in in this process once (`Ended`), waits for a place
//!    (`places`), and exchanges the code.
//! 2. Without `auth.session_key` the cookie of `session` has the access token. With it [`SignIns::begin`] finds out the
//!    person (`identity`), encrypts the tokens (`sealed`) and adds the row. The cookie has the secret of the row,
//!    signed.
//! 3. [`SignIns::resume`] reads the row of a request with one statement. If the access token has ended,
//!    `Write::begin_renewal` takes the lease in the row by compare-and-set, a task asks the issuer without a
//!    transaction, and `Write::end_renewal` stores the tokens under the same lease. Other requests and processes look
//!    at the row until it has them. A row that was deleted meanwhile stays deleted, and the new refresh token is
//!    revoked.

use super::identity::Identity;
use super::issuer::{GrantedTokens, Issuer, NotGranted};
use super::sealed::{KeptTokens, Seal};
use crate::agent::{Tasks, persist};
use crate::entropy::Entropy;
use crate::http::auth::failure::{AuthFailure, Unknown};
use crate::http::auth::session::{self, KeptCookie, Session};
use crate::http::auth::signing::SigningKey;
use crate::http::auth::validity::LEEWAY_SECONDS;
use crate::http::auth::{Expiry, KnownCaller};
use crate::rate_limit::{RateLimit, User};
use holdpoint_core::Principal;
use holdpoint_core::clock::{Clock, Timestamp};
use holdpoint_core::id::SignInId;
use holdpoint_core::sign_in::{self, SealedTokens, SignIn};
use holdpoint_store::{EndedSignIn, NewSignIn, RenewedTokens, RenewingProcess, Store, StoreError};
use poem::http::HeaderValue;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// How long a request waits for new tokens.
const WAIT: Duration = Duration::from_secs(15);
/// How often a request looks for the tokens that another process asks for.
const LOOK: Duration = Duration::from_millis(100);
/// How long one renewal may take: the addresses of the issuer, the tokens and the keys, each within its timeout, and the
/// write.
const LEASE: Duration = Duration::from_secs(45);
/// How long the write of new tokens is retried. An issuer that takes each refresh token once has replaced the old one.
const PERSIST: Duration = Duration::from_secs(10);
/// How long no process asks for new tokens of a sign-in after the issuer failed.
const REST: Duration = Duration::from_secs(5);
/// How long a stream lasts that was opened in a session. A client that opens it again shows whether the sign-in is still
/// there.
const STREAMS_LAST: Duration = Duration::from_secs(60);
/// Maximum number of renewals of a process at the same time. Only people that have signed in cause them.
const RENEWALS_MAX: usize = 16;
/// The time in which an access token counts after its end. In it the person is known and the tokens are renewed.
const LEEWAY: Duration = Duration::from_secs(LEEWAY_SECONDS);

/// Keeps sign-ins.
#[derive(Debug)]
pub(crate) struct SignIns {
    parts: KeptParts,
    renewals: Arc<Semaphore>,
}

/// What sign-ins need.
#[derive(Debug)]
pub(in crate::http::auth) struct KeptParts {
    pub(in crate::http::auth) store: Store,
    pub(in crate::http::auth) issuer: Arc<Issuer>,
    pub(in crate::http::auth) identity: Identity,
    pub(in crate::http::auth) seal: Seal,
    pub(in crate::http::auth) key: SigningKey,
    /// How long a sign-in lasts.
    pub(in crate::http::auth) lasts: Duration,
    /// The requests of each cookie. A cookie stays signed after its sign-in has ended.
    pub(in crate::http::auth) requests: RateLimit,
    pub(in crate::http::auth) tasks: Tasks,
    pub(in crate::http::auth) clock: Arc<dyn Clock>,
    pub(in crate::http::auth) entropy: Arc<dyn Entropy>,
}

/// One attempt to get new tokens.
struct Renewal {
    id: SignInId,
    /// The name of this attempt in the row.
    by: String,
    person: Principal,
    sealed: SealedTokens,
    _permit: OwnedSemaphorePermit,
}

/// What a renewal leaves in the row.
enum RenewalResult {
    /// New tokens, and how the person is known by them.
    Fresh(KeptTokens, KnownCaller),
    /// New tokens. The access token could not be checked, because the keys of the issuer are unavailable.
    Unchecked(KeptTokens),
    /// The issuer failed. The tokens stay.
    Failed,
    /// The sign-in ends.
    Refused,
}

impl SignIns {
    pub(in crate::http::auth) fn new(parts: KeptParts) -> Self {
        Self { parts, renewals: Arc::new(Semaphore::new(RENEWALS_MAX)) }
    }

    /// Begins a sign-in with what the issuer gave. Returns the cookie.
    pub(in crate::http::auth) async fn begin(
        &self,
        granted: GrantedTokens,
        browser: &str,
    ) -> Result<HeaderValue, AuthFailure> {
        let KeptParts { identity, seal, clock, entropy, .. } = &self.parts;
        let known = identity.of(&granted).await?;
        let known_until = known.expiry.0.ok_or(AuthFailure::IssuerUnavailable)?;
        let (id, begun_at) = (SignInId::new(clock.uuid()), clock.now());
        let latest = begun_at.plus(self.parts.lasts);
        // Without a refresh token the sign-in ends with its access token.
        let ends_at = if granted.refresh_token.is_some() { latest } else { latest.min(known_until) };
        let kept = KeptTokens { refresh: granted.refresh_token, id: granted.id_token };
        let no_randomness = AuthFailure::IssuerUnavailable;
        let Some((secret, sealed)) = entropy.secret().zip(seal.close(id, &kept, &**entropy)) else {
            return Err(no_randomness);
        };
        let cookie = KeptCookie { secret, ends_at };
        let new = NewSignIn {
            id,
            secret: &cookie.hash(),
            person: &known.principal,
            known_until,
            tokens: &sealed,
            browser: &sign_in::browser(browser),
            begun_at,
            ends_at,
        };
        let write = self.parts.store.write().await?;
        let ended = write.add_sign_in(&new).await?;
        write.commit().await?;
        ended.iter().for_each(|ended| self.revoke(ended));
        let value = cookie.signed(&self.parts.key).ok_or(no_randomness)?;
        session::cookie_of(&value, Some(ends_at), &**clock).ok_or(AuthFailure::IssuerUnavailable)
    }

    /// Returns the person of a cookie. If the access token has ended, the issuer is asked for the next one first.
    pub(in crate::http::auth) async fn resume(
        self: &Arc<Self>,
        cookie: &str,
        session: Session,
    ) -> Result<KnownCaller, AuthFailure> {
        let cookie = KeptCookie::of(cookie, &self.parts.key).ok_or(Unknown::SessionForged)?;
        let secret = cookie.hash();
        self.parts.requests.count_one(&User::of_sign_in(&secret)).map_err(AuthFailure::TooOften)?;
        let give_up = Instant::now() + WAIT;
        loop {
            let now = self.parts.clock.now();
            let found = self.parts.store.sign_in(&secret).await?;
            let found = found.filter(|found| now < found.ends_at).ok_or(Unknown::SessionEnded)?;
            let is_known = now < found.known_until;
            // A sign-in that ends with its access token has nothing to renew.
            let is_due = found.known_until.minus(LEEWAY) <= now && found.known_until < found.ends_at;
            let rests = found.rests_until.is_some_and(|until| now < until);
            let renewal = if is_due && !rests { self.begin_renewal(&found).await } else { Ok(None) };
            if is_known {
                if let Err(error) = renewal {
                    tracing::warn!(%error, "the tokens of a sign-in could not be renewed yet");
                }
                return Ok(known(found, session, now));
            }
            match renewal? {
                // Its end is in the row, also if it panicked.
                Some(renewal) => drop(renewal.await),
                None if rests && !found.is_asked => return Err(AuthFailure::IssuerUnavailable),
                None if Instant::now() >= give_up => return Err(AuthFailure::IssuerUnavailable),
                None => sleep(LOOK).await,
            }
        }
    }

    /// Ends a sign-in of this person, in every process and at the issuer. Returns the tokens that it had, or `None` if
    /// the person has no such sign-in.
    pub(in crate::http) async fn end(
        &self,
        id: SignInId,
        person: &Principal,
    ) -> Result<Option<EndedTokens>, StoreError> {
        let write = self.parts.store.urgent_write().await?;
        let ended = write.end_sign_in(id, person).await?;
        write.commit().await?;
        let Some(ended) = ended else { return Ok(None) };
        self.revoke(&ended);
        Ok(Some(EndedTokens(self.parts.seal.open(ended.id, &ended.tokens).and_then(|tokens| tokens.id))))
    }

    /// Returns the address at which the browser of an ended sign-in ends its session at the issuer, if there is one.
    pub(in crate::http) async fn end_session_url(&self, ended: &EndedTokens) -> Option<String> {
        self.parts.issuer.end_session_url(ended.0.as_deref()).await
    }

    /// Asks the issuer beside the request to take the tokens of an ended sign-in back.
    fn revoke(&self, ended: &EndedSignIn) {
        let tokens = self.parts.seal.open(ended.id, &ended.tokens);
        let Some(refresh) = tokens.and_then(|tokens| tokens.refresh) else { return };
        self.revoke_token(refresh);
    }

    fn revoke_token(&self, refresh: String) {
        let issuer = self.parts.issuer.clone();
        self.parts.tasks.spawn(async move {
            if let Err(why) = issuer.revoke(&refresh).await {
                tracing::warn!(%why, "the issuer did not revoke the refresh token of an ended sign-in");
            }
        });
    }

    /// Begins a renewal in a task of its own, which the end of a request does not stop. Returns `None` if another one
    /// is in progress or was faster.
    async fn begin_renewal(self: &Arc<Self>, found: &SignIn) -> Result<Option<JoinHandle<()>>, StoreError> {
        let Ok(permit) = self.renewals.clone().try_acquire_owned() else { return Ok(None) };
        if self.parts.tasks.is_stopping() {
            return Ok(None);
        }
        let by = self.parts.clock.uuid().to_string();
        let asking = RenewingProcess { id: found.id, by: &by };
        let write = self.parts.store.urgent_write().await?;
        let sealed = write.begin_renewal(asking, found.known_until, LEASE).await?;
        write.commit().await?;
        let Some(sealed) = sealed else { return Ok(None) };
        let renewal = Renewal { id: found.id, by, person: found.person.clone(), sealed, _permit: permit };
        let sign_ins = self.clone();
        Ok(Some(self.parts.tasks.spawn(async move { sign_ins.renew(renewal).await })))
    }

    async fn renew(&self, renewal: Renewal) {
        let renewed = self.ask(&renewal).await;
        if let Err(error) = self.end_renewal(&renewal, renewed).await {
            tracing::error!(sign_in_id = %renewal.id, %error, "the new tokens of a sign-in could not be stored");
        }
    }

    /// Asks the issuer for new tokens. No transaction is open meanwhile.
    async fn ask(&self, renewal: &Renewal) -> RenewalResult {
        let KeptParts { issuer, identity, seal, .. } = &self.parts;
        let Some(kept) = seal.open(renewal.id, &renewal.sealed) else {
            tracing::warn!("the tokens of a sign-in were encrypted with another auth.session_key");
            return RenewalResult::Refused;
        };
        let Some(refresh) = kept.refresh else { return RenewalResult::Refused };
        let granted = match issuer.refresh(refresh.clone()).await {
            Ok(granted) => granted,
            Err(NotGranted::Invalid) => return RenewalResult::Refused,
            Err(NotGranted::Unreachable | NotGranted::Failed) => return RenewalResult::Failed,
        };
        let renewed = identity.of(&granted).await;
        let kept = KeptTokens {
            refresh: Some(granted.refresh_token.unwrap_or(refresh)),
            id: granted.id_token.or(kept.id),
        };
        let is_same = |known: &KnownCaller| {
            let Principal { tenant_id, user_id, .. } = &known.principal;
            (tenant_id, user_id) == (&renewal.person.tenant_id, &renewal.person.user_id)
        };
        match renewed {
            Ok(known) if is_same(&known) => RenewalResult::Fresh(kept, known),
            Ok(_) => {
                tracing::warn!("the renewed token of a sign-in is that of another person");
                RenewalResult::Refused
            }
            Err(AuthFailure::NotKnown(why)) => {
                tracing::warn!(%why, "the renewed token of a sign-in is not accepted");
                RenewalResult::Refused
            }
            Err(_) => RenewalResult::Unchecked(kept),
        }
    }

    async fn end_renewal(&self, renewal: &Renewal, renewed: RenewalResult) -> Result<(), StoreError> {
        let (kept, known) = match renewed {
            RenewalResult::Fresh(kept, known) => (kept, Some(known)),
            RenewalResult::Unchecked(kept) => (kept, None),
            RenewalResult::Failed => return self.rest(renewal).await,
            RenewalResult::Refused => return self.refuse(renewal).await,
        };
        let KeptParts { seal, entropy, .. } = &self.parts;
        let Some(sealed) = seal.close(renewal.id, &kept, &**entropy) else { return self.rest(renewal).await };
        let known = known.and_then(|known| Some((known.principal.roles, known.expiry.0?)));
        let renewed = RenewedTokens {
            tokens: &sealed,
            known: known.as_ref().map(|(roles, until)| (&roles[..], *until)),
            rests: known.is_none().then_some(REST),
        };
        let written = persist(PERSIST, || async {
            let write = self.parts.store.urgent_write().await?;
            let is_stored = write.end_renewal(renewal.asking(), &renewed).await?;
            write.commit().await?;
            Ok(is_stored)
        });
        let written = written.await?;
        // After a failed attempt whose commit succeeded, the row is no longer asked for by this attempt.
        if !written.value
            && !written.tried_before
            && let Some(refresh) = kept.refresh
        {
            // The person has signed out meanwhile.
            self.revoke_token(refresh);
        }
        Ok(())
    }

    async fn rest(&self, renewal: &Renewal) -> Result<(), StoreError> {
        let write = self.parts.store.urgent_write().await?;
        write.rest_renewal(renewal.asking(), REST).await?;
        write.commit().await
    }

    async fn refuse(&self, renewal: &Renewal) -> Result<(), StoreError> {
        let write = self.parts.store.urgent_write().await?;
        let is_ended = write.refuse_renewal(renewal.asking()).await?;
        write.commit().await?;
        if is_ended {
            let Principal { tenant_id, user_id, .. } = &renewal.person;
            tracing::info!(sign_in_id = %renewal.id, tenant_id, user_id, "the issuer ended a sign-in");
        }
        Ok(())
    }
}

/// The ID token of an ended sign-in, if the issuer gave one.
pub(in crate::http) struct EndedTokens(Option<String>);

impl Renewal {
    fn asking(&self) -> RenewingProcess<'_> {
        RenewingProcess { id: self.id, by: &self.by }
    }
}

fn known(found: SignIn, session: Session, now: Timestamp) -> KnownCaller {
    let session = session.kept_as(found.id, found.ends_at);
    let until = found.known_until.min(found.ends_at).min(now.plus(STREAMS_LAST));
    KnownCaller { principal: found.person, expiry: Expiry(Some(until)), ticket: None, session: Some(session) }
}
