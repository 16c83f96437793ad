//! The caller as the server sees them, and the end of the session of a browser.

use super::auth::{Caller, END, Expiry, Session};
use super::error::ApiError;
use super::formats::Time;
use super::payload::{Json, Tag};
use crate::domain::Principal;
use poem::Request;
use poem_openapi::{ApiResponse, Object, OpenApi};

/// The authenticated caller.
#[derive(Debug, Object)]
struct AuthSession {
    /// The user, by the claim that `auth.user_claim` names.
    user_id: String,
    /// The tenant, which separates users and their data.
    tenant_id: String,
    /// The roles, by which the caller approves, operates or works.
    roles: Vec<String>,
    /// When the authentication ends. Absent in mode `none`.
    #[oai(skip_serializing_if_is_none)]
    expires_at: Option<Time>,
    /// The value of the header `x-csrf-token`, which every other request with the cookie of a sign-in needs. Absent for
    /// a caller without that cookie.
    #[oai(skip_serializing_if_is_none)]
    csrf_token: Option<String>,
}

#[derive(ApiResponse)]
enum SignedOut {
    /// The browser has no session.
    #[oai(status = 204)]
    Done(
        /// Removes the cookie.
        #[oai(header = "set-cookie")]
        String,
    ),
}

pub(super) struct AuthSessions;

#[OpenApi]
impl AuthSessions {
    /// Get the caller
    ///
    /// Returns the user, the tenant and the roles as which the server knows the caller.
    #[oai(path = "/auth/session", method = "get", operation_id = "getAuthSession", tag = "Tag::Auth")]
    async fn get(
        &self,
        request: &Request,
        caller: Caller,
        expiry: Expiry,
    ) -> Result<Json<AuthSession>, ApiError> {
        let Principal { user_id, tenant_id, roles } = caller.0;
        let csrf_token = request.data::<Session>().map(|session| session.csrf_token.clone());
        let expires_at = expiry.0.map(Time::from);
        Ok(Json(AuthSession { user_id, tenant_id, roles, expires_at, csrf_token }))
    }

    /// Sign out
    ///
    /// Removes the cookie of a sign-in. The access token itself counts until it expires, and the session at the issuer
    /// stays. For a caller without the cookie nothing changes.
    #[oai(path = "/auth/sign-out", method = "post", operation_id = "signOut", tag = "Tag::Auth")]
    async fn sign_out(&self, _caller: Caller) -> Result<SignedOut, ApiError> {
        Ok(SignedOut::Done(END.to_owned()))
    }
}
