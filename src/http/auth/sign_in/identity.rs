//! The person that an answer of the issuer names, by `auth.session_from`.

use super::issuer::{GrantedTokens, Issuer};
use crate::config::SessionFrom;
use crate::http::auth::failure::{AuthFailure, Unknown};
use crate::http::auth::token::Tokens;
use crate::http::auth::validity::LEEWAY_SECONDS;
use crate::http::auth::{Expiry, KnownCaller};
use holdpoint_core::clock::Clock;
use std::sync::Arc;
use std::time::Duration;

/// Finds out who has signed in.
#[derive(Debug)]
pub(in crate::http::auth) struct Identity {
    pub(in crate::http::auth) from: SessionFrom,
    pub(in crate::http::auth) tokens: Arc<Tokens>,
    pub(in crate::http::auth) issuer: Arc<Issuer>,
    pub(in crate::http::auth) clock: Arc<dyn Clock>,
}

impl Identity {
    /// Returns the person, and how long they are known: never longer than the access token counts, with the leeway of
    /// every token.
    pub(in crate::http::auth) async fn of(
        &self,
        granted: &GrantedTokens,
    ) -> Result<KnownCaller, AuthFailure> {
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
