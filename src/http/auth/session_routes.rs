//! The caller as the server sees them, and their sign-ins.

use crate::http::Api;
use crate::http::access::{
    Access,
    CallerKind::{SignedInUser, User},
};
use crate::http::auth::{Caller, END, Expiry, Session};
use crate::http::body::formats::Time;
use crate::http::body::payload::{Json, Tag};
use crate::http::failure::error::ApiError;
use holdpoint_core::Principal;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::id::SignInId;
use holdpoint_core::sign_in::SignIn;
use poem::Request;
use poem_openapi::param::Path;
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
    /// When the authentication ends: with the token, or with the sign-in that the server keeps. Absent in mode `none`.
    #[oai(skip_serializing_if_is_none)]
    expires_at: Option<Time>,
    /// The value of the header `x-csrf-token`, which every other request with the cookie of a sign-in needs. Absent for
    /// a caller without that cookie.
    #[oai(skip_serializing_if_is_none)]
    csrf_token: Option<String>,
}

/// The end of a sign-in at this server.
#[derive(Debug, Object)]
struct SignedOut {
    /// Where the browser ends its session at the issuer, if the server kept the sign-in and the issuer has such an
    /// address.
    #[oai(skip_serializing_if_is_none)]
    end_session_url: Option<String>,
}

#[derive(ApiResponse)]
enum SignOutAnswer {
    /// The browser has no session.
    #[oai(status = 200)]
    Done(
        Json<SignedOut>,
        /// Removes the cookie.
        #[oai(header = "set-cookie")]
        String,
    ),
}

/// A sign-in of the caller that the server keeps.
#[derive(Debug, Object)]
#[oai(rename = "SignIn")]
struct SignInView {
    /// The id of the sign-in, which gives no right.
    sign_in_id: String,
    /// What the browser called itself (`User-Agent`). It may be any text.
    browser: String,
    /// When the person signed in.
    begun_at: Time,
    /// When the sign-in ends at the latest.
    ends_at: Time,
    /// Whether the request belongs to this sign-in.
    is_current: bool,
}

/// The sign-ins of a user.
#[derive(Debug, Object)]
struct SignInList {
    /// The newest first, at most 20.
    results: Vec<SignInView>,
}

#[derive(ApiResponse)]
enum SignInEnded {
    /// The sign-in has ended.
    #[oai(status = 204)]
    Done,
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[
    ("getAuthSession", &[User]),
    ("signOut", &[User]),
    ("listSignIns", &[User]),
    ("endSignIn", &[SignedInUser]),
];

pub(in crate::http) struct AuthSessions(pub(in crate::http) Api);

/// Returns the sign-in of a request that the server keeps, and its end.
fn kept(request: &Request) -> Option<(SignInId, Timestamp)> {
    request.data::<Session>()?.kept
}

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
        let ends_at = kept(request).map(|(_, ends_at)| ends_at);
        let expires_at = ends_at.or(expiry.0).map(Time::from);
        Ok(Json(AuthSession { user_id, tenant_id, roles, expires_at, csrf_token }))
    }

    /// Sign out
    ///
    /// Removes the cookie of a sign-in. A sign-in that the server keeps ends in every process, and the issuer is asked to
    /// revoke its refresh token. Otherwise the access token counts until it expires, and the session at the issuer stays.
    /// For a caller without the cookie nothing changes.
    #[oai(path = "/auth/sign-out", method = "post", operation_id = "signOut", tag = "Tag::Auth")]
    async fn sign_out(&self, request: &Request, caller: Caller) -> Result<SignOutAnswer, ApiError> {
        let mut end_session_url = None;
        if let (Some(sign_ins), Some((id, _))) = (&self.0.sign_ins, kept(request))
            && let Some(ended) = sign_ins.end(id, &caller.0).await?
        {
            end_session_url = sign_ins.end_session_url(&ended).await;
        }
        Ok(SignOutAnswer::Done(Json(SignedOut { end_session_url }), END.to_owned()))
    }

    /// List one's sign-ins
    ///
    /// Returns the caller's sign-ins to the console that the server keeps: those of the user in the tenant. Empty where the
    /// server keeps none.
    #[oai(path = "/auth/sign-ins", method = "get", operation_id = "listSignIns", tag = "Tag::Auth")]
    async fn list(&self, request: &Request, caller: Caller) -> Result<Json<SignInList>, ApiError> {
        let Api { store, clock, sign_ins, .. } = &self.0;
        if sign_ins.is_none() {
            return Ok(Json(SignInList { results: Vec::new() }));
        }
        let current = kept(request).map(|(id, _)| id);
        let found = store.read().await?.sign_ins_of(&caller.0, clock.now()).await?;
        let view = |sign_in: SignIn| SignInView {
            sign_in_id: sign_in.id.to_string(),
            browser: sign_in.browser,
            begun_at: sign_in.begun_at.into(),
            ends_at: sign_in.ends_at.into(),
            is_current: current == Some(sign_in.id),
        };
        Ok(Json(SignInList { results: found.into_iter().map(view).collect() }))
    }

    /// End one of one's sign-ins
    ///
    /// Signs another browser of the caller out, or this one.
    #[oai(
        path = "/auth/sign-ins/:sign_in_id",
        method = "delete",
        operation_id = "endSignIn",
        tag = "Tag::Auth"
    )]
    async fn end(
        &self,
        caller: Caller,
        /// One of the caller's sign-ins, as the list names it.
        sign_in_id: Path<String>,
    ) -> Result<SignInEnded, ApiError> {
        let id = sign_in_id.0.parse().map_err(|_| ApiError::not_found())?;
        let sign_ins = self.0.sign_ins.as_ref().ok_or_else(ApiError::not_found)?;
        sign_ins.end(id, &caller.0).await?.ok_or_else(ApiError::not_found)?;
        Ok(SignInEnded::Done)
    }
}
