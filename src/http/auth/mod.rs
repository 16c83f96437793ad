//! Who is calling.

mod loopback;

use super::error::ApiError;
use crate::domain::Principal;
use poem::{FromRequest, Request, RequestBody, Result};

/// How callers are known.
#[derive(Debug)]
pub(crate) enum Authenticator {
    /// Everybody is the one user.
    Local {
        /// Whether only this machine may call.
        loopback_only: bool,
    },
}

impl Authenticator {
    /// Who sends this request.
    pub(super) async fn principal(&self, request: &Request) -> Result<Principal, ApiError> {
        match self {
            Self::Local { loopback_only } => {
                if *loopback_only {
                    loopback::check(request)?;
                }
                Ok(Principal::local())
            }
        }
    }
}

/// The caller of a request, as the front has seen them.
pub(super) struct Caller(pub(super) Principal);

impl<'a> FromRequest<'a> for Caller {
    async fn from_request(request: &'a Request, _body: &mut RequestBody) -> Result<Self> {
        let known = request.data::<Principal>().cloned();
        Ok(Self(known.ok_or_else(ApiError::internal)?))
    }
}
