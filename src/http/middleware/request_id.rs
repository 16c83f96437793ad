//! Request ids: one id for each request, in its response, log lines and errors.

use poem::{FromRequest, Request, RequestBody, Result};

/// The header that carries the id in requests and responses.
pub(in crate::http) const HEADER: &str = "x-request-id";

/// The id of a request.
#[derive(Debug, Clone)]
pub(in crate::http) struct RequestId(pub(in crate::http) String);

impl RequestId {
    /// Returns the caller's id if it is safe to log, otherwise a fresh id.
    pub(in crate::http) fn of(request: &Request, fresh: impl FnOnce() -> String) -> Self {
        let harmless = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let given =
            request.header(HEADER).filter(|id| (1..=64).contains(&id.len()) && id.chars().all(harmless));
        Self(given.map_or_else(fresh, str::to_owned))
    }
}

impl<'a> FromRequest<'a> for RequestId {
    async fn from_request(request: &'a Request, _body: &mut RequestBody) -> Result<Self> {
        Ok(request.data::<Self>().cloned().unwrap_or_else(|| Self(String::new())))
    }
}
