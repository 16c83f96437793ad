//! A server without the console (feature `console`): no browser signs in. It has the interface of `sign_in`, and no value
//! of its types exists.

use super::session::Session;
use super::{KnownCaller, SignInParts};
use crate::config::Config;
use crate::http::auth::failure::AuthFailure;
use holdpoint_core::Principal;
use holdpoint_core::id::SignInId;
use holdpoint_store::StoreError;
use poem::{Request, Response};
use std::convert::Infallible;
use std::sync::Arc;

pub(super) const PATH: &str = "/auth/sign-in";

#[derive(Debug)]
pub(super) enum SignIn {}

pub(in crate::http) const STEPS: [&str; 0] = [];

pub(super) fn is_step(_path: &str) -> bool {
    false
}

impl SignIn {
    pub(super) fn new(_config: &Config, _parts: SignInParts) -> Result<Option<Self>, String> {
        Ok(None)
    }

    pub(super) fn kept(&self) -> Option<&Arc<SignIns>> {
        match *self {}
    }

    pub(super) async fn answer(&self, _request: &Request) -> Response {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) enum SignIns {}

impl SignIns {
    pub(super) async fn resume(&self, _cookie: &str, _session: Session) -> Result<KnownCaller, AuthFailure> {
        match *self {}
    }

    pub(in crate::http) async fn end(
        &self,
        _id: SignInId,
        _person: &Principal,
    ) -> Result<Option<Infallible>, StoreError> {
        match *self {}
    }

    pub(in crate::http) async fn end_session_url(&self, _ended: &Infallible) -> Option<String> {
        match *self {}
    }
}
