//! The person that an answer of the issuer names, by `auth.session_from`.

use super::issuer::{Granted, Issuer};
use super::token::Tokens;
use super::validity::LEEWAY_SECONDS;
use super::{Expiry, KnownCaller};
use crate::config::SessionFrom;
use crate::http::auth::failure::{AuthFailure, Unknown};
use holdpoint_core::clock::Clock;
use std::sync::Arc;
use std::time::Duration;

/// Finds out who has signed in.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) from: SessionFrom,
    pub(super) tokens: Arc<Tokens>,
    pub(super) issuer: Arc<Issuer>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Identity {
    /// Returns the person, and how long they are known: never longer than the access token counts, with the leeway of
    /// every token.
    pub(super) async fn of(&self, granted: &Granted) -> Result<KnownCaller, AuthFailure> {
        let known = match self.from {
            SessionFrom::AccessToken => return self.tokens.check(&granted.access_token).await,
            SessionFrom::IdToken => {
                // An answer to a refresh token may have none. Then nothing says whether the roles are still the same.
                let id_token = granted.id_token.as_deref().ok_or(Unknown::NoIdToken)?;
                self.tokens.check_id_token(id_token, self.issuer.client_id()).await?
            }
            SessionFrom::Introspection => {
                let claims = self.issuer.introspect(&granted.access_token).await?;
                self.tokens.check_introspected(&claims, self.issuer.client_id())?
            }
        };
        let leeway = Duration::from_secs(LEEWAY_SECONDS);
        let ends = granted.expires_in.map(|lasts| self.clock.now().plus(lasts.saturating_add(leeway)));
        let until = known.expiry.0.into_iter().chain(ends).min();
        Ok(KnownCaller { expiry: Expiry(until), ..known })
    }
}
